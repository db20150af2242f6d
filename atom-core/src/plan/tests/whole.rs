//! Plans for a whole program, taken apart again.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cfg::{Cfg, ProcKind, seeds::FrameFacts};
use crate::image::Image;
use crate::live::Live;
use crate::plan::{Clobbers, Options, Plan, Position, Snippet, Target};
use crate::tool::calls::{CallPlace, Scope};
use crate::tool::{Argument, Call, Calls};
use crate::x86::ControlFlow;
use crate::{BlockId, InstId};

const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int twice(int n) { return n + n; }
__attribute__((noinline)) int tail(int n) { return n > 3 ? twice(n) : twice(n + 1); }
int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 0; i < argc * 10; i++) sum += tail(i);
    if (sum == 12345) abort();
    printf("%d\n", sum);
    return 0;
}
"#;

/// A compiled program, removed again at the end.
struct Program(PathBuf);

impl Program {
    fn compile(name: &str, flags: &[&str]) -> Self {
        let stem = std::env::temp_dir().join(format!("atom-plan-{}-{name}", std::process::id()));
        let source = stem.with_extension("c");
        std::fs::write(&source, SOURCE).unwrap();
        let status = Command::new("gcc")
            .args(["-O2", "-g0"])
            .args(flags)
            .arg("-o")
            .arg(&stem)
            .arg(&source)
            .status();
        std::fs::remove_file(&source).unwrap();
        assert!(status.expect("gcc runs").success());
        Self(stem)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const LEAF: Clobbers = Clobbers {
    gprs: 1,
    xmms: 0,
    flags: true,
    mxcsr: false,
    is_leaf: true,
    needs_alignment: false,
    is_apart: false,
};

fn with_plan(
    program: &Program,
    calls: impl FnOnce(&Cfg) -> Calls,
    options: Options<'_>,
    check: impl FnOnce(&Image, &Cfg, &Plan),
) {
    let image = Image::open(program.path()).unwrap();
    let table = image.unwind_table().unwrap();
    let cfg = Cfg::build(&image, &FrameFacts::new(&table)).unwrap();
    let live = Live::compute(&image, &cfg);
    let calls = calls(&cfg);
    let plan = Plan::build(&image, &cfg, &live, calls, &|_| LEAF, &options).unwrap();
    check(&image, &cfg, &plan);
}

/// The instructions of a snippet; fails if they do not fill it exactly.
fn decode(plan: &Plan, snippet: &Snippet) -> Vec<crate::x86::Instruction> {
    let code = &plan.code[snippet.code.start as usize..snippet.code.end as usize];
    let decoder = crate::x86::Decoder::new(64, code, 0);
    let list: Vec<_> = decoder.into_iter().collect();
    assert!(list.iter().all(|i| !i.is_invalid()));
    let fields: Vec<u32> = plan.fixups[snippet.fixups.start as usize..snippet.fixups.end as usize]
        .iter()
        .map(|f| f.at)
        .collect();
    for at in fields {
        assert!(
            list.iter().any(|i| i.next_ip() == u64::from(at) + 4),
            "a fixup is no operand"
        );
    }
    list
}

fn call(calls: &mut Calls, scope: Scope, id: u32, place: CallPlace, args: &[Argument]) {
    let start = calls.args.len() as u32;
    calls.args.extend_from_slice(args);
    let args = start..calls.args.len() as u32;
    let routine = 0x100 * calls.calls.len() as u64;
    calls.calls.push(Call {
        scope,
        id,
        place,
        routine: crate::ids::Address48::new(routine),
        args,
    });
}

/// Addresses of the routines that a snippet calls, in order.
fn routines(plan: &Plan, snippet: &Snippet) -> Vec<u64> {
    plan.fixups[snippet.fixups.start as usize..snippet.fixups.end as usize]
        .iter()
        .filter_map(|f| match f.target {
            Target::Analysis(routine) => Some(routine.get()),
            _ => None,
        })
        .collect()
}

fn at(plan: &Plan, inst: InstId, position: Position) -> Vec<u64> {
    plan.insertions
        .iter()
        .filter(|i| i.inst == inst && i.position == position)
        .flat_map(|i| routines(plan, &plan.snippets[i.snippet as usize]))
        .collect()
}

#[test]
fn every_block_and_instruction_gets_its_calls() {
    let program = Program::compile("every", &[]);
    let make = |cfg: &Cfg| {
        let mut calls = Calls::default();
        for b in 0..cfg.blocks.len() as u32 {
            call(
                &mut calls,
                Scope::Block,
                b,
                CallPlace::Before,
                &[Argument::Const(b.into())],
            );
            call(
                &mut calls,
                Scope::Block,
                b,
                CallPlace::After,
                &[Argument::Regv(4)],
            );
        }
        for i in 0..cfg.insts.len() as u32 {
            call(
                &mut calls,
                Scope::Inst,
                i,
                CallPlace::Before,
                &[Argument::Regv(16)],
            );
        }
        calls
    };
    with_plan(&program, make, Options::default(), |_, cfg, plan| {
        assert_eq!(
            plan.calls_added as usize,
            2 * cfg.blocks.len() + cfg.insts.len()
        );
        assert!(plan.insertions.is_sorted_by_key(|i| (i.inst, i.position)));
        for snippet in plan.snippets.iter().chain(&plan.shared) {
            decode(plan, snippet);
        }
        for b in (0..cfg.blocks.len()).map(BlockId::from_index) {
            let block = cfg.block(b);
            let before = 0x200 * u64::from(b.0);
            let of_inst = |i: InstId| 0x100 * (2 * cfg.blocks.len() as u64 + u64::from(i.0));
            let flow = cfg.inst(block.last()).flow;
            let mut expected = vec![before, of_inst(block.first)];
            let moves_control = matches!(
                flow,
                ControlFlow::Jump
                    | ControlFlow::CondJump
                    | ControlFlow::IndirectJump
                    | ControlFlow::Return
            );
            if block.count == 1 && moves_control {
                expected.push(before + 0x100);
            }
            assert_eq!(at(plan, block.first, Position::Before), expected);
            let after = at(plan, block.last(), Position::After);
            if moves_control || flow == ControlFlow::Halt {
                assert!(after.is_empty());
            } else {
                assert_eq!(after, [before + 0x100]);
            }
        }
    });
}

#[test]
fn procedures_are_entered_once_and_left_at_every_exit() {
    let program = Program::compile("procs", &["-fno-inline", "-fno-ipa-cp"]);
    let make = |cfg: &Cfg| {
        let mut calls = Calls::default();
        for p in 0..cfg.procs.len() as u32 {
            call(&mut calls, Scope::Proc, p, CallPlace::Before, &[]);
            call(&mut calls, Scope::Proc, p, CallPlace::After, &[]);
        }
        calls
    };
    with_plan(&program, make, Options::default(), |_, cfg, plan| {
        let named = |name: &str| {
            cfg.procs
                .iter()
                .position(|p| p.name.as_deref() == Some(name))
                .expect("it is there")
        };
        for (p, proc) in cfg
            .procs
            .iter()
            .enumerate()
            .filter(|p| p.1.kind == ProcKind::Normal)
        {
            let entry = at(plan, cfg.block(proc.first_block).first, Position::Entry);
            assert_eq!(entry, [0x200 * p as u64]);
            for b in proc.blocks() {
                let last = cfg.block(b).last();
                if cfg.inst(last).flow == ControlFlow::Return {
                    assert_eq!(at(plan, last, Position::Before), [0x200 * p as u64 + 0x100]);
                }
            }
        }
        // `tail` has no return of its own: it leaves by jumps to `twice`.
        let tail = named("tail");
        let exits: usize = cfg.procs[tail]
            .blocks()
            .map(|b| at(plan, cfg.block(b).last(), Position::Before).len())
            .sum();
        assert!(exits > 0, "the tail calls are exits");
    });
}

/// Numbers of the system calls that end a thread and a process.
const EXIT: u64 = 60;
const EXIT_GROUP: u64 = 231;

#[test]
fn ends_of_the_process_are_hooked() {
    let finish = Some(0x7000);
    let options = Options {
        finish,
        ..Options::default()
    };
    let program = Program::compile("ends", &[]);
    with_plan(
        &program,
        |_| Calls::default(),
        options,
        |_, cfg, plan| {
            let abort = cfg
                .procs
                .iter()
                .position(|p| p.name.as_deref() == Some("abort@plt"));
            let first = cfg
                .block(cfg.procs[abort.expect("abort is imported")].first_block)
                .first;
            assert!(
                plan.insertions
                    .iter()
                    .any(|i| i.inst == first && i.position == Position::Before)
            );
            let finishes = plan
                .shared
                .iter()
                .filter(|s| routines(plan, s) == [0x7000])
                .count();
            assert_eq!(finishes, 1);
        },
    );
    // There `abort` ends by a signal that it sends itself.
    let starts_abort = |cfg: &Cfg, inst| {
        let proc = cfg
            .procs
            .iter()
            .find(|p| p.name.as_deref() == Some("abort"));
        proc.is_some_and(|p| cfg.block(p.first_block).first == inst)
    };
    let program = Program::compile("ends-static", &["-static"]);
    with_plan(
        &program,
        |_| Calls::default(),
        options,
        |image, cfg, plan| {
            let hooked: Vec<InstId> = plan.insertions.iter().map(|i| i.inst).collect();
            let all = (0..cfg.insts.len()).map(InstId::from_index);
            let (calls, others): (Vec<InstId>, Vec<InstId>) = all
                .filter(|i| cfg.inst(*i).flow == ControlFlow::Syscall || hooked.contains(i))
                .partition(|i| cfg.inst(*i).flow == ControlFlow::Syscall);
            assert!(others.len() == 1 && starts_abort(cfg, others[0]));
            // A call whose number is set right before it needs no hook if the number is no end of the process.
            let is_end = |call: &InstId| {
                let before = cfg.decode(image, InstId(call.0 - 1));
                let sets = before.mnemonic() == crate::x86::Mnemonic::Mov
                    && before.op0_register() == crate::x86::Register::EAX;
                sets.then(|| {
                    before
                        .try_immediate(1)
                        .ok()
                        .map(|n| n == EXIT_GROUP || n == EXIT)
                })
            };
            let ends: Vec<Option<bool>> = calls.iter().map(|c| is_end(c).flatten()).collect();
            assert!(ends.contains(&Some(true)) && ends.contains(&Some(false)));
            for (call, is_end) in calls.iter().zip(ends) {
                let is_hooked = hooked.contains(call);
                assert!(is_end.is_none_or(|is_end| is_hooked || !is_end), "{call:?}");
            }
            let without_hook = calls.iter().filter(|c| !hooked.contains(c));
            assert!(without_hook.count() > 0);
        },
    );
}

#[test]
fn strings_and_arrays_become_records() {
    let program = Program::compile("data", &[]);
    let make = |_: &Cfg| {
        let mut calls = Calls {
            placed: vec![7; 5],
            ..Calls::default()
        };
        calls.data = b"hello\x01\0\0\0\x02\0\0\0".to_vec();
        let args = [
            Argument::Str(0, 5),
            Argument::CStr(0, 5),
            Argument::Array(5, 13, 4),
            Argument::CArray(5, 13, 4),
            Argument::Data(3),
            Argument::Str(0, 5),
            Argument::Const(u64::MAX),
        ];
        call(&mut calls, Scope::Program, 0, CallPlace::Before, &args);
        calls
    };
    with_plan(&program, make, Options::default(), |_, _, plan| {
        assert_eq!(plan.program_after, None);
        let snippet = &plan.shared[plan.program_before.unwrap() as usize];
        assert!(decode(plan, snippet).last().unwrap().code() == crate::x86::Code::Retnq);
        let mut offsets: Vec<u32> = Vec::new();
        for fixup in &plan.fixups[snippet.fixups.start as usize..snippet.fixups.end as usize] {
            if let Target::Data(offset) = fixup.target {
                offsets.push(offset);
            }
        }
        let [string, text, array, elements, placed, again] = offsets[..] else {
            panic!("six arguments lie in the data, not {}", offsets.len())
        };
        assert_eq!((string, placed), (again, 3));
        assert_eq!(plan.data.read(0), [7; 5]);
        let word = |at: u32| u64::from_le_bytes(plan.data.read(at as usize));
        assert_eq!((word(string), word(string + 8)), (text.into(), 5));
        assert_eq!((word(array), word(array + 8)), (elements.into(), 2));
        assert_eq!(&plan.data.read(text as usize), b"hello\0");
        assert_eq!(elements % 16, 0);
        for record in [string, array] {
            assert!(plan.data_relocs.contains(&record));
        }
    });
}

#[test]
fn what_cannot_be_passed_is_an_error() {
    let program = Program::compile("errors", &[]);
    let image = Image::open(program.path()).unwrap();
    let table = image.unwind_table().unwrap();
    let cfg = Cfg::build(&image, &FrameFacts::new(&table)).unwrap();
    let live = Live::compute(&image, &cfg);
    let plan = |scope, id, argument| {
        let mut calls = Calls::default();
        call(&mut calls, scope, id, CallPlace::Before, &[argument]);
        Plan::build(&image, &cfg, &live, calls, &|_| LEAF, &Options::default())
    };
    let count = cfg.insts.len() as u32;
    assert!(plan(Scope::Inst, count, Argument::Const(1)).is_err());
    assert!(plan(Scope::Inst, 0, Argument::Regv(20)).is_err());
    assert!(plan(Scope::Inst, 0, Argument::Str(0, 9)).is_err());
    assert!(plan(Scope::Program, 0, Argument::EffAddrValue).is_err());
    let ret = (0..count)
        .find(|i| cfg.inst(InstId(*i)).flow == ControlFlow::Return)
        .unwrap();
    let error = plan(Scope::Inst, ret, Argument::BrCondValue).unwrap_err();
    assert_eq!(error.address, Some(cfg.inst_pc(InstId(ret))));
    assert!(plan(Scope::Inst, ret, Argument::EffAddrValue).is_ok());
}
