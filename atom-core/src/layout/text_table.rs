//! The table of an object's moved code: [`TextTable`] has its format.
//!
//! A process may write to its own text: hooks, static keys, breakpoints. What it writes has to take effect, so the runtime
//! then lets the procedures concerned run in place. It restores the bytes that pads have overwritten, and leads
//! direct calls and jumps of the new text to the original entries. Code at the new entries stays as it is, so a copy of
//! a pad that the process has made before still runs the procedure.

use std::collections::HashMap;

use atom_abi::TextTable;

use crate::cfg::{Cfg, Object, Succ};
use crate::ids::{BlockId, ProcId};
use crate::image::Image;
use crate::plan::{Plan, Position};
use crate::x86::ControlFlow;
use crate::x86::branch::{JMP_LEN, JMP_SHORT_LEN};
use crate::x86::opcode;

use super::home::Home;
use super::procedure::{Form, snippets_size};
use super::sites::{Jump, Sites};
use super::{Layout, branches};

/// Size in bytes of a displacement.
const FIELD: u64 = 4;

/// The table with its address.
#[derive(Debug)]
pub struct TextBlob {
    /// Its address in the file.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Original addresses: where the first procedure that moves begins, and where the last ends.
    pub range: (u64, u64),
}

impl TextBlob {
    /// The address after it.
    pub(crate) fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }
}

/// Makes the table.
pub(crate) fn build(
    object: &Object<'_>,
    plan: &Plan,
    (layout, light): (&Layout, Option<&Layout>),
    address: u64,
) -> TextBlob {
    let (image, cfg) = (object.image, &object.cfg);
    let mut numbers = Vec::new();
    let moved: Vec<ProcId> = (0..cfg.procs.len())
        .map(ProcId::from_index)
        .filter(|p| layout.moved.contains(*p))
        .collect();
    let (mut old, mut new) = (image.base, layout.start);
    for &p in &moved {
        let (proc, start) = (cfg.proc(p), layout.starts[p.index()]);
        for number in [proc.start - old, proc.end - proc.start, start - new] {
            leb128::push(&mut numbers, number);
        }
        (old, new) = (proc.end, start);
    }
    let index = |p: ProcId| moved.binary_search_by_key(&p.index(), |m| m.index());
    let pairs = cfg.together.iter();
    let pairs: Vec<_> = pairs
        .filter_map(|(a, b)| Some([index(*a).ok()?, index(*b).ok()?]))
        .collect();
    for number in pairs.iter().flatten() {
        leb128::push(&mut numbers, *number as u64);
    }
    let changes = changes(image, cfg, &layout.sites, layout.strict);
    let mut before = image.base;
    for change in &changes {
        let Change { at, owner, len } = *change;
        leb128::push(&mut numbers, at - before);
        let distance = owner.wrapping_sub(at) as i64;
        leb128::push(&mut numbers, leb128::zigzag(distance));
        leb128::push(&mut numbers, len as u64);
        numbers.extend(image.bytes_at(at, len).unwrap_or_default());
        before = at;
    }
    let branches = branches::find(image, cfg, layout, |_| layout);
    let mut branches: Vec<u64> = branches.iter().map(|branch| branch.field).collect();
    branches.sort_unstable();
    let mut before = image.base;
    for &field in &branches {
        leb128::push(&mut numbers, field - before);
        numbers.extend(image.bytes_at(field, FIELD as usize).unwrap_or_default());
        before = field;
    }
    let mut sites = sites(object, plan, layout, &moved);
    // The light version is after the other.
    sites.extend(
        light
            .map(|light| self::sites(object, plan, light, &moved))
            .into_iter()
            .flatten(),
    );
    let mut before = layout.start;
    for site in &sites {
        leb128::push(&mut numbers, site - before);
        before = *site;
    }
    let range = moved.first().zip(moved.last());
    let (start, end) = range.map_or((0, 0), |(a, b)| (cfg.proc(*a).start, cfg.proc(*b).end));
    let mut bytes = Vec::with_capacity(size_of::<TextTable>() + numbers.len());
    for word in [image.base, start, end, layout.start] {
        bytes.extend(word.to_le_bytes());
    }
    let counts = [
        moved.len(),
        pairs.len(),
        changes.len(),
        branches.len(),
        sites.len(),
        numbers.len(),
    ];
    for count in counts {
        bytes.extend((count as u32).to_le_bytes());
    }
    debug_assert_eq!(bytes.len(), size_of::<TextTable>());
    bytes.extend(numbers);
    TextBlob {
        address,
        bytes,
        range: (start, end),
    }
}

/// A changed piece of the original text.
struct Change {
    at: u64,
    /// An address of the procedure that the change belongs to.
    owner: u64,
    /// Number of bytes.
    len: usize,
}

