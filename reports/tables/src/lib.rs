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

mod csv;
mod excerpt;
mod parse;
mod print;
mod reduce;
pub mod schema;
mod unique;
mod widths;
mod wrap;

use std::borrow::Cow;

pub use csv::csv_field;
pub use print::{Column, write_columns};
pub use unique::shorten_all;
pub use wrap::wrapped;

/// The character that stands for parts which are left out.
pub const ELLIPSIS: char = '…';

/// The name in at most `width` characters, or in one character if `width` is 0.
///
/// A name that fits is unchanged. Else parts are left out, in this order, until it fits: default template
/// arguments, allocators and inline namespaces; the return type; the parameters; the paths of types in template
/// arguments; template arguments, the innermost first; at last parts of the middle. A path of a
/// file keeps its end.
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

/// What is before the name and is never shortened: the indentation and a word, as in `    from f()`. Empty if
/// it would leave little of the width.
fn lead(text: &str, width: usize) -> &str {
    const LEAST: usize = 8;
    let indentation = text.len() - text.trim_start_matches(' ').len();
    let word = text[indentation..].find(' ').filter(|_| indentation > 0);
    let lead = word.map_or("", |word| &text[..indentation + word + 1]);
    if columns(lead) + LEAST <= width {
        lead
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
