//! Names of GNAT, the Ada compiler: components in small letters with two underscores between.
//!
//! C has such names as well, so a name must also have what C's have not: the prefix of main procedures, the number of a
//! local subprogram after a full stop, or a package of the language's library in front.

/// Packages of the library.
const LIBRARY: [&str; 4] = ["ada", "gnat", "interfaces", "system"];

/// Names of operators.
const OPERATORS: [(&str, &str); 19] = [
    ("Oabs", "abs"),
    ("Oand", "and"),
    ("Omod", "mod"),
    ("Onot", "not"),
    ("Oor", "or"),
    ("Orem", "rem"),
    ("Oxor", "xor"),
    ("Oeq", "="),
    ("One", "/="),
    ("Olt", "<"),
    ("Ole", "<="),
    ("Ogt", ">"),
    ("Oge", ">="),
    ("Oadd", "+"),
    ("Osubtract", "-"),
    ("Oconcat", "&"),
    ("Omultiply", "*"),
    ("Odivide", "/"),
    ("Oexpon", "**"),
];

/// The name for people; `None` if the symbol is not certainly GNAT's.
pub fn demangle(symbol: &str) -> Option<String> {
    if let Some(main) = symbol.strip_prefix("_ada_") {
        return components(main);
    }
    let (name, is_local) = match symbol.rsplit_once('.') {
        Some((name, number))
            if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) =>
        {
            (name, true)
        }
        _ => (symbol, false),
    };
    let first = name.split("__").next()?;
    let has_several = name.len() > first.len();
    let is_certain = has_several && (is_local || LIBRARY.contains(&first));
    is_certain.then(|| components(name)).flatten()
}

fn components(name: &str) -> Option<String> {
    let mut text = String::new();
    let parts: Vec<&str> = name.split("__").collect();
    for (n, part) in parts.iter().enumerate() {
        // The number of an overloaded subprogram.
        let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if is_number && n > 0 && n + 1 == parts.len() {
            break;
        }
        let operator = OPERATORS.iter().find(|(encoded, _)| encoded == part);
        let plain = match operator {
            Some((_, sign)) => format!("\"{sign}\""),
            None => {
                // What is after the names of bodies of tasks, and of what is in bodies of packages.
                let plain = part.strip_suffix("TKB").or(part.strip_suffix("TB"));
                let plain = plain.unwrap_or(part);
                let plain = match plain.split_once('X') {
                    Some((plain, rest)) if rest.bytes().all(|c| matches!(c, b'b' | b'n')) => plain,
                    _ => plain,
                };
                let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                let starts = plain.starts_with(|c: char| c.is_ascii_lowercase());
                (starts && plain.chars().all(is_name)).then(|| plain.to_owned())?
            }
        };
        if n > 0 {
            text.push('.');
        }
        text.push_str(&plain);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn packages_and_subprograms() {
        for (symbol, name) in [
            ("_ada_ada1", "ada1"),
            ("ada1__fib.238", "ada1.fib"),
            ("ada__text_io__put_line__2", "ada.text_io.put_line"),
            (
                "ada__strings__unbounded__Oconcat",
                "ada.strings.unbounded.\"&\"",
            ),
            (
                "system__dim__generic_mks__powXnn",
                "system.dim.generic_mks.pow",
            ),
            (
                "system__tasking__stages__task_wrapper",
                "system.tasking.stages.task_wrapper",
            ),
        ] {
            assert_eq!(demangle(symbol).as_deref(), Some(name), "{symbol}");
        }
        for other in [
            "foo__bar",
            "main",
            "part.0",
            "foo.constprop.0",
            "__strcpy.1",
            "Foo__Bar.1",
        ] {
            assert_eq!(demangle(other), None, "{other}");
        }
    }
}
