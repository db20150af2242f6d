//! Names as people wrote them: C++ and Rust symbols demangled.

use std::fmt::{self, Write};

/// A demangled name longer than this is given as it stands in the symbol
/// table: substitutions let a short mangled name unfold without bound.
const MAX_LEN: usize = 16 << 10;

/// The name in the source language, or the symbol itself.
pub fn demangle(symbol: &str) -> String {
    demangled(symbol).unwrap_or_else(|| symbol.to_string())
}

fn demangled(symbol: &str) -> Option<String> {
    // `name@plt` and `name.cold` keep what the toolchain added.
    let (symbol, plt) = symbol.split_at(symbol.find('@').unwrap_or(symbol.len()));
    let mut out = Bounded(String::new());
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        write!(out, "{name:#}{plt}").ok()?;
    } else if symbol.starts_with("_Z") {
        let (mangled, part) = symbol.split_at(symbol.find('.').unwrap_or(symbol.len()));
        let name = cpp_demangle::Symbol::new(mangled).ok()?;
        name.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::new())
            .ok()?;
        write!(out, "{part}{plt}").ok()?;
    } else {
        return None;
    }
    Some(out.0)
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.0.len() + s.len() > MAX_LEN {
            return Err(fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn names_of_each_language() {
        assert_eq!(demangle("main"), "main");
        assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangle("_ZN3foo3barEi.cold"), "foo::bar(int).cold");
        assert_eq!(demangle("_ZSt9terminatev@plt"), "std::terminate()@plt");
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
    }
}
