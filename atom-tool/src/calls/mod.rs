//! Calls that an instrument routine adds: their arguments, and the parameters that take these.

pub(crate) mod params;
pub(crate) mod proto;
pub(crate) mod typed;
