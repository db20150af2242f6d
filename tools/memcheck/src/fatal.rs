//! The signal by which a process ends, as it is told.

use atom_tool::Death;

use crate::told::Frame;

/// Code of a fault whose address the processor does not tell.
pub const SI_KERNEL: i32 = 0x80;

/// A signal by its number: the name, and what its codes from 1 on mean.
struct Signal {
    number: i32,
    name: &'static str,
    codes: &'static [&'static str],
}

const fn signal(number: i32, name: &'static str) -> Signal {
    let codes = &[];
    Signal {
        number,
        name,
        codes,
    }
}

/// The signals of Linux on x86-64 that end a process and are seen, with Valgrind's words for the codes.
const SIGNALS: [Signal; 15] = [
    signal(1, "SIGHUP"),
    signal(2, "SIGINT"),
    signal(3, "SIGQUIT"),
    Signal {
        number: 4,
        name: "SIGILL",
        codes: &[
            "Illegal opcode",
            "Illegal operand",
            "Illegal addressing mode",
            "Illegal trap",
            "Privileged opcode",
            "Privileged register",
            "Coprocessor error",
            "Internal stack error",
        ],
    },
    signal(5, "SIGTRAP"),
    signal(6, "SIGABRT"),
    Signal {
        number: SIGBUS,
        name: "SIGBUS",
        codes: &[
            "Invalid address alignment",
            "Non-existent physical address",
            "Hardware error",
        ],
    },
    Signal {
        number: 8,
        name: "SIGFPE",
        codes: &[
            "Integer divide by zero",
            "Integer overflow",
            "FP divide by zero",
            "FP overflow",
            "FP underflow",
            "FP inexact",
            "FP invalid operation",
            "FP subscript out of range",
        ],
    },
    signal(10, "SIGUSR1"),
    Signal {
        number: SIGSEGV,
        name: "SIGSEGV",
        codes: &[
            "Access not within mapped region",
            "Bad permissions for mapped region",
        ],
    },
    signal(12, "SIGUSR2"),
    signal(13, "SIGPIPE"),
    signal(14, "SIGALRM"),
    signal(15, "SIGTERM"),
    signal(31, "SIGSYS"),
];

pub const SIGBUS: i32 = 7;
pub const SIGSEGV: i32 = 11;

/// What is told of the end.
pub struct Fatal {
    pub signal: i32,
    pub name: String,
    pub code: i32,
    /// What a fault was.
    pub event: Option<&'static str>,
    /// The address that the fault is about.
    pub address: Option<u64>,
    pub stack: Vec<Frame>,
}

impl Fatal {
    pub fn of(death: &Death, stack: Vec<Frame>) -> Self {
        let known = SIGNALS.iter().find(|known| known.number == death.signal);
        let event = match death.code {
            SI_KERNEL if death.signal == SIGSEGV => Some("General Protection Fault"),
            code => known.and_then(|known| {
                let place = usize::try_from(code).ok()?.checked_sub(1)?;
                known.codes.get(place).copied()
            }),
        };
        Self {
            signal: death.signal,
            name: known.map_or_else(|| format!("SIG{}", death.signal), |known| known.name.into()),
            code: death.code,
            event,
            address: (event.is_some() && death.code != SI_KERNEL).then_some(death.address),
            stack,
        }
    }

    /// As lines for people.
    pub fn text(&self) -> String {
        let Self { signal, name, .. } = self;
        let mut text =
            format!("\nProcess terminating with default action of signal {signal} ({name})\n");
        match (self.event, self.address) {
            (Some(event), Some(address)) => {
                text.push_str(&format!(" {event} at address {address:#x}\n"));
            }
            (Some(event), None) => text.push_str(&format!(" {event}\n")),
            (None, _) => {}
        }
        crate::told::write_stack(&self.stack, &mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_valgrinds_words() {
        let death = |signal, code| Death {
            signal,
            code,
            address: 0x1234,
            pc: 0,
            sp: 0,
            rbp: 0,
        };
        let text = |signal, code| Fatal::of(&death(signal, code), Vec::new()).text();
        let head = "\nProcess terminating with default action of signal";
        assert_eq!(
            text(11, 1),
            format!("{head} 11 (SIGSEGV)\n Access not within mapped region at address 0x1234\n")
        );
        assert_eq!(
            text(11, SI_KERNEL),
            format!("{head} 11 (SIGSEGV)\n General Protection Fault\n")
        );
        assert_eq!(
            text(8, 1),
            format!("{head} 8 (SIGFPE)\n Integer divide by zero at address 0x1234\n")
        );
        assert_eq!(text(6, -6), format!("{head} 6 (SIGABRT)\n"));
        assert_eq!(text(40, -1), format!("{head} 40 (SIG40)\n"));
    }
}
