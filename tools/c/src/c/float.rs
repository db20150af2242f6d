//! Floating-point numbers as C writes and reads them.

/// The names of values that have no digits.
pub fn special(x: f64) -> Option<&'static str> {
    match x {
        _ if x.is_nan() => Some("nan"),
        _ if x.is_infinite() => Some("inf"),
        _ => None,
    }
}

/// The digits of a number that is not negative, by a letter of `e`, `f`, `g` and `a`.
pub fn digits(x: f64, letter: u8, precision: Option<usize>, is_alternate: bool) -> String {
    match letter {
        b'f' => fixed(x, precision.unwrap_or(6), is_alternate),
        b'e' => exponential(x, precision.unwrap_or(6), is_alternate),
        b'g' => general(x, precision.unwrap_or(6).max(1), is_alternate),
        _ => hexadecimal(x, precision, is_alternate),
    }
}

/// The largest precision that numbers are formatted with. No digit after it is other than 0.
const MOST: usize = 1100;

fn fixed(x: f64, precision: usize, has_point: bool) -> String {
    let most = precision.min(MOST);
    let mut text = format!("{x:.most$}");
    text.push_str(&"0".repeat(precision - most));
    if has_point && precision == 0 {
        text.push('.');
    }
    text
}

fn exponential(x: f64, precision: usize, has_point: bool) -> String {
    let most = precision.min(MOST);
    let text = format!("{x:.most$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let zeros = "0".repeat(precision - most);
    let point = if has_point && precision == 0 { "." } else { "" };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}{zeros}{point}e{sign}{:02}", exponent.abs())
}

fn general(x: f64, precision: usize, is_alternate: bool) -> String {
    let text = format!("{x:.*e}", (precision - 1).min(MOST));
    let exponent: i32 = text
        .split_once('e')
        .map_or(0, |(_, e)| e.parse().unwrap_or(0));
    let is_fixed = (-4..precision as i64).contains(&exponent.into());
    let text = if is_fixed {
        fixed(
            x,
            (precision as i64 - 1 - i64::from(exponent)) as usize,
            is_alternate,
        )
    } else {
        exponential(x, precision - 1, is_alternate)
    };
    if is_alternate {
        return text;
    }
    let (mantissa, rest) = text.split_at(text.find('e').unwrap_or(text.len()));
    if mantissa.contains('.') {
        format!(
            "{}{rest}",
            mantissa.trim_end_matches('0').trim_end_matches('.')
        )
    } else {
        text
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

/// A number in a text.
pub struct Parsed<'a> {
    /// The number of bytes that it takes; 0 if there is none.
    pub length: usize,
    is_negative: bool,
    digits: Digits<'a>,
}

/// What a number is read from.
enum Digits<'a> {
    /// An infinity, or no number.
    Named(f64),
    Decimal(&'a str),
    /// Times a power of two.
    Hexadecimal(u64, i32),
}

/// The number at the start of a text without leading space.
pub fn parse(text: &[u8]) -> Parsed<'_> {
    let (is_negative, sign) = match text.first() {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let rest = &text[sign..];
    let (digits, length) = named(rest)
        .or_else(|| hexadecimal_of(rest))
        .unwrap_or_else(|| decimal_of(rest));
    Parsed {
        length: if length == 0 { 0 } else { sign + length },
        is_negative,
        digits,
    }
}

impl Parsed<'_> {
    /// The nearest `double`, and whether the number is too large or too small for it.
    pub fn double(&self) -> (f64, bool) {
        let (value, is_exact) = match self.digits {
            Digits::Named(value) => return (self.signed(value), false),
            Digits::Decimal(text) => (text.parse().unwrap_or(0.0), is_zero(text)),
            Digits::Hexadecimal(mantissa, scale) => rounded(mantissa, scale, 53, -1074),
        };
        let is_out = value.is_infinite() || value < f64::MIN_POSITIVE && !is_exact;
        (self.signed(value), is_out)
    }

    /// The nearest `float`, and whether the number is too large or too small for it.
    pub fn single(&self) -> (f32, bool) {
        let (value, is_exact) = match self.digits {
            Digits::Named(value) => return (self.signed(value) as f32, false),
            Digits::Decimal(text) => (text.parse().unwrap_or(0.0), is_zero(text)),
            Digits::Hexadecimal(mantissa, scale) => {
                let (value, is_exact) = rounded(mantissa, scale, 24, -149);
                (value as f32, is_exact)
            }
        };
        let is_out = value.is_infinite() || value < f32::MIN_POSITIVE && !is_exact;
        (self.signed(value.into()) as f32, is_out)
    }

    fn signed(&self, value: f64) -> f64 {
        // A sign alone is no number.
        let is_negative = self.is_negative && self.length > 0;
        if is_negative { -value } else { value }
    }
}

