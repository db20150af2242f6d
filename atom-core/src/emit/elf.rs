//! Putting the output file together.

use std::os::unix::ffi::OsStrExt;

use object::elf;

use crate::PAGE;
use crate::analysis::AnalysisImage;
use crate::cfg::Cfg;
use crate::error::{Error, Result};
use crate::ids::ProcId;
use crate::image::{Image, LoaderFamily, ObjectKind, ProgramHeader};
use crate::layout::placement::preinit_relocs;
use crate::layout::{Layout, Placed, Placement};
use crate::plan::Plan;
use crate::rewrite::{Code, NewText, OldText};
use crate::x86::opcode::INT3;

use super::debug::DebugSection;
use super::libc_view::{self, View};
use super::output::Output;
use super::start::{self, StartCode, StartFacts};
use super::start_info::StartWords;
use super::start_process::{self, ProcessStart};
use super::{appended, program_headers, sections};

const DOING: &str = "writing the output";
/// Size of an entry of a relocation table (`Elf64_Rela`).
const RELA_SIZE: u64 = 24;

/// Builds the output file from the code for it, and debug information if there is any.
pub fn write<'a>(
    placed: &'a Placed<'a>,
    code: Code<'a>,
    debug: &'a [DebugSection],
) -> Result<Output<'a>> {
    let (image, analysis) = (placed.object.image, placed.analysis);
    let (layout, placement) = (&placed.layout, &placed.placement);
    let rx_size = placement.rx_end - layout.start;
    let mut writer = Writer {
        placed,
        image,
        cfg: &placed.object.cfg,
        plan: placed.plan,
        layout,
        placement,
        analysis,
        debug,
        out: Output::default(),
        rx_size,
        rw_offset: (layout.region.file_offset + rx_size).next_multiple_of(PAGE),
        relocs: Vec::new(),
    };
    writer.out.grow(image.file.len() as u64);
    writer.old_text(&code.old)?;
    writer.go_module()?;
    writer.fill_rx(code.text);
    writer.fill_rw();
    let start = writer.start_code()?;
    if analysis.is_some() {
        writer.start_info(&start);
    }
    writer.dynamic_section(&start)?;
    writer.reloc_table()?;
    writer.finish(&start)
}

struct Writer<'a> {
    placed: &'a Placed<'a>,
    image: &'a Image,
    cfg: &'a Cfg,
    plan: &'a Plan,
    layout: &'a Layout,
    placement: &'a Placement,
    analysis: Option<&'a AnalysisImage>,
    debug: &'a [DebugSection],
    out: Output<'a>,
    /// Size of the read-execute segment.
    rx_size: u64,
    /// File offset of the read-write segment.
    rw_offset: u64,
    /// Addresses of slots in the read-write segment that hold a link-time address.
    relocs: Vec<u64>,
}

impl<'a> Writer<'a> {
    /// Writes into the original part of the file.
    fn patch(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let segment = self
            .image
            .segments
            .iter()
            .find(|s| {
                address >= s.address && address + bytes.len() as u64 <= s.address + s.file_size
            })
            .ok_or_else(|| {
                Error::new(DOING, "an address to change lies outside the file").address(address)
            })?;
        let offset = segment.offset + (address - segment.address);
        self.out.change(offset, bytes);
        Ok(())
    }

    fn old_text(&mut self, old: &OldText) -> Result<()> {
        for (from, to) in &old.dead {
            self.patch(*from, &vec![INT3; (to - from) as usize])?;
        }
        for (address, bytes, len) in &old.patches {
            self.patch(*address, &bytes[..usize::from(*len)])?;
        }
        for (address, displacement) in &old.branches {
            self.patch(*address, displacement)?;
        }
        Ok(())
    }

    /// Enters Go's new tables into the program's module data.
    fn go_module(&mut self) -> Result<()> {
        let Some(blob) = &self.placement.go else {
            return Ok(());
        };
        for change in &blob.changes {
            self.patch(change.address, &change.value.to_le_bytes())?;
        }
        let (table, entries) = self.relocations();
        for (at, addend) in self.go_addends(entries) {
            self.patch(table + at as u64, &addend)?;
        }
        Ok(())
    }

