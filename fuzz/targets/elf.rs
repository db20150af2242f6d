//! A whole file: from opening it to the rewritten program.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(image) = atom_fuzz::open(data) {
        let _ = atom_fuzz::rewrite(image);
    }
});
