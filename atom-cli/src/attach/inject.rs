//! System calls and functions that a stopped thread of another process makes.
//!
//! A thread makes a system call at an instruction `syscall` of the process, and is stopped where the call begins and
//! ends. Meanwhile signals wait; afterwards registers and mask are as they were, and the thread is at the kernel's trap again, so that a
//! system call that was interrupted is made again.
//!
//! This command may be ended at any moment. Then the thread continues by itself: after the system call, or when the function
//! returns, it comes to a *frame* as the kernel makes for signal handlers, and gives itself by `rt_sigreturn` the state that it had.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

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

/// Pieces of code in the process.
#[derive(Clone, Copy)]
pub struct Code {
    /// `syscall; ret`.
    pub call: u64,
    /// The system call `rt_sigreturn`.
    pub restore: u64,
    /// Words that it takes from the stack before the call, in front of the state; `None` if it takes none.
    pub taken: Option<[u64; 2]>,
    /// Where functions return to: that is noted in the frame, and the thread sleeps for a while before it is restored.
    pub returned: u64,
    /// The address after all of it.
    pub end: u64,
}

/// `mov rax, 15; syscall` and `mov eax, 15; syscall`, as C libraries have it.
const RESTORERS: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 15, 0, 0, 0, 0x0f, 0x05],
];
/// `pop rax; ret`.
const POP: [u8; 2] = [0x58, 0xc3];
/// `syscall; ret`.
const CALL: [u8; 3] = [SYSCALL[0], SYSCALL[1], 0xc3];

impl Code {
    /// The code of [`Self::bytes`] at an address.
    pub fn at(address: u64) -> Self {
        let end = address + Self::bytes().len() as u64;
        Self {
            call: address,
            returned: address + CALL.len() as u64,
            restore: end - RESTORERS[1].len() as u64,
            taken: None,
            end,
        }
    }

    /// Code that has all pieces.
    pub fn bytes() -> Vec<u8> {
        /// Seconds for which a thread sleeps.
        const SLEEP: u32 = 2;
        let place = |word: u32| (NOTES + 8 * word).to_le_bytes();
        // mov [rsp + place], rax
        let answer = [&[0x48, 0x89, 0x84, 0x24][..], &place(1)].concat();
        // mov qword ptr [rsp + place], value
        let note = |word: u32, value: u32| {
            [
                &[0x48, 0xc7, 0x84, 0x24][..],
                &place(word),
                &value.to_le_bytes(),
            ]
            .concat()
        };
        // lea rdx, [rsp + place]; xor edi, edi; xor esi, esi; xor r10d, r10d; mov r8d, 8; mov eax, ppoll; syscall. This call keeps
        // what the kernel has noted of a sleep that was interrupted.
        let time = [&[0x48, 0x8d, 0x94, 0x24][..], &place(2)].concat();
        let none = [
            0x31, 0xff, 0x31, 0xf6, 0x45, 0x31, 0xd2, 0x41, 0xb8, 8, 0, 0, 0, 0xb8,
        ];
        let number = (libc::SYS_ppoll as u32).to_le_bytes();
        [
            &CALL[..],
            &answer,
            &note(2, SLEEP),
            &note(3, 0),
            &note(0, 1),
            &time,
            &none,
            &number,
            &SYSCALL,
            RESTORERS[1],
        ]
        .concat()
    }

    /// Finds the pieces in the process. A static program without signal handlers makes no system call `rt_sigreturn`; `pop rax` and
    /// any system call, one after the other, do the same.
    pub fn find(maps: &[Map], memory: &File) -> Result<Self> {
        let (mut call, mut restore, mut pop) = (None, None, None);
        for map in maps.iter().filter(|m| m.is_code() && m.is_file()) {
            let mut bytes = vec![0; (map.end - map.start) as usize];
            if memory.read_exact_at(&mut bytes, map.start).is_err() {
                continue;
            }
            let find = |what: &[u8]| memchr(&bytes, what).map(|at| map.start + at as u64);
            call = call.or_else(|| find(&CALL));
            pop = pop.or_else(|| find(&POP));
            restore = restore.or_else(|| {
                let found = RESTORERS.iter().map(|r| Some((find(r)?, r.len() as u64)));
                found.flatten().next()
            });
            if let (Some(call), Some((restore, size))) = (call, restore) {
                return Ok(Self {
                    call,
                    restore,
                    taken: None,
                    returned: restore,
                    end: restore + size,
                });
            }
        }
        let (Some(call), Some(pop)) = (call, pop) else {
            return Err(fail("it has no code for system calls that is known"));
        };
        Ok(Self {
            call,
            restore: pop,
            taken: Some([libc::SYS_rt_sigreturn as u64, call]),
            returned: pop,
            end: pop + POP.len() as u64,
        })
    }
}

