//! `cover --afl` with a client of the fork server's protocol, written from AFL's documentation.

use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::ptr;

use atom_tests::atom::{self, Job};
use atom_tests::depth;
use atom_tests::outcome::plain_environment;
use atom_tests::programs;
use libc::{SIGABRT, SIGKILL, SIGSEGV, SIGSTOP, SIGUSR1};

/// Descriptors of the server: where it reads, and where it writes.
const SERVER: [RawFd; 2] = [198, 199];
/// Milliseconds that an answer may take.
const PATIENCE: i32 = 20_000;
/// Milliseconds after which a run is stopped if its input makes it hang. Other runs have time, as machines are busy.
const HANG: i32 = 500;
/// The input that makes the program hang.
const HANGS: &[u8; 1] = b"h";

/// Makes the test program.
fn build(folder: &Path, compiler: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cover/programs/fuzzed.c");
    let program = folder.join("fuzzed");
    let out = program.display().to_string();
    let mut command = Command::new(compiler);
    command.arg(source).args(["-O1", "-pthread", "-o", &out]);
    super::ok(command.args(options), folder);
    program
}

/// Instruments a program.
pub fn instrument(program: &Path, name: &str, options: &[&str]) -> PathBuf {
    let out = program.with_file_name(name);
    let words = options.iter().map(|o| o.to_string()).collect();
    let job = Job::Tool("afl".into(), words);
    atom::instrument(program, &out, &job, true).unwrap();
    out
}

/// Shared memory of a fuzzer.
pub struct Memory {
    pub id: i32,
    bytes: *mut u8,
    size: usize,
}

impl Memory {
    pub fn new(size: usize) -> Self {
        // SAFETY: the segment is new, and stays attached as long as the value lives.
        unsafe {
            let id = libc::shmget(libc::IPC_PRIVATE, size, libc::IPC_CREAT | 0o600);
            assert!(id >= 0, "{}", io::Error::last_os_error());
            let bytes = libc::shmat(id, ptr::null(), 0).cast::<u8>();
            assert_ne!(bytes.addr(), usize::MAX);
            Self { id, bytes, size }
        }
    }

    pub fn clear(&self) {
        // SAFETY: the program runs only between a question and its answer.
        unsafe { ptr::write_bytes(self.bytes, 0, self.size) };
    }

    pub fn copy(&self) -> Vec<u8> {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.bytes, self.size) }.to_vec()
    }

    pub fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.size);
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.bytes, bytes.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: attached by `new`.
        unsafe {
            libc::shmdt(self.bytes.cast());
            libc::shmctl(self.id, libc::IPC_RMID, ptr::null_mut());
        }
    }
}

/// A pipe: the end that reads and the end that writes. Programs that are executed do not get it.
fn pipe() -> [RawFd; 2] {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors.
    assert_eq!(
        unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) },
        0
    );
    ends
}

/// A run of the program.
#[derive(PartialEq, Debug)]
pub struct Run {
    pub pid: u32,
    pub status: i32,
    map: Vec<u8>,
}

impl Run {
    /// Numbers of the cells that counted, with their counts.
    pub fn hits(&self) -> Vec<(usize, u8)> {
        let cells = self.map.iter().copied().enumerate();
        cells.filter(|(_, n)| *n != 0).collect()
    }

    pub fn exit_code(&self) -> Option<i32> {
        libc::WIFEXITED(self.status).then(|| libc::WEXITSTATUS(self.status))
    }

    pub fn signal(&self) -> Option<i32> {
        libc::WIFSIGNALED(self.status).then(|| libc::WTERMSIG(self.status))
    }
}

/// What a fuzzer and a server have beside the map.
#[derive(Clone, Copy, Default)]
pub struct Features<'a> {
    /// Further memory, and the variables that name it.
    pub environment: &'a [(&'static str, &'a Memory)],
    /// The program logs comparisons.
    pub has_comparisons: bool,
    /// The program takes test cases from shared memory.
    pub has_input: bool,
}

/// A fuzzer with a program's fork server.
pub struct Fuzzer {
    server: Child,
    ask: RawFd,
    answer: RawFd,
    memory: Memory,
    input: PathBuf,
    notes: PathBuf,
    /// The child of the run before was killed.
    has_killed: u32,
    /// Size of the map that the server has announced.
    size: usize,
}

