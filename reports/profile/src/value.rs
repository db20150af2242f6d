//! A cell of a column.
//!
//! JSON's numbers are read as doubles by many programs, so integers above 2^53 are written as strings: in
//! decimal, addresses in hexadecimal with `0x`. Readers take each form for each integer.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// The largest integer below which a double holds each integer.
pub(crate) const EXACT: u64 = 1 << 53;

/// A cell: a number, an address, an index of a text, or not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Value {
    /// The value is not known.
    #[default]
    Unknown,
    /// A count, a number of bytes, an address, a line number, or an index into the strings.
    Integer(u64),
    /// A ratio, a percentage, a number of seconds.
    Float(f64),
}

impl Value {
    /// The integer that a string stands for, in decimal or in hexadecimal with `0x`.
    pub(crate) fn of_text(text: &str) -> Self {
        let integer = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        integer.map_or(Self::Unknown, Self::Integer)
    }

    /// The value if it is an integer.
    pub fn integer(self) -> Option<u64> {
        match self {
            Self::Integer(n) => Some(n),
            _ => None,
        }
    }

    /// The value as a floating-point number; `None` if it is not known.
    pub fn float(self) -> Option<f64> {
        match self {
            Self::Unknown => None,
            Self::Integer(n) => Some(n as f64),
            Self::Float(x) => Some(x),
        }
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Self::Integer(n)
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Self {
        Self::Float(x)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Unknown, Into::into)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unknown => to.serialize_unit(),
            Self::Integer(n) if *n > EXACT => to.collect_str(n),
            Self::Integer(n) => to.serialize_u64(*n),
            // The form for a cell without text.
            Self::Float(x) if *x == -1.0 => to.serialize_i64(-1),
            Self::Float(x) => to.serialize_f64(*x),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyValue)
    }
}

/// Reads any JSON value; what is no number becomes [`Value::Unknown`], as columns of unknown types are ignored.
struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number, a number in a string, or null")
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(Value::Integer(n))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(u64::try_from(n).map_or(Value::Float(n as f64), Value::Integer))
    }

    fn visit_f64<E>(self, x: f64) -> Result<Value, E> {
        Ok(Value::Float(x))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::of_text(text))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Unknown)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Unknown)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Unknown)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_number_is_read() {
        let text =
            r#"[0, 9007199254740993, "18446744073709551615", "0x10", 1.5, -1, null, [1, [2]], {}]"#;
        let values: Vec<Value> = serde_json::from_str(text).unwrap();
        let integers: Vec<Option<u64>> = values.iter().map(|v| v.integer()).collect();
        assert_eq!(
            integers[..4],
            [Some(0), Some(EXACT + 1), Some(u64::MAX), Some(16)]
        );
        assert!(integers[4..].iter().all(Option::is_none));
        assert_eq!(values[4].float(), Some(1.5));
        assert_eq!(values[6..], [Value::Unknown; 3]);
    }

    #[test]
    fn large_integers_survive() {
        let values = [EXACT, EXACT + 1, u64::MAX].map(Value::Integer);
        let text = serde_json::to_string(&values).unwrap();
        assert_eq!(
            text,
            r#"[9007199254740992,"9007199254740993","18446744073709551615"]"#
        );
        assert_eq!(serde_json::from_str::<Vec<Value>>(&text).unwrap(), values);
    }
}
