//! Floating-point numbers as C writes and reads them.

use super::format::Spec;

/// The names of values that have no digits.
pub fn special(x: f64) -> Option<&'static str> {
    match x {
        _ if x.is_nan() => Some("nan"),
        _ if x.is_infinite() => Some("inf"),
        _ => None,
    }
}

/// The digits of a number that is not negative, by a letter of `e`, `f`, `g` and `a`.
pub fn digits(x: f64, letter: u8, spec: Spec) -> String {
    match letter {
        b'f' => fixed(x, spec.precision.unwrap_or(6), spec.is_alternate),
        b'e' => exponential(x, spec.precision.unwrap_or(6), spec.is_alternate),
        b'g' => general(x, spec.precision.unwrap_or(6).max(1), spec.is_alternate),
        _ => hexadecimal(x, spec.precision, spec.is_alternate),
    }
}

fn fixed(x: f64, precision: usize, has_point: bool) -> String {
    let mut text = format!("{x:.precision$}");
    if has_point && precision == 0 {
        text.push('.');
    }
    text
}

fn exponential(x: f64, precision: usize, has_point: bool) -> String {
    let text = format!("{x:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let point = if has_point && precision == 0 { "." } else { "" };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}{point}e{sign}{:02}", exponent.abs())
}

fn general(x: f64, precision: usize, is_alternate: bool) -> String {
    let text = format!("{x:.*e}", precision - 1);
    let exponent: i32 = text
        .split_once('e')
        .map_or(0, |(_, e)| e.parse().unwrap_or(0));
    let is_fixed = (-4..precision as i32).contains(&exponent);
    let text = match is_fixed {
        true => fixed(x, (precision as i32 - 1 - exponent) as usize, is_alternate),
        false => exponential(x, precision - 1, is_alternate),
    };
    if is_alternate {
        return text;
    }
    let (mantissa, rest) = text.split_at(text.find('e').unwrap_or(text.len()));
    match mantissa.contains('.') {
        true => format!(
            "{}{rest}",
            mantissa.trim_end_matches('0').trim_end_matches('.')
        ),
        false => text,
    }
}

/// Bits of a number's fraction.
const FRACTION: u32 = 52;

fn hexadecimal(x: f64, precision: Option<usize>, has_point: bool) -> String {
    let bits = x.to_bits();
    let (mut exponent, mut mantissa) = ((bits >> FRACTION) as i32, bits & ((1 << FRACTION) - 1));
    match (exponent, mantissa) {
        (0, 0) => {}
        (0, _) => exponent = -1022,
        _ => {
            mantissa |= 1 << FRACTION;
            exponent -= 1023;
        }
    }
    if let Some(precision) = precision.filter(|p| *p < 13) {
        // To the nearest; to the even one of two as near.
        let unit = 1u64 << (FRACTION - 4 * precision as u32);
        let (below, half) = (mantissa % unit, unit / 2);
        mantissa -= below;
        if below > half || below == half && mantissa & unit != 0 {
            mantissa += unit;
        }
    }
    let mut fraction = format!("{:013x}", mantissa & ((1 << FRACTION) - 1));
    match precision {
        None => fraction.truncate(fraction.trim_end_matches('0').len()),
        Some(precision) => {
            fraction.truncate(precision);
            let missing = precision.saturating_sub(fraction.len());
            fraction.push_str(&"0".repeat(missing));
        }
    }
    let point = if has_point || !fraction.is_empty() {
        "."
    } else {
        ""
    };
    format!("0x{}{point}{fraction}p{exponent:+}", mantissa >> FRACTION)
}

/// The number at the start of a text without leading space, and the number of bytes that it takes; 0 if there is none.
pub fn parse(text: &[u8]) -> (f64, usize) {
    let (is_negative, sign) = match text.first() {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let rest = &text[sign..];
    let (value, length) = match named(rest).or_else(|| hexadecimal_of(rest)) {
        Some(found) => found,
        None => decimal_of(rest),
    };
    match length {
        0 => (0.0, 0),
        _ if is_negative => (-value, sign + length),
        _ => (value, sign + length),
    }
}

fn named(text: &[u8]) -> Option<(f64, usize)> {
    let begins = |name: &str| {
        let start = text.get(..name.len())?;
        start
            .eq_ignore_ascii_case(name.as_bytes())
            .then_some(name.len())
    };
    let infinity = begins("infinity").or_else(|| begins("inf"));
    infinity
        .map(|n| (f64::INFINITY, n))
        .or_else(|| begins("nan").map(|n| (f64::NAN, n)))
}

/// The number of bytes in front that a predicate is true for.
fn run(text: &[u8], fits: impl Fn(&u8) -> bool) -> usize {
    text.iter().take_while(|byte| fits(byte)).count()
}

/// The length of an exponent behind `length` bytes, with its letter; 0 if there is none.
fn exponent(text: &[u8], letter: u8) -> usize {
    if !text
        .first()
        .is_some_and(|b| b.eq_ignore_ascii_case(&letter))
    {
        return 0;
    }
    let sign = usize::from(matches!(text.get(1), Some(b'+' | b'-')));
    match run(&text[1 + sign..], u8::is_ascii_digit) {
        0 => 0,
        digits => 1 + sign + digits,
    }
}

fn decimal_of(text: &[u8]) -> (f64, usize) {
    let whole = run(text, u8::is_ascii_digit);
    let mut length = whole;
    if text.get(whole) == Some(&b'.') {
        let fraction = run(&text[whole + 1..], u8::is_ascii_digit);
        if whole + fraction > 0 {
            length += 1 + fraction;
        }
    }
    if length == 0 {
        return (0.0, 0);
    }
    length += exponent(&text[length..], b'e');
    let value = std::str::from_utf8(&text[..length]).ok();
    (value.and_then(|v| v.parse().ok()).unwrap_or(0.0), length)
}

/// A hexadecimal number. Digits behind the sixteenth only count by their place.
fn hexadecimal_of(text: &[u8]) -> Option<(f64, usize)> {
    let rest = text
        .strip_prefix(b"0x")
        .or_else(|| text.strip_prefix(b"0X"))?;
    let whole = run(rest, u8::is_ascii_hexdigit);
    let fraction = match rest.get(whole) {
        Some(b'.') => run(&rest[whole + 1..], u8::is_ascii_hexdigit),
        _ => 0,
    };
    if whole + fraction == 0 {
        return None;
    }
    let point = usize::from(rest.get(whole) == Some(&b'.'));
    let mut length = whole + point + fraction;
    let (mut value, mut scale) = (0u64, 0i32);
    for (i, byte) in rest[..length].iter().enumerate() {
        let Some(digit) = (*byte as char).to_digit(16) else {
            continue;
        };
        let is_fraction = i > whole;
        if value >> 60 == 0 {
            value = value << 4 | u64::from(digit);
            scale -= 4 * i32::from(is_fraction);
        } else {
            scale += 4 * i32::from(!is_fraction);
        }
    }
    let power = exponent(&rest[length..], b'p');
    if power > 0 {
        let digits = std::str::from_utf8(&rest[length + 1..length + power]).unwrap_or("0");
        scale = scale.saturating_add(digits.parse().unwrap_or(0));
    }
    length += power;
    Some((libm::scalbn(value as f64, scale), length + 2))
}
