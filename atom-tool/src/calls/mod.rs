//! Calls that an instrument routine adds: their places, their arguments, and the parameters that take these.

pub(crate) mod edges;
pub(crate) mod params;
pub(crate) mod proto;
pub(crate) mod typed;
