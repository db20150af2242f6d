//! Reads each rewritten file by goblin, a reader that the rewriter does not use, and compares it with the
//! original: what the kernel, the loader, a linker and a debugger take from an ELF file is what it was, but
//! for the additions.
//!
//! The judges that run programs find a wrong table only if something uses it; this one needs no run.

use std::collections::HashMap;
use std::path::Path;

use goblin::container::{Container, Ctx};
use goblin::elf::dynamic::{DT_FINI, DT_FINI_ARRAY, DT_INIT, DT_INIT_ARRAY, DT_PREINIT_ARRAY};
use goblin::elf::header::{ET_DYN, ET_EXEC};
use goblin::elf::program_header::{
    PF_W, PF_X, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_GNU_RELRO, PT_GNU_STACK, PT_INTERP, PT_LOAD,
    PT_NOTE, PT_PHDR, PT_TLS, ProgramHeader,
};
use goblin::elf::section_header::{SHF_ALLOC, SHN_ABS, SHT_NOBITS, SHT_NULL};
use goblin::elf::sym::{STT_FUNC, STT_SECTION};
use goblin::elf::{Elf, Reloc, Sym};

use crate::error::{Error, Result};

/// Size of a page of memory in bytes.
const PAGE: u64 = 0x1000;

/// Compares the file that `atom` wrote for a program or library with the original.
pub fn compare(original: &Path, rewritten: &Path) -> Result<()> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|e| Error::new("reading a rewritten file", e).file(path))
    };
    let (before, after) = (read(original)?, read(rewritten)?);
    let Ok(before) = Elf::parse(&before) else {
        // goblin refuses what loaders do not look at: nothing is known of such a file.
        return Ok(());
    };
    let failed = |reason: String| Err(Error::new("reading by goblin", reason).file(rewritten));
    if before.interpreter.is_none() && is_shifted(&before, &after) {
        return Ok(());
    }
    match Elf::parse(&after) {
        Err(e) => failed(e.to_string()),
        Ok(parsed) => match differences(&before, &parsed, &after).first() {
            Some(difference) => failed(difference.clone()),
            None => Ok(()),
        },
    }
}

/// Whether all of the original is at other addresses, as in a static position-independent program. Its dynamic section
/// has the original's addresses, which its start-up code shows to the C library; a reader of the file finds nothing there.
fn is_shifted(before: &Elf<'_>, after: &[u8]) -> bool {
    let headers = Elf::parse_header(after).and_then(|header| {
        let ctx = Ctx::from(Container::Big);
        ProgramHeader::parse(after, header.e_phoff as usize, header.e_phnum as usize, ctx)
    });
    let address = |headers: &[ProgramHeader]| {
        let dynamic = headers.iter().find(|s| s.p_type == PT_DYNAMIC);
        dynamic.map(|s| s.p_vaddr)
    };
    headers.is_ok_and(|headers| address(&headers) != address(&before.program_headers))
}

/// What is wrong with a rewritten file.
fn differences(before: &Elf<'_>, after: &Elf<'_>, bytes: &[u8]) -> Vec<String> {
    let mut wrong = Wrong(Vec::new());
    header(before, after, &mut wrong);
    segments(before, after, bytes.len() as u64, &mut wrong);
    dynamic(before, after, &mut wrong);
    symbols(before, after, &mut wrong);
    relocations(before, after, &mut wrong);
    sections(after, bytes.len() as u64, &mut wrong);
    notes(before, after, bytes, &mut wrong);
    wrong.0
}

/// Sentences about faults.
struct Wrong(Vec<String>);

impl Wrong {
    fn unless(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }
}

/// Segments that are loaded.
fn loads<'e>(elf: &'e Elf<'_>) -> impl Iterator<Item = &'e ProgramHeader> {
    let loaded = |s: &&ProgramHeader| s.p_type == PT_LOAD && s.p_memsz != 0;
    elf.program_headers.iter().filter(loaded)
}

