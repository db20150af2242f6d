//! Tools in C: the example of ATOM's manual, each primitive, the C library of analysis routines, threads, forks and
//! signals, and what is told of mistakes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Folder, code_of, stderr};

/// A source in `tests/tools/c`.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tools/c")
        .join(name)
}

/// A folder with these sources.
fn folder_with(names: &[&str]) -> Folder {
    let folder = Folder::new();
    for name in names {
        folder.write(name, std::fs::read(source(name)).unwrap());
    }
    folder
}

/// Runs a command in the folder, without randomised addresses. The cache is in the folder.
pub fn run(folder: &Folder, words: &str, variables: &[(&str, &str)]) -> Output {
    Command::new("setarch")
        .args(["-R", "--"])
        .args(words.split_whitespace())
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .envs(variables.iter().copied())
        .output()
        .expect("setarch runs")
}

/// As [`run`]; the command must succeed.
fn run_ok(folder: &Folder, words: &str) -> String {
    let output = run(folder, words, &[]);
    assert!(output.status.success(), "{words}: {}", stderr(&output));
    stdout(&output)
}

/// The stages that a command prints with `-v`.
fn has_check(folder: &Folder, words: &str) -> bool {
    let output = run(folder, &atom(words), &[]);
    let text = stderr(&output);
    assert!(output.status.success(), "{words}: {text}");
    text.lines()
        .any(|line| line.trim_start().starts_with("check "))
}

#[test]
fn tools_of_ones_own_are_checked() {
    let folder = folder_with(&["branch.inst.c", "branch.anal.c"]);
    let own = "/usr/bin/true branch.inst.c branch.anal.c -v -o out";
    assert!(has_check(&folder, own));
    assert!(has_check(&folder, &format!("{own} --libs")));
    assert!(!has_check(&folder, &format!("{own} --no-check")));
    let shipped = "/usr/bin/true --tool branch -v -o out";
    assert!(!has_check(&folder, shipped));
    assert!(has_check(&folder, &format!("{shipped} --check")));
}

/// Standard output of a run.
fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn atom(words: &str) -> String {
    format!("{} {words}", env!("CARGO_BIN_EXE_atom"))
}

/// Writes sources of a tool: an instrument file and an analysis file.
pub fn write_tool(folder: &Folder, name: &str, instrument: &str, analysis: &str) {
    let head = "#include <stdio.h>\n#include <stdlib.h>\n#include <atom.h>\n";
    folder.write(&format!("{name}.inst.c"), format!("{head}{instrument}"));
    folder.write(&format!("{name}.anal.c"), format!("{head}{analysis}"));
}

/// Addresses, taken and not taken counts in a table of branches, of the addresses of the program itself.
fn table(text: &[u8]) -> Vec<[String; 3]> {
    let text = String::from_utf8_lossy(text);
    let mut rows = Vec::new();
    for line in text.lines().skip(1) {
        let mut words = line.split_whitespace().map(str::to_owned);
        let row: [String; 3] = std::array::from_fn(|_| words.next().unwrap_or_default());
        if row[0].len() <= "0xffffffff".len() && !row[0].contains('+') {
            rows.push(row);
        }
    }
    rows
}

