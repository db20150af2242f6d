//! Reading the program as it lies in its file.

pub mod unwind;