/// The loaded segment that a range of addresses is in.
fn around<'e>(elf: &'e Elf<'_>, start: u64, size: u64) -> Option<&'e ProgramHeader> {
    let end = start.checked_add(size)?;
    loads(elf).find(|s| s.p_vaddr <= start && end <= s.p_vaddr + s.p_memsz)
}

/// Whether an address is one of code.
fn is_code(elf: &Elf<'_>, address: u64) -> bool {
    around(elf, address, 1).is_some_and(|s| s.p_flags & PF_X != 0)
}

fn header(before: &Elf<'_>, after: &Elf<'_>, wrong: &mut Wrong) {
    let of = |elf: &Elf<'_>| {
        let header = elf.header;
        (
            header.e_type,
            header.e_machine,
            header.e_ident[..9].to_vec(),
        )
    };
    wrong.unless(of(before) == of(after), || {
        "the file's type, machine or ABI has changed".into()
    });
    let can_start = matches!(after.header.e_type, ET_EXEC | ET_DYN);
    let has_entry = before.entry != 0;
    wrong.unless(
        !can_start || !has_entry || is_code(after, after.entry),
        || format!("the entry point {:#x} is no code", after.entry),
    );
}

fn segments(before: &Elf<'_>, after: &Elf<'_>, size: u64, wrong: &mut Wrong) {
    let mut end = 0;
    for segment in loads(after) {
        let start = segment.p_vaddr;
        wrong.unless(start >= end, || {
            format!("the segment at {start:#x} begins before the end {end:#x} of the one before")
        });
        end = start + segment.p_memsz;
        wrong.unless(segment.p_filesz <= segment.p_memsz, || {
            format!("the segment at {start:#x} is larger in the file than in memory")
        });
        wrong.unless(segment.p_offset % PAGE == start % PAGE, || {
            format!("the segment at {start:#x} has no place in a page of the file")
        });
    }
    for segment in &after.program_headers {
        let end = segment.p_offset.checked_add(segment.p_filesz);
        let has_bytes = segment.p_filesz != 0 && segment.p_type != PT_GNU_STACK;
        wrong.unless(!has_bytes || end.is_some_and(|end| end <= size), || {
            format!("the segment at {:#x} ends behind the file", segment.p_vaddr)
        });
    }
    for segment in loads(before) {
        let kept = loads(after).any(|s| {
            s.p_vaddr <= segment.p_vaddr
                && s.p_vaddr + s.p_memsz >= segment.p_vaddr + segment.p_memsz
                && s.p_flags == segment.p_flags
        });
        wrong.unless(kept, || {
            format!(
                "the original's segment at {:#x} is not there",
                segment.p_vaddr
            )
        });
    }
    let may_write_code =
        |elf: &Elf<'_>| loads(elf).any(|s| s.p_flags & PF_W != 0 && s.p_flags & PF_X != 0);
    wrong.unless(may_write_code(before) || !may_write_code(after), || {
        "a segment can be written and executed".into()
    });
    for kind in [PT_TLS, PT_GNU_RELRO, PT_GNU_STACK] {
        let of = |elf: &Elf<'_>| -> Vec<_> {
            let found = elf.program_headers.iter().filter(|s| s.p_type == kind);
            found
                .map(|s| (s.p_vaddr, s.p_memsz, s.p_flags, s.p_align))
                .collect()
        };
        wrong.unless(of(before) == of(after), || {
            format!(
                "segments of the type {kind:#x} were {:x?} and are {:x?}",
                of(before),
                of(after)
            )
        });
    }
    for kind in [
        PT_DYNAMIC,
        PT_GNU_EH_FRAME,
        PT_PHDR,
        PT_INTERP,
        PT_NOTE,
        PT_TLS,
    ] {
        let of = |elf: &Elf<'_>| {
            elf.program_headers
                .iter()
                .filter(|s| s.p_type == kind)
                .count()
        };
        // Entries of notes make space for those of new segments.
        wrong.unless(kind == PT_NOTE || of(before) <= of(after), || {
            format!("a segment of the type {kind:#x} is missing")
        });
        for segment in after.program_headers.iter().filter(|s| s.p_type == kind) {
            // The zeros of thread-local storage are in no segment.
            let range = (segment.p_vaddr, segment.p_filesz);
            let is_loaded = segment.p_filesz == 0 || around(after, range.0, range.1).is_some();
            let was_loaded = before.program_headers.iter().filter(|s| s.p_type == kind);
            let was_loaded = was_loaded
                .clone()
                .all(|s| around(before, s.p_vaddr, s.p_filesz).is_some());
            wrong.unless(is_loaded || !was_loaded, || {
                format!("the segment {range:x?} of the type {kind:#x} is not loaded")
            });
        }
    }
}

