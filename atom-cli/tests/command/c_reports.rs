//! Options, sites, reports and call paths of tools in C: they are what tools in Rust have, and mistakes are told.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Folder, code_of, stderr};

/// A source in `tests/tools`.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tools")
        .join(name)
}

/// The files of a tool in C.
fn tool(name: &str) -> String {
    let halves = ["inst", "anal"].map(|half| source(&format!("c/{name}.{half}.c")));
    halves.map(|file| file.display().to_string()).join(" ")
}

/// Runs a command in a folder, without randomised addresses and without random numbers of perl's.
fn run(folder: &Folder, words: &str) -> Output {
    Command::new("setarch")
        .args(["-R", "--"])
        .args(words.split_whitespace())
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("PERL_HASH_SEED", "0")
        .output()
        .expect("setarch runs")
}

/// As [`run`]; the command must succeed.
fn run_ok(folder: &Folder, words: &str) -> String {
    let output = run(folder, words);
    assert!(output.status.success(), "{words}: {}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn atom(words: &str) -> String {
    format!("{} {words}", env!("CARGO_BIN_EXE_atom"))
}

/// A profile without what differs from run to run: process numbers and times.
fn without_run(profile: &[u8]) -> Vec<u8> {
    let head = profile.iter().position(|b| *b == b'\n').unwrap();
    let text = String::from_utf8_lossy(&profile[..head]).into_owned();
    let cut = |text: String, key: &str| {
        let at = text
            .find(&format!("\"{key}\":{{"))
            .unwrap_or_else(|| panic!("{text}"));
        let end = at + text[at..].find('}').unwrap();
        format!("{}{}", &text[..at], &text[end..])
    };
    let text = cut(cut(text, "process"), "time");
    [text.as_bytes(), &profile[head..]].concat()
}

#[test]
fn a_report_of_c_is_that_of_the_tool_in_rust() {
    let folder = Folder::new();
    folder.write(
        "w.pl",
        "my %h; for (1..20000) { $h{$_ % 97} .= chr(65 + $_ % 26); } print length(join('', sort values %h)), \"\\n\";",
    );
    let options = "--output out.out --json out.json";
    let mut found = Vec::new();
    for (side, tool) in [("rust", "--tool branch"), ("c", &tool("branches")[..])] {
        let run = format!("/usr/bin/perl {tool} -q -o perl -- {options}");
        run_ok(&folder, &atom(&run));
        assert_eq!(run_ok(&folder, "./perl w.pl"), "20000\n");
        let names = ["out.out", "out.json", "out.profile"];
        let [text, json, profile] = names.map(|name| folder.read(name));
        std::fs::rename(
            folder.join("out.profile"),
            folder.join(&format!("{side}.profile")),
        )
        .unwrap();
        found.push([text, json, without_run(&profile)]);
    }
    assert!(found[0][0].len() > 5000 && found[0][1].len() > 100_000);
    for (i, name) in ["text", "JSON", "profile"].iter().enumerate() {
        assert!(found[0][i] == found[1][i], "{name}");
    }
    // The profile is read as any other.
    let shown = run_ok(&folder, &atom("report c.profile --top 1"));
    assert!(shown.contains("conditional branches") && shown.contains("usual direction %"));
    let both = run_ok(&folder, &atom("report rust.profile c.profile --json"));
    assert!(both.contains("conditional branches"), "{both}");
    let compared = run(&folder, &atom("report diff rust.profile c.profile"));
    assert!(compared.status.success(), "{}", stderr(&compared));

    // In a whole process, too.
    for (name, tool) in [("rust", "branch"), ("c", &tool("branches")[..])] {
        let words = format!("run -q {tool} --output {name}.out --no-profile -- /usr/bin/perl w.pl");
        run_ok(&folder, &atom(&words));
    }
    let [rust, c] = ["rust.out", "c.out"].map(|name| folder.read(name));
    assert!(rust == c && rust.len() > 5000);
}

/// Recursion, threads and `longjmp`.
const PATHS: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
static jmp_buf env;
volatile int sink;
__attribute__((noinline)) int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__attribute__((noinline)) void deep(int n) { if (n == 0) longjmp(env, 1); deep(n - 1); sink++; }
__attribute__((noinline)) void jump(int n) { if (!setjmp(env)) deep(n); sink += fib(3); }
static void *work(void *p) { for (int i = 0; i < 10; i++) sink += fib((long)p); return p; }
int main() {
    pthread_t t[3];
    for (long i = 0; i < 3; i++) pthread_create(&t[i], 0, work, (void *)(4 + i));
    for (long i = 0; i < 3; i++) pthread_join(t[i], 0);
    jump(5);
    jump(2);
    return sink == 0;
}
"#;

#[test]
fn call_paths_of_c_are_those_of_rust() {
    let folder = Folder::new();
    folder.compile("app", PATHS, &["-O1", "-pthread"]);
    let rust = source("paths.rs").display().to_string();
    // Which thread comes first, and so which trees come first, differs from run to run.
    let sorted = |name: &str| {
        let text = String::from_utf8(folder.read(name)).unwrap();
        let mut trees: Vec<String> = text.split("end\n").map(str::to_owned).collect();
        trees[1..].sort();
        trees
    };
    for (recursion, how) in [(0, ""), (1, ""), (2, ""), (1, "--amounts")] {
        for (side, tool) in [("rust", rust.clone()), ("c", tool("paths"))] {
            let how = if side == "c" { how } else { "" };
            let options = format!("--recursion {recursion} --output {side}.out {how}");
            run_ok(
                &folder,
                &atom(&format!("./app {tool} -q -o {side} -- {options}")),
            );
            run_ok(&folder, &format!("./{side}"));
        }
        let [of_rust, of_c] = ["rust.out", "c.out"].map(sorted);
        // Nodes of threads are numbered as their threads were found, but the sums by name are the same.
        let by_name = |tree: &str| {
            let mut lines: Vec<String> = tree
                .lines()
                .filter(|line| !line.contains("->"))
                .map(|line| line.split(' ').skip(2).collect::<Vec<_>>().join(" "))
                .collect();
            lines.sort();
            lines
        };
        assert_eq!(by_name(&of_rust[0]), by_name(&of_c[0]));
        assert!(of_c[0].contains(" deep ") && of_c[0].contains(" fib "));
        assert_eq!(of_c.len(), of_rust.len());
    }
}

#[test]
fn the_rest_of_reports_and_paths() {
    let folder = Folder::new();
    folder.compile(
        "app",
        "volatile int sink;\n\
         __attribute__((noinline)) void work(int n) { sink += n; }\n\
         __attribute__((noinline)) void twice(int n) { work(n); work(n + 1); sink++; }\n\
         int main(int c, char **v) { for (int i = 0; i < 4 + c; i++) twice(i); work(7); return 0; }\n",
        &["-O1", "-g"],
    );
    let made = |rows: &str| {
        let options = format!("--loud left --word=two --top {rows} --json out.json");
        let tool = tool("reports");
        run_ok(
            &folder,
            &atom(&format!(
                "./app {tool} -q -o out -- {options} --output out.out"
            )),
        )
    };
    let told = made("0");
    assert_eq!(told, "1 0 two none 2 left 1\n0 1 2 1\n");
    run_ok(&folder, "./out");
    let text = String::from_utf8(folder.read("out.out")).unwrap();
    let expected = "work from line 3 of twice: 50 5\n\
                    work from line 3 of twice: 50 5\n\
                    work from line 4 of main: 10 1\n\
                    0 repeats, 0\n\
                    work main 1 1\n0 0\ngröße app.c\n1 1 0\n";
    assert_eq!(text, expected);
    made("9");
    run_ok(&folder, "./out");
    let text = String::from_utf8(folder.read("out.out")).unwrap();
    for line in [
        "size             4,096",
        "time             2.50",
        "word             größe",
        "size per second  1,638.40",
        "all procedures",
        "all lines",
        "for people",
    ] {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            squeezed(&text).contains(&squeezed(line)),
            "no {line} in {text}"
        );
    }
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| *line != "things")
        .skip(2)
        .take(3)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        ["2", "0.50", "4,096", "57.14", "100.00", "2,048.00", "3.00"]
    );
    assert_eq!(
        rows[1],
        ["1", "0.25", "2,048", "28.57", "50.00", "2,048.00"]
    );
    assert_eq!(rows[2], ["0", "0.00", "1,024", "14.29", "25.00", "0.00"]);
    assert!(!text.contains("for programs"));
    let json = String::from_utf8(folder.read("out.json")).unwrap();
    assert!(json.contains("for_programs") && !json.contains("for_people"));

    // Every function of the header files is used by these tools or named here. The manual's example uses RunningNode(path)->value by its name.
    let mut used = include_str!("c_reports.rs").to_owned();
    for name in ["branches", "paths", "reports"] {
        for half in ["inst", "anal"] {
            used += &std::fs::read_to_string(source(&format!("c/{name}.{half}.c"))).unwrap();
        }
    }
    for header in [
        include_str!("../../../include/atom.report.h"),
        include_str!("../../../include/atom.paths.h"),
    ] {
        for line in header.lines().filter(|line| !line.starts_with(' ')) {
            let Some((front, _)) = line.split_once('(') else {
                continue;
            };
            let name = front.rsplit([' ', '*']).next().unwrap_or_default();
            let is_name = name.starts_with(|c: char| c.is_ascii_uppercase());
            assert!(
                !is_name || line.starts_with("/*") || used.contains(&format!("{name}(")),
                "{name} has no test"
            );
        }
    }
}

