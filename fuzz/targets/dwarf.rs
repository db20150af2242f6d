//! Debug information: the line of every address, the functions that it belongs to, and its
//! conversion for moved code.
#![no_main]

use atom_core::image::debug::DebugLines;

const SECTIONS: [&str; 9] = [
    ".debug_line",
    ".debug_info",
    ".debug_abbrev",
    ".debug_line_str",
    ".debug_str",
    ".debug_aranges",
    ".debug_rnglists",
    ".debug_str_offsets",
    ".debug_addr",
];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let contents = atom_fuzz::base(&SECTIONS).with(&SECTIONS, data);
    if let Ok(image) = atom_fuzz::open(&contents) {
        let lines = DebugLines::new(&image);
        for segment in image.segments.iter().filter(|s| s.is_executable()) {
            for offset in (0..segment.file_size).step_by(7) {
                let address = segment.address + offset;
                let _ = lines.line_of(address);
                let _ = lines.functions_at(address);
            }
        }
        let _ = atom_fuzz::rewrite(image);
    }
});
