//! Callbacks of the user: the recorded values come back, and the cost of the callbacks is subtracted.

use std::path::Path;
use std::process::Command;

use arp::{DataType, Profile};
use atom_tests::atom;

use super::{compile, data, folder, go, instrument, source, tool, values};

/// Value of this key in a data file's notes.
fn note<'a>(profile: &'a Profile, key: &str) -> Option<&'a str> {
    let found = profile.info().iter().find(|(k, _)| k == key)?;
    Some(&found.1)
}

#[test]
fn the_cost_of_own_callbacks_is_subtracted() {
    let folder = folder("own");
    let tool = tool(&folder, "own.c");
    let built = |name: &str| {
        let program = folder.join(name);
        let from = source(&format!("{name}.c"));
        compile("gcc", &["-g", "-O1"], &[from], &program);
        program
    };
    let (program, empty) = (built("filter"), built("empty"));
    let record = |program: &Path,
                  calibrate: &str,
                  callbacks: [&str; 3],
                  more: &[&str]|
     -> (Profile, String) {
        let file = data(program);
        let options = [
            format!("--arp-enter-callback={}", callbacks[0]),
            format!("--arp-leave-callback={}", callbacks[1]),
            format!("--arp-data-type={}", callbacks[2]),
            format!("--arp-calibrate={calibrate}"),
            "--arp-mode=record_all".to_owned(),
            format!("--arp-data-filename={file}"),
        ];
        let mut all: Vec<&str> = options.iter().map(String::as_str).collect();
        all.extend(more);
        let out = instrument(program, &tool, &all);
        let text = String::from_utf8(go(&out).stdout).unwrap();
        (Profile::load(&file).unwrap(), text)
    };
    let median = |p: &Profile, name: &str| {
        let mut all = values(p, name, 0);
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    // A clock: the cost of reading it twice is subtracted.
    let ticks = ["ticksBegin", "ticksEnd", "ulong"];
    let (with, text) = record(&empty, "auto", ticks, &[]);
    let (without, _) = record(&empty, "off", ticks, &[]);
    assert_eq!(text.into_bytes(), go(&empty).stdout);
    assert_eq!((with.len(), without.len()), (20001, 20001));
    // The median of 20,000 executions does not depend on what else the machine does. The minimum does: a thread that
    // moves to another processor may find an earlier time there.
    let (less, more) = (median(&with, "nothing"), median(&without, "nothing"));
    assert!(less < more, "{less}, {more}");
    assert!(
        note(&with, "callback subtracted")
            .unwrap()
            .contains("for an execution")
    );
    assert!(
        note(&with, "callback left in an empty section")
            .unwrap()
            .contains("95 of 100")
    );
    assert!(
        note(&without, "callback subtracted")
            .unwrap()
            .starts_with("nothing")
    );
    assert_eq!(note(&without, "callback left in an empty section"), None);
    // A clock with a state: calibration must not advance it, and its cost is subtracted only with `on`.
    let simulated = ["simulatedBegin", "simulatedEnd", "double"];
    // An image of 25 lines: each line reads it twice, and the end once more.
    let image = 25.0 * 14.0 + 7.0;
    for (calibrate, [line, lines]) in [
        ("auto", [7.0, image]),
        ("off", [7.0, image]),
        ("on", [0.0, 0.0]),
    ] {
        let (recorded, _) = record(&program, calibrate, simulated, &[]);
        assert_eq!(recorded.sets()[0].data_type, DataType::Double);
        for (name, expected) in [("ato_kernel_line", line), ("ato_profile_lines", lines)] {
            let found = values(&recorded, name, 0);
            assert!(
                found.iter().all(|v| *v == expected),
                "{calibrate} {name}: {found:?}"
            );
        }
    }
    // Output of the callbacks during calibration is discarded, and a negative value is not taken for a cost.
    let (loud, text) = record(&program, "on", ["loudBegin", "loudEnd", "int"], &[]);
    assert_eq!(text.matches("begin\n").count(), 156);
    assert!(
        values(&loud, "ato_kernel_line", 0)
            .iter()
            .all(|v| *v == -5.0)
    );
    // With other measures: their values do not contain the cost of the callbacks.
    let (both, _) = record(&program, "auto", ticks, &["--measure", "cycles"]);
    assert_eq!(both.sets().len(), 2);
    assert!(note(&both, "cycles subtracted").is_some());
    assert!(note(&both, "callback subtracted").is_some());
}

#[test]
fn callbacks_in_rust() {
    let folder = folder("own-rust");
    let command = atom::command().unwrap();
    // Beside the command, where what both need is built already.
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let made = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "-p", "atom-kernel"])
        .args(["--example", "kernel-callbacks", "--manifest-path"])
        .arg(manifest)
        .env(
            "CARGO_TARGET_DIR",
            atom_tests::cache::target_folder().unwrap(),
        )
        .status();
    assert!(made.expect("cargo runs").success());
    let tool = command.with_file_name("examples/libkernel_callbacks.so");
    let program = folder.join("filter");
    compile("gcc", &["-g", "-O1"], &[source("filter.c")], &program);
    let file = data(&program);
    let options = [
        "--arp-enter-callback=faults_begin",
        "--arp-leave-callback=faults_end",
        "--arp-data-type=ulong",
        "--arp-mode=record_all",
        "--arp-data-filename",
        &file,
    ];
    let out = instrument(&program, tool.to_str().unwrap(), &options);
    assert_eq!(go(&out).stdout, go(&program).stdout);
    let recorded = Profile::load(&file).unwrap();
    assert_eq!(recorded.len(), 156);
    // All images lie on the stack, in a few pages, so only the first round causes page faults.
    let lines = values(&recorded, "ato_kernel_line", 0);
    assert_eq!(lines.len(), 75);
    assert!(lines.iter().sum::<f64>() < 50.0, "{lines:?}");
}

