//! Names for people: Rust and C++ symbols demangled.

use cpp_demangle::DemangleOptions;

/// The demangled form of a symbol, or the symbol itself if it has none.
///
/// What follows an `@` (`@plt`, a version) stays as it is.
pub fn demangle(symbol: &str) -> String {
    let (name, rest) = match symbol.find('@') {
        Some(at) if at > 0 => symbol.split_at(at),
        _ => (symbol, ""),
    };
    let plain = match rustc_demangle::try_demangle(name) {
        // The alternate form leaves the hash out.
        Ok(rust) => Some(format!("{rust:#}")),
        Err(_) if name.starts_with("_Z") => cpp(name),
        Err(_) => None,
    };
    match plain {
        Some(mut plain) => {
            plain.push_str(rest);
            plain
        }
        None => symbol.to_owned(),
    }
}

fn cpp(name: &str) -> Option<String> {
    let options = DemangleOptions::new().no_return_type();
    cpp_demangle::Symbol::new(name)
        .ok()?
        .demangle(&options)
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
        assert_eq!(demangle("@odd"), "@odd");
        assert_eq!(demangle(""), "");
    }
}
