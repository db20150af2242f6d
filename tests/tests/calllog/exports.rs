//! Files that `atom analyze` writes for other programs follow the formats of these programs.

use std::collections::BTreeMap;
use std::path::Path;

use super::leaving::LEAVING;
use super::{analyze, compile, figures, folder, log};

fn json_of(file: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Speedscope's schema: a file has `$schema`, `shared` and `profiles`; a frame has a name; an
/// evented profile has name, unit, range, and events that open and close frames in order.
fn check_speedscope(json: &serde_json::Value) -> usize {
    const UNITS: [&str; 6] = [
        "bytes",
        "microseconds",
        "milliseconds",
        "nanoseconds",
        "none",
        "seconds",
    ];
    assert_eq!(
        json["$schema"],
        "https://www.speedscope.app/file-format-schema.json"
    );
    let frames = json["shared"]["frames"].as_array().unwrap();
    for frame in frames {
        assert!(frame["name"].is_string());
        assert!(frame.get("line").is_none_or(|l| l.is_u64()));
        assert!(frame.get("file").is_none_or(|f| f.is_string()));
    }
    let profiles = json["profiles"].as_array().unwrap();
    assert!((json["activeProfileIndex"].as_u64().unwrap() as usize) < profiles.len());
    let mut events = 0;
    for profile in profiles {
        assert_eq!(profile["type"], "evented");
        assert!(profile["name"].is_string() && UNITS.contains(&profile["unit"].as_str().unwrap()));
        let mut at = profile["startValue"].as_f64().unwrap();
        let mut open = Vec::new();
        for event in profile["events"].as_array().unwrap() {
            let now = event["at"].as_f64().unwrap();
            assert!(now >= at);
            at = now;
            let frame = event["frame"].as_u64().unwrap();
            assert!((frame as usize) < frames.len());
            match event["type"].as_str().unwrap() {
                "O" => open.push(frame),
                "C" => assert_eq!(open.pop(), Some(frame)),
                other => panic!("{other}"),
            }
            events += 1;
        }
        assert!(open.is_empty() && at <= profile["endValue"].as_f64().unwrap());
    }
    events
}

/// The trace event format: an object with `traceEvents`; an X is a call with start and duration in
/// microseconds, which is in the call around it; M names process and threads. Calls of a thread are in the order of
/// their starts, outer ones first.
fn check_chrome(json: &serde_json::Value) -> usize {
    // By thread: the start of the last call, and the ends of the calls around it.
    let mut open: BTreeMap<(u64, u64), (f64, Vec<f64>)> = BTreeMap::new();
    let mut events = 0;
    for event in json["traceEvents"].as_array().unwrap() {
        let thread = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        let name = event["name"].as_str().unwrap();
        if event["ph"] == "M" {
            let known = ["process_name", "thread_name", "thread_sort_index"];
            assert!(known.contains(&name), "{name}");
            continue;
        }
        assert_eq!(event["ph"], "X");
        assert!(!name.is_empty());
        let (last, ends) = open.entry(thread).or_default();
        let start = event["ts"].as_f64().unwrap();
        let end = start + event["dur"].as_f64().unwrap();
        assert!(start >= *last);
        *last = start;
        // Times are rounded to nanoseconds.
        let slack = 0.002;
        while ends.last().is_some_and(|around| *around < end - slack) {
            assert!(ends.pop().unwrap() <= start + slack, "calls overlap");
        }
        ends.push(end);
        events += 1;
    }
    events
}

#[test]
fn exports_keep_to_their_formats() {
    let folder = folder("exports");
    let program = compile(&folder, LEAVING, &["-O2"]);
    let place = log(&folder, &program, "calllog", &[], &[]);
    let [chrome, scope, html] = ["a.json", "b.json", "c.html"].map(|n| place.join(n));
    let files = [
        "--chrome",
        chrome.to_str().unwrap(),
        "--speedscope",
        scope.to_str().unwrap(),
    ];
    let options = [&files[..], &["--html", html.to_str().unwrap()]].concat();
    let text = analyze(
        &[&options[..], &["--json"]].concat(),
        &place.join("calllog.out"),
    );
    // Nothing is suspended here, so each call begins once.
    let calls: u64 = figures(&text, 0).values().map(|f| f.0).sum();
    assert_eq!(check_chrome(&json_of(&chrome)) as u64, calls);
    assert!(std::fs::metadata(&chrome).unwrap().len() < 2000 + 100 * calls);
    let json = json_of(&scope);
    assert_eq!(check_speedscope(&json) as u64, calls * 2);
    assert_eq!(json["profiles"].as_array().unwrap().len(), 13);
    let page = std::fs::read_to_string(html).unwrap();
    // What the page shows is tested in a browser: atom-cli/tests/command/timeline.rs.
    assert!(page.contains("id=\"timeline\""));
    // The page loads nothing from other places.
    assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("@import"));
}