    /// Address and contents of the table of relocations.
    fn relocations(&self) -> (u64, &'a [u8]) {
        let value = |tag| self.image.dynamic_value(tag).unwrap_or(0);
        let (table, size) = (value(elf::DT_RELA), value(elf::DT_RELASZ));
        let bytes = self.image.bytes_at(table, size as usize);
        (table, bytes.unwrap_or_default())
    }

    /// New addends of the relocations of words of Go's module data, with their offsets in the table.
    fn go_addends(&self, entries: &[u8]) -> Vec<(usize, [u8; 8])> {
        let Some(blob) = &self.placement.go else {
            return Vec::new();
        };
        let entries = entries.chunks_exact(RELA_SIZE as usize).enumerate();
        let of = |(i, entry): (usize, &[u8])| {
            let address = u64::from_le_bytes(entry[..8].try_into().expect("eight bytes"));
            let changes = &blob.changes;
            let change = changes
                .iter()
                .find(|c| c.is_address && c.address == address)?;
            let addend = (i + 1) * RELA_SIZE as usize - 8;
            Some((addend, change.value.to_le_bytes()))
        };
        entries.filter_map(of).collect()
    }

    fn put_rx(&mut self, address: u64, bytes: &[u8]) {
        self.out.change(self.rx_offset(address), bytes);
    }

    fn put_rw(&mut self, address: u64, bytes: &[u8]) {
        self.out.change(self.rw_offset(address), bytes);
    }

    /// Writes a link-time address, which the start-up code turns into a run-time address.
    fn put_pointer(&mut self, slot: u64, address: u64) {
        self.put_rw(slot, &address.to_le_bytes());
        if self.image.kind.is_position_independent() && address != 0 {
            self.relocs.push(slot);
        }
    }

    fn fill_rx(&mut self, text: NewText<'a>) {
        let place = self.placement;
        self.out.put_text(self.layout.region.file_offset, text);
        if let Some(unwind) = &place.unwind {
            for blob in [&unwind.except_table, &unwind.eh_frame, &unwind.eh_frame_hdr] {
                self.out.put(self.rx_offset(blob.address), &blob.bytes[..]);
            }
        }
        if let Some(table) = &place.text {
            self.out
                .put(self.rx_offset(table.address), &table.bytes[..]);
        }
        if let Some(go) = &place.go {
            self.out.put(self.rx_offset(go.address), &go.bytes[..]);
        }
        if let Some(analysis) = self.analysis {
            let offset = self.rx_offset(place.analysis);
            self.out.put(offset, &analysis.text[..]);
        }
    }

    fn fill_rw(&mut self) {
        let place = self.placement;
        if let Some(analysis) = self.analysis {
            self.out.put(self.rw_offset, &analysis.data[..]);
            for slot in &analysis.relocations {
                let slot = u64::from(*slot);
                let at = (slot - analysis.data_start) as usize;
                let addend =
                    u64::from_le_bytes(analysis.data[at..at + 8].try_into().expect("eight bytes"));
                self.put_pointer(place.analysis + slot, place.analysis + addend);
            }
        }
        let plan = self.plan;
        let start = self.rw_offset(place.data);
        for (at, bytes) in plan.data.pieces() {
            self.out.put(start + at as u64, bytes);
        }
        self.out.grow(start + plan.data.len() as u64);
        for slot in &plan.data_relocs {
            let at = *slot as usize;
            let offset = u64::from_le_bytes(plan.data.read(at));
            let (slot, address) = (place.data + u64::from(*slot), place.data + offset);
            if place.early == Some(slot) {
                self.put_rw(slot, &address.to_le_bytes());
            } else {
                self.put_pointer(slot, address);
            }
        }
    }

    /// New address for a transfer to the start of a procedure; the original address if it stays.
    fn moved(&self, address: u64) -> u64 {
        let proc = self
            .cfg
            .proc_at(address)
            .filter(|p| self.cfg.proc(*p).start == address);
        let front = |p: ProcId| self.placed.front_at(self.cfg.proc(p).first_block);
        proc.and_then(|p| front(p).entry(p)).unwrap_or(address)
    }