#[test]
fn the_manuals_example_gives_the_table_of_branch() {
    let folder = folder_with(&["branch.inst.c", "branch.anal.c"]);
    folder.write("input", include_bytes!("../../../Cargo.lock"));
    let by_rust =
        "/usr/bin/bzip2 --tool branch -q -o rust/packer -- --format atom --output btaken.out";
    let by_c = "/usr/bin/bzip2 branch.inst.c branch.anal.c -q -o c/packer";
    let run_in = |side: &str| {
        let output = Command::new("setarch")
            .args(["-R", "./packer", "-c", "../input"])
            .current_dir(folder.join(side))
            .output()
            .unwrap();
        assert!(
            output.status.success() && output.stdout.starts_with(b"BZh"),
            "{side}"
        );
        table(&folder.read(&format!("{side}/btaken.out")))
    };
    std::fs::create_dir(folder.join("rust")).unwrap();
    run_ok(&folder, &atom(by_rust));
    let expected = run_in("rust");
    assert!(expected.len() > 300, "{} branches", expected.len());
    std::fs::create_dir(folder.join("c")).unwrap();
    for flags in ["", "-O0"] {
        let made = run(&folder, &atom(by_c), &[("CFLAGS", flags)]);
        assert!(made.status.success(), "{}", stderr(&made));
        assert_eq!(run_in("c"), expected, "CFLAGS={flags}");
    }

    // The manual's page shows these files.
    let page = include_str!("../../../docs/tools-in-c.md");
    for name in ["branch.inst.c", "branch.anal.c"] {
        let text = String::from_utf8(folder.read(name)).unwrap();
        assert!(page.contains(&format!("```c\n{text}```\n")), "{name}");
    }

    // The whole process: the program's own branches are counted as the shipped tool counts them.
    run_ok(
        &folder,
        &atom("run branch --format atom --output rust.out -- bzip2 -c input"),
    );
    run_ok(
        &folder,
        &atom("run branch.inst.c branch.anal.c -- bzip2 -c input"),
    );
    let [of_rust, of_c] = ["rust.out", "btaken.out"].map(|file| folder.read(file));
    assert_eq!(table(&of_rust), table(&of_c));
    let lines = |text: &[u8]| text.iter().filter(|b| **b == b'\n').count();
    assert!(lines(&of_c) > 10_000 && lines(&of_c) == lines(&of_rust));
}

#[test]
fn each_primitive_has_its_c_name() {
    let folder = folder_with(&["primitives.inst.c", "primitives.anal.c", "known.s"]);
    run_ok(&folder, "gcc -g known.s -o known");
    let words = "./known primitives.inst.c primitives.anal.c -q -o out -- --option value";
    let told = run_ok(&folder, &atom(words));
    assert!(told.ends_with(" checks, 0 failed\n"), "{told}");
    let checks: u32 = told.split(' ').next().and_then(|n| n.parse().ok()).unwrap();
    assert!(checks > 300, "{told}");
    assert_eq!(run(&folder, "./out", &[]).status.code(), Some(21));
    let circle: String = (1..=6)
        .rev()
        .map(|n: i32| {
            let (way, sums) = (if n > 1 { 1 } else { 2 }, [5 * n + 10, 8 * n - 100]);
            let [one, two] = sums.map(|sum| format!("Sum {sum}\n"));
            format!("Block 1\nRegisters {n} 1 1\n{one}{two}Block 2\nWay {way}\n")
        })
        .collect();
    let expected = format!(
        "Begin c -5 1125899906842624 some text\n\
         Arrays a b -1, -2000000000 7, 1099511627776 -1 0\n\
         Many 1 2 three 4 5 6 7 8\n\
         Entered 6 1\nWay 3\n{circle}Returned 21\n\
         Access equal address 7 4\n\
         Access equal address 8 8\n\
         Counters 3: 6 5 0\n\
         Marks 2: 0 1\n\
         Thread 101 21 1\n\
         1 threads, 0x11 1\n\
         Read 5 four, 0 0\n"
    );
    let found = String::from_utf8(folder.read("primitives.out")).unwrap();
    assert_eq!(found, expected);
    // Every function of the header files is there: each is named in the source that has just run, or below.
    let used = std::fs::read_to_string(source("primitives.inst.c")).unwrap()
        + &std::fs::read_to_string(source("primitives.anal.c")).unwrap()
        + include_str!("../tools/c/change.inst.c")
        + include_str!("c_arguments.rs")
        + include_str!("c_tools.rs");
    for header in [
        include_str!("../../../include/instrument.h"),
        include_str!("../../../include/atom.h"),
    ] {
        for line in header
            .lines()
            .filter(|line| line.ends_with(");") || line.contains("); /*"))
        {
            let front = line.split('(').next().unwrap_or_default();
            let name = front.rsplit([' ', '*']).next().unwrap_or_default();
            assert!(used.contains(&format!("{name}(")), "{name} has no test");
        }
    }
}

