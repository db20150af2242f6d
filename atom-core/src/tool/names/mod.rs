//! Names for people: symbols of C++, Rust, D, Ada and Haskell are demangled, and characters are escaped that would
//! break a table's line or control a terminal.

mod ada;
mod dlang;
mod haskell;

use cpp_demangle::DemangleOptions;

/// The demangled form of a symbol, or the symbol itself if it has none.
///
/// The part from an `@` on (`@plt`, a version) stays as it is. Control characters, which any symbol may
/// have, are written as in Rust: `\n`, `\u{1b}`.
pub fn demangle(symbol: &str) -> String {
    let (name, rest) = match symbol.find('@') {
        Some(at) if at > 0 => symbol.split_at(at),
        _ => (symbol, ""),
    };
    let plain = match rustc_demangle::try_demangle(name) {
        // The alternate form leaves the hash out.
        Ok(rust) => Some(format!("{rust:#}")),
        Err(_) if name.starts_with("_Z") => cpp(name),
        Err(_) => dlang::demangle(name)
            .or_else(|| ada::demangle(name))
            .or_else(|| haskell::demangle(name)),
    };
    let whole = match plain {
        Some(mut plain) => {
            plain.push_str(rest);
            plain
        }
        None => symbol.to_owned(),
    };
    if whole.chars().any(is_unprintable) {
        escaped(&whole)
    } else {
        whole
    }
}

/// True for control characters, and for characters that change the direction of the text around them.
fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            if is_unprintable(c) {
                c.escape_default().collect::<Vec<_>>()
            } else {
                vec![c]
            }
        })
        .collect()
}

fn cpp(name: &str) -> Option<String> {
    let options = DemangleOptions::new().no_return_type();
    cpp_demangle::Symbol::new(name)
        .ok()?
        .demangle_with_options(&options)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn each_language() {
        assert_eq!(demangle("main"), "main");
        assert_eq!(
            demangle("_ZNSt6vectorIiSaIiEE9push_backEOi"),
            "std::vector<int, std::allocator<int> >::push_back(int&&)"
        );
        assert_eq!(demangle("_ZdlPv@plt"), "operator delete(void*)@plt");
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
        assert_eq!(demangle("_D2d14Node4nextMFZi"), "d1.Node.next()");
        assert_eq!(demangle("ada1__fib.238"), "ada1.fib");
        assert_eq!(demangle("base_GHCziBase_map_info"), "GHC.Base.map");
        assert_eq!(demangle("@odd"), "@odd");
        assert_eq!(demangle(""), "");
        assert_eq!(demangle("qu\"ote\\ü"), "qu\"ote\\ü");
        assert_eq!(
            demangle("two\nlines\x1b[31m\u{202e}"),
            "two\\nlines\\u{1b}[31m\\u{202e}"
        );
    }
}
