//! The map of comparisons that `cover --afl-cmplog` writes, and test cases in shared memory (`--afl-input`), with a reader
//! written from the declarations of AFL++'s maps.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::depth;
use atom_tests::programs;
use libc::SIGABRT;

use super::afl::{Features, Fuzzer, Memory, instrument};

const SITES: usize = 1 << 16;

/// What is compared for.
const EQUAL: u64 = 1;
const GREATER: u64 = 2;
const LESS: u64 = 4;
const FLOAT: u64 = 8;

/// Versions of AFL++'s map: 4.00, 4.20 and 4.22 are the first that have them.
#[derive(Clone, Copy, Debug)]
enum Version {
    V400,
    V420,
    V422,
}

impl Version {
    const ALL: [Self; 3] = [Self::V400, Self::V420, Self::V422];

    /// Bytes of a header and of an entry for numbers.
    fn sizes(self) -> [usize; 2] {
        match self {
            Self::V400 => [8, 32],
            Self::V420 => [2, 42],
            Self::V422 => [2, 72],
        }
    }

    fn memory(self) -> Memory {
        let [header, entry] = self.sizes();
        Memory::new(SITES * (header + 32 * entry))
    }

    fn protocol(self) -> u32 {
        match self {
            Self::V400 => 0,
            _ => 1,
        }
    }
}

/// An entry of the map.
#[derive(PartialEq, Eq, Debug)]
enum Logged {
    Numbers {
        size: usize,
        attribute: u64,
        values: [u128; 2],
    },
    Memory([Vec<u8>; 2]),
}

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// All entries of a map.
fn read(map: &[u8], version: Version) -> Vec<Logged> {
    let [header, entry] = version.sizes();
    let mut all = Vec::new();
    for site in 0..SITES {
        let word = number(&map[site * header..][..header]);
        let (hits, shape, is_memory, attribute) = match version {
            Version::V400 => (
                word & 0xff_ffff,
                word >> 48 & 31,
                word >> 53 & 3 == 2,
                word >> 55 & 15,
            ),
            _ => (word & 63, word >> 6 & 31, word >> 11 & 1 == 1, word >> 12),
        };
        assert!(hits <= 32, "{hits} hits");
        let entries = &map[SITES * header + site * 32 * entry..][..32 * entry];
        for hit in 0..hits as usize {
            all.push(if is_memory {
                let (size, bytes, lengths) = match version {
                    Version::V400 => (64, [0, 32], [31, 63]),
                    Version::V420 => (66, [0, 33], [32, 65]),
                    Version::V422 => (72, [0, 32], [64, 65]),
                };
                let own = &entries[hit * size..][..size];
                let piece = |i: usize| {
                    let length = usize::from(own[lengths[i]] & 0x7f);
                    own[bytes[i]..][..length].to_vec()
                };
                Logged::Memory([piece(0), piece(1)])
            } else {
                let at = |place: usize| u128::from(number(&entries[hit * entry + place..][..8]));
                let [low, high] = match version {
                    Version::V422 => [[0, 32], [8, 40]],
                    _ => [[0, 8], [16, 24]],
                };
                let values = [0, 1].map(|i| at(low[i]) | at(high[i]) << 64);
                let size = shape as usize + 1;
                Logged::Numbers {
                    size,
                    attribute,
                    values,
                }
            });
        }
    }
    all
}

/// True if two numbers were compared, in any order.
fn has(log: &[Logged], wanted: (usize, u64), pair: [u128; 2]) -> bool {
    let turned = [pair[1], pair[0]];
    log.iter().any(|entry| match entry {
        Logged::Numbers {
            size,
            attribute,
            values,
        } => (*size, *attribute) == wanted && (*values == pair || *values == turned),
        Logged::Memory(_) => false,
    })
}

/// True if memory that begins so was compared, in any order.
fn has_memory(log: &[Logged], first: &[u8], second: &[u8]) -> bool {
    let begins = |a: &[u8], b: &[u8]| a.starts_with(first) && b.starts_with(second);
    log.iter().any(|entry| match entry {
        Logged::Memory([a, b]) => begins(a, b) || begins(b, a),
        Logged::Numbers { .. } => false,
    })
}

/// An input that passes a number of the program's tests.
fn input(passes: usize) -> Vec<u8> {
    let parts: [&[u8]; 8] = [
        &0x7f3a_91c5_u32.to_le_bytes(),
        &0x1122_3344_5566_7788_u64.to_le_bytes(),
        b"sixteen-byte-key",
        b"string\0.",
        &0x1020_3040_u32.to_le_bytes(),
        &0xbeef_u16.to_le_bytes(),
        b"repeated..",
        &1233.5_f64.to_le_bytes(),
    ];
    let mut bytes = parts[..passes].concat();
    bytes.resize(80, b'q');
    bytes
}

fn build(folder: &Path, compiler: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cover/programs/compared.c");
    let program = folder.join("compared");
    let out = program.display().to_string();
    let mut command = Command::new(compiler);
    command.arg(source).args(["-o", &out]).args(options);
    super::ok(&mut command, folder);
    program
}

