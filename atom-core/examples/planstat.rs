//! `planstat APP`: how long liveness and planning take, and how much is live.
//! Plans a call before each block, as a tool that counts blocks does.

use std::time::Instant;

use atom_core::BlockId;
use atom_core::cfg::{Cfg, seeds::FrameFacts};
use atom_core::image::Image;
use atom_core::live::{Live, RegSet};
use atom_core::plan::{Clobbers, Options, Plan};
use atom_core::tool::calls::{CallPlace, Scope};
use atom_core::tool::{Argument, Call, Calls};

fn main() {
    for path in std::env::args().skip(1) {
        let image = Image::read(path.as_ref()).expect("the program can be read");
        let table = image.unwind_table().expect("its exception tables too");
        let cfg = Cfg::build(&image, &FrameFacts::new(&table)).expect("and its code");
        let start = Instant::now();
        let live = Live::compute(&image, &cfg);
        let computed = start.elapsed();
        let mut calls = Calls {
            args: vec![Argument::Const(0)],
            ..Calls::default()
        };
        for id in 0..cfg.blocks.len() as u32 {
            calls.args.push(Argument::Const(u64::from(id)));
            let args = id + 1..id + 2;
            calls.calls.push(Call {
                scope: Scope::Block,
                id,
                place: CallPlace::Before,
                routine: atom_core::ids::Address48::new(0),
                args,
            });
        }
        let clobbers = |_| Clobbers {
            gprs: 1 << 0 | 1 << 7,
            xmms: 0,
            flags: true,
            mxcsr: false,
            is_leaf: true,
            needs_alignment: false,
            is_apart: false,
        };
        let start = Instant::now();
        let plan = Plan::build(&image, &cfg, &live, calls, &clobbers, &Options::default())
            .expect("block calls can be planned");
        let planned = start.elapsed();
        let (mut flags, mut gprs, mut xmms) = (0, 0, 0);
        for b in (0..cfg.blocks.len()).map(BlockId::from_index) {
            let set = live.block(b)[0];
            flags += usize::from(set.intersects(RegSet::FLAGS));
            gprs += (set & RegSet::CALLER_SAVED).gpr_mask().count_ones();
            xmms += set.xmm_mask().count_ones();
        }
        let blocks = cfg.blocks.len() as f64;
        println!(
            "{path}: {} instructions, {} blocks; liveness {computed:.1?}, plan {planned:.1?}, \
             {} bytes of code; live at a block's start: flags in {:.1} %, of 9 caller-saved \
             registers {:.2}, of 16 xmm {:.2}",
            cfg.insts.len(),
            cfg.blocks.len(),
            plan.code.len(),
            100.0 * flags as f64 / blocks,
            f64::from(gprs) / blocks,
            f64::from(xmms) / blocks,
        );
    }
}
