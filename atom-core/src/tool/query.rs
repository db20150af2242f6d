//! The queries of the interface, over a [`Session`]. The rules of
//! [`super::host`] hold here too.
//!
//! Costly data is made when it is first needed. Graphs of procedures are
//! kept for the next query, since tools ask about one procedure many times,
//! but only up to [`MAX_KEPT`] blocks.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::rc::Rc;

use atom_abi::StrRef;
use atom_abi::host::{Context, NONE};
use atom_abi::query::{
    self, CallFrameRecord, EdgeKind as EdgeNumber, EdgeRecord, FrameRecord, LabelRecord,
    LoopRecord, MemoryRecord, OperandKind, OperandRecord, RegAccessRecord, RegUsageRecord,
    Relation, Sink, SourceFrameRecord,
};
use rustc_hash::FxHashMap;

use super::host::{bytes, text};
use super::names::demangle;
use super::process::{Numbered, of_address, process, program, queries};
use super::select::{self, Pattern};
use super::session::Session;
use crate::cfg::call_frames;
use crate::cfg::frame;
use crate::cfg::graph::{Edge, EdgeKind, FlowFacts, FlowGraph};
use crate::cfg::pointers::data_pointers;
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::imports::Imports;
use crate::image::{debug_section, labels};
use crate::unwind::UnwindTable;
use crate::x86::memory::MemoryOperands;
use crate::x86::{ControlFlow, InstructionInfoFactory, direct_target, operands, registers};

/// Number of blocks of all graphs that are kept at most.
const MAX_KEPT: usize = 1 << 19;

/// Data that queries have made so far.
pub(super) struct Cache<'a> {
    unwind: OnceCell<Option<UnwindTable<'a>>>,
    facts: OnceCell<FlowFacts>,
    graphs: RefCell<(FxHashMap<ProcId, Rc<FlowGraph>>, usize)>,
    imports: OnceCell<Imports<'a>>,
    factory: RefCell<InstructionInfoFactory>,
    memory: RefCell<MemoryOperands>,
    /// Strings that were passed to the tool, each once.
    strings: RefCell<HashSet<Box<str>>>,
    by_name: OnceCell<HashMap<&'a str, Vec<ProcId>>>,
    /// Procedures whose demangled name differs from the symbol, in the order of these names.
    by_text: OnceCell<Vec<ProcId>>,
    sections: RefCell<HashMap<String, Rc<[u8]>>>,
    taken: OnceCell<HashSet<u64>>,
}

impl Default for Cache<'_> {
    fn default() -> Self {
        Self {
            unwind: OnceCell::new(),
            facts: OnceCell::new(),
            graphs: RefCell::default(),
            imports: OnceCell::new(),
            factory: RefCell::new(InstructionInfoFactory::new()),
            memory: RefCell::default(),
            strings: RefCell::default(),
            by_name: OnceCell::new(),
            by_text: OnceCell::new(),
            sections: RefCell::default(),
            taken: OnceCell::new(),
        }
    }
}

