//! Programs of Go: what each shipped tool says of one, and what is refused. How such programs behave is judged with all other
//! sources.

use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::check::Case;
use atom_tests::source::{Source, Variant, go_build};

/// Tools and their options. A signal interrupts the routines of some nearly always, and a collection waits for the thread.
const TOOLS: [(&str, &[&str]); 14] = [
    ("bbv", &["--interval", "1000000"]),
    ("branch", &[]),
    ("cache", &["--preset", "atom"]),
    ("calllog", &[]),
    ("calltree", &[]),
    ("cover", &[]),
    ("dtb", &[]),
    ("icount", &[]),
    ("inline", &[]),
    ("memtrace", &[]),
    ("mix", &[]),
    ("predict", &[]),
    ("prof", &[]),
    ("reuse", &["--sample", "100"]),
];

fn case<'a>(source: &'a Source, variant: &'a Variant) -> Case<'a> {
    Case::build(source, variant).unwrap()
}

fn folder(name: &str) -> PathBuf {
    atom_tests::cache::empty_folder(&format!("go-{name}"))
}

/// The output under each tool is the original's, and the report names a procedure of the program.
#[test]
fn tools_on_a_program() {
    let source = Source::named("go.go").unwrap();
    let variant = Variant("go-strip".into());
    let case = case(&source, &variant);
    let run = &source.runs[0];
    let original = case.run(&case.original(), run, false).unwrap();
    let folder = folder("tools");
    let mut wrong = Vec::new();
    for (tool, options) in TOOLS {
        let report = folder.join(format!("{tool}.out"));
        let mut words: Vec<String> = options.iter().map(|o| o.to_string()).collect();
        words.extend(["--output".to_owned(), report.display().to_string()]);
        let out = folder.join(tool);
        if let Err(e) = atom::instrument(
            &case.original(),
            &out,
            &Job::Tool(tool.into(), words),
            false,
        ) {
            wrong.push(format!("{tool}: {e}"));
            continue;
        }
        let outcome = case.run(&out, run, false).unwrap();
        if let Some(difference) = outcome.differs_from(&original) {
            wrong.push(format!("{tool}: {difference}"));
        }
        let written = std::fs::metadata(&report).is_ok_and(|m| m.len() > 100);
        if !written {
            wrong.push(format!("{tool}: no report"));
        }
        std::fs::remove_file(&out).unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let report = std::fs::read_to_string(folder.join("icount.out")).unwrap();
    // A stripped program has names and lines by Go's own tables.
    let row = report.lines().find(|l| l.contains("main.deep"));
    assert!(row.is_some_and(|row| row.contains("go.go:")), "{report}");
}

fn refusal(program: &Path) -> String {
    let out = program.with_extension("out");
    let mut command = Command::new(atom::command().unwrap());
    let output = command.arg(program).arg("-o").arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!out.exists());
    said
}

/// A version that is not known is named; tables that make no sense are not used.
#[test]
fn what_is_refused() {
    let source = Source::named("gocount.go").unwrap();
    let variant = Variant("go".into());
    let original = std::fs::read(case(&source, &variant).original()).unwrap();
    let folder = folder("refused");
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|w| w == what);
    let at = find(&original, b"\xff Go buildinf:").unwrap();
    let version = at + find(&original[at..], b"go1.").unwrap() + b"go1.".len();
    let mut unknown = original.clone();
    unknown[version..version + 2].copy_from_slice(b"99");
    let program = folder.join("unknown");
    std::fs::write(&program, unknown).unwrap();
    let said = refusal(&program);
    assert!(
        said.contains("go1.99") && said.contains("1.19 to 1.27"),
        "{said}"
    );

    // The table of functions is in order no more.
    let magic = [0xff, 0xff, 0xff, 0, 0, 1, 8];
    let header = find(&original, &magic).unwrap() - 1;
    let word = |n: usize| {
        let at = header + 8 * n;
        u64::from_le_bytes(original[at..at + 8].try_into().unwrap()) as usize
    };
    let functions = header + word(8);
    let mut damaged = original.clone();
    damaged[functions + 8..functions + 12].fill(0xff);
    let program = folder.join("damaged");
    std::fs::write(&program, &damaged).unwrap();
    let said = refusal(&program);
    assert!(said.contains("ftab"), "{said}");
    std::fs::write(&program, &original[..header + 100]).unwrap();
    refusal(&program);
}

/// Builds a file of tests/tests/go_plugin.
fn built(folder: &Path, file: &str, mode: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go_plugin");
    let out = folder.join(file).with_extension("built");
    let mut command = Command::new("go");
    // Plugins need cgo.
    go_build(&mut command, "external").unwrap();
    command.args([mode, "-o"]).arg(&out).arg(file);
    command.current_dir(source);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    out
}

/// A program that opens a plugin works when it is instrumented; the plugin runs as it is, and that is said.
#[test]
fn plugins_run_as_they_are() {
    let folder = folder("plugin");
    let plugin = built(&folder, "plugin.go", "-buildmode=plugin");
    let host = built(&folder, "host.go", "-buildmode=exe");
    let run = |command: &mut Command| {
        let output = command.current_dir(&folder).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{out}{err}");
        (out, err)
    };
    let expected = run(Command::new(&host).arg(&plugin)).0;
    assert!(expected.contains("slice bounds out of range"), "{expected}");

    let alone = folder.join("host.icount");
    let job = Job::Tool("icount".into(), Vec::new());
    atom::instrument(&host, &alone, &job, false).unwrap();
    assert_eq!(run(Command::new(&alone).arg(&plugin)).0, expected);

    for said in ["the next run sees them", "which cannot be instrumented"] {
        let mut command = Command::new(atom::command().unwrap());
        command.env("XDG_CACHE_HOME", folder.join("cache"));
        command
            .args(["run", "icount", "--"])
            .arg(&host)
            .arg(&plugin);
        let (out, err) = run(&mut command);
        assert_eq!(out, expected);
        assert!(err.contains(said), "{err}");
    }
}
