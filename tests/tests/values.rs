//! Values that analysis routines are passed equal the values in the processor,
//! reference by reference: addresses, sizes, contents, targets, registers.

use atom_tests::check::{Check, check};

tests_of_programs! {
    (|name| check(name, Check::Values));
    avx512_s: "avx512.S",
    flags_s: "flags.S",
    redparts_s: "redparts.S",
    redzone_s: "redzone.S",
    scatter_s: "scatter.S",
    strings_c: "strings.c",
    values_s: "values.S",
    virtual_cc: "virtual.cc",
}