    fn start_code(&mut self) -> Result<StartCode> {
        let image = self.image;
        let entry = image.entry.unwrap_or(0);
        if !image.kind.is_program() && (self.placed.area.is_some() || self.analysis.is_none()) {
            return self.process_start(entry);
        }
        // Any thread that loads the library, or calls `exit`, comes to a function of the dynamic section.
        let function = |tag| {
            image.dynamic_value(tag).filter(|f| *f != 0).map(|f| {
                let guard = self.cfg.block_at(f).and_then(|b| self.layout.guard(b));
                guard.unwrap_or_else(|| self.moved(f))
            })
        };
        let range = |executable: bool| {
            let mut range = (u64::MAX, 0);
            for s in image
                .segments
                .iter()
                .filter(|s| s.is_executable() == executable)
            {
                range = (range.0.min(s.address), range.1.max(s.address + s.file_size));
            }
            range
        };
        let last = image.segments.last().expect("an image has segments");
        let facts = StartFacts {
            address: self.layout.start,
            moves_heap: self.moves_heap(),
            image_end: image.end.next_multiple_of(PAGE),
            new_end: self.placement.end.next_multiple_of(PAGE),
            code: range(true),
            data: (last.address, last.address + last.file_size),
            rw: self.placement.rw,
            relocs: self.placement.relocs,
            // StartInfo adds slots later; the table is padded to its capacity.
            reloc_count: self.placement.reloc_capacity as u32,
            flag: self.placement.flag,
            exit_return: self.placement.flag + 8,
            tool_start: self
                .analysis
                .map(|a| self.placement.analysis + a.facts.start),
            tool_info: self.placement.info,
            tool_finish: self
                .analysis
                .map(|a| self.placement.analysis + a.facts.finish),
            libc_headers: self.placement.libc_headers,
            libc_header_count: self.libc_headers().map_or(0, |v| v.entries.len() as u32),
            header: image.header_in_memory(),
            original_entry: entry,
            entry: self.moved(entry),
            init: image.is_lone.then(|| function(elf::DT_INIT)),
            fini: function(elf::DT_FINI),
        };
        let start = start::assemble(&facts)?;
        self.put_rx(self.layout.start, &start.code);
        if let Some(unwind) = &self.placement.unwind
            && !unwind.start_rows.is_empty()
        {
            let at = unwind.eh_frame.address + unwind.start_rows.start as u64;
            self.put_rx(at, &start.rows);
        }
        Ok(start)
    }

    /// The start-up code of a process, if this is its program interpreter. Nothing of ours runs when
    /// a library is loaded.
    fn process_start(&mut self, entry: u64) -> Result<StartCode> {
        let (Some(area), ObjectKind::Interpreter) = (self.placed.area, self.image.kind) else {
            return Ok(StartCode::default());
        };
        let facts = ProcessStart {
            address: self.layout.start,
            area,
            entry: self.moved(entry),
            has: (
                self.plan.program_before.is_some(),
                self.plan.program_after.is_some(),
            ),
        };
        let start = start_process::assemble(&facts)?;
        self.put_rx(self.layout.start, &start.code);
        Ok(start)
    }

    /// Fills in `atom_abi::StartInfo`, field by field in its order.
    fn start_info(&mut self, start: &StartCode) {
        let Some(analysis) = self.analysis else {
            return;
        };
        let shared = |snippet: Option<u32>| match snippet {
            Some(i) => self.layout.start + u64::from(self.layout.shared[i as usize]),
            None => start.nothing,
        };
        let words = StartWords {
            analysis,
            base: self.placement.analysis,
            data: self.placement.data,
            before: shared(self.plan.program_before),
            after: shared(self.plan.program_after),
            threads: self.plan.thread_info,
            cells: self.plan.cell_info,
            counts: self.plan.counts,
            run: self.plan.run_info,
            address: self.placement.info,
            totals: self.plan.totals,
            returns: self.layout.return_map.filter(|_| self.plan.maps_returns),
            boundaries: self.layout.boundaries(),
            image: self.placed.object.image.base,
            text: self.placement.text.as_ref().map(|table| table.address),
            control: self.plan.control,
        };
        let slots = (self.placement.info..).step_by(8);
        for (slot, (value, is_pointer)) in slots.zip(words.words()) {
            if is_pointer {
                self.put_pointer(slot, value);
            } else {
                self.put_rw(slot, &value.to_le_bytes());
            }
        }
    }

