//! Scenarios for the runtime. Each function runs in a process of its own.

use std::arch::asm;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::image_checks;
use crate::loader::{AFTER, BEFORE, Loaded, Routine};

type Scenario = fn(&Path, &Path);

const ALL: [(&str, Scenario); 24] = [
    ("code_is_neutral", |tool, _| {
        image_checks::code_is_neutral(&Loaded::new(tool, true))
    }),
    ("missing_import", |tool, _| {
        image_checks::missing_import_is_found(&Loaded::new(tool, true))
    }),
    ("summaries", |tool, _| {
        image_checks::summaries_are_sound(&started(tool))
    }),
    ("tour", |tool, dir| tour(&started(tool), dir)),
    ("tour_without_fsgsbase", |tool, dir| {
        tour(&started_with(tool, false), dir)
    }),
    ("tour_on_a_thread", tour_on_a_thread),
    ("no_thread_pointer", |tool, dir| {
        no_thread_pointer(&Loaded::new(tool, true), dir)
    }),
    ("no_thread_pointer_without_fsgsbase", |tool, dir| {
        no_thread_pointer(&Loaded::new(tool, false), dir)
    }),
    ("heap", |tool, _| heap(&started(tool))),
    ("threads", |tool, dir| threads(&started(tool), dir)),
    ("threads_without_fsgsbase", |tool, dir| {
        threads(&started_with(tool, false), dir)
    }),
    ("many_threads", |tool, _| many_threads(&started(tool))),
    ("signals", |tool, _| signals(&started(tool))),
    ("jumps_out_of_handlers", |tool, _| {
        jumps_out_of_handlers(&started(tool))
    }),
    ("fork_beside_allocation", |tool, _| {
        fork_beside_allocation(&started(tool))
    }),
    ("fork_while_locked", |tool, _| {
        fork_while_locked(&started(tool))
    }),
    ("locked_by_itself", |tool, _| {
        locked_by_itself(&started(tool))
    }),
    ("guarded_entry", |tool, _| guarded_entry(&started(tool))),
    ("broken_tools", |tool, _| image_checks::broken_tools(tool)),
    ("finish_once_per_process", |tool, _| {
        finish_once_per_process(&started(tool))
    }),
    ("flush_at_finish", |tool, _| flush_at_finish(&started(tool))),
    ("panic_ends_by_abort", |tool, _| {
        panic_ends_by_abort(&started(tool))
    }),
    ("out_of_the_way", |tool, dir| {
        out_of_the_way(&started(tool), dir)
    }),
    ("heap_in_a_sandbox", |tool, _| {
        let loaded = started(tool);
        forbid(libc::SYS_mremap);
        heap(&loaded);
    }),
];

/// Names of all scenarios.
pub const NAMES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut i = 0;
    while i < ALL.len() {
        names[i] = ALL[i].0;
        i += 1;
    }
    names
};

pub fn run(name: &str, tool: &Path, dir: &Path) {
    let scenario = ALL.iter().find(|s| s.0 == name).expect("a scenario's name");
    scenario.1(tool, dir);
}

/// Checks a scenario's output, in the parent.
pub fn check_output(name: &str, output: &Output, dir: &Path) -> Result<(), String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let wanted = match name {
        "tour" | "tour_without_fsgsbase" => out == "tour 1\n" && err == "tour done\n",
        "flush_at_finish" => out == "left in the buffer",
        "locked_by_itself" => err.contains("waits for a lock that its own thread holds"),
        "panic_ends_by_abort" => {
            err.contains("index out of bounds: the len is 3 but the index is 7")
        }
        _ => true,
    };
    let left =
        std::fs::read_dir(dir).is_ok_and(|mut d| d.any(|e| e.is_ok_and(|e| e.path().is_dir())));
    if wanted && !left {
        Ok(())
    } else {
        Err(format!("stdout {out:?}, stderr {err:?}, left over: {left}"))
    }
}

fn started_with(tool: &Path, fsgsbase: bool) -> Loaded {
    let loaded = Loaded::new(tool, fsgsbase);
    loaded.start();
    assert_eq!(BEFORE.load(Ordering::Relaxed), 1);
    loaded.start();
    assert_eq!(
        BEFORE.load(Ordering::Relaxed),
        1,
        "a second start does nothing"
    );
    loaded
}

fn started(tool: &Path) -> Loaded {
    started_with(tool, true)
}

fn call_tour(tour: Routine, dir: &Path) -> u64 {
    let dir = dir.to_str().expect("a path in UTF-8");
    tour(dir.as_ptr() as u64, dir.len() as u64, 0)
}

