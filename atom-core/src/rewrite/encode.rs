//! Writing the new text's bytes at the addresses that the layout fixed.

use std::ops::Range;

use rayon::prelude::*;

use crate::cfg::{Cfg, Succ};
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::plan::{Insertion, Plan, Position, Snippet, Target};
use crate::x86::branch::{self, JMP_LEN};
use crate::x86::{ControlFlow, Decoder, DecoderOptions, Inst, opcode, rip_field};

use crate::layout::procedure::Form;
use crate::layout::procedure::take_at;
use crate::layout::tables::{TableCopy, copy_at, with_displacement};
use crate::layout::{BaseAddresses, Layout, Placed};

use super::{DOING, guards, rel32, return_map, tables};

/// The new text, from [`Layout::start`] to [`Layout::end`]. Procedures are encoded when their bytes
/// are asked for, since the text is large and needed once, piece by piece.
pub struct NewText<'a> {
    /// The encoders of the versions, in the order of their addresses.
    encoders: Vec<Encoder<'a>>,
    /// Address and bytes of everything that is no procedure.
    pieces: Vec<(u64, Vec<u8>)>,
    /// The procedures that move, by address, each with the index of its version.
    procs: Vec<(usize, ProcId)>,
}

/// Prepares the new text; the start-up code's place at its head is left as `int3`.
pub(super) fn encode<'a>(placed: &'a Placed<'a>) -> Result<NewText<'a>> {
    let (image, cfg) = (placed.object.image, &placed.object.cfg);
    let (plan, layout, bases) = (
        placed.plan,
        &placed.layout,
        placed.placement.bases(placed.area),
    );
    let of_version = |version| Encoder {
        image,
        cfg,
        plan,
        layout: version,
        twin: placed
            .versions()
            .find(|other| other.version != version.version),
        return_map: layout.return_map,
        bases,
    };
    let encoders: Vec<Encoder<'_>> = placed.versions().map(of_version).collect();
    let encoder = &encoders[0];
    let mut pieces = Vec::new();
    for (snippet, offset) in plan.shared.iter().zip(&layout.shared) {
        let address = layout.start + u64::from(*offset);
        let mut out = Vec::new();
        encoder.snippet(snippet, address, &mut out)?;
        pieces.push((address, out));
    }
    if let Some(guards) = &plan.guards {
        let places = layout.guards.par_iter();
        let written = places.map(|place| {
            let next = placed.front_at(place.block).behind_guard(cfg, place.block);
            let bytes = guards::encode(place, guards, layout, &bases, next)?;
            Ok((place.address, bytes))
        });
        pieces.extend(written.collect::<Result<Vec<_>>>()?);
    }
    if let Some(map) = layout.return_map {
        let table = return_map::table(cfg, plan, placed.versions(), map);
        pieces.push((map, table));
    }
    pieces.extend(layout.boundaries.clone());
    for layout in placed.versions() {
        let contents = |copy: &TableCopy| {
            let t = &cfg.jump_tables[copy.table];
            let target = |old: u64| {
                let proc = cfg.proc_at(old)?;
                let inst = cfg.inst_in(proc, old)?;
                layout
                    .moved
                    .contains(proc)
                    .then(|| layout.label(proc, inst))
            };
            (copy.address, tables::contents(image, t, copy, &target))
        };
        pieces.par_extend(layout.copies.par_iter().map(contents));
    }
    // Procedures are in their original order.
    let moved = (0..cfg.procs.len()).map(ProcId::from_index);
    let moved: Vec<ProcId> = moved.filter(|p| layout.moved.contains(*p)).collect();
    let versions = 0..encoders.len();
    let procs = versions.flat_map(|v| moved.iter().map(move |p| (v, *p)));
    Ok(NewText {
        procs: procs.collect(),
        encoders,
        pieces,
    })
}