/// The blocks of C in the manual's page that stand in a chapter, in their order.
fn sources_of(chapter: &str) -> Vec<&'static str> {
    let page = include_str!("../../../docs/tools-in-c.md");
    let (_, rest) = page.split_once(chapter).unwrap();
    let text = rest.split("\n## ").next().unwrap();
    let blocks = text.split("```c\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap())
        .collect()
}

#[test]
fn the_manuals_tools_work() {
    let folder = Folder::new();
    folder.compile("app", PATHS, &["-O1", "-pthread", "-g"]);
    let reports = sources_of("\n## Reports\n");
    folder.write("calls.inst.c", reports[0]);
    folder.write("calls.anal.c", reports[1]);
    run_ok(&folder, &atom("./app calls.inst.c calls.anal.c -q -o out"));
    run_ok(&folder, "./out");
    let text = String::from_utf8(folder.read("calls.out")).unwrap();
    let deep = text.lines().find(|line| line.ends_with("  deep")).unwrap();
    assert!(
        deep.trim_start().starts_with("9 ") && deep.contains(".c:8"),
        "{text}"
    );
    let shown = run_ok(&folder, &atom("report calls.profile"));
    assert!(shown.contains("deep"), "{shown}");

    let paths = sources_of("\n## Call paths\n");
    folder.write("stores.anal.c", paths[0]);
    folder.write("stores.inst.c", paths[1]);
    run_ok(
        &folder,
        &atom("./app stores.inst.c stores.anal.c -q -o out"),
    );
    let told = run_ok(&folder, "./out");
    let jump = told
        .lines()
        .find(|line| line.trim_start().starts_with("jump "));
    assert!(jump.is_some_and(|line| line.contains(" of ")), "{told}");
}

