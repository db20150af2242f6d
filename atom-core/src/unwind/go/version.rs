//! The version of Go that linked a program, from the program's build information.
//!
//! The section `.go.buildinfo` begins with a magic and two bytes: the size of a pointer, and flags. With
//! flag 2, as all linkers since Go 1.18 set it, the version follows at offset 32 as text after its length.

use std::fmt;

use crate::image::Image;

const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Offset of the flags.
const FLAGS: usize = 15;
/// Flag: the text is here, not after pointers.
const INLINE: u8 = 2;
/// Offset of the text.
const TEXT: usize = 32;
/// Size in bytes that no version's text has.
const LONGEST: u64 = 24;

/// A version of Go: 1.`minor`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// The number after `1.`.
    pub minor: u32,
    /// The version as it is stated, with what follows it (`go1.22.3 X:nocoverageredesign`).
    pub text: String,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Version {
    /// The version that a program states; `None` if it states none.
    pub fn of(image: &Image) -> Option<Self> {
        match image.go_build_info().and_then(Self::parse) {
            Some(version) => Some(version),
            None => Self::of_runtime(image),
        }
    }

    /// The version that the runtime states (`runtime.buildVersion`), in a program without build information: the only
    /// text of this form to which a string in the data leads.
    fn of_runtime(image: &Image) -> Option<Self> {
        let mut found: Option<Self> = None;
        for segment in image.segments.iter().filter(|s| s.is_writable()) {
            let bytes = image.bytes_at(segment.address, segment.file_size as usize);
            let words: Vec<u64> = bytes
                .unwrap_or_default()
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
                .collect();
            for string in words.windows(2).filter(|s| (5..LONGEST).contains(&s[1])) {
                let Some(text) = image.bytes_at(string[0], string[1] as usize) else {
                    continue;
                };
                let Some(version) = Self::plain(text) else {
                    continue;
                };
                if found.as_ref().is_some_and(|other| *other != version) {
                    return None;
                }
                found = Some(version);
            }
        }
        found
    }

    /// The version that a whole text is (`go1.26.5`, `go1.27rc1`).
    fn plain(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let number = text.strip_prefix("go1.")?;
        let digits = number.find(|c: char| !c.is_ascii_digit());
        let (digits, rest) = number.split_at(digits.unwrap_or(number.len()));
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.';
        Some(Self {
            minor: digits.parse().ok().filter(|_| rest.chars().all(is_part))?,
            text: text.to_string(),
        })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(MAGIC) || bytes.get(FLAGS)? & INLINE == 0 {
            return None;
        }
        let mut rest = bytes.get(TEXT..)?;
        let length: u64 = leb128::take(&mut rest).ok()?;
        let text = rest.get(..usize::try_from(length).ok()?)?;
        let text = std::str::from_utf8(text).ok()?;
        // Toolchains between releases state "devel go1.28-abcdef".
        let number = text.split_whitespace().find_map(|w| w.strip_prefix("go1."));
        let digits = number?.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(Self {
            minor: digits.parse().ok()?,
            text: text.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minor(text: &str) -> Option<u32> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([8, INLINE]);
        bytes.resize(TEXT, 0);
        leb128::push(&mut bytes, text.len() as u64);
        bytes.extend(text.as_bytes());
        Version::parse(&bytes).map(|v| v.minor)
    }

    #[test]
    fn versions_as_tool_chains_state_them() {
        assert_eq!(minor("go1.19.8"), Some(19));
        assert_eq!(minor("go1.22"), Some(22));
        assert_eq!(minor("go1.27rc1"), Some(27));
        assert_eq!(minor("devel go1.28-abc Thu Jan 1"), Some(28));
        assert_eq!(minor("go1.24.3 X:nodwarf5"), Some(24));
        assert_eq!(minor("unknown"), None);
        assert_eq!(Version::parse(b"\xff Go buildinf:"), None);
        let plain = |text: &str| Version::plain(text.as_bytes()).map(|v| v.minor);
        assert_eq!(plain("go1.26.5"), Some(26));
        assert_eq!(plain("go1.27rc1"), Some(27));
        assert_eq!(plain("go1.20 or later"), None);
        assert_eq!(plain("go1."), None);
    }
}
