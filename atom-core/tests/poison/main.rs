//! Liveness, judged by running programs in which all that is claimed dead has
//! been overwritten.

mod conventions;
mod poisoner;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use poisoner::{Choice, poison};

/// A folder for one test's files, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("atom-poison-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn compile(&self, source: &str, extension: &str, flags: &[&str]) -> PathBuf {
        let file = self.0.join("program").with_extension(extension);
        std::fs::write(&file, source).unwrap();
        let program = self.0.join("program");
        let compiler = if extension == "cc" { "g++" } else { "gcc" };
        // Libraries are looked for in what is before them.
        let status = Command::new(compiler)
            .arg(&file)
            .arg("-o")
            .arg(&program)
            .args(flags)
            .status();
        assert!(status.expect("the compiler runs").success());
        program
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A wrong register can make a loop endless: a minute is enough.
fn run(program: &Path, args: &[&str]) -> Output {
    // 126: another test may be starting a process that has the file open for writing.
    for _ in 0..200 {
        let output = Command::new("timeout")
            .arg("60")
            .arg(program)
            .args(args)
            .output()
            .expect("timeout starts");
        if output.status.code() != Some(126) {
            return output;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} stays busy", program.display());
}

/// Runs the original, the empty rewrite and poisoned rewrites.
fn check(folder: &Folder, program: &Path, args: &[&str]) {
    let original = run(program, args);
    let rewritten = folder.0.join("rewritten");
    poison(program, &rewritten, None).unwrap();
    assert_eq!(original, run(&rewritten, args), "an empty rewrite");
    for seed in 1..6 {
        let choice = Choice {
            one_in: 3 + seed % 3,
            seed,
            blocks: (0, u32::MAX),
        };
        let count = poison(program, &rewritten, Some(choice)).unwrap();
        assert!(count > 100, "something is dead in every program");
        assert_eq!(original, run(&rewritten, args), "poisoned with seed {seed}");
    }
}

const LOCAL_CALLS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
static int table[64];
__attribute__((noinline)) static int step(int x) { return x * 3 + 1; }
__attribute__((noinline)) static void mark(int x) { table[x & 63]++; }
__attribute__((noinline)) static int sum(int a, int b, int c, int d, int e, int f) {
    int s = 0;
    for (int i = 0; i < 200; i++) {
        mark(a + i);
        s += a ^ b; mark(s); s += c ^ d; mark(s); s += e ^ f;
        a = step(b); b += c; c ^= d + s; d -= e; e += f; f = step(a);
    }
    return s;
}
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) static double curve(double x, int n) {
    double t = 0;
    for (int i = 1; i < n; i++) { t += sin(x * i) / i; mark((int)t); }
    return t;
}
static int choose(int n, int m) {
    switch (n % 9) {
    case 0: return m + 1; case 1: return m * 5; case 2: mark(m); return m - 7;
    case 3: return step(m); case 4: return m / 3; case 5: return m ^ 99;
    case 6: return choose(n + 1, m - 1); case 7: return m << 2; default: return -m;
    }
}
int main(int argc, char **argv) {
    int m = argc;
    printf("%d\n", sum(1, 2, 3, 4, 5, 6 + argc));
    for (int i = 0; i < 500; i++) m = choose(i, m) & 0xfffff;
    qsort(table, 64, sizeof *table, compare);
    for (int i = 0; i < 64; i++) printf("%d ", table[i]);
    char *text = malloc(1000), *end;
    snprintf(text, 1000, "%.6f %x %s", curve(0.7, 100), m, "x");
    printf("%s %zu %.3f\n", text, strlen(text), strtod(text, &end));
    free(text);
    return m & 7;
}
"#;

#[test]
fn values_kept_over_local_calls() {
    for (name, flags) in [
        ("o2", &["-O2", "-lm"][..]),
        ("o3", &["-O3", "-march=x86-64-v3", "-lm", "-fno-inline"]),
        ("o1", &["-O1", "-fipa-ra", "-lm"]),
        (
            "thunks",
            &[
                "-O2",
                "-mfunction-return=thunk",
                "-mindirect-branch=thunk",
                "-lm",
            ],
        ),
    ] {
        let folder = Folder::new(name);
        let program = folder.compile(LOCAL_CALLS, "c", flags);
        check(&folder, &program, &[]);
    }
}

/// A static program brings the C library's assembly with it.
#[test]
fn a_static_program() {
    let folder = Folder::new("static");
    let program = folder.compile(
        &LOCAL_CALLS.replace(
            "#include <math.h>",
            "static double sin(double x) { return x - x * x * x / 6; }",
        ),
        "c",
        &["-O2", "-static", "-fno-builtin"],
    );
    check(&folder, &program, &[]);
}