#[test]
fn a_program_is_changed() {
    let folder = folder_with(&["change.inst.c", "change.anal.c", "known.s"]);
    run_ok(&folder, "gcc known.s -o known");
    assert_eq!(run(&folder, "./known", &[]).status.code(), Some(21));
    let words = atom("./known change.inst.c change.anal.c -o out");
    let told = stderr(&run(&folder, &words, &[]));
    let change = "the tool changes the program: it replaces twice, values of registers at 1 place";
    assert!(told.contains(change), "{told}");
    // 1 + 2 + ... + 10
    assert_eq!(run(&folder, "./out", &[]).status.code(), Some(55));
}

#[test]
fn the_c_library_is_as_the_systems() {
    let folder = folder_with(&["library.h"]);
    folder.write(
        "native.c",
        "#include \"library.h\"\nint main() { use_the_library(stdout); return 0; }\n",
    );
    run_ok(&folder, "gcc -w -O1 native.c -o native -lm");
    let native = run(&folder, "./native", &[("TZ", "UTC")]);
    let expected = stdout(&native);
    assert!(expected.lines().count() > 1500);
    folder.write(
        "library.inst.c",
        "#include <instrument.h>\n\
         void Instrument() { AddCallProto(\"Run()\"); AddCallProgram(ProgramAfter, \"Run\"); }\n",
    );
    folder.write(
        "library.anal.c",
        "#include \"library.h\"\n\
         void Run() { FILE *out = fopen(\"library.out\", \"w\"); use_the_library(out); fclose(out); }\n",
    );
    for flags in ["", "-O0", "-O2 -D_FORTIFY_SOURCE=2"] {
        let words = atom("/bin/true library.inst.c library.anal.c -q -o out");
        let made = run(&folder, &words, &[("CFLAGS", flags)]);
        assert!(made.status.success(), "{}", stderr(&made));
        run_ok(&folder, "./out");
        let found = String::from_utf8(folder.read("library.out")).unwrap();
        for (found, expected) in found.lines().zip(expected.lines()) {
            assert_eq!(found, expected, "CFLAGS={flags}");
        }
        assert!(found == expected, "CFLAGS={flags}");
    }
}

/// Threads, a forked child and a signal handler call `work`.
const BUSY: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
volatile int sink, alarms;
__attribute__((noinline)) void work(int n) { sink += n; }
static void *thread(void *p) { for (int i = 0; i < 1000; i++) work(i); return p; }
static void on_alarm(int s) { work(s); alarms++; }
int main(int argc, char **argv) {
    work(0);
    if (strchr(argv[1], 't')) {
        pthread_t all[4];
        for (int i = 0; i < 4; i++) pthread_create(&all[i], NULL, thread, NULL);
        for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
    }
    if (strchr(argv[1], 's')) {
        struct itimerval often = {{0, 500}, {0, 500}};
        signal(SIGALRM, on_alarm);
        setitimer(ITIMER_REAL, &often, NULL);
        int n = 0;
        while (alarms < 50) { work(n); n++; }
        memset(&often, 0, sizeof often);
        setitimer(ITIMER_REAL, &often, NULL);
    }
    if (strchr(argv[1], 'f') && fork() == 0) { work(1); work(2); return 0; }
    if (strchr(argv[1], 'f')) { int status; wait(&status); return status; }
    return 0;
}
"#;

/// Writes a line for each entry of `work`, and sums at the end.
fn write_busy_tool(folder: &Folder) {
    write_tool(
        folder,
        "busy",
        r#"
int count = 5; /* A name of the analysis file's, too. */
void Instrument() {
    long start[2] = {0, 0};
    Data *counters = MakeCounters(count - 4), *threads = MakeThreadData(start, sizeof start);
    AddCallProto("Begin(THREAD)");
    AddCallProto("Work(COUNTER, THREAD, REGV)");
    AddCallProto("End(COUNTERS, THREADS)");
    AddCallProgram(ProgramBefore, "Begin", threads);
    AddCallProc(GetNamedProc("work"), ProcBefore, "Work", CounterAt(counters, 0), threads, REG_RDI);
    AddCallProgram(ProgramAfter, "End", counters, threads);
}
"#,
        r#"
int count;
static FILE *out;
static long inherited;
static long *last;
static void forked(void) { inherited = 1; }
static int begun, ended;
static void on_begin(void *own) { if (*(long *)own == 0) __atomic_fetch_add(&begun, 1, __ATOMIC_RELAXED); }
static void on_end(void *own) { if (*(long *)own == 1000) __atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED); }
void Begin(long *own) {
    out = fopen("busy.out", "w");
    fputs("begin\n", out);
    OnFork(forked);
    OnThreads(own, on_begin, on_end);
}
void Work(unsigned long *counter, long *own, long n) {
    ++*counter;
    ++own[0];
    __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    last = realloc(NULL, 10 * sizeof *last);
    free(malloc(100));
    fprintf(out, "work %ld %s\n", n, "in a line of its own");
}
void End(Counters *counters, Threads *all) {
    long *own, sum = 0, threads = 0;
    for (own = NextThreadData(all, NULL); own; own = NextThreadData(all, own), threads++)
        sum += own[0];
    fprintf(out, "threads %d %d\n", begun, ended);
    fprintf(out, "end %lu %ld %d %ld %ld\n", counters->value[0], sum, count, threads, inherited);
    printf("%s\n", inherited ? "child" : "parent");
    /* The file is not closed: it is written at the end. */
}
"#,
    );
}

