//! `atom report`: profiles that tools wrote of a real program.
//!
//! The tools are those of the workspace, beside the command: `cargo build --release` builds them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::browser;
use crate::common::runs::{Runs, number, sum, total};
use crate::common::{APP, stderr};
use profile::{By, Role, Sum};

#[test]
fn a_profile_agrees_with_itself_and_with_the_report() {
    let runs = Runs::new();
    let profile = runs.run("icount", "a.profile", &[]);
    let all = number(&profile, "instructions");
    assert!(all > 1000);
    assert_eq!(total(&profile, "flow", "count"), all);
    assert_eq!(total(&profile, "procedures", "count"), all);
    let flow = profile.table("flow").unwrap();
    let column = |name: &str| &flow.column(name).unwrap().values;
    for row in 0..flow.rows {
        let of = |name: &str| column(name)[row].integer().unwrap();
        assert_eq!(of("executions") * of("insts"), of("count"));
        assert!((of("insts")..=15 * of("insts")).contains(&of("bytes")));
    }
    // The report for people says the same.
    let text = String::from_utf8(runs.folder.read("icount.out")).unwrap();
    let line = text.lines().find(|l| l.contains("instructions")).unwrap();
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    assert_eq!(digits, all.to_string());

    assert_eq!(
        profile.program.path,
        runs.folder.join("app").to_str().unwrap()
    );
    assert_eq!(profile.program.arguments, ["./app"]);
    assert_eq!(profile.scope, profile::Scope::Process);
    assert!(
        profile
            .objects
            .iter()
            .all(|o| o.build_id.is_some() && Path::new(&o.path).exists())
    );
    assert!(profile.process.pid > 1 && profile.time.seconds > 0.0);
    assert_eq!(profile.time.start.len(), "2026-11-22T22:41:58.123Z".len());
}

#[test]
fn every_tool_writes_sums_that_agree() {
    let runs = Runs::new();
    let branch = runs.run("branch", "b.profile", &[]);
    assert_eq!(
        total(&branch, "conditional branches", "taken"),
        number(&branch, "taken")
    );
    assert_eq!(branch.table("conditional branches").unwrap().by, By::Branch);
    let cache = runs.run("cache", "c.profile", &[]);
    for table in ["instructions", "procedures"] {
        for measure in ["references", "misses"] {
            assert_eq!(total(&cache, table, measure), number(&cache, measure));
        }
    }
    let prof = runs.run("prof", "p.profile", &[]);
    assert_eq!(
        total(&prof, "procedures", "entries"),
        number(&prof, "entries")
    );
    let arcs = prof.table("arcs").unwrap();
    assert_eq!(
        arcs.columns.iter().filter(|c| c.role == Role::Key).count(),
        3
    );
    for profile in [branch, cache, prof] {
        for table in &profile.tables {
            assert!(table.measures().all(|c| c.unit.is_some()), "{}", table.name);
            let added = |c: &profile::Column| c.sum == Sum::Add;
            assert!(table.measures().any(added), "{}", table.name);
        }
    }
}

#[test]
fn measures_are_put_together_by_code() {
    let runs = Runs::new();
    let profile = runs.run("icount", "a.profile", &[]);
    let all = number(&profile, "instructions");
    for unit in ["object", "procedure", "file", "line", "instruction"] {
        let rows = runs.csv(&["a.profile", "--by", unit]);
        assert_eq!(sum(&rows, "count"), all, "by {unit}");
    }
    let objects = runs.csv(&["a.profile", "--by", "object"]);
    assert_eq!(objects.len(), profile.objects.len());
    // The loop of `main` calls `twice` five times, and its lines are in app.c.
    let twice = runs.csv(&["a.profile", "--by", "instruction", "--filter", "twice"]);
    assert!(twice.iter().any(|row| row["count"] == "5"), "{twice:?}");
    let lines = runs.csv(&["a.profile", "--by", "line", "--filter", "*/app.c"]);
    assert!(
        lines.iter().any(|row| row["line"].ends_with("app.c:3")),
        "{lines:?}"
    );
    // What is sorted and cut.
    let first = runs.csv(&["a.profile", "--sort", "pc", "--top", "1"]);
    assert_eq!(first.len(), 1);
    let text = runs.report(&["a.profile", "--top", "2", "--width", "80"]);
    assert!(
        text.contains("more; --top 0 shows all") && text.lines().all(|l| l.chars().count() <= 120)
    );
    let json: serde_json::Value =
        serde_json::from_str(&runs.report(&["a.profile", "--json"])).unwrap();
    assert_eq!(json["facts"]["instructions"], all);
    assert_eq!(
        json["tables"]["procedures"][0]["count"],
        profile.tables[1].columns[0].values[0].integer().unwrap()
    );
}

