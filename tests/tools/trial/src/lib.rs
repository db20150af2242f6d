//! The tool of the host side's tests: its first argument says what it tries.

mod queries;

use std::collections::HashSet;
use std::ffi::c_char;

use atom_tool::Status;
use atom_tool::prelude::*;

#[analysis]
fn nothing() {}

#[analysis]
fn ten(a: u8, b: i8, c: u16, d: i32, e: u64, f: i64, g: bool, h: Str, i: Array<i32>, j: usize) {
    let _ = (a, b, c, d, e, f, g, h, i, j);
}

#[analysis]
fn cond_branch(n: i32, taken: Value) {
    let _ = (n, taken);
}

#[analysis]
fn access(counter: Counter<3>, address: u64, stack: RegV) {
    let _ = (address, stack);
    counter.add_to(2, 1);
}

#[analysis]
fn table(counters: Counters<3>, names: Strings) {
    let _ = (counters, names);
}

#[analysis]
fn by_name(c: c_char, s: Str, z: *const c_char, a: Array<i64>, b: *const i32, r: RegV, v: u64) {
    let _ = (c, s, z, a, b, r, v);
}

#[analysis]
fn vector(half: RegV) {
    let _ = half;
}

fn conditional_branch<'a>(program: &Program<'a>) -> Inst<'a> {
    let insts = program
        .procs()
        .flat_map(|p| p.blocks())
        .map(|b| b.last_inst());
    insts
        .into_iter()
        .find(|i| i.is_type(InstType::CondBr))
        .expect("a conditional branch")
}

fn first_inst<'a>(program: &Program<'a>, of: &str) -> Inst<'a> {
    let proc = program.named_proc(of).expect("the procedure");
    proc.first_block().expect("its first block").first_inst()
}

/// Both ways through the program, and every way back up.
fn walk(program: &Program) {
    let procs: Vec<Proc> = program.procs().collect();
    assert_eq!(procs.len(), program.procs().len());
    assert_eq!(procs.first().copied(), program.first_proc());
    assert_eq!(procs.last().copied(), program.last_proc());
    assert!(program.procs().rev().eq(procs.iter().rev().copied()));
    assert!(procs.is_sorted_by_key(|p| p.pc()));
    let (mut blocks, mut insts) = (0, 0);
    let mut seen = HashSet::new();
    for (i, proc) in procs.iter().enumerate() {
        assert_eq!(proc.index(), i);
        assert_eq!(proc.next(), procs.get(i + 1).copied());
        assert_eq!(proc.prev(), i.checked_sub(1).map(|i| procs[i]));
        assert_eq!(program.proc_at(proc.pc()), Some(*proc));
        assert!(!proc.name().is_empty() && !proc.symbol().is_empty());
        assert_eq!(proc.status() == Status::Opaque, proc.blocks().len() == 0);
        assert_eq!(proc.first_block(), proc.blocks().next());
        assert_eq!(proc.last_block(), proc.blocks().next_back());
        let all: Vec<Block> = proc.blocks().collect();
        for (i, block) in all.iter().enumerate() {
            assert_eq!(block.proc(), *proc);
            assert_eq!(block.next(), all.get(i + 1).copied());
            assert_eq!(block.prev(), i.checked_sub(1).map(|i| all[i]));
            let all: Vec<Inst> = block.insts().collect();
            assert_eq!(block.first_inst(), all[0]);
            assert_eq!(block.last_inst(), all[all.len() - 1]);
            assert_eq!(block.pc(), all[0].pc());
            for (i, inst) in all.iter().enumerate() {
                assert!(seen.insert(inst.pc()));
                assert_eq!((inst.block(), inst.proc()), (*block, *proc));
                assert_eq!(inst.next(), all.get(i + 1).copied());
                assert_eq!(inst.prev(), i.checked_sub(1).map(|i| all[i]));
                assert_eq!(program.inst_at(inst.pc()), Some(*inst));
                assert_eq!(inst.bytes().len(), inst.size());
                if let Some(next) = inst.next() {
                    assert_eq!(next.pc(), inst.pc() + inst.size() as u64);
                    let control = [
                        InstType::CondBr,
                        InstType::UncondBr,
                        InstType::Ret,
                        InstType::Call,
                    ];
                    assert!(
                        !control.iter().any(|t| inst.is_type(*t)),
                        "{} in a block",
                        inst.text()
                    );
                }
                if let Some(target) = inst.target() {
                    assert_eq!(Some(target.pc()), inst.target_pc());
                }
                assert!(!inst.text().is_empty());
                inst.class();
                insts += 1;
            }
            blocks += 1;
        }
    }
    assert_eq!(
        (blocks, insts),
        (program.block_count(), program.inst_count())
    );
}

