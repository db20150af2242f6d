//! Rewrites a program so that all that is claimed dead is overwritten.
//!
//! Before each instruction, and after each call, dead caller-saved registers
//! get a value that faults as a pointer, dead vector registers become NaNs,
//! dead flags are changed. If the program still runs as before, nothing that
//! it ran past was called dead wrongly.

use std::path::Path;

use atom_core::cfg::{Cfg, ProcKind};
use atom_core::image::Image;
use atom_core::layout::{Extra, Options, Placed};
use atom_core::live::{Live, RegSet};
use atom_core::plan::{Insertion, Plan, Position, Snippet};
use atom_core::x86::ControlFlow;
use atom_core::{BlockId, Result, pipeline};

/// What to overwrite.
#[derive(Clone, Copy)]
pub struct Choice {
    /// Of the dead registers at a point, one in this many.
    pub one_in: u64,
    /// Start of the sequence of choices.
    pub seed: u64,
    /// Only blocks with numbers in this range, to find a culprit.
    pub blocks: (u32, u32),
}

struct Poison {
    plan: Plan,
    choice: Choice,
    state: u64,
    /// Registers that are left alone, since unwinding reads them.
    kept: RegSet,
}

impl Poison {
    fn chosen(&mut self) -> bool {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 20).is_multiple_of(self.choice.one_in)
    }

    fn insert(&mut self, inst: atom_core::InstId, position: Position, live: RegSet) {
        // The choice at a point does not depend on other points.
        let point = u64::from(inst.0) << 2 | position as u64;
        self.state = (point + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.choice.seed << 7;
        let start = self.plan.code.len() as u32;
        let dead = !(live | self.kept);
        for n in 0..16u8 {
            if dead.contains(RegSet::gpr(n.into())) && self.chosen() {
                // mov r64, sign-extended imm32
                self.plan
                    .code
                    .extend([0x48 | n >> 3, 0xc7, 0xc0 | n & 7, n, 0xf0, 0xad, 0x8b]);
            }
            if dead.contains(RegSet::xmm(n.into())) && self.chosen() {
                // pcmpeqd xmm, xmm
                let rex = 0x40 | (n >> 3) << 2 | n >> 3;
                self.plan
                    .code
                    .extend([0x66, rex, 0x0f, 0x76, 0xc0 | (n & 7) << 3 | n & 7]);
            }
        }
        if dead.contains(RegSet::FLAGS) {
            if self.chosen() {
                self.plan.code.extend([0x48, 0x39, 0xe4]); // cmp rsp, rsp
            } else {
                self.plan.code.extend([0x48, 0x85, 0xe4]); // test rsp, rsp
            }
        }
        if dead.contains(RegSet::CF) && self.chosen() {
            self.plan.code.push(0xf5); // cmc
        }
        let end = self.plan.code.len() as u32;
        if start != end {
            let snippet = self.plan.snippets.len() as u32;
            self.plan.snippets.push(Snippet {
                code: start..end,
                fixups: 0..0,
                cold_part: 0,
                cold_frame_changes: 0,
            });
            self.plan.insertions.push(Insertion {
                inst,
                position,
                snippet,
            });
        }
    }
}

/// Rewrites `from` into `to`; yields how many insertions were made.
pub fn poison(from: &Path, to: &Path, choice: Option<Choice>) -> Result<usize> {
    let image = Image::open(from)?;
    let (object, sites) = pipeline::understand(&image)?;
    let plan = choice.map_or_else(Plan::default, |choice| plan(&image, &object.cfg, choice));
    let options = Options {
        extra: Extra::All,
        ..Options::default()
    };
    let placed = Placed::new(&object, &plan, None, sites, &options)?;
    let out = pipeline::output(&placed, false)?;
    std::fs::write(to, out).expect("the output can be written");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    Ok(plan.insertions.len())
}

/// Code that overwrites what is dead.
pub fn plan(image: &Image, cfg: &Cfg, choice: Choice) -> Plan {
    let live = Live::compute(image, cfg);
    let mut poison = Poison {
        plan: Plan::default(),
        choice,
        state: 1,
        kept: if image.is_go() {
            RegSet::EMPTY
        } else {
            RegSet::CALLEE_SAVED
        },
    };
    for b in (0..cfg.blocks.len()).map(BlockId::from_index) {
        let block = cfg.block(b);
        let chosen = (choice.blocks.0..choice.blocks.1).contains(&b.0);
        if !chosen || cfg.proc(block.proc).kind == ProcKind::Plt {
            continue;
        }
        let sets = live.block(b);
        for (inst, set) in block.insts().zip(&sets) {
            poison.insert(inst, Position::Before, *set);
            let flow = cfg.inst(inst).flow;
            if matches!(flow, ControlFlow::Call | ControlFlow::IndirectCall) && inst == block.last()
            {
                poison.insert(inst, Position::After, live.after(b));
            }
        }
    }
    poison.plan
}