/// True if a decimal number is 0: one that is not is no number below the normal ones exactly, as good as never.
fn is_zero(text: &str) -> bool {
    let mut digits = text.bytes().take_while(|b| !b.eq_ignore_ascii_case(&b'e'));
    !digits.any(|b| (b'1'..=b'9').contains(&b))
}

/// A number times a power of two, rounded to some bits of which the lowest has at least this power; and whether it is exact.
fn rounded(mantissa: u64, scale: i32, bits: i32, lowest: i32) -> (f64, bool) {
    let length = 64 - mantissa.leading_zeros() as i32;
    let power = scale.saturating_add(length - bits).max(lowest);
    let shift = power.saturating_sub(scale);
    if shift <= 0 {
        return (libm::scalbn(mantissa as f64, scale), true);
    }
    // Of a number far below half a unit nothing stays.
    let shift = shift.min(127) as u32;
    let (wide, unit) = (u128::from(mantissa), 1u128 << shift);
    let (mut whole, rest) = (wide >> shift, wide % unit);
    if rest > unit / 2 || rest == unit / 2 && whole % 2 != 0 {
        whole += 1;
    }
    (libm::scalbn(whole as f64, power), rest == 0)
}

/// An infinity, or no number, which may have a text in parentheses.
fn named(text: &[u8]) -> Option<(Digits<'_>, usize)> {
    let begins = |name: &str| {
        let start = text.get(..name.len())?;
        start
            .eq_ignore_ascii_case(name.as_bytes())
            .then_some(name.len())
    };
    if let Some(length) = begins("infinity").or_else(|| begins("inf")) {
        return Some((Digits::Named(f64::INFINITY), length));
    }
    let length = begins("nan")?;
    let inner = text[length..].strip_prefix(b"(").map(|inner| {
        let name = run(inner, |b| b.is_ascii_alphanumeric() || *b == b'_');
        if inner.get(name) == Some(&b')') {
            name + 2
        } else {
            0
        }
    });
    Some((Digits::Named(f64::NAN), length + inner.unwrap_or(0)))
}

/// The number of bytes in front that a predicate is true for.
fn run(text: &[u8], fits: impl Fn(&u8) -> bool) -> usize {
    text.iter().take_while(|byte| fits(byte)).count()
}

/// The length of an exponent after `length` bytes, with its letter; 0 if there is none.
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

fn decimal_of(text: &[u8]) -> (Digits<'_>, usize) {
    let whole = run(text, u8::is_ascii_digit);
    let mut length = whole;
    if text.get(whole) == Some(&b'.') {
        let fraction = run(&text[whole + 1..], u8::is_ascii_digit);
        if whole + fraction > 0 {
            length += 1 + fraction;
        }
    }
    if length > 0 {
        length += exponent(&text[length..], b'e');
    }
    let digits = std::str::from_utf8(&text[..length]).unwrap_or_default();
    (Digits::Decimal(digits), length)
}

/// A hexadecimal number. Digits after the sixteenth count by their place, and the last bit says whether one is not 0.
fn hexadecimal_of(text: &[u8]) -> Option<(Digits<'_>, usize)> {
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
            value |= u64::from(digit != 0);
        }
    }
    let power = exponent(&rest[length..], b'p');
    if power > 0 {
        let digits = std::str::from_utf8(&rest[length + 1..length + power]).unwrap_or("0");
        let most = if digits.starts_with('-') {
            i32::MIN
        } else {
            i32::MAX
        };
        scale = scale.saturating_add(digits.parse().unwrap_or(most));
    }
    length += power;
    Some((Digits::Hexadecimal(value, scale), length + 2))
}
