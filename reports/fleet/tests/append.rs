//! Rows are read back from the files and compared with the profiles; several writers; what is appended twice.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use fleet::{Appended, Appender, Outcome};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use profile::Profile;

/// A profile with a fact, arcs and procedures in two objects.
fn profile(host: &str, seconds: f64) -> Profile {
    let text = r#"{"format":"atom-profile","version":1,"atom":"0.1.0","tool":"prof","options":["--deep"],
        "scope":"process","program":{"path":"/usr/bin/app","arguments":["app","-x","a b"]},"process":{"pid":7,"parent":1},
        "host":{"name":"HOST","kernel":"6.1","processor":null,"processors":2},
        "time":{"start":"2026-11-22T22:41:58.123Z","seconds":SECONDS},
        "objects":[{"name":"app","build_id":"ab12","kind":"program"},{"name":"libc.so.6","build_id":null,"kind":"library"}],
        "strings":["main","qsort","indirect","app.c"],
        "facts":[{"name":"calls","type":"count","unit":"calls","sum":"add","value":12},
                 {"name":"machine","type":"text","value":"small"}],
        "tables":[
          {"name":"procedures","by":"procedure","rows":3,"columns":[
            {"name":"calls","type":"count","unit":"calls","role":"measure","sum":"add","values":[5,"9007199254740993",null]},
            {"name":"score","type":"ratio","role":"measure","sum":"none","values":[0.5,2,3]},
            {"name":"%","type":"percent","role":"derived","part":"calls","whole":null},
            {"name":"pc","type":"address","role":"key","objects":[1,0,0],"values":[64,4096,5000]},
            {"name":"line","type":"place","role":"label","objects":[1,0,0],"files":[-1,3,3],"values":[0,7,9]},
            {"name":"procedure","type":"text","role":"label","values":[1,0,-1]}]},
          {"name":"arcs","by":"arc","rows":1,"columns":[
            {"name":"calls","type":"count","unit":"calls","role":"measure","sum":"add","values":[3]},
            {"name":"kind","type":"text","role":"key","values":[2]},
            {"name":"caller","type":"text","role":"label","values":[0]},
            {"name":"caller pc","type":"address","role":"key","values":[4100]},
            {"name":"callee","type":"text","role":"label","values":[1]},
            {"name":"callee pc","type":"address","role":"key","objects":[1],"values":[64]}]}]}"#;
    let text = text.replace("HOST", host);
    Profile::parse(text.replace("SECONDS", &seconds.to_string()).as_bytes()).unwrap()
}

fn append(folder: &Path, profiles: &[Profile]) -> Appended {
    let mut appender = Appender::new(folder).unwrap();
    for profile in profiles {
        appender.add(profile).unwrap();
    }
    appender.finish().unwrap()
}

/// All files in a folder and below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found.retain(|path| path.file_name().unwrap() != "_lock");
    found.sort();
    found
}

/// The rows of all files, as texts by the names of their columns. Missing cells are left out.
fn rows(folder: &Path) -> Vec<HashMap<String, String>> {
    let cells = |row: Row| {
        let known = row.get_column_iter().filter(|(_, v)| **v != Field::Null);
        let shown = |field: &Field| match field {
            Field::Str(text) => text.clone(),
            other => other.to_string(),
        };
        known.map(|(k, v)| (k.clone(), shown(v))).collect()
    };
    let all = files(folder).into_iter().flat_map(|path| {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let rows: Vec<Row> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap())
            .collect();
        rows
    });
    all.map(cells).collect()
}

/// Some cells of a row, the missing ones empty.
fn cells<'r>(row: &'r HashMap<String, String>, names: &[&str]) -> Vec<&'r str> {
    let cell = |name: &&str| row.get(*name).map_or("", String::as_str);
    names.iter().map(cell).collect()
}

#[test]
fn rows_have_all_measures_and_what_ran() {
    let folder = tempfile::tempdir().unwrap();
    let appended = append(folder.path(), &[profile("a", 1.5)]);
    assert_eq!((appended.runs, appended.rows), (1, 2 + 2 + 3 + 1));
    let found = files(folder.path());
    let place = folder.path().join("tool=prof/date=2026-11-22");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].parent().unwrap(), place);

    let rows = rows(folder.path());
    assert_eq!(rows.len(), 8);
    let names = [
        "host",
        "program",
        "program_path",
        "build_id",
        "arguments",
        "options",
        "scope",
        "atom",
        "kernel",
    ];
    for row in &rows {
        assert_eq!(
            cells(row, &names),
            [
                "a",
                "app",
                "/usr/bin/app",
                "ab12",
                "-x a b",
                "--deep",
                "process",
                "0.1.0",
                "6.1"
            ]
        );
        let names = ["processor", "processors", "pid", "seconds"];
        assert_eq!(cells(row, &names), ["", "2", "7", "1.5"]);
        assert!(row["started"].contains("2026-11-22 22:41:58"), "{row:?}");
    }
    let table: Vec<String> = rows
        .iter()
        .map(|row| cells(row, &PLACES).join("|"))
        .collect();
    assert_eq!(table, EXPECTED);
}

