//! The queries of the interface, over a [`Session`](super::session::Session). The rules of [`super::context`] hold here.

use std::ffi::c_void;

use atom_abi::StrRef;
use atom_abi::host::{Context, NONE};
use atom_abi::query::{
    self, CallFrameRecord, EdgeKind as EdgeNumber, EdgeRecord, FrameRecord, LabelRecord,
    LoopRecord, MemoryRecord, OperandKind, OperandRecord, RegAccessRecord, RegUsageRecord,
    Relation, Sink, SourceFrameRecord,
};

use super::context::{Numbered, bytes, of_address, process, program, put, queries, text};
use super::names::demangle;
use crate::cfg::call_frames;
use crate::cfg::graph::{Edge, EdgeKind};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::labels;
use crate::x86::{operands, registers};

pub(super) extern "C" fn named_procs(
    context: *mut Context,
    name: StrRef,
    arg: *mut c_void,
    sink: Sink<u32>,
) {
    for session in &process(context).sessions {
        for proc in session.procs_named(text(name)) {
            sink(arg, &(session.numbers.proc + proc.0));
        }
    }
}

pub(super) extern "C" fn matching_procs(
    context: *mut Context,
    pattern: StrRef,
    arg: *mut c_void,
    sink: Sink<u32>,
    wrong_arg: *mut c_void,
    wrong: Sink<StrRef>,
) {
    let sessions = &process(context).sessions;
    let (mut found, mut first_error) = (false, None);
    for session in sessions {
        match session.procs_matching(text(pattern)) {
            Ok(procs) => {
                found = true;
                let numbers = procs.iter().map(|proc| session.numbers.proc + proc.0);
                numbers.for_each(|number| sink(arg, &number));
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    if let (false, Some(error)) = (found, first_error) {
        wrong(wrong_arg, &StrRef::new(&error));
    }
}

pub(super) extern "C" fn bytes_at(context: *mut Context, address: u64, len: usize) -> StrRef {
    let (session, address) = of_address(context, address);
    let rest = session.image.rest_at(address).unwrap_or(&[]);
    bytes(&rest[..rest.len().min(len)])
}

pub(super) extern "C" fn inst_reg_usage(
    context: *mut Context,
    inst: u32,
    usage: *mut RegUsageRecord,
) {
    let record = InstId::known(context, inst)
        .map(|(s, inst)| registers::usage(&mut s.cache.factory.borrow_mut(), &s.decode(inst)));
    // SAFETY: by the interface, a place for the result.
    unsafe { usage.write(record.unwrap_or_default()) };
}

fn edge_number(kind: EdgeKind) -> u32 {
    let number = match kind {
        EdgeKind::Fall => EdgeNumber::Fall,
        EdgeKind::Taken => EdgeNumber::Taken,
        EdgeKind::Table => EdgeNumber::Table,
        EdgeKind::CallReturn => EdgeNumber::CallReturn,
        EdgeKind::Unwind => EdgeNumber::Unwind,
        EdgeKind::Tail => EdgeNumber::Tail,
        EdgeKind::Return => EdgeNumber::Return,
        EdgeKind::Unknown => EdgeNumber::Unknown,
    };
    number as u32
}

queries! {
    fn called_name(s, inst: InstId) -> StrRef, StrRef::new(""); { StrRef::new(s.called_name(inst).unwrap_or("")) }

    fn inst_info(s, inst: InstId, what: u32, value: *mut i64) -> bool, false; {
        // SAFETY: by the interface, a place for the result.
        unsafe { put(value, operands::info(&s.decode(inst), s.inst_bytes(inst), what)) }
    }

    fn inst_mnemonic(s, inst: InstId) -> StrRef, StrRef::new(""); { s.intern(&s.mnemonic(inst)) }

    fn inst_isa(s, inst: InstId) -> StrRef, StrRef::new(""); { s.intern(&operands::isa(&s.decode(inst))) }

    fn inst_operands(s, inst: InstId) each OperandRecord {
        let mut list = operands::operands(&mut s.cache.factory.borrow_mut(), &s.decode(inst));
        for target in list.iter_mut().filter(|o| o.kind == OperandKind::Target as u32) {
            target.value = s.numbers.address(target.value);
        }
        list
    }

    fn inst_memory(s, inst: InstId) each MemoryRecord {
        let mut list = operands::memory_accesses(&mut s.cache.memory.borrow_mut(), &s.decode(inst));
        for fixed in list.iter_mut().filter(|m| m.flags & query::memory::FIXED != 0) {
            fixed.address = s.numbers.address(fixed.address);
        }
        list
    }

    fn inst_reg_accesses(s, inst: InstId) each RegAccessRecord {
        registers::accesses(&mut s.cache.factory.borrow_mut(), &s.decode(inst))
    }

    fn block_successors(s, block: BlockId) each EdgeRecord {
        let record = |edge: &Edge| EdgeRecord {
            kind: edge_number(edge.kind),
            block: edge.block.map_or(NONE, |b| s.numbers.block + b.0),
            address: match edge.address {
                0 => 0,
                address => s.numbers.address(address),
            },
        };
        s.graph_of(block).successors(block).iter().map(record).collect::<Vec<_>>()
    }

    fn block_predecessors(s, block: BlockId) each EdgeRecord {
        let record = |(from, kind): &(BlockId, EdgeKind)| EdgeRecord {
            kind: edge_number(*kind),
            block: s.numbers.block + from.0,
            address: s.numbers.address(s.cfg.block_pc(*from)),
        };
        s.graph_of(block).predecessors(block).iter().map(record).collect::<Vec<_>>()
    }

    fn block_relation(s, block: BlockId, what: u32) -> u32, NONE; {
        let (proc, pc) = (s.cfg.block(block).proc, s.cfg.block_pc(block));
        let number = |b: BlockId| s.numbers.block + b.0;
        let is = |relation: Relation| what == relation as u32;
        if is(Relation::AddressTaken) {
            s.taken().contains(&pc).into()
        } else if is(Relation::Selected) {
            s.selected.is_none_or(|selected| selected.contains(proc, pc)).into()
        } else if is(Relation::Dominator) {
            s.graph(proc).immediate_dominator(block).map_or(NONE, number)
        } else if is(Relation::PostDominator) {
            s.graph(proc).immediate_post_dominator(block).map_or(NONE, number)
        } else if is(Relation::InnermostLoop) {
            s.graph(proc).innermost_loop(block).unwrap_or(NONE)
        } else if is(Relation::Reachable) {
            s.graph(proc).is_reachable(block).into()
        } else {
            s.note(s.error(format!("it asked for relation {what} of a block, which does not exist")));
            NONE
        }
    }

    fn proc_loops(s, proc: ProcId, arg: *mut c_void, sink: Sink<LoopRecord>) -> bool, false; {
        let graph = s.graph(proc);
        let loops = graph.loops();
        let number = |b: &BlockId| s.numbers.block + b.0;
        for item in loops.list() {
            let numbers = |blocks: &[BlockId]| -> Vec<u32> { blocks.iter().map(&number).collect() };
            let (latches, blocks) = (numbers(&item.latches), numbers(loops.blocks(item)));
            let record = LoopRecord {
                header: number(&item.header),
                parent: item.parent.unwrap_or(NONE),
                depth: item.depth,
                latch_count: latches.len() as u32,
                latches: latches.as_ptr(),
                blocks: blocks.as_ptr(),
                block_count: blocks.len(),
            };
            sink(arg, &record);
        }
        loops.irreducible
    }

    fn proc_entries(s, proc: ProcId) each u32 {
        s.graph(proc).entries().map(|block| s.numbers.block + block.0).collect::<Vec<_>>()
    }

    fn proc_crossings(s, proc: ProcId) each u32 {
        let crossings = s.crossings.map(|crossings| crossings.of(s.cfg, proc));
        crossings.into_iter().flatten().map(|crossing| s.numbers.block + crossing.block.0).collect::<Vec<_>>()
    }

    fn proc_frame(s, proc: ProcId, frame: *mut FrameRecord) -> bool, false; {
        // SAFETY: by the interface, a place for the result.
        unsafe { put(frame, s.frame(proc)) }
    }

    fn call_frames(s, proc: ProcId) each CallFrameRecord {
        let mut found = Vec::new();
        if let Some(unwind) = s.unwind() {
            found.extend(call_frames::call_frames(s.cfg, unwind, proc));
        }
        found.iter_mut().for_each(|record| record.inst += s.numbers.inst);
        found
    }

    fn stack_alignment(s, proc: ProcId) -> u64, 16; { if s.cfg.proc(proc).is_go { 8 } else { 16 } }
}

pub(super) extern "C" fn block_dominates(
    context: *mut Context,
    a: u32,
    b: u32,
    post: bool,
) -> bool {
    let known = |block| BlockId::known(context, block);
    let (Some((session, first)), Some((other, second))) = (known(a), known(b)) else {
        return false;
    };
    if session.numbers != other.numbers {
        return false;
    }
    let graph = session.graph_of(first);
    if post {
        graph.post_dominates(first, second)
    } else {
        graph.dominates(first, second)
    }
}

pub(super) extern "C" fn source_frames(
    context: *mut Context,
    address: u64,
    arg: *mut c_void,
    sink: Sink<SourceFrameRecord>,
) {
    let (session, address) = of_address(context, address);
    for frame in session.lines.frames_at(address) {
        let record = SourceFrameRecord {
            function: session.intern(&frame.function),
            name: session.intern(&demangle(&frame.function)),
            file: session.intern(&frame.file),
            line: frame.line,
            column: frame.column,
        };
        sink(arg, &record);
    }
}

pub(super) extern "C" fn labels(
    context: *mut Context,
    prefix: StrRef,
    arg: *mut c_void,
    sink: Sink<LabelRecord>,
) {
    for session in &process(context).sessions {
        for label in labels::labels(session.image, text(prefix)) {
            let record = LabelRecord {
                name: session.intern(&label.name),
                function: session.intern(&label.function),
                file: session.intern(&label.file),
                line: label.line,
                column: label.column,
                address: session.numbers.address(label.address),
            };
            sink(arg, &record);
        }
    }
}

pub(super) extern "C" fn section(context: *mut Context, name: StrRef) -> StrRef {
    bytes(program(context).section(text(name)))
}
