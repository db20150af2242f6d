//! The way from the program to a fault of the tool: the frames on the stack, and the message about them.

use core::ffi::c_int;
use core::fmt::{self, Write};

use crate::process::boundaries::{is_shared, point_of};
use crate::process::copy::copy_words;
use crate::process::frames::{self, Frame, caller, is_tool};
use crate::process::names::Names;
use crate::process::{objects, table, told};
use crate::sys::call::syscall;
use crate::sys::{apart, fatal, signals};

/// A fault of the tool.
pub(super) struct Fault {
    pub signal: c_int,
    /// The address of the access, if that is known.
    pub at: Option<u64>,
    /// Where it happened.
    pub frame: Frame,
    /// True if the frame's instruction did not end; false if it made a call.
    pub is_interrupted: bool,
    /// The routine, if inserted code runs in its place.
    pub routine: Option<u64>,
}

/// Largest number of frames.
const MOST: usize = 64;

/// A frame on the way.
#[derive(Clone, Copy, Default)]
struct Step {
    /// An address in the instruction that runs, or that made the call.
    address: u64,
    /// Start of the function, if it is one of the tool.
    function: u64,
}

/// The frames of a fault, the innermost first.
pub(super) struct Trail {
    names: Names,
    steps: [Step; MOST],
    count: usize,
    /// Number of frames of the tool at the front.
    of_tool: usize,
}

impl Trail {
    /// Walks up the stack.
    pub(super) fn of(fault: &Fault) -> Self {
        let mut trail = Self {
            names: Names::read(),
            steps: [Step::default(); MOST],
            count: 0,
            of_tool: 0,
        };
        trail.walk(fault);
        trail.leave_abort();
        let is_program = |step: &Step| !is_tool(step.address);
        let steps = trail.steps();
        trail.of_tool = steps.iter().position(is_program).unwrap_or(steps.len());
        trail
    }

    fn steps(&self) -> &[Step] {
        &self.steps[..self.count]
    }

    fn walk(&mut self, fault: &Fault) {
        let (mut frame, mut is_interrupted) = (fault.frame, fault.is_interrupted);
        while self.count < MOST {
            let address = frame.address.wrapping_sub(u64::from(!is_interrupted));
            let description = if is_tool(address) {
                frames::of_tool(address)
            } else {
                let file = self.names.file(address);
                file.and_then(|file| file.description(address))
            };
            self.steps[self.count] = Step {
                address,
                function: description.map_or(0, |d| d.function()),
            };
            self.count += 1;
            let next = match description {
                Some(description) => caller(frame, is_interrupted, description),
                None => self.leave_shared(frame),
            };
            match next {
                Some(next) if next.stack_pointer != 0 && next.address != 0 => frame = next,
                _ => break,
            }
            is_interrupted = false;
        }
    }

    /// The caller of code without a description that many points share, as it is in programs of Go: such code has its caller's rbp and the return
    /// address where rbp points, or pushed some words after the return address. A call is in front of that.
    fn leave_shared(&mut self, frame: Frame) -> Option<Frame> {
        /// Largest number of words that shared code pushes.
        const MOST_WORDS: u64 = 64;
        if !self.is_nameless(frame.address) {
            return None;
        }
        let framed = (frame.base_pointer.wrapping_add(8), true);
        let pushed = (0..MOST_WORDS).map(|i| (frame.stack_pointer.wrapping_add(8 * i), false));
        core::iter::once(framed)
            .chain(pushed)
            .find_map(|(at, is_framed)| {
                let mut words = [0; 2];
                copy_words(at.wrapping_sub(8) as usize, &mut words).then_some(())?;
                let [base, address] = words;
                let target = call_before(address).filter(|_| self.names.file(address).is_some())?;
                self.is_nameless(target).then_some(Frame {
                    address,
                    stack_pointer: at.wrapping_add(8),
                    base_pointer: if is_framed { base } else { frame.base_pointer },
                })
            })
    }

    /// True for code of a file in which no function is known.
    fn is_nameless(&mut self, address: u64) -> bool {
        let file = self.names.file(address);
        file.is_some_and(|file| file.function(address).is_none())
    }

