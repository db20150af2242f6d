//! `atom events`: the filters, the search, and the reasons why events cannot be counted.

use std::process::Output;

use crate::common::Folder;

fn atom(args: &[&str]) -> Output {
    Folder::new().atom(args)
}

fn events(args: &[&str]) -> Vec<serde_json::Value> {
    let output = atom(&[&["events", "--json"], args].concat());
    assert!(output.status.success(), "{args:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    json["events"].as_array().unwrap().clone()
}

fn names(events: &[serde_json::Value]) -> Vec<&str> {
    events.iter().filter_map(|e| e["name"].as_str()).collect()
}

#[test]
fn each_filter_shows_what_can_be_restricted_so() {
    let all = events(&[]);
    for (filter, key) in [
        ("--darr", "data_ranges"),
        ("--iarr", "code_ranges"),
        ("--opcm", "opcodes"),
        ("--dear", "data_address"),
        ("--iear", "code_address"),
    ] {
        let wanted: Vec<_> = all.iter().filter(|e| e[key] == true).cloned().collect();
        let shown = events(&[filter]);
        assert_eq!(names(&shown), names(&wanted), "{filter}");
        assert!(!shown.is_empty() && shown.len() < all.len(), "{filter}");
    }
    let darr = events(&["--darr"]);
    assert!(names(&darr).contains(&"exact:loads") && !names(&darr).contains(&"exact:calls"));
}

#[test]
fn what_is_not_there_says_why() {
    for event in events(&[]) {
        let is_there = event["available"] == true;
        let is_own = ["exact", "model"].contains(&event["source"].as_str().unwrap());
        assert!(is_there || !is_own, "{event}");
        let told = |key: &str| event[key].as_str().is_some_and(|text| !text.is_empty());
        assert_eq!(told("cause"), !is_there, "{event}");
        assert_eq!(told("cure"), !is_there, "{event}");
    }
    assert!(
        events(&["--available"])
            .iter()
            .all(|e| e["available"] == true)
    );
}

#[test]
fn the_search_finds_names_and_descriptions() {
    assert!(names(&events(&["TOT_ins"])).contains(&"PAPI_TOT_INS"));
    assert!(names(&events(&["predictor"])).contains(&"model:mispredictions"));
    let output = atom(&["events", "nothing is called so"]);
    assert_eq!(output.status.code(), Some(1));
    let people = atom(&["events", "exact:"]);
    let text = String::from_utf8(people.stdout).unwrap();
    assert!(
        text.contains("counted by instrumentation, exactly"),
        "{text}"
    );
    assert!(!text.contains("PAPI_TOT_INS  "), "{text}");
}
