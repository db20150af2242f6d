//! Tables that people read: names shortened to a width, widths of columns, grouped digits.
//!
//! Reports are printed by the command and by tools inside instrumented programs. Both show the same names
//! in the same way, so it is done here. The crate uses no other crate, as its code becomes part of
//! every instrumented program.
//!
//! - [`shorten`] makes one demangled C++ or Rust name fit a width.
//! - [`shorten_all`] does so for a table: names that differ stay different.
//! - [`write_columns`] writes a table that fits a width.
//! - [`csv_field`] makes a field of comma-separated values.
//! - [`wrapped`] makes several lines of a long one.
//! - [`grouped`] writes a number with commas.
//! - [`schema`] says what rows and columns are.
#![deny(missing_docs)]

mod call_path;
mod csv;
mod excerpt;
mod parse;
mod places;
mod print;
mod reduce;
pub mod schema;
mod unique;
mod widths;
mod wrap;

use std::borrow::Cow;

pub use csv::csv_field;
pub use print::{Column, Kind, Width, write_columns};
pub use unique::{readable_all, shorten_all};
pub use wrap::wrapped;

/// The character that stands for parts which are left out.
pub const ELLIPSIS: char = '…';

/// The name in at most `width` characters, or in one character if `width` is 0.
///
/// A name that fits is unchanged. Else parts are left out, in this order, until it fits: default template
/// arguments, allocators and inline namespaces; the return type; the parameters; the paths of types in template
/// arguments; parameters of closures; template arguments, the innermost first; at last parts of the middle. A path of a
/// file keeps its end, a call path its innermost procedures, and a call its line.
pub fn shorten(name: &str, width: usize) -> Cow<'_, str> {
    if columns(name) <= width {
        return Cow::Borrowed(name);
    }
    let lead = lead(name, width);
    let room = width - columns(lead);
    let forms = reduce::Forms::new(&name[lead.len()..]);
    let fitting = forms.iter().find(|form| columns(form) <= room);
    Cow::Owned(match fitting {
        Some(form) => format!("{lead}{form}"),
        None => format!("{lead}{}", excerpt::excerpt(forms.shortest(), &[], room)),
    })
}

/// What is before the name and is never shortened: the indentation, perhaps with a word as in `    from f()`, or the kind of what
/// is named as in `heap: f()`. Empty if it would leave little of the width.
fn lead(text: &str, width: usize) -> &str {
    const LEAST: usize = 8;
    const WORDS: [&str; 2] = ["from ", "to "];
    let name = text.trim_start_matches(' ');
    let indentation = text.len() - name.len();
    let word = WORDS.iter().find(|word| name.starts_with(**word));
    let word = word
        .filter(|_| indentation > 0)
        .map_or(0, |word| word.len());
    let letters = name.bytes().take_while(u8::is_ascii_lowercase).count();
    let is_kind = letters > 0 && name[letters..].starts_with(": ");
    let lead = indentation + if is_kind { letters + 2 } else { word };
    if lead + LEAST <= width {
        &text[..lead]
    } else {
        ""
    }
}

/// The number of columns that a text takes on a terminal: one for each character, which is right for nearly all
/// names.
pub fn columns(text: &str) -> usize {
    text.chars().count()
}

/// A number with commas: `1,234,567`.
pub fn grouped(number: u64) -> String {
    grouped_digits(&number.to_string())
}

/// A number with decimals, and commas before its point: `1,234.50`.
pub fn grouped_decimal(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.as_str()),
    };
    let end = digits.find('.').unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    if whole.bytes().all(|b| b.is_ascii_digit()) {
        format!("{sign}{}{rest}", grouped_digits(whole))
    } else {
        text
    }
}

