//! What a procedure of a log does: the program's own work, a library's, or waiting.

use call_log::Procedure;

/// The bits of an address above these are the number of the object; the program has none.
const OBJECT_SHIFT: u32 = atom_abi::OBJECT_SHIFT;

/// Kind of a procedure; the page's script knows the numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Code of the program.
    Own = 0,
    /// Code of a library, or a stub through which one is called.
    Library = 1,
    /// A call in which the thread waits for time, data or other threads.
    Waiting = 2,
}

/// Functions of the C library in which threads wait, without leading underscores.
const WAITING: &[&str] = &[
    "accept",
    "accept4",
    "clock_nanosleep",
    "connect",
    "epoll_pwait",
    "epoll_wait",
    "flock",
    "futex_wait",
    "lll_lock_wait",
    "lll_lock_wait_private",
    "mq_receive",
    "mq_timedreceive",
    "msgrcv",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pselect",
    "pthread_barrier_wait",
    "pthread_clockjoin_ex",
    "pthread_cond_clockwait",
    "pthread_cond_timedwait",
    "pthread_cond_wait",
    "pthread_join",
    "pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "pthread_timedjoin_np",
    "read",
    "recv",
    "recvfrom",
    "recvmsg",
    "select",
    "sem_clockwait",
    "sem_timedwait",
    "sem_wait",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "sleep",
    "thrd_join",
    "thrd_sleep",
    "usleep",
    "wait",
    "wait3",
    "wait4",
    "waitid",
    "waitpid",
    "cnd_wait",
    "cnd_timedwait",
    "futex_abstimed_wait_cancelable64",
    "futex_abstimed_wait64",
];

/// The kind of a procedure, by its object and its name.
pub fn of(proc: &Procedure) -> Kind {
    let is_stub = proc.name.ends_with("@plt");
    let is_library = proc.pc >> OBJECT_SHIFT != 0 || is_stub;
    if !is_library {
        return Kind::Own;
    }
    // Reports write a library's procedures as `libc.so.6:read`.
    let name = proc.name.rsplit(':').next().unwrap_or_default();
    let name = name.split('@').next().unwrap_or_default();
    let name = name.trim_start_matches('_').trim_start_matches("libc_");
    if WAITING.contains(&name) {
        Kind::Waiting
    } else {
        Kind::Library
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_names_tell_the_kind() {
        let kind = |pc: u64, name: &str| {
            let name = name.to_owned();
            of(&Procedure {
                pc,
                name,
                ..Procedure::default()
            })
        };
        assert_eq!(kind(0x1139, "read"), Kind::Own);
        assert_eq!(kind(0x1030, "read@plt"), Kind::Waiting);
        assert_eq!(kind(0x1030, "strlen@plt"), Kind::Library);
        let library = 1 << OBJECT_SHIFT | 0x1000;
        assert_eq!(kind(library, "libc.so.6:__libc_read"), Kind::Waiting);
        assert_eq!(kind(library, "libc.so.6:qsort"), Kind::Library);
        assert_eq!(kind(library, "libx.so:std::read"), Kind::Waiting);
    }
}
