//! What is known of the process: what `atom` and the kernel said at the start, and whether this is
//! the process that started or a child of it.

pub(crate) mod boundaries;
pub(crate) mod copy;
pub(crate) mod dispatch;
pub(crate) mod filters;
pub(crate) mod frames;
pub(crate) mod identity;
pub(crate) mod info;
pub(crate) mod limits;
pub(crate) mod mapping;
pub(crate) mod maps;
pub(crate) mod names;
pub(crate) mod note;
pub(crate) mod objects;
pub(crate) mod own_file;
pub(crate) mod run;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod told;
pub(crate) mod traced;
pub(crate) mod twins;
