//! The queries of the tool interface, asked by a real tool about real programs.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_core::Error;
use atom_core::cfg::Cfg;
use atom_core::cfg::seeds::FrameFacts;
use atom_core::image::Image;
use atom_core::image::debug::DebugLines;
use atom_core::tool::{Application, Tool};

use crate::{run, temp, tool_file};

/// The lines of the first functions are known to the tool.
const PROGRAM: &str = r#"#include <stdio.h>
#include <stdlib.h>
volatile int sink;
#define ALWAYS static inline __attribute__((always_inline))
ALWAYS int innermost(int x) { sink = x; return sink * 3; }
ALWAYS int middle(int x) { return innermost(x) + 1; }
__attribute__((noinline)) int outer(int x) { return middle(x) + 2; }
__attribute__((noinline)) void aliased(void) { sink++; }
void alias(void) __attribute__((alias("aliased")));
int twin_a(void);
static __attribute__((noinline)) int twin(void) { return sink += 5; }
__attribute__((noinline)) int choose(int n) {
    switch (n) {
    case 0: return sink + 7;
    case 1: sink = 3; break;
    case 2: sink = 4; return 9;
    case 3: sink *= 5; break;
    case 4: sink -= 6; break;
    case 5: sink ^= 7; return 3;
    case 6: sink |= 8; break;
    case 7: sink /= 9; break;
    }
    return sink;
}
__attribute__((noinline)) int tail(int n) { return outer(n + 1); }
__attribute__((noinline)) int indirect_tail(int (*f)(int)) { return f(3); }
__attribute__((noinline, noreturn)) void dies(void) { sink = 1; abort(); }
__attribute__((noinline)) void nest(int n, int m) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) sink++;
}
int main(int argc, char **argv) {
    int (*volatile f)(int) = outer;
    if (argc > 5) dies();
    aliased(); alias();
    nest(argc, argc);
    printf("%d %d\n", f(argc) + outer(argc) + tail(argc) + indirect_tail(f), choose(argc));
    return twin() + twin_a() - sink;
}
#define BOTH(NAME, BODY) \
    asm(".text\n.globl " NAME "\n.type " NAME ", @function\n" NAME ":\n.cfi_startproc\n" BODY \
        ".cfi_endproc\n.size " NAME ", .-" NAME "\n")
#define BARE(NAME, BODY) \
    asm(".text\n.globl " NAME "\n.type " NAME ", @function\n" NAME ":\n" BODY \
        ".size " NAME ", .-" NAME "\n")
BOTH("framed", "endbr64\n push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset 6, -16\n"
    "mov %rsp, %rbp\n .cfi_def_cfa_register 6\n push %r12\n push %rbx\n"
    ".cfi_offset 12, -24\n .cfi_offset 3, -32\n sub $0x40, %rsp\n"
    "mov $1, %ebx\n mov $2, %r12d\n lea 0x40(%rsp), %rsp\n"
    "pop %rbx\n pop %r12\n pop %rbp\n .cfi_def_cfa 7, 8\n ret\n");
BARE("framed_bare", "endbr64\n push %rbp\n mov %rsp, %rbp\n push %r12\n push %rbx\n"
    "sub $0x40, %rsp\n mov $1, %ebx\n lea -16(%rbp), %rsp\n pop %rbx\n pop %r12\n pop %rbp\n ret\n");
BOTH("leaf", "mov %edi, %eax\n ret\n");
BARE("leaf_bare", "mov %edi, %eax\n ret\n");
BOTH("plain", "push %rbx\n .cfi_def_cfa_offset 16\n .cfi_offset 3, -16\n sub $0x20, %rsp\n"
    ".cfi_def_cfa_offset 48\n mov %edi, %ebx\n add $0x20, %rsp\n .cfi_def_cfa_offset 16\n"
    "pop %rbx\n .cfi_def_cfa_offset 8\n ret\n");
BARE("plain_bare", "push %rbx\n sub $0x20, %rsp\n mov %edi, %ebx\n add $0x20, %rsp\n pop %rbx\n ret\n");
BARE("probed", "lea -0x5000(%rsp), %r11\n 1: sub $0x1000, %rsp\n orq $0, (%rsp)\n cmp %r11, %rsp\n"
    "jne 1b\n sub $0x10, %rsp\n movb $0, (%rsp)\n add $0x5010, %rsp\n ret\n");
BARE("dynamic", "push %rbp\n mov %rsp, %rbp\n sub %rdi, %rsp\n movb $0, (%rsp)\n leave\n ret\n");
BARE("stores", "sub $0x28, %rsp\n mov %r13, 0x18(%rsp)\n mov %edi, %r14d\n mov %r14, 8(%rsp)\n"
    "mov 0x18(%rsp), %r13\n add $0x28, %rsp\n ret\n");
