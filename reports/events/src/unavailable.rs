//! Why an event cannot be counted, and what helps.

use std::fmt;

use crate::Event;

/// Why an event cannot be counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unavailable {
    /// The event's name.
    pub event: String,
    /// Error number of the kernel; 0 if it was not asked.
    pub errno: i32,
    /// The cause.
    pub cause: String,
    /// What helps.
    pub cure: String,
    /// The event that can be counted instead.
    pub offer: Option<&'static str>,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.event, self.cause, self.cure)?;
        if let Some(offer) = self.offer {
            write!(f, "; or count `{offer}`, which needs no hardware")?;
        }
        Ok(())
    }
}

impl std::error::Error for Unavailable {}

/// The kernel's setting `perf_event_paranoid`, which says which users may count what; `None` if it has none.
pub fn paranoid() -> Option<i32> {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?;
    text.trim().parse().ok()
}

impl Unavailable {
    /// Explains an error number of `perf_event_open`.
    pub fn new(event: &str, errno: i32, offer: Option<&'static str>) -> Self {
        let (name, cause, cure): (_, String, &str) = match errno {
            libc::EPERM | libc::EACCES => {
                let level = paranoid().map_or_else(
                    || "it".to_owned(),
                    |n| format!("/proc/sys/kernel/perf_event_paranoid is {n}, which"),
                );
                let name = if errno == libc::EPERM {
                    "EPERM"
                } else {
                    "EACCES"
                };
                (
                    name,
                    format!("{level} forbids it to this user, or a container does"),
                    "have the administrator set it to 2 or lower, or grant CAP_PERFMON",
                )
            }
            libc::ENOENT => (
                "ENOENT",
                "this machine has no such counter: no performance monitoring unit is \
                 visible, as in most virtual machines, or this one lacks the event"
                    .into(),
                "run on the bare machine, or enable the virtual PMU",
            ),
            libc::ENODEV => (
                "ENODEV",
                "this processor's counters cannot count it".into(),
                "choose another event",
            ),
            libc::EINVAL => (
                "EINVAL",
                "the kernel does not know this event or this combination".into(),
                "check the code, or choose fewer events",
            ),
            libc::EMFILE => (
                "EMFILE",
                "the process has too many open files".into(),
                "raise `ulimit -n`",
            ),
            libc::EBUSY => (
                "EBUSY",
                "somebody else has the counters for himself".into(),
                "end other profilers",
            ),
            libc::ENOSPC => (
                "ENOSPC",
                "all counters are in use".into(),
                "choose fewer events",
            ),
            libc::EOPNOTSUPP => (
                "EOPNOTSUPP",
                "the hardware does not support it".into(),
                "choose another event",
            ),
            libc::ENOSYS => (
                "ENOSYS",
                "the system call perf_event_open is missing: the kernel was built without it, \
                 or a seccomp filter hides it"
                    .into(),
                "allow perf_event_open in the container's seccomp profile",
            ),
            _ => ("", "perf_event_open failed".into(), "see its manual page"),
        };
        let cause = match name {
            "" => format!("{cause} (error {errno})"),
            name => format!("{cause} ({name})"),
        };
        Self {
            event: event.to_owned(),
            errno,
            cause,
            cure: cure.to_owned(),
            offer,
        }
    }

    /// For a preset for which the kernel has no generic event.
    pub fn nameless(event: &Event) -> Self {
        Self {
            event: event.name.to_owned(),
            errno: 0,
            cause: "the kernel has no generic name for it".into(),
            cure: "give the processor's own code as rNNN".into(),
            offer: event.offer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_event_cause_cure_and_offer() {
        let text = Unavailable::new(
            "PAPI_TOT_INS",
            libc::ENOENT,
            crate::find("PAPI_TOT_INS").unwrap().offer,
        )
        .to_string();
        for part in [
            "PAPI_TOT_INS: ",
            "ENOENT",
            "virtual PMU",
            "count `exact:instructions`",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(
            Unavailable::new("x", libc::EACCES, None)
                .to_string()
                .contains("EACCES")
        );
        assert!(Unavailable::new("x", 99, None).to_string().contains("99"));
        let event = crate::find("PAPI_LD_INS").unwrap();
        assert!(
            event
                .probe()
                .unwrap_err()
                .to_string()
                .contains("exact:loads")
        );
    }
}
