//! Where call sites count: finding the node of the running procedure.
//!
//! The calls with notes keep their nodes. Silent calls between two notes are found by their return addresses, from the inner
//! note outwards ([`walk`](super::walk)), and each leads from its caller's node to the next. Where a return address is not
//! known, as in a signal handler, the search continues with the note.
//!
//! The silent calls above the innermost note that has its node are kept for the next search. It ends where it comes to a frame that is
//! kept, if the return addresses of all frames further out are still on the stack: each frame is found by the one before and
//! what the stack has there, so the search would find the same ones. Frames that are found by rbp are not kept.
//!
//! The search is made in two ways. The quick one calls nothing and has no panics, so a point saves few registers
//! for it. It gives up where something has not been found before; the other one then does it all.

use super::nodes;
use super::open_calls::{CALL, Call, UNKNOWN, call};
use super::state::{NO_SP, PathState, in_this_order};
use super::walk::{self, Frame, SiteFrame, WORD};

/// A silent call.
#[repr(C)]
#[derive(Clone, Copy)]
struct Silent {
    /// Address of the return address, and the return address.
    slot: u64,
    back: u64,
    /// Place of the node of the calling procedure.
    node: u64,
    /// Number of the call site.
    site: u32,
    /// This frame and those further out are found without rbp.
    is_by_sp: bool,
}

/// Size of a silent call in bytes.
const SILENT: u64 = size_of::<Silent>() as u64;
/// Size in bytes of the memory for silent calls: for those that are kept, and for those of the searches that continue.
pub(super) const ROOM: u64 = 1 << 21;
const KEPT_ROOM: u64 = ROOM / 2;

/// The reason for an end of the quick search: something has not been found before. Other reasons are rsp before a call that
/// has not come back.
const NOT_KNOWN: u64 = 0;

/// Stands for rsp of a search without a frame: any other search that continues is one that it has interrupted.
const NO_FRAME: u64 = 1;

/// The place of the node of what the innermost open call with a note leads to, as far as is known.
pub(super) fn innermost(state: &PathState) -> u64 {
    if state.top.get() == 0 {
        return 0;
    }
    // Without a frame the search does not fail at the innermost call. It may at outer ones, which then are of no use.
    let found = Search::begin(state, NO_FRAME).run::<false>(0, None);
    found.unwrap_or(0)
}

/// A search that continues.
pub(super) struct Search<'a> {
    state: &'a PathState,
    /// Another search continues that a signal handler has interrupted. This one leaves alone what is kept.
    is_nested: bool,
    /// The state's `search_sp` before.
    outer: u64,
    /// Address of the first silent call that this search finds.
    start: u64,
    /// Address after the last one.
    end: u64,
}

impl<'a> Search<'a> {
    #[inline(always)]
    pub(super) fn begin(state: &'a PathState, sp: u64) -> Self {
        let outer = state.search_sp.get();
        // If the stack has fallen below the other search's procedure, that one does not continue.
        let is_nested = outer != 0 && outer > sp;
        let start = if is_nested {
            state.found.get()
        } else {
            state.room.get() + KEPT_ROOM
        };
        state.found.set(start);
        state.search_sp.set(sp);
        Self {
            state,
            is_nested,
            outer,
            start,
            end: start,
        }
    }

    /// Finds the nodes of all open calls. `frame` is the running procedure's.
    #[inline(always)]
    pub(super) fn run<const QUICK: bool>(
        mut self,
        proc: u32,
        frame: Option<Frame>,
    ) -> Result<u64, u64> {
        let found = self.notes::<QUICK>(proc, frame);
        self.state.found.set(self.start);
        self.state
            .search_sp
            .set(if self.is_nested { self.outer } else { 0 });
        found
    }

    #[inline(always)]
    fn notes<const QUICK: bool>(&mut self, proc: u32, frame: Option<Frame>) -> Result<u64, u64> {
        let top = self.state.top.get();
        let mut at = top.wrapping_sub(CALL);
        while call(at).key == 0 || call(at).node == UNKNOWN {
            at = at.wrapping_sub(CALL);
        }
        let mut keeps = !self.is_nested;
        loop {
            let from = call(at);
            at += CALL;
            while at < top && call(at).key == 0 {
                at += CALL;
            }
            if at >= top {
                return self.silent::<QUICK>(from, frame, proc, keeps);
            }
            let next = call(at);
            let site = walk::site(next.site);
            let inner = site.and_then(|site| site.outwards(next.key, next.rbp));
            let caller = site.map_or(0, |site| site.procs[0]);
            call(at).node = self.silent::<QUICK>(from, inner, caller, keeps)?;
            keeps = false;
        }
    }