"#;

const OTHER: &str = "extern volatile int sink;
static __attribute__((noinline)) int twin(void) { return sink -= 7; }
int twin_a(void) { return twin(); }";

/// Builds a program from the two files.
fn compile(name: &str, flags: &[&str]) -> PathBuf {
    let directory = temp(&format!("queries-{name}"));
    std::fs::create_dir_all(&directory).unwrap();
    let (main, other) = (directory.join("queries.c"), directory.join("other.c"));
    std::fs::write(&main, PROGRAM).unwrap();
    std::fs::write(&other, OTHER).unwrap();
    let out = directory.join(name);
    run(Command::new(flags[0])
        .args(&flags[1..])
        .args(["-g", "-o"])
        .arg(&out)
        .arg(&main)
        .arg(&other));
    out
}

/// Runs the tool; what it finds wrong ends the process with a message.
fn ask(program: &Path, args: &[&str]) {
    let image = Image::open(program).unwrap();
    let frames = image.unwind_table().unwrap();
    let cfg = Cfg::build(&image, &FrameFacts::new(&frames)).unwrap();
    let tool = Tool::load(tool_file()).unwrap();
    let args: Vec<String> = args.iter().map(|a| a.to_string()).collect();
    let lines = DebugLines::new(&image);
    let failed = |error: &Error| -> Infallible {
        eprintln!("{}: {error}", program.display());
        std::process::exit(42)
    };
    let application = Application {
        path: program,
        image: &image,
        cfg: &cfg,
        lines: &lines,
        selected: None,
        crossings: None,
        is_global: true,
        known: 1,
    };
    tool.instrument(&[application], &args, Default::default(), &failed)
        .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
}

#[test]
fn a_known_program() {
    for (name, flags) in [
        ("pie", &["gcc", "-O2"][..]),
        ("fixed", &["gcc", "-O2", "-no-pie", "-fno-pie"]),
        ("static", &["gcc", "-O2", "-static"]),
        ("dwarf4", &["gcc", "-O2", "-gdwarf-4", "-gz"]),
        ("no-plt", &["gcc", "-O2", "-fno-plt"]),
        (
            "clang",
            &["clang", "-O2", "-fno-vectorize", "-fno-unroll-loops"],
        ),
    ] {
        ask(&compile(name, flags), &["queries"]);
    }
}

#[test]
fn program_info_is_what_readelf_says() {
    for (name, flags) in [
        ("info-pie", &["gcc"][..]),
        ("info-fixed", &["gcc", "-no-pie", "-fno-pie"]),
        ("info-static", &["gcc", "-static"]),
        ("info-static-pie", &["gcc", "-static-pie"]),
        ("info-lld", &["clang", "-fuse-ld=lld"]),
    ] {
        if name == "info-lld" && Command::new("ld.lld").arg("-v").output().is_err() {
            continue;
        }
        let program = compile(name, flags);
        ask(&program, &["info", &readelf(&program)]);
    }
}

/// The six values, from the program headers as `readelf` prints them.
fn readelf(program: &Path) -> String {
    let text = run(Command::new("readelf").arg("-lW").arg(program));
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    // LOAD offset address physical file-size memory-size flags... align
    let (mut text_range, mut data) = ((u64::MAX, 0), (u64::MAX, 0, 0));
    for line in text.lines().filter(|l| l.trim_start().starts_with("LOAD")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (address, file, memory) = (number(words[2]), number(words[4]), number(words[5]));
        let flags = words[6..words.len() - 1].concat();
        if flags.contains('E') {
            text_range = (text_range.0.min(address), text_range.1.max(address + file));
        } else if flags.contains('W') {
            data.0 = data.0.min(address);
            data.1 = data.1.max(address + file);
            data.2 = data.2.max(address + memory);
        }
    }
    let (start, end) = text_range;
    let values = [
        start,
        end - start,
        data.0,
        data.1 - data.0,
        data.1,
        data.2 - data.1,
    ];
    values.map(|v| format!("{v:x}")).join(",")
}

#[test]
fn the_name_is_that_of_the_file() {
    let program = compile("name", &["gcc"]);
    for (file, name) in [
        ("appl.rr", "appl"),
        ("python3.11", "python3.11"),
        ("a.out", "a.out"),
    ] {
        let copy = temp(file);
        std::fs::copy(&program, &copy).unwrap();
        ask(&copy, &["name", name]);
    }
}

