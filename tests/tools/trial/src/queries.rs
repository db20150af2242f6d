//! What the queries answer for the test's programs, and what must hold of any program.

use std::collections::{HashMap, HashSet};

use atom_tool::prelude::*;
use atom_tool::{EdgeKind, Frame, InstInfo, Operand, ProgramInfo, Status};

/// The numbers that `readelf` tells, as the test passes them.
pub fn info(program: &Program, expected: &str) {
    use ProgramInfo::*;
    let what = [
        TextStartAddress,
        TextSize,
        InitDataStartAddress,
        InitDataSize,
        UninitDataStartAddress,
        UninitDataSize,
    ];
    let found: Vec<String> = what
        .iter()
        .map(|w| format!("{:x}", program.info(*w)))
        .collect();
    assert_eq!(found.join(","), expected);
}

pub fn name(program: &Program, expected: &str) {
    assert_eq!(program.name(), expected);
}

fn calls<'a>(proc: &Proc<'a>) -> Vec<Inst<'a>> {
    let last = proc.blocks().map(|b| b.last_inst());
    last.filter(|i| i.is_type(InstType::Call)).collect()
}

/// The C program of `tests/queries.rs`.
pub fn look(program: &Program) {
    names(program);
    let main = program.named_proc("main").expect("main");
    let outer = program.named_proc("outer").expect("outer");
    branches(&main);
    let call = calls(&main)
        .into_iter()
        .find(|i| i.called_proc() == Some(outer))
        .expect("call");
    one_call(&call, &outer);
    inlined(program, &outer);
    edges(program);
    frames(program);
}

/// Procedures by name, and bytes by address.
fn names(program: &Program) {
    // Names: an alias, two of one name, one that is not there.
    let aliased = program.named_proc("aliased").expect("aliased");
    assert_eq!(program.named_proc("alias"), Some(aliased));
    assert_eq!(program.procs_named("alias"), [aliased]);
    assert_eq!(program.procs_named("twin").len(), 2);
    assert!(
        program
            .procs_named("twin")
            .contains(&program.named_proc("twin").expect("twin"))
    );
    assert!(program.procs_named("no such").is_empty());

    let main = program.named_proc("main").expect("main");
    let first = main.first_block().expect("a block").first_inst();
    assert_eq!(program.bytes_at(first.pc(), first.size()), first.bytes());
    assert!(program.bytes_at(0x10, 4).len() == 4 || program.bytes_at(0x10, 4).is_empty());
    assert!(program.bytes_at(u64::MAX, 1).is_empty());
    let file = main.file().expect("a file");
    assert!(file.ends_with("queries.c"), "{file}");
}

/// Branches and calls of a procedure, and errors for other instructions.
fn branches(main: &Proc) {
    let first = main.first_block().expect("a block").first_inst();
    let error = |e: atom_tool::Error| e.to_string();
    assert!(
        first
            .branch_target()
            .map_err(error)
            .unwrap_err()
            .contains("is no branch")
    );
    assert!(
        first
            .called_name()
            .map_err(error)
            .unwrap_err()
            .contains("is no call")
    );
    let called: Vec<Option<&str>> = calls(main)
        .iter()
        .map(|i| i.called_name().expect("a call"))
        .collect();
    assert!(
        called.contains(&Some("outer")) && called.contains(&None),
        "{called:?}"
    );
    let printf = called.iter().flatten().find(|n| n.contains("printf"));
    assert!(
        matches!(printf, Some(&"printf@plt" | &"printf")),
        "{called:?}"
    );
}

/// Line, target, operands, memory accesses and registers of the call of `outer`.
fn one_call(call: &Inst, outer: &Proc) {
    let (file, line) = call.line().expect("a line");
    assert!(file.ends_with("queries.c") && line == 37, "{file}:{line}");
    let target = call.branch_target().expect("a branch").expect("known");
    assert_eq!(target.pc(), outer.pc());
    assert_eq!(
        call.info(InstInfo::BrDisp),
        Some((target.pc() - call.pc() - 5) as i64)
    );
    assert!(matches!(call.operands()[..], [Operand::Target(pc)] if pc == outer.pc()));
    let pushes = call.memory();
    assert!(pushes.len() == 1 && pushes[0].is_implicit() && pushes[0].access.writes());
    assert_eq!(
        (pushes[0].base, pushes[0].displacement),
        (Some(Reg::Rsp), -8)
    );
    let usage = call.reg_usage();
    assert!(usage.updated.contains(Reg::Pc) && usage.updated.contains(Reg::Rsp));
    assert!(!usage.used.contains(Reg::Rax) && !usage.used.is_empty());
    assert_eq!(
        usage.used,
        call.reg_accesses()
            .iter()
            .filter(|a| a.access.reads())
            .map(|a| a.reg)
            .collect()
    );
}

