//! Recording and playback through the Rust interface.
use std::path::Path;
use std::sync::{Arc, Mutex};

use arp::{
    Area, Caller, DataType, Format, LongDouble, Meter, Mode, Problem, Profile, SectionKind,
    Session, SessionBuilder, Sid, Step, ThreadRecorder, Tid, Unrecorded, Value, tuple,
};

/// Measures the value that the test has set.
struct Told(Arc<Mutex<(Value, DataType)>>);

impl Meter for Told {
    fn enter(&mut self, _: Sid, data: &mut Area) {
        assert_eq!(*data, Area::default());
    }
    fn leave(&mut self, _: Sid, data: &mut Area) {
        let (value, ty) = *self.0.lock().unwrap();
        data.set(ty, value);
    }
}

/// Counts its own executions.
struct Counting(u64);

impl Meter for Counting {
    fn enter(&mut self, _: Sid, data: &mut Area) {
        data.set_word(self.0);
    }
    fn leave(&mut self, _: Sid, data: &mut Area) {
        self.0 += 1;
        assert!(data.word() < self.0);
        data.set_word(self.0);
    }
}

fn counting(mode: Mode, path: &Path) -> SessionBuilder {
    Session::builder(mode)
        .file(path)
        .meter(DataType::ULong, "executions", |_| Counting(0))
}

fn kernel(thread: &mut ThreadRecorder, sid: u32, start: i64) {
    thread.enter(SectionKind::Kernel, Sid(sid), start);
    thread.leave(SectionKind::Kernel, Sid(sid));
}

/// Runs `work` within a plain section.
fn within(thread: &mut ThreadRecorder, sid: u32, work: impl FnOnce(&mut ThreadRecorder)) {
    thread.enter(SectionKind::Plain, Sid(sid), 0);
    work(thread);
    thread.leave(SectionKind::Plain, Sid(sid));
}

fn tuples(profile: &Profile) -> Vec<String> {
    (0..profile.len())
        .map(|i| tuple(&profile.stack(i)))
        .collect()
}

fn values(profile: &Profile) -> Vec<f64> {
    (0..profile.len())
        .filter_map(|i| profile.value(i, 0))
        .map(Value::as_f64)
        .collect()
}

fn load(path: &Path) -> Profile {
    let profile = Profile::load(path).expect("a data file");
    assert!(profile.damage().is_none(), "{:?}", profile.damage());
    profile
}

/// Loops of three and two around four kernels: 8 { 7 { 2 { 1 } } }.
fn nest(thread: &mut ThreadRecorder) {
    within(thread, 8, |thread| {
        for _ in 0..3 {
            within(thread, 7, |thread| {
                within(thread, 2, |thread| {
                    (0..4).for_each(|_| kernel(thread, 1, 0))
                })
            });
        }
    });
}

#[test]
fn counters_start_again_in_each_execution() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.arp");
    let session = counting(Mode::RecordAll, &path).start().unwrap();
    let mut thread = session.thread(Tid(1));
    nest(&mut thread);
    thread.end();
    session.finish().unwrap();
    let profile = load(&path);
    let mut expected = Vec::new();
    for t in 0..3 {
        (0..4).for_each(|k| expected.push(format!("8@0 7@{t} 2@0 1@{k}")));
    }
    assert_eq!(tuples(&profile), expected);
    assert_eq!(expected[11], "8@0 7@2 2@0 1@3");
    assert_eq!(
        values(&profile),
        (1..=12).map(f64::from).collect::<Vec<_>>()
    );
    assert_eq!(profile.thread(0), Some(Tid(1)));
    assert_eq!(profile.sets()[0].name, "executions");
}