#[test]
fn threads_forks_and_signals_are_followed() {
    let folder = Folder::new();
    folder.compile("app", BUSY, &["-O1", "-pthread"]);
    write_busy_tool(&folder);
    run_ok(&folder, &atom("./app busy.inst.c busy.anal.c -q -o alone"));
    let intact = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("work "));
        lines
            .inspect(|line| assert!(line.ends_with(" in a line of its own"), "{line}"))
            .count()
    };
    for program in ["./alone", &atom("run -q busy.inst.c busy.anal.c -- ./app")] {
        let report = |mode: &str| {
            run_ok(&folder, &format!("{program} {mode}"));
            String::from_utf8(folder.read("busy.out")).unwrap()
        };
        let threads = report("t");
        assert_eq!(intact(&threads), 4001);
        // The C library ends threads, so their ends are seen where it is instrumented.
        let ended = if program == "./alone" { 0 } else { 4 };
        let told = threads.lines().rev().nth(1);
        assert_eq!(told, Some(&*format!("threads 5 {ended}")), "{program}");
        let end: Vec<&str> = threads.lines().last().unwrap().split(' ').collect();
        assert_eq!(end[..4], ["end", "4001", "4001", "4001"], "{program}");
        assert!(end[4] != "0" && end[5] == "0", "{end:?}");

        // A handler may interrupt a routine that writes to the same file.
        let signals = report("s");
        let end = signals.lines().last().unwrap();
        let calls = intact(&signals);
        assert!(
            calls > 51 && end.starts_with(&format!("end {calls} {calls} ")),
            "{end}"
        );

        // Parent and child have a file each; the child's begins as its parent's did.
        let parent = report("f");
        assert_eq!(parent.lines().count(), 4, "{parent}");
        assert!(parent.ends_with("end 1 1 1 1 0\n"), "{parent}");
        let is_childs = |name: &&String| {
            let pid = name.strip_prefix("busy.out.").filter(|pid| pid.len() > 1);
            pid.is_some_and(|pid| pid.bytes().all(|b| b.is_ascii_digit()))
        };
        let files = folder.contents();
        let children: Vec<&String> = files.keys().filter(is_childs).collect();
        assert_eq!(children.len(), 1, "{children:?}");
        let child = String::from_utf8(folder.read(children[0])).unwrap();
        assert!(child.starts_with("begin\nwork 0 "), "{child}");
        assert!(
            child.contains("\nwork 2 ") && child.contains("\nend 2 "),
            "{child}"
        );
        std::fs::remove_file(folder.join(children[0])).unwrap();
    }
    // Output of `printf` at the end is seen although the program has closed its standard output.
    let told = run_ok(&folder, "./alone f");
    let mut lines: Vec<&str> = told.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["child", "parent"]);
    write_tool(
        &folder,
        "last",
        "void Instrument() { AddCallProto(\"End()\"); AddCallProgram(ProgramAfter, \"End\");\n\
         AddCallProto(\"Begin()\"); AddCallProgram(ProgramBefore, \"Begin\"); }\n",
        "static char first[20];\n\
         __attribute__((constructor)) static void make() { sprintf(first, \"at the start\"); }\n\
         void Begin() { puts(first); fprintf(stderr, \"begun\\n\"); }\n\
         void End() { printf(\"at the end\\n\"); }\n",
    );
    assert_eq!(
        run_ok(
            &folder,
            &atom("run -q last.inst.c last.anal.c -- /bin/echo hello")
        ),
        "hello\nat the start\nat the end\n"
    );
}