/// `outer` is made of three functions by inlining.
fn inlined(program: &Program, outer: &Proc) {
    let chains: HashSet<Vec<(&str, u32)>> = outer
        .blocks()
        .flat_map(|b| b.insts())
        .map(|i| {
            let frames = i.source_frames();
            frames
                .iter()
                .map(|f| (f.name, f.line.unwrap_or(0)))
                .collect()
        })
        .collect();
    assert!(program.named_proc("innermost").is_none(), "it was inlined");
    let whole = chains
        .iter()
        .find(|c| c.len() == 3)
        .expect("a chain of three");
    assert_eq!(
        (whole[0].0, whole[1].0, whole[2].0),
        ("innermost", "middle", "outer")
    );
    // `innermost` is called in line 6, `middle` in line 7.
    assert_eq!((whole[0].1, whole[1].1, whole[2].1), (5, 6, 7));
    assert!(
        chains
            .iter()
            .all(|c| c.last().is_some_and(|f| f.0 == "outer"))
    );
}

/// A switch, a loop, a tail call and a call that does not return.
fn edges(program: &Program) {
    let kinds = |name: &str| -> Vec<EdgeKind> {
        let proc = program.named_proc(name).expect("the procedure");
        let edges = proc.blocks().flat_map(|b| b.successors());
        edges.map(|e| e.kind).collect()
    };
    let count = |name: &str, kind: EdgeKind| kinds(name).iter().filter(|k| **k == kind).count();
    assert!(
        count("choose", EdgeKind::Table) >= 8,
        "{:?}",
        kinds("choose")
    );
    assert!(count("choose", EdgeKind::Return) >= 1);
    assert_eq!(count("tail", EdgeKind::Tail), 1, "{:?}", kinds("tail"));
    assert_eq!(count("indirect_tail", EdgeKind::Unknown), 1);
    let dies = program.named_proc("dies").expect("dies");
    assert!(dies.blocks().all(|b| b.successors().is_empty()));
    // It may stand in `main.cold`.
    let mut all = program.procs().flat_map(|p| calls(&p));
    let to_dies = all
        .find(|i| i.called_proc() == Some(dies))
        .expect("call of dies");
    assert!(to_dies.block().successors().is_empty());
    assert!(count("main", EdgeKind::CallReturn) >= 3);
    let tail = program
        .named_proc("tail")
        .expect("tail")
        .last_block()
        .expect("a block");
    let edge = tail.successors()[0];
    assert_eq!(
        (edge.block, edge.address),
        (None, Some(program.named_proc("outer").unwrap().pc()))
    );

    let nest = program.named_proc("nest").expect("nest");
    let loops = nest.loops();
    assert_eq!((loops.len(), loops.irreducible), (2, false));
    assert_eq!((loops[0].depth, loops[1].depth), (1, 2));
    assert_eq!(loops[1].parent, Some(0));
    assert_eq!(loops[1].header.innermost_loop(), Some(1));
    assert!(loops[1].blocks.iter().all(|b| loops[0].blocks.contains(b)));
    assert!(loops[0].header.dominates(loops[1].header));
    assert!(!loops[1].header.dominates(loops[0].header));
    assert_eq!(nest.entries(), [nest.first_block().expect("a block")]);
    assert!(nest.blocks().all(|b| b.is_reachable()));
}