#[test]
fn tuples_are_unique_where_paths_alternate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.arp");
    let session = counting(Mode::RecordAll, &path).start().unwrap();
    let mut thread = session.thread(Tid(1));
    // Kernel 1 directly in 3, then through 4, then directly again.
    within(&mut thread, 3, |thread| {
        kernel(thread, 1, 0);
        within(thread, 4, |thread| kernel(thread, 1, 0));
        kernel(thread, 1, 0);
        kernel(thread, 2, 5);
        kernel(thread, 2, 5);
    });
    thread.end();
    session.finish().unwrap();
    assert_eq!(
        tuples(&load(&path)),
        ["3@0 1@0", "3@0 4@0 1@0", "3@0 1@1", "3@0 2@5", "3@0 2@6"]
    );
}

#[test]
fn halves_make_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, halves) = (
        folder.path().join("whole.arp"),
        folder.path().join("halves.arp"),
    );
    let session = counting(Mode::RecordAll, &whole).start().unwrap();
    let mut thread = session.thread(Tid(1));
    for _ in 0..50 {
        within(&mut thread, 2, |thread| {
            (0..100).for_each(|_| kernel(thread, 1, 0))
        });
    }
    thread.end();
    session.finish().unwrap();

    let session = counting(Mode::RecordAll, &halves).start().unwrap();
    let mut parent = session.thread(Tid(1));
    let mut children = [session.thread(Tid(2)), session.thread(Tid(3))];
    for _ in 0..50 {
        parent.enter(SectionKind::Plain, Sid(2), 0);
        let stack = parent.stack();
        std::thread::scope(|scope| {
            for (child, start) in children.iter_mut().zip([0, 50]) {
                child.restart(&stack);
                scope.spawn(move || (0..50).for_each(|_| kernel(child, 1, start)));
            }
        });
        parent.leave(SectionKind::Plain, Sid(2));
    }
    children.into_iter().for_each(ThreadRecorder::end);
    parent.end();
    session.finish().unwrap();
    let sorted = |path| {
        let mut tuples = tuples(&load(path));
        tuples.sort();
        tuples
    };
    assert_eq!(sorted(&whole).len(), 5000);
    assert_eq!(sorted(&whole), sorted(&halves));
    // The recording of one thread is played back to two.
    let session = Session::builder(Mode::Playback)
        .file(&whole)
        .values(load(&whole).sets()[0].clone())
        .on_problem(|problem| panic!("{problem}"))
        .start()
        .unwrap();
    for start in [0, 50] {
        let mut child = session.thread(Tid(2));
        for round in 0..50 {
            child.restart(&[Step {
                sid: Sid(2),
                counter: round,
            }]);
            (0..50).for_each(|_| kernel(&mut child, 1, start));
        }
    }
}

/// Collects the values that playback gives it.
struct Player(Arc<Mutex<Vec<u64>>>);

impl Meter for Player {
    fn enter(&mut self, _: Sid, data: &mut Area) {
        self.0.lock().unwrap().push(data.word());
        data.set_word(17);
    }
    fn leave(&mut self, _: Sid, data: &mut Area) {
        assert_eq!(data.word(), 17);
    }
}

#[test]
fn playback_by_tuple_and_by_path() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, expected) in [
        (Mode::RecordAll, (1..=12).collect::<Vec<u64>>()),
        // The mean of 1 to 12, rounded.
        (Mode::RecordAverage, vec![7; 12]),
        (Mode::RecordHistogram, vec![7; 12]),
    ] {
        let path = folder.path().join("data.arp");
        let session = counting(mode, &path).start().unwrap();
        let mut thread = session.thread(Tid(1));
        nest(&mut thread);
        thread.end();
        session.finish().unwrap();
        let played = Arc::new(Mutex::new(Vec::new()));
        let missing = Arc::new(Mutex::new(Vec::new()));
        let (p, m) = (Arc::clone(&played), Arc::clone(&missing));
        let session = Session::builder(Mode::Playback)
            .file(&path)
            .meter(DataType::ULong, "", move |_| Player(Arc::clone(&p)))
            .on_problem(move |problem| m.lock().unwrap().push(problem.to_string()))
            .start()
            .unwrap();
        let mut thread = session.thread(Tid(1));
        nest(&mut thread);
        kernel(&mut thread, 1, 3);
        thread.end();
        assert_eq!(session.finish().unwrap().file, None);
        let mut expected = expected;
        expected.push(0);
        assert_eq!(*played.lock().unwrap(), expected, "{mode}");
        assert_eq!(
            *missing.lock().unwrap(),
            ["thread 1: the data file has no value for 1@3"]
        );
    }
    // Another type is refused.
    let error = Session::builder(Mode::Playback)
        .file(folder.path().join("data.arp"))
        .meter(DataType::Int, "", |_| Counting(0))
        .start()
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("values of type unsigned long, the callbacks have int"),
        "{error}"
    );
}

