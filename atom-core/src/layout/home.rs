//! Calls at home: calls of moved code that push the original return addresses.
//!
//! A program may look its return addresses up in tables, as OCaml's garbage collector does. So the calls of some
//! procedures ([`Returns`]) stay where they are, *at home*: the new text jumps to the call in the old text, the call pushes
//! the original return address, and a pad there leads back to the new text. Calls and returns stay paired, so the
//! processor predicts the returns.
//!
//! A call cannot stay if its bytes are needed for a pad: it is a landing itself, or is directly after another
//! call. Such a call is *pushed*: code in the new text makes a call, replaces the pushed address by the
//! original return address, and jumps to the callee.
//!
//! In a few places neither works: the address after the call is a landing for other reasons, too, and may need other code than the
//! return.

use crate::cfg::{Cfg, Returns, Succ};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::x86::ControlFlow;
use crate::x86::branch::{JMP_LEN, jump_of_call};

use super::MovedSet;

/// One address that control can reach indirectly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing {
    pub(crate) address: u64,
    pub(crate) proc: ProcId,
    pub(crate) block: BlockId,
    /// The call of the block that returns to the address, if the landing is for that alone.
    pub(crate) call: Option<InstId>,
}

/// How a call pushes the original return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    /// The call in the old text does.
    InPlace,
    /// Code in the new text does.
    Pushed,
}

/// A call with its place in the old text.
#[derive(Clone, Copy, Debug)]
struct Call {
    inst: InstId,
    landing: Landing,
    /// True if control may come back.
    returns: bool,
    home: Home,
}

/// The calls of moved procedures that push original return addresses.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    /// In order.
    calls: Vec<Call>,
    /// Calls that have to push the original return address and cannot: procedure and address.
    pub(crate) homeless: Vec<(ProcId, u64)>,
}

impl Homes {
    /// Finds the calls. `landings` are the addresses that control can reach indirectly, in order.
    pub(crate) fn new(image: &Image, cfg: &Cfg, moved: &MovedSet, landings: &[Landing]) -> Self {
        let mut homes = Self::default();
        for (i, proc) in cfg.procs.iter().enumerate() {
            let id = ProcId::from_index(i);
            if proc.returns == Returns::New || !moved.contains(id) {
                continue;
            }
            for b in proc.blocks() {
                let inst = cfg.block(b).last();
                let facts = cfg.inst(inst);
                let is_call = matches!(facts.flow, ControlFlow::Call | ControlFlow::IndirectCall);
                if !is_call || facts.special {
                    continue;
                }
                let address = cfg.inst_end(inst);
                let is_next =
                    |s: &Succ| matches!(s, Succ::Fall(to) if cfg.block_pc(*to) == address);
                let goes_out = |s: &Succ| matches!(s, Succ::Tail(to) if to.get() == address);
                let call = Call {
                    inst,
                    landing: Landing {
                        address,
                        proc: id,
                        block: b,
                        call: Some(inst),
                    },
                    returns: cfg.succs(b).iter().any(is_next),
                    home: Home::InPlace,
                };
                let is_landing = landings
                    .binary_search_by_key(&address, |l| l.address)
                    .is_ok();
                // After a call that never returns there may be no code.
                let leaves = cfg.succs(b).iter().any(goes_out) && cfg.inst_at(address).is_some();
                let is_shared = call.returns && is_landing || leaves;
                if is_shared || overlaps(cfg, inst) {
                    homes.refuse(cfg, call)
                } else {
                    homes.calls.push(call)
                }
            }
        }
        homes.find_pushed(image, cfg, landings);
        homes
    }

    /// Finds the calls whose bytes are needed for pads.
    fn find_pushed(&mut self, image: &Image, cfg: &Cfg, landings: &[Landing]) {
        let others = landings.iter().map(|l| l.address);
        let mut pads: Vec<u64> = others.chain(self.landings().map(|l| l.address)).collect();
        pads.sort_unstable();
        for call in &mut self.calls {
            let (start, end) = (cfg.inst_pc(call.inst), call.landing.address);
            // One byte in front of the call is no space.
            let first = pads.partition_point(|p| p + 1 < start);
            if pads.get(first).is_some_and(|p| *p < end) {
                call.home = Home::Pushed;
            }
        }
        self.refuse_all(cfg, |call| {
            call.home == Home::Pushed && pushed_len(image, cfg, call.inst).is_none()
        });
    }