/// Statements of the analysis routine, and what is said of them.
const MISTAKES: [(&str, &str); 11] = [
    (
        "AddRow(t); AddNumber(t, 3);",
        "WriteReport: the table `procedures`: row 0 has 1 cells, but the table takes 2",
    ),
    (
        "AddRow(t); AddNumber(t, 3); AddRow(t);",
        "AddRow: the table `procedures`: row 0 has 1 cells, but the table takes 2",
    ),
    (
        "AddRow(t); AddNumber(t, 3); AddText(t, \"x\"); AddText(t, \"y\");",
        "AddText: the table `procedures`: row 0 has more than 2 cells",
    ),
    (
        "AddRow(t); AddText(t, \"x\");",
        "AddText: the table `procedures`: the column `calls` has the type Count",
    ),
    (
        "AddNumber(t, 3);",
        "AddNumber: the table `procedures`: it has no row yet; call AddRow first",
    ),
    (
        "SortTable(t, \"call\");",
        "SortTable: the table `procedures`: it has no column `call`",
    ),
    (
        "AddColumn(t, CountColumn(\"calls\", \"calls\"));",
        "AddColumn: the table `procedures`: it has a column `calls` already",
    ),
    (
        "AddColumn(t, PercentColumn(\"x\", \"calls\", \"b\"));",
        "WriteReport: the table `procedures`: it has no column `b`",
    ),
    (
        "AddComputedFact(r, PercentColumn(\"x\", \"a\", \"b\"));",
        "AddComputedFact: for `x` there is no fact `a` yet",
    ),
    (
        "AddTextFact(r, CountColumn(\"x\", \"a\"), \"b\");",
        "AddTextFact: the fact `x` has the type Count",
    ),
    ("WriteReport(NULL, f);", "WriteReport: the report is NULL"),
];

