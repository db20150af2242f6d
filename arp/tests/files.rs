//! Data files: the ASCII format byte for byte, and damaged files.
use std::io::Cursor;
use std::path::Path;

use arp::{
    Area, DataType, ErrorKind, Format, Meter, Mode, Profile, Reader, Section, SectionKind, Session,
    Sid, Tid, Value, tuple,
};

const HEAD: &str = "# Atomium record and playback data - format version 1.1.\n";

/// Five records that share prefixes of their stacks.
fn sample() -> String {
    format!(
        "{HEAD}0 1 1 5\n5\n\
         8 0 48@0 47@0 46@0 45@0 44@0 43@0 42@0 41@0: 7239254;\n\
         16 8 40@0 39@0 38@0 30@0 29@0 20@0 18@0 17@3: 1148;\n\
         18 16 9@0 8@7: 105;\n\
         15 13 10@0 12@0: 182;\n\
         16 15 11@0: 62;\n"
    )
}

fn read(bytes: &[u8]) -> Result<Profile, arp::Error> {
    Profile::read(Reader::new(Cursor::new(bytes.to_vec()))?)
}

fn saved(profile: &Profile, format: Format, gzip: bool) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    profile.save(file.path(), format, gzip).unwrap();
    std::fs::read(file.path()).unwrap()
}

#[test]
fn ascii_to_the_byte() {
    let texts = [
        sample(),
        format!("{HEAD}0 1 2 0 11\n2\n1 0 5@-3: -128 1e100;\n2 1 6@4294967296: 127 -0.0;\n"),
        format!("{HEAD}0 0 1 4\n2\n2 0 7 1: 2 -1.5 -7 4;\n2 1 2: 1 1.0 1 1;\n"),
        format!(
            "{HEAD}0 2 2 5 11\n1\n2 0 7 1: 4 3.5 1 9 2 1.0@3 9.0@1 0.5 -1.0 2.0 2 -1.0@1 1.0@3;\n"
        ),
        format!("{HEAD}0 1 1 12\n1\n1 0 1@0: 1.5e4000;\n"),
        format!("{HEAD}0 1 1 5\n0\n"),
        format!(
            "{HEAD}0 1 1 5\n1\n1 0 7@0: 3;\n# values\t0\tticks\n# info\tprogram\ta\\tb\n\
             # section\t7\t1\t12\t15\tinner loop\tsrc/filter.c\n"
        ),
    ];
    for text in texts {
        let profile = read(text.as_bytes()).unwrap();
        assert!(profile.damage().is_none(), "{:?}", profile.damage());
        let again = saved(&profile, Format::Ascii, false);
        assert_eq!(String::from_utf8_lossy(&again), text);
        // Through the binary format as well.
        let binary = read(&saved(&profile, Format::Binary, true)).unwrap();
        let again = saved(&binary, Format::Ascii, false);
        assert_eq!(String::from_utf8_lossy(&again), text);
    }
}

#[test]
fn what_the_sample_says() {
    let profile = read(sample().as_bytes()).unwrap();
    assert_eq!(
        (profile.mode(), profile.len(), profile.sets().len()),
        (Mode::RecordAll, 5, 1)
    );
    assert_eq!(profile.stack(2).len(), 18);
    let last = "48@0 47@0 46@0 45@0 44@0 43@0 42@0 41@0 40@0 39@0 38@0 30@0 29@0 10@0 12@0 11@0";
    assert_eq!(tuple(&profile.stack(4)), last);
    assert_eq!(profile.value(1, 0).map(|v| v.as_f64()), Some(1148.0));
}

#[test]
fn any_white_space_will_do() {
    let text = sample()
        .replace(' ', "\t ")
        .replace(";\n", "\r\n ; ")
        .replace("#\t ", "# ");
    let text = text.replacen("\t ", " ", 8).replace("5\n5\n", "5\r\n  5 ");
    let profile = read(text.as_bytes()).unwrap();
    assert!(profile.damage().is_none(), "{:?}", profile.damage());
    assert_eq!(
        String::from_utf8_lossy(&saved(&profile, Format::Ascii, false)),
        sample()
    );
}

/// The error message for a text, with the position.
fn complaint(text: &str) -> String {
    match read(text.as_bytes()) {
        Err(error) => error.to_string(),
        Ok(profile) => profile
            .damage()
            .map_or_else(|| "nothing".to_owned(), ToString::to_string),
    }
}

