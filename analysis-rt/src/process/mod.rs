//! What is known of the process: what `atom` and the kernel said at the start, and whether this is
//! the process that started or a child of it.

pub(crate) mod copy;
pub(crate) mod filters;
pub(crate) mod identity;
pub(crate) mod info;
pub(crate) mod mapping;
pub(crate) mod note;
pub(crate) mod objects;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod table;
pub(crate) mod told;