/// Frames that were written by hand.
fn frames(program: &Program) {
    let frame = |name: &str| -> Frame {
        let proc = program.named_proc(name).unwrap_or_else(|| panic!("{name}"));
        proc.frame()
            .unwrap_or_else(|| panic!("{name} has no frame"))
    };
    for name in ["framed", "framed_bare"] {
        let f = frame(name);
        assert_eq!(f.from_tables(), name == "framed");
        assert_eq!((f.size(), f.is_dynamic()), (96, false), "{name}");
        let saved: HashMap<Reg, i32> = f.saved_ints().collect();
        let expected = [(Reg::Rbp, -16), (Reg::R12, -24), (Reg::Rbx, -32)];
        assert_eq!(saved, HashMap::from(expected), "{name}");
        assert_eq!(f.int_mask(), 1 << 5 | 1 << 12 | 1 << 3);
        assert_eq!(
            (f.int_offset(), f.local_offset(), f.return_offset()),
            (Some(-16), -32, -8)
        );
        assert_eq!(
            (f.frame_reg(), f.float_mask()),
            (Some(Reg::Rbp), 0),
            "{name}"
        );
        assert_eq!(f.landing_size(), 4);
    }
    for name in ["leaf", "leaf_bare"] {
        let f = frame(name);
        assert_eq!(
            (f.size(), f.int_mask(), f.local_offset()),
            (8, 0, -8),
            "{name}"
        );
        assert_eq!((f.frame_reg(), f.int_offset()), (Some(Reg::Rsp), None));
        assert_eq!(f.landing_size(), 0);
    }
    for name in ["plain", "plain_bare"] {
        let f = frame(name);
        assert_eq!((f.size(), f.frame_reg()), (48, Some(Reg::Rsp)), "{name}");
        assert_eq!(f.saved_ints().collect::<Vec<_>>(), [(Reg::Rbx, -16)]);
    }
    let f = frame("probed");
    assert_eq!((f.size(), f.is_dynamic()), (8 + 0x5010, false));
    let f = frame("dynamic");
    assert_eq!((f.size(), f.is_dynamic()), (16, true));
    // Stores with mov, one of them of a value of its own.
    let f = frame("stores");
    assert_eq!(f.saved_ints().collect::<Vec<_>>(), [(Reg::R13, -24)]);
    assert_eq!(f.size(), 48);
}

/// Sizes of frames as the compiler tells them: `name size,name size`.
pub fn frame_sizes(program: &Program, expected: &str) {
    for item in expected.split(',') {
        let (name, size) = item.split_once(' ').expect("name and size");
        let frame = program.named_proc(name).expect(name).frame().expect(name);
        match size.strip_suffix('d') {
            Some(_) => assert!(frame.is_dynamic(), "{name}"),
            None => assert_eq!(
                (frame.size().to_string().as_str(), frame.is_dynamic()),
                (size, false),
                "{name}"
            ),
        }
    }
}

/// What must hold in every program.
pub fn any(program: &Program) {
    let mut accesses = 0;
    for proc in program.procs() {
        if let Some(frame) = proc.frame() {
            assert!(frame.size() >= 8 && frame.size() < 1 << 31, "{proc:?}");
            assert!(
                frame.local_offset() <= -8
                    || proc.status() == Status::Opaque
                    || proc.name().contains(".cold"),
                "{proc:?} {frame:?}"
            );
        }
        for block in proc.blocks() {
            for edge in block.successors() {
                if let Some(to) = edge.block {
                    let back = to.predecessors();
                    assert!(
                        back.iter()
                            .any(|e| e.block == Some(block) && e.kind == edge.kind)
                    );
                    assert_eq!(edge.address, Some(to.pc()));
                }
            }
            for inst in block.insts() {
                let memory = inst.memory();
                let (loads, stores) = (inst.is_type(InstType::Load), inst.is_type(InstType::Store));
                assert_eq!(
                    memory.iter().any(|m| m.access.reads()),
                    loads,
                    "{}",
                    inst.text()
                );
                assert_eq!(
                    memory.iter().any(|m| m.access.writes()),
                    stores,
                    "{}",
                    inst.text()
                );
                let usage = inst.reg_usage();
                assert!(usage.updated | usage.replaced == usage.updated);
                let control = [
                    InstType::CondBr,
                    InstType::UncondBr,
                    InstType::Jump,
                    InstType::Call,
                ];
                if control.iter().any(|t| inst.is_type(*t)) {
                    assert!(usage.updated.contains(Reg::Pc), "{}", inst.text());
                    assert!(inst.branch_target().is_ok());
                }
                for m in &memory {
                    for reg in [m.base, m.index, m.segment].into_iter().flatten() {
                        assert!(
                            usage.used.contains(reg) || reg == Reg::Rbp || reg == Reg::Pc,
                            "{}: {m:?}",
                            inst.text()
                        );
                    }
                }
                assert_eq!(
                    inst.info(InstInfo::OperandCount),
                    Some(inst.operands().len() as i64)
                );
                accesses += memory.len();
            }
        }
    }
    assert!(accesses > 0);
}