#[test]
fn nonsense_is_refused_with_its_place() {
    let body = |records: &str| format!("{HEAD}0 1 1 5\n{records}");
    let head = |line: &str| format!("{HEAD}{line}\n0\n");
    for (text, expected) in [
        (String::new(), "it is empty"),
        ("hello\n".to_owned(), "it is no ARP data file"),
        (
            HEAD.replace("1.1", "1.2") + "0 1 1 5\n0\n",
            "it is no ARP data file of version 1.1",
        ),
        (HEAD.to_owned(), "at line 2: the heading is not whole"),
        (
            head("0 1 1"),
            "at line 2: the number of types is not the number of callbacks",
        ),
        (head("0 1 1 13"), "at line 2: a type is not known"),
        (
            head("0 4 1 5"),
            "at line 2: the mode is none of those that record",
        ),
        (
            head("0 3 1 5"),
            "at line 2: the mode is none of those that record",
        ),
        (head("2 1 1 5"), "at line 2: the file format is not known"),
        (
            head("1 1 1 5"),
            "it is called binary, but it is none of ours",
        ),
        (head("0 1 1 x"), "at line 2: numbers are expected here"),
        (
            body("x\n"),
            "at line 3: the number of records is expected here",
        ),
        (body("1\n0 0: 5;\n"), "at line 4: a record has no sections"),
        (
            body("1\n1 1: 5;\n"),
            "at line 4: a record takes over more sections than there are",
        ),
        (
            body("2\n1 0 1@0: 5;\n1 2 : 5;\n"),
            "at line 5: a record takes over more sections than there are",
        ),
        (body("1\n1 0 1: 5;\n"), "at line 4: '@' is expected here"),
        (body("1\n1 0 1@0 5;\n"), "at line 4: ':' is expected here"),
        (
            body("1\n1 0 1@0: 5 6;\n"),
            "at line 4: ';' is expected here",
        ),
        (
            body("1\n1 0 1@0: -5;\n"),
            "at line 4: a value of the set's type is expected here",
        ),
        (
            body("1\n1 0 1@0: 4294967296;\n"),
            "at line 4: a value of the set's type is expected here",
        ),
        (
            body("1\n1 0 9999999999@0: 5;\n"),
            "at line 4: a section number is too large",
        ),
        (
            body("1\n1 0 1@99999999999999999999: 5;\n"),
            "at line 4: a counter is expected here",
        ),
        (
            body("1\n99999 0 1@0: 5;\n"),
            "at line 4: a record has no sections, or too many",
        ),
        (
            body("2\n1 0 1@0: 5;\n"),
            "at line 5: it ends too early, after 1 of 2 records",
        ),
        (
            body("1\n1 0 1@0: 5;\n1 0 1@0: 5;\n"),
            "at line 5: there are more records than the third line says",
        ),
    ] {
        let found = complaint(&text);
        assert!(found.contains(expected), "{text}\n{found}");
    }
}

/// Measures a sequence of numbers.
struct Numbers(u64, DataType);

impl Meter for Numbers {
    fn enter(&mut self, _: Sid, _: &mut Area) {}
    fn leave(&mut self, sid: Sid, data: &mut Area) {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let number = (self.0 >> 33) % 1000 + u64::from(sid.0);
        match self.1 {
            DataType::Double => data.set(self.1, Value::Double(number as f64 / 3.0)),
            _ => data.set_word(number),
        }
    }
}

/// A file of several blocks, with descriptions.
fn recorded(mode: Mode, path: &Path) {
    let section = |sid, kind, name: &str| Section {
        sid: Sid(sid),
        kind,
        name: name.to_owned(),
        file: "src/main.c".to_owned(),
        line: 10 * sid,
        end_line: 10 * sid + 5,
    };
    let session = Session::builder(mode)
        .file(path)
        .meter(DataType::UShort, "numbers", |_| {
            Numbers(1, DataType::UShort)
        })
        .meter(DataType::Double, "nothing", |_| {
            Numbers(2, DataType::Double)
        })
        .section(section(3, SectionKind::Plain, "loop"))
        .info("program", "test")
        .start()
        .unwrap();
    let mut thread = session.thread(Tid(1));
    for _ in 0..30 {
        thread.enter(SectionKind::Plain, Sid(3), 0);
        for sid in [1, 2, 1] {
            thread.enter(SectionKind::Kernel, Sid(sid), 0);
            thread.leave(SectionKind::Kernel, Sid(sid));
        }
        thread.leave(SectionKind::Plain, Sid(3));
    }
    thread.end();
    session
        .add_sections(&[section(1, SectionKind::Kernel, "first")])
        .unwrap();
    session.finish().unwrap();
}