impl NewText<'_> {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        let layout = self.encoders[0].layout;
        layout.end - layout.start
    }

    /// Fills `out` with the bytes from an offset on.
    pub fn fill(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        // All offsets below count from the start of the new text.
        let start_of_text = self.encoders[0].layout.start;
        let end = offset + out.len() as u64;
        let place = |(v, p): &(usize, ProcId)| {
            let layout = self.encoders[*v].layout;
            let start = layout.starts[p.index()] - start_of_text;
            (start, start + u64::from(layout.procs[p.index()].size))
        };
        let first = self.procs.partition_point(|p| place(p).1 <= offset);
        let count = self.procs[first..].partition_point(|p| place(p).0 < end);
        // Each procedure is written to its own slice.
        let mut places = Vec::with_capacity(count);
        let (mut rest, mut at) = (&mut *out, offset);
        for p in &self.procs[first..first + count] {
            let (from, to) = place(p);
            let (gap, tail) = rest.split_at_mut((from.max(at) - at) as usize);
            gap.fill(opcode::INT3);
            let (slice, tail) = tail.split_at_mut((to.min(end) - from.max(at)) as usize);
            places.push((*p, from.max(at) - from, slice));
            (rest, at) = (tail, to.min(end));
        }
        rest.fill(opcode::INT3);
        places
            .into_par_iter()
            .try_for_each(|((v, p), skip, slice)| {
                let bytes = self.encoders[v].proc(p)?;
                slice.copy_from_slice(&bytes[skip as usize..][..slice.len()]);
                Ok::<_, Error>(())
            })?;
        for (address, bytes) in &self.pieces {
            overlay(out, offset, address - start_of_text, bytes);
        }
        // The pages of the original that were read are not read again.
        self.encoders[0].image.release_pages();
        Ok(())
    }
}

/// Copies the part of `bytes` that is in a window. `offset` and `start` are the places of the
/// bytes and of the window in the file.
pub(crate) fn overlay(window: &mut [u8], start: u64, offset: u64, bytes: &[u8]) {
    let end = start + window.len() as u64;
    let from = offset.max(start);
    let to = end.min(offset + bytes.len() as u64);
    if from < to {
        window[(from - start) as usize..(to - start) as usize]
            .copy_from_slice(&bytes[(from - offset) as usize..(to - offset) as usize]);
    }
}

/// Addresses of the two parts of a snippet.
#[derive(Clone, Copy)]
struct SnippetPlace {
    main: u64,
    cold_part: u64,
    /// The same place in the other version, if there is one.
    twin: Option<u64>,
}

/// The insertions of a procedure, and the addresses of their snippets.
struct Places<'p> {
    all: &'p [Insertion],
    /// Number of insertions that have been taken.
    taken: usize,
    /// Addresses of the snippets. The address of the main part is set when it is written.
    at: Vec<SnippetPlace>,
}

impl<'p> Places<'p> {
    fn new(
        plan: &Plan,
        all: &'p [Insertion],
        mut cold_part: u64,
        twin: impl Fn(&Insertion) -> Option<u64>,
    ) -> Self {
        let place = |insertion: &Insertion| {
            let place = SnippetPlace {
                main: 0,
                cold_part,
                twin: twin(insertion),
            };
            cold_part += u64::from(plan.snippets[insertion.snippet as usize].cold_part);
            place
        };
        Self {
            all,
            taken: 0,
            at: all.iter().map(place).collect(),
        }
    }

    /// The instruction of the next insertion.
    fn next(&self) -> Option<InstId> {
        self.all.get(self.taken).map(|i| i.inst)
    }

    /// Takes the insertions at a position of an instruction, as indexes.
    fn take(&mut self, inst: InstId, position: Position) -> Range<usize> {
        let mut rest = &self.all[self.taken..];
        let first = self.taken;
        self.taken += take_at(&mut rest, inst, position).len();
        first..self.taken
    }
}

/// An instruction, with its block and its procedure.
#[derive(Clone, Copy)]
struct At {
    proc: ProcId,
    block: BlockId,
    inst: InstId,
}

struct Encoder<'a> {
    image: &'a Image,
    cfg: &'a Cfg,
    plan: &'a Plan,
    layout: &'a Layout,
    /// The other version.
    twin: Option<&'a Layout>,
    /// Address of the table of return addresses.
    return_map: Option<u64>,
    bases: BaseAddresses<'a>,
}

