//! Exception tables: reading them, and writing them again for moved code.
#![no_main]

const SECTIONS: [&str; 3] = [".eh_frame", ".gcc_except_table", ".eh_frame_hdr"];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let contents = atom_fuzz::base(&SECTIONS).with(&SECTIONS, data);
    if let Ok(image) = atom_fuzz::open(&contents) {
        let _ = atom_fuzz::rewrite(image);
    }
});