/// A function that is inlined into two others, and costs much more in the second.
const INLINED: &str = "\
#include <stdlib.h>
static inline __attribute__((always_inline)) unsigned mix(unsigned *p, unsigned n) {
    unsigned sum = 0;
    for (unsigned i = 0; i < n; i++)
        sum = sum * 31 + p[i % 64];
    return sum;
}
unsigned numbers[64];
__attribute__((noinline)) unsigned few_rounds(unsigned n) { return mix(numbers, n) + 1; }
__attribute__((noinline)) unsigned many_rounds(unsigned n) { return mix(numbers, n) + 2; }
int main(void) { return (few_rounds(10) + many_rounds(1000)) & 1; }
";

/// The sum over a procedure's lines is what the procedure's row says, in counts of blocks and of instructions, and a
/// line in several procedures has no name of one.
#[test]
fn lines_add_up_to_their_procedures() {
    let runs = Runs::new();
    runs.folder.compile("app", INLINED, &["-O2", "-g"]);
    for (tool, measure) in [("icount", "count"), ("cache", "references")] {
        runs.run(tool, "a.profile", &[]);
        let mut checked = 0;
        for row in runs.csv(&["a.profile", "--by", "procedure"]) {
            let name = &row["procedure"];
            if !["few_rounds", "many_rounds"].contains(&name.as_str()) {
                continue;
            }
            let lines = runs.csv(&["a.profile", "--by", "line", "--filter", name]);
            assert_eq!(sum(&lines, measure).to_string(), row[measure], "{name}");
            assert!(lines.iter().all(|line| line["procedure"] == *name));
            checked += 1;
        }
        assert_eq!(checked, 2, "{tool}");
        let all = runs.csv(&["a.profile", "--by", "line", "--filter", "app.c:5"]);
        let [line] = all.as_slice() else {
            panic!("{all:?}");
        };
        assert_eq!(line["function"], "mix");
        assert_eq!(line["procedure"], "2 procedures");
        // The line opened: what it costs in each.
        let procs = runs.csv(&["a.profile", "--by", "procedure", "--filter", "app.c:5"]);
        let names: Vec<&str> = procs.iter().map(|row| &*row["procedure"]).collect();
        assert_eq!(names, ["many_rounds", "few_rounds"]);
        assert_eq!(sum(&procs, measure).to_string(), line[measure]);
        let of = |row: usize| procs[row][measure].parse::<u64>().unwrap();
        assert!(of(0) > 50 * of(1));
        // All of it by its own name.
        let mix = runs.csv(&["a.profile", "--by", "function", "--filter", "mix"]);
        assert_eq!(mix.len(), 1, "{mix:?}");
        assert!(sum(&mix, measure) >= sum(&procs, measure));
    }
    // The tool's own table.
    let lines = runs.csv(&["a.profile", "--table", "lines", "--filter", "*/app.c"]);
    let line = lines.iter().find(|row| row["line"].ends_with("app.c:5"));
    assert_eq!(line.unwrap()["procedure"], "2 procedures");
}