fn dynamic(before: &Elf<'_>, after: &Elf<'_>, wrong: &mut Wrong) {
    wrong.unless(before.dynamic.is_some() == after.dynamic.is_some(), || {
        "the dynamic section has come or gone".into()
    });
    let same = |before: &[&str], after: &[&str]| {
        // What leads from the file's own folder is made absolute.
        let is_kept = |(b, a): (&&str, &&str)| b == a || b.contains('$') && a.starts_with('/');
        before.len() == after.len() && before.iter().zip(after).all(is_kept)
    };
    let lists = |elf: &Elf<'_>| format!("{:?}", (&elf.libraries, &elf.rpaths, &elf.runpaths));
    let are_kept = same(&before.libraries, &after.libraries)
        && same(&before.rpaths, &after.rpaths)
        && same(&before.runpaths, &after.runpaths)
        && before.soname == after.soname;
    wrong.unless(are_kept, || {
        format!(
            "names of libraries were {} and are {}",
            lists(before),
            lists(after)
        )
    });
    let entries = |elf: &Elf<'_>| {
        let entries = elf.dynamic.iter().flat_map(|d| &d.dyns);
        entries.map(|d| (d.d_tag, d.d_val)).collect::<Vec<_>>()
    };
    let (old, new) = (entries(before), entries(after));
    for &(tag, _) in &old {
        wrong.unless(new.iter().any(|n| n.0 == tag), || {
            format!("the dynamic entry {tag:#x} is missing")
        });
    }
    for (tag, value) in new {
        match tag {
            DT_INIT | DT_FINI => wrong.unless(value == 0 || is_code(after, value), || {
                format!("the dynamic entry {tag:#x} leads to {value:#x}, which is no code")
            }),
            DT_INIT_ARRAY | DT_FINI_ARRAY | DT_PREINIT_ARRAY => {
                let is_there = value == 0 || around(after, value, 8).is_some();
                wrong.unless(is_there, || {
                    format!("the array {tag:#x} at {value:#x} is not loaded")
                });
            }
            _ => {}
        }
    }
}

/// The name of a symbol and what the loader compares.
fn exported<'e>(elf: &'e Elf<'_>) -> HashMap<(&'e str, u16), Vec<Sym>> {
    let mut all: HashMap<_, Vec<Sym>> = HashMap::new();
    for (number, symbol) in elf.dynsyms.iter().enumerate() {
        let name = elf.dynstrtab.get_at(symbol.st_name).unwrap_or("?");
        let version = elf.versym.as_ref().and_then(|v| v.get_at(number));
        let version = version.map_or(0, |v| v.vs_val);
        all.entry((name, version)).or_default().push(symbol);
    }
    all
}

