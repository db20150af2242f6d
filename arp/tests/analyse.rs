//! Sums by section and context of data files whose sums are known by hand.

use std::path::{Path, PathBuf};

use arp::analyse::{Analysis, Combine, Comparison, Label, Number, Options, combine};
use arp::{
    Area, DataType, ErrorKind, Format, Meter, Mode, Profile, Reader, SectionKind, Session, Sid,
    Step, Tid,
};

const TITLE: &str = "# Atomium record and playback data - format version 1.1.\n";

fn file(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("arp-analyse-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn analyse(text: &str, options: &Options) -> Analysis {
    let text = format!("{TITLE}{text}");
    let reader = Reader::new(std::io::Cursor::new(text.into_bytes())).unwrap();
    let analysis = Analysis::read(reader, options).unwrap();
    assert!(analysis.damage().is_none(), "{:?}", analysis.damage());
    analysis
}

/// Section, count and whether it is exact, total, self value.
type Row = (u32, Option<(u64, bool)>, Number, Number);

/// The sections by number.
fn sections(analysis: &Analysis) -> Vec<Row> {
    let rows = analysis.sections().into_iter();
    let mut rows: Vec<_> = rows
        .map(|row| {
            let figures = &row.figures[0];
            (row.sid.0, row.count, figures.total, figures.self_value)
        })
        .collect();
    rows.sort_by_key(|row| row.0);
    rows
}

fn int(n: i128) -> Number {
    Number::Integer(n)
}

#[test]
fn a_section_within_itself_counts_once_in_the_total() {
    // 5 { 6 { 5 { 6 } } }, each measured: 100, 90, 50, 20.
    let text = "0 1 1 4\n4\n1 0 5@0: 100;\n2 1 6@0: 90;\n3 2 5@0: 50;\n4 3 6@0: 20;\n";
    let analysis = analyse(text, &Options::default());
    assert_eq!(
        sections(&analysis),
        [
            (5, Some((2, true)), int(100), int(10 + 30)),
            (6, Some((2, true)), int(90), int(40 + 20)),
        ]
    );
    assert_eq!(analysis.total(0), int(100));
    let labels: Vec<_> = analysis.contexts().iter().map(|c| c.label).collect();
    assert_eq!(labels, [5, 6, 5, 6].map(|n| Label::Section(Sid(n))));
}

#[test]
fn executions_of_plain_sections_are_counted_by_their_counters() {
    // Counters start again in each surrounding execution.
    let text = "0 1 1 4\n4\n3 0 8@0 7@0 1@0: 1;\n3 2 1@1: 2;\n3 1 7@1 1@0: 3;\n\
        3 0 8@1 7@0 1@0: 4;\n";
    let analysis = analyse(text, &Options::default());
    assert_eq!(
        sections(&analysis),
        [
            (1, Some((4, true)), int(10), int(10)),
            (7, Some((3, false)), int(10), int(0)),
            (8, Some((2, false)), int(10), int(0)),
        ]
    );
    let counters = Options {
        counters: true,
        ..Options::default()
    };
    let kept = analyse(text, &counters);
    assert_eq!(sections(&kept), sections(&analysis));
    let label = kept.contexts().last().unwrap().label;
    let step = Step {
        sid: Sid(1),
        counter: 0,
    };
    assert_eq!(label, Label::Execution(step));
    assert_eq!(kept.contexts().len(), 2 + 3 + 4);
}

#[test]
fn too_many_executions_share_contexts_and_nothing_is_lost() {
    let records: String = (0..1000)
        .map(|n| format!("2 0 8@{n} 1@{n}: 2;\n"))
        .collect();
    let options = Options {
        counters: true,
        max_contexts: 10,
        ..Options::default()
    };
    let analysis = analyse(&format!("0 1 1 4\n1000\n{records}"), &options);
    assert!(analysis.contexts().len() <= 13, "{:?}", analysis.contexts());
    assert!(analysis.shared() > 900);
    assert_eq!(analysis.total(0), int(2000));
    assert_eq!(
        sections(&analysis),
        [
            (1, Some((1000, true)), int(2000), int(2000)),
            (8, Some((1000, false)), int(2000), int(0)),
        ]
    );
}

struct Fixed(u64);

impl Meter for Fixed {
    fn enter(&mut self, _: Sid, _: &mut Area) {}

    fn leave(&mut self, _: Sid, data: &mut Area) {
        data.set_word(self.0);
    }
}

/// Threads 4 and 6 with kernels 1 of value 4 and 6, once and twice.
fn two_threads(name: &str, mode: Mode) -> PathBuf {
    let path = file(name);
    let session = Session::builder(mode)
        .file(&path)
        .format(Format::Binary)
        .meter(DataType::UInt, "", |tid| Fixed(tid.0.into()))
        .start()
        .unwrap();
    for (tid, times) in [(4, 1), (6, 2)] {
        let mut thread = session.thread(Tid(tid));
        for _ in 0..times {
            thread.enter(SectionKind::Kernel, Sid(1), 0);
            thread.leave(SectionKind::Kernel, Sid(1));
        }
        thread.end();
    }
    session.finish().unwrap();
    path
}

#[test]
fn threads_apart_and_alone() {
    for mode in [Mode::RecordAll, Mode::RecordAverage, Mode::RecordHistogram] {
        let path = two_threads(&format!("threads-{mode}.arp"), mode);
        let read = |options: &Options| Analysis::read(Reader::open(&path).unwrap(), options);
        let by_thread = Options {
            by_thread: true,
            ..Options::default()
        };
        let apart = read(&by_thread).unwrap();
        let roots: Vec<_> = apart
            .contexts()
            .iter()
            .enumerate()
            .filter(|(_, context)| context.parent.is_none())
            .map(|(index, context)| (context.label, apart.figures(index, 0).total))
            .collect();
        assert_eq!(
            roots,
            [
                (Label::Thread(Some(Tid(4))), int(4)),
                (Label::Thread(Some(Tid(6))), int(12)),
            ]
        );
        let alone = Options {
            threads: vec![Tid(6)],
            ..Options::default()
        };
        let alone = read(&alone).unwrap();
        assert_eq!(
            sections(&alone),
            [(1, Some((2, true)), int(12), int(12))],
            "{mode}"
        );
    }
}

#[test]
fn combining_keeps_every_value_and_tuple() {
    let path = two_threads("combine.arp", Mode::RecordAll);
    let text = file("combine.txt");
    let records = "0 1 1 5\n3\n2 0 8@0 1@0: 7;\n2 1 1@1: 8;\n1 0 8@0: 20;\n";
    std::fs::write(&text, format!("{TITLE}{records}")).unwrap();
    for (format, gzip) in [
        (Format::Binary, false),
        (Format::Binary, true),
        (Format::Ascii, false),
        (Format::Ascii, true),
    ] {
        let out = file("combined.arp");
        let options = Combine {
            format,
            gzip,
            renumber: true,
            ..Combine::default()
        };
        let inputs = [path.clone(), text.clone(), path.clone()];
        assert!(combine(&inputs, &out, &options).unwrap().is_empty());
        let reader = Reader::open(&out).unwrap();
        assert_eq!((reader.format(), reader.is_gzip()), (format, gzip));
        let profile = Profile::load(&out).unwrap();
        let mut all: Vec<_> = (0..profile.len())
            .map(|i| {
                let value = profile.value(i, 0).unwrap().as_f64();
                (arp::tuple(&profile.stack(i)), value)
            })
            .collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let expected = [
            ("1@0", 4.0),
            ("1@0", 4.0),
            ("1@0", 6.0),
            ("1@0", 6.0),
            ("1@1", 6.0),
            ("1@1", 6.0),
            ("8@0", 20.0),
            ("8@0 1@0", 7.0),
            ("8@0 1@1", 8.0),
        ];
        assert_eq!(all, expected.map(|(t, v)| (t.to_string(), v)));
        if format == Format::Binary {
            let analysis = Analysis::read(reader, &Options::default()).unwrap();
            let threads: Vec<_> = analysis.threads().keys().map(|t| t.unwrap().0).collect();
            assert_eq!(threads, [4, 6, 7, 8 + 4, 8 + 6]);
        }
    }
}

#[test]
fn what_cannot_be_combined_is_refused() {
    let write = |name: &str, text: &str| {
        let path = file(name);
        std::fs::write(&path, format!("{TITLE}{text}")).unwrap();
        path
    };
    let named = |name: &str| format!("0 1 1 4\n1\n1 0 1@0: 7;\n# section\t1\t1\t0\t0\t{name}\t\n");
    let all = write("all.txt", &named("a"));
    let other_name = write("name.txt", &named("b"));
    let averages = write("averages.txt", "0 0 1 4\n1\n1 0 1: 2 3 1 5;\n");
    let other_type = write("type.txt", "0 1 1 5\n1\n1 0 1@0: 7;\n");
    let cut = write("cut.txt", "0 1 1 4\n5\n1 0 1@0: 7;\n1 0 1@");
    let out = file("refused.arp");
    let options = Combine::default();
    for inputs in [
        vec![all.clone(), averages.clone()],
        vec![all.clone(), other_type],
        vec![all.clone(), other_name],
        vec![],
    ] {
        let error = combine(&inputs, &out, &options).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage, "{error}");
        assert!(!out.exists());
    }
    // Single values are converted to averages, which the first file has: 2 with mean 3, and 7.
    combine(&[averages, all.clone()], &out, &options).unwrap();
    let sums = Profile::load(&out).unwrap();
    assert_eq!(sums.len(), 1);
    let stats = sums.stats(0, 0).unwrap();
    assert_eq!((stats.count(), stats.sum(), stats.max()), (3, 13.0, 7.0));
    std::fs::remove_file(&out).unwrap();

    let inputs = [all, cut];
    let error = combine(&inputs, &out, &options).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Truncated);
    assert!(!out.exists());
    let partial = Combine {
        partial: true,
        ..options
    };
    assert_eq!(combine(&inputs, &out, &partial).unwrap().len(), 1);
    assert_eq!(Profile::load(&out).unwrap().len(), 2);
    let device = combine(&inputs, Path::new("/dev/null"), &partial);
    assert_eq!(device.unwrap_err().kind, ErrorKind::Usage);
}