impl<'a> Session<'a> {
    fn unwind(&self) -> Option<&UnwindTable<'a>> {
        let unwind = &self.cache.unwind;
        unwind
            .get_or_init(|| self.image.unwind_table().ok())
            .as_ref()
    }

    fn graph(&self, proc: ProcId) -> Rc<FlowGraph> {
        let whole = self.cfg.whole(proc);
        if let Some(graph) = self.cache.graphs.borrow().0.get(&whole) {
            return graph.clone();
        }
        let facts = self.cache.facts.get_or_init(|| match self.unwind() {
            Some(unwind) => FlowFacts::new(self.image, self.cfg, unwind),
            None => FlowFacts::without_exceptions(self.image, self.cfg),
        });
        let graph = Rc::new(FlowGraph::new(self.cfg, facts, whole));
        let mut kept = self.cache.graphs.borrow_mut();
        let size = graph.blocks().count();
        if kept.1 + size > MAX_KEPT {
            kept.0.clear();
            kept.1 = 0;
        }
        kept.1 += size;
        kept.0.insert(whole, graph.clone());
        graph
    }

    fn graph_of(&self, block: BlockId) -> Rc<FlowGraph> {
        self.graph(self.cfg.block(block).proc)
    }

    /// A string for the tool. Equal strings are kept once.
    pub(super) fn intern(&self, text: &str) -> StrRef {
        let mut strings = self.cache.strings.borrow_mut();
        if let Some(known) = strings.get(text) {
            return StrRef::new(known);
        }
        let text: Box<str> = text.into();
        // A box's contents do not move when the set grows.
        let kept = StrRef::new(&text);
        strings.insert(text);
        kept
    }

    /// Code addresses that are in the program's data, in its exported symbols or in operands.
    fn taken(&self) -> &HashSet<u64> {
        let (image, cfg) = (self.image, self.cfg);
        self.cache.taken.get_or_init(|| {
            let data = data_pointers(image).into_iter().map(|p| p.0);
            let exported = image.dynamic_symbols.iter();
            let exported = exported.filter(|s| !s.is_undefined).map(|s| s.address);
            let mut taken: HashSet<u64> = data.chain(exported).collect();
            for i in 0..cfg.insts.len() {
                let inst = &cfg.insts[i];
                if inst.flow != ControlFlow::FallThrough
                    || image.kind.is_position_independent() && !inst.rip_relative
                {
                    continue;
                }
                let decoded = self.decode(InstId::from_index(i));
                let address = if decoded.is_ip_rel_memory_operand() {
                    Some(decoded.ip_rel_memory_address())
                } else {
                    // A constant is the last operand of its instruction.
                    decoded
                        .op_count()
                        .checked_sub(1)
                        .and_then(|last| decoded.try_immediate(last).ok())
                };
                taken.extend(address.filter(|a| image.is_code(*a)));
            }
            taken
        })
    }

    /// Contents of a section, kept as long as the session.
    fn section(&self, name: &str) -> &[u8] {
        let mut kept = self.cache.sections.borrow_mut();
        let bytes = kept.entry(name.to_owned()).or_insert_with(|| {
            let found = debug_section::contents(self.image, name);
            found.unwrap_or_default().into()
        });
        let bytes: *const [u8] = &**bytes;
        // SAFETY: the contents are never changed or dropped before the session, and a box's contents do
        // not move with the map.
        unsafe { &*bytes }
    }

    /// The name of a call's callee; `None` if that is not known.
    fn called_name(&self, id: InstId) -> Option<&str> {
        let inst = self.cfg.inst(id);
        match inst.flow {
            ControlFlow::Call => {
                let target = direct_target(&self.decode(id))?;
                let proc = self.cfg.proc_at(target)?;
                (self.cfg.proc(proc).start == target).then(|| self.proc_name(proc))
            }
            // A call through the slot of an import: `call [rip + puts@GOTPCREL]`.
            ControlFlow::IndirectCall if inst.rip_relative => {
                self.imports().name(self.decode(id).ip_rel_memory_address())
            }
            _ => None,
        }
    }

    /// The imports that the dynamic loader binds.
    pub(super) fn imports(&self) -> &Imports<'a> {
        let imports = &self.cache.imports;
        imports.get_or_init(|| Imports::new(self.image))
    }

    /// How a procedure uses the stack; `None` if that is not known.
    pub(super) fn frame(&self, proc: ProcId) -> Option<FrameRecord> {
        frame::frame(self.image, self.cfg, self.unwind()?, proc)
    }

    fn procs_matching(&self, pattern: &str) -> Result<Vec<ProcId>, String> {
        let pattern = Pattern::parse(pattern);
        let found =
            pattern.and_then(|p| select::procs_matching(&p, (self.image, self.cfg), self.lines));
        found.map_err(|error| match error.advice {
            Some(advice) => format!("{}: {advice}", error.reason),
            None => error.reason,
        })
    }

    fn procs_named(&self, name: &str) -> Vec<ProcId> {
        let by_name = self.cache.by_name.get_or_init(|| {
            let mut map: HashMap<&str, Vec<ProcId>> = HashMap::new();
            for (i, proc) in self.cfg.procs.iter().enumerate() {
                if let Some(name) = &proc.name {
                    map.entry(name).or_default().push(ProcId::from_index(i));
                }
            }
            map
        });
        let mut found = by_name.get(name).cloned().unwrap_or_default();
        // The name may be an alias or a demangled name.
        found.extend(self.named_proc(name).filter(|_| found.is_empty()));
        if found.len() <= 1 {
            let text = |proc: &ProcId| self.proc_name(*proc);
            let by_text = self.cache.by_text.get_or_init(|| {
                let mut all: Vec<ProcId> = (0..self.cfg.procs.len())
                    .map(ProcId::from_index)
                    .filter(|proc| self.cfg.proc(*proc).name.as_deref() != Some(text(proc)))
                    .collect();
                all.sort_by_key(text);
                all
            });
            let first = by_text.partition_point(|proc| text(proc) < name);
            let same = by_text[first..].iter().take_while(|p| text(p) == name);
            found.extend(same);
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

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

/// Writes a result, if there is one, and says so.
///
/// # Safety
/// `place` leads to memory for it.
unsafe fn put<T>(place: *mut T, result: Option<T>) -> bool {
    let Some(result) = result else { return false };
    // SAFETY: by the caller.
    unsafe { place.write(result) };
    true
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
        crossings.into_iter().flatten().map(|block| s.numbers.block + block.0).collect::<Vec<_>>()
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
