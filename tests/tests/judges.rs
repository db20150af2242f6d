//! All tests that judge `atom` from outside, in one program: it is linked once, and its tests
//! keep all processors busy until the last has ended.
//!
//! One module for each subject. Programs and helpers that only one subject needs are in its
//! folder. Judges come first, then how programs behave, then what each shipped tool says.

/// A test for each listed test program: `$check` takes the name of its file.
macro_rules! tests_of_programs {
    ($check:expr; $($test:ident: $file:literal,)*) => {
        $(#[test]
        fn $test() {
            $check($file);
        })*
    };
}

mod arguments;
mod behaviour;
mod cache;
mod callgraph;
mod calllog;
mod calltree;
mod counters;
mod counts;
mod cover;
mod crypto;
mod elf;
mod ends;
mod faults;
mod frames;
mod go;
mod heap;
mod in_line;
mod kernel;
mod libraries;
mod memcheck;
mod memtrace;
mod mix;
mod models;
mod origin;
mod own;
mod points;
mod predict;
mod random_tools;
mod ranges;
mod reading;
mod real;
mod registers;
mod replace;
mod reports;
mod returns;
mod reuse;
mod stepper;
mod surroundings;
mod system_calls;
mod tables;
mod textreads;
mod threads;
mod thunks;
mod valgrind;
mod values;
mod vectors;
mod whole;
