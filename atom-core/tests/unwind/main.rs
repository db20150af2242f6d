//! Exception tables against independent readers: gimli for frames, a
//! personality look-up written from the format's description for LSDAs, and
//! the system's own unwinder for moved programs that are run.

mod corpus;
mod damage;
mod oracle;
mod reading;
mod running;
mod synthetic;
mod writing;