fn tour(loaded: &Loaded, dir: &Path) {
    assert_eq!(
        call_tour(loaded.routine("fx_tour"), dir),
        0,
        "line of the fixture"
    );
    // SAFETY: the runtime has started.
    unsafe { loaded.finish()() };
}

fn tour_on_a_thread(tool: &Path, dir: &Path) {
    let loaded = started(tool);
    let failed =
        std::thread::scope(|s| s.spawn(|| call_tour(loaded.routine("fx_tour"), dir)).join());
    assert_eq!(failed.expect("no panic"), 0, "line of the fixture");
}

/// Sets the thread pointer by system call and returns the old one. Between two
/// calls nothing of this program's own standard library may run.
#[inline(always)]
fn set_fs(base: usize) -> usize {
    const ARCH_PRCTL: usize = 158;
    let mut old = 0usize;
    // SAFETY: no code between the calls uses the thread pointer, see above.
    unsafe {
        for (code, arg) in [(0x1003usize, &raw mut old as usize), (0x1002, base)] {
            asm!("syscall", inlateout("rax") ARCH_PRCTL => _, in("rdi") code, in("rsi") arg,
                 lateout("rcx") _, lateout("r11") _, options(nostack));
        }
    }
    old
}

/// A static program before its C library has set the thread pointer, and after.
fn no_thread_pointer(loaded: &Loaded, dir: &Path) {
    let (tour, calls, heap) = (
        loaded.routine("fx_tour"),
        loaded.routine("fx_thread_calls"),
        loaded.routine("fx_heap"),
    );
    let fs = set_fs(0);
    loaded.start();
    let before = (calls(0, 0, 0), calls(0, 0, 0));
    let failed = (call_tour_raw(tour, dir), heap(1, 2000, 50_000));
    let still = calls(0, 0, 0);
    set_fs(fs);
    assert_eq!((before, failed, still), ((1, 2), (0, 0), 4));
    assert_eq!(calls(0, 0, 0), 5, "the main thread keeps its block");
    let other = std::thread::scope(|s| s.spawn(|| calls(0, 0, 0)).join().expect("no panic"));
    assert_eq!(other, 1, "another thread has a block of its own");
    assert_eq!(calls(0, 0, 0), 6);
}

fn call_tour_raw(tour: Routine, dir: &Path) -> u64 {
    let dir = dir.as_os_str().as_encoded_bytes();
    tour(dir.as_ptr() as u64, dir.len() as u64, 0)
}

fn heap(loaded: &Loaded) {
    let heap = loaded.routine("fx_heap");
    for (seed, rounds, largest) in [(1, 100_000, 1000), (2, 20_000, 60_000), (3, 3000, 5 << 20)] {
        assert_eq!(heap(seed, rounds, largest), 0, "line of the fixture");
    }
}