#[test]
fn an_object_that_is_another_one_is_told() {
    let runs = Runs::new();
    runs.run("icount", "a.profile", &[]);
    runs.folder
        .compile("app", "int main(void) { return 7; }", &["-O1"]);
    let output = runs.folder.atom(&["report", "a.profile", "--by", "line"]);
    assert!(output.status.success());
    assert!(
        stderr(&output).contains("its build-id differs"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn profiles_of_one_program_are_added_up() {
    let runs = Runs::new();
    let one = runs.run("icount", "a.profile", &[]);
    let two = runs.run("icount", "b.profile", &["x", "y"]);
    let twice: serde_json::Value =
        serde_json::from_str(&runs.report(&["a.profile", "a.profile", "--json"])).unwrap();
    assert_eq!(twice["profiles"], 2);
    assert_eq!(
        twice["facts"]["instructions"],
        2 * number(&one, "instructions")
    );
    let both = runs.csv(&["a.profile", "b.profile"]);
    let expected = number(&one, "instructions") + number(&two, "instructions");
    assert_eq!(sum(&both, "count"), expected);
    assert!(
        runs.report(&["a.profile", "b.profile"])
            .contains("sum of 2 profiles")
    );

    runs.run("branch", "c.profile", &[]);
    runs.folder.fails(
        &["report", "a.profile", "c.profile"],
        &["different tools: icount and branch"],
    );
    runs.folder
        .compile("app", "int main(void) { return 7; }", &["-O1"]);
    let _ = runs.run("icount", "d.profile", &[]);
    runs.folder.fails(
        &["report", "a.profile", "d.profile"],
        &["different builds", "report diff"],
    );
}

/// Coverage of several runs is the union of theirs. Of one run twice it is what the tool itself says of that run.
#[test]
fn coverage_of_several_runs_is_the_union() {
    let runs = Runs::new();
    let once = runs.run("cover", "a.profile", &[]);
    let other = runs.run("cover", "b.profile", &["x", "y"]);
    let facts = |files: &[&str]| -> serde_json::Value {
        let words = [files, &["--json"]].concat();
        let mut json: serde_json::Value = serde_json::from_str(&runs.report(&words)).unwrap();
        json["facts"].take()
    };
    let (one, twice) = (facts(&["a.profile"]), facts(&["a.profile", "a.profile"]));
    for set in ["blocks", "procedures", "lines"] {
        for name in [
            set,
            &format!("{set} executed"),
            &format!("{set} executed %"),
        ] {
            assert!(one[name].as_f64().unwrap() > 0.0, "{name}");
            assert_eq!(one[name], twice[name], "{name}");
        }
    }
    for table in ["procedures", "source files"] {
        let rows = |files: &[&str]| runs.csv(&[files, &["--table", table, "--sort", "%"]].concat());
        let mut rows = [&["a.profile"][..], &["a.profile", "a.profile"]].map(rows);
        rows.iter_mut()
            .for_each(|rows| rows.sort_by_key(|row| format!("{row:?}")));
        assert!(rows[0] == rows[1], "{table}");
    }
    let both = facts(&["a.profile", "b.profile", "--together"]);
    let name = "lines executed";
    let most = number(&once, name).max(number(&other, name));
    let union = both[name].as_u64().unwrap();
    assert!((most..=number(&once, "lines")).contains(&union));
    let lines = runs.csv(&["a.profile", "b.profile", "--table", "lines"]);
    let executed = lines.iter().filter(|row| row["executed"] != "0").count();
    assert_eq!(union, executed as u64);
}

#[test]
fn what_changed_is_shown() {
    let runs = Runs::new();
    runs.run("icount", "a.profile", &[]);
    runs.run("icount", "b.profile", &["x", "y"]);
    let same = runs.report(&["diff", "a.profile", "a.profile", "--fail-above", "0"]);
    assert!(same.ends_with("no differences\n"), "{same}");
    // Two more rounds of the loop.
    let rows = runs.csv(&["diff", "a.profile", "b.profile"]);
    let twice = rows.iter().find(|row| row["procedure"] == "twice").unwrap();
    assert!(twice["before"].parse::<u64>().unwrap() < twice["after"].parse().unwrap());
    let failed = runs.folder.atom(&[
        "report",
        "diff",
        "a.profile",
        "b.profile",
        "--fail-above",
        "5",
        "--floor",
        "0",
    ]);
    assert_eq!(failed.status.code(), Some(1));
    let text = stderr(&failed);
    assert!(
        text.contains("grew more than 5 %: procedures: count:") && text.contains(" twice: "),
        "{text}"
    );
    // What grew is a small share of the whole, and what fell does not matter.
    for words in [
        ["a.profile", "b.profile", "10"],
        ["b.profile", "a.profile", "0.1"],
    ] {
        runs.report(&[
            "diff",
            words[0],
            words[1],
            "--fail-above",
            "5",
            "--floor",
            words[2],
        ]);
    }

    // Another build: `twice` has moved and is matched by its name.
    let source = format!("int before_all(void) {{ return 1; }}\n{APP}");
    runs.folder.compile("app", &source, &["-O1", "-g"]);
    runs.run("icount", "c.profile", &[]);
    let text = runs.report(&["diff", "a.profile", "c.profile", "--top", "0"]);
    assert!(text.contains("app: other builds, matched by"), "{text}");
    assert!(
        !text.lines().any(|l| l.trim_end().ends_with(" twice")),
        "{text}"
    );
}

#[test]
fn what_changed_is_a_page() {
    let runs = Runs::new();
    runs.run("icount", "a.profile", &[]);
    runs.run("icount", "b.profile", &["x", "y"]);
    let nothing = runs.report(&["diff", "--html", "diff.html", "a.profile", "b.profile"]);
    assert_eq!(nothing, "");
    let rows = runs.csv(&["diff", "a.profile", "b.profile"]);
    let twice = rows.iter().find(|row| row["procedure"] == "twice").unwrap();
    if !browser::is_installed() {
        return;
    }
    let script = r##"
        type("#find", "twice");
        await settle();
        const grid = all(".grid").at(-1);
        const line = [...grid.querySelectorAll(".row")].find((row) => row.textContent.includes("twice"));
        const cells = [...line.children].map((cell) => cell.textContent);
        return { heads: texts("h2"), title: one("h1").textContent, cells, more: line.children[2].classList.contains("more") };
    "##;
    let found = browser::drive(&runs.folder, "diff.html", script);
    assert_eq!(found["heads"][0], "facts");
    assert!(
        found["title"]
            .as_str()
            .unwrap()
            .contains("a.profile -> b.profile")
    );
    let cell = |i: usize| found["cells"][i].as_str().unwrap().replace(',', "");
    assert_eq!([cell(0), cell(1)], [&*twice["before"], &*twice["after"]]);
    assert!(cell(2).starts_with('+') && cell(4) == "twice", "{found}");
    assert_eq!(found["more"], true);
}

/// A build in another folder, with another file name, with copies of a procedure and lines before it, is compared as
/// one of the same name.
#[test]
fn builds_of_other_names_are_compared() {
    const SOURCE: &str = "#include <stdio.h>
__attribute__((noinline)) long work(long n) NAMED;
long work(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += i ^ sum >> 3;
    return sum;
}
int main(int argc, char **argv) { printf(\"%ld\\n\", work(50000L * argc)); }
";
    let runs = Runs::new();
    let build = |folder: &str, symbol: &str, before: &str| {
        let place = runs.folder.join(folder);
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("source.c"), format!("{before}{SOURCE}")).unwrap();
        let made = std::process::Command::new("gcc")
            .args(["-O1", "-g", "-w", "-o", "app", "source.c"])
            .arg(format!("-DNAMED=__asm__(\"{symbol}\")"))
            .current_dir(&place)
            .status();
        assert!(made.unwrap().success());
        let program = place.join("app");
        let named = runs.folder.join(&format!("app-{folder}"));
        std::fs::rename(program, &named).unwrap();
        for (tool, name) in [
            (&["cover", "--counts"][..], "profile"),
            (&["calltree"], "tree"),
        ] {
            let file = format!("{folder}.{name}");
            let words = [&["run", "-q"], tool, &["--profile", &file, "--"]].concat();
            let run = runs.folder.command(&words).arg(&named).output();
            assert!(run.unwrap().stderr.is_empty());
        }
    };
    build("old", "work.constprop.0", "");
    build("new", "work.isra.1", "int more(void) { return 1; }\n");
    for unit in ["procedure", "line"] {
        let rows = runs.csv(&["diff", "old.profile", "new.profile", "--by", unit]);
        let text = format!("{rows:?}");
        assert!(!text.contains("work"), "{unit}: {text}");
        assert!(!text.contains("source.c"), "{unit}: {text}");
    }
    let rows = runs.csv(&["diff", "old.tree", "new.tree", "--by", "path", "--top", "0"]);
    let text = format!("{rows:?}");
    assert!(!text.contains("work"), "{text}");
    // By their own names the procedures differ.
    let rows = runs.csv(&["old.tree", "--table", "call paths"]);
    assert!(format!("{rows:?}").contains("main;work.constprop.0"));
    let text = runs.report(&["diff", "old.profile", "new.profile"]);
    assert!(text.contains("app-new: other builds, matched by"), "{text}");
    assert!(text.contains("/app-old -> "), "{text}");
}

#[test]
fn mistakes_are_explained() {
    let runs = Runs::new();
    runs.run("icount", "a.profile", &[]);
    let fails = |words: &[&str], needles: &[&str]| {
        runs.folder.fails(&[&["report"], words].concat(), needles);
    };
    fails(&["none.profile"], &["none.profile", "No such file"]);
    fails(&["icount.out"], &["icount.out", "not a profile"]);
    fails(
        &["a.profile", "--table", "x"],
        &["no table `x`", "`procedures`"],
    );
    fails(
        &["a.profile", "--sort", "x"],
        &["no table has a column `x`", "`count`"],
    );
    let bytes = runs.folder.read("a.profile");
    runs.folder.write("half.profile", &bytes[..bytes.len() / 2]);
    fails(&["half.profile"], &["half.profile", "ends early"]);
}

/// The rows of a table by the texts of a column: those of the program itself, where rows have objects.
fn by_text(
    profile: &profile::Profile,
    table: &str,
    name: &str,
    value: &str,
) -> BTreeMap<String, f64> {
    let table = profile.table(table).unwrap();
    let column = |name: &str| &table.column(name).unwrap().values;
    let text = |row: usize| profile.text(column(name)[row]).unwrap().to_owned();
    let number = |row: usize| column(value)[row].float().unwrap_or(0.0);
    let own = |row: &usize| table.column("pc").is_none_or(|pc| pc.object(*row) == 0);
    let mut sums = BTreeMap::new();
    for row in (0..table.rows).filter(own) {
        *sums.entry(text(row)).or_default() += number(row);
    }
    sums
}

#[test]
fn a_log_of_calls_has_a_profile_that_says_the_same() {
    let runs = Runs::new();
    let profile = runs.run("calllog", "c.profile", &[]);
    let text = runs.folder.atom_ok(&["analyze", "calllog.out", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let calls = by_text(&profile, "procedures", "procedure", "calls");
    let own = by_text(&profile, "procedures", "procedure", "own");
    let inclusive = by_text(&profile, "procedures", "procedure", "inclusive");
    let mut seen = 0;
    for row in json["reports"][0]["procedures"].as_array().unwrap() {
        // Names of libraries' procedures have the library in front.
        let Some(name) = row["procedure"].as_str().filter(|name| !name.contains(':')) else {
            continue;
        };
        seen += 1;
        assert_eq!(calls[name], row["calls"].as_f64().unwrap(), "{name}");
        for (seconds, key) in [(&own, "time_ms"), (&inclusive, "inclusive_ms")] {
            let analyzed = row[key].as_f64().unwrap() / 1e3;
            let near = (seconds[name] - analyzed).abs() <= 0.01 * analyzed + 1e-7;
            assert!(near, "{name}: {} and {analyzed}", seconds[name]);
        }
    }
    assert!(seen > 3 && calls["twice"] == 5.0, "{calls:?}");
    assert!(inclusive["main"] >= own["main"] + own["twice"]);
    // A pipe or device has no profile beside it.
    let to_device = ["run", "-q", "--own", "calllog", "--output", "/dev/null"];
    let output = runs
        .folder
        .atom(&[&to_device[..], &["--", "./app"]].concat());
    assert!(
        output.stderr.is_empty(),
        "{}",
        crate::common::stderr(&output)
    );
    assert!(!Path::new("/dev/null.profile").exists());
}

#[test]
fn kernels_have_a_profile_that_agrees_with_the_recording() {
    let runs = Runs::new();
    let kernel = ["run", "-q", "--own", "kernel", "--kernel", "twice"];
    let measure = ["--measure", "instructions", "--", "./app"];
    let output = runs.folder.atom(&[&kernel[..], &measure].concat());
    assert!(
        output.stderr.is_empty(),
        "{}",
        crate::common::stderr(&output)
    );
    let profile = runs.read("data.profile");
    let value = |column: &str| by_text(&profile, "sections", "section", column)["twice"];
    assert_eq!([value("executions"), value("recorded")], [5.0, 5.0]);
    let data = arp::Profile::load(runs.folder.join("data.arp")).unwrap();
    let stats = (0..data.len()).filter_map(|i| data.stats(i, 0));
    let sum: f64 = stats.map(|s| s.sum()).sum();
    assert!(sum >= 15.0 && value("instructions") == sum, "{sum}");
    assert!(value("instructions, least") <= value("instructions, largest"));
}

#[test]
fn other_formats_of_the_report_leave_the_profile() {
    let runs = Runs::new();
    for (tool, format) in [("icount", "tsv"), ("branch", "atom")] {
        let output = format!("{format}.txt");
        let tool_words = ["run", "-q", tool, "--format", format, "--output", &output];
        let rest = ["--profile", "f.profile", "--", "./app"];
        let said = runs.folder.atom(&[&tool_words[..], &rest].concat());
        assert!(said.stderr.is_empty(), "{}", crate::common::stderr(&said));
        assert!(!runs.folder.read(&output).is_empty());
        let profile = runs.read("f.profile");
        assert!(profile.tool == tool && profile.tables.iter().any(|t| t.rows > 3));
    }
}