#[test]
fn callbacks_in_c_record_and_get_it_back_in_order() {
    let folder = folder("callbacks");
    let tool = tool(&folder, "callbacks.c");
    let program = folder.join("labels");
    compile("gcc", &["-g", "-O1"], &[source("labels.c")], &program);
    let file = data(&program);
    let common = ["--arp-data-type=long", "--arp-data-filename", &file];
    let record = [
        "--arp-enter-callback=numberBegin",
        "--arp-leave-callback=numberEnd",
        "--arp-data-context=current",
        "--arp-mode=record_all",
        "--arp-format=ascii",
    ];
    let out = instrument(&program, &tool, &[&record[..], &common].concat());
    let plain = go(&program).stdout;
    assert_eq!(go(&out).stdout, plain);
    let recorded = Profile::load(&file).unwrap();
    // The n-th kernel got n at its begin, and no other began in it.
    let mut found: Vec<u64> = (0..recorded.len())
        .map(|i| recorded.value(i, 0).unwrap().as_f64() as u64)
        .collect();
    found.sort_unstable();
    let expected: Vec<u64> = (1..=found.len() as u64).map(|n| n * 101).collect();
    assert!(found.len() > 70);
    assert_eq!(found, expected);
    let play = [
        "--arp-enter-callback=show",
        "--arp-data-context=&direct",
        "--arp-mode=playback",
    ];
    let out = instrument(&program, &tool, &[&play[..], &common].concat());
    let played = go(&out);
    let text = String::from_utf8(played.stdout).unwrap();
    let shown: Vec<u64> = text
        .lines()
        .take(found.len())
        .map(|l| l.parse().unwrap())
        .collect();
    assert_eq!(shown, expected);
    assert!(text.as_bytes().ends_with(&plain));
    // An unknown callback is an error.
    let output = Command::new(atom::command().unwrap())
        .arg(&program)
        .arg(&tool)
        .arg("-o")
        .arg(folder.join("none"))
        .args(["--", "--arp-enter-callback=nothing"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no `nothing`"));
}

#[test]
fn trying_callbacks_is_not_noticed() {
    let folder = folder("addresses");
    let tool = tool(&folder, "own.c");
    let program = folder.join("addresses");
    let sources = [source("addresses.c")];
    compile("gcc", &["-g", "-O1", "-pthread"], &sources, &program);
    let file = data(&program);
    let options = [
        "--arp-enter-callback=ticksBegin",
        "--arp-leave-callback=ticksEnd",
        "--arp-data-type=ulong",
        "--measure=cycles,cputime",
        "--arp-data-filename",
        &file,
    ];
    let out = instrument(&program, &tool, &options);
    // Without randomisation every address is the same, and there is no child to wait for. The
    // names have the same length, as the stack begins after them.
    let same = folder.join("addresses.org");
    std::fs::copy(&program, &same).unwrap();
    let [before, after] = [same, out].map(|program| {
        let mut command = Command::new("setarch");
        command.arg("-R").arg(&program).env_clear();
        let output = command.output().expect("setarch runs");
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    });
    assert_eq!(before, after);
    assert!(after.ends_with("-1 1\n"), "{after}");
    let recorded = Profile::load(&file).unwrap();
    assert!(
        note(&recorded, "callback subtracted")
            .unwrap()
            .contains("for an execution")
    );
}

#[test]
fn each_thread_has_the_context_that_its_callback_made() {
    let folder = folder("contexts");
    let tool = tool(&folder, "own.c");
    let program = folder.join("split");
    let sources = [source("split.c")];
    let flags = ["-g", "-O1", "-DSPLIT", "-pthread"];
    compile("gcc", &flags, &sources, &program);
    let file = data(&program);
    let options = [
        "--arp-enter-callback=countBegin",
        "--arp-leave-callback=countEnd",
        "--arp-spawn-callback=threadBegin",
        "--arp-join-callback=threadEnd",
        "--arp-data-type=long",
        "--arp-mode=record_all",
        "--arp-data-filename",
        &file,
    ];
    let out = instrument(&program, &tool, &options);
    let outcome = go(&out);
    assert_eq!(outcome.stdout, go(&program).stdout);
    let recorded = Profile::load(&file).unwrap();
    let mut counted = std::collections::BTreeMap::<u32, Vec<u64>>::new();
    for i in 0..recorded.len() {
        let tid = recorded.thread(i).unwrap().0;
        let value = recorded.value(i, 0).unwrap().as_f64() as u64;
        counted.entry(tid).or_default().push(value);
    }
    // The end of each thread is noticed, perhaps except for the last two, which may end at that moment.
    let joined = String::from_utf8(outcome.stderr)
        .unwrap()
        .matches("joined\n")
        .count();
    let spawned = counted.len() - 1;
    assert!(
        spawned > 2 && (spawned - 2..=spawned).contains(&joined),
        "{joined} of {spawned}"
    );
    for (tid, mut values) in counted {
        values.sort_unstable();
        // The first thread has the context that all threads share, which is empty here.
        let first = if tid == 1 {
            0
        } else {
            u64::from(tid) * 1000 + 1
        };
        let step = u64::from(tid != 1);
        let expected: Vec<u64> = (0..values.len() as u64).map(|i| first + i * step).collect();
        assert_eq!(values, expected, "thread {tid}");
    }
}
