//! Leaving: the process runs as it did before it was entered.
//!
//! All threads are stopped. Those that are in inserted code continue until they are between two instructions of the program. Then the
//! originals' text comes back, object by object, and each thread continues in it. At each moment the process is right.

use std::thread::sleep;
use std::time::{Duration, Instant};

use atom_abi::Attached as Command;
use atom_core::{Error, Result};

use super::enter::Attached;
use super::inject::{Worker, is_in_call};
use super::maps;
use super::table::Place;
use super::trace::{self, How, Registers, Stop, Threads};
use super::urgent::Urgent;

const DOING: &str = "leaving the process";

/// Size in bytes of the instruction `syscall`.
const SYSCALL: u64 = 2;
/// The trap flag.
const TRAP: u64 = 1 << 8;
/// Longest time until all threads are between two instructions.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for which a thread in inserted code or the tool's runs before the next look.
const ROUND: Duration = Duration::from_micros(20);
/// How often a thread in inserted code runs, before it makes single steps.
const ROUNDS: u32 = 100;
/// Most single steps in a row.
const STEPS: u32 = 2000;

fn failed(e: std::io::Error) -> Error {
    Error::new(DOING, e)
}

/// Where a thread is.
enum At {
    /// Where it may stay, or at an instruction of the new text that has this address in the old one.
    Outside(Option<u64>),
    /// In inserted code, or at a pad.
    Inserted,
    /// In code of the tool or the runtime.
    Tool,
}

impl Attached {
    /// Leaves. Returns how long all threads were stopped.
    pub fn leave(&mut self) -> Result<Duration> {
        let start = Instant::now();
        let _urgent = Urgent::with(self.helper.pid);
        loop {
            let begin = Instant::now();
            let mut threads = Threads::stop(self.pid)?;
            if self.settle(&mut threads, start)? {
                self.leave_in(&threads)?;
                drop(threads);
                return Ok(begin.elapsed());
            }
            drop(threads);
            if start.elapsed() > PATIENCE {
                return Err(
                    Error::new(DOING, "a thread does not come out of the tool's code")
                        .advice("it stays instrumented; attach again, or end it"),
                );
            }
            sleep(Duration::from_millis(1));
        }
    }

    /// Brings all threads to places between two instructions of the program. False if that takes too long. Those that are elsewhere
    /// run together, as one may wait for a lock of the tool that another one has.
    fn settle(&self, threads: &mut Threads, start: Instant) -> Result<bool> {
        let mut all = threads.all.clone();
        for round in 1.. {
            let mut elsewhere = Vec::new();
            for tid in all {
                if !self.is_settled(tid, round > ROUNDS)? {
                    elsewhere.push(tid);
                }
            }
            if start.elapsed() > PATIENCE {
                return Ok(false);
            }
            if elsewhere.is_empty() {
                // Those that have run may have started others.
                let known = threads.all.len();
                threads.stop_new()?;
                elsewhere = threads.all[known..].to_vec();
                if elsewhere.is_empty() {
                    break;
                }
            } else {
                trace::run_for(self.pid, &elsewhere, ROUND)?;
            }
            all = elsewhere;
        }
        Ok(true)
    }

    /// True if a thread is at such a place, or has ended. `steps` is true if it may make single steps to get there: if this command
    /// were ended in a step, the thread would get a signal for it.
    fn is_settled(&self, tid: i32, steps: bool) -> Result<bool> {
        let Ok(registers) = trace::registers(tid) else {
            return Ok(true);
        };
        let is_traced = registers.eflags & TRAP != 0;
        match self.at(&registers) {
            At::Outside(_) => Ok(!is_traced),
            At::Inserted if !is_traced && steps => {
                Ok(!self.step(tid)? || self.is_settled(tid, false)?)
            }
            _ => Ok(false),
        }
    }