    /// Forgets the frames of the runtime's `abort`.
    fn leave_abort(&mut self) {
        let abort = fatal::abort as *const () as u64;
        if let Some(at) = self.steps().iter().position(|s| s.function == abort) {
            self.steps.copy_within(at + 1.., 0);
            self.count -= at + 1;
        }
    }

    /// Number of the frame of the routine among those of the tool; `None` if it is not known.
    fn routine(&self) -> Option<usize> {
        let tool = &self.steps[..self.of_tool];
        if self.of_tool == self.count {
            return None;
        }
        match tool.last() {
            Some(last) if last.function == apart::apart as *const () as u64 => {
                let call = tool.iter().rposition(|s| apart::is_call(s.function))?;
                call.checked_sub(1)
            }
            Some(_) => Some(self.of_tool - 1),
            None => None,
        }
    }

    /// True if the tool's code certainly holds no lock: it was not called to run without interruption.
    pub(super) fn holds_nothing(&self) -> bool {
        let tool = &self.steps[..self.of_tool];
        let uninterrupted = signals::uninterrupted as *const () as u64;
        let depth = tool.iter().filter(|s| s.function == uninterrupted).count();
        let is_apart = |s: &Step| s.function == apart::apart as *const () as u64;
        let expected = usize::from(tool.last().is_some_and(is_apart));
        self.of_tool < self.count && depth <= expected
    }

    /// Says what happened, and where.
    pub(super) fn tell(&self, fault: &Fault, is_ending: bool) {
        let mut names = self.names;
        let mut out = Message::default();
        let _ = self.write(&mut names, &mut out, fault, is_ending);
        out.flush();
    }

    fn write(
        &self,
        names: &mut Names,
        out: &mut Message,
        fault: &Fault,
        is_ending: bool,
    ) -> fmt::Result {
        write!(out, "analysis runtime: {}", signal_name(fault.signal))?;
        if let Some(at) = fault.at {
            write!(out, " at address {at:#x}")?;
        }
        let routine = fault
            .routine
            .or_else(|| Some(self.steps[self.routine()?].function));
        match routine {
            Some(routine) => {
                write!(out, " in the analysis routine ")?;
                name(names, out, routine)?;
            }
            None => write!(out, " in the code")?,
        }
        writeln!(
            out,
            " of the tool {}",
            told::tool().unwrap_or("without a name")
        )?;
        out.flush();
        self.write_point(names, out, is_ending)?;
        writeln!(out, "  frames, the innermost first:")?;
        let first = fault.routine.map(|address| Step {
            address,
            function: address,
        });
        let last_of_tool = self.routine().map_or(self.of_tool, |r| r + 1);
        let tool = &self.steps[..last_of_tool];
        let program = &self.steps[self.of_tool..self.count];
        for step in first.iter().chain(tool).chain(program) {
            write!(out, "    {:#x} ", step.address)?;
            name(names, out, step.address)?;
            if !is_tool(step.address)
                && let Some(file) = names.file(step.address)
            {
                write!(out, " in ")?;
                out.bytes(file.path.rsplit(|b| *b == b'/').next().unwrap_or_default());
            }
            writeln!(out)?;
            out.flush();
        }
        Ok(())
    }