#[test]
fn all_types_survive_every_format() {
    let folder = tempfile::tempdir().unwrap();
    for ty in DataType::ALL {
        let wanted: Vec<Value> = match ty {
            DataType::Float => [0.0, -1.5, 1e-40, f32::MAX].map(Value::Float).to_vec(),
            DataType::Double => [0.1, -0.0, 5e-324, f64::MAX].map(Value::Double).to_vec(),
            DataType::LongDouble => {
                let long = |text: &str| Value::LongDouble(text.parse::<LongDouble>().unwrap());
                ["0.1", "-1e4000", "3.6e-4951", "123456789012345678901"]
                    .map(long)
                    .to_vec()
            }
            ty => {
                let bits = ty.size() as u32 * 8;
                let numbers: [u64; 5] = [0, 1, u64::MAX, 1 << (bits - 1), (1 << (bits - 1)) - 1];
                let narrow = |n: u64| {
                    let mut area = Area::default();
                    area.set_word(n);
                    area.get(ty)
                };
                numbers.map(narrow).to_vec()
            }
        };
        let told = Arc::new(Mutex::new((wanted[0], ty)));
        let cell = Arc::clone(&told);
        let path = folder.path().join("data.arp");
        let session = Session::builder(Mode::RecordAll)
            .file(&path)
            .meter(ty, "", move |_| Told(Arc::clone(&cell)))
            .start()
            .unwrap();
        let mut thread = session.thread(Tid(1));
        for value in &wanted {
            told.lock().unwrap().0 = *value;
            kernel(&mut thread, 1, 0);
        }
        thread.end();
        session.finish().unwrap();
        for (format, gzip) in [
            (Format::Ascii, false),
            (Format::Binary, false),
            (Format::Ascii, true),
            (Format::Binary, true),
        ] {
            let found: Vec<_> = (0..wanted.len())
                .filter_map(|i| load(&path).value(i, 0))
                .collect();
            assert_eq!(found, wanted, "{ty}");
            let next = folder.path().join("next.arp");
            arp::convert(&path, &next, format, gzip).unwrap();
            std::fs::rename(&next, &path).unwrap();
        }
    }
}

#[test]
fn modes_agree() {
    let folder = tempfile::tempdir().unwrap();
    let run = |mode| {
        let path = folder.path().join("data.arp");
        let session = counting(mode, &path).start().unwrap();
        let mut threads = [session.thread(Tid(1)), session.thread(Tid(2))];
        for _ in 0..300 {
            threads.iter_mut().for_each(nest);
        }
        threads.into_iter().for_each(ThreadRecorder::end);
        session.finish().unwrap();
        load(&path)
    };
    let all = run(Mode::RecordAll);
    assert_eq!(all.len(), 2 * 300 * 12);
    for mode in [Mode::RecordAverage, Mode::RecordHistogram] {
        let mut recorded = run(mode);
        let mut switched = run(Mode::RecordAll);
        switched.switch_mode(mode).unwrap();
        // In the file there is a record for each thread.
        assert_eq!((recorded.len(), recorded.count(0)), (2, 3600));
        recorded.switch_mode(mode).unwrap();
        assert_eq!((recorded.len(), recorded.count(0)), (1, 7200));
        assert_eq!(recorded.stats(0, 0), switched.stats(0, 0));
        assert_eq!(recorded.histogram(0, 0), switched.histogram(0, 0));
        assert_eq!(tuples(&recorded), ["8@0 7@0 2@0 1@0"]);
    }
    let mut average = run(Mode::RecordAverage);
    for mode in [Mode::RecordAll, Mode::RecordHistogram, Mode::Playback] {
        assert!(average.switch_mode(mode).is_err());
    }
}