    /// Lets a thread in inserted code make single steps until it is elsewhere. False if it has ended.
    fn step(&self, tid: i32) -> Result<bool> {
        let mut is_there = true;
        let mut signal = 0;
        for _ in 0..STEPS {
            if trace::resume(tid, How::Step, std::mem::take(&mut signal)).is_err() {
                is_there = false;
                break;
            }
            match trace::wait(tid, trace::PATIENCE) {
                Some(Stop::Signal(libc::SIGTRAP) | Stop::Trap) => {}
                Some(Stop::Ended) | None => {
                    is_there = false;
                    break;
                }
                Some(Stop::Signal(other)) => {
                    signal = other;
                    continue;
                }
                Some(_) => break,
            }
            let registers = trace::registers(tid).map_err(failed)?;
            if !matches!(self.at(&registers), At::Inserted) {
                break;
            }
        }
        if !is_there {
            return Ok(false);
        }
        // To the kernel's trap, from which an interrupted system call is made again.
        trace::interrupt(tid);
        trace::resume(tid, How::Freely, signal).map_err(failed)?;
        trace::wait_for_trap(tid)
    }

    /// Where a stopped thread is.
    fn at(&self, registers: &Registers) -> At {
        let back = if is_in_call(registers) { SYSCALL } else { 0 };
        let at = registers.rip - back;
        let [start, _, end] = self.files.entrance.area;
        if (start..end).contains(&at) {
            return At::Tool;
        }
        for object in &self.objects {
            let [start, end] = object.segment();
            if (start..end).contains(&at) {
                let place = object
                    .table
                    .as_ref()
                    .map(|t| t.place_of(at.wrapping_sub(object.bias)));
                return match place {
                    Some(Place::Boundary(old)) => {
                        At::Outside(Some(old.wrapping_add(object.bias) + back))
                    }
                    _ => At::Inserted,
                };
            }
            if object.has_text(at) && object.table.is_some() && object.is_changed(at) {
                return At::Inserted;
            }
        }
        At::Outside(None)
    }

    /// Leaves, while all threads are where that is possible.
    pub(super) fn leave_in(&mut self, threads: &Threads) -> Result<()> {
        let mut all: Vec<(i32, Registers)> = Vec::new();
        for tid in &threads.all {
            // A thread that has ended meanwhile is no matter.
            all.extend(trace::registers(*tid).map(|registers| (*tid, registers)));
        }
        if let Some((tid, _)) = all.first() {
            let helper = &self.helper;
            let mut worker = Worker::new(*tid, helper.code, &helper.memory, helper.frame())?;
            let arguments = [Command::Leave as u64, self.pid as u64];
            let answer =
                worker.function(&helper.memory, self.files.entrance.attached, arguments)?;
            worker.end()?;
            self.remains = answer != 0;
        }
        self.give_back_text()?;
        for (tid, mut registers) in all {
            if let At::Outside(Some(old)) = self.at(&registers) {
                registers.rip = old;
            }
            registers.gs_base = 0;
            trace::set_registers(tid, &registers).map_err(failed)?;
        }
        Ok(())
    }

    /// Maps the originals' text where the rewritten one is.
    fn give_back_text(&mut self) -> Result<()> {
        let now = maps::read(self.pid)?;
        for (i, object) in self
            .objects
            .iter()
            .enumerate()
            .filter(|(_, o)| o.table.is_some())
        {
            for map in &object.text {
                // Where something else is by now, it stays.
                let is_ours = now
                    .iter()
                    .any(|m| m.start == map.start && m.end == map.end && m.file != map.file);
                if is_ours {
                    let code = libc::PROT_READ | libc::PROT_EXEC;
                    let range = [map.start, map.end];
                    self.helper.replace(
                        range,
                        code,
                        (self.objects[i].descriptors[1], map.offset),
                    )?;
                }
            }
        }
        Ok(())
    }
}

impl super::enter::Inside {
    /// True if the rewritten text differs from the original at an address.
    fn is_changed(&self, address: u64) -> bool {
        use std::os::unix::fs::FileExt;
        let Some(map) = self
            .text
            .iter()
            .find(|m| (m.start..m.end).contains(&address))
        else {
            return false;
        };
        let offset = map.offset + (address - map.start);
        let mut byte = [0];
        let is_read = self.file.read_exact_at(&mut byte, offset).is_ok();
        is_read && self.rewritten.get(offset as usize) != Some(&byte[0])
    }
}