#[test]
fn sections_are_found_again_by_name_where_numbers_changed() {
    let with = |text: &str, names: &[(u32, &str)]| {
        let names: String = names
            .iter()
            .map(|(sid, name)| format!("# section\t{sid}\t1\t0\t0\t{name}\tx.c\n"))
            .collect();
        analyse(&format!("{text}{names}"), &Options::default())
    };
    // Section 2 became 3, and 3 has another meaning now; 4 has no name.
    let first = with(
        "0 1 1 4\n3\n1 0 1@0: 10;\n2 1 2@0: 5;\n1 0 4@0: 1;\n",
        &[(1, "one"), (2, "two")],
    );
    let second = with(
        "0 1 1 4\n4\n1 0 1@0: 12;\n2 1 3@0: 6;\n2 1 2@0: 9;\n1 0 4@0: 1;\n",
        &[(1, "one"), (3, "two"), (2, "new")],
    );
    let comparison = Comparison::new(&first, &second, 0);
    for list in [&comparison.sections, &comparison.contexts] {
        let mut changes: Vec<_> = list
            .iter()
            .map(|d| {
                let both = (d.a.is_some(), d.b.is_some());
                (d.section, both, d.change(|side| side.total))
            })
            .collect();
        changes.sort_by_key(|c| c.0);
        assert_eq!(
            changes,
            [
                ((Sid(1), true), (true, true), int(2)),
                ((Sid(2), false), (false, true), int(9)),
                ((Sid(2), true), (true, true), int(1)),
                ((Sid(4), true), (true, true), int(0)),
            ]
        );
    }
    let deepest = comparison
        .contexts
        .iter()
        .position(|d| d.section == (Sid(2), true));
    let path = comparison.path(deepest.unwrap());
    assert_eq!(path, [(Sid(1), true), (Sid(2), true)]);
}