#[test]
fn executions_that_contain_others_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.arp");
    for format in [Format::Binary, Format::Ascii] {
        let session = counting(Mode::RecordAll, &path)
            .format(format)
            .start()
            .unwrap();
        let mut thread = session.thread(Tid(1));
        for _ in 0..1000 {
            thread.enter(SectionKind::Profiled, Sid(3), 0);
            within(&mut thread, 5, |thread| {
                thread.enter(SectionKind::Profiled, Sid(4), 0);
                kernel(thread, 1, 0);
                kernel(thread, 1, 0);
                thread.leave(SectionKind::Profiled, Sid(4));
            });
            kernel(&mut thread, 2, 0);
            thread.leave(SectionKind::Profiled, Sid(3));
        }
        thread.end();
        session.finish().unwrap();
        let profile = load(&path);
        let mut expected = Vec::new();
        for i in 0..1000 {
            for inner in ["", " 5@0 4@0", " 5@0 4@0 1@0", " 5@0 4@0 1@1", " 2@0"] {
                expected.push(format!("3@{i}{inner}"));
            }
        }
        assert_eq!(tuples(&profile), expected);
        // The order of ends: 1 is the first kernel, 5 the outer section.
        let order: Vec<f64> = (0..1000)
            .flat_map(|i| [5, 3, 1, 2, 4].map(|k| f64::from(i * 5 + k)))
            .collect();
        assert_eq!(values(&profile), order);
    }
}

/// Collects problems.
fn problems(builder: SessionBuilder) -> (SessionBuilder, Arc<Mutex<Vec<Problem>>>) {
    let list = Arc::new(Mutex::new(Vec::new()));
    let clone = Arc::clone(&list);
    (
        builder.on_problem(move |p| clone.lock().unwrap().push(p.clone())),
        list,
    )
}

#[test]
fn recursion_can_be_folded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.arp");
    let (builder, found) = problems(counting(Mode::RecordAll, &path).fold_recursion(true));
    let session = builder.start().unwrap();
    let mut thread = session.thread(Tid(1));
    fn recurse(thread: &mut ThreadRecorder, depth: u32) {
        thread.enter(SectionKind::Profiled, Sid(3), 0);
        within(thread, 4, |thread| {
            kernel(thread, 1, 0);
            if depth > 0 {
                recurse(thread, depth - 1);
            }
        });
        thread.leave(SectionKind::Profiled, Sid(3));
    }
    recurse(&mut thread, 5000);
    recurse(&mut thread, 1);
    assert_eq!(thread.depth(), 0);
    thread.end();
    session.finish().unwrap();
    assert!(found.lock().unwrap().is_empty());
    let profile = load(&path);
    assert_eq!(profile.len(), 5001 + 1 + 2 + 1);
    let tuples = tuples(&profile);
    assert_eq!(
        (tuples[0].as_str(), tuples[5001].as_str()),
        ("3@0", "3@0 4@0 1@5000")
    );
    assert_eq!(tuples[5002..], ["3@1", "3@1 4@0 1@0", "3@1 4@0 1@1"]);
    // The file says how many were not recorded, in both formats.
    let text = folder.path().join("data.txt");
    profile.save(&text, Format::Ascii, false).unwrap();
    for profile in [&profile, &load(&text)] {
        for (section, folded) in [(3, 5001), (4, 5001), (1, 0)] {
            let found = Unrecorded::of(profile.info(), Sid(section));
            assert_eq!((found.folded, found.nested), (folded, 0), "{section}");
        }
    }
    // Combined files have the sum of both.
    let both = folder.path().join("both.arp");
    arp::analyse::combine(&[path, text], &both, &Default::default()).unwrap();
    let found = Unrecorded::of(load(&both).info(), Sid(4));
    assert_eq!((found.folded, found.nested), (10002, 0));
}