    /// Writes the table of slots that the start-up code relocates. Unused entries of the table name
    /// a spare slot, to which adding the load bias does no harm.
    fn reloc_table(&mut self) -> Result<()> {
        let capacity = self.placement.reloc_capacity as usize;
        if capacity == 0 {
            return Ok(());
        }
        if self.relocs.len() > capacity {
            return Err(Error::new(
                DOING,
                "more relocations than places (a defect of atom)",
            ));
        }
        // The dynamic loader relocates the preinit array itself.
        let spare = self.placement.flag;
        let slots: Vec<u8> = self
            .relocs
            .iter()
            .copied()
            .chain(std::iter::repeat(spare))
            .take(capacity)
            .flat_map(|slot| ((slot - self.placement.rw) as u32).to_le_bytes())
            .collect();
        self.put_rx(self.placement.relocs, &slots);
        Ok(())
    }

    /// The dynamic loader's hooks: `DT_PREINIT_ARRAY`, which glibc runs before
    /// every other initialiser, and `DT_FINI`, the last of the program's own
    /// code at exit. A library has `DT_INIT`, the first of its own initialisers.
    fn dynamic_section(&mut self, start: &StartCode) -> Result<()> {
        let place = self.placement;
        if !self.image.is_started_by_loader() {
            return Ok(());
        }
        let mut dynamic = self.image.dynamic.clone();
        let strings = self.image.strings.as_ref().zip(place.strings);
        if let Some((strings, address)) = strings {
            for (entry, offset) in &strings.changed {
                dynamic[*entry].1 = *offset;
            }
            self.put_rx(address, &strings.bytes);
        }
        let mut set =
            |tag: elf::DynamicTag, value: u64| match dynamic.iter_mut().find(|d| d.0 == tag) {
                Some(entry) => entry.1 = value,
                None => dynamic.push((tag, value)),
            };
        if let Some((strings, address)) = strings {
            set(elf::DT_STRTAB, address);
            set(elf::DT_STRSZ, strings.bytes.len() as u64);
        }
        if self.analysis.is_some() {
            set(elf::DT_FINI, start.fini);
            if self.image.is_lone {
                set(elf::DT_INIT, start.preinit);
            }
        }
        if self.image.is_lone {
            return self.write_dynamic(&dynamic);
        }
        let theirs = self.image.dynamic_value(elf::DT_PREINIT_ARRAY).unwrap_or(0);
        set(elf::DT_PREINIT_ARRAY, place.preinit);
        set(elf::DT_PREINIT_ARRAYSZ, 8 * place.preinit_count);
        let functions = self.preinit_functions(start, theirs);
        let mut rela = Vec::new();
        // Relocations for which the loader looks up a symbol come after all relative ones.
        let mut looked_up = Vec::new();
        for (i, function) in functions.iter().enumerate() {
            let slot = place.preinit + 8 * i as u64;
            let at = theirs.wrapping_add(8 * i as u64).wrapping_sub(8);
            let symbolic = preinit_relocs(self.image).find(|r| i != 0 && r.address == at);
            if let Some(r) = symbolic {
                let info = u64::from(r.symbol) << 32 | u64::from(r.kind.0);
                for field in [slot, info, r.addend as u64] {
                    looked_up.extend(field.to_le_bytes());
                }
                continue;
            }
            self.put_rw(slot, &function.to_le_bytes());
            if !self.image.kind.is_position_independent() {
                continue;
            }
            for field in [slot, u64::from(elf::R_X86_64_RELATIVE.0), *function] {
                rela.extend(field.to_le_bytes());
            }
        }
        if let Some(early) = place.early {
            let at = (early - place.data) as usize;
            let offset = u64::from_le_bytes(self.plan.data.read(at));
            let value = place.data + offset;
            for field in [early, u64::from(elf::R_X86_64_RELATIVE.0), value] {
                rela.extend(field.to_le_bytes());
            }
        }
        let ours = rela.len() as u64 / RELA_SIZE;
        if let Some(address) = place.rela {
            let (_, entries) = self.relocations();
            let theirs = rela.len();
            rela.extend(entries);
            for (at, addend) in self.go_addends(entries) {
                rela[theirs + at..][..8].copy_from_slice(&addend);
            }
            rela.extend(looked_up);
            set(elf::DT_RELA, address);
            set(elf::DT_RELASZ, rela.len() as u64);
            set(elf::DT_RELAENT, RELA_SIZE);
            if let Some(count) = self.image.dynamic_value(elf::DT_RELACOUNT) {
                set(elf::DT_RELACOUNT, count + ours);
            }
            self.out.put(self.rx_offset(address), rela);
        }
        self.write_dynamic(&dynamic)
    }