#[test]
fn a_routine_at_the_end_may_exit() {
    let folder = Folder::with_app();
    write_tool(
        &folder,
        "exits",
        "void Instrument() { AddCallProto(\"End()\"); AddCallProgram(ProgramAfter, \"End\"); }\n",
        "static void last() { printf(\"last\\n\"); }\n\
         void End() { FILE *file = fopen(\"exits.out\", \"a\"); atexit(last); fprintf(file, \"end\\n\"); printf(\"end\\n\"); exit(7); }\n",
    );
    run_ok(
        &folder,
        &atom("./app exits.inst.c exits.anal.c -q -o alone"),
    );
    for (words, ends) in [
        ("./alone".to_owned(), 1),
        (atom("run -q exits.inst.c exits.anal.c -- ./app"), 2),
    ] {
        let output = run(&folder, &words, &[]);
        assert_eq!(output.status.code(), Some(7));
        assert!(
            stdout(&output).ends_with("end\nlast\n"),
            "{}",
            stdout(&output)
        );
        assert!(!stderr(&output).contains("killed"), "{}", stderr(&output));
        assert_eq!(folder.read("exits.out"), "end\n".repeat(ends).as_bytes());
    }
}

#[test]
fn parts_may_be_sources_objects_and_archives() {
    let folder = Folder::with_app();
    write_tool(
        &folder,
        "many",
        r#"
static int number = 1;
unsigned InstrumentAll(int argc, char **argv) {
    Obj *o;
    for (o = GetFirstObj(); o; o = GetNextObj(o)) number += GetFirstObjProc(o) != NULL;
    AddCallProto("First(int)");
    AddCallProto("Second(int)");
    AddCallProgram(ProgramAfter, "First", argc);
    AddCallProgram(ProgramAfter, "Second", number);
    return argc > 2;
}
"#,
        "void third(int n);\nint number = 7;\nvoid First(int n) { third(n + number); }\n",
    );
    folder.write(
        "more.c",
        "void third(int n);\nvoid Second(int n) { third(n); }\n",
    );
    folder.write(
        "third.c",
        "#include <stdio.h>\nvoid third(int n) { printf(\"%d\\n\", n); }\n",
    );
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    run_ok(
        &folder,
        &format!(
            "gcc -fPIC -I{} -c many.inst.c more.c third.c",
            headers.display()
        ),
    );
    run_ok(&folder, "ar rc libthird.a third.o");
    for parts in [
        "many.inst.c many.anal.c more.c third.c",
        "many.inst.o many.anal.c more.o libthird.a",
    ] {
        run_ok(&folder, &atom(&format!("./app {parts} -q -o out")));
        let told = run(&folder, "./out", &[]);
        assert!(
            stdout(&told).contains("8\n2\n"),
            "{parts}: {}",
            stderr(&told)
        );
    }
    // The routine's own words, and what InstrumentAll returns.
    let output = run(
        &folder,
        &atom("./app many.inst.c many.anal.c more.c third.c -o out2 -- a b"),
        &[],
    );
    assert!(
        stderr(&output).contains("InstrumentAll returned 1"),
        "{}",
        stderr(&output)
    );

    // Both halves in one file, and the tool that -P keeps.
    folder.write(
        "one.c",
        "#include <instrument.h>\n#include <stdio.h>\n\
         void Instrument() { AddCallProto(\"End()\"); AddCallProgram(ProgramAfter, \"End\"); }\n\
         void End() { printf(\"one\\n\"); }\n",
    );
    run_ok(&folder, &atom("./app one.c -q -P kept.so -o out"));
    assert!(stdout(&run(&folder, "./out", &[])).contains("one\n"));
    run_ok(&folder, &atom("./app ./kept.so -q -o again"));
    assert!(stdout(&run(&folder, "./again", &[])).contains("one\n"));
    // A tool is kept by what it includes, too.
    folder.write("word.h", "#define WORD \"two\"\n");
    let source = String::from_utf8(folder.read("one.c"))
        .unwrap()
        .replace("\"one\\n\"", "WORD \"\\n\"");
    folder.write("one.c", format!("#include \"word.h\"\n{source}"));
    for word in ["two", "three"] {
        folder.write("word.h", format!("#define WORD \"{word}\"\n"));
        let told = run(&folder, &atom("run -q one.c -- ./app"), &[]);
        assert!(
            stdout(&told).contains(&format!("{word}\n")),
            "{}",
            stderr(&told)
        );
    }
}