    /// The place of the node of the running procedure, given the innermost call with a note whose node is known, and the
    /// running procedure's frame. The silent calls between are kept if `keeps` says so.
    #[inline(always)]
    fn silent<const QUICK: bool>(
        &mut self,
        from: &Call,
        mut frame: Option<Frame>,
        running: u32,
        keeps: bool,
    ) -> Result<u64, u64> {
        let state = self.state;
        let mut kept = Kept::of(state, from, keeps);
        let limit = from.key.wrapping_sub(WORD);
        let mut is_end = false;
        let mut met = None;
        self.end = self.start;
        while let Some(here) = frame {
            // SAFETY: by the exception tables it is a frame of this thread.
            let back = unsafe { here.back() };
            if here.slot < limit
                && let Some(silent) = kept.find(here.slot, back)
            {
                met = Some(silent);
                break;
            }
            let found = if QUICK {
                walk::known_site(back).ok_or(NOT_KNOWN)?
            } else {
                walk::site_behind(back)
            };
            if here.slot >= limit {
                let is_it = found.is_none_or(|(number, _)| u64::from(number) == from.site);
                if here.slot > limit || !is_it {
                    return Err(from.key);
                }
                is_end = found.is_some();
                kept.restart(here.slot, back);
                break;
            }
            let Some((site, rule)) = found else { break };
            if !self.note(here.slot, back, site, rule) {
                break;
            }
            frame = rule.outwards(here.slot + WORD, here.rbp);
        }
        let keeps = keeps && (is_end || met.is_some());
        let mut path = match met {
            Some(silent) => Path::of(silent.node, silent.site.into()),
            None if from.key == NO_SP => Path {
                node: from.node,
                site: from.site,
                called: 0,
            },
            None => Path::of(from.node, from.site),
        };
        kept.open(keeps);
        let mut is_by_sp = keeps;
        while self.end > self.start {
            self.end -= SILENT;
            // SAFETY: `note` has written there.
            let mut silent = unsafe { silent_at(self.end).read() };
            let [caller, called] = procs_of(silent.site.into());
            silent.node = path.running::<QUICK>(state, caller)?;
            path = Path {
                node: silent.node,
                site: silent.site.into(),
                called,
            };
            is_by_sp &= silent.is_by_sp;
            silent.is_by_sp = is_by_sp;
            kept.push(silent);
        }
        kept.close(from);
        path.running::<QUICK>(state, running)
    }

    /// Notes a silent call; false if there is no room.
    #[inline(always)]
    fn note(&mut self, slot: u64, back: u64, site: u32, rule: &SiteFrame) -> bool {
        if self.end + SILENT > self.state.room.get() + ROOM {
            return false;
        }
        let silent = Silent {
            slot,
            back,
            node: 0,
            site,
            is_by_sp: rule.is_by_sp(),
        };
        self.state.found.set(self.end + SILENT);
        in_this_order();
        // SAFETY: room of this thread's, which a signal handler leaves as it is.
        unsafe { silent_at(self.end).write(silent) };
        self.end += SILENT;
        true
    }
}

#[inline(always)]
fn silent_at(address: u64) -> *mut Silent {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Numbers of a call site's procedure and of the called one.
#[inline(always)]
fn procs_of(site: u64) -> [u32; 2] {
    walk::site(site).map_or([0; 2], |site| site.procs)
}

/// The silent calls that the last search has kept, the outermost first. The first of all stands for the call with a note
/// above which they are.
struct Kept<'a> {
    state: &'a PathState,
    start: u64,
    /// Address after the last one that may still be on the stack.
    end: u64,
    /// It is used, and may be changed.
    is_used: bool,
    /// Calls are added.
    is_open: bool,
}