    /// Writes the entries of the dynamic section, at their new place if they have one.
    fn write_dynamic(&mut self, dynamic: &[(elf::DynamicTag, u64)]) -> Result<()> {
        let place = self.placement;
        let bytes: Vec<u8> = dynamic
            .iter()
            .chain(&[(elf::DT_NULL, 0)])
            .flat_map(|(tag, value)| [tag.0.to_le_bytes(), value.to_le_bytes()].concat())
            .collect();
        if let Some(address) = place.dynamic {
            self.put_rw(address, &bytes);
            return Ok(());
        }
        let header = self
            .image
            .program_headers
            .iter()
            .find(|p| p.kind == elf::PT_DYNAMIC);
        let address = header.map_or(0, |p| p.address);
        self.patch(address, &bytes)
    }

    /// The functions of the output's preinit array: the start-up code's, then those of the
    /// original array, which starts at `theirs`.
    fn preinit_functions(&self, start: &StartCode, theirs: u64) -> Vec<u64> {
        let mut functions = vec![start.preinit];
        for i in 0..self.placement.preinit_count - 1 {
            let at = theirs + 8 * i;
            let relocated = self
                .image
                .relocs
                .iter()
                .find(|r| r.address == at && r.kind == elf::R_X86_64_RELATIVE)
                .map(|r| r.addend as u64);
            let in_file = || {
                self.image
                    .bytes_at(at, 8)
                    .map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")))
            };
            functions.push(relocated.or_else(in_file).unwrap_or(0));
        }
        functions
    }

    /// File offset of an address in the read-execute segment.
    fn rx_offset(&self, address: u64) -> u64 {
        self.layout.region.file_offset + (address - self.layout.start)
    }

    /// File offset of an address in the read-write segment.
    fn rw_offset(&self, address: u64) -> u64 {
        self.rw_offset + (address - self.placement.rw)
    }

    /// The entries for the new segments.
    fn new_headers(&self) -> Vec<ProgramHeader> {
        let load = |flags, offset, address, size| ProgramHeader {
            kind: elf::PT_LOAD,
            flags,
            offset,
            address,
            file_size: size,
            mem_size: size,
            align: PAGE,
        };
        let mut new = vec![load(
            elf::PF_R | elf::PF_X,
            self.rx_offset(self.layout.start),
            self.layout.start,
            self.rx_size,
        )];
        if self.placement.has_rw() {
            let size = self.placement.end - self.placement.rw;
            new.push(load(
                elf::PF_R | elf::PF_W,
                self.rw_offset,
                self.placement.rw,
                size,
            ));
        }
        new
    }

    fn eh_frame_hdr(&self) -> Option<ProgramHeader> {
        let blob = &self.placement.unwind.as_ref()?.eh_frame_hdr;
        Some(ProgramHeader {
            kind: elf::PT_GNU_EH_FRAME,
            flags: elf::PF_R,
            offset: self.rx_offset(blob.address),
            address: blob.address,
            file_size: blob.bytes.len() as u64,
            mem_size: blob.bytes.len() as u64,
            align: 4,
        })
    }

    /// The program headers that a static program's libc sees.
    fn libc_headers(&self) -> Option<View> {
        self.placement.libc_headers.map(|place| {
            let text = self.new_headers()[0];
            let offset = self.rx_offset(place);
            let file_size = text.offset + text.file_size;
            libc_view::build(
                self.image,
                text,
                self.eh_frame_hdr(),
                place,
                offset,
                file_size,
            )
        })
    }