impl Fuzzer {
    pub fn begin(program: &Path, protocol: u32) -> Self {
        Self::with(program, protocol, Features::default())
    }

    /// Begins with features that the server has to announce.
    pub fn with(program: &Path, protocol: u32, features: Features<'_>) -> Self {
        let [input, notes] = ["input", "notes"].map(|end| program.with_extension(end));
        let _ = fs::remove_file(&notes);
        let memory = Memory::new(4 << 20);
        let ([control, ask], [answer, status]) = (pipe(), pipe());
        let mut command = Command::new(program);
        plain_environment(&mut command);
        command
            .arg(&input)
            .env("NOTES", &notes)
            .env("__AFL_SHM_ID", memory.id.to_string())
            .envs(
                features
                    .environment
                    .iter()
                    .map(|(name, of)| (name, of.id.to_string())),
            )
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        let ends = [control, status];
        // SAFETY: system calls alone.
        unsafe {
            command.pre_exec(move || {
                for (end, at) in ends.into_iter().zip(SERVER) {
                    if libc::dup2(end, at) < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let server = command.spawn().unwrap();
        // SAFETY: the server has its own descriptors of both.
        for end in ends {
            unsafe { libc::close(end) };
        }
        let mut fuzzer = Self {
            server,
            ask,
            answer,
            memory,
            input,
            notes,
            has_killed: 0,
            size: 0,
        };
        fuzzer.size = fuzzer.greet(protocol, features);
        fuzzer
    }

    /// Takes the announcement; returns the size of the map.
    fn greet(&mut self, protocol: u32, features: Features<'_>) -> usize {
        const HAS_COMPARISONS: u32 = 0x0200_0000;
        const HAS_INPUT: u32 = 0x0100_0000;
        let Features {
            has_comparisons,
            has_input,
            ..
        } = features;
        let first = self.read(PATIENCE).unwrap();
        if protocol == 0 {
            // Options in the outer bits, and the map's size less 1 in bits 1 to 23.
            let mut expected = 0xc000_0001;
            expected |= if has_comparisons { HAS_COMPARISONS } else { 0 };
            expected |= if has_input { HAS_INPUT } else { 0 };
            assert_eq!(first & 0xff00_0001, expected, "{first:#x}");
            if has_input {
                self.write(0x8000_0001 | HAS_INPUT);
            }
            return ((first >> 1 & 0x7f_ffff) + 1) as usize;
        }
        assert_eq!(first, u32::from_le_bytes(*b"\x01LFA"));
        self.write(!first);
        assert_eq!(
            self.read(PATIENCE),
            Some(if has_input { 3 } else { 1 }),
            "the size of the map and what is expected"
        );
        let size = self.read(PATIENCE).unwrap();
        assert_eq!(self.read(PATIENCE), Some(first));
        size as usize
    }

    /// Reads a word; `None` if there is none in time.
    fn read(&self, milliseconds: i32) -> Option<u32> {
        let mut poll = libc::pollfd {
            fd: self.answer,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut word = [0u8; 4];
        // SAFETY: the kernel writes into both.
        unsafe {
            if libc::poll(&mut poll, 1, milliseconds) == 0 {
                return None;
            }
            let read = libc::read(self.answer, word.as_mut_ptr().cast(), 4);
            assert_eq!(read, 4, "the server has gone");
        }
        Some(u32::from_le_bytes(word))
    }

    fn write(&self, word: u32) {
        let word = word.to_le_bytes();
        // SAFETY: the kernel reads four bytes.
        let written = unsafe { libc::write(self.ask, word.as_ptr().cast(), 4) };
        assert_eq!(written, 4);
    }

    /// Runs the program with an input; kills it if it hangs.
    pub fn run(&mut self, input: &[u8]) -> Run {
        fs::write(&self.input, input).unwrap();
        self.memory.clear();
        self.write(self.has_killed);
        let pid = self.read(PATIENCE).unwrap();
        let status = self.read(if input == HANGS { HANG } else { PATIENCE });
        self.has_killed = status.is_none().into();
        let status = status.unwrap_or_else(|| {
            // SAFETY: a child of the server, which waits for it.
            unsafe { libc::kill(pid as i32, SIGKILL) };
            self.read(PATIENCE).unwrap()
        });
        let map = self.memory.copy();
        assert!(
            map[self.size..].iter().all(|n| *n == 0),
            "the map is larger than announced"
        );
        let status = status as i32;
        Run { pid, status, map }
    }

    /// The lines that the program has noted since the last time.
    fn notes(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.notes).unwrap_or_default();
        let _ = fs::remove_file(&self.notes);
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Fuzzer {
    fn drop(&mut self) {
        // SAFETY: descriptors of this value.
        for end in [self.ask, self.answer] {
            unsafe { libc::close(end) };
        }
        // The server ends when the fuzzer has gone.
        let ended = self.server.wait().unwrap();
        assert!(ended.success() || std::thread::panicking(), "{ended}");
    }
}

/// Counts that say how often the loop in the program ran: those that differ between two runs by `more`.
fn differ_by(less: &Run, more: &Run, by: u8) -> usize {
    let cells = less.map.iter().zip(&more.map);
    cells.filter(|(a, b)| **b == a.wrapping_add(by)).count()
}

/// What every fork server does.
fn judge(program: &Path, protocol: u32) {
    let mut fuzzer = Fuzzer::begin(program, protocol);
    let empty = fuzzer.run(b"");
    assert_eq!(empty.exit_code(), Some(0));
    assert!(!empty.hits().is_empty());
    let [three, ten, again] = [b"l\x03", b"l\x0a", b"l\x03"].map(|input| fuzzer.run(input));
    assert_eq!(three.hits(), again.hits());
    assert_ne!(three.pid, again.pid);
    assert_ne!(three.hits(), empty.hits());
    assert!(differ_by(&three, &ten, 7) > 0);
    // A count goes from 255 to 1.
    let [below, above] = [b"l\xfe", b"l\xff"].map(|input| fuzzer.run(input));
    assert!(above.map.len() == below.map.len() && differ_by(&below, &above, 1) > 0);
    // Ends of all kinds, and a good run behind each.
    for (input, code, signal) in [
        (b"a", None, Some(SIGABRT)),
        (b"s", None, Some(SIGSEGV)),
        (b"r", None, Some(SIGUSR1)),
        (HANGS, None, Some(SIGKILL)),
        (b"e", Some(7), None),
    ] {
        let run = fuzzer.run(input);
        assert_eq!((run.exit_code(), run.signal()), (code, signal), "{input:?}");
        assert!(!run.hits().is_empty());
        let good = fuzzer.run(b"l\x03");
        assert_eq!(good.hits(), three.hits(), "after {input:?}");
    }
    // Children and threads count, too: they call `loop` with 7.
    for input in [b"f", b"t"] {
        let run = fuzzer.run(input);
        assert_eq!(run.exit_code(), Some(0));
        assert!(run.hits().len() > empty.hits().len() + 1);
        assert!(differ_by(&empty, &run, 7) > 0);
    }
}

#[test]
fn a_fork_server_runs_the_program_for_each_input() {
    let folder = super::folder("afl");
    let program = build(&folder, "gcc", &[]);
    let out = instrument(&program, "first", &[]);
    judge(&out, 0);
    let mut fuzzer = Fuzzer::begin(&out, 0);
    assert_eq!(fuzzer.notes(), ["begin 0"], "the server begins at main");
    fuzzer.run(b"l\x01");
    fuzzer.run(b"l\x01");
    let expected = ["main 0", "once 1", "end 0"].repeat(2);
    assert_eq!(fuzzer.notes(), expected);
    assert!(fuzzer.size < 1000, "{} cells", fuzzer.size);

    // Without a fuzzer the program does the same as before, with its memory's name and without.
    fs::write(&fuzzer.input, b"l\x05").unwrap();
    let plain = super::ok(Command::new(&program).arg(&fuzzer.input), &folder);
    let id = fuzzer.memory.id.to_string();
    for name in [None, Some(&id)] {
        let mut command = Command::new(&out);
        command.arg(&fuzzer.input);
        name.map(|name| command.env("__AFL_SHM_ID", name));
        assert_eq!(super::ok(&mut command, &folder), plain);
    }
    assert!(!folder.join("cover.out").exists());
}

#[test]
fn stripped_static_and_whole_programs_are_served() {
    let folder = super::folder("afl-kinds");
    let program = build(&folder, "gcc", &["-s"]);
    let out = instrument(&program, "stripped", &["--protocol", "1"]);
    judge(&out, 1);
    let fuzzer = Fuzzer::begin(&out, 1);
    assert_eq!(fuzzer.notes(), ["begin 0"], "the server begins at main");
    drop(fuzzer);

    let own = Fuzzer::begin(&out, 1).size;
    let whole = folder.join("whole");
    let tool = Job::Tool("afl".into(), vec![]);
    atom::instrument(&program, &whole, &Job::Whole(Box::new(tool), vec![]), true).unwrap();
    judge(&whole, 0);
    assert!(Fuzzer::begin(&whole, 0).size > 10 * own);
    for file in [&whole, &out] {
        let bytes = fs::read(file).unwrap();
        let found = bytes.windows(13).any(|bytes| bytes == b"__AFL_SHM_ID\0");
        assert!(found, "fuzzers do not recognise {}", file.display());
    }

    // musl keeps the thread's number elsewhere; `raise` uses it.
    let program = build(&folder, "musl-gcc", &["-static"]);
    judge(&instrument(&program, "musl", &[]), 0);
}

#[test]
fn a_server_begins_where_it_is_told() {
    let folder = super::folder("afl-start");
    let program = build(&folder, "gcc", &[]);
    let out = instrument(&program, "late", &["--start", "once", "--map", "5"]);
    let mut fuzzer = Fuzzer::begin(&out, 0);
    assert_eq!(fuzzer.notes(), ["begin 0", "main 0"]);
    let [short, long] = [b"l\x01", b"l\x09"].map(|input| fuzzer.run(input));
    assert_eq!(fuzzer.notes(), ["once 1", "end 0"].repeat(2));
    // All cells are the five last ones.
    assert!(
        short
            .hits()
            .iter()
            .all(|(at, _)| (fuzzer.size - 5..fuzzer.size).contains(at))
    );
    assert!(differ_by(&short, &long, 8) > 0);
}

#[test]
fn a_persistent_process_runs_a_procedure_for_each_input() {
    let folder = super::folder("afl-persistent");
    let program = build(&folder, "gcc", &[]);
    let options = ["--persistent", "once", "--cycles", "4"];
    let out = instrument(&program, "persistent", &options);
    let mut fuzzer = Fuzzer::begin(&out, 0);
    let is_stopped =
        |run: &Run| libc::WIFSTOPPED(run.status) && libc::WSTOPSIG(run.status) == SIGSTOP;
    for _ in 0..2 {
        let [first, second, third, last] =
            [b"l\x03", b"l\x05", b"l\x03", b"l\x03"].map(|input| fuzzer.run(input));
        assert!([&first, &second, &third].into_iter().all(is_stopped));
        assert_eq!(last.exit_code(), Some(0));
        assert!(
            [&second, &third, &last]
                .iter()
                .all(|run| run.pid == first.pid)
        );
        assert_eq!(first.hits(), third.hits());
        assert_eq!(first.hits(), last.hits());
        assert!(differ_by(&first, &second, 2) > 0);
    }
    let mut expected = vec!["begin 0".to_owned(), "main 0".to_owned()];
    for _ in 0..2 {
        expected.extend((1..=4).map(|call| format!("once {call}")));
    }
    assert_eq!(fuzzer.notes(), expected);

    // A crash, a hang and an exit end the process, and the next run has a new one.
    let mut last = fuzzer.run(b"l\x03").pid;
    for (input, code, signal) in [
        (b"a", None, Some(SIGABRT)),
        (HANGS, None, Some(SIGKILL)),
        (b"e", Some(7), None),
    ] {
        let run = fuzzer.run(input);
        assert_eq!((run.exit_code(), run.signal()), (code, signal));
        assert_eq!(run.pid, last);
        let next = fuzzer.run(b"l\x03");
        assert!(is_stopped(&next) && next.pid != last);
        last = next.pid;
    }
    // A fuzzer may kill a process that has stopped.
    // SAFETY: a child of the server.
    unsafe { libc::kill(last as i32, SIGKILL) };
    fuzzer.has_killed = 1;
    let next = fuzzer.run(b"l\x03");
    assert!(is_stopped(&next) && next.pid != last);
    // SAFETY: as above. Nobody else would end it.
    unsafe { libc::kill(next.pid as i32, SIGKILL) };
}

#[test]
fn cover_does_the_same_with_its_option() {
    let folder = super::folder("afl-in-cover");
    let program = build(&folder, "gcc", &[]);
    let out = program.with_file_name("cover");
    let words = ["--afl", "--afl-protocol", "1"].map(str::to_owned);
    let job = Job::Tool("cover".into(), words.to_vec());
    atom::instrument(&program, &out, &job, true).unwrap();
    judge(&out, 1);
}

#[test]
fn wrong_options_are_refused() {
    let folder = super::folder("afl-options");
    let program = build(&folder, "gcc", &[]);
    for (tool, options, message) in [
        ("afl", vec!["--start", "nowhere"], "nowhere"),
        (
            "afl",
            vec!["--start", "0x1"],
            "no instruction starts at 0x1",
        ),
        ("afl", vec!["--input"], "needs --persistent"),
        ("afl", vec!["--map", "9m"], "--map takes"),
        ("afl", vec!["--lcov", "file"], "--lcov"),
        (
            "cover",
            vec!["--afl-start", "main"],
            "--afl-start needs --afl",
        ),
        ("cover", vec!["--afl-cmplog"], "--afl-cmplog needs --afl"),
        (
            "cover",
            vec!["--afl", "--afl-input"],
            "needs --afl-persistent",
        ),
        ("cover", vec!["--afl", "--lcov", "file"], "--lcov"),
    ] {
        let words = options.iter().map(|word| word.to_string()).collect();
        let out = program.with_file_name("refused");
        let refused = atom::instrument(&program, &out, &Job::Tool(tool.into(), words), false);
        let text = refused
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(text.contains(message), "{options:?}: {text}");
        assert!(!out.exists());
    }
}

/// At full depth, with AFL++ if it is installed: it sees the same map as our client, and finds the crash.
#[test]
fn afl_finds_the_crash() {
    if !depth::is_full() {
        return;
    }
    let Some(fuzz) = programs::in_path("afl-fuzz") else {
        return eprintln!("afl-fuzz is not installed");
    };
    let folder = super::folder("afl-fuzz");
    let program = build(&folder, "gcc", &[]);
    let out = instrument(&program, "target", &[]);
    let seeds = folder.join("seeds");
    fs::create_dir(&seeds).unwrap();
    fs::write(seeds.join("seed"), "l\x03").unwrap();
    let environment = [
        ("AFL_SKIP_CPUFREQ", "1"),
        ("AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES", "1"),
        ("AFL_NO_UI", "1"),
        ("AFL_NO_AFFINITY", "1"),
        ("AFL_BENCH_UNTIL_CRASH", "1"),
        ("AFL_QUIET", "1"),
    ];
    let mut show = Command::new(fuzz.with_file_name("afl-showmap"));
    show.args(["-r", "-q", "-o", "shown", "--"]).arg(&out);
    show.arg("seeds/seed").envs(environment);
    super::ok(show.env("NOTES", folder.join("notes")), &folder);
    let shown = fs::read_to_string(folder.join("shown")).unwrap();
    let cell = |line: &str| {
        let (at, count) = line.split_once(':').unwrap();
        (at.parse().unwrap(), count.parse().unwrap())
    };
    let shown: Vec<(usize, u8)> = shown.lines().map(cell).collect();
    let mut fuzzer = Fuzzer::begin(&out, 0);
    assert_eq!(fuzzer.run(b"l\x03").hits(), shown);
    drop(fuzzer);

    let mut command = Command::new(fuzz);
    command.args(["-s", "1", "-V", "120", "-i", "seeds", "-o", "found", "--"]);
    super::ok(command.arg(&out).arg("@@").envs(environment), &folder);
    let crashes = fs::read_dir(folder.join("found/default/crashes")).unwrap();
    let names: Vec<_> = crashes.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        names
            .iter()
            .any(|name| name.to_string_lossy().contains("sig:")),
        "{names:?}"
    );
}
