//! Nobody changes the interface and forgets its version.

use std::fs;
use std::path::Path;

use atom_abi::{INTERFACE_HASH, INTERFACE_VERSION};

/// Source text without comments and white space, so that documentation and layout are free.
fn bare(source: &str) -> String {
    let mut bare = String::new();
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, next)| next);
            continue;
        }
        let len = match c {
            '"' => string_len(rest),
            _ => c.len_utf8(),
        };
        if !c.is_whitespace() {
            bare.push_str(&rest[..len]);
        }
        rest = &rest[len..];
    }
    bare
}

/// Bytes of the string literal at the start of a text, both quotes included.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// FNV-1a, which is the same on each machine and with each compiler.
fn hash(text: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    text.bytes().fold(BASIS, step)
}

#[test]
fn a_changed_interface_has_another_version() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the folder of this crate's source")
        .map(|entry| entry.expect("an entry of the folder").path())
        // The version itself and its hash; rules for names, which do not cross.
        .filter(|path| !path.ends_with("version.rs") && !path.ends_with("names.rs"))
        .collect();
    files.sort();
    let all: String = files
        .iter()
        .map(|path| bare(&fs::read_to_string(path).expect("a source file")))
        .collect();
    assert!(
        hash(&all) == INTERFACE_HASH,
        "the interface has changed since its hash was noted. If a type, a function's parameters or the \
         meaning of a value is another one now, raise INTERFACE_VERSION (it is {INTERFACE_VERSION}) in \
         atom-abi/src/version.rs. In any case set INTERFACE_HASH there to {:#018x}",
        hash(&all)
    );
}

#[test]
fn comments_and_white_space_do_not_count() {
    let plain = bare("/// One.\npub const A: &str = \"a // b\\\" c\"; // two\n");
    assert_eq!(plain, "pubconstA:&str=\"a // b\\\" c\";");
    assert_ne!(hash("pub a: u32"), hash("pub a: u64"));
}
