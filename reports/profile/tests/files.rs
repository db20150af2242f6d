//! Files: plain and compressed ones, and files that are no profiles.

use profile::{
    By, Column, Error, FORMAT, FactValue, Profile, Role, Sum, Table, Type, VERSION, Value,
};

/// A profile with a table of `rows` rows.
fn sample(rows: usize) -> Profile {
    let mut profile = Profile::parse(
        br#"{"format":"atom-profile","version":1,"tool":"icount","program":{"path":"/bin/ls","arguments":["ls","-l"]},
            "objects":[{"name":"ls","kind":"program"},{"name":"libc.so.6","build_id":"ab","kind":"library"}],
            "facts":[{"name":"instructions","type":"count","unit":"instructions","sum":"add","value":"18446744073709551615"},
                     {"name":"cache","type":"text","value":"8 KB"}]}"#,
    )
    .unwrap();
    profile.strings = vec!["main".into(), "größe \"\\\n".into()];
    let values = |f: &dyn Fn(u64) -> Value| (0..rows as u64).map(f).collect();
    profile.tables.push(Table {
        name: "blocks".into(),
        by: By::Block,
        rows,
        readers: profile::Readers::Programs,
        columns: vec![
            Column {
                name: "count".into(),
                kind: Type::Count,
                unit: Some("instructions".into()),
                role: Role::Measure,
                sum: Sum::Add,
                values: values(&|i| Value::Integer(i << 40)),
                ..Column::default()
            },
            Column {
                name: "pc".into(),
                kind: Type::Address,
                role: Role::Key,
                objects: (0..rows as u32).map(|i| i % 2).collect(),
                values: values(&|i| Value::Integer(i * 16)),
                ..Column::default()
            },
            Column {
                name: "procedure".into(),
                kind: Type::Text,
                role: Role::Label,
                values: values(&|i| match i % 3 {
                    2 => Value::Unknown,
                    n => Value::Integer(n),
                }),
                ..Column::default()
            },
        ],
    });
    profile
}

#[test]
fn what_is_written_is_read_plain_and_compressed() {
    for (rows, is_compressed) in [(0, false), (7, false), (20_000, true)] {
        let profile = sample(rows);
        let bytes = profile.to_bytes();
        assert_eq!(bytes.starts_with(&[0x1f, 0x8b]), is_compressed);
        assert_eq!(
            bytes.starts_with(b"{\"format\":\"atom-profile\""),
            !is_compressed
        );
        assert_eq!(Profile::parse(&bytes).unwrap(), profile);
        let facts = profile.facts.iter().map(|f| &f.value);
        let expected = [
            FactValue::Number(Value::Integer(u64::MAX)),
            FactValue::Text("8 KB".into()),
        ];
        assert!(facts.eq(&expected));
    }
    assert!(sample(3).to_json().contains("\"values\":[0,1,-1]"));
}

#[test]
fn files_have_their_names_in_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.profile");
    let message = |e: Error| e.to_string();
    let missing = message(Profile::read(&path).unwrap_err());
    assert!(missing.contains("a.profile: No such file"), "{missing}");
    sample(5).write(&path).unwrap();
    assert_eq!(Profile::read(&path).unwrap(), sample(5));
    std::fs::write(&path, "icount of ls\n").unwrap();
    let other = message(Profile::read(&path).unwrap_err());
    assert!(other.contains("a.profile: not a profile"), "{other}");
}

#[test]
fn every_truncation_is_told() {
    for rows in [3, 20_000] {
        let bytes = sample(rows).to_bytes();
        let end = bytes.len() - 1;
        // The last byte of the plain form is the end of the line.
        for len in (30..end - 2).step_by(end / 50) {
            let found = Profile::parse(&bytes[..len]);
            assert!(
                matches!(found, Err(Error::Truncated)),
                "{len} of {end}: {found:?}"
            );
        }
    }
}

#[test]
fn other_files_are_told_from_damaged_ones() {
    let error = |text: &str| Profile::parse(text.as_bytes()).unwrap_err();
    for text in [
        "",
        "\0\0",
        "[1]",
        "{}",
        "{\"a\": 1}",
        "{\"format\": \"x\", \"version\": 1}",
        "{\"tool\": \"icount\"",
        "\u{1f}",
    ] {
        let found = error(text);
        let is_empty = matches!(found, Error::Truncated) && text.is_empty();
        assert!(
            matches!(found, Error::NotAProfile) || is_empty,
            "{text}: {found:?}"
        );
    }
    assert!(Profile::parse(&[0x1f, 0x8b, 8, 9, 9, 9]).is_err());
    let damaged = error("{\"format\": \"atom-profile\", \"version\": 1, \"tool\": 7}");
    assert!(matches!(damaged, Error::Damaged(_)), "{damaged:?}");
}

#[test]
fn a_newer_version_is_refused_whatever_it_contains() {
    for rest in ["", ",\"tool\":{\"name\":7}", ",\"tables\":12"] {
        let text = format!(
            "{{\"format\":\"{FORMAT}\",\"version\":{},\"atom\":\"9.1.0\"{rest}}}",
            VERSION + 1
        );
        let found = Profile::parse(text.as_bytes()).unwrap_err();
        let message = found.to_string();
        assert!(matches!(found, Error::Newer { .. }), "{message}");
        assert!(
            message.contains("version 2") && message.contains("atom 9.1.0"),
            "{message}"
        );
    }
}

#[test]
fn unknown_things_are_ignored() {
    let profile = Profile::parse(
        br#"{"format":"atom-profile","version":1,"new":[{}],"tool":"t","program":{"path":"p","new":1},
            "scope":"network","objects":[{"name":"p","kind":"plugin"}],
            "tables":[{"name":"x","by":"galaxy","rows":2,"new":0,"readers":"cats","columns":[
              {"name":"a","type":"count","role":"measure","sum":"median","values":[1,2]},
              {"name":"b","type":"colour","role":"measure","values":[{"r":1},"red"]},
              {"name":"c","type":"count","role":"decoration","values":[[],true]}]}]}"#,
    )
    .unwrap();
    let table = &profile.tables[0];
    assert_eq!((table.by, table.columns.len()), (By::Other, 1));
    assert_eq!(
        (table.columns[0].sum, table.columns[0].total()),
        (Sum::None, Some(3))
    );
}

#[test]
fn contradictions_are_refused() {
    let with = |column: &str| {
        let text = format!(
            "{{\"format\":\"atom-profile\",\"version\":1,\"tool\":\"t\",\"program\":{{}},\"strings\":[\"s\"],
             \"objects\":[{{\"name\":\"p\"}}],\"tables\":[{{\"name\":\"x\",\"rows\":1,\"columns\":[{{\"name\":\"c\",\"role\":\"key\",{column}}}]}}]}}"
        );
        Profile::parse(text.as_bytes())
    };
    assert!(with("\"type\":\"address\",\"values\":[1],\"objects\":[0]").is_ok());
    for column in [
        "\"type\":\"count\",\"values\":[1,2]",
        "\"type\":\"count\"",
        "\"type\":\"text\",\"values\":[1]",
        "\"type\":\"address\",\"values\":[1],\"objects\":[1]",
        "\"type\":\"place\",\"values\":[1],\"files\":[1]",
        "\"type\":\"place\",\"values\":[1],\"files\":[0,0]",
    ] {
        let error = with(column).unwrap_err().to_string();
        assert!(
            error.contains("column `c` of table `x`"),
            "{column}: {error}"
        );
    }
}
