//! Call paths by single steps.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use atom_tests::outcome::plain_environment;
use atom_tests::stepper::{self, Options, Step};
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use object::{Object, ObjectSegment, ObjectSymbol};

use super::Paths;

/// A call under way.
struct Frame {
    /// Address of the return address; 0 for a signal handler, whose frame the kernel has made.
    slot: u64,
    path: Vec<String>,
}

/// The calls of a thread, outermost first.
#[derive(Default)]
struct Thread {
    frames: Vec<Frame>,
    /// Where control went after the last step.
    next: u64,
}

impl Thread {
    /// Forgets the calls whose return address is at `slot` or lower. They are above a signal handler's frame.
    fn drop_up_to(&mut self, slot: u64) {
        let is_over = |frame: &mut Frame| frame.slot != 0 && frame.slot <= slot;
        while self.frames.pop_if(is_over).is_some() {}
    }
}

/// The procedures of the program's own source: start, end, name.
fn procedures(program: &Path) -> BTreeMap<u64, (u64, String)> {
    let data = std::fs::read(program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let own = |name: &str| name.starts_with("p_") || name == "main";
    let symbols = file.symbols().filter_map(|symbol| {
        let name = symbol.name().ok().filter(|name| own(name))?;
        let start = symbol.address();
        Some((start, (start + symbol.size(), name.to_owned())))
    });
    symbols.collect()
}

/// How an instruction leaves a procedure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Call,
    Return,
    Other,
}

/// The kind of the instruction at an address of the file.
struct Kinds(Vec<(u64, Vec<u8>)>);

impl Kinds {
    fn read(program: &Path) -> Self {
        let data = std::fs::read(program).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let segments = file.segments();
        Self(
            segments
                .map(|s| (s.address(), s.data().unwrap().to_vec()))
                .collect(),
        )
    }

    fn of(&self, pc: u64) -> Kind {
        let inside =
            |(start, bytes): &&(u64, Vec<u8>)| (*start..start + bytes.len() as u64).contains(&pc);
        let Some((start, bytes)) = self.0.iter().find(inside) else {
            return Kind::Other;
        };
        let bytes = &bytes[(pc - start) as usize..];
        match Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE)
            .decode()
            .flow_control()
        {
            FlowControl::Call | FlowControl::IndirectCall => Kind::Call,
            FlowControl::Return => Kind::Return,
            _ => Kind::Other,
        }
    }
}

/// A path with one more procedure. A procedure that is on the path already leads back there.
fn entered(path: &[String], name: Option<&String>) -> Vec<String> {
    let mut path = path.to_vec();
    if let Some(name) = name {
        match path.iter().position(|n| n == name) {
            Some(known) => path.truncate(known + 1),
            None => path.push(name.clone()),
        }
    }
    path
}

/// Instructions of the program's own procedures by path.
pub fn paths(program: &Path) -> Paths {
    let procs = procedures(program);
    let at = |pc: u64| {
        let (start, (end, name)) = procs.range(..=pc).next_back()?;
        (pc < *end).then_some((*start, name))
    };
    let starting = |pc: u64| {
        at(pc)
            .filter(|(start, _)| *start == pc)
            .map(|(_, name)| name)
    };
    let kinds = Kinds::read(program);
    let mut threads: HashMap<i32, Thread> = HashMap::new();
    let mut paths = Paths::new();
    let mut tell = |step: &Step<'_>| {
        if step.repeated {
            return;
        }
        let thread = threads.entry(step.thread).or_default();
        let path = thread.frames.last().map_or(&[][..], |frame| &frame.path);
        if thread.next != step.pc && thread.next != 0 {
            // A signal handler has begun.
            let path = entered(path, starting(step.pc));
            thread.frames.push(Frame { slot: 0, path });
        }
        thread.next = step.next;
        let path = thread.frames.last().map_or(&[][..], |frame| &frame.path);
        if !path.is_empty() && at(step.pc).is_some() {
            *paths.entry(path.to_vec()).or_default() += 1;
        }
        let bytes = step.pc + step.len as u64;
        let [reads, writes] = [
            step.references.iter().find(|r| r.reads && !r.writes),
            step.references.iter().find(|r| r.writes),
        ];
        match (kinds.of(step.pc), reads, writes) {
            (Kind::Return, Some(slot), _) => {
                let open = thread.frames.len();
                thread.drop_up_to(slot.address);
                // A signal handler returns to code that ends it.
                if thread.frames.len() == open {
                    thread.frames.pop_if(|frame| frame.slot == 0);
                }
            }
            (Kind::Call, _, Some(slot)) => {
                thread.drop_up_to(slot.address);
                let path = thread.frames.last().map_or(&[][..], |frame| &frame.path);
                let path = entered(path, starting(step.next));
                let slot = slot.address;
                thread.frames.push(Frame { slot, path });
            }
            _ if step.next != bytes => {
                let from = at(step.pc).map(|(start, _)| start);
                let to = at(step.next);
                let last = thread.frames.last_mut();
                if let (Some((start, name)), Some(last)) = (to, last)
                    && from != Some(start)
                {
                    if start == step.next {
                        last.path = entered(&last.path, Some(name));
                    } else {
                        // `longjmp` goes back to the procedure that called `setjmp`.
                        while thread
                            .frames
                            .last()
                            .is_some_and(|f| f.path.last() != Some(name))
                        {
                            thread.frames.pop();
                        }
                    }
                }
            }
            _ => {}
        }
    };
    let mut command = Command::new(program);
    plain_environment(&mut command);
    stepper::watch(program, &mut command, Options::default(), &mut tell).unwrap();
    paths
}
