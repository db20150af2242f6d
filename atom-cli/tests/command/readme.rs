//! Checks that examples and tables in the documents agree with the repository.

use std::path::Path;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The first block of Rust code in a document.
fn rust_of(name: &str) -> String {
    let text = read(name);
    let start = text.find("```rust\n").expect("a block of Rust") + "```rust\n".len();
    let length = text[start..].find("```").expect("the block's end");
    text[start..start + length].to_string()
}

/// The tools in the documents are the tools that are built and run, line for line.
#[test]
fn tools_are_the_examples() {
    assert_eq!(rust_of("README.md"), read("examples/hello-tool/src/lib.rs"));
    assert_eq!(
        rust_of("docs/writing-a-tool.md"),
        read("atom-cli/tests/tools/guide.rs")
    );
    for tool in ["processes", "blocks", "samples", "clock"] {
        let code = read(&format!("atom-cli/tests/tools/{tool}.rs"));
        let page = read("docs/writing-a-tool.md");
        assert!(page.contains(&format!("```rust\n{code}```\n")), "{tool}");
    }
}

/// The table of ATOM's interface names tests as `file::function` or `file`.
#[test]
fn tests_of_the_table_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let table = std::fs::read_to_string(root.join("docs/atom-api.md")).expect("the table");
    let folders = [
        "atom-core/tests",
        "atom-core/tests/host",
        "atom-cli/tests/command",
        "tests/tests",
    ];
    let mut named = 0;
    for quoted in table.split('`').skip(1).step_by(2) {
        let (file, function) = quoted.split_once("::").unwrap_or((quoted, ""));
        if !file.ends_with(".rs") || file.contains('/') {
            continue;
        }
        let texts = folders.iter().map(|f| root.join(f).join(file));
        let all: String = texts.flat_map(std::fs::read_to_string).collect();
        let is_in = function.is_empty() || all.contains(&format!("fn {function}"));
        let exists = !all.is_empty() && is_in;
        assert!(exists, "{quoted}");
        named += 1;
    }
    assert!(named > 50, "{named}");
}
