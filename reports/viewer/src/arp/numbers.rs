//! Figures as text.

use ::arp::analyse::Number;

/// The text for an unknown figure.
pub const NONE: &str = "-";

/// A sum or value: all digits of an integer, six significant digits of a floating-point number.
pub fn number(n: Number) -> String {
    match n {
        Number::Integer(n) => {
            let sign = if n < 0 { "-" } else { "" };
            format!("{sign}{}", grouped(&n.unsigned_abs().to_string()))
        }
        Number::Float(x) => float(x),
    }
}

/// A number with six significant digits.
pub fn float(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() || x == 0.0 {
        return format!("{}", x + 0.0);
    }
    let magnitude = x.abs();
    if !(1e-4..1e15).contains(&magnitude) {
        return format!("{x:.5e}");
    }
    let before = magnitude.log10().floor() as i32 + 1;
    let digits = format!("{magnitude:.*}", (6 - before).clamp(0, 9) as usize);
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let sign = if x < 0.0 { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", grouped(whole))
}

/// A figure as text with a `+` in front if it is positive.
pub fn signed(text: String) -> String {
    match text.as_bytes().first() {
        Some(b'-' | b'0' | b'n') if !text.starts_with("0.") => text,
        _ => format!("+{text}"),
    }
}

/// A part of a whole in percent.
pub fn percent(part: f64, whole: f64) -> String {
    let percent = 100.0 * part / whole;
    if percent.is_finite() {
        format!("{percent:.1}")
    } else {
        NONE.into()
    }
}

fn grouped(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits_are_significant() {
        let shown = [
            0.0,
            1.0,
            2.5,
            1234.5678,
            1234567.8,
            -0.25,
            0.000123456,
            1e-7,
            1e20,
            999999.9,
        ]
        .map(float);
        assert_eq!(
            shown,
            [
                "0",
                "1",
                "2.5",
                "1,234.57",
                "1,234,568",
                "-0.25",
                "0.000123456",
                "1.00000e-7",
                "1.00000e20",
                "1,000,000"
            ]
        );
        assert_eq!(float(f64::NAN), "nan");
        assert_eq!(float(f64::NEG_INFINITY), "-inf");
        assert_eq!(number(Number::Integer(-1234567)), "-1,234,567");
    }

    #[test]
    fn signs() {
        let all = ["5", "-5", "0", "0.5", "nan"].map(|t| signed(t.into()));
        assert_eq!(all, ["+5", "-5", "0", "+0.5", "nan"]);
        assert_eq!(percent(1.0, 4.0), "25.0");
        assert_eq!(percent(1.0, 0.0), "-");
    }
}