/// Digits with commas between groups of three.
fn grouped_digits(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i != 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_in_groups() {
        assert_eq!(
            [0, 999, 1000, 1_234_567, u64::MAX].map(grouped),
            [
                "0",
                "999",
                "1,000",
                "1,234,567",
                "18,446,744,073,709,551,615"
            ]
        );
        assert_eq!(grouped_decimal(1234.5, 2), "1,234.50");
        assert_eq!(grouped_decimal(-999999.999, 2), "-1,000,000.00");
        assert_eq!(grouped_decimal(12.0, 0), "12");
        assert_eq!(grouped_decimal(f64::NAN, 2), "NaN");
    }

    #[test]
    fn parts_go_in_order() {
        let name = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > \
                    join<std::vector<int, std::allocator<int> > >(std::vector<int, std::allocator<int> > const&, char)";
        assert_eq!(shorten(name, 500), name);
        for (width, short) in [
            (
                90,
                "std::string join<std::vector<int>>(std::vector<int> const&, char)",
            ),
            (60, "join<std::vector<int>>(std::vector<int> const&, char)"),
            (30, "join<std::vector<int>>(…)"),
            (24, "join<vector<int>>(…)"),
            (19, "join<vector<…>>(…)"),
            (12, "join<…>(…)"),
        ] {
            assert_eq!(shorten(name, width), short, "{width}");
        }
        assert_eq!(shorten(name, 0), "…");
    }

    #[test]
    fn rust_names() {
        let name = "<alloc::vec::Vec<u8, alloc::alloc::Global> as core::iter::traits::collect::Extend<&u8>>::extend::<core::slice::iter::Iter<u8>>";
        assert_eq!(
            shorten(name, 110),
            "<alloc::vec::Vec<u8> as core::iter::traits::collect::Extend<&u8>>::extend::<core::slice::iter::Iter<u8>>"
        );
        assert_eq!(
            shorten(name, 60),
            "<Vec<u8> as Extend<&u8>>::extend::<Iter<u8>>"
        );
        assert_eq!(
            shorten(name, 40),
            "<Vec<…> as Extend<…>>::extend::<Iter<…>>"
        );
        assert_eq!(shorten(name, 36), "<Vec<…> as Extend<…>>::extend::<…>");
    }

    #[test]
    fn the_middle_goes_last() {
        let name = "outermost::inner_module::a_rather_long_type::the_method";
        assert_eq!(
            shorten(name, 40),
            "outermost…a_rather_long_type::the_method"
        );
        assert_eq!(shorten(name, 14), "…::the_method");
        let caller = "    from void ns::f<int>(std::vector<int> const&)";
        assert_eq!(shorten(caller, 28), "    from ns::f<int>(…)");
        assert_eq!(shorten(caller, 20), "    from ns::f<…>(…)");
        assert_eq!(shorten("averyveryverylongword", 9), "aver…word");
        assert_eq!(
            shorten("/usr/include/c++/14/bits/stl_vector.h:1234", 24),
            "…/bits/stl_vector.h:1234"
        );
    }

    #[test]
    fn the_telling_end_stays() {
        let path = "libapp.so.1:app::make<std::vector<int> >(int) (make.cc:12) < app::run() (run.cc:7) < main (main.cc:3) < _start";
        for (width, short) in [
            (
                100,
                "libapp:app::make<vector<int>>(…) (make.cc:12) < app::run() (run.cc:7) < main (main.cc:3) < _start",
            ),
            (
                80,
                "…:app::make<…>(…) (make.cc:12) < app::run() (run.cc:7) < main (main.cc:3) < …",
            ),
            (40, "…:app::make<…>(…) (make.cc:12) < …"),
            (30, "…::make<…>(…) (make.cc:12) < …"),
        ] {
            assert_eq!(shorten(path, width), short, "{width}");
        }
        for (name, width, short) in [
            ("unlink_chunk.constprop.0", 22, "unlin…hunk.constprop.0"),
            ("unlink_chunk.constprop.0", 14, "unlink_chunk…"),
            (
                "libpython3.11.so.1.0:_PyUnicode_JoinArray",
                36,
                "libpython3.11:_PyUnicode_JoinArray",
            ),
            (
                "libpython3.11.so.1.0:_PyUnicode_JoinArray",
                30,
                "…:_PyUnicode_JoinArray",
            ),
            ("block 1234567890123456 of 10", 20, "block … of 10"),
            (
                "main::{lambda(std::string, std::string)#1}::operator()(int) const",
                50,
                "main::{lambda(…)#1}::operator()(…) const",
            ),
            (
                "                    a_long_procedure_name",
                36,
                "                    a_long_p…re_name",
            ),
        ] {
            assert_eq!(shorten(name, width), short, "{width}");
        }
    }

    #[test]
    fn unusual_names() {
        for (name, width, short) in [
            (
                "a::operator<<(std::ostream&, a::b const&)",
                30,
                "a::operator<<(…)",
            ),
            (
                "x::y<int>::operator bool(int, int, int)",
                30,
                "x::y<int>::operator bool(…)",
            ),
            (
                "a::operator-><long long int>(int)",
                32,
                "a::operator-><long long int>(…)",
            ),
            (
                "a<int>::operator()(long, long) const",
                30,
                "a<int>::operator()(…) const",
            ),
            (
                "main::{lambda(int)#1}::operator()(int) const",
                43,
                "main::{lambda(int)#1}::operator()(…) const",
            ),
            (
                "(anonymous namespace)::f(int, int, int)",
                30,
                "(anonymous namespace)::f(…)",
            ),
        ] {
            assert_eq!(shorten(name, width), short);
        }
    }
}
