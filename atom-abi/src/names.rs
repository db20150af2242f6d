//! How users name procedures and data: by patterns, with or without parameters.
//!
//! `atom` and tools take names by the same rules, so that a pattern means the same in an option of
//! either.

/// Ends that a demangled name may have after its parameters.
const QUALIFIERS: [&str; 5] = ["", " const", "&", " const&", "&&"];

/// The part of a demangled name in front of its parameters: `a::b<c(d)>::e` of
/// `a::b<c(d)>::e(f) const`. `None` for a name that has no parameters.
pub fn without_parameters(name: &str) -> Option<&str> {
    let end = name.rfind(')')?;
    if !QUALIFIERS.contains(&&name[end + 1..]) {
        return None;
    }
    let mut depth = 0usize;
    for (i, c) in name[..=end].char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (i > 0).then_some(&name[..i]);
        }
    }
    None
}

/// Whether a pattern fits all of `text`: `*` stands for any characters, `?` for one; a
/// backslash takes the next character as it is.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // What follows the last star, and the text from which to try it next.
    let mut retry = None;
    loop {
        let mut behind = text.clone();
        let next = behind.next();
        let fits = match (pattern.next(), next) {
            (Some('*'), _) => {
                retry = Some((pattern.clone(), text.clone()));
                continue;
            }
            (None, None) => return true,
            (Some('?'), next) => next.is_some(),
            (Some('\\'), next) => next.is_some() && next == Some(pattern.next().unwrap_or('\\')),
            (wanted, next) => wanted == next,
        };
        if fits {
            text = behind;
            continue;
        }
        let Some((after, from)) = &mut retry else {
            return false;
        };
        if from.next().is_none() {
            return false;
        }
        (pattern, text) = (after.clone(), from.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::{matches, without_parameters};

    #[test]
    fn patterns_with_stars_and_escapes() {
        for (pattern, text, fits) in [
            ("main", "main", true),
            ("main", "mains", false),
            ("", "a", false),
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
            ("a*", "a", true),
            ("a*c", "abcbc", true),
            ("a*c", "abcb", false),
            ("a*c*e", "abcde", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("x?z*", "xyz", true),
            ("*ab", "aab", true),
            ("*aab*", "aaaab", true),
            ("*aab*c", "aaaab", false),
            ("operator*", "operator new", true),
            ("operator\\*", "operator*", true),
            ("x\\*", "xy", false),
            ("x\\", "x\\", true),
            ("x\\", "x", false),
            ("*\u{e9}?", "caf\u{e9}s", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn parameters_are_cut_off() {
        for (name, plain) in [
            ("f(int (*)(char)) const", Some("f")),
            (
                "f<int (int)>::operator()(int) const",
                Some("f<int (int)>::operator()"),
            ),
            ("main", None),
            ("(anonymous namespace)::x", None),
            ("()", None),
        ] {
            assert_eq!(without_parameters(name), plain, "{name}");
        }
    }
}