    /// Says for which point of the program the routine was called.
    fn write_point(&self, names: &mut Names, out: &mut Message, is_ending: bool) -> fmt::Result {
        if is_ending {
            return writeln!(out, "  in a call at the program's end");
        }
        let program = &self.steps[self.of_tool..self.count];
        let named = |step: &&Step| {
            let file = names.file(step.address);
            file.is_some_and(|file| file.function(step.address).is_some())
        };
        let caller = program.iter().find(|step| !is_shared(step.address));
        let known = caller.and_then(|step| Some((step, point_of(step.address)?)));
        let Some((step, point)) = known else {
            let Some(step) = program.iter().find(named) else {
                return writeln!(out, "  at a point that is not known");
            };
            write!(out, "  at a point in ")?;
            name(names, out, step.address)?;
            return writeln!(out, " of the new text");
        };
        let (object, bias) = match table::object_at(point) {
            Some((object, bias)) => (Some(object), bias),
            None => (None, table::load_bias(table::PROGRAM).unwrap_or(0)),
        };
        write!(out, "  at the point {:#x}", point.wrapping_sub(bias))?;
        let file = names.file(step.address);
        if let Some((function, _)) = file.and_then(|f| f.function(step.address)) {
            write!(out, " in ")?;
            plain(out, function)?;
        }
        let known = table::process().zip(object);
        let path = known.map(|(process, object)| objects::path(&table::objects(process)[object]));
        if let Some(path) = path.or(file.map(|f| f.path)) {
            write!(out, " of ")?;
            out.bytes(path);
        }
        writeln!(out)
    }

    /// Says what happens now.
    pub(super) fn tell_end(&self, fault: &Fault, outcome: &str) {
        let mut out = Message::default();
        let signal = signal_name(fault.signal);
        let _ = writeln!(
            out,
            "  The process ends by {signal}, and handlers of the program do not run; {outcome}."
        );
        out.flush();
    }
}

fn signal_name(signal: c_int) -> &'static str {
    match signal {
        libc::SIGILL => "SIGILL",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGSEGV => "SIGSEGV",
        _ => "SIGABRT",
    }
}

/// Writes the name of the function at an address, and the distance from its start.
fn name(names: &mut Names, out: &mut Message, address: u64) -> fmt::Result {
    let found = names.file(address).and_then(|file| file.function(address));
    let Some((function, distance)) = found else {
        return write!(out, "{address:#x}");
    };
    plain(out, function)?;
    match distance {
        0 => Ok(()),
        _ => write!(out, "+{distance:#x}"),
    }
}

/// Where a call leads that returns to an address, if its displacement is in the instruction.
fn call_before(address: u64) -> Option<u64> {
    /// The opcode; a displacement of 32 bits follows.
    const CALL: u8 = 0xe8;
    const SIZE: u64 = 5;
    let mut words = [0; 1];
    let start = address.checked_sub(SIZE)?;
    copy_words(start as usize, &mut words).then_some(())?;
    let bytes = words[0].to_le_bytes();
    let distance = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
    (bytes[0] == CALL).then(|| address.wrapping_add_signed(distance.into()))
}

/// What the symbol of a routine has in front of the routine's name.
const ROUTINE: &[u8] = b"atom_analysis_";

/// What gcc puts after a function's name for the part that is rarely executed.
const RARE_PART: &[u8] = b".cold";

/// Writes the name of a symbol; Rust's are decoded.
fn plain(out: &mut Message, symbol: &[u8]) -> fmt::Result {
    let symbol = symbol.strip_prefix(ROUTINE).unwrap_or(symbol);
    let symbol = symbol.strip_suffix(RARE_PART).unwrap_or(symbol);
    let text = core::str::from_utf8(symbol).ok();
    match text.and_then(|text| rustc_demangle::try_demangle(text).ok()) {
        Some(name) => write!(out, "{name:#}"),
        None => {
            out.bytes(symbol);
            Ok(())
        }
    }
}

/// Text on its way to standard error.
struct Message {
    bytes: [u8; ROOM],
    len: usize,
}

/// Size of a piece of a message in bytes.
const ROOM: usize = 1024;

impl Default for Message {
    fn default() -> Self {
        Self {
            bytes: [0; ROOM],
            len: 0,
        }
    }
}

impl Message {
    fn bytes(&mut self, text: &[u8]) {
        for byte in text {
            if self.len == ROOM {
                self.flush();
            }
            self.bytes[self.len] = *byte;
            self.len += 1;
        }
    }

    fn flush(&mut self) {
        // SAFETY: the kernel reads the bytes.
        unsafe {
            syscall!(
                libc::SYS_write,
                libc::STDERR_FILENO,
                self.bytes.as_ptr(),
                self.len
            )
        };
        self.len = 0;
    }
}

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}
