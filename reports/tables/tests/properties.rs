//! Names of any kind: never longer than asked for, never empty, and different where they were different.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tables::{ELLIPSIS, columns, shorten, shorten_all};

/// Names that look like demangled ones.
fn names() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[a-z_]{1,12}",
        Just("std".into()),
        Just("__cxx11".into()),
        Just("basic_string".into()),
        Just("vector".into()),
        Just("{closure#0}".into()),
        Just("operator<<".into()),
        Just("operator()".into()),
        Just("größe".into()),
    ];
    let path = prop::collection::vec(word, 1..5).prop_map(|words| words.join("::"));
    let typed = path.clone().prop_recursive(4, 24, 4, move |inner| {
        let path = path.clone();
        let arguments = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            (path.clone(), arguments.clone(), path.clone())
                .prop_map(|(p, a, q)| format!("{p}<{}>::{q}", a.join(", "))),
            (inner.clone(), path.clone(), path.clone())
                .prop_map(|(t, u, p)| format!("<{t} as {u}>::{p}")),
            (path.clone(), arguments).prop_map(|(p, a)| format!(
                "{p}<{}, std::allocator<{}> >",
                a.join(", "),
                a[0]
            )),
            inner.prop_map(|t| format!("{t}*")),
        ]
    });
    let parameters = prop::collection::vec(typed.clone(), 0..4);
    prop_oneof![
        (typed.clone(), parameters).prop_map(|(t, p)| format!("{t}({})", p.join(", "))),
        typed,
        ".{1,80}",
    ]
}

/// One name or many that differ in little.
fn tables() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        prop::collection::vec(names(), 1..30),
        (names(), prop::collection::vec("[a-z]{1,8}", 2..20), names())
            .prop_map(|(a, words, b)| words.iter().map(|w| format!("{a}<{w}>::{b}")).collect()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn one_name_fits(name in names(), width in 0usize..200) {
        let short = shorten(&name, width);
        prop_assert!(columns(&short) <= width.max(1), "{short}");
        prop_assert!(!short.is_empty());
        prop_assert_eq!(columns(&name) <= width, short == name);
        prop_assert!(short == name || columns(&short) < columns(&name) || columns(&name) <= 1);
    }

    #[test]
    fn names_of_a_table_stay_different(table in tables(), width in 1usize..160) {
        let names: Vec<&str> = table.iter().map(String::as_str).collect();
        let short = shorten_all(&names, width);
        prop_assert_eq!(short.len(), names.len());
        let all: BTreeSet<(&str, &str)> =
            names.iter().copied().zip(short.iter().map(|s| &**s)).collect();
        let (full, cut): (BTreeSet<&str>, BTreeSet<&str>) = all.iter().copied().unzip();
        // One text for each name, and one name for each text.
        prop_assert_eq!(all.len(), full.len());
        prop_assert_eq!(all.len(), cut.len());
        for (name, short) in all {
            prop_assert!(!short.is_empty());
            // A number of two digits behind an ellipsis takes four columns.
            prop_assert!(columns(short) <= width.max(4), "{} in {}", short, width);
            if columns(name) <= width {
                prop_assert_eq!(name, short);
            }
        }
    }

    #[test]
    fn what_differs_is_shown(a in "[a-z]{2,6}", b in "[a-z]{2,6}", n in 1usize..6) {
        prop_assume!(a != b);
        let name = |t: &str| format!("outer::middle::{}fill<{t}>::insert_unique", "inner::".repeat(n));
        let (x, y) = (name(&a), name(&b));
        let width = 40;
        for (short, word) in shorten_all(&[&x, &y], width).iter().zip([&a, &b]) {
            prop_assert!(short.contains(word.as_str()), "{short}: {word}");
            prop_assert!(short.contains("insert_unique"), "{short}");
            prop_assert_eq!(columns(&name(word)) > width, short.contains(ELLIPSIS));
        }
    }
}

/// Reports with all rows have tens of thousands of names; those of one template differ in little.
#[test]
fn many_names_take_little_time() {
    let table: Vec<String> = (0..50_000)
        .map(|i| format!("core::ops::function::FnOnce<(module_{i}::Type, alloc::alloc::Global)>::call_once::{{vtable.shim}}"))
        .collect();
    let names: Vec<&str> = table.iter().map(String::as_str).collect();
    let start = std::time::Instant::now();
    let short = shorten_all(&names, 40);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    let different: BTreeSet<&str> = short.iter().map(|s| &**s).collect();
    assert_eq!(different.len(), names.len());
    assert!(short[77].contains("module_77"), "{}", short[77]);
}

/// Names whose differences do not fit are told apart by numbers, each of which is tried once.
#[test]
fn many_numbers_take_little_time() {
    let table: Vec<String> = (0..50_000).map(|i| format!("beginning{i}ending")).collect();
    let names: Vec<&str> = table.iter().map(String::as_str).collect();
    let start = std::time::Instant::now();
    let short = shorten_all(&names, 5);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    let different: BTreeSet<&str> = short.iter().map(|s| &**s).collect();
    assert_eq!(different.len(), names.len());
}