/// From here on the system call fails, as in the sandbox of a browser.
fn forbid(number: i64) {
    let filter = |code: u32, to: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: to,
        k,
    };
    let mut program = [
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        filter(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            number as u32,
        ),
        filter(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        ),
        filter(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the filter lives during the call, which changes this process only.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        );
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

fn threads(loaded: &Loaded, dir: &Path) {
    const THREADS: u64 = 8;
    const CALLS: u64 = 5000;
    let log = dir.join("log");
    let path = log.to_str().expect("UTF-8");
    assert_eq!(
        loaded.routine("fx_open_log")(path.as_ptr() as u64, path.len() as u64, 0),
        0
    );
    std::thread::scope(|s| {
        for t in 0..THREADS {
            s.spawn(move || {
                for i in 0..CALLS {
                    loaded.routine("fx_shared")(i % 100 + t, 0, 0);
                    if i % 500 == 0 {
                        assert_eq!(loaded.routine("fx_heap")(t * 1000 + i, 300, 40_000), 0);
                    }
                }
                assert_eq!(loaded.routine("fx_thread_calls")(0, 0, 0), CALLS + 1);
            });
        }
    });
    assert_eq!(loaded.routine("fx_shared_total")(0, 0, 0), THREADS * CALLS);
    let lines = std::fs::read_to_string(&log).expect("the log");
    assert_eq!(lines.lines().count() as u64, THREADS * CALLS);
    assert!(
        lines
            .lines()
            .all(|l| l.parse::<u64>().is_ok_and(|n| n < 110))
    );
}

/// More threads than the first table of blocks has room for, many at a time.
fn many_threads(loaded: &Loaded) {
    const AT_ONCE: usize = 400;
    let barrier = std::sync::Barrier::new(AT_ONCE);
    // Threads made anew may get blocks of threads that have ended, but no two
    // that live at the same time may share one.
    for _ in 0..5 {
        std::thread::scope(|s| {
            for _ in 0..AT_ONCE {
                s.spawn(|| {
                    let calls = loaded.routine("fx_thread_calls");
                    let first = calls(0, 0, 0);
                    barrier.wait();
                    for i in 1..50 {
                        assert_eq!(calls(0, 0, 0), first + i);
                    }
                    barrier.wait();
                });
            }
        });
    }
    // Made-up thread pointers, all different, in one thread.
    let calls = loaded.routine("fx_thread_calls");
    let mut wrong = 0;
    let fs = set_fs(0);
    set_fs(fs);
    for round in 1..=3 {
        for i in 0..20_000usize {
            set_fs(0x1000_0000_0000 + i * 0x1740 + 16);
            wrong += u64::from(calls(0, 0, 0) != round);
            set_fs(fs);
        }
    }
    assert_eq!(wrong, 0);
}

static HANDLER_ROUTINES: [AtomicPtr<()>; 2] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];
static HANDLED: AtomicU64 = AtomicU64::new(0);
static HANDLER_FAILED: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_alarm(_: i32) {
    let [heap, calls] = [0, 1].map(|i| {
        // SAFETY: set before the handler is installed.
        unsafe {
            std::mem::transmute::<*mut (), Routine>(HANDLER_ROUTINES[i].load(Ordering::Relaxed))
        }
    });
    let n = HANDLED.fetch_add(1, Ordering::Relaxed);
    let failed = heap(n + 77, 40, 3000);
    calls(0, 0, 0);
    HANDLER_FAILED.fetch_max(failed, Ordering::Relaxed);
}

fn on_timer(loaded: &Loaded, handler: extern "C" fn(i32), microseconds: i64) {
    HANDLER_ROUTINES[0].store(loaded.address("fx_heap") as *mut (), Ordering::Relaxed);
    HANDLER_ROUTINES[1].store(
        loaded.address("fx_thread_calls") as *mut (),
        Ordering::Relaxed,
    );
    // SAFETY: plain calls of libc; the handler uses nothing but analysis routines.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_NODEFER | libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()),
            0
        );
        let every = libc::timeval {
            tv_sec: 0,
            tv_usec: microseconds,
        };
        let timer = libc::itimerval {
            it_interval: every,
            it_value: every,
        };
        assert_eq!(
            libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()),
            0
        );
    }
}

fn stop_timer() {
    // SAFETY: a plain call of libc.
    unsafe {
        let timer = std::mem::zeroed::<libc::itimerval>();
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
}

/// A handler that allocates while the interrupted code allocates.
fn signals(loaded: &Loaded) {
    on_timer(loaded, on_alarm, 150);
    let (heap, start) = (loaded.routine("fx_heap"), Instant::now());
    let mut seed = 0;
    while start.elapsed() < Duration::from_secs(3) {
        seed += 1;
        assert_eq!(heap(seed, 2000, 3000), 0, "line of the fixture");
    }
    stop_timer();
    assert_eq!(
        HANDLER_FAILED.load(Ordering::Relaxed),
        0,
        "line of the fixture, in the handler"
    );
    assert!(HANDLED.load(Ordering::Relaxed) > 100);
}

static LANDING: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static MAY_JUMP: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    #[link_name = "__sigsetjmp"]
    fn sigsetjmp(buffer: *mut u8, save_mask: i32) -> i32;
    fn siglongjmp(buffer: *mut u8, value: i32) -> !;
}

extern "C" fn jump_out(_: i32) {
    if MAY_JUMP.swap(false, Ordering::Relaxed) {
        HANDLED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the frame that set the buffer is still there; only analysis
        // code lies between.
        unsafe { siglongjmp(LANDING.load(Ordering::Relaxed), 1) }
    }
}