/// Results in the carry flag, arguments and results in odd registers, flags
/// and vector registers kept over calls: conventions of hand-written assembly.
const CONVENTIONS: &str = r#"
#include <stdio.h>
asm(".text\n"
    ".type odd,@function\n odd: test $1,%r11d; jz 1f; stc; ret; 1: clc; ret; .size odd,.-odd\n"
    ".type pair,@function\n pair: lea (%r10,%r11),%r8; lea 1(%r8),%r9; ret; .size pair,.-pair\n"
    ".type keep,@function\n keep: push %rcx; mov $9,%ecx; mov %rcx,%rsi; pop %rcx; ret; .size keep,.-keep\n"
    ".type bump,@function\n bump: lea 1(%rdi),%rdi; ret; .size bump,.-bump\n"
    ".type inner,@function\n inner: jmp pair; .size inner,.-inner\n"
    ".globl drive\n .type drive,@function\n"
    "drive: push %rbx; mov %rdi,%rbx; xor %eax,%eax; xor %edx,%edx\n"
    "1: mov %rbx,%r11; call odd; adc $0,%eax\n"
    "mov %rbx,%r10; call inner; add %r8,%rdx; add %r9,%rdx\n"
    "mov %rbx,%rcx; movq %rbx,%xmm13; call keep; add %rcx,%rdx; add %rsi,%rdx\n"
    "mov %rbx,%rdi; cmp $5,%rbx; call bump; jne 2f; add $1000,%rdx; 2: add %rdi,%rdx\n"
    "movq %xmm13,%r8; add %r8,%rdx\n"
    "dec %rbx; jnz 1b\n"
    "shl $32,%rdx; or %rdx,%rax; pop %rbx; ret; .size drive,.-drive\n");
long drive(long n);
int main(void) { printf("%lx %lx\n", drive(10), drive(77)); return 0; }
"#;

#[test]
fn conventions_of_assembly() {
    let folder = Folder::new("assembly");
    let program = folder.compile(CONVENTIONS, "c", &["-O1"]);
    check(&folder, &program, &[]);
}

/// Pairs of caller and callee with random conventions, called through pointers.
#[test]
fn random_conventions() {
    for seed in 1..4 {
        let folder = Folder::new(&format!("random-{seed}"));
        let program = folder.compile(&conventions::program(seed, 60), "c", &["-O1"]);
        check(&folder, &program, &[]);
    }
}

const EXCEPTIONS: &str = r#"
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
struct Base { virtual ~Base() {} virtual int f(int) = 0; };
struct A : Base { int k; A(int k) : k(k) {} int f(int x) override { if (x % 7 == 3) throw std::runtime_error(std::to_string(x)); return x + k; } };
struct B : Base { std::string s; int f(int x) override { s += char('a' + x % 26); return s.size(); } };
int main() {
    std::unique_ptr<Base> list[] = {std::make_unique<A>(5), std::make_unique<B>()};
    std::map<std::string, int> seen;
    long sum = 0;
    for (int i = 0; i < 300; i++) {
        try { sum = sum * 3 + list[i & 1]->f(i); seen[std::to_string(i % 13)] += i; }
        catch (std::exception &e) { sum += std::string(e.what()).size(); }
    }
    for (auto &p : seen) std::printf("%s=%d ", p.first.c_str(), p.second);
    std::printf("%ld\n", sum);
}
"#;

#[test]
fn virtual_calls_and_exceptions() {
    for (name, flags) in [("cc", &["-O2"][..]), ("cc-static", &["-O2", "-static"])] {
        let folder = Folder::new(name);
        let program = folder.compile(EXCEPTIONS, "cc", flags);
        check(&folder, &program, &[]);
    }
}

/// Entries of the PLT tell the binding code which function is called: by the stack, or by r11 (mold).
#[test]
fn functions_bound_at_their_first_call() {
    let source = include_str!("../../../tests/sources/plt.c");
    for linker in ["bfd", "gold", "lld", "mold"] {
        let folder = Folder::new(linker);
        let linker = format!("-fuse-ld={linker}");
        let program = folder.compile(source, "c", &["-O2", "-Wl,-z,lazy", &linker]);
        check(&folder, &program, &[]);
    }
}

/// Go's own convention: more is dead than by the System V ABI, and nothing is kept for unwinding.
#[test]
fn programs_of_go() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/sources");
    for name in ["go.go", "gocount.go"] {
        let folder = Folder::new(name);
        let program = folder.0.join("program");
        let status = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(sources.join(name))
            .env("GO111MODULE", "off")
            .env("GOFLAGS", "")
            .status();
        assert!(status.expect("go runs").success());
        check(&folder, &program, &[]);
    }
}