/// The calls that most instrument files of the mistakes add, and most of their analysis files.
const CALLS: &str = r#"AddCallProto("End()"); AddCallProgram(ProgramAfter, "End");"#;
pub const END: &str = "void End() { printf(\"%d\", 1); }\n";
const MISSING: &str =
    "#include <regex.h>\nstatic regex_t x;\nvoid End() { regcomp(&x, \"a\", 0); }\n";

/// Mistakes: in the instrument routine, in the analysis file, and what is told of them.
const MISTAKES: [(&str, &str, [&str; 2]); 17] = [
    (
        CALLS,
        MISSING,
        ["tool.anal.c (regcomp)", "analysis routines do not have"],
    ),
    (
        CALLS,
        "void End() { nothing_of_that_name(); }\n",
        [
            "undefined reference to `nothing_of_that_name'",
            "tool.anal.c:",
        ],
    ),
    (
        "GetFirstPro();",
        END,
        ["undefined reference to `GetFirstPro'", "tool.inst.c:"],
    ),
    (
        CALLS,
        "void End() { not c }\n",
        ["tool.anal.c:4", "it does not compile"],
    ),
    (
        CALLS,
        "static int compare(const void *a, const void *b) { return *(long double *)a < *(long double *)b; }\n\
         void End() { static long double all[2]; qsort(all, 2, sizeof *all, compare); }\n",
        [
            "tool.anal.c (compare): it uses registers of the x87 unit",
            "double instead",
        ],
    ),
    (
        CALLS,
        "void End() {}\nvoid Other(Path *path) {}\n",
        ["`Path` is declared in <atom.paths.h>", "tool.anal.c:"],
    ),
    (
        "AddCallProgram(ProgramAfter, \"End\");",
        END,
        [
            "AddCallProgram: no prototype of `End`",
            "call AddCallProto first",
        ],
    ),
    (
        "AddCallProto(\"Other(int)\");",
        END,
        [
            "AddCallProto: the prototype `Other(int)`",
            "no analysis routine `Other`; it is a function of an analysis file that is not static (",
        ],
    ),
    (
        "AddCallProto(\"End(double)\");",
        END,
        ["`double` is not a parameter type", "THREADS"],
    ),
    (
        "AddCallProto(\"End()\"); AddCallInst(i, ProcBefore, \"End\");",
        END,
        ["AddCallInst: the place is neither InstBefore", "InstAfter"],
    ),
    (
        "AddCallProto(\"End(VALUE)\"); AddCallInst(i, InstBefore, \"End\", BrCondValue);",
        END,
        ["End", "tool.inst.c, line 4)"],
    ),
    (
        "GetInstBranchTarget(i);",
        END,
        ["GetInstBranchTarget: ", "is no branch"],
    ),
    (
        "GetInstProcCalled(i);",
        END,
        ["GetInstProcCalled: ", "is no call"],
    ),
    (
        "ProcName(NULL);",
        END,
        ["ProcName: the procedure is NULL", "tool"],
    ),
    (
        "ProcName((Proc *)p - 1000000);",
        END,
        ["ProcName: ", "is no procedure"],
    ),
    (
        "GetProgramInfo(77);",
        END,
        ["GetProgramInfo: there is no information 77", "tool"],
    ),
    (
        "CounterAt(MakeCounters(2), 2);",
        END,
        ["CounterAt: counter 2 of 2", "tool"],
    ),
];

/// An instrument file with a body that may use a procedure and an instruction.
pub fn instrument(body: &str) -> String {
    format!(
        "void Instrument() {{ Proc *p = GetNamedProc(\"main\"); Inst *i = GetFirstInst(GetFirstBlock(p)); {body} }}\n"
    )
}