/// Records as text, so that they can be compared.
fn lines(profile: &Profile) -> Vec<String> {
    let line = |i| {
        let values: Vec<_> = (0..2)
            // A file of averages has means; sums follow from them except for the last digit.
            .map(|set| profile.stats(i, set).unwrap())
            .map(|s| format!("{} {:.12e} {} {}", s.count(), s.mean(), s.min(), s.max()))
            .collect();
        format!("{} {}", tuple(&profile.stack(i)), values.join(" "))
    };
    (0..profile.len()).map(line).collect()
}

#[test]
fn descriptions_survive_every_format() {
    let folder = tempfile::tempdir().unwrap();
    for mode in [Mode::RecordAll, Mode::RecordAverage, Mode::RecordHistogram] {
        let path = folder.path().join("data.arp");
        recorded(mode, &path);
        let original = lines(&Profile::load(&path).unwrap());
        for (format, gzip) in [
            (Format::Binary, false),
            (Format::Ascii, false),
            (Format::Binary, true),
            (Format::Ascii, true),
        ] {
            let profile = Profile::load(&path).unwrap();
            assert!(profile.damage().is_none(), "{:?}", profile.damage());
            assert_eq!(lines(&profile), original);
            let names: Vec<_> = profile
                .sections()
                .iter()
                .map(|s| (s.sid.0, s.name.as_str(), s.line))
                .collect();
            assert_eq!(names, [(1, "first", 10), (3, "loop", 30)]);
            assert_eq!(
                profile.section(Sid(1)).map(|s| (s.kind, s.end_line)),
                Some((SectionKind::Kernel, 15))
            );
            assert_eq!(profile.sets()[0].name, "numbers");
            assert_eq!(profile.info(), [("program".to_owned(), "test".to_owned())]);
            arp::convert(&path, &path, format, gzip).unwrap();
        }
    }
}

#[test]
fn a_file_cut_anywhere_gives_what_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.arp");
    for mode in [Mode::RecordAll, Mode::RecordAverage, Mode::RecordHistogram] {
        recorded(mode, &path);
        for (format, gzip) in [
            (Format::Binary, false),
            (Format::Ascii, false),
            (Format::Binary, true),
        ] {
            arp::convert(&path, &path, format, gzip).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let all = lines(&read(&bytes).unwrap());
            let mut most = 0;
            for cut in 0..bytes.len() {
                match read(&bytes[..cut]) {
                    Err(error) => assert!(
                        error.kind == ErrorKind::Truncated || cut < 60,
                        "{cut}: {error}"
                    ),
                    Ok(profile) => {
                        let found = lines(&profile);
                        assert_eq!(found, all[..found.len()], "{cut}");
                        most = most.max(found.len());
                        let lost = format == Format::Binary || found.len() < all.len();
                        match profile.damage() {
                            Some(error) => {
                                assert_eq!(error.kind, ErrorKind::Truncated, "{cut}: {error}")
                            }
                            None => assert!(!lost || gzip, "{cut}"),
                        }
                    }
                }
            }
            assert!(most == all.len() || most + 64 >= all.len(), "{most}");
        }
    }
}

#[test]
fn a_changed_byte_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.arp");
    recorded(Mode::RecordAll, &path);
    let bytes = std::fs::read(&path).unwrap();
    let all = lines(&read(&bytes).unwrap());
    // Checksums cover everything after the two text lines.
    let start = bytes.iter().position(|b| *b == 0).unwrap();
    for at in start + 2..bytes.len() {
        for bit in [1, 0x80] {
            let mut changed = bytes.clone();
            changed[at] ^= bit;
            let profile = read(&changed).unwrap();
            assert!(profile.damage().is_some(), "{at}");
            let found = lines(&profile);
            assert_eq!(found, all[..found.len()], "{at}");
        }
    }
}

#[test]
fn a_newer_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.arp");
    recorded(Mode::RecordAll, &path);
    let mut bytes = std::fs::read(&path).unwrap();
    let version = bytes.iter().position(|b| *b == 0).unwrap() + 1;
    assert_eq!(bytes[version], 1);
    bytes[version] = 2;
    let error = read(&bytes).unwrap_err().to_string();
    assert!(
        error.contains("version 2 of the binary format is not known, only 1"),
        "{error}"
    );
}

#[test]
fn errors_name_the_file() {
    let error = Profile::load("/no/such/data.arp").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    assert_eq!(
        error.to_string(),
        "cannot open /no/such/data.arp: No such file or directory (os error 2)"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.arp");
    std::fs::write(&path, sample().replace("182;", "182")).unwrap();
    let profile = Profile::load(&path).unwrap();
    let error = profile.damage().unwrap().to_string();
    assert_eq!(
        error,
        format!(
            "cannot read {} at line 8: ';' is expected here",
            path.display()
        )
    );
    assert_eq!(profile.len(), 3);
}