/// Insertions of a procedure that are after its blocks, as ranges of indexes into its [`Places`].
struct Entered {
    /// Those of entries in the middle, by the instruction that is entered.
    stubs: Vec<(InstId, Range<usize>)>,
    /// Those on the way to branches' targets, by the target's block.
    taken: Vec<(BlockId, Range<usize>)>,
}

impl Encoder<'_> {
    fn proc(&self, id: ProcId) -> Result<Vec<u8>> {
        let cfg = self.cfg;
        let layout = &self.layout.procs[id.index()];
        let start = self.layout.starts[id.index()];
        let insts = cfg.proc_insts(id);
        let all = self.layout.insertions(self.plan, id);
        let cold_parts = start + u64::from(layout.cold_parts);
        let twin = |insertion: &Insertion| self.twin_of(id, insertion);
        let mut places = Places::new(self.plan, all, cold_parts, twin);
        let mut bridges = layout.bridges.iter().peekable();
        let mut stubs = Vec::new();
        let mut taken = Vec::new();
        let mut out = Vec::with_capacity(layout.size as usize);
        for b in cfg.proc(id).blocks() {
            let block = cfg.block(b);
            let pc = cfg.block_pc(b);
            let size = (cfg.inst_end(block.last()) - pc) as usize;
            let outside = || Error::new(DOING, "code lies outside the file").address(pc);
            let bytes = self.image.bytes_at(pc, size).ok_or_else(outside)?;
            let (first, count) = (block.first.index(), block.count as usize);
            let own = &cfg.insts[first..first + count];
            let forms = &layout.forms[first - insts.start..][..count];
            let labels = &layout.labels[first - insts.start..][..count];
            let (mut at, mut copied) = (0, 0);
            while at < count {
                // Most instructions are copied as they are, up to one that is not.
                let next = places.next().map_or(count, |i| i.index() - first);
                if at > 0 || labels[0] as usize == out.len() {
                    let end = next.min(count - 1);
                    let same = own[at..end].iter().zip(&forms[at..end]);
                    at += same.take_while(|(i, form)| is_plain(i, **form)).count();
                }
                let inst = InstId::from_index(first + at);
                let from = (own[at].offset - own[0].offset) as usize;
                let end = from + usize::from(own[at].len);
                out.extend_from_slice(&bytes[copied..from]);
                copied = end;
                let has_code = next == at;
                if has_code {
                    let entry = places.take(inst, Position::Entry);
                    if pc == cfg.proc(id).start {
                        self.snippets(entry, start, &mut places, &mut out)?;
                    } else if !entry.is_empty() {
                        stubs.push((inst, entry));
                    }
                }
                let label = labels[at] as usize;
                if at == 0 && out.len() < label {
                    out.resize(label, opcode::INT3);
                }
                if out.len() != label {
                    return Err(self.mismatch(inst));
                }
                if has_code {
                    let code = places.take(inst, Position::Before);
                    self.snippets(code, start, &mut places, &mut out)?;
                }
                self.inst(
                    At {
                        proc: id,
                        block: b,
                        inst,
                    },
                    forms[at],
                    &bytes[from..end],
                    start,
                    &mut out,
                )?;
                if has_code {
                    let code = places.take(inst, Position::After);
                    self.snippets(code, start, &mut places, &mut out)?;
                    let on_the_way = places.take(inst, Position::Taken);
                    if !on_the_way.is_empty() {
                        taken.push((b, on_the_way));
                    }
                }
                at += 1;
            }
            if let Some((_, target)) = bridges.next_if(|x| x.0 == block.last()) {
                self.jump(id, *target, start, &mut out)?;
            }
        }
        let entered = Entered { stubs, taken };
        self.apart(id, &mut places, &entered, &mut out)?;
        if out.len() != layout.size as usize {
            return Err(self.mismatch(cfg.block(cfg.proc(id).first_block).first));
        }
        Ok(out)
    }

    /// Writes what is after a procedure's blocks: stubs of entries in the middle, code on the
    /// way to branches' targets, cold parts of snippets.
    fn apart(
        &self,
        id: ProcId,
        places: &mut Places<'_>,
        entered: &Entered,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let cfg = self.cfg;
        let layout = &self.layout.procs[id.index()];
        let start = self.layout.starts[id.index()];
        for ((_, offset), (inst, entry)) in layout.stubs.iter().zip(&entered.stubs) {
            let inst = *inst;
            if out.len() != *offset as usize {
                return Err(self.mismatch(inst));
            }
            self.snippets(entry.clone(), start, places, out)?;
            let next = start + (out.len() + JMP_LEN) as u64;
            out.push(opcode::JMP);
            out.extend(rel32(self.layout.label(id, inst), next)?);
        }
        for ((inst, offset), (b, code)) in layout.taken.iter().zip(&entered.taken) {
            if out.len() != *offset as usize {
                return Err(self.mismatch(*inst));
            }
            self.snippets(code.clone(), start, places, out)?;
            let target = self.target(
                At {
                    proc: id,
                    block: *b,
                    inst: *inst,
                },
                false,
            )?;
            self.jump_to(target, start, out)?;
        }
        if out.len() != layout.cold_parts as usize {
            return Err(self.mismatch(cfg.block(cfg.proc(id).first_block).first));
        }
        for (insertion, place) in places.all.iter().zip(&places.at) {
            let snippet = &self.plan.snippets[insertion.snippet as usize];
            if snippet.cold_part != 0 {
                let code = snippet.code.end - snippet.cold_part..snippet.code.end;
                self.piece(snippet, code, *place, out)?;
            }
        }
        Ok(())
    }

    fn mismatch(&self, inst: InstId) -> Error {
        Error::new(DOING, "the code has another size than the layout reserved (a defect of atom, please report it)")
            .file(&self.image.path)
            .address(self.cfg.inst_pc(inst))
    }

    fn jump(&self, from: ProcId, target: u64, start: u64, out: &mut Vec<u8>) -> Result<()> {
        let new = self
            .layout
            .target(self.cfg, from, false, target)
            .unwrap_or(target);
        self.jump_to(new, start, out)
    }

    fn jump_to(&self, new: u64, start: u64, out: &mut Vec<u8>) -> Result<()> {
        let next = start + (out.len() + JMP_LEN) as u64;
        out.push(opcode::JMP);
        out.extend(rel32(new, next)?);
        Ok(())
    }

    /// The new address to which the direct jump or call at a block's end leads, but for
    /// code on the way.
    fn target(&self, at: At, is_call: bool) -> Result<u64> {
        // A branch's target comes first among the successors.
        if !is_call && let Some(Succ::Branch(to)) = self.cfg.succs(at.block).first() {
            return Ok(self.layout.label(at.proc, self.cfg.block(*to).first));
        }
        let old = self.cfg.direct_target(self.image, at.inst);
        let old = old.ok_or_else(|| self.mismatch(at.inst))?;
        let new = self.layout.target(self.cfg, at.proc, is_call, old);
        Ok(new.unwrap_or(old))
    }

    fn snippets(
        &self,
        insertions: Range<usize>,
        start: u64,
        places: &mut Places<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        for i in insertions {
            let snippet = &self.plan.snippets[places.all[i].snippet as usize];
            let place = &mut places.at[i];
            place.main = start + out.len() as u64;
            let code = snippet.code.start..snippet.code.end - snippet.cold_part;
            self.piece(snippet, code, *place, out)?;
        }
        Ok(())
    }

    fn shared(&self, index: u32) -> u64 {
        self.layout.start + u64::from(self.layout.shared[index as usize])
    }

    /// The same place in the other version: where the procedure is entered, or at the instruction's label.
    fn twin_of(&self, proc: ProcId, insertion: &Insertion) -> Option<u64> {
        let twin = self.twin?;
        match insertion.position {
            Position::Entry => twin.entry(proc),
            _ => Some(twin.label(proc, insertion.inst)),
        }
    }

    /// The error that inserted code at an address refers to what is not there.
    fn missing(&self, what: &str, address: u64) -> Error {
        let reason = format!("{what} (a defect of atom, please report it)");
        Error::new(DOING, reason)
            .file(&self.image.path)
            .address(address)
    }

    fn snippet(&self, snippet: &Snippet, address: u64, out: &mut Vec<u8>) -> Result<()> {
        let place = SnippetPlace {
            main: address,
            cold_part: 0,
            twin: None,
        };
        self.piece(snippet, snippet.code.clone(), place, out)
    }

    /// Writes a part of a snippet's code.
    fn piece(
        &self,
        snippet: &Snippet,
        code: Range<u32>,
        place: SnippetPlace,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let at = out.len();
        out.extend(&self.plan.code[code.start as usize..code.end as usize]);
        // The first byte's offset in the snippet, and its address.
        let first = code.start - snippet.code.start;
        let address = if first == 0 {
            place.main
        } else {
            place.cold_part
        };
        let fixups = &self.plan.fixups[snippet.fixups.start as usize..snippet.fixups.end as usize];
        let end = code.end - snippet.code.start;
        let no_returns = || self.missing("there is no table of return addresses", address);
        for fixup in fixups.iter().filter(|f| (first..end).contains(&f.at)) {
            let target = match fixup.target {
                Target::Original(a) => a.get(),
                Target::Analysis(a) => self.bases.analysis + a.get(),
                Target::Data(offset) => self.bases.data + u64::from(offset),
                Target::Slot(routine) => {
                    let slot = self.bases.area.and_then(|a| a.slot(routine.get()));
                    slot.ok_or_else(|| self.missing("a routine has no place in the area", address))?
                }
                Target::Shared(i) => self.shared(i),
                Target::OriginalReturn => {
                    let i = self.plan.original_return;
                    self.shared(i.ok_or_else(no_returns)?)
                }
                Target::Main => place.main,
                Target::ColdPart => place.cold_part,
                Target::ReturnMap => self.return_map.ok_or_else(no_returns)?,
                Target::Twin => {
                    let twin = place.twin;
                    twin.ok_or_else(|| self.missing("there is no other version", address))?
                }
            };
            let offset = fixup.at - first;
            let field = address + u64::from(offset);
            let from = if fixup.absolute { 0 } else { field + 4 };
            let value = rel32(target.wrapping_add_signed(i64::from(fixup.addend)), from)?;
            out[at + offset as usize..][..4].copy_from_slice(&value);
        }
        Ok(())
    }

    /// Copies an instruction; a rip-relative displacement is adjusted.
    fn copied(&self, id: InstId, bytes: &[u8], start: u64, out: &mut Vec<u8>) -> Result<()> {
        let inst = self.cfg.inst(id);
        let pc = self.cfg.inst_pc(id);
        let address = start + out.len() as u64;
        let at = out.len();
        out.extend(bytes);
        if inst.rip_relative
            && let Some(field) = rip_field(bytes)
        {
            let end = u64::from(inst.len);
            let old: [u8; 4] = bytes[field..field + 4].try_into().expect("four bytes");
            let target = (pc + end).wrapping_add_signed(i32::from_le_bytes(old).into());
            let new = rel32(target, address + end)?;
            out[at + field..][..4].copy_from_slice(&new);
        } else if inst.rip_relative {
            let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
            let decoded = decoder.decode();
            let offsets = decoder.get_constant_offsets(&decoded);
            let field = rel32(
                decoded.memory_displacement64(),
                address + u64::from(inst.len),
            )?;
            out[at + offsets.displacement_offset()..][..4].copy_from_slice(&field);
        }
        Ok(())
    }

    /// Writes a call that pushes the original return address.
    fn pushed_call(&self, of: At, bytes: &[u8], start: u64, out: &mut Vec<u8>) -> Result<()> {
        let id = of.inst;
        let end = self.cfg.inst_end(id);
        out.extend(branch::PUSHED_HEAD);
        out.extend(rel32(end, start + out.len() as u64 + 4)?);
        out.extend(branch::PUSHED_TAIL);
        if self.cfg.inst(id).flow == ControlFlow::Call {
            return self.jump_to(self.target(of, true)?, start, out);
        }
        let jump = branch::jump_of_call(bytes).ok_or_else(|| self.mismatch(id))?;
        let at = out.len();
        out.extend(&jump.bytes);
        if let Some(field) = jump.relative {
            let old: [u8; 4] = bytes[field..field + 4].try_into().expect("four bytes");
            let target = end.wrapping_add_signed(i32::from_le_bytes(old).into());
            let new = rel32(target, start + out.len() as u64)?;
            out[at + field..][..4].copy_from_slice(&new);
        }
        Ok(())
    }

    /// Writes an instruction in its form.
    fn inst(&self, of: At, form: Form, bytes: &[u8], start: u64, out: &mut Vec<u8>) -> Result<()> {
        let id = of.inst;
        let inst = self.cfg.inst(id);
        let pc = self.cfg.inst_pc(id);
        let address = start + out.len() as u64;
        if form == Form::COPY && !inst.flow.is_direct() {
            return self.copied(id, bytes, start, out);
        }
        if let Some(size) = form.load_size() {
            let decoded = self.cfg.decode(self.image, id);
            let copy = copy_at(&self.layout.copies, id).ok_or_else(|| self.mismatch(id))?;
            let table = self.cfg.jump_tables[copy.table].table;
            let delta = copy.address.wrapping_sub(table);
            // Where the copy is out of reach, the original table serves.
            let bytes = with_displacement(&decoded, delta, address)
                .filter(|b| b.len() == usize::from(size))
                .or_else(|| with_displacement(&decoded, 0, address))
                .ok_or_else(|| self.mismatch(id))?;
            out.extend(bytes);
            return Ok(());
        }
        if form == Form::HOME {
            return self.jump_to(pc, start, out);
        }
        if form.is_pushed() {
            return self.pushed_call(of, bytes, start, out);
        }
        if form == Form::PUSH_RETURN {
            out.extend(branch::PUSH_ADDRESS_HEAD);
            out.extend(rel32(pc + u64::from(inst.len), address + 8)?);
            out.extend(branch::PUSH_ADDRESS_TAIL);
            return Ok(());
        }
        let short_opcode = || branch::short_opcode(bytes, || self.cfg.decode(self.image, id));
        let is_call = inst.flow == ControlFlow::Call;
        let target = match self.layout.taken(of.proc, id) {
            Some(on_the_way) => on_the_way,
            None => self.target(of, is_call)?,
        };
        let next = address + u64::from(form.size(inst));
        match form {
            Form::SHORT | Form::COPY => {
                let distance = i8::try_from(target.wrapping_sub(next) as i64)
                    .map_err(|_| self.mismatch(id))?;
                // The opcode is the last byte but one; prefixes are only hints here,
                // but for the address size that makes jrcxz jecxz.
                if form == Form::SHORT {
                    out.push(short_opcode().ok_or_else(|| self.mismatch(id))?);
                } else {
                    out.extend(&bytes[..bytes.len() - 1]);
                }
                out.push(distance as u8);
            }
            Form::LONG_COUNTED => {
                // A prefix of the address size makes the branch test ecx.
                out.extend(&bytes[..bytes.len() - 1]);
                out.extend(branch::FAR_COUNTED_TAIL);
                out.extend(rel32(target, next)?);
            }
            _ => {
                if is_call {
                    out.push(opcode::CALL);
                } else if inst.flow == ControlFlow::Jump {
                    out.push(opcode::JMP);
                } else if let Some(opcode) = short_opcode() {
                    out.extend(branch::near_jcc(opcode));
                } else {
                    out.extend(branch::XBEGIN);
                }
                out.extend(rel32(target, next)?);
            }
        }
        Ok(())
    }
}

/// True if the bytes at the new place equal the original bytes.
fn is_plain(inst: &Inst, form: Form) -> bool {
    form == Form::COPY && !inst.rip_relative && !inst.flow.is_direct()
}
