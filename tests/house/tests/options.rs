//! The options of the tools: a tool's help, the table in its page and the words that its sources ask for are the same.

use std::collections::BTreeSet;
use std::path::Path;

use house::in_workspace;

/// Folders with sources of options that several tools have.
const SHARED: [&str; 3] = ["atom-tool/src", "arp/kernel/src", "tools/cover/lib/src"];

type Options = BTreeSet<String>;

/// The names of options in a text: after `--` what can be a name.
fn named(text: &str) -> Options {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let names = text.split("--").skip(1).filter_map(|rest| {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let name = rest[..end].trim_end_matches('-');
        (!name.is_empty()).then(|| format!("--{name}"))
    });
    names.collect()
}

/// The options that a help text describes: two spaces are before them, and at least two before their descriptions.
fn helped(text: &str) -> Options {
    let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
    let lines = lines.filter(|line| line.starts_with("--"));
    let heads = lines.map(|line| line.split("  ").next().unwrap_or(line));
    heads.flat_map(named).collect()
}

/// The options in the first column of a page's tables of options.
fn described(page: &str) -> Options {
    let mut found = Options::new();
    let mut is_table = false;
    for line in page.lines() {
        is_table = line.starts_with("| option |") || is_table && line.starts_with('|');
        if is_table {
            let cells = line.replace("\\|", " ");
            found.extend(named(cells.split('|').nth(1).unwrap_or_default()));
        }
    }
    found
}

/// The literals of all sources below a folder, without their quotation marks.
fn literals(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            literals(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(text.split('"').map(str::to_owned));
        }
    }
}

#[test]
fn help_page_and_sources_have_the_same_options() {
    let mut shared = BTreeSet::new();
    for folder in SHARED {
        literals(&in_workspace(folder), &mut shared);
    }
    let mut tools = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(in_workspace("tools")).unwrap() {
        let entry = entry.unwrap();
        let tool = entry.file_name().into_string().unwrap();
        let Ok(help) = std::fs::read_to_string(entry.path().join("src/help.txt")) else {
            continue;
        };
        tools += 1;
        let help = helped(&help);
        let mut own = BTreeSet::new();
        literals(&entry.path().join("src"), &mut own);
        let asked: Options = own
            .iter()
            .filter(|l| named(l).contains(*l))
            .cloned()
            .collect();
        for option in asked.difference(&help) {
            wrong.push(format!("tools/{tool}: {option} is not in the help"));
        }
        // The options for fuzzers have another prefix in `cover` than in `afl`.
        let is_known = |option: &String| {
            let bare = option.trim_start_matches("--");
            let bare = bare.strip_prefix("afl-").unwrap_or(bare);
            let is_shared = |name: &str| shared.contains(name);
            own.contains(option) || is_shared(option) || is_shared(bare)
        };
        for option in help.iter().filter(|option| !is_known(option)) {
            wrong.push(format!(
                "tools/{tool}: nothing asks for {option} of the help"
            ));
        }
        let page = in_workspace(&format!("docs/tools/{tool}.md"));
        let page = described(&std::fs::read_to_string(page).unwrap_or_default());
        for option in page.symmetric_difference(&help) {
            let has = if help.contains(option) {
                "help"
            } else {
                "page"
            };
            wrong.push(format!("tools/{tool}: {option} is only in the {has}"));
        }
    }
    assert!(tools > 15, "{tools} tools");
    assert!(wrong.is_empty(), "options:\n{}", wrong.join("\n"));
}

#[test]
fn options_are_found() {
    let of = |names: &[&str]| {
        names
            .iter()
            .map(|name| format!("--{name}"))
            .collect::<Options>()
    };
    let help = "What it does\n\nOptions:\n  --a, --b-c N   first, unlike --d\n                 and --e\n  --f            last\n";
    assert_eq!(helped(help), of(&["a", "b-c", "f"]));
    let page =
        "| option | meaning |\n| --- | --- |\n| `--a x\\|y`, `--b` | not `--c` |\n\n| `--d` | |\n";
    assert_eq!(described(page), of(&["a", "b"]));
}
