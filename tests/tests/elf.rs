//! The reader of rewritten files (`tests/src/elf.rs`) finds what is damaged.

use atom_tests::atom::{self, Job};
use atom_tests::elf;
use goblin::elf::Elf;

/// Offset of the number that says where a program starts, in the ELF header.
const ENTRY: usize = 24;
/// Offsets in a program header, a section header, a dynamic symbol, a relocation and a dynamic entry.
const SIZE_IN_FILE: usize = 32;
const OFFSET_IN_FILE: usize = 24;
const VALUE: usize = 8;
const ADDEND: usize = 16;

#[test]
fn damage_is_found() {
    let folder = atom_tests::cache::folder("elf");
    let (program, out) = ("/usr/bin/bzip2".as_ref(), folder.join("bzip2"));
    atom::instrument(program, &out, &Job::Moved, false).unwrap();
    let bytes = std::fs::read(&out).unwrap();
    let parsed = Elf::parse(&bytes).unwrap();
    let header = parsed.header;
    let section = |name: &str| {
        let of = |s: &goblin::elf::SectionHeader| parsed.shdr_strtab.get_at(s.sh_name);
        let found = parsed
            .section_headers
            .iter()
            .position(|s| of(s) == Some(name));
        found.unwrap_or_else(|| panic!("no section {name}"))
    };
    let place = |name: &str| parsed.section_headers[section(name)].sh_offset as usize;
    // The last relocation of the table that DT_RELA names. The section `.rela.dyn` may be the original's, shorter table.
    let dynamic = &parsed.dynamic.as_ref().unwrap().info;
    let relocation = dynamic.rela + dynamic.relasz - 24;
    let text_header = header.e_shoff as usize + section(".text") * header.e_shentsize as usize;
    let damages = [
        ("the entry point", ENTRY),
        ("a segment", header.e_phoff as usize + 2 * 56 + SIZE_IN_FILE),
        ("a section", text_header + OFFSET_IN_FILE),
        ("a dynamic symbol", place(".dynsym") + 24 + VALUE),
        ("a relocation", relocation + ADDEND),
        ("the name of a library", place(".dynamic") + VALUE),
    ];
    elf::compare(program, &out).unwrap();
    for (what, at) in damages {
        let mut damaged = bytes.clone();
        // More than half of each number, and no address of a segment.
        damaged[at + 3] ^= 0x55;
        damaged[at] ^= 1;
        std::fs::write(&out, damaged).unwrap();
        assert!(elf::compare(program, &out).is_err(), "{what} is damaged");
    }
}