/// Runs a program with an input for each of its tests, and looks for the operands in the map.
fn judge(program: &Path, version: Version, is_whole: bool) {
    let map = version.memory();
    let features = Features {
        environment: &[("__AFL_CMPLOG_SHM_ID", &map)],
        has_comparisons: true,
        has_input: false,
    };
    let mut fuzzer = Fuzzer::with(program, version.protocol(), features);
    let mut run = |passes: usize| {
        map.clear();
        let run = fuzzer.run(&input(passes));
        assert!(!run.hits().is_empty());
        let end = (run.exit_code(), run.signal());
        (end, read(&map.copy(), version))
    };
    let fours = 0x7171_7171;
    let eights = 0x7171_7171_7171_7171;
    let sixteens = eights | eights << 64;
    let key = u128::from_le_bytes(*b"sixteen-byte-key");
    for passes in 0..=8 {
        let (end, log) = run(passes);
        let context = format!("{} passes, {version:?}: {end:?} {log:x?}", passes);
        let code = [2, 3, 4, 5, 7, 8, 9, 10].get(passes).copied();
        assert_eq!(end, (code, code.is_none().then_some(SIGABRT)), "{context}");
        let is_logged = match passes {
            0 => has(&log, (4, EQUAL), [fours, 0x7f3a_91c5]),
            1 => has(&log, (8, EQUAL), [eights, 0x1122_3344_5566_7788]),
            2 => {
                has(&log, (16, EQUAL), [sixteens, key])
                    || has_memory(&log, b"qqqqqqqqqqqqqqqq", b"sixteen-byte-key")
            }
            3 => has_memory(&log, b"qqqqqqq", b"string\0"),
            // The compiler searches the cases in its own order.
            4 => [0x1020_3040, 0x55aa_1234, 0x7aa7_1234, 0x0a0b_1234]
                .into_iter()
                .any(|case| has(&log, (4, EQUAL), [fours, case])),
            5 => has(&log, (2, EQUAL), [0x7171, 0xbeef]) || has(&log, (4, EQUAL), [0x7171, 0xbeef]),
            6 => has_memory(&log, b"qqqqqqqq", b"repeated"),
            7 => {
                let limit = u128::from(1234.5_f64.to_bits());
                // The compiler may turn the operands and the condition around.
                [GREATER, GREATER | EQUAL, LESS, LESS | EQUAL]
                    .into_iter()
                    .any(|what| has(&log, (8, FLOAT | what), [eights, limit]))
            }
            _ => true,
        };
        assert!(is_logged, "{context}");
    }
    // The next process logs the same. Libraries compare process numbers, too.
    assert!(is_whole || run(3) == run(3));
}

#[test]
fn operands_of_comparisons_are_logged() {
    let folder = super::folder("cmplog");
    for (number, (compiler, options)) in [
        ("gcc", &["-O2"][..]),
        ("gcc", &["-O0", "-s"]),
        ("gcc", &["-O2", "-s", "-static"]),
        ("clang", &["-O2"]),
    ]
    .into_iter()
    .enumerate()
    {
        let program = build(&folder, compiler, options);
        let out = instrument(&program, &format!("logging{number}"), &["--cmplog"]);
        let versions = if number == 0 {
            &Version::ALL[..]
        } else {
            &Version::ALL[..1]
        };
        for version in versions {
            judge(&out, *version, false);
        }
    }
}

#[test]
fn comparisons_of_whole_processes_are_logged() {
    let folder = super::folder("cmplog-whole");
    let program = build(&folder, "gcc", &["-O2", "-s"]);
    let whole = folder.join("whole");
    let tool = Job::Tool("afl".into(), vec!["--cmplog".to_owned()]);
    atom::instrument(&program, &whole, &Job::Whole(Box::new(tool), vec![]), true).unwrap();
    judge(&whole, Version::V400, true);
}

/// One program serves a fuzzer with and without a map of comparisons.
#[test]
fn nothing_is_logged_without_a_map() {
    let folder = super::folder("cmplog-without");
    let program = build(&folder, "gcc", &["-O2"]);
    let out = instrument(&program, "logging", &["--cmplog"]);
    let plain = instrument(&program, "plain", &[]);
    let features = Features {
        has_comparisons: true,
        ..Features::default()
    };
    let mut fuzzer = Fuzzer::with(&out, 0, features);
    let mut other = Fuzzer::begin(&plain, 0);
    for passes in 0..=8 {
        let input = input(passes);
        let [run, expected] = [fuzzer.run(&input), other.run(&input)];
        assert_eq!((run.status, run.hits()), (expected.status, expected.hits()));
    }
    let file = folder.join("file");
    fs::write(&file, input(3)).unwrap();
    let status = Command::new(&out).arg(&file).status().unwrap();
    assert_eq!(status.code(), Some(5));
}

