//! Values of [`tables::schema`] are their names in files.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serializer};

pub fn serialize<T, S>(value: &T, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Copy + Into<&'static str>,
    S: Serializer,
{
    serializer.serialize_str((*value).into())
}

pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: for<'a> From<&'a str>,
    D: Deserializer<'de>,
{
    let name: Cow<'_, str> = Deserialize::deserialize(deserializer)?;
    Ok(T::from(&name))
}