/// Where bytes are in others.
fn memchr(bytes: &[u8], what: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|b| *b == what[0]) {
        from += at;
        if bytes[from..].starts_with(what) {
            return Some(from);
        }
        from += 1;
    }
    None
}

/// Largest size of a frame in bytes, with the notes at its end.
pub const FRAME: u64 = 1 << 14;
/// Distance in bytes of the notes of [`Code::returned`] from the stack pointer there: 1 when a function has returned, its answer, and a time.
const NOTES: u32 = FRAME as u32 - 72;

/// The bytes of a frame at an address, with an address to return to, and what is taken there, in front of the kernel's `ucontext`. `vectors` may be empty.
pub fn frame(code: &Code, at: u64, registers: &Registers, mask: u64, vectors: &[u8]) -> Vec<u8> {
    const XSTATE_AND_SS: u64 = 7;
    /// The kernel leaves the alternate stack alone if it is nonsense.
    const NO_STACK: [u64; 3] = [0, 0xffff, 0];
    /// Number of words of the kernel's structure.
    const WORDS: usize = 38;
    const MAGIC: [u32; 2] = [0x4650_5853, 0x4650_5845];
    let r = registers;
    let mut words = vec![code.returned];
    words.extend(code.taken.iter().flatten());
    let after = at + 8 * (words.len() + WORDS) as u64;
    let state = after.next_multiple_of(64);
    let pointer = if vectors.is_empty() { 0 } else { state };
    words.extend([XSTATE_AND_SS, 0]);
    words.extend(NO_STACK);
    words.extend([r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15]);
    words.extend([
        r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags,
    ]);
    // Selectors of four segments, error, trap number, old mask, fault address, vectors.
    words.extend([r.cs | r.ss << 48, 0, 0, 0, 0, pointer]);
    words.extend([0; 8]);
    words.push(mask);
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    if vectors.is_empty() {
        return bytes;
    }
    bytes.resize((state - at) as usize, 0);
    let start = bytes.len();
    bytes.extend(vectors);
    // What the kernel writes into the reserved bytes of the old part: a mark, sizes and the features.
    let size = vectors.len() as u32;
    let mut put = |offset: usize, value: u32| {
        bytes[start + offset..][..4].copy_from_slice(&value.to_le_bytes())
    };
    let features = u64::from_le_bytes(vectors[464..472].try_into().expect("eight bytes"));
    put(464, MAGIC[0]);
    put(468, size + 4);
    put(472, features as u32);
    put(476, (features >> 32) as u32);
    put(480, size);
    bytes.extend(MAGIC[1].to_le_bytes());
    bytes
}

/// True if a thread was interrupted in a system call, which is made again.
pub fn is_in_call(registers: &Registers) -> bool {
    const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
    registers.orig_rax as i64 >= 0 && RESTARTS.contains(&(registers.rax as i64))
}

/// A stopped thread that works for this command.
pub struct Worker {
    tid: i32,
    code: Code,
    /// Address of its frame, which is the end of its stack, too.
    frame: u64,
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
    /// Has a thread at the kernel's trap work. It has a frame at `frame`, 8 bytes after a multiple of 16, and a stack in front of it. With 0
    /// for `frame` there is none: then this command must not be ended for some microseconds.
    pub fn new(tid: i32, code: Code, memory: &File, frame: u64) -> Result<Self> {
        let registers = trace::registers(tid).map_err(failed)?;
        let mut worker = Self {
            tid,
            code,
            frame,
            registers,
            mask: trace::mask(tid).map_err(failed)?,
            vectors: trace::vectors(tid).map_err(failed)?,
            child: 0,
            patience: PATIENCE,
            has_ended: true,
        };
        let faults = FAULTS
            .iter()
            .fold(0, |mask, signal| mask | 1u64 << (signal - 1));
        if frame != 0 {
            let mut back = registers;
            if is_in_call(&registers) {
                back.rip -= SYSCALL.len() as u64;
                back.rax = back.orig_rax;
            }
            let bytes = self::frame(&code, frame, &back, worker.mask, &worker.vectors);
            memory.write_all_at(&bytes, frame).map_err(failed)?;
            worker.idle(&registers)?;
        }
        worker.has_ended = false;
        trace::set_mask(tid, !faults).map_err(failed)?;
        Ok(worker)
    }