#[test]
fn a_persistent_process_takes_its_input_from_shared_memory() {
    let folder = super::folder("afl-input");
    let program = build(&folder, "gcc", &["-O2"]);
    let options = [
        "--persistent",
        "check",
        "--cycles",
        "3",
        "--input",
        "--cmplog",
    ];
    let out = instrument(&program, "taking", &options);
    // The program reads a file before it comes to the procedure.
    fs::write(out.with_extension("input"), input(0)).unwrap();
    for version in [Version::V400, Version::V422] {
        let (map, cases) = (version.memory(), Memory::new(1 << 20));
        let features = Features {
            environment: &[("__AFL_CMPLOG_SHM_ID", &map), ("__AFL_SHM_FUZZ_ID", &cases)],
            has_comparisons: true,
            has_input: true,
        };
        let mut fuzzer = Fuzzer::with(&out, version.protocol(), features);
        let mut run = |passes: usize, length: u32| {
            map.clear();
            cases.write(&[&length.to_le_bytes()[..], &input(passes)].concat());
            let run = fuzzer.run(b"not this");
            (run.pid, run.status, read(&map.copy(), version))
        };
        let mut pids = Vec::new();
        for passes in [0, 1, 3, 0, 1, 3] {
            let (pid, status, log) = run(passes, 80);
            let is_last = pids.len() % 3 == 2;
            assert_eq!(
                (libc::WIFSTOPPED(status), libc::WIFEXITED(status)),
                (!is_last, is_last)
            );
            pids.push(pid);
            let is_logged = match passes {
                0 => has(&log, (4, EQUAL), [0x7171_7171, 0x7f3a_91c5]),
                1 => has(
                    &log,
                    (8, EQUAL),
                    [0x7171_7171_7171_7171, 0x1122_3344_5566_7788],
                ),
                _ => has_memory(&log, b"qqqqqqq", b"string\0"),
            };
            assert!(is_logged, "{passes} {log:x?}");
        }
        assert!(pids[0] == pids[2] && pids[3] == pids[5] && pids[2] != pids[3]);
        // The program gets 79 as the length of the test case in bytes, and does not reach this comparison.
        let (_, _, log) = run(0, 79);
        assert!(!has(&log, (4, EQUAL), [0x7171_7171, 0x7f3a_91c5]));
        let (pid, status, _) = run(8, 80);
        assert_eq!(
            (libc::WIFSIGNALED(status), libc::WTERMSIG(status)),
            (true, SIGABRT)
        );
        assert_ne!(run(0, 80).0, pid);
        let (pid, ..) = run(0, 80);
        // SAFETY: a child of the server, which has stopped. Nobody else would end it.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    }
    // Without such memory the input is what descriptor 0 has; without a fuzzer the program is as before.
    let features = Features {
        has_comparisons: true,
        ..Features::default()
    };
    let mut fuzzer = Fuzzer::with(&out, 0, features);
    let run = fuzzer.run(&input(8));
    assert!(libc::WIFSTOPPED(run.status), "{run:?}");
    // SAFETY: as above.
    unsafe { libc::kill(run.pid as i32, libc::SIGKILL) };
    fs::write(folder.join("file"), input(3)).unwrap();
    let status = Command::new(&out)
        .arg(folder.join("file"))
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(5));
}

/// At full depth, with AFL++ if it is installed: it finds the crash behind all comparisons.
#[test]
fn afl_passes_the_comparisons() {
    if !depth::is_full() {
        return;
    }
    let Some(fuzz) = programs::in_path("afl-fuzz") else {
        return eprintln!("afl-fuzz is not installed");
    };
    let folder = super::folder("cmplog-fuzz");
    let seeds = folder.join("seeds");
    fs::create_dir(&seeds).unwrap();
    fs::write(seeds.join("seed"), [0; 80]).unwrap();
    let environment = [
        ("AFL_SKIP_CPUFREQ", "1"),
        ("AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES", "1"),
        ("AFL_NO_UI", "1"),
        ("AFL_NO_AFFINITY", "1"),
        ("AFL_BENCH_UNTIL_CRASH", "1"),
        ("AFL_QUIET", "1"),
    ];
    for (name, options) in [
        ("dynamic", &["-O2", "-s"][..]),
        ("static", &["-O2", "-s", "-static"]),
    ] {
        let program = build(&folder, "gcc", options);
        let out = instrument(&program, name, &["--cmplog"]);
        let mut command = Command::new(&fuzz);
        command.args([
            "-s",
            "1",
            "-V",
            "120",
            "-i",
            "seeds",
            "-o",
            &format!("found-{name}"),
        ]);
        command
            .args(["-c", "0", "--"])
            .arg(&out)
            .arg("@@")
            .envs(environment);
        super::ok(&mut command, &folder);
        let crashes = fs::read_dir(folder.join(format!("found-{name}/default/crashes"))).unwrap();
        let names: Vec<_> = crashes.map(|entry| entry.unwrap().file_name()).collect();
        assert!(
            names
                .iter()
                .any(|name| name.to_string_lossy().contains("sig:")),
            "{names:?}"
        );
    }
}