/// Statements of the instrument routine, options, and what is said of them.
const REFUSED: [(&str, &str, &str); 6] = [
    (
        "RefuseOptions(argc, argv);",
        "--ouput x",
        "the tool (x): unknown option `--ouput`: this tool takes --json VALUE, --output VALUE",
    ),
    ("", "--output", "the option --output needs a value"),
    (
        "AddCallProto(\"End(SITES)\"); AddCallProgram(ProgramAfter, \"End\", f);",
        "",
        "argument 1 of `End(SITES)` is `SITES`: data of another type was given",
    ),
    (
        "Data *s = MakeSites(); AddCallProto(\"End(SITES)\"); AddCallProgram(ProgramAfter, \"End\", s); PushProcSite(s, GetFirstProc());",
        "",
        "PushProcSite: a call has been added with this list before",
    ),
    (
        "PushSite(f, GetFirstInst(GetFirstBlock(GetNamedProc(\"main\"))));",
        "",
        "PushSite: this is no list of sites",
    ),
    (
        "AddCallPaths(NULL); AddCallPaths(NULL);",
        "",
        "AddCallPaths: call paths were added before",
    ),
];

#[test]
fn mistakes_in_reports_are_told() {
    let folder = Folder::with_app();
    let head = "#include <stddef.h>\n#include <atom.report.h>\n#include <atom.paths.h>\n";
    let instrument = |body: &str| {
        let files = "Data *f = MakeReportFiles(&argc, argv, \"x.out\");";
        let calls = "AddCallProto(\"End(FILES)\"); AddCallProgram(ProgramAfter, \"End\", f);";
        let routine =
            format!("void Instrument(int argc, char **argv) {{ {files} {body} {calls} }}");
        folder.write("x.inst.c", format!("{head}{routine}\n"));
    };
    let analysis = |body: &str| {
        let table = "Report *r = MakeReport(\"x\", \"p\"); Table *t = AddTable(r, ByProcedure, \"procedures\");";
        let columns = "AddColumn(t, CountColumn(\"calls\", \"calls\")); AddColumn(t, ShareColumn(\"%\", \"calls\")); AddColumn(t, TextColumn(\"procedure\"));";
        let routine =
            format!("void End(Files *f) {{ {table} {columns} {body} WriteReport(r, f); }}");
        folder.write("x.anal.c", format!("{head}{routine}\n"));
    };
    instrument("");
    for (body, expected) in MISTAKES {
        analysis(body);
        run_ok(&folder, &atom("./app x.inst.c x.anal.c -q -o out"));
        let output = run(&folder, "./out");
        let told = stderr(&output);
        assert!(
            !output.status.success() && told.contains(expected),
            "{body}: {told}"
        );
    }
    analysis("");
    for (body, options, expected) in REFUSED {
        instrument(body);
        let words = format!("./app x.inst.c x.anal.c -q -o out -- {options}");
        let output = run(&folder, &atom(&words));
        let told = stderr(&output);
        assert!(
            output.status.code() == Some(code_of(&told)) && told.contains(expected),
            "{body}: {told}"
        );
    }
}
