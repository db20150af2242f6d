//! Profiles are read back by the crate that other programs read them with.

use profile::{By, Profile, Role, Sum, Type, Value};

use super::*;
use crate::Cell;
use crate::report::column::{self, Column};
use crate::report::profile::origin::Known;
use crate::report::{Readers, Report, Values};

fn read(report: &Report) -> Profile {
    Profile::parse(&profile(report, &Origin::default())).unwrap()
}

#[test]
fn columns_have_their_types_and_roles() {
    let mut report = Report::new("count", "sort");
    report
        .typed_fact(Column::count("calls", "calls"), 10)
        .typed_fact(
            Column::percent_of("hot %", "hot", "calls"),
            Cell::percent(1, 4),
        )
        .fact("cache", "8 \"KB\"\n");
    report
        .typed_table(
            column::By::Procedure,
            "procedures",
            [
                Column::count("calls", "calls").sum(column::Sum::Max),
                Column::share("%", "calls"),
                Column::address("pc"),
                Column::place("line"),
                Column::text("procedure"),
            ],
        )
        .row([
            7.into(),
            Cell::percent(7, 10),
            Cell::Address(4096),
            Cell::place("a.c", 3),
            "größe".into(),
        ])
        .row([
            u64::MAX.into(),
            Cell::Empty,
            Cell::Address(1 << 60),
            Cell::Empty,
            Cell::Empty,
        ]);
    let profile = read(&report);
    assert_eq!((&*profile.tool, &*profile.program.path), ("count", "sort"));
    assert!(!profile.program.arguments.is_empty() && profile.host.processors > 0);
    let fact = |name: &str| profile.fact(name).unwrap();
    assert_eq!(fact("calls").number(), Value::Integer(10));
    assert_eq!(fact("hot %").number().float(), Some(25.0));
    assert_eq!(fact("hot %").whole.as_deref(), Some("calls"));
    let text = profile::FactValue::Text("8 \"KB\"\n".into());
    assert_eq!(fact("cache").value, text);
    let table = profile.table("procedures").unwrap();
    assert_eq!((table.by, table.rows), (By::Procedure, 2));
    let column = |name: &str| table.column(name).unwrap();
    let calls = column("calls");
    assert_eq!((calls.kind, calls.sum), (Type::Count, Sum::Max));
    assert_eq!(calls.values, [7, u64::MAX].map(Value::Integer));
    assert_eq!(column("%").role, Role::Derived);
    assert_eq!(column("pc").values, [4096, 1 << 60].map(Value::Integer));
    let line = column("line");
    assert_eq!((line.file(0), line.file(1)), (Some(0), None));
    assert_eq!(line.values, [3, 0].map(Value::Integer));
    assert_eq!(profile.text(column("procedure").values[0]), Some("größe"));
    assert_eq!(profile.text(column("procedure").values[1]), None);
}

#[test]
fn names_alone_are_given_types_by_their_cells() {
    let mut report = Report::new("count", "sort");
    report
        .table("by name", ["n", "ratio", "name"])
        .row([7.into(), Cell::Ratio(0.5), "x".into()]);
    report
        .table("by address", ["name", "pc"])
        .row(["x".into(), Cell::Address(1)]);
    report.table("of people", ["n"]).readers(Readers::People);
    let profile = read(&report);
    let roles = |table: &str| {
        let table = profile.table(table).unwrap();
        let facts = table.columns.iter().map(|c| (c.kind, c.role, c.sum));
        facts.collect::<Vec<_>>()
    };
    assert_eq!(
        roles("by name"),
        [
            (Type::Count, Role::Measure, Sum::Add),
            (Type::Ratio, Role::Measure, Sum::None),
            (Type::Text, Role::Key, Sum::None)
        ]
    );
    assert_eq!(
        roles("by address"),
        [
            (Type::Text, Role::Label, Sum::None),
            (Type::Address, Role::Key, Sum::None)
        ]
    );
    assert!(profile.table("of people").is_none());
}