/// The columns that differ between the rows of a run.
const PLACES: [&str; 16] = [
    "table_name",
    "per",
    "measure",
    "unit",
    "object",
    "object_build_id",
    "address",
    "procedure",
    "file",
    "line",
    "callee_object",
    "callee_address",
    "callee",
    "detail",
    "value",
    "real_value",
];

/// The rows of the profile, with `|` between the columns.
const EXPECTED: [&str; 8] = [
    "|fact|calls|calls|||||||||||12|",
    "|fact|machine|||||||||||small||",
    "procedures|procedure|calls|calls|app|ab12|4096|main|app.c|7|||||9007199254740993|",
    "procedures|procedure|calls|calls|libc.so.6||64|qsort|||||||5|",
    "procedures|procedure|score||app|ab12|4096|main|app.c|7|||||2|",
    "procedures|procedure|score||app|ab12|5000||app.c|9|||||3|",
    "procedures|procedure|score||libc.so.6||64|qsort||||||||0.5",
    "arcs|arc|calls|calls|app|ab12|4100|main|||libc.so.6|64|qsort|kind=indirect|3|",
];

#[test]
fn a_run_is_appended_once() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(append(folder.path(), &[profile("a", 1.5)]).known, 0);
    // In the same command, in the file of one run, in a file of several runs.
    let again = [
        profile("a", 1.5),
        profile("b", 1.0),
        profile("b", 1.0),
        profile("c", 1.0),
    ];
    let appended = append(folder.path(), &again);
    assert_eq!((appended.runs, appended.known), (2, 2));
    let before = files(folder.path());
    assert_eq!(
        append(folder.path(), &again),
        Appended {
            known: 4,
            ..Appended::default()
        }
    );
    assert_eq!(files(folder.path()), before);

    let mut appender = Appender::new(folder.path()).unwrap();
    assert_eq!(appender.add(&profile("a", 1.5)).unwrap(), Outcome::Known);
    assert_eq!(
        appender.add(&profile("c", 9.0)).unwrap(),
        Outcome::OtherReport
    );
    drop(appender);

    // The runs of files that are removed can be appended again.
    before
        .iter()
        .for_each(|file| std::fs::remove_file(file).unwrap());
    assert_eq!(append(folder.path(), &again).runs, 3);
}

#[test]
fn nothing_appears_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut appender = Appender::new(folder.path()).unwrap();
    appender.add(&profile("a", 1.0)).unwrap();
    drop(appender);
    assert_eq!(files(folder.path()), [] as [PathBuf; 0]);

    // What a killed process left behind goes, and does not disturb.
    let place = folder.path().join("tool=prof/date=2026-11-22");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("_new-1.parquet"), "PAR1 half a file").unwrap();
    append(folder.path(), &[profile("a", 1.0)]);
    assert_eq!(files(folder.path()).len(), 1);
}

#[test]
fn a_damaged_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("tool=prof/date=2026-11-22");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("other.parquet"), "no such file").unwrap();
    let mut appender = Appender::new(folder.path()).unwrap();
    let error = appender.add(&profile("a", 1.0)).unwrap_err().to_string();
    assert!(error.contains("other.parquet"), "{error}");
}

#[test]
fn several_writers_at_once() {
    let folder = tempfile::tempdir().unwrap();
    // Each pair of neighbours has a run in common.
    std::thread::scope(|scope| {
        for i in 0..8 {
            let folder = folder.path();
            scope.spawn(move || {
                for host in [i, i + 1] {
                    append(folder, &[profile(&format!("h{host}"), 1.0)]);
                }
            });
        }
    });
    let rows = rows(folder.path());
    let mut hosts: HashMap<&str, u32> = HashMap::new();
    rows.iter()
        .for_each(|row| *hosts.entry(&row["host"]).or_default() += 1);
    assert_eq!(hosts.len(), 9);
    assert!(hosts.values().all(|n| *n == 8), "{hosts:?}");
}