    fn refuse(&mut self, cfg: &Cfg, call: Call) {
        let proc = call.landing.proc;
        if matches!(cfg.proc(proc).returns, Returns::Always | Returns::Original) {
            self.homeless.push((proc, cfg.inst_pc(call.inst)));
        }
    }

    fn refuse_all(&mut self, cfg: &Cfg, is_refused: impl Fn(&Call) -> bool) {
        let (refused, kept) = std::mem::take(&mut self.calls)
            .into_iter()
            .partition(is_refused);
        self.calls = kept;
        let refused: Vec<Call> = refused;
        refused.into_iter().for_each(|call| self.refuse(cfg, call));
    }

    /// Makes space where a pad found none: `left` are the addresses without pads. The call that follows closely is
    /// pushed, or the call in front of the address gives up. False if there is nothing to change.
    pub(crate) fn make_space(&mut self, image: &Image, cfg: &Cfg, left: &[(ProcId, u64)]) -> bool {
        let mut given_up = Vec::new();
        let mut changed = false;
        for (_, address) in left {
            let next = self
                .calls
                .partition_point(|c| cfg.inst_pc(c.inst) < *address);
            let near = self.calls.get_mut(next).filter(|c| {
                c.home == Home::InPlace && cfg.inst_pc(c.inst) < address + JMP_LEN as u64
            });
            let near = near.filter(|c| pushed_len(image, cfg, c.inst).is_some());
            if let Some(call) = near {
                call.home = Home::Pushed;
                changed = true;
            } else if let Some(call) = next.checked_sub(1).map(|i| &self.calls[i])
                && call.returns
                && call.landing.address == *address
            {
                given_up.push(call.inst);
            }
        }
        changed |= !given_up.is_empty();
        self.refuse_all(cfg, |call| given_up.contains(&call.inst));
        changed
    }

    /// The addresses after the calls to which control comes back.
    pub(crate) fn landings(&self) -> impl Iterator<Item = Landing> + '_ {
        self.calls.iter().filter(|c| c.returns).map(|c| c.landing)
    }

    /// The calls that stay in the old text, with their procedures.
    pub(crate) fn in_place(&self) -> impl Iterator<Item = (ProcId, InstId)> + '_ {
        let calls = self.calls.iter().filter(|c| c.home == Home::InPlace);
        calls.map(|c| (c.landing.proc, c.inst))
    }

    /// How a call pushes the original return address; `None` if it pushes its own.
    pub(crate) fn of(&self, inst: InstId) -> Option<Home> {
        let at = self.calls.binary_search_by_key(&inst, |c| c.inst).ok()?;
        Some(self.calls[at].home)
    }

    /// True if control may come back to the original return address of a call.
    pub(crate) fn comes_back(&self, inst: InstId) -> bool {
        let at = self.calls.binary_search_by_key(&inst, |c| c.inst);
        at.is_ok_and(|at| self.calls[at].returns)
    }
}

/// True if another instruction has a part in the bytes of this one.
fn overlaps(cfg: &Cfg, inst: InstId) -> bool {
    let at = inst.index();
    let both = |a: usize, b: usize| match (cfg.insts.get(a), cfg.insts.get(b)) {
        (Some(a), Some(b)) => a.offset + u32::from(a.len) > b.offset,
        _ => false,
    };
    both(at, at + 1) || at > 0 && both(at - 1, at)
}

/// Size in bytes of the jump that takes the place of a call whose return address is pushed; `None` if there is none.
pub(crate) fn pushed_len(image: &Image, cfg: &Cfg, inst: InstId) -> Option<usize> {
    let facts = cfg.inst(inst);
    match facts.flow {
        ControlFlow::Call => Some(JMP_LEN),
        _ => {
            let bytes = image.bytes_at(cfg.inst_pc(inst), usize::from(facts.len))?;
            Some(jump_of_call(bytes)?.bytes.len())
        }
    }
}