    /// Has a task of this command's own work, which ends with this command: its calls may take long, and nothing is given back.
    pub fn own(tid: i32, code: Code, frame: u64) -> Result<Self> {
        Ok(Self {
            tid,
            code,
            frame,
            registers: trace::registers(tid).map_err(failed)?,
            mask: 0,
            vectors: Vec::new(),
            child: 0,
            patience: Duration::MAX,
            has_ended: true,
        })
    }

    /// Changes what registers a task of this command's own has at the begin of each call.
    pub fn change(&mut self, change: impl FnOnce(&mut Registers)) {
        change(&mut self.registers);
    }

    /// From now on it works with this code and frame.
    pub fn settle(&mut self, code: Code, frame: u64) {
        (self.code, self.frame) = (code, frame);
    }

    /// Makes a system call; the kernel's answer.
    pub fn call(&mut self, number: i64, arguments: &[u64]) -> Result<i64> {
        let mut registers = self.registers;
        registers.rip = self.code.call;
        if self.frame != 0 {
            registers.rsp = self.frame;
        }
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
        self.run_to_call()?;
        self.run_to_call()?;
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

    /// Calls a function; its answer. The thread runs freely meanwhile, as stops take long where there is other work.
    pub fn function(&mut self, memory: &File, address: u64, arguments: [u64; 2]) -> Result<u64> {
        let mut registers = self.registers;
        registers.rip = address;
        [registers.rdi, registers.rsi] = arguments;
        registers.rsp = self.frame;
        registers.rbp = 0;
        registers.orig_rax = NONE;
        registers.eflags &= !FLAGS;
        let notes = self.frame + 8 + u64::from(NOTES);
        memory.write_all_at(&[0; 16], notes).map_err(failed)?;
        trace::set_registers(self.tid, &registers).map_err(failed)?;
        trace::resume(self.tid, How::Freely, 0).map_err(failed)?;
        let mut words = [0; 16];
        let start = Instant::now();
        while words[0] == 0 {
            match trace::wait(self.tid, Duration::ZERO) {
                None if start.elapsed() > self.patience => {
                    return Err(fail("a call in it does not end"));
                }
                None => {}
                Some(Stop::Signal(signal)) if FAULTS.contains(&signal) => {
                    return Err(fail(&format!(
                        "a call in it ended with the signal {signal}"
                    )));
                }
                Some(Stop::Ended) => return Err(fail("it has ended")),
                Some(_) => trace::resume(self.tid, How::Freely, 0).map_err(failed)?,
            }
            trace::pause(start.elapsed());
            memory.read_exact_at(&mut words, notes).map_err(failed)?;
        }
        trace::interrupt(self.tid);
        if !trace::wait_for_trap(self.tid)? {
            return Err(fail("it has ended"));
        }
        let after = trace::registers(self.tid).map_err(failed)?;
        if !(self.code.call..self.code.end).contains(&after.rip) {
            // It was not stopped in time, and continues by itself.
            self.has_ended = true;
            return Err(fail("this machine has too much other work").advice("try again"));
        }
        // The function has set the base of gs for the thread.
        self.registers.gs_base = after.gs_base;
        // Until the end of the work the frame is where the thread would continue.
        self.idle(&after)?;
        Ok(u64::from_le_bytes(
            words[8..].try_into().expect("eight bytes"),
        ))
    }

    /// Lets the thread continue at its frame, if this command ends.
    fn idle(&self, now: &Registers) -> Result<()> {
        let mut idle = *now;
        idle.orig_rax = NONE;
        idle.rip = self.code.restore;
        idle.rsp = self.frame + 8;
        trace::set_registers(self.tid, &idle).map_err(failed)
    }

    /// Lets the thread continue to the begin or the end of a system call.
    fn run_to_call(&mut self) -> Result<()> {
        trace::resume(self.tid, How::ToCall, 0).map_err(failed)?;
        loop {
            match trace::wait(self.tid, self.patience) {
                Some(Stop::Call) => return Ok(()),
                Some(Stop::Child(child)) => self.child = child,
                Some(Stop::Signal(signal)) if FAULTS.contains(&signal) => {
                    return Err(fail(&format!(
                        "a call in it ended with the signal {signal}"
                    )));
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
        // The base of gs is in no frame; the rest would come from it now.
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
