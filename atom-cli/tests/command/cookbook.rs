//! The commands of docs/cookbook.md answer their questions.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::Folder;

/// The shell blocks of the page, each with the paragraph before it.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut parts = page.split("```sh\n");
    let mut before = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let (block, after) = part.split_once("```\n").expect("a block ends");
        let question = before.trim_end().rsplit("\n\n").next().unwrap_or("");
        blocks.push((question.to_owned(), block.to_owned()));
        before = after.to_owned();
    }
    blocks
}

/// Tools that the page uses are built beside the command: `cargo build --release --workspace`.
#[test]
fn commands_answer_their_questions() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cookbook.md");
    let blocks = blocks(&std::fs::read_to_string(page).unwrap());
    assert_eq!(blocks.len(), 22, "one to prepare and twenty-one questions");
    let folder = Folder::new();
    let command = Path::new(env!("CARGO_BIN_EXE_atom"));
    let path = format!(
        "{}:{}",
        command.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    for (question, block) in blocks {
        let output = Command::new("bash")
            .args(["-e", "-o", "pipefail", "-c", &block])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("XDG_CACHE_HOME", folder.join("cache"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            crate::common::stderr(&output),
        );
        assert!(output.status.success(), "{question}\n{block}\n{out}{err}");
        let is_silent = block.contains("--html");
        assert!(
            is_silent || out.lines().count() > 0,
            "{question}\n{block}\n{err}"
        );
        assert!(!err.contains("internal error"), "{question}\n{err}");
    }
    assert!(folder.join("calls.html").exists());
}