/// The pads and, under `--strict`, what may be filled with traps, by address.
fn changes(image: &Image, cfg: &Cfg, sites: &Sites, strict: bool) -> Vec<Change> {
    let jumps: HashMap<u64, &Jump> = sites.jumps.iter().map(|(at, jump)| (*at, jump)).collect();
    let owner = |mut at: u64| loop {
        // An opcode alone has its distance from the jump that follows.
        at = match jumps.get(&at)? {
            Jump::New(i) => return Some(cfg.proc(sites.landings[*i].proc).start),
            Jump::Short(target) => *target,
            Jump::Opcode => {
                let distance = match jumps.get(&(at + 1))? {
                    Jump::New(_) => opcode::JMP,
                    _ => opcode::JMP_SHORT,
                };
                (at + JMP_SHORT_LEN as u64).wrapping_add_signed(i64::from(distance as i8))
            }
        };
    };
    let pads = sites.jumps.iter().filter_map(|(at, jump)| {
        let len = match jump {
            Jump::New(_) => JMP_LEN,
            Jump::Short(_) => JMP_SHORT_LEN,
            Jump::Opcode => 1,
        };
        let owner = owner(*at)?;
        Some(Change {
            at: *at,
            owner,
            len,
        })
    });
    let mut all: Vec<Change> = pads.collect();
    if strict {
        // Between procedures nothing is executed.
        all.extend(sites.free.ranges().into_iter().flat_map(|(from, to)| {
            let first = cfg.procs.partition_point(|p| p.end <= from);
            let procs = cfg.procs[first..].iter();
            procs.take_while(move |p| p.start < to).map(move |p| {
                let (from, to) = (p.start.max(from), p.end.min(to));
                Change {
                    at: from,
                    owner: from,
                    len: (to - from) as usize,
                }
            })
        }));
    }
    all.sort_unstable_by_key(|change| change.at);
    all.retain(|change| image.bytes_at(change.at, change.len).is_some());
    all
}

/// The displacements in the new text that lead to new starts of procedures, by address.
fn sites(object: &Object<'_>, plan: &Plan, layout: &Layout, moved: &[ProcId]) -> Vec<u64> {
    let (image, cfg) = (object.image, &object.cfg);
    let mut sites = Vec::new();
    for &p in moved {
        let is_entry = |is_call: bool, old: u64| {
            let new = layout.target(cfg, p, is_call, old);
            let to = cfg.proc_at(old).and_then(|to| layout.entry(to));
            new.is_some() && new == to
        };
        for b in cfg.proc(p).blocks() {
            let last = cfg.block(b).last();
            let inst = cfg.inst(last);
            let is_call = inst.flow == ControlFlow::Call;
            let is_at_home = layout.sites.homes.of(last) == Some(Home::InPlace);
            if !inst.flow.is_direct() || inst.special || is_at_home {
                continue;
            }
            // A branch's target in the procedure comes first among the successors.
            if !is_call && matches!(cfg.succs(b).first(), Some(Succ::Branch(_))) {
                continue;
            }
            let target = cfg.direct_target(image, last);
            if target.is_some_and(|old| is_entry(is_call, old)) {
                sites.extend(displacement(object, plan, layout, (p, b)));
            }
        }
        for (last, target) in &layout.procs[p.index()].bridges {
            if is_entry(false, *target) {
                let after = layout.insertions_at(plan, p, *last).iter();
                let after = after.filter(|i| i.position == Position::After);
                let size: u32 = after
                    .map(|i| snippets_size(plan, std::slice::from_ref(i)))
                    .sum();
                let end = layout.end_of(cfg, plan, p, *last);
                sites.extend(end.map(|end| end + u64::from(size) + JMP_LEN as u64 - FIELD));
            }
        }
    }
    sites.sort_unstable();
    sites
}

/// Where the displacement of the direct transfer at a block's end is.
fn displacement(
    object: &Object<'_>,
    plan: &Plan,
    layout: &Layout,
    (p, b): (ProcId, BlockId),
) -> Option<u64> {
    let cfg = &object.cfg;
    let last = cfg.block(b).last();
    let end = match layout.taken(p, last) {
        Some(on_the_way) => {
            let all = layout.insertions_at(plan, p, last).iter();
            let all = all.filter(|i| i.position == Position::Taken);
            let size: u32 = all
                .map(|i| snippets_size(plan, std::slice::from_ref(i)))
                .sum();
            on_the_way + u64::from(size) + JMP_LEN as u64
        }
        None => {
            let at = last.index() - layout.first_insts[p.index()];
            let form = layout.procs[p.index()].forms[at];
            if form != Form::LONG && form != Form::LONG_COUNTED && !form.is_pushed() {
                return None;
            }
            layout.end_of(cfg, plan, p, last)?
        }
    };
    Some(end - FIELD)
}