impl<'a> Kept<'a> {
    /// What is kept above a call with a note; nothing if it is not to be used.
    #[inline(always)]
    fn of(state: &'a PathState, from: &Call, is_used: bool) -> Self {
        let start = state.room.get();
        let is_it = is_used
            && state.kept_key.get() == from.key
            && state.kept_node.get() == from.node
            && state.kept_changes.get() == walk::changes();
        Self {
            state,
            start,
            end: if is_it { state.kept_end.get() } else { start },
            is_used,
            is_open: false,
        }
    }

    /// The call with this return address, if that is kept and all calls further out are still on the stack.
    #[inline(always)]
    fn find(&mut self, slot: u64, back: u64) -> Option<Silent> {
        loop {
            if self.end <= self.start {
                return None;
            }
            // SAFETY: a call that is kept.
            let last = unsafe { silent_at(self.end - SILENT).read() };
            if last.slot > slot {
                return None;
            }
            if last.slot == slot {
                let is_same = last.back == back && last.is_by_sp && self.is_outside_same();
                return is_same.then_some(last);
            }
            self.end -= SILENT;
        }
    }

    /// True if the return addresses further out than the last one are as they were. Each is read only where the one
    /// before says that it is, so it is one of a frame.
    #[inline(always)]
    fn is_outside_same(&self) -> bool {
        let mut at = self.end - SILENT;
        while at > self.start {
            at -= SILENT;
            // SAFETY: a call that is kept, and as said above.
            let is_same = unsafe {
                let outer = silent_at(at).read();
                let frame = Frame {
                    slot: outer.slot,
                    rbp: 0,
                };
                frame.back() == outer.back
            };
            if !is_same {
                return false;
            }
        }
        true
    }

    /// Nothing but the call with a note is kept.
    #[inline(always)]
    fn restart(&mut self, slot: u64, back: u64) {
        if !self.is_used {
            return;
        }
        self.end = self.start;
        let note = Silent {
            slot,
            back,
            node: 0,
            site: 0,
            is_by_sp: false,
        };
        self.state.kept_end.set(0);
        in_this_order();
        // SAFETY: room of this thread's.
        unsafe { silent_at(self.end).write(note) };
        self.end += SILENT;
    }

    /// Calls are added, if they are to be kept.
    #[inline(always)]
    fn open(&mut self, keeps: bool) {
        self.is_open = keeps;
        if self.is_used {
            self.state.kept_end.set(0);
            in_this_order();
        }
    }

    #[inline(always)]
    fn push(&mut self, silent: Silent) {
        if self.is_open && self.end + SILENT <= self.start + KEPT_ROOM {
            // SAFETY: room of this thread's.
            unsafe { silent_at(self.end).write(silent) };
            self.end += SILENT;
        }
    }

    /// All calls have been added above a call with a note.
    #[inline(always)]
    fn close(&self, from: &Call) {
        if self.is_open {
            self.state.kept_key.set(from.key);
            self.state.kept_node.set(from.node);
            self.state.kept_changes.set(walk::changes());
            in_this_order();
            self.state.kept_end.set(self.end);
        }
    }
}

/// A call: the place of its procedure's node, its site, and the number of the procedure that it certainly calls.
struct Path {
    node: u64,
    site: u64,
    called: u32,
}

impl Path {
    #[inline(always)]
    fn of(node: u64, site: u64) -> Self {
        let [_, called] = procs_of(site);
        Self { node, site, called }
    }

    /// The place of the node of a procedure that runs below the call; 0 stands for one that is not known.
    #[inline(always)]
    fn running<const QUICK: bool>(&self, state: &PathState, proc: u32) -> Result<u64, u64> {
        let mut node = self.node;
        // The called procedure has jumped to the running one, or a signal handler runs, or a library has called back.
        let is_other = self.called != 0 && self.called != proc;
        if is_other {
            node = child::<QUICK>(state, [node, self.site], self.called, None)?;
        }
        if proc != 0 {
            // What the called procedure did is not known to be a call.
            let site = if is_other { 0 } else { self.site };
            let caller = is_other.then_some(self.node);
            node = child::<QUICK>(state, [node, site], proc, caller)?;
        }
        Ok(node)
    }
}

#[inline(always)]
fn child<const QUICK: bool>(
    state: &PathState,
    from: [u64; 2],
    proc: u32,
    caller: Option<u64>,
) -> Result<u64, u64> {
    if QUICK {
        nodes::known_child(state, from, proc).ok_or(NOT_KNOWN)
    } else {
        Ok(nodes::child(state, from, proc, caller))
    }
}
