//! What the README shows is what the repository has.

use std::path::Path;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The tool in the README is the one in the examples, line for line.
#[test]
fn the_tool_is_the_example() {
    let readme = read("README.md");
    let start = readme.find("```rust\n").expect("a block of Rust") + "```rust\n".len();
    let length = readme[start..].find("```").expect("the block's end");
    assert_eq!(
        &readme[start..start + length],
        read("examples/hello-tool/src/lib.rs")
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
            let target = file.parent().expect("a folder").join(link);
            assert!(target.exists(), "{}: {link}", file.display());
            links += 1;
        }
    }
    assert!(links > 5);
}
