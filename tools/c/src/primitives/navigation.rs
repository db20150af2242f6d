//! Going through procedures, blocks and instructions, and between them.

use super::handles::{of_block, of_inst, of_proc, primitives, program};

primitives! {
    fn GetNextProc(p: proc) -> usize { of_proc(p.next()) }
    fn GetPrevProc(p: proc) -> usize { of_proc(p.prev()) }
    fn GetFirstBlock(p: proc) -> usize { of_block(p.first_block()) }
    fn GetLastBlock(p: proc) -> usize { of_block(p.last_block()) }
    fn GetNextBlock(b: block) -> usize { of_block(b.next()) }
    fn GetPrevBlock(b: block) -> usize { of_block(b.prev()) }
    fn GetFirstInst(b: block) -> usize { of_inst(Some(b.first_inst())) }
    fn GetLastInst(b: block) -> usize { of_inst(Some(b.last_inst())) }
    fn GetNextInst(i: inst) -> usize { of_inst(i.next()) }
    fn GetPrevInst(i: inst) -> usize { of_inst(i.prev()) }
    fn GetBlockProc(b: block) -> usize { of_proc(Some(b.proc())) }
    fn GetInstBlock(i: inst) -> usize { of_block(Some(i.block())) }
    fn GetInstProc(i: inst) -> usize { of_proc(Some(i.proc())) }

    fn ProcPC(p: proc) -> i64 { p.pc() as i64 }
    fn BlockPC(b: block) -> i64 { b.pc() as i64 }
    fn InstPC(i: inst) -> i64 { i.pc() as i64 }
    fn ProcSize(p: proc) -> i64 { p.size() as i64 }
    fn InstSize(i: inst) -> i64 { i.size() as i64 }
    fn ProcIndex(p: proc) -> i64 { p.index() as i64 }
    fn BlockIndex(b: block) -> i64 { b.index() as i64 }
    fn InstIndex(i: inst) -> i64 { i.index() as i64 }
    fn InstLineNo(i: inst) -> i64 { i.line().map_or(0, |line| line.1.into()) }
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
