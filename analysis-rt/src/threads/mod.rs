//! What each thread has of its own: the runtime's record of it, and the data that a tool places for each
//! thread.

pub(crate) mod bursts;
pub(crate) mod counts;
pub(crate) mod current;
pub(crate) mod data;
pub(crate) mod entry;
pub(crate) mod events;
pub(crate) mod record;
pub(crate) mod table;