    fn finish(mut self, start: &StartCode) -> Result<Output<'a>> {
        let place = self.placement;
        let region = self.layout.region;
        let rx_offset = region.file_offset;
        let rw_offset = self.rw_offset;
        let view = self.libc_headers();
        let new = self.new_headers();
        let mut table = program_headers::build(self.image, &new, self.eh_frame_hdr())?;
        let mut table_offset = self.image.program_header_offset;
        if table.moves {
            table_offset = rx_offset + (place.headers - self.layout.start);
            let size = 56 * table.entries.len() as u64;
            if let Some(p) = table.entries.iter_mut().find(|p| p.kind == elf::PT_PHDR) {
                (p.offset, p.address, p.file_size, p.mem_size) =
                    (table_offset, place.headers, size, size);
            }
        }
        if let (Some(area), Some(address)) = (self.placed.area, place.interpreter)
            && let Some(p) = table.entries.iter_mut().find(|p| p.kind == elf::PT_INTERP)
        {
            // The kernel reads the path at the offset in the file. In memory, at the address, the
            // loader finds the name by which it is known.
            let path = [area.loader.as_os_str().as_bytes(), b"\0"].concat();
            p.offset = rx_offset + (address - self.layout.start);
            (p.file_size, p.mem_size) = (path.len() as u64, path.len() as u64);
            self.put_rx(address, &path);
        }
        if let Some(address) = place.dynamic
            && let Some(p) = table.entries.iter_mut().find(|p| p.kind == elf::PT_DYNAMIC)
        {
            p.address = address;
            p.offset = rw_offset + (address - place.rw);
            (p.file_size, p.mem_size) = (place.dynamic_size, place.dynamic_size);
        }
        if let Some((view, address)) = view.zip(place.libc_headers) {
            let bytes = program_headers::to_bytes(&view.entries);
            self.put_rx(address, &bytes);
            program_headers::extend(&mut table.entries, view.extended);
        }
        program_headers::shift(&mut table.entries, region.shift);
        let bytes = program_headers::to_bytes(&table.entries);
        if table.moves {
            self.put_rx(place.headers, &bytes);
        } else {
            self.out.change(table_offset, &bytes);
        }
        self.out.grow(rx_offset + self.rx_size);
        if place.has_rw() {
            self.out.grow(rw_offset + (place.end - place.rw));
        }
        let loads = table.entries.iter().filter(|p| p.kind == elf::PT_LOAD);
        for p in loads.filter(|p| p.file_size > 0) {
            self.out.grow(p.offset + p.file_size);
        }
        if let Some(entry) = self.image.entry {
            let entry = if self.hooks_entry() {
                start.entry
            } else {
                entry
            };
            let entry = entry.wrapping_add(region.shift);
            self.out.change(24, &entry.to_le_bytes());
        }
        self.out.change(32, &table_offset.to_le_bytes());
        self.out
            .change(56, &(table.entries.len() as u16).to_le_bytes());
        let facts = sections::Facts {
            placed: self.placed,
            debug: self.debug,
            rx_offset,
            rw_offset,
        };
        self.out.append(1, &self.plan.signature[..]);
        let unneeded = sections::append(&facts, &mut self.out);
        self.out.put_original(self.image, &unneeded);
        self.out.append(1, appended::find(self.image));
        self.out.close();
        Ok(self.out)
    }

    /// True if the kernel's place for the heap depends on the new segments and no code can have
    /// used the heap before the start-up code runs. musl's loader allocates from the heap. Its
    /// later requests to the kernel name the address where it left off, and the kernel would refuse
    /// them after a move. Memory from musl's `malloc` is not there, so only `sbrk(0)` shows
    /// the difference.
    fn moves_heap(&self) -> bool {
        let loader_uses_heap = self.loader().is_some_and(|l| l != LoaderFamily::Glibc);
        let is_before = self.layout.region.has_heap_before(self.image);
        self.image.kind.is_program() && is_before && !loader_uses_heap
    }

    /// glibc's loader runs the preinit array; for any other, and in a static
    /// program, the entry point is the hook.
    fn hooks_entry(&self) -> bool {
        match self.loader() {
            None if self.image.kind == ObjectKind::Interpreter => self.placed.area.is_some(),
            None => self.image.kind.is_static(),
            Some(LoaderFamily::Glibc) => false,
            Some(LoaderFamily::Musl | LoaderFamily::Other) => self.analysis.is_some(),
        }
    }

    /// Whose loader links the program; `None` if it is static.
    fn loader(&self) -> Option<LoaderFamily> {
        self.image.interpreter.as_ref().map(|i| i.family)
    }
}
