//! Twenty random tools, as users write them. The command `nightly` tries a thousand.

use atom_tests::random_tools::{self, Language, Night};

fn judge(language: Language, seed: u64) {
    let folder = atom_tests::cache::target_folder().unwrap();
    let folder = folder.join(format!("test-programs/random-tools-{language:?}"));
    let night = Night {
        seed,
        language,
        tools: 10,
        every: Some(20),
    };
    let found = random_tools::all(&night, &folder).unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn tools_in_rust() {
    judge(Language::Rust, 1);
}

/// The seed is one whose tools found that a cold path took the register in which flags are kept.
#[test]
fn tools_in_c() {
    judge(Language::C, 22);
}