/// What the test's C program is known to contain.
fn look(program: &Program) {
    let main = program.named_proc("main").expect("main");
    let square = program.named_proc("square").expect("square");
    assert_eq!((main.name(), main.symbol()), ("main", "main"));
    assert!(program.named_proc("no such procedure").is_none());
    assert_eq!(program.name(), "trial.bin");
    assert!(program.path().ends_with("trial.bin"));
    let called: Vec<Proc> = main
        .blocks()
        .filter_map(|block| block.last_inst().called_proc())
        .collect();
    assert!(called.contains(&square), "{called:?}");
    assert!(called.iter().any(|p| p.name() == "puts@plt"), "{called:?}");
    let ret = square.last_block().expect("a block").last_inst();
    assert!(ret.is_type(InstType::Ret) && ret.is_type(InstType::Jump));
    assert_eq!((ret.class(), ret.text()), (Class::Subroutine, "ret"));
    let branch = conditional_branch(program);
    assert_eq!(branch.class(), Class::Ibranch);
    assert!(branch.target().is_some());
    assert!(first_inst(program, "main").line().is_none());
}

fn calls(program: &Program) -> Result {
    let table_of_3 = program.counters::<3>(5);
    let mut names = StringList::new();
    names.push("größe");
    let branch = conditional_branch(program);
    let args = (
        200,
        -1,
        60000,
        -2,
        u64::MAX,
        -3,
        true,
        "text",
        &[1, -2, 3],
        9,
    );
    program.add_call(Before, ten, args);
    branch.add_call(Before, cond_branch, (7, BrCondValue));
    branch.block().add_call(After, nothing, ());
    branch.proc().add_call(Before, nothing, ());
    let push = first_inst(program, "main");
    push.add_call(Before, access, (table_of_3.at(4), EffAddrValue, Reg::Rsp));
    program.add_call(After, table, (table_of_3, &names));

    program.add_call_proto("nothing()")?;
    program.add_call_proto(
        "void by_name(char c, char *s, char*, long all[2], int[1], REGV sp, VALUE);",
    )?;
    let args = [
        200.into(),
        "s".into(),
        "z".into(),
        [1i64, 2].as_slice().into(),
        [-1i32].as_slice().into(),
        Reg::Pc.into(),
        EffAddrValue.into(),
    ];
    push.add_call_named(Before, "by_name", &args)?;
    push.add_call_named(After, "nothing", &[])?;
    Ok(())
}

