//! What the README shows is what the repository has.

use std::path::Path;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The first block of Rust of a document.
fn rust_of(name: &str) -> String {
    let text = read(name);
    let start = text.find("```rust\n").expect("a block of Rust") + "```rust\n".len();
    let length = text[start..].find("```").expect("the block's end");
    text[start..start + length].to_string()
}

/// The tools in the documents are those that are built and run, line for line.
#[test]
fn tools_are_the_examples() {
    assert_eq!(rust_of("README.md"), read("examples/hello-tool/src/lib.rs"));
    assert_eq!(
        rust_of("docs/writing-a-tool.md"),
        read("atom-cli/tests/tools/guide.rs")
    );
}

/// Links to files of the repository lead somewhere.
#[test]
fn links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = vec![root.join("README.md")];
    for folder in ["docs", "docs/tools"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("the folder");
        files.extend(
            entries
                .map(|e| e.expect("an entry").path())
                .filter(|p| p.is_file()),
        );
    }
    let mut links = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a text");
        for rest in text.split("](").skip(1) {
            let link = rest.split(')').next().expect("split yields one at least");
            if link.contains("://") || link.starts_with('#') {
                continue;
            }
            let path = link.split('#').next().expect("split yields one at least");
            let target = file.parent().expect("a folder").join(path);
            assert!(target.exists(), "{}: {link}", file.display());
            links += 1;
        }
    }
    assert!(links > 5);
}

/// The table of ATOM's interface names tests as `file::function` or `file`.
#[test]
fn tests_of_the_table_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let table = std::fs::read_to_string(root.join("docs/atom-api.md")).expect("the table");
    let folders = ["atom-core/tests", "atom-cli/tests", "tests/tests"];
    let mut named = 0;
    for quoted in table.split('`').skip(1).step_by(2) {
        let (file, function) = quoted.split_once("::").unwrap_or((quoted, ""));
        if !file.ends_with(".rs") || file.contains('/') {
            continue;
        }
        let texts = folders.iter().map(|f| root.join(f).join(file));
        let all: String = texts.flat_map(std::fs::read_to_string).collect();
        let exists = !all.is_empty() && all.contains(&format!("fn {function}"));
        assert!(exists, "{quoted}");
        named += 1;
    }
    assert!(named > 50, "{named}");
}
