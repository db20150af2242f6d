//! The stepper itself is judged first: against counts that were worked out by
//! hand and stand in the sources, and against each other's modes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use atom_tests::check::{Check, check};
use atom_tests::counts::Symbols;
use atom_tests::source::{Source, Variant};
use atom_tests::stepper::{self, BranchCount, Options, Process};
use object::{Object, ObjectSection};

#[test]
fn counts_stated_in_the_sources() {
    let mut any = false;
    for source in atom_tests::source::all().unwrap() {
        if !source.counts.is_empty() {
            any = true;
            check(&source.name(), Check::StatedCounts);
        }
    }
    assert!(any, "no source states a count");
}

fn build(name: &str, text: &str) -> PathBuf {
    let folder = atom_tests::cache::folder("");
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    let out = path.with_extension("");
    let source = Source::read(&path).unwrap();
    let variant = Variant(source.variants[0].0.clone());
    source.build(&variant, &out).unwrap();
    out
}

fn step(program: &PathBuf, options: Options) -> Vec<Process> {
    stepper::run(program, &mut Command::new(program), options)
        .unwrap()
        .processes
}

/// `rep` once per execution, a self-loop once per turn, an ambiguous branch by
/// its flags, the system call that ends the program, and no trap flag in sight.
#[test]
fn every_instruction_of_a_bare_program() {
    let program = build(
        "steps.S",
        "// variants: gcc-bare
        .globl _start, a0, a1, a2, a3, a4, a5, a6
_start: movl $10, %ecx
a0:     decl %ecx
a1:     jnz a0
        leaq buffer(%rip), %rdi
        movl $37, %ecx
a2:     rep stosb
        movl $5, %ecx
a3:     loop a3
        xorl %eax, %eax
a4:     jz a5
a5:     pushfq
        popq %rdi
        shrl $8, %edi
        andl $1, %edi
        movl $60, %eax
a6:     syscall
        ud2
        .bss
buffer: .skip 64
",
    );
    let profile = stepper::run(&program, &mut Command::new(&program), Options::default()).unwrap();
    assert_eq!(profile.wait_status, 0, "the program saw the trap flag");
    let symbols = Symbols::read(&program);
    let at = |name: &str| symbols.address(name).unwrap();
    let main = profile.main();
    for (name, n) in [
        ("_start", 1),
        ("a0", 10),
        ("a1", 10),
        ("a2", 1),
        ("a3", 5),
        ("a4", 1),
        ("a5", 1),
        ("a6", 1),
    ] {
        assert_eq!(main.counts[&at(name)], n, "{name}");
    }
    assert_eq!(main.counts.len(), 16);
    assert_eq!(
        main.branches[&at("a1")],
        BranchCount {
            taken: 9,
            not_taken: 1
        }
    );
    assert_eq!(
        main.branches[&at("a3")],
        BranchCount {
            taken: 4,
            not_taken: 1
        }
    );
    assert_eq!(
        main.branches[&at("a4")],
        BranchCount {
            taken: 1,
            not_taken: 0
        }
    );
}