fn symbols(before: &Elf<'_>, after: &Elf<'_>, wrong: &mut Wrong) {
    let (old, new) = (exported(before), exported(after));
    for (key, symbols) in &old {
        let facts = |symbols: &[Sym]| {
            let fact = |s: &Sym| (s.st_value, s.st_info, s.st_other, s.is_import());
            let mut facts: Vec<_> = symbols.iter().map(fact).collect();
            facts.sort_unstable();
            facts
        };
        let now = new.get(key).map(|symbols| facts(symbols));
        wrong.unless(now.as_ref() == Some(&facts(symbols)), || {
            format!(
                "the dynamic symbol {key:?} was {:x?} and is {now:x?}",
                facts(symbols)
            )
        });
    }
    let was_wrong = |elf: &Elf<'_>, symbol: &Sym| {
        let is_procedure = symbol.st_type() == STT_FUNC && symbol.st_value != 0;
        is_procedure && symbol.st_shndx != SHN_ABS as usize && !is_code(elf, symbol.st_value)
    };
    if before.syms.iter().any(|s| was_wrong(before, &s)) {
        return;
    }
    for symbol in after.syms.iter().filter(|s| s.st_type() != STT_SECTION) {
        let name = after.strtab.get_at(symbol.st_name);
        wrong.unless(name.is_some(), || {
            format!("a symbol at {:#x} has no name", symbol.st_value)
        });
        wrong.unless(symbol.is_import() || !was_wrong(after, &symbol), || {
            format!("the function {name:?} at {:#x} is no code", symbol.st_value)
        });
    }
}

fn relocations(before: &Elf<'_>, after: &Elf<'_>, wrong: &mut Wrong) {
    let of = |elf: &Elf<'_>| {
        let all = [&elf.dynrelas, &elf.dynrels, &elf.pltrelocs];
        let mut all: Vec<Reloc> = all.iter().flat_map(|r| r.iter()).collect();
        all.sort_by_key(|r| (r.r_offset, r.r_type, r.r_sym));
        all
    };
    let (old, new) = (of(before), of(after));
    // The runtime of Go gets other tables.
    let names = before.section_headers.iter().map(|s| s.sh_name);
    let is_go = names
        .flat_map(|n| before.shdr_strtab.get_at(n))
        .any(|n| n.starts_with(".go.") || n.ends_with("gopclntab"));
    let addend = |r: &Reloc| r.r_addend.filter(|_| !is_go);
    let key = |r: &Reloc| (r.r_offset, r.r_type, r.r_sym, addend(r));
    let places: HashMap<_, usize> = new.iter().fold(HashMap::new(), |mut all, r| {
        *all.entry(key(r)).or_default() += 1;
        all
    });
    for relocation in &old {
        wrong.unless(places.contains_key(&key(relocation)), || {
            format!("the relocation {:x?} is missing", key(relocation))
        });
    }
    for relocation in &new {
        let is_there = around(after, relocation.r_offset, 1).is_some();
        wrong.unless(is_there, || {
            format!(
                "the relocation at {:#x} is outside of all segments",
                relocation.r_offset
            )
        });
        let has_symbol = relocation.r_sym == 0 || relocation.r_sym < after.dynsyms.len();
        wrong.unless(has_symbol, || {
            format!("the relocation at {:#x} has no symbol", relocation.r_offset)
        });
    }
}

fn sections(after: &Elf<'_>, size: u64, wrong: &mut Wrong) {
    for section in &after.section_headers {
        let (start, length) = (section.sh_addr, section.sh_size);
        let name = || after.shdr_strtab.get_at(section.sh_name).unwrap_or("?");
        let has_bytes = !matches!(section.sh_type, SHT_NOBITS | SHT_NULL);
        let end = section.sh_offset.checked_add(length);
        wrong.unless(!has_bytes || end.is_some_and(|end| end <= size), || {
            format!("the section {} ends behind the file", name())
        });
        let is_loaded = section.sh_flags & u64::from(SHF_ALLOC) != 0 && has_bytes && length != 0;
        wrong.unless(!is_loaded || around(after, start, length).is_some(), || {
            format!("the section {} at {start:#x} is in no segment", name())
        });
        let links = section.sh_link as usize;
        wrong.unless(links < after.section_headers.len(), || {
            format!("the section {} links to no section", name())
        });
    }
}

fn notes(before: &Elf<'_>, after: &Elf<'_>, bytes: &[u8], wrong: &mut Wrong) {
    let had = before.program_headers.iter().any(|s| s.p_type == PT_NOTE);
    let read = after.iter_note_headers(bytes);
    let all_are_read = read.is_none_or(|mut notes| notes.all(|note| note.is_ok()));
    wrong.unless(!had || all_are_read, || "a note cannot be read".into());
}
