//! System calls and functions that a stopped thread of another process makes.
//!
//! A thread makes a system call at an instruction `syscall` that is somewhere in the process, and is stopped where the call begins and
//! ends. A function returns to that instruction, where its end is noticed. Meanwhile signals wait; afterwards
//! registers and mask are as they were, and the thread is at the kernel's trap again, so that a system call that was
//! interrupted is made again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use atom_core::{Error, Result};

use super::maps::Map;
use super::trace::{self, DOING, How, PATIENCE, Registers, Stop};

/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Direction and trap flag.
const FLAGS: u64 = 1 << 10 | 1 << 8;
/// Signals that the processor raises; a blocked one would end the process.
const FAULTS: [i32; 6] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
];

/// No system call.
const NONE: u64 = u64::MAX;

fn fail(what: &str) -> Error {
    Error::new(DOING, what.to_owned())
}

fn failed(e: std::io::Error) -> Error {
    Error::new(DOING, e)
}

/// Address of an instruction `syscall` in the process.
pub fn find_syscall(maps: &[Map], memory: &File) -> Result<u64> {
    let is_first = |m: &&Map| m.path.as_os_str() == "[vdso]";
    let others = maps.iter().filter(|m| m.is_code() && m.is_file());
    for map in maps.iter().filter(is_first).chain(others) {
        let mut bytes = vec![0; (map.end - map.start) as usize];
        if memory.read_exact_at(&mut bytes, map.start).is_ok()
            && let Some(at) = bytes.windows(2).position(|w| w == SYSCALL)
        {
            return Ok(map.start + at as u64);
        }
    }
    Err(fail("no instruction for system calls is found in it"))
}

/// True if a thread was interrupted in a system call, which is made again.
pub fn is_in_call(registers: &Registers) -> bool {
    const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
    registers.orig_rax as i64 >= 0 && RESTARTS.contains(&(registers.rax as i64))
}

/// A stopped thread that works for this command.
pub struct Worker {
    tid: i32,
    syscall: u64,
    /// As the thread was found.
    registers: Registers,
    mask: u64,
    vectors: Vec<u8>,
    /// The last task that it has started.
    pub child: i32,
    /// Longest time that a call may take.
    patience: Duration,
    has_ended: bool,
}

impl Worker {
    /// Has a thread at the kernel's trap work. `syscall` is the address of such an instruction.
    pub fn new(tid: i32, syscall: u64) -> Result<Self> {
        let worker = Self {
            tid,
            syscall,
            registers: trace::registers(tid).map_err(failed)?,
            mask: trace::mask(tid).map_err(failed)?,
            vectors: trace::vectors(tid).map_err(failed)?,
            child: 0,
            patience: PATIENCE,
            has_ended: false,
        };
        let faults = FAULTS.iter().fold(0, |mask, signal| mask | 1u64 << (signal - 1));
        trace::set_mask(tid, !faults).map_err(failed)?;
        Ok(worker)
    }

    /// The thread is this command's own: it has other registers, its calls may take long, and nothing is given back.
    pub fn own(&mut self, change: impl FnOnce(&mut Registers)) {
        change(&mut self.registers);
        self.patience = Duration::MAX;
        self.has_ended = true;
    }

    /// Makes a system call; the kernel's answer.
    pub fn call(&mut self, number: i64, arguments: &[u64]) -> Result<i64> {
        let mut registers = self.registers;
        registers.rip = self.syscall;
        registers.rax = number as u64;
        registers.orig_rax = NONE;
        registers.eflags &= !FLAGS;
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ] = all;
        trace::set_registers(self.tid, &registers).map_err(failed)?;
        self.to_call()?;
        self.to_call()?;
        Ok(trace::registers(self.tid).map_err(failed)?.rax as i64)
    }

    /// As [`Self::call`]; an error if the kernel answers with one.
    pub fn made(&mut self, what: &str, number: i64, arguments: &[u64]) -> Result<u64> {
        let answer = self.call(number, arguments)?;
        if (-4095..0).contains(&answer) {
            let e = std::io::Error::from_raw_os_error(-answer as i32);
            return Err(fail(&format!("{what}: {e}")));
        }
        Ok(answer as u64)
    }

    /// Calls a function, with its answer, on the stack that ends at `stack`, a multiple of 16.
    pub fn function(&mut self, memory: &File, address: u64, arguments: [u64; 2], stack: u64) -> Result<u64> {
        let mut registers = self.registers;
        registers.rip = address;
        [registers.rdi, registers.rsi] = arguments;
        registers.rsp = stack - 8;
        registers.rbp = 0;
        registers.orig_rax = NONE;
        registers.eflags &= !FLAGS;
        memory.write_all_at(&self.syscall.to_le_bytes(), stack - 8).map_err(failed)?;
        trace::set_registers(self.tid, &registers).map_err(failed)?;
        loop {
            self.to_call()?;
            let mut now = trace::registers(self.tid).map_err(failed)?;
            let answer = now.rax;
            let is_end = now.rsp == stack && now.rip == self.syscall + SYSCALL.len() as u64;
            if is_end {
                now.orig_rax = NONE;
                trace::set_registers(self.tid, &now).map_err(failed)?;
            }
            self.to_call()?;
            if is_end {
                // The function has set the base of gs for the thread.
                let after = trace::registers(self.tid).map_err(failed)?;
                self.registers.gs_base = after.gs_base;
                return Ok(answer);
            }
        }
    }

    /// Lets the thread continue to the begin or the end of a system call.
    fn to_call(&mut self) -> Result<()> {
        trace::resume(self.tid, How::ToCall, 0).map_err(failed)?;
        loop {
            match trace::wait(self.tid, self.patience) {
                Some(Stop::Call) => return Ok(()),
                Some(Stop::Child(child)) => self.child = child,
                Some(Stop::Signal(signal)) if FAULTS.contains(&signal) => {
                    return Err(fail(&format!("a call in it ended with the signal {signal}")));
                }
                Some(Stop::Ended) => return Err(fail("it has ended")),
                Some(_) => {}
                None => return Err(fail("a call in it does not end")),
            }
            trace::resume(self.tid, How::ToCall, 0).map_err(failed)?;
        }
    }

    /// Ends the work: the thread is at the trap again, as it was found.
    pub fn end(mut self) -> Result<()> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        trace::interrupt(self.tid);
        trace::resume(self.tid, How::Freely, 0).map_err(failed)?;
        if !trace::wait_for_trap(self.tid)? {
            return Err(fail("it has ended"));
        }
        trace::set_vectors(self.tid, &self.vectors).map_err(failed)?;
        trace::set_mask(self.tid, self.mask).map_err(failed)?;
        trace::set_registers(self.tid, &self.registers).map_err(failed)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Where this fails, the reason why the worker is dropped is told.
        self.give_back().unwrap_or_default();
    }
}