#[test]
fn large_profiles_are_compressed() {
    let mut report = Report::new("count", "sort");
    let numbers: Vec<u64> = (0..50_000).map(|i| i * i).collect();
    let names = vec!["main"; numbers.len()];
    report.column_table(
        column::By::Block,
        "flow",
        vec![
            (Column::address("pc"), Values::Numbers(numbers.clone())),
            (Column::text("procedure"), Values::Texts(names)),
        ],
    );
    let packed = super::profile(&report, &Origin::default());
    assert!(packed.starts_with(&[0x1f, 0x8b]));
    assert!(packed.len() < 10 * numbers.len());
    let found = Profile::parse(&packed).unwrap();
    let table = found.table("flow").unwrap();
    let expected: Vec<Value> = numbers.into_iter().map(Value::Integer).collect();
    assert_eq!(table.column("pc").unwrap().values, expected);
    assert_eq!(found.strings, ["main"]);
}

#[test]
fn fixed_columns_stand_in_their_table() {
    let rows = 3000;
    let files: Vec<String> = (0..rows).map(|i| format!("file{}.c", i / 100)).collect();
    let places = (0..rows).map(|i| Cell::place(&files[i], i as u32 + 1));
    let names: Vec<&str> = (0..rows).map(|i| ["f", "größe"][i % 2]).collect();
    let far = |i: usize| (i as u64 % 2) << 32 | i as u64;
    let fixed = fixed_columns(
        2,
        &[
            FixedValues::Places(places.collect()),
            FixedValues::Texts(names),
            FixedValues::Numbers((0..rows as u64).map(|i| i * i).collect()),
            FixedValues::Addresses((0..rows).map(far).collect()),
        ],
    );
    assert_eq!(FixedColumns::new(&[]), None);
    assert_eq!(FixedColumns::new(&[7, 0, 0, 0]), None);
    let fixed = FixedColumns::new(fixed.leak()).unwrap();
    let mut report = Report::new("count", "sort");
    let numbers = |n: u64, rows| (Column::count("n", "things"), Values::Numbers(vec![n; rows]));
    let line = fixed.column(0, Values::Places(Vec::new()));
    let columns = vec![numbers(7, rows), (Column::place("line").key(), line)];
    report.column_table(column::By::Line, "lines", columns);
    let columns = vec![
        (
            Column::address("pc"),
            fixed.column(3, Values::Numbers(vec![5 << 32, 9])),
        ),
        numbers(8, rows + 2),
        (
            Column::count("square", "things"),
            fixed.column(2, Values::Numbers(vec![1, u64::MAX])),
        ),
        (
            Column::percent_of("%", "n", "square"),
            Values::Numbers(Vec::new()),
        ),
        (
            Column::text("name"),
            fixed.column(1, Values::Texts(vec!["new", "f"])),
        ),
    ];
    let table = report.column_table(column::By::Procedure, "others", columns);
    table.readers(Readers::All);
    let of_process = Origin {
        objects: vec![Known::default(), Known::default()],
        ..Origin::default()
    };
    let profile = Profile::parse(&super::profile(&report, &of_process)).unwrap();
    let lines = profile.table("lines").unwrap();
    assert_eq!(
        (lines.rows, lines.readers),
        (rows, profile::Readers::Programs)
    );
    let [n, line] = ["n", "line"].map(|name| lines.column(name).unwrap());
    assert_eq!((n.values.len(), line.values.len()), (rows, rows));
    let file = |i: usize| {
        let key = line.file(i).unwrap();
        profile.strings[key].to_string()
    };
    for i in [0, 1, 1234, rows - 1] {
        assert_eq!(line.values[i], Value::Integer(i as u64 + 1));
        assert_eq!(file(i), files[i]);
    }
    let others = profile.table("others").unwrap();
    assert_eq!(
        (others.rows, others.readers),
        (rows + 2, profile::Readers::All)
    );
    let [pc, square, name] = ["pc", "square", "name"].map(|name| others.column(name).unwrap());
    let last = |values: &[Value]| values[rows - 1..].to_vec();
    let squares = [(rows as u64 - 1).pow(2), 1, u64::MAX].map(Value::Integer);
    assert_eq!(last(&square.values), squares);
    let texts = name.values[rows - 1..]
        .iter()
        .map(|value| profile.text(*value));
    assert_eq!(
        texts.collect::<Vec<_>>(),
        [Some("größe"), Some("new"), Some("f")]
    );
    assert_eq!(pc.values[rows - 1], Value::Integer(rows as u64 - 1));
    assert_eq!([rows - 1, rows - 2, rows].map(|i| pc.object(i)), [1, 0, 0]);
    assert_eq!(others.column("%").unwrap().role, Role::Derived);
}