/// Each of these must fail, with the text that the test knows.
fn refused(program: &Program, what: &str) -> Result {
    let branch = conditional_branch(program);
    let inst = first_inst(program, "main");
    let main = program.named_proc("main").expect("main");
    let mut all = main.blocks().flat_map(|b| b.insts());
    let store = all
        .find(|i| i.is_type(InstType::Store) && !i.is_type(InstType::Call))
        .expect("a store");
    match what {
        "not-a-branch" => inst.add_call(Before, cond_branch, (1, BrCondValue)),
        "after-a-branch" => branch.add_call(After, cond_branch, (1, BrCondValue)),
        "branch-of-block" => branch
            .block()
            .add_call(Before, cond_branch, (1, BrCondValue)),
        "no-memory" => branch.add_call(Before, cond_branch, (1, EffAddrValue)),
        "loaded-by-branch" => branch.add_call(Before, cond_branch, (1, LoadedValue)),
        "no-such-operand" => store.add_call(Before, cond_branch, (1, EffAddrOf(5))),
        "not-a-vector" => inst.add_call(Before, vector, (HighHalf(Reg::Rax),)),
        "no-avx512" => inst.add_call(Before, vector, (Reg::Xmm20,)),
        "target-of-plain" => store.add_call(Before, cond_branch, (1, BranchTarget)),
        "value-of-block" => branch
            .block()
            .add_call(Before, cond_branch, (1, StoredValue)),
        "register-of-program" => {
            let counters = program.counters::<3>(1);
            program.add_call(Before, access, (counters.at(0), 0, Reg::Rax));
        }
        "opaque" => {
            let opaque = program.procs().find(|p| p.status() == Status::Opaque);
            opaque
                .ok_or("no opaque procedure")?
                .add_call(Before, nothing, ());
        }
        "null-inside" => {
            program.add_call_proto("by_name(char,char*,char*,long[1],int[1],REGV,VALUE)")?;
            let (a, b) = ([1i64], [1i32]);
            let args = [
                1.into(),
                "s".into(),
                "a\0b".into(),
                a.as_slice().into(),
                b.as_slice().into(),
                Reg::Rax.into(),
                EffAddrValue.into(),
            ];
            inst.add_call_named(Before, "by_name", &args)?;
        }
        "two-errors" => {
            inst.add_call(Before, cond_branch, (1, BrCondValue));
            inst.add_call(After, cond_branch, (1, BrCondValue));
        }
        "too-much-data" => drop(program.counters::<1>(1 << 40)),
        "lacking-data" => {
            let counters = program.counters::<3>(1 << 40);
            for inst in main.blocks().flat_map(|b| b.insts()) {
                inst.add_call(Before, access, (counters.at(0), 0, Reg::Rax));
            }
        }
        "unknown-routine" => program.add_call_proto("missing(int)")?,
        "no-prototype" => program.add_call_named(Before, "nothing", &[])?,
        "prototype-count" => program.add_call_proto("cond_branch(int)")?,
        "prototype-type" => program.add_call_proto("cond_branch(long, VALUE)")?,
        "bad-type" => program.add_call_proto("cond_branch(double, VALUE)")?,
        "no-list" => program.add_call_proto("cond_branch")?,
        "argument-count" => {
            program.add_call_proto("cond_branch(int, VALUE)")?;
            branch.add_call_named(Before, "cond_branch", &[1.into()])?;
        }
        "argument-range" => {
            program.add_call_proto("cond_branch(int, VALUE)")?;
            let args = [(1u64 << 32).into(), BrCondValue.into()];
            branch.add_call_named(Before, "cond_branch", &args)?;
        }
        "argument-type" => {
            program.add_call_proto("cond_branch(int, VALUE)")?;
            branch.add_call_named(Before, "cond_branch", &["one".into(), BrCondValue.into()])?;
        }
        "chain" => {
            "x".parse::<u32>()
                .map_err(|e| format!("reading the limit: {e}"))?;
        }
        _ => return Err(format!("the test tool does not know `{what}`").into()),
    }
    Ok(())
}

fn instrument(program: &Program, args: &Args) -> Result {
    match *args.as_slice() {
        ["walk"] => walk(program),
        ["look"] => look(program),
        ["queries"] => queries::look(program),
        ["any"] => queries::any(program),
        ["info", expected] => queries::info(program, expected),
        ["name", expected] => queries::name(program, expected),
        ["frame-sizes", expected] => queries::frame_sizes(program, expected),
        ["calls"] => calls(program)?,
        ["refused", what] => refused(program, what)?,
        ["panic"] => panic!("out of {}", "luck"),
        ["overflow"] => drop(program.counters::<1>(1).at(args.as_slice().len())),
        ["options", ..] => {
            let options = args.options();
            options.flag("options");
            options.value("--output")?;
            options.finish()?;
        }
        _ => return Err("what shall it try?".into()),
    }
    Ok(())
}

atom_tool::tool!(instrument);
