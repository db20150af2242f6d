//! Which calls never return.
//!
//! After a call of `abort()` compilers place unrelated code. No execution takes an edge
//! to that code, and the edge would hide loops and dominators. Imported
//! functions that never return are known by name. A procedure of the program returns if
//! it has a way from an entry to a return, to an
//! unknown place or to a procedure that returns. The least such set is used,
//! so procedures that only call each other in a circle do not return.
//!
//! In doubt a call counts as returning.

use std::collections::HashMap;

use crate::cfg::{Cfg, ProcKind, Status, Succ};
use crate::ids::{BlockId, ProcId};
use crate::image::Image;
use crate::image::imports::Imports;
use crate::x86::{ControlFlow, direct_target};

/// Imported functions that never return.
const NEVER: [&str; 30] = [
    "abort",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "err",
    "errx",
    "verr",
    "verrx",
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "__longjmp_chk",
    "pthread_exit",
    "thrd_exit",
    "__assert_fail",
    "__assert_perror_fail",
    "__assert",
    "__stack_chk_fail",
    "__fortify_fail",
    "__chk_fail",
    "__libc_start_main",
    "_Unwind_Resume",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_bad_cast",
    "__cxa_throw_bad_array_new_length",
    "__cxa_call_unexpected",
    "_ZSt9terminatev",
    "_ZSt10unexpectedv",
];

pub(crate) fn is_never(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    // libstdc++'s helpers that throw: std::__throw_length_error(char const*) and so on.
    NEVER.contains(&name) || name.starts_with("_ZSt") && throws(name)
}

/// True for symbols such as `_ZSt20__throw_length_errorPKc`: after the length the name starts with `__throw_`.
fn throws(name: &str) -> bool {
    name[4..]
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .starts_with("__throw_")
}

/// What is called at the end of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Callee {
    /// Nothing, or a function that may return.
    Returns,
    /// A function that never returns.
    Never,
    /// A procedure of the program.
    Proc(ProcId),
}

/// By block: true if it ends with a call that never returns.
pub(super) fn never_goes_on(image: &Image, cfg: &Cfg, parts: &[(ProcId, ProcId)]) -> Vec<bool> {
    let mut search = Search::new(image, cfg, parts);
    search.run();
    (0..cfg.blocks.len())
        .map(|b| search.stops(BlockId::from_index(b)))
        .collect()
}

/// Search for procedures that return.
struct Search<'a> {
    cfg: &'a Cfg,
    /// Callees at the ends of blocks, without [`Callee::Returns`].
    callees: HashMap<BlockId, Callee>,
    /// By procedure: true if it is known to return.
    returns: Vec<bool>,
    /// Parts put elsewhere: (procedure, part), sorted.
    parts: &'a [(ProcId, ProcId)],
    /// By block: number of the round in which it was last seen.
    seen: Vec<u32>,
    round: u32,
}

impl<'a> Search<'a> {
    fn new(image: &Image, cfg: &'a Cfg, parts: &'a [(ProcId, ProcId)]) -> Self {
        let imports = Imports::new(image);
        let mut callees = HashMap::new();
        let mut returns: Vec<bool> = Vec::with_capacity(cfg.procs.len());
        for proc in &cfg.procs {
            returns.push(match (proc.kind, &proc.status) {
                (ProcKind::Fragment(_), _) => true,
                (ProcKind::Plt, _) => !proc.name.as_deref().is_some_and(is_never),
                (_, Status::Full) => false,
                _ => true,
            });
            for id in proc.blocks() {
                let last = cfg.block(id).last();
                let inst = cfg.inst(last);
                let callee = match inst.flow {
                    ControlFlow::Call => match direct_target(&cfg.decode(image, last)) {
                        _ if inst.special => Callee::Returns,
                        Some(target) => cfg
                            .proc_at(target)
                            .filter(|callee| cfg.proc(*callee).start == target)
                            .map_or(Callee::Returns, Callee::Proc),
                        None => Callee::Returns,
                    },
                    ControlFlow::IndirectCall if inst.rip_relative => {
                        let slot = cfg.decode(image, last).ip_rel_memory_address();
                        match imports.name(slot) {
                            Some(name) if is_never(name) => Callee::Never,
                            _ => Callee::Returns,
                        }
                    }
                    _ => continue,
                };
                if callee != Callee::Returns {
                    callees.insert(id, callee);
                }
            }
        }
        Self {
            cfg,
            callees,
            returns,
            parts,
            seen: vec![0; cfg.blocks.len()],
            round: 0,
        }
    }

    fn stops(&self, block: BlockId) -> bool {
        match self.callees.get(&block) {
            None | Some(Callee::Returns) => false,
            Some(Callee::Never) => true,
            Some(Callee::Proc(proc)) => !self.returns[proc.index()],
        }
    }

    /// Repeats until nothing changes. Callees are often before their callers, so
    /// almost all procedures are settled in the first rounds.
    fn run(&mut self) {
        let mut open: Vec<ProcId> = (0..self.cfg.procs.len())
            .map(ProcId::from_index)
            .filter(|p| !self.returns[p.index()] && self.cfg.proc(*p).kind != ProcKind::Plt)
            .collect();
        loop {
            let before = open.len();
            open.retain(|p| {
                let returns = self.has_way_out(*p);
                self.returns[p.index()] = returns;
                !returns
            });
            if open.len() == before {
                return;
            }
        }
    }

    /// True if some entry of a procedure or its parts leads out of the procedure.
    fn has_way_out(&mut self, id: ProcId) -> bool {
        self.round += 1;
        let cfg = self.cfg;
        let first = self.parts.partition_point(|p| p.0 < id);
        let parts = self.parts[first..].iter().take_while(|p| p.0 == id);
        let mut work: Vec<BlockId> = parts
            .map(|p| p.1)
            .chain([id])
            .flat_map(|p| cfg.proc(p).blocks())
            .filter(|b| {
                let block = cfg.block(*b);
                let starts_part = block.proc != id && cfg.proc(block.proc).first_block == *b;
                block.is_entry || block.is_landing_pad || block.is_indirect_target && !starts_part
            })
            .collect();
        while let Some(block) = work.pop() {
            if std::mem::replace(&mut self.seen[block.index()], self.round) == self.round {
                continue;
            }
            let flow = cfg.inst(cfg.block(block).last()).flow;
            let stops = self.stops(block);
            let succs = cfg.succs(block);
            for (i, succ) in succs.iter().enumerate() {
                let falls = !flow.ends_flow() && i + 1 == succs.len();
                if falls && stops {
                    continue;
                }
                match *succ {
                    Succ::Fall(to) | Succ::Branch(to) => work.push(to),
                    Succ::Unknown => return true,
                    Succ::Tail(address) => match cfg.block_at(address.get()) {
                        Some(to) if cfg.whole(cfg.block(to).proc) == id => work.push(to),
                        Some(to) => {
                            let proc = cfg.block(to).proc;
                            // A jump into the middle of another procedure: in doubt that returns.
                            if cfg.proc(proc).start != address.get() || self.returns[proc.index()] {
                                return true;
                            }
                        }
                        None => return true,
                    },
                }
            }
        }
        false
    }
}
