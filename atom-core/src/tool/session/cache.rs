//! Data about an object that queries have made.
//!
//! Costly data is made when it is first needed. Graphs of procedures are kept for the next query, since tools ask about
//! one procedure many times, but only up to [`MAX_KEPT`] blocks.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use atom_abi::StrRef;
use atom_abi::query::FrameRecord;
use rustc_hash::FxHashMap;

use super::Session;
use crate::cfg::frame;
use crate::cfg::graph::{FlowFacts, FlowGraph};
use crate::cfg::pointers::data_pointers;
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::debug_section;
use crate::image::imports::Imports;
use crate::tool::select::{self, Pattern};
use crate::unwind::UnwindTable;
use crate::x86::memory::MemoryOperands;
use crate::x86::{ControlFlow, InstructionInfoFactory, direct_target};

/// Number of blocks of all graphs that are kept at most.
const MAX_KEPT: usize = 1 << 19;

/// Data that queries have made so far.
pub struct Cache<'a> {
    unwind: OnceCell<Option<UnwindTable<'a>>>,
    facts: OnceCell<FlowFacts>,
    graphs: RefCell<(FxHashMap<ProcId, Rc<FlowGraph>>, usize)>,
    imports: OnceCell<Imports<'a>>,
    pub(in crate::tool) factory: RefCell<InstructionInfoFactory>,
    pub(in crate::tool) memory: RefCell<MemoryOperands>,
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
    /// The object's exception tables; `None` if they cannot be read.
    pub(in crate::tool) fn unwind(&self) -> Option<&UnwindTable<'a>> {
        let unwind = &self.cache.unwind;
        unwind
            .get_or_init(|| self.image.unwind_table().ok())
            .as_ref()
    }

    /// The graph of a procedure with all its parts.
    pub(in crate::tool) fn graph(&self, proc: ProcId) -> Rc<FlowGraph> {
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

    /// The graph of a block's procedure.
    pub(in crate::tool) fn graph_of(&self, block: BlockId) -> Rc<FlowGraph> {
        self.graph(self.cfg.block(block).proc)
    }

    /// A string for the tool. Equal strings are kept once.
    pub(in crate::tool) fn intern(&self, text: &str) -> StrRef {
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
    pub(in crate::tool) fn taken(&self) -> &HashSet<u64> {
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
    pub(in crate::tool) fn section(&self, name: &str) -> &[u8] {
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
    pub(in crate::tool) fn called_name(&self, id: InstId) -> Option<&str> {
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
    pub(in crate::tool) fn imports(&self) -> &Imports<'a> {
        let imports = &self.cache.imports;
        imports.get_or_init(|| Imports::new(self.image))
    }

    /// How a procedure uses the stack; `None` if that is not known.
    pub(in crate::tool) fn frame(&self, proc: ProcId) -> Option<FrameRecord> {
        frame::frame(self.image, self.cfg, self.unwind()?, proc)
    }

    /// The procedures that a pattern names; an error is its reason with advice.
    pub(in crate::tool) fn procs_matching(&self, pattern: &str) -> Result<Vec<ProcId>, String> {
        let pattern = Pattern::parse(pattern);
        let found =
            pattern.and_then(|p| select::procs_matching(&p, (self.image, self.cfg), self.lines));
        found.map_err(|error| match error.advice {
            Some(advice) => format!("{}: {advice}", error.reason),
            None => error.reason,
        })
    }

    /// All procedures with a name.
    pub(in crate::tool) fn procs_named(&self, name: &str) -> Vec<ProcId> {
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