const FRAMES: &str = r#"
    void use(void *);
    int f_small(int a) { return a * 3; }
    int f_array(int a) { char b[100]; use(b); return b[a]; }
    int f_large(int a) { char b[20000]; use(b); return b[a]; }
    long f_many(long a, long b, long c, long d, long e, long f) {
        char t[40]; use(t); use(t + 1); return a + b * c - d / (e | 1) + f + t[3];
    }
    int f_alloca(int n) { char *p = __builtin_alloca(n); use(p); return p[n / 2]; }
    int f_nested(int n) { char p[64]; use(p); for (int i = 0; i < n; i++) use(p + i); return p[7]; }
    void use(void *p) { *(volatile char *)p = 1; }
    int main(int argc, char **argv) {
        return f_small(argc) + f_array(argc) + f_large(argc) + f_many(1, 2, 3, 4, 5, argc) + f_alloca(argc) + f_nested(argc);
    }
"#;

/// gcc tells the size of each frame with `-fstack-usage`.
#[test]
fn frame_sizes_are_the_compilers() {
    let mut checked = 0;
    for (i, flags) in [
        &["-O0"][..],
        &["-O2"],
        &["-O2", "-fno-omit-frame-pointer"],
        &[
            "-O2",
            "-fno-asynchronous-unwind-tables",
            "-fno-unwind-tables",
        ],
        &[
            "-O1",
            "-fno-omit-frame-pointer",
            "-fno-asynchronous-unwind-tables",
            "-fno-unwind-tables",
        ],
        &["-O2", "-fstack-clash-protection"],
        &["-Os", "-fcf-protection"],
    ]
    .iter()
    .enumerate()
    {
        let directory = temp(&format!("frames-{i}"));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("frames.c"), FRAMES).unwrap();
        run(Command::new("gcc")
            .current_dir(&directory)
            .args([
                "-fno-inline",
                "-fno-ipa-cp",
                "-fno-stack-protector",
                "-fstack-usage",
            ])
            .args(["-maccumulate-outgoing-args", "-c", "frames.c"])
            .args(*flags));
        run(Command::new("gcc")
            .current_dir(&directory)
            .args(["-o", "frames", "frames.o"]));
        let usage = std::fs::read_to_string(directory.join("frames.su")).unwrap();
        let sizes: Vec<String> = usage
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split('\t').collect();
                let name = words[0].rsplit(':').next().unwrap();
                let mark = if words[2].contains("dynamic") {
                    "d"
                } else {
                    ""
                };
                format!("{name} {}{mark}", words[1])
            })
            .collect();
        checked += sizes.len();
        ask(
            &directory.join("frames"),
            &["frame-sizes", &sizes.join(",")],
        );
    }
    assert_eq!(checked, 7 * 8);
}

#[test]
fn what_holds_in_every_program() {
    for program in [
        "/bin/ls",
        "/usr/bin/find",
        "/usr/bin/make",
        "/usr/bin/lua5.4",
        "/usr/bin/openssl",
    ] {
        ask(Path::new(program), &["any"]);
    }
    ask(&compile("any-static", &["gcc", "-O2", "-static"]), &["any"]);
}

/// A program whose debug information nests so many inlined calls in `main`.
fn nested(depth: usize) -> PathBuf {
    let text = format!(
        r#"
        .text
        .globl main
    main:
        xor %eax, %eax
        ret
        .section .debug_abbrev, "", @progbits
        .byte 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0
        .byte 2, 0x2e, 1, 3, 8, 0x11, 1, 0x12, 7, 0, 0
        .byte 3, 0x1d, 1, 0, 0
        .byte 0
        .section .debug_info, "", @progbits
        .long 2f - 1f
    1:  .short 4
        .long 0
        .byte 8
        .byte 1
        .quad main, 3
        .byte 2
        .string "main"
        .quad main, 3
        .fill {depth}, 1, 3
        .fill {depth}, 1, 0
        .byte 0, 0
    2:
    "#
    );
    let (source, out) = (
        temp(&format!("nested-{depth}.s")),
        temp(&format!("nested-{depth}")),
    );
    std::fs::write(&source, text).unwrap();
    run(Command::new("gcc")
        .args(["-no-pie", "-o"])
        .arg(&out)
        .arg(&source));
    out
}

#[test]
fn nesting_without_end_does_no_harm() {
    for (depth, known) in [(20, true), (2_000_000, false)] {
        let image = Image::open(&nested(depth)).unwrap();
        let main = image.symbols.iter().find(|s| s.name == "main").unwrap();
        let frames = DebugLines::new(&image).functions_at(main.address);
        let names: Vec<&str> = frames.iter().map(|f| f.function.as_str()).collect();
        assert_eq!(names, if known { vec!["main"] } else { vec![] });
    }
}
