//! The page of `atom analyze --html` in a browser.

use std::collections::HashMap;
use std::process::Command;

use crate::common::Folder;
use crate::common::browser::{drive, is_installed};
use serde_json::Value;

/// A second thread, which calls the C library, waits, and works.
const SOURCE: &str = "\
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((noipa)) void fill(int *list, int n) { for (int i = 0; i < n; i++) list[i] = i * 7919 % n; }
__attribute__((noipa)) void *work(void *unused) {
    int list[50];
    for (int i = 0; i < 3; i++) {
        fill(list, 50);
        qsort(list, 50, sizeof *list, compare);
        usleep(2000);
    }
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    pthread_join(thread, 0);
    return 0;
}
";

#[test]
fn lanes_flame_graph_and_sums_show_the_log() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new();
    folder.compile("app", SOURCE, &["-g", "-O1", "-pthread"]);
    let status = Command::new(env!("CARGO_BIN_EXE_atom"))
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .args(["run", "calllog", "--", "./app"])
        .status();
    assert!(status.expect("it runs").success());
    let json = folder.atom_ok(&["analyze", "calllog.out", "--json", "--html", "page.html"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    let found = drive(
        &folder,
        "page.html",
        r##"
        const out = {};
        const table = () => all("#grid .row").map((r) => [...r.children].map((c) => c.textContent));
        out.axis = Number(one("#axis").dataset.ticks);
        out.range = texts("#range");
        out.subtitle = texts("#subtitle");
        out.frames = texts("#flame .frame");
        out.sums = table();
        for (const name of ["fill", "libc.so.6:usleep", "libc.so.6:qsort"]) {
            type("#find", name);
            out.sums.push(table().find((row) => row[6] === name));
        }
        type("#find", "fil fill"); out.found = table().map((r) => r[6]);
        out.marked = texts("#flame .found");
        type("#find", "");
        click("#flame .frame", "work"); out.zoomed = texts("#flame .frame");
        press("+", one("#lanes")); out.zoom = texts("#range");
        press("Escape", one("#lanes")); out.whole = texts("#range");
        one("#legend input").click();
        out.canvas = one("#view").height > 80;
        return out;
        "##,
    );
    let strings =
        |key: &str| -> Vec<String> { serde_json::from_value(found[key].clone()).unwrap() };
    assert!(found["axis"].as_u64().unwrap() >= 4, "{found}");
    let subtitle = &strings("subtitle")[0];
    let digits: String = subtitle
        .rsplit(" · ")
        .next()
        .unwrap()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    assert_eq!(report["reports"][0]["calls"].to_string(), digits);
    assert!(subtitle.contains("2 threads"), "{subtitle}");
    assert!(strings("range")[0].starts_with("0.000 µs to "));
    assert_ne!(strings("zoom"), strings("range"));
    assert_eq!(strings("whole"), strings("range"));
    assert_eq!(found["canvas"], true);
    let frames = strings("frames");
    for name in ["all threads", "main", "work", "libc.so.6:usleep"] {
        assert!(frames.iter().any(|f| f == name), "{name} in {frames:?}");
    }
    assert!(!strings("zoomed").contains(&"main".to_owned()));
    assert!(strings("found").contains(&"fill".to_owned()));
    assert!(strings("found").iter().all(|name| name.contains("fill")));
    // Calls are those of the report.
    let sums: Vec<Vec<String>> = serde_json::from_value(found["sums"].clone()).unwrap();
    let row = |name: &str| {
        sums.iter()
            .find(|r| r[6] == name)
            .unwrap_or_else(|| panic!("{name}"))
    };
    // Procedures of one name are told apart by their addresses, which the page does not show.
    let mut reported: HashMap<&str, Vec<String>> = HashMap::new();
    for row in report["reports"][0]["procedures"].as_array().unwrap() {
        let (name, calls) = (row["procedure"].as_str().unwrap(), row["calls"].to_string());
        reported.entry(name).or_default().push(calls);
    }
    for shown in &sums {
        if let Some(calls) = reported.get(shown[6].as_str()) {
            assert!(
                calls.contains(&shown[3]),
                "{}: {} of {calls:?}",
                shown[6],
                shown[3]
            );
        }
    }
    assert_eq!(row("fill")[3], "3");
    let kinds = ["fill", "libc.so.6:usleep", "libc.so.6:qsort"].map(|name| row(name)[5].clone());
    assert_eq!(kinds, ["own code", "waiting", "library"]);
}