/// A handler that leaves by `siglongjmp` while the heap's lock is held, often
/// enough that each arena is lost: the heap must go on without them.
fn jumps_out_of_handlers(loaded: &Loaded) {
    let buffer = Box::leak(Box::new([0u64; 64]));
    LANDING.store(buffer.as_mut_ptr().cast(), Ordering::Relaxed);
    let (heap, start) = (loaded.routine("fx_heap"), Instant::now());
    on_timer(loaded, jump_out, 300);
    while start.elapsed() < Duration::from_secs(3) {
        // SAFETY: nothing in this frame lives across the jump but atomics and statics.
        if unsafe { sigsetjmp(buffer.as_mut_ptr().cast(), 1) } == 0 {
            MAY_JUMP.store(true, Ordering::Relaxed);
            let failed = heap(HANDLED.load(Ordering::Relaxed), 5000, 2000);
            MAY_JUMP.store(false, Ordering::Relaxed);
            assert_eq!(failed, 0, "line of the fixture");
        }
    }
    stop_timer();
    assert!(HANDLED.load(Ordering::Relaxed) > 100);
    assert_eq!(heap(5, 20_000, 50_000), 0);
}

/// Waits for a child and returns its status, or `None` after ten seconds.
fn wait_for(pid: i32) -> Option<i32> {
    let (mut status, start) = (0, Instant::now());
    while start.elapsed() < Duration::from_secs(10) {
        // SAFETY: a plain call of libc.
        if unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid {
            return Some(status);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    None
}

/// Forks while other threads are in the middle of allocations.
fn fork_beside_allocation(loaded: &Loaded) {
    let stop = AtomicBool::new(false);
    let (heap, calls) = (loaded.routine("fx_heap"), loaded.routine("fx_thread_calls"));
    std::thread::scope(|s| {
        for t in 0..3u64 {
            let stop = &stop;
            s.spawn(move || {
                let mut seed = t << 32;
                while !stop.load(Ordering::Relaxed) {
                    seed += 1;
                    assert_eq!(heap(seed, 500, 3000), 0);
                }
            });
        }
        calls(0, 0, 0);
        for round in 0..200 {
            // SAFETY: the child runs analysis routines and leaves by _exit.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let failed = heap(round, 1000, 3000);
                let count = calls(0, 0, 0);
                // SAFETY: the runtime has started.
                unsafe {
                    loaded.finish()();
                    libc::_exit(if failed != 0 {
                        1
                    } else if count != 2 {
                        2
                    } else {
                        0
                    });
                }
            }
            let status = wait_for(pid);
            if status.is_none() {
                // SAFETY: our own child.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            stop.store(status != Some(0) || round == 199, Ordering::Relaxed);
            assert_eq!(status, Some(0), "round {round}");
        }
    });
}

/// A child inherits locks whose holders are threads of its parent only.
fn fork_while_locked(loaded: &Loaded) {
    let (shared, hold) = (loaded.routine("fx_shared"), loaded.routine("fx_hold_lock"));
    shared(1, 0, 0);
    let (held, go_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|s| {
        s.spawn(|| {
            hold(0, 0, 0);
            held.wait();
            go_on.wait();
        });
        held.wait();
        // SAFETY: the child runs analysis routines and leaves by _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            for i in 0..10 {
                shared(i, 0, 0);
            }
            let total = loaded.routine("fx_shared_total")(0, 0, 0);
            // SAFETY: plain call of libc.
            unsafe { libc::_exit(total as i32) };
        }
        let status = wait_for(pid);
        go_on.wait();
        assert_eq!(status, Some(11 << 8));
    });
}

/// A wait that would never end ends by `SIGABRT` with a reason; see [`dies`].
fn locked_by_itself(loaded: &Loaded) {
    loaded.routine("fx_hold_lock")(0, 0, 0);
    loaded.routine("fx_shared")(1, 0, 0);
}

/// Whether a scenario's process is meant to die by `SIGABRT`.
pub fn dies(name: &str) -> bool {
    name == "locked_by_itself"
}

extern "C" fn enter_guarded(_: i32) {
    // SAFETY: set before the handler is installed.
    let guarded = unsafe {
        std::mem::transmute::<*mut (), Routine>(HANDLER_ROUTINES[0].load(Ordering::Relaxed))
    };
    let refused = guarded(0, 0, 0);
    HANDLED.fetch_add(refused, Ordering::Relaxed);
}

/// A routine with a lock, entered by handlers, is refused instead of hanging.
fn guarded_entry(loaded: &Loaded) {
    let (guarded, start) = (loaded.routine("fx_guarded"), Instant::now());
    on_timer(loaded, enter_guarded, 150);
    HANDLER_ROUTINES[0].store(loaded.address("fx_guarded") as *mut (), Ordering::Relaxed);
    while start.elapsed() < Duration::from_secs(2) {
        assert_eq!(guarded(0, 0, 0), 0, "not nested");
    }
    stop_timer();
    let mut refused = 0u64;
    loaded.routine("fx_guarded_counts")(&raw mut refused as u64, 0, 0);
    assert_eq!(refused, HANDLED.load(Ordering::Relaxed));
    assert!(refused > 100, "{refused}");
}

