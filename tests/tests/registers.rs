//! `--keep-registers`: the state that a signal handler gets has the registers of the original, even those that the
//! program does not need any more. They keep their values if the handler skips the instruction that would have
//! set them.

use std::path::Path;
use std::process::Command;

use atom_tests::atom;
use atom_tests::outcome::{Setting, plain_environment, run};

/// A program that faults with known values in registers, all of which are overwritten directly after the fault.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>
static volatile int wrong, faults;
static long cells[4];
static void on_fault(int s, siginfo_t *info, void *c)
{
    greg_t *g = ((ucontext_t *)c)->uc_mcontext.gregs;
    int names[] = { REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11 };
    for (int i = 0; i < 8; i++) wrong += g[names[i]] != 101 + i;
    wrong += !(g[REG_EFL] & 1) + !(g[REG_EFL] & 0x40);
    faults++;
    g[REG_RIP] += 2;
    (void)s; (void)info;
}
__attribute__((noinline)) static long skip(void)
{
    long left;
    __asm__ volatile(
        "mov $101,%%ecx\n\tmov $102,%%edx\n\tmov $103,%%esi\n\tmov $104,%%edi\n\t"
        "mov $105,%%r8d\n\tmov $106,%%r9d\n\tmov $107,%%r10d\n\tmov $108,%%r11d\n\t"
        "xor %%eax,%%eax\n\tcmp %%eax,%%eax\n\tstc\n\t"
        "mov (%%rax),%%ecx\n\tmov %%rcx,%0\n\t"
        "mov %1,%%ecx\n\tmov %1,%%edx\n\tmov %1,%%esi\n\tmov %1,%%edi\n\t"
        "mov %1,%%r8d\n\tmov %1,%%r9d\n\tmov %1,%%r10d\n\tmov %1,%%r11d\n\ttest %%ecx,%%ecx"
        : "=&m"(left) : "m"(cells[1])
        : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
    return left;
}
int main(void)
{
    struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
    sigaction(SIGSEGV, &sa, NULL);
    long left = 0;
    for (int i = 0; i < 3; i++) left += skip();
    printf("left %ld faults %d wrong %d\n", left, faults, wrong);
}
"#;

/// Output of the program with a tool and its options.
fn printed(place: &Path, tool: &str, options: &[&str]) -> String {
    let out = place.join(format!("{tool}.out"));
    let made = Command::new(atom::command().unwrap())
        .arg(place.join("program"))
        .args(["--strict", "--check", "--tool", tool, "-o"])
        .arg(&out)
        .args(options)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{errors}");
    let mut command = Command::new(&out);
    plain_environment(&mut command);
    let outcome = run(command.current_dir(place), &Setting::default()).unwrap();
    String::from_utf8_lossy(&outcome.stdout).trim().to_owned()
}

#[test]
fn a_handler_sees_all_registers() {
    let place = atom_tests::cache::folder("registers");
    let source = place.join("program.c");
    std::fs::write(&source, PROGRAM).unwrap();
    for level in ["-O0", "-O2"] {
        let mut gcc = Command::new("gcc");
        gcc.arg(level)
            .arg(&source)
            .arg("-o")
            .arg(place.join("program"));
        assert!(gcc.status().unwrap().success());
        for tool in ["icount", "cache", "dtb", "branch"] {
            for options in [
                &["--keep-registers"][..],
                &["--keep-registers", "--no-inline"],
            ] {
                let printed = printed(&place, tool, options);
                assert_eq!(
                    printed, "left 303 faults 3 wrong 0",
                    "{level} {tool} {options:?}"
                );
            }
        }
    }
}
