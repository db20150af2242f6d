//! ATOM's spelling of options, and numbers.
//!
//! ATOM writes options of several letters with one dash, which the parser
//! would take for several options of one letter. Exactly the words in [`WORDS`] are
//! replaced before the parser sees them, wherever they are in front of `--`.

use std::ffi::OsString;

/// ATOM's options, each with the option of this command that it stands for.
const WORDS: [(&str, &str); 5] = [
    ("-tool", "--tool"),
    ("-32addr", "--32addr"),
    ("-heap", "--heap"),
    ("-dbx", "--gdb"),
    ("-version", "--version"),
];

/// The command line with ATOM's words replaced. Words after `--` belong to the tool and stay as they are.
pub fn modern(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut is_ours = true;
    words
        .into_iter()
        .map(|word| {
            is_ours &= word != "--";
            let known = WORDS.iter().find(|w| is_ours && word == w.0);
            known.map_or(word, |w| w.1.into())
        })
        .collect()
}

/// Parses a number, hexadecimal after `0x`; `None` if it is none or exceeds 64 bits.
pub fn number(text: &str) -> Option<u64> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match hex {
        // `from_str_radix` would accept a sign.
        Some(hex) if hex.starts_with('+') => None,
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        let words = text.split(' ').map(OsString::from);
        modern(words).join(" ".as_ref()).into_string().unwrap()
    }

    #[test]
    fn exact_words_are_replaced() {
        let atoms = "atom a.out -tool cache -32addr -heap 0x100 -dbx -v -g -o x";
        let ours = "atom a.out --tool cache --32addr --heap 0x100 --gdb -v -g -o x";
        assert_eq!(line(atoms), ours);
        assert_eq!(line("atom -version"), "atom --version");
        assert_eq!(line("atom -toolbox -heaps"), "atom -toolbox -heaps");
        assert_eq!(line("atom a -- -tool x"), "atom a -- -tool x");
    }

    #[test]
    fn numbers() {
        assert_eq!(number("0x20000000"), Some(0x2000_0000));
        assert_eq!(number("4096"), Some(4096));
        for wrong in ["", "0x", "-1", "+1", "0x+1", "12q", "0x1ffffffffffffffff"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }
}