#[test]
fn mistakes_of_the_sources_are_told() {
    let folder = Folder::with_app();
    for (body, analysis, needles) in MISTAKES {
        // The type is not complete, so the arithmetic is done on numbers.
        let body = body.replace("(Proc *)p - 1000000", "(Proc *)((char *)p + 1000000)");
        write_tool(&folder, "tool", &instrument(&body), analysis);
        let output = run(&folder, &atom("./app tool.inst.c tool.anal.c -o out"), &[]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{body}: {text}");
        assert!(
            text.contains("atom: ") && !text.contains("panicked") && !text.contains("#["),
            "{text}"
        );
        for needle in needles {
            assert!(text.contains(needle), "{body}: no `{needle}` in {text}");
        }
        assert!(!folder.join("out").exists(), "{body}");
    }
}

/// `atom run` instruments in a process of its own.
#[test]
fn mistakes_are_told_by_a_run() {
    let folder = Folder::with_app();
    write_tool(
        &folder,
        "null",
        &instrument("AddCallProc(NULL, ProcBefore, \"End\");"),
        END,
    );
    write_tool(
        &folder,
        "crash",
        &instrument("*(volatile int *)0 = 1;"),
        END,
    );
    for (name, needle) in [
        ("null", "routine of null.inst.c: AddCallProc"),
        ("crash", "instrumenting ended: signal: 11"),
    ] {
        let words = format!("run -q {name}.inst.c {name}.anal.c -- ./app");
        let output = run(&folder, &atom(&words), &[]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(needle), "no `{needle}` in {text}");
    }
}

#[test]
fn mistakes_of_the_command_line_are_told() {
    let folder = Folder::with_app();
    write_tool(&folder, "tool", &instrument(CALLS), END);
    for (words, variables, needle) in [
        (
            "./app tool.inst.c tool.anal.c",
            [("CC", "no-such-compiler")],
            "there is no C compiler `no-such-compiler`",
        ),
        (
            "./app tool.anal.c tool.inst.c",
            [("", "")],
            "it has no function Instrument",
        ),
        (
            "./app tool.inst.c app",
            [("", "")],
            "it is no part of a tool in C",
        ),
        (
            "./app tool.inst.c none.c",
            [("", "")],
            "there is no such file",
        ),
        (
            "./app ./app tool.anal.c",
            [("", "")],
            "only a tool in C consists of several files",
        ),
        (
            "./app tool.rs tool.anal.c",
            [("", "")],
            "a tool in Rust has one source file",
        ),
    ] {
        folder.write("tool.rs", "");
        let known: Vec<_> = variables
            .iter()
            .copied()
            .filter(|(name, _)| !name.is_empty())
            .collect();
        let output = run(&folder, &atom(&format!("{words} -o out")), &known);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code_of(&said)), "{said}");
        assert!(said.contains(needle), "{words}: {said}");
    }
}

#[test]
fn gdb_stops_in_both_halves() {
    let folder = folder_with(&["branch.inst.c", "branch.anal.c"]);
    folder.compile(
        "app",
        "int main(int argc, char **argv) { return argc > 3; }",
        &[],
    );
    folder.write("commands", "bt 1\ncontinue\nquit\n");
    let commands = std::fs::File::open(folder.join("commands")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_atom"))
        .args("./app branch.inst.c branch.anal.c --gdb -g -o out".split(' '))
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .stdin(commands)
        .output()
        .unwrap();
    let text = stdout(&output);
    let stop = text
        .find("hit Breakpoint 1")
        .unwrap_or_else(|| panic!("{text}"));
    assert!(
        text[stop..].contains("Instrument (") && text[stop..].contains("branch.inst.c:"),
        "{text}"
    );
    let output = Command::new("gdb")
        .args([
            "-q",
            "-nx",
            "-batch",
            "-ex",
            "break OpenFile",
            "-ex",
            "run",
            "-ex",
            "bt 1",
            "./out",
        ])
        .current_dir(folder.path())
        .env_remove("DEBUGINFOD_URLS")
        .output()
        .unwrap();
    let text = stdout(&output);
    assert!(
        text.contains("OpenFile (n=") && text.contains("branch.anal.c:"),
        "{text}"
    );
}
