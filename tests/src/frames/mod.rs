//! Judge of the unwind tables: at each instruction that a program executes, do
//! they lead to the caller?
//!
//! The program runs one instruction at a time. A shadow stack stores for each
//! call the place of its return address and the values of the callee-saved registers. At each later instruction
//! the row of `.eh_frame` for the instruction is evaluated (by gimli) and must lead to that return address and
//! those values.
//! So an unwinder that starts at any instruction finds its way out, frame by frame.
//!
//! Tables and code are read from the file that runs. Neither the original program nor the
//! rewriter is used.

mod shadow;
mod tables;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::process::Command;

use libc::{pid_t, user_regs_struct};

use crate::error::{Error, Result};
use crate::stepper::ptrace;
use crate::stepper::{begin_traced, entry_point};

pub use tables::{Tables, TextKind};

/// One address at which the tables are wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Number of times.
    pub count: u64,
    /// Reason of the first time.
    pub reason: String,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Steps taken.
    pub steps: u64,
    /// Instructions judged in the original text, in the new text, and in a tool's code.
    pub judged: BTreeMap<TextKind, u64>,
    /// By address in the file.
    pub wrong: BTreeMap<u64, Wrong>,
    /// Status as `waitpid` reports it.
    pub wait_status: i32,
}

/// Runs `command`, which must execute the file `program`, and judges its tables.
///
/// With `whole`, libraries are stepped through as well. Otherwise they run at full speed
/// until they return, and code that runs before the entry point, or that a library calls back, is not judged. After
/// `max_steps` the program continues without stepping.
pub fn judge(
    program: &Path,
    command: &mut Command,
    whole: bool,
    max_steps: u64,
) -> Result<Findings> {
    let fail = |e: io::Error| Error::new("judging the unwind tables", e.to_string()).file(program);
    let tables = Tables::read(program)?;
    begin_traced(command);
    let child = crate::start::spawn(command).map_err(fail)?;
    let mut run = Run {
        tables,
        pid: child.id() as pid_t,
        bias: 0,
        whole,
        shadow: shadow::Shadow::default(),
        decoded: HashMap::new(),
        findings: Findings::default(),
        tool_steps: 0,
    };
    let done = run.run(max_steps);
    if done.is_err() {
        // SAFETY: kill with the id of a process that this call started.
        unsafe { libc::kill(run.pid, libc::SIGKILL) };
        while ptrace::wait(run.pid).is_ok_and(|(_, status)| libc::WIFSTOPPED(status)) {}
    }
    done.map_err(fail)?;
    Ok(run.findings)
}

/// Properties of an instruction that the judge needs.
#[derive(Clone, Copy)]
struct Code {
    is_call: bool,
    /// Whether it moves a word from the stack to memory: perhaps a return address.
    parks: bool,
    /// Whether it pushes a word from memory.
    fetches: bool,
    len: u64,
}

struct Run {
    tables: Tables,
    pid: pid_t,
    bias: u64,
    whole: bool,
    shadow: shadow::Shadow,
    decoded: HashMap<u64, Code>,
    findings: Findings,
    tool_steps: u64,
}

/// Number of instructions of a tool that are judged; after that its calls run at full speed.
const TOOL_STEPS: u64 = 4000;

impl Run {
    fn run(&mut self, max_steps: u64) -> io::Result<()> {
        ptrace::wait(self.pid)?;
        ptrace::set_options(self.pid, libc::PTRACE_O_EXITKILL)?;
        self.bias = entry_point(self.pid)?.wrapping_sub(self.tables.entry);
        let mut before: Option<(user_regs_struct, Code)> = None;
        if !self.whole {
            // Past the dynamic loader.
            self.run_until(self.tables.entry.wrapping_add(self.bias))?;
        }
        while self.findings.steps < max_steps {
            let regs = ptrace::regs(self.pid)?;
            if let Some((old, code)) = before.take() {
                self.shadow.moved(self.pid, &old, &code, &regs)?;
            }
            let address = regs.rip.wrapping_sub(self.bias);
            let kind = self.tables.kind(address);
            let way_back = match kind {
                Some(TextKind::Tool) if self.tool_steps < TOOL_STEPS => None,
                Some(TextKind::Original | TextKind::New) => None,
                _ => self.way_back(&regs),
            };
            self.tool_steps += u64::from(kind == Some(TextKind::Tool));
            let signal = match (kind, way_back) {
                (_, Some(to)) => self.run_until(to)?,
                (Some(kind), None) => {
                    self.look(kind, address, &regs)?;
                    before = Some((regs, self.code(regs.rip)?));
                    self.step(0)?
                }
                (None, None) => {
                    before = Some((regs, self.code(regs.rip)?));
                    self.step(0)?
                }
            };
            match signal {
                None => return Ok(()),
                Some(0) => {}
                Some(signal) => {
                    // A signal handler may start; the kernel makes its frame.
                    before = None;
                    if self.step(signal)?.is_none() {
                        return Ok(());
                    }
                    self.shadow.interrupted(&ptrace::regs(self.pid)?);
                }
            }
        }
        ptrace::detach(self.pid, 0)?;
        // SAFETY: waitpid stores one int at the status.
        unsafe { libc::waitpid(self.pid, &raw mut self.findings.wait_status, 0) };
        Ok(())
    }

