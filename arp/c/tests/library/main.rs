//! Tests with programs in C and C++ that are linked with the library.

mod common;
mod misuse;
mod programs;
mod races;