#[test]
fn what_ended_functions_left_open_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.arp");
    let (builder, found) = problems(counting(Mode::RecordAll, &path));
    let session = builder.start().unwrap();
    let mut thread = session.thread(Tid(1));
    let at = |stack_pointer| Caller {
        stack_pointer,
        site: 1,
    };
    // By stack pointers: 7 is entered at 900, 5 at 800, 1 at 700. All frames below 850 have ended.
    thread.enter_at(SectionKind::Plain, Sid(7), 0, at(900));
    thread.enter_at(SectionKind::Plain, Sid(5), 0, at(800));
    thread.enter_at(SectionKind::Kernel, Sid(1), 0, at(700));
    assert_eq!(thread.unwind(850), 2);
    assert_eq!(tuple(&thread.stack()), "7@0");
    // Found later: a kernel within a kernel whose function has ended.
    thread.enter_at(SectionKind::Kernel, Sid(1), 0, at(700));
    thread.enter_at(SectionKind::Kernel, Sid(2), 0, at(750));
    thread.leave_at(SectionKind::Kernel, Sid(2), at(750));
    thread.leave_at(SectionKind::Plain, Sid(7), at(900));
    // At the end open sections can be recorded up to now.
    thread.enter(SectionKind::Profiled, Sid(3), 0);
    thread.enter(SectionKind::Kernel, Sid(4), 0);
    thread.leave_all();
    assert_eq!(thread.depth(), 0);
    thread.end();
    session.finish().unwrap();
    let expected = Problem::Abandoned {
        thread: Tid(1),
        open: vec![Sid(1)],
    };
    assert_eq!(*found.lock().unwrap(), [expected]);
    assert_eq!(tuples(&load(&path)), ["7@0 2@0", "3@0", "3@0 4@0"]);
}

#[test]
fn a_forked_session_writes_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (
        folder.path().join("data.arp"),
        folder.path().join("child.arp"),
    );
    for mode in [Mode::RecordAll, Mode::RecordAverage] {
        let session = counting(mode, &first).start().unwrap();
        let mut thread = session.thread(Tid(1));
        within(&mut thread, 2, |thread| {
            (0..1000).for_each(|_| kernel(thread, 1, 0));
            session.forked(&second);
            thread.forget();
            assert!(session.is_empty());
            kernel(thread, 1, 0);
        });
        thread.end();
        assert_eq!(session.finish().unwrap().file, Some(second.clone()));
        let profile = load(&second);
        assert_eq!((profile.len(), profile.count(0)), (1, 1));
        // Counters go on, since the enclosing execution is the same.
        let counter = if mode == Mode::RecordAll { 1000 } else { 0 };
        assert_eq!(tuples(&profile), [format!("2@0 1@{counter}")]);
    }
}

#[test]
fn many_sections_and_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.arp");
    let session = counting(Mode::RecordAll, &path).start().unwrap();
    std::thread::scope(|scope| {
        for tid in 1..=8 {
            let session = &session;
            scope.spawn(move || {
                let mut thread = session.thread(Tid(tid));
                for i in 0..20_000u32 {
                    // A hundred children, in pseudo-random order.
                    kernel(&mut thread, i.wrapping_mul(2_654_435_761) % 101, 0);
                }
                thread.end();
            });
        }
    });
    assert_eq!(session.finish().unwrap().records, 160_000);
    let mut profile = load(&path);
    assert_eq!(profile.len(), 160_000);
    let mut seen = std::collections::HashSet::new();
    for i in 0..profile.len() {
        assert!(seen.insert((profile.thread(i), profile.stack(i))));
    }
    profile.switch_mode(Mode::RecordAverage).unwrap();
    assert_eq!(profile.len(), 101);
    assert_eq!((0..101).map(|i| profile.count(i)).sum::<u64>(), 160_000);
}
