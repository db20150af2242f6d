//! A tool is called where a thread begins and where it ends, in the thread itself, with its copy of the state.

use std::collections::HashMap;
use std::path::Path;

use atom_tests::one_file::{compile, instrument, run_rewritten};

/// The events of a run: their names with the numbers of works, sorted. Each thread's own come in order.
fn events(text: &str) -> Vec<(&str, u64)> {
    let mut there: HashMap<&str, bool> = HashMap::new();
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let [what, thread, works] = std::array::from_fn(|_| words.next().unwrap());
        let before = there.insert(thread, what == "begin");
        match what {
            "begin" => assert_ne!(before, Some(true), "{line}: {text}"),
            "end" => assert_eq!(before, Some(true), "{line}: {text}"),
            "left" => {}
            _ => panic!("{line}: {text}"),
        }
        found.push((what, works.parse().unwrap()));
    }
    found.sort_unstable();
    found
}

#[test]
fn threads_begin_and_end() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/threads/events");
    let ways: [(&str, &[&str], &[&str]); 4] = [
        ("alone", &[], &["--check"]),
        ("whole", &[], &["--libs", "--check"]),
        ("static", &["-static"], &["--check"]),
        ("whole-gs", &["-DGS"], &["--libs", "--check"]),
    ];
    // The numbers of works: 53 joined threads, 300 detached ones, each of which may begin with the thread pointer of
    // one that the kernel has not removed yet, and one of the child.
    let mut ended = vec![10; 50];
    ended.extend([2, 4, 5, 20]);
    ended.extend([1; 300]);
    ended.sort_unstable();
    // The first threads of both processes, and one that does not end.
    let left = [3, 3, 7];
    for (name, flags, more) in ways {
        let folder = format!("thread-events-{name}");
        let program = compile(&folder, &[here.join("program.c")], flags);
        let (_, out) = instrument(&program, &here.join("tool.rs"), more, &[]);
        for _ in 0..5 {
            let text = String::from_utf8(run_rewritten(&out, &[]).stderr).unwrap();
            let events = events(&text);
            let of = |what| {
                let mine = events.iter().filter(move |event| event.0 == what);
                mine.map(|event| event.1).collect::<Vec<u64>>()
            };
            assert_eq!(of("begin"), vec![0; ended.len() + 2], "{name}: {text}");
            if name == "alone" {
                // The C library ends the threads.
                assert_eq!(of("end"), [0; 0], "{name}: {text}");
            } else {
                assert_eq!(of("end"), ended, "{name}: {text}");
                assert_eq!(of("left"), left, "{name}: {text}");
            }
        }
    }
}