    /// Address up to which library code runs at full speed.
    fn way_back(&self, regs: &user_regs_struct) -> Option<u64> {
        let to = self.shadow.return_address(regs)?;
        let is_ours = self.tables.kind(to.wrapping_sub(self.bias)).is_some();
        (is_ours && !self.whole).then_some(to)
    }

    /// One step: `None` if the process ended, else a signal to deliver or 0.
    fn step(&mut self, signal: i32) -> io::Result<Option<i32>> {
        self.findings.steps += 1;
        ptrace::step(self.pid, signal)?;
        self.wait()
    }

    fn wait(&mut self) -> io::Result<Option<i32>> {
        let (_, status) = ptrace::wait(self.pid)?;
        if !libc::WIFSTOPPED(status) {
            self.findings.wait_status = status;
            return Ok(None);
        }
        Ok(Some(match libc::WSTOPSIG(status) {
            libc::SIGTRAP => 0,
            signal => signal,
        }))
    }

    /// Runs at full speed until control reaches `to`.
    fn run_until(&mut self, to: u64) -> io::Result<Option<i32>> {
        let word = ptrace::peek(self.pid, to)?;
        ptrace::poke(self.pid, to, word & !0xff | 0xcc)?;
        ptrace::resume(self.pid, 0)?;
        let mut signal = self.wait()?;
        while let Some(number) = signal.filter(|s| *s != 0) {
            ptrace::resume(self.pid, number)?;
            signal = self.wait()?;
        }
        if signal.is_some() {
            ptrace::poke(self.pid, to, word)?;
            let mut regs = ptrace::regs(self.pid)?;
            regs.rip = to;
            ptrace::set_regs(self.pid, &regs)?;
            self.shadow.settle(regs.rsp);
        }
        Ok(signal)
    }

    fn code(&mut self, rip: u64) -> io::Result<Code> {
        if let Some(code) = self.decoded.get(&rip) {
            return Ok(*code);
        }
        let mut bytes = [0u8; 16];
        for (i, half) in bytes.chunks_exact_mut(8).enumerate() {
            // The second word may be after the last page of code.
            let word = ptrace::peek(self.pid, rip + 8 * i as u64);
            half.copy_from_slice(&if i == 0 { word? } else { word.unwrap_or(0) }.to_le_bytes());
        }
        let mut decoder =
            iced_x86::Decoder::with_ip(64, &bytes, rip, iced_x86::DecoderOptions::NONE);
        let instruction = decoder.decode();
        let code = Code {
            is_call: instruction.is_call_near() || instruction.is_call_near_indirect(),
            parks: instruction.code() == iced_x86::Code::Pop_rm64,
            fetches: instruction.code() == iced_x86::Code::Push_rm64,
            len: instruction.len() as u64,
        };
        self.decoded.insert(rip, code);
        Ok(code)
    }

    fn look(&mut self, kind: TextKind, address: u64, regs: &user_regs_struct) -> io::Result<()> {
        let Some(frame) = self.shadow.frame().filter(|_| !self.shadow.is_parked()) else {
            return Ok(());
        };
        *self.findings.judged.entry(kind).or_default() += 1;
        let peek = |at: u64| ptrace::peek(self.pid, at).ok();
        let found = self.tables.unwind(address, regs, &peek);
        if let Err(reason) = found.and_then(|found| frame.compare(&found)) {
            let wrong = self
                .findings
                .wrong
                .entry(address)
                .or_insert(Wrong { count: 0, reason });
            wrong.count += 1;
        }
        Ok(())
    }
}
