//! Going through procedures, blocks and instructions, and between them.

use super::handles::{block, inst, of_block, of_inst, of_proc, proc, program};

macro_rules! steps {
    ($($name:ident($from:ident) => $to:ident, $step:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: usize) -> usize {
            let from = $from(handle, stringify!($name));
            $to(($step)(from))
        }
    )*};
}

steps! {
    GetNextProc(proc) => of_proc, |p: atom_tool::Proc<'static>| p.next();
    GetPrevProc(proc) => of_proc, |p: atom_tool::Proc<'static>| p.prev();
    GetFirstBlock(proc) => of_block, |p: atom_tool::Proc<'static>| p.first_block();
    GetLastBlock(proc) => of_block, |p: atom_tool::Proc<'static>| p.last_block();
    GetNextBlock(block) => of_block, |b: atom_tool::Block<'static>| b.next();
    GetPrevBlock(block) => of_block, |b: atom_tool::Block<'static>| b.prev();
    GetFirstInst(block) => of_inst, |b: atom_tool::Block<'static>| Some(b.first_inst());
    GetLastInst(block) => of_inst, |b: atom_tool::Block<'static>| Some(b.last_inst());
    GetNextInst(inst) => of_inst, |i: atom_tool::Inst<'static>| i.next();
    GetPrevInst(inst) => of_inst, |i: atom_tool::Inst<'static>| i.prev();
    GetBlockProc(block) => of_proc, |b: atom_tool::Block<'static>| Some(b.proc());
    GetInstBlock(inst) => of_block, |i: atom_tool::Inst<'static>| Some(i.block());
    GetInstProc(inst) => of_proc, |i: atom_tool::Inst<'static>| Some(i.proc());
}

#[unsafe(no_mangle)]
extern "C" fn GetFirstProc() -> usize {
    of_proc(program().first_proc())
}

#[unsafe(no_mangle)]
extern "C" fn GetLastProc() -> usize {
    of_proc(program().last_proc())
}

#[unsafe(no_mangle)]
extern "C" fn GetProcAt(pc: u64) -> usize {
    of_proc(program().proc_at(pc))
}

#[unsafe(no_mangle)]
extern "C" fn GetInstAt(pc: u64) -> usize {
    of_inst(program().inst_at(pc))
}

macro_rules! numbers {
    ($($name:ident($from:ident) => $number:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: usize) -> i64 {
            let from = $from(handle, stringify!($name));
            ($number)(from) as i64
        }
    )*};
}

numbers! {
    ProcPC(proc) => |p: atom_tool::Proc<'static>| p.pc();
    BlockPC(block) => |b: atom_tool::Block<'static>| b.pc();
    InstPC(inst) => |i: atom_tool::Inst<'static>| i.pc();
    ProcSize(proc) => |p: atom_tool::Proc<'static>| p.size();
    InstSize(inst) => |i: atom_tool::Inst<'static>| i.size();
    ProcIndex(proc) => |p: atom_tool::Proc<'static>| p.index();
    BlockIndex(block) => |b: atom_tool::Block<'static>| b.index();
    InstIndex(inst) => |i: atom_tool::Inst<'static>| i.index();
    InstLineNo(inst) => |i: atom_tool::Inst<'static>| i.line().map_or(0, |line| line.1);
}