fn finish_once_per_process(loaded: &Loaded) {
    let finish = loaded.finish();
    let after = || AFTER.load(Ordering::Relaxed);
    // SAFETY (all below): after the start; children leave by _exit; the child
    // of vfork only calls what is meant to do nothing.
    let child = |code: &dyn Fn() -> i32| unsafe {
        match libc::fork() {
            0 => libc::_exit(code()),
            pid => pid,
        }
    };
    assert_eq!(
        wait_for(child(&|| unsafe {
            finish();
            finish();
            after() as i32
        })),
        Some(1 << 8),
        "a child ends once"
    );
    assert_eq!(after(), 0, "on its own account");
    #[allow(deprecated)]
    let pid = unsafe { libc::vfork() };
    if pid == 0 {
        unsafe {
            finish();
            libc::_exit(after() as i32);
        }
    }
    assert_eq!(
        wait_for(pid),
        Some(0),
        "a child in its parent's memory does not end it"
    );
    assert_eq!(after(), 0);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| unsafe { finish() });
        }
    });
    assert_eq!(after(), 1);
    unsafe { finish() };
    assert_eq!(after(), 1);
    // A child of a process that has ended its analysis: still on its own account.
    assert_eq!(
        wait_for(child(&|| unsafe {
            finish();
            finish();
            after() as i32
        })),
        Some(2 << 8)
    );
}

fn flush_at_finish(loaded: &Loaded) {
    loaded.routine("fx_print_unflushed")(0, 0, 0);
    // SAFETY: the runtime has started.
    unsafe {
        loaded.finish()();
        loaded.finish()();
    }
}

/// Even in a program that ignores and blocks SIGABRT.
fn panic_ends_by_abort(loaded: &Loaded) {
    // SAFETY: plain calls of libc; the child ends in the routine.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::signal(libc::SIGABRT, libc::SIG_IGN);
            let mut set = std::mem::zeroed();
            libc::sigfillset(&mut set);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            loaded.routine("fx_panic")(7, 0, 0);
            libc::_exit(0);
        }
        let status = wait_for(pid).expect("ends");
        assert!(
            libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT,
            "{status:#x}"
        );
    }
}

/// The application gets the same descriptors and mappings as without the runtime.
fn out_of_the_way(loaded: &Loaded, dir: &Path) {
    /// From here on the kernel places the application's image and heap, then what it maps, and the
    /// stack.
    const APPLICATION: usize = 0x5555_5555_4000;
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
        let ranges = maps
            .lines()
            .filter_map(|l| l.split_once(' ')?.0.split_once('-'));
        let numbers =
            ranges.map(|(a, b)| [a, b].map(|n| usize::from_str_radix(n, 16).expect("hex")));
        let (high, low): (Vec<_>, Vec<_>) = numbers.partition(|r| r[0] >= APPLICATION);
        (
            high.iter().map(|r| r[1] - r[0]).sum::<usize>(),
            low.iter().map(|r| r[1] - r[0]).sum::<usize>(),
        )
    };
    let next_fd = || File::open("/dev/null").expect("opens").as_raw_fd();
    let path = dir.join("log");
    let path = path.to_str().expect("UTF-8");
    let fd = next_fd();
    mapped();
    let before = mapped();
    assert_eq!(
        loaded.routine("fx_open_log")(path.as_ptr() as u64, path.len() as u64, 0),
        0
    );
    // Ends at some point where much is allocated, and keeps it.
    loaded.routine("fx_keep")(50_000, 100, 0);
    loaded.routine("fx_keep")(5, 5 << 20, 0);
    assert_eq!(loaded.routine("fx_heap")(9, 3000, 5 << 20), 0);
    loaded.routine("fx_shared")(1, 0, 0);
    let after = mapped();
    assert_eq!(next_fd(), fd);
    assert_eq!(after.0, before.0, "nothing mapped among the application's");
    assert!(
        after.1 > before.1 + (25 << 20),
        "but elsewhere: {before:x?} {after:x?}"
    );
    // The program break has not moved, and there is no new signal handler.
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let caught = status
        .lines()
        .find_map(|l| l.strip_prefix("SigCgt:\t"))
        .expect("a line");
    let caught = u64::from_str_radix(caught, 16).expect("hexadecimal");
    let of_rust = 1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1);
    assert_eq!(caught & !of_rust, 0);
}
