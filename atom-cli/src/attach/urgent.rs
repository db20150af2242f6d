//! The highest priority while all threads of a process are stopped: on a busy machine the pause is mostly this command's
//! wait for a processor.

/// The highest priority.
const HIGHEST: i32 = -20;

/// Tasks that have the highest priority until this value goes, where the system permits it.
pub struct Urgent(Vec<(u32, i32)>);

impl Urgent {
    /// Gives it to the calling thread and to another task of this command.
    pub fn with(other: i32) -> Self {
        // SAFETY: a system call without effects.
        let own = unsafe { libc::gettid() };
        let raised = [own, other].into_iter().filter_map(|task| {
            let before = priority(task as u32)?;
            set_priority(task as u32, HIGHEST).then_some((task as u32, before))
        });
        Self(raised.collect())
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        for (task, before) in &self.0 {
            set_priority(*task, *before);
        }
    }
}

fn priority(task: u32) -> Option<i32> {
    /// The kernel's answer for the priority 0; it answers with larger numbers for higher priorities.
    const NONE: i32 = 20;
    // SAFETY: a system call without effects.
    match unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, task) } {
        -1 => None,
        answer => Some(NONE - answer as i32),
    }
}

fn set_priority(task: u32, priority: i32) -> bool {
    // SAFETY: no memory is read or written.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, task, priority) == 0 }
}
