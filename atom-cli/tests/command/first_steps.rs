//! The first ten minutes: finding tools and their options, tools of one source file, want of memory.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use atom_abi::help::declared;

use crate::common::{Folder, stderr};

/// Runs the command with a cache and a home of its own.
fn atom(folder: &Folder, args: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_atom"))
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .envs(variables.iter().copied())
        .args(args)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const SHIPPED: [&str; 21] = [
    "afl", "bbv", "branch", "cache", "calllog", "calltree", "counters", "cover", "dtb", "empty",
    "heap", "icount", "inline", "kernel", "memcheck", "memtrace", "mix", "predict", "prof",
    "ranges", "reuse",
];

#[test]
fn tools_are_listed_and_found() {
    let folder = Folder::new();
    let list = stdout(&atom(&folder, &["tools"], &[]));
    for tool in SHIPPED {
        let line = list.lines().find(|l| l.split(' ').next() == Some(tool));
        let line = line.unwrap_or_else(|| panic!("{tool} is not in {list}"));
        assert!(
            line.len() > tool.len() + 20 && !line.contains("does not describe"),
            "{line}"
        );
    }
    assert!(!list.contains("threadcheck"), "{list}");
    for word in ["tools", "list"] {
        assert_eq!(stdout(&atom(&folder, &["run", word], &[])), list);
    }
    assert!(stdout(&atom(&folder, &["run", "help"], &[])).contains("--children"));

    // A folder of the user's, and a name that is mistyped.
    std::fs::create_dir(folder.join("mine")).unwrap();
    let command = Path::new(env!("CARGO_BIN_EXE_atom"));
    let icount = command.with_file_name("libicount.so");
    std::fs::copy(icount, folder.join("mine/libhallo.so")).unwrap();
    let mine = [("ATOM_TOOLS", "mine")];
    assert!(stdout(&atom(&folder, &["tools"], &mine)).contains("\nhallo "));
    let output = atom(&folder, &["run", "hallo", "--", "/bin/true"], &mine);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stderr(&atom(&folder, &["run", "icont", "--", "true"], &mine));
    assert!(
        text.contains("did you mean icount?") && text.contains("/mine"),
        "{text}"
    );
}

/// The options that a help text declares, as they are written.
fn forms(help: &str) -> BTreeSet<&str> {
    let forms = declared(help).flat_map(|option| option.forms());
    forms.map(|form| form.text).collect()
}

#[test]
fn help_names_the_options_that_a_tool_takes() {
    let folder = Folder::with_app();
    for tool in SHIPPED.iter().filter(|t| **t != "empty") {
        let help = stdout(&atom(&folder, &["run", tool, "--help"], &[]));
        let behind = ["app", "--tool", tool, "-o", "out", "--", "--help"];
        let other = stdout(&atom(&folder, &behind, &[]));
        let options = |text: &str| text.split_once("Options:").unwrap().1.to_owned();
        assert_eq!(options(&help), options(&other));
        let wrong = ["app", "--tool", tool, "-o", "out", "--", "--no-such-option"];
        let refused = stderr(&atom(&folder, &wrong, &[]));
        assert!(
            refused.starts_with(&format!("atom: running the tool ({tool}): ")),
            "{refused}"
        );
        let taken = refused.split_once("takes ").unwrap().1;
        let taken = taken.lines().next().unwrap_or_default();
        let taken: BTreeSet<&str> = taken.split(", ").collect();
        assert_eq!(forms(&help), taken, "{tool}");
    }
    assert!(!folder.join("out").exists());
}

/// The row of the options that tools with reports share, up to the default of the first.
const REPORT: &str = "| `--output FILE`, `--json FILE`, `--profile FILE`, `--no-profile`, `--top N`, `--width N`, \
                      `--full-names` | [the report](../usage.md#options-of-reports), `";

/// Each option has a row in the table of its tool's page, which begins with the sentence of the help; links may follow.
#[test]
fn pages_have_the_options_of_the_help() {
    let folder = Folder::new();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tools");
    for tool in SHIPPED {
        let page = std::fs::read_to_string(docs.join(format!("{tool}.md"))).unwrap();
        let lines = page.lines().skip_while(|l| !l.starts_with("| option |"));
        let mut rows: Vec<&str> = lines.skip(2).take_while(|l| l.starts_with('|')).collect();
        let help = stdout(&atom(&folder, &["run", tool, "--help"], &[]));
        let has_report = forms(&help).contains("--full-names");
        for option in declared(&help) {
            let text: Vec<&str> = option.sentence.split_whitespace().collect();
            let forms: Vec<String> = option.forms().map(|f| format!("`{}`", f.text)).collect();
            let start = match &*forms[0] {
                "`--output FILE`" if has_report => {
                    format!("{REPORT}{}` by default", option.default().unwrap())
                }
                form if has_report && REPORT.contains(form) => continue,
                _ => format!(
                    "| {} | {}",
                    forms.join(", ").replace('|', "\\|"),
                    text.join(" ")
                ),
            };
            let row = rows.iter().position(|row| row.starts_with(&start));
            rows.remove(row.unwrap_or_else(|| panic!("{tool}.md has no row {start}")));
        }
        assert!(rows.is_empty(), "{tool}.md: no options: {rows:?}");
    }
}

#[test]
fn a_tools_option_in_the_wrong_place_is_recognised() {
    let folder = Folder::with_app();
    for (line, advice) in [
        (
            "app --tool icount --per block",
            "atom APP --tool icount -o OUT -- --per",
        ),
        ("run --per block icount -- ./app", "atom run icount --per"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = atom(&folder, &words, &[]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            text.contains("--per is an option of the tool icount"),
            "{text}"
        );
        assert!(text.contains(advice), "{text}");
    }
}

#[test]
fn tools_of_one_file_are_compiled_and_kept() {
    let folder = Folder::with_app();
    let source = include_str!("../../../examples/hello-tool/src/lib.rs");
    folder.write("hello.rs", source);
    let run = ["run", "hello.rs", "--", "./app"];
    let first = atom(&folder, &run, &[]);
    // The program's own exit code.
    assert_eq!(first.status.code(), Some(1), "{}", stderr(&first));
    let report = String::from_utf8(folder.read("hello.out")).unwrap();
    assert!(report.contains(" twice\n"), "{report}");
    // Nothing is compiled a second time: there is no compiler.
    let again = atom(&folder, &run, &[("CARGO", "/nowhere/cargo")]);
    assert_eq!(again.status.code(), Some(1), "{}", stderr(&again));
    assert!(!stderr(&again).contains("atom: "), "{}", stderr(&again));
    let made = atom(
        &folder,
        &["app", "hello.rs", "-o", "out"],
        &[("CARGO", "/nowhere/cargo")],
    );
    assert!(made.status.success(), "{}", stderr(&made));

    // The compiler's words name the user's file and line, after a head as well.
    folder.write(
        "wrong.rs",
        format!("---\n[package]\nedition = \"2024\"\n---\n{source}fn f() {{ nothing }}\n"),
    );
    let output = atom(&folder, &["run", "wrong.rs", "--", "./app"], &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("cannot find value `nothing`"), "{text}");
    let line = 4 + source.lines().count() + 1;
    assert!(text.contains(&format!("wrong.rs:{line}:")), "{text}");
    folder.write("open.rs", "---\n[dependencies]\n");
    assert!(
        stderr(&atom(&folder, &["run", "open.rs", "--", "./app"], &[])).contains("does not end")
    );
    let missing = atom(&folder, &["run", "none.rs", "--", "./app"], &[]);
    assert!(stderr(&missing).contains("there is no such file"));
}

#[test]
fn a_new_tool_builds_and_passes_its_test() {
    let folder = Folder::new();
    let told = stdout(&atom(&folder, &["new", "my-tool"], &[]));
    assert!(told.contains("cargo test"), "{told}");
    let output = Command::new("cargo")
        .args(["test", "--quiet", "--offline", "--target-dir", "target"])
        .current_dir(folder.join("my-tool"))
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for wrong in ["my-tool", "1", "a b"] {
        assert_eq!(atom(&folder, &["new", wrong], &[]).status.code(), Some(1));
    }
}

#[test]
fn want_of_memory_is_told() {
    let folder = Folder::with_app();
    let atom = env!("CARGO_BIN_EXE_atom");
    // Where memory ends depends on the sizes of files: while one is mapped, the system's message is shown.
    let out_of_memory = ["out of memory", "Cannot allocate memory"];
    for (kilobytes, line, said) in [
        (
            60_000,
            format!("{atom} {atom} --tool icount -o out"),
            &out_of_memory[..],
        ),
        (
            60_000,
            format!("{atom} run icount -- ./app"),
            &out_of_memory[..],
        ),
        // Enough for the command, but the kernel would not start the result.
        (
            1_000_000,
            format!("{atom} run icount -- ./app"),
            &["ulimit -v"][..],
        ),
    ] {
        let output = Command::new("bash")
            .args(["-c", &format!("ulimit -v {kilobytes}; {line}")])
            .current_dir(folder.path())
            .env("XDG_CACHE_HOME", folder.join("cache"))
            .env("RUST_BACKTRACE", "1")
            .output()
            .unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{line}: {text}");
        assert!(
            said.iter().any(|said| text.contains(said)) && !text.contains("backtrace"),
            "{line}: {text}"
        );
    }
    assert!(
        !folder
            .contents()
            .keys()
            .any(|name| name.starts_with("out") || name.starts_with(".out"))
    );
}

#[test]
fn manual_pages_and_completions() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&atom(&folder, &["completions", shell], &[])).contains("analyze"));
    }
    stdout(&atom(&folder, &["man", "man1"], &[]));
    let page = String::from_utf8(folder.read("man1/atom-run.1")).unwrap();
    assert!(page.contains("children"), "{page}");
    let page = String::from_utf8(folder.read("man1/atom-run-icount.1")).unwrap();
    assert!(page.contains("what a row stands for"), "{page}");
    assert!(stdout(&atom(&folder, &["completions", "bash"], &[])).contains("--full-names"));
}