/// Handlers that run the same `rep` instruction, ignored signals, fork, vfork
/// and threads; running libraries at full speed changes no count.
#[test]
fn signals_forks_and_threads() {
    let program = build(
        "steps-more.c",
        "// variants: gcc-O1
// cflags: -pthread
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
char buffer[100];
int total;
void bump(void) { __atomic_fetch_add(&total, 1, 0); }
static void handler(int s)
{
    long n = 20;
    void *d = buffer;
    __asm__ volatile(\"rep stosb\" : \"+D\"(d), \"+c\"(n) : \"a\"(s) : \"memory\");
    bump();
}
static void *thread(void *p) { for (int i = 0; i < 100; i++) bump(); return p; }
int main(void)
{
    signal(SIGUSR1, handler);
    signal(SIGUSR2, SIG_IGN);
    for (int i = 0; i < 5; i++) { raise(SIGUSR1); raise(SIGUSR2); }
    pid_t p = fork();
    if (p == 0) { bump(); bump(); _exit(0); }
    waitpid(p, 0, 0);
    if (vfork() == 0) { execl(\"/bin/true\", \"true\", (char *)0); _exit(1); }
    pthread_t a, b;
    pthread_create(&a, 0, thread, 0);
    pthread_create(&b, 0, thread, 0);
    pthread_join(a, 0);
    pthread_join(b, 0);
    return total != 205;
}
",
    );
    let bump = Symbols::read(&program).address("bump").unwrap();
    let slow = step(
        &program,
        Options {
            follow_forks: true,
            ..Options::default()
        },
    );
    let fast = step(
        &program,
        Options {
            follow_forks: true,
            skip_libraries: true,
            ..Options::default()
        },
    );
    assert_eq!(slow.len(), 2, "the program and its fork");
    assert_eq!(slow[0].counts[&bump], 205);
    assert_eq!(
        slow[1].counts[&bump], 7,
        "a fork starts with its parent's counts"
    );
    for (slow, fast) in slow.iter().zip(&fast) {
        assert_eq!(slow.counts, fast.counts);
        assert_eq!(slow.branches, fast.branches);
    }
    let alone = step(
        &program,
        Options {
            skip_libraries: true,
            ..Options::default()
        },
    );
    assert_eq!(alone.len(), 1);
    assert_eq!(alone[0].counts, slow[0].counts);
}

/// Instructions by address in the object `name`, from callgrind's output file.
/// Lines with a function's own cost count; the line after `calls=` has the cost of a callee.
fn read_callgrind(text: &str, name: &str) -> BTreeMap<u64, u64> {
    let (mut objects, mut counts) = (BTreeMap::new(), BTreeMap::new());
    let (mut current, mut address, mut callee) = (String::new(), 0u64, false);
    for line in text.lines() {
        if let Some((key @ ("ob" | "cob"), value)) = line.split_once('=') {
            let (id, path) = value.split_once(' ').unwrap_or((value, ""));
            if !path.is_empty() {
                objects.insert(id.to_string(), path.to_string());
            }
            if key == "ob" {
                current = objects.get(id).cloned().unwrap_or_default();
            }
        } else if line.starts_with("calls=") {
            callee = true;
        } else if let [position, _, cost] = line.split(' ').collect::<Vec<_>>()[..]
            && let Ok(cost) = cost.parse::<u64>()
        {
            address = match position.as_bytes()[0] {
                b'+' => address + position[1..].parse::<u64>().unwrap(),
                b'-' => address - position[1..].parse::<u64>().unwrap(),
                b'*' => address,
                _ => match position.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
                    None => continue,
                },
            };
            if !std::mem::take(&mut callee) && current.ends_with(name) {
                *counts.entry(address).or_default() += cost;
            }
        }
    }
    counts
}

/// Another judge, which emulates instead of stepping, comes to the same figures.
#[test]
fn callgrind_agrees() {
    let program = build("steps-judged.c", include_str!("../sources/deep.c"));
    let output = program.with_extension("callgrind");
    let status = Command::new(atom_tests::programs::needed("valgrind"))
        .args([
            "--tool=callgrind",
            "--dump-instr=yes",
            "--skip-plt=no",
            "--quiet",
        ])
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(&program)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let stepped = step(
        &program,
        Options {
            skip_libraries: true,
            ..Options::default()
        },
    );
    let judged = read_callgrind(&std::fs::read_to_string(&output).unwrap(), "steps-judged");
    let data = std::fs::read(&program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let text = file.section_by_name(".text").unwrap();
    // Callgrind books start-up code and the PLT elsewhere.
    let text = text.address()..text.address() + text.size();
    let of_text = |counts: &BTreeMap<u64, u64>| {
        counts
            .range(text.clone())
            .map(|(a, n)| (*a, *n))
            .collect::<BTreeMap<_, _>>()
    };
    let (stepped, judged) = (of_text(&stepped[0].counts), of_text(&judged));
    assert!(stepped.values().sum::<u64>() > 50_000);
    let addresses = stepped.keys().chain(judged.keys());
    // It counts the iterations of string instructions.
    let code = stepper::Text::read(&program).unwrap();
    let addresses = addresses.filter(|a| !code.decode(**a).has_rep_prefix());
    let differing: Vec<_> = addresses
        .filter(|a| stepped.get(a) != judged.get(a))
        .map(|a| (a, stepped.get(a), judged.get(a)))
        .collect();
    assert!(differing.is_empty(), "{differing:?}");
}
