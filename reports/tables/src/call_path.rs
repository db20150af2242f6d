//! Call paths and their parts: `libz.so.1:inflate (inflate.c:640) < unpack (main.c:12) < main`.

use std::borrow::Cow;

/// Between a procedure and its caller.
pub const CALLED_BY: &str = " < ";

/// Ends of names that the compiler gives to copies and parts of procedures.
const COPIES: [&str; 7] = [
    ".constprop",
    ".isra",
    ".part",
    ".cold",
    ".llvm",
    ".lto_priv",
    ".localalias",
];

/// True for the text of a call path.
pub fn is_path(text: &str) -> bool {
    text.contains(CALLED_BY)
}

/// The procedures of a path, the innermost first.
pub fn calls(path: &str) -> impl Iterator<Item = &str> {
    path.split(CALLED_BY)
}

/// A name, perhaps with its object in front of it, and after it the line of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call<'a> {
    /// `libz.so.1:`; empty if there is none.
    pub object: &'a str,
    /// The name of the procedure.
    pub name: &'a str,
    /// ` (inflate.c:640)`, or an address; empty if there is none.
    pub place: &'a str,
}

impl<'a> Call<'a> {
    /// The parts of a text. Together they are the text.
    pub fn of(text: &'a str) -> Self {
        let colon = text.find(':').filter(|at| !text[*at..].starts_with("::"));
        let object = colon.map_or("", |at| &text[..=at]);
        let is_object = object.contains(".so") && !object.contains(['(', '<', ' ', '/']);
        let object = if is_object { object } else { "" };
        let rest = &text[object.len()..];
        let place = rest.rfind(" (").map_or("", |at| &rest[at..]);
        let line = place.strip_suffix(')').and_then(|p| p.rsplit_once(':'));
        let is_address = place.starts_with(" (0x");
        let is_place = is_address || line.is_some_and(|(_, line)| line.parse::<u32>().is_ok());
        let place = if is_place { place } else { "" };
        Self {
            object,
            name: &rest[..rest.len() - place.len()],
            place,
        }
    }

    /// The object without its version: `libz:`.
    pub fn short_object(&self) -> Cow<'a, str> {
        match self.object.find(".so") {
            Some(0) | None => Cow::Borrowed(self.object),
            Some(at) => Cow::Owned(format!("{}:", &self.object[..at])),
        }
    }
}

/// Number of bytes at the end of a name that say which copy or part of a procedure it is: `.constprop.0`, `.cold`.
pub fn copy_suffix(name: &str) -> usize {
    let mut start = name.len();
    loop {
        let before = &name[..start];
        let plain = before.trim_end_matches(|c: char| c.is_ascii_digit());
        let plain = plain.strip_suffix('.').unwrap_or(before);
        let found = COPIES.iter().find_map(|copy| plain.strip_suffix(copy));
        match found {
            Some(rest) if !rest.is_empty() => start = rest.len(),
            _ => return name.len() - start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_call() {
        let parts = |text| {
            let call = Call::of(text);
            [call.object, call.name, call.place]
        };
        assert_eq!(
            parts("libz.so.1:inflate (inflate.c:640)"),
            ["libz.so.1:", "inflate", " (inflate.c:640)"]
        );
        assert_eq!(parts("std::f(int)"), ["", "std::f(int)", ""]);
        assert_eq!(parts("a.so.1::b"), ["", "a.so.1::b", ""]);
        assert_eq!(parts("x (y)"), ["", "x (y)", ""]);
        assert_eq!(Call::of("libz.so.1:f").short_object(), "libz:");
    }

    #[test]
    fn copies_of_procedures() {
        let suffix = |name: &'static str| &name[name.len() - copy_suffix(name)..];
        assert_eq!(suffix("unlink_chunk.constprop.0"), ".constprop.0");
        assert_eq!(suffix("f.isra.0.cold"), ".isra.0.cold");
        assert_eq!(suffix("f.llvm.123456"), ".llvm.123456");
        assert_eq!(suffix("module.f"), "");
        assert_eq!(suffix("f.0"), "");
        assert_eq!(suffix(".cold"), "");
    }
}
