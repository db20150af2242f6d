//! The page of a profile in a browser: what it shows is what the profile says.

use crate::common::Folder;
use crate::common::browser::{attribute, browse, drive, is_installed};
use crate::common::profiles::Sample;
use serde_json::{Value, json};

fn strings(found: &Value, key: &str) -> Vec<String> {
    serde_json::from_value(found[key].clone()).unwrap_or_else(|_| panic!("{key} in {found}"))
}

/// A folder with the page of a profile, `page.html`; `None` if there is no browser to look at it.
fn page(profile: impl FnOnce(&Sample) -> Value) -> Option<(Folder, Sample)> {
    if !is_installed() {
        return None;
    }
    let folder = Folder::new();
    let sample = Sample::new(&folder);
    folder.write("data.profile", profile(&sample).to_string());
    folder.atom_ok(&["report", "data.profile", "--html", "page.html"]);
    Some((folder, sample))
}

/// What a script finds in the page of a profile; `None` if there is no browser.
fn shown(profile: impl FnOnce(&Sample) -> Value, script: &str) -> Option<Value> {
    let (folder, _) = page(profile)?;
    Some(drive(&folder, "page.html", script))
}

#[test]
fn facts_tables_and_search_show_the_profile() {
    const HOSTILE: &str =
        "</script><img src=x onerror=\"document.documentElement.dataset.error='code'\">";
    let Some((folder, sample)) = page(|sample| sample.blocks(HOSTILE)) else {
        return;
    };
    let profile = sample.blocks(HOSTILE);
    let text = String::from_utf8(folder.read("page.html")).unwrap();
    for needle in ["src=\"", "@import", "url(", "<link"] {
        assert!(!text.contains(needle), "the page needs nothing: {needle}");
    }
    let found = drive(
        &folder,
        "page.html",
        r##"
        const out = {};
        const names = () => texts("#grid .row .name");
        out.title = texts("#title");
        out.figures = texts("#facts .figure");
        out.bars = texts("#top .bars .name");
        out.leaves = all("#map .leaf").map((e) => e.getAttribute("aria-label").split("\n").slice(0, 2));
        click("[role=tab]", "procedures");
        await settle();
        out.rows = names();
        out.counts = texts("#grid .row .cell:first-child");
        out.shares = texts("#grid .row .share");
        click("#grid [role=columnheader]", "procedure"); out.byName = names();
        click("#grid [role=columnheader]", "procedure"); out.byNameDown = names();
        click("#grid [role=columnheader]", "count");
        press("/"); out.focus = document.activeElement.id;
        type("#find", "ROU"); out.found = names(); out.status = texts("#rows");
        type("#find", "twice round"); out.two = names();
        press("Escape", one("#find")); out.again = names();
        press("Enter", one("#find")); out.grid = document.activeElement.getAttribute("role");
        press("ArrowDown"); out.current = texts("#grid .row.current .name");
        press("Enter"); await settle();
        out.opened = texts("#code-name");
        press("Escape", document.body); await settle();
        out.closed = all("#code-name").length;
        out.images = all("img").length;
        return out;
        "##,
    );
    let hostile = sample.hostile(&profile);
    assert_eq!(strings(&found, "title"), ["icount of app"]);
    assert_eq!(strings(&found, "figures"), ["1,234,567"]);
    let order = ["round", "twice", "main", hostile.as_str()];
    assert_eq!(strings(&found, "bars"), order);
    assert_eq!(strings(&found, "rows"), order);
    let counts = sample.counts(&profile);
    assert_eq!(strings(&found, "counts"), counts);
    let shares: f64 = strings(&found, "shares")
        .iter()
        .map(|s| s.parse::<f64>().unwrap())
        .sum();
    assert!((shares - 100.0).abs() < 0.1, "{shares}");
    let leaves: Vec<[String; 2]> = serde_json::from_value(found["leaves"].clone()).unwrap();
    assert!(
        leaves[0][0] == "round" && leaves[0][1].starts_with(&counts[0]),
        "{leaves:?}"
    );
    assert_eq!(
        strings(&found, "byName"),
        [hostile.as_str(), "main", "round", "twice"]
    );
    assert_eq!(
        strings(&found, "byNameDown"),
        ["twice", "round", "main", hostile.as_str()]
    );
    assert_eq!(found["focus"], "find");
    assert_eq!(strings(&found, "found"), ["round"]);
    assert_eq!(strings(&found, "status"), ["1 of 4 rows"]);
    assert_eq!(found["two"], json!([]));
    assert_eq!(strings(&found, "again"), order);
    assert_eq!(found["grid"], "grid");
    assert_eq!(strings(&found, "current"), ["twice"]);
    assert_eq!(strings(&found, "opened"), ["twice"]);
    assert_eq!(found["closed"], 0);
    assert_eq!(found["images"], 0);
}

#[test]
fn code_has_heat_loops_callers_and_links() {
    let Some((folder, sample)) = page(|sample| sample.blocks("other")) else {
        return;
    };
    let found = drive(
        &folder,
        "page.html",
        r##"
        const out = {};
        click("#map .leaf[data-place='0:ROUND']"); await settle();
        out.name = texts("#code-name");
        out.insts = all(".l[data-at]").map((l) => [l.children[0].textContent, l.querySelector(".address").textContent]);
        out.source = all(".l[data-place]").filter((l) => l.children[0].textContent)
            .map((l) => [l.children[0].textContent, l.querySelector(".number").textContent, l.lastChild.textContent]);
        out.loops = all("#code-side table")[0] && [...all("#code-side table")[0].rows].slice(1).map((r) => [...r.cells].map((c) => c.textContent.trim()));
        out.heat = all(".l[data-at] .heat").length;
        all(".l[data-place]").find((l) => l.textContent.includes("sum +=")).click();
        out.lit = all(".l.lit[data-at]").length;
        const callers = all("#code-side h3").findIndex((h) => h.textContent.startsWith("Callers"));
        out.caller = all("#code-side h3")[callers].nextSibling.rows[1].textContent;
        all("#code-side h3")[callers].nextSibling.querySelector("button").click(); await settle();
        out.after = texts("#code-name");
        click("#back"); await settle();
        out.back = all("#map .leaf").length > 0;
        return out;
        "##
        .replace("ROUND", &sample.start("round").to_string())
        .as_str(),
    );
    assert_eq!(strings(&found, "name"), ["round"]);
    // The same counts as on the terminal.
    let text = folder.atom_ok(&["annotate", "data.profile", "round"]);
    let (_, listing) = text.rsplit_once("address\n").unwrap();
    let want: Vec<[String; 2]> = listing
        .lines()
        .filter(|line| !line.trim_start().starts_with(';'))
        .map(|line| {
            let mut words = line.split_whitespace();
            let count = words.next().unwrap().to_owned();
            let address = words.find(|w| w.len() == 4 && u64::from_str_radix(w, 16).is_ok());
            [count, address.unwrap().to_owned()]
        })
        .collect();
    let insts: Vec<[String; 2]> = serde_json::from_value(found["insts"].clone()).unwrap();
    assert_eq!(insts, want);
    assert_eq!(found["heat"], insts.iter().filter(|i| i[0] != "0").count());
    let source: Vec<[String; 3]> = serde_json::from_value(found["source"].clone()).unwrap();
    assert!(
        source
            .iter()
            .any(|line| line[1] == "4" && line[2].contains("sum += i")),
        "{source:?}"
    );
    // The loop: 1,000 rounds, entered 10 times.
    let row: Vec<String> = serde_json::from_value(found["loops"][0].clone()).unwrap();
    assert_eq!(row[2..], ["1,000", "10", "100.0"]);
    assert!(found["lit"].as_u64().unwrap() > 0);
    assert_eq!(found["caller"], "twice10");
    assert_eq!(strings(&found, "after"), ["twice"]);
    assert_eq!(found["back"], true);
}

#[test]
fn the_call_graph_adds_up() {
    let Some(found) = shown(
        |sample| sample.arcs(),
        r##"
        click("[role=tab]", "Call graph"); await settle();
        const frames = () => all("#flame .frame").map((f) => [f.textContent, Number(f.dataset.value), Number(f.getAttribute("aria-level"))]);
        const out = { all: frames() };
        click("#flame .frame", "twice"); out.zoomed = all("#flame .frame").map((f) => [f.textContent, f.style.width]);
        click("#calls-all");
        type("#find", "roun"); out.found = texts("#flame .found");
        return out;
        "##,
    ) else {
        return;
    };
    let frames: Vec<(String, f64, u32)> = serde_json::from_value(found["all"].clone()).unwrap();
    let value = |name: &str, level: u32| {
        let frame = frames.iter().find(|f| f.0 == name && f.2 == level);
        frame
            .unwrap_or_else(|| panic!("{name} at {level} in {frames:?}"))
            .1
    };
    // main once, twice 10 times, round 40 times: 30 by twice, 10 by main; round calls itself 60 times more.
    assert_eq!(value("all", 1), 111.0);
    assert_eq!(value("main", 2), 111.0);
    assert_eq!(value("twice", 3), 10.0 + 75.0);
    assert_eq!(value("round", 4), 75.0);
    assert_eq!(value("round", 3), 25.0);
    let zoomed: Vec<(String, String)> = serde_json::from_value(found["zoomed"].clone()).unwrap();
    let twice = zoomed.iter().find(|f| f.0 == "twice").unwrap();
    assert_eq!(twice.1, "100%");
    assert_eq!(strings(&found, "found"), ["round", "round"]);
}

/// A call that is cheap from one caller and expensive from another: shared out by calls, both would get half.
#[test]
fn whole_stacks_are_shown_as_they_are() {
    let Some((folder, _)) = page(|sample| {
        let mut profile = sample.branches(4);
        let strings = profile["strings"].as_array_mut().unwrap();
        let first = strings.len();
        let paths = [
            "proc_0",
            "proc_0;proc_1",
            "proc_0;proc_1;proc_3",
            "proc_0;proc_2",
            "proc_0;proc_2;proc_3",
        ];
        strings.extend(paths.map(|path| json!(path)));
        let numbers: Vec<usize> = (first..first + paths.len()).collect();
        let measure = |name: &str, values: &[u64]| json!({"name": name, "type": "count", "unit": "instructions", "role": "measure", "sum": "add", "values": values});
        profile["tool"] = json!("calltree");
        profile["tables"] = json!([
            {"name": "procedures", "by": "procedure", "rows": 4, "readers": "all", "columns": [
                measure("own", &[10, 20, 30, 1000]), measure("calls", &[1, 1, 1, 2]),
                {"name": "pc", "type": "address", "role": "key", "values": [0, 16, 32, 48]},
                {"name": "procedure", "type": "text", "role": "label", "values": [0, 1, 2, 3]},
            ]},
            {"name": "arcs", "by": "arc", "rows": 2, "readers": "programs", "columns": [
                measure("calls", &[1, 1]),
                {"name": "caller pc", "type": "address", "role": "key", "values": [16, 32]},
                {"name": "callee pc", "type": "address", "role": "key", "values": [48, 48]},
            ]},
            {"name": "call paths", "by": "other", "rows": 5, "readers": "programs", "columns": [
                measure("own", &[10, 20, 1, 30, 999]), measure("calls", &[1; 5]),
                {"name": "path", "type": "text", "role": "key", "values": numbers},
            ]},
        ]);
        profile
    }) else {
        return;
    };
    let found = drive(
        &folder,
        "page.html",
        r##"
        click("[role=tab]", "Call graph"); await settle();
        return { frames: all("#flame .frame").map((f) => [f.textContent, Number(f.dataset.value), Number(f.getAttribute("aria-level"))]),
            measure: document.querySelector("#calls-measure option").textContent, note: one("#calls-note").textContent };
        "##,
    );
    let mut frames: Vec<(String, f64, u32)> =
        serde_json::from_value(found["frames"].clone()).unwrap();
    frames.sort_by(|a, b| (a.2, &a.0).cmp(&(b.2, &b.0)).then(a.1.total_cmp(&b.1)));
    let frame = |name: &str, value: f64, level: u32| (name.to_owned(), value, level);
    let want = [
        frame("all", 1060.0, 1),
        frame("proc_0", 1060.0, 2),
        frame("proc_1", 21.0, 3),
        frame("proc_2", 1029.0, 3),
        frame("proc_3", 1.0, 4),
        frame("proc_3", 999.0, 4),
    ];
    assert_eq!(frames, want);
    assert_eq!(found["measure"], "instructions, by call path");
    assert!(found["note"].as_str().unwrap().contains("exact"));
    folder.atom_ok(&[
        "report",
        "data.profile",
        "--export",
        "folded",
        "-o",
        "out.folded",
    ]);
    let folded = String::from_utf8(folder.read("out.folded")).unwrap();
    let mut lines: Vec<&str> = folded.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "proc_0 10",
            "proc_0;proc_1 20",
            "proc_0;proc_1;proc_3 1",
            "proc_0;proc_2 30",
            "proc_0;proc_2;proc_3 999"
        ]
    );
}

#[test]
fn hard_branches_and_long_tables() {
    let Some(found) = shown(
        |sample| sample.branches(100_000),
        r##"
        const out = {};
        out.hard = all("#top .bars")[1].textContent;
        click("[role=tab]", "conditional branches"); await settle();
        out.first = [...one("#grid .row").children].map((c) => c.textContent).slice(0, 4);
        out.elements = all("#grid .row").length;
        out.rows = one("#grid .grid").getAttribute("aria-rowcount");
        press("End", one("#grid .grid")); await settle();
        out.last = one("#grid .row.current").dataset.at;
        type("#find", "proc_99999"); out.found = texts("#grid .row .name");
        return out;
        "##,
    ) else {
        return;
    };
    assert_eq!(
        found["first"],
        json!(["50,000", "100,000", "50,000", "50,000"])
    );
    assert!(found["hard"].as_str().unwrap().starts_with("proc_50000"));
    assert!(found["elements"].as_u64().unwrap() < 80);
    assert_eq!(found["rows"], "100001");
    assert_eq!(found["last"], "99999");
    assert_eq!(strings(&found, "found"), ["proc_99999"]);
}

#[test]
fn branches_with_a_predictor_are_ordered_by_mispredictions() {
    let Some(found) = shown(
        |sample| {
            let mut profile = sample.branches(8);
            let columns = profile["tables"][0]["columns"].as_array_mut().unwrap();
            for (name, values) in [("2-bit", [9; 8]), ("gshare", [1, 1, 8, 1, 1, 7, 0, 0])] {
                columns.push(json!({"name": name, "type": "count", "role": "measure", "sum": "add", "values": values}));
            }
            profile
        },
        r##"
        const bars = all("#top .bars")[1];
        return { title: bars.previousSibling.textContent, names: [...bars.querySelectorAll(".name")].map((e) => e.textContent),
            counts: [...bars.querySelectorAll(".count:not(.soft)")].map((e) => e.textContent) };
        "##,
    ) else {
        return;
    };
    assert_eq!(found["title"], "Branches by mispredictions (gshare)");
    assert_eq!(strings(&found, "names")[..2], ["proc_2", "proc_5"]);
    assert_eq!(strings(&found, "counts"), ["8", "7", "1", "1", "1", "1"]);
}

#[test]
fn miss_ratios_are_a_curve() {
    let sizes: Vec<u64> = (6..16).map(|power| 1 << power).collect();
    let shares: Vec<f64> = (0..10).map(|n| 64.0 / f64::from(1 << n)).collect();
    let Some(found) = shown(
        |sample| {
            let mut profile = sample.branches(2);
            profile["tool"] = json!("reuse");
            profile["tables"] = json!([{"name": "miss ratios", "by": "other", "rows": 10, "readers": "all", "columns": [
                {"name": "cache", "type": "bytes", "role": "key", "values": sizes},
                {"name": "misses", "type": "count", "role": "measure", "sum": "add", "values": sizes},
                {"name": "miss %", "type": "ratio", "role": "measure", "sum": "none", "values": shares},
                {"name": "misses 1K", "type": "count", "role": "measure", "sum": "add", "values": sizes},
                {"name": "misses 32M", "type": "count", "role": "measure", "sum": "add", "values": sizes},
            ]}]);
            profile
        },
        r##"
        const number = (e, name) => Number(e.getAttribute(name));
        return { points: [...document.querySelectorAll(".curve .point")].map((p) =>
            [number(p, "data-bytes"), number(p, "data-misses"), number(p, "cx"), number(p, "cy")]),
            marks: [...document.querySelectorAll(".curve .mark")].map((m) => [number(m, "data-cache"), number(m, "x1")]),
            title: one(".curve .point").textContent };
        "##,
    ) else {
        return;
    };
    let points: Vec<[f64; 4]> = serde_json::from_value(found["points"].clone()).unwrap();
    assert_eq!(points.len(), 10);
    assert_eq!(found["title"], "64 B: 64.00 % of the references miss");
    // Of the caches whose misses are known, those on the axis are marked.
    let marks: Vec<[f64; 2]> = serde_json::from_value(found["marks"].clone()).unwrap();
    assert_eq!(marks.len(), 1, "{marks:?}");
    assert!(marks[0][0] == 1024.0 && (marks[0][1] - points[4][2]).abs() < 0.02);
    let (first, last) = (points[0], points[9]);
    for (n, point) in points.iter().enumerate() {
        assert_eq!([point[0], point[1]], [sizes[n] as f64, shares[n]]);
        // Sizes stand on a logarithmic axis, ratios on a linear one.
        let x = first[2] + (last[2] - first[2]) * n as f64 / 9.0;
        let share = (point[1] - first[1]) / (last[1] - first[1]);
        let y = first[3] + (last[3] - first[3]) * share;
        assert!(
            (point[2] - x).abs() < 0.02 && (point[3] - y).abs() < 0.02,
            "{point:?}"
        );
    }
}

#[test]
fn live_bytes_are_a_curve_with_the_peak() {
    let times: Vec<u64> = (0..8).map(|n| n * 250_000).collect();
    let live = [0, 5000, 9000, 4000, 8000, 1000, 300, 0];
    let Some(found) = shown(
        |sample| {
            let mut profile = sample.branches(2);
            let paths = profile["strings"].as_array().unwrap().len();
            let strings = profile["strings"].as_array_mut().unwrap();
            strings.extend([
                json!("small < main"),
                json!("large < main"),
                json!("gone < main"),
            ]);
            profile["tool"] = json!("heap");
            profile["facts"] = json!([
                {"name": "bytes at the peak", "type": "bytes", "value": 20_000},
                {"name": "time of the peak", "type": "seconds", "value": 0.6},
            ]);
            profile["tables"] = json!([
                {"name": "allocations by call path", "by": "other", "rows": 3, "readers": "all", "columns": [
                    {"name": "bytes", "type": "bytes", "role": "measure", "sum": "add", "values": [90_000, 60_000, 50_000]},
                    {"name": "peak", "type": "bytes", "role": "measure", "sum": "max", "values": [5000, 15_000, 0]},
                    {"name": "path", "type": "text", "role": "key", "values": [paths, paths + 1, paths + 2]},
                ]},
                {"name": "live bytes over time", "by": "other", "rows": 8, "readers": "programs", "columns": [
                    {"name": "microseconds", "type": "count", "role": "key", "values": times},
                    {"name": "live", "type": "bytes", "role": "measure", "sum": "none", "values": live},
                ]},
            ]);
            profile
        },
        r##"
        const mark = one(".curve .peak");
        const out = { ticks: texts(".curve .tick"), axis: texts(".curve .axis"), peak: mark.textContent,
            at: ["cx", "cy"].map((name) => Number(mark.getAttribute(name))), box: one(".curve svg").viewBox.baseVal.width,
            title: texts("#top h2"), bars: texts("#top .bars .name"), counts: texts("#top .bars .count:not(.soft)") };
        click("[role=tab]", "live bytes over time"); await settle();
        out.times = all("#grid .row").map((row) => row.querySelector(".cell").textContent);
        return out;
        "##,
    ) else {
        return;
    };
    let ticks = strings(&found, "ticks");
    for tick in ["0 B", "20 kB", "0 ms", "1,000 ms"] {
        assert!(ticks.iter().any(|t| t == tick), "{tick}: {ticks:?}");
    }
    assert_eq!(
        strings(&found, "axis"),
        ["time since the start", "peak: 20 kB at 600.000 ms"]
    );
    assert_eq!(found["peak"], "20,000 bytes at 600.000 ms");
    // Between the samples at 0.5 and 0.75 s, which have 9,000 bytes at most, at the top of the picture.
    let at: [f64; 2] = serde_json::from_value(found["at"].clone()).unwrap();
    let share = (at[0] - 64.0) / (found["box"].as_f64().unwrap() - 64.0 - 16.0);
    assert!((share - 0.6 / 1.75).abs() < 0.001 && at[1] < 25.0, "{at:?}");
    let titles = strings(&found, "title");
    assert_eq!(
        titles[..2],
        [
            "Live bytes over time",
            "Bytes live at the peak by call path"
        ]
    );
    assert_eq!(
        strings(&found, "bars")[..2],
        ["large < main", "small < main"]
    );
    assert_eq!(strings(&found, "counts")[..2], ["15,000", "5,000"]);
    assert_eq!(strings(&found, "times")[..2], ["0.000 µs", "250.000 ms"]);
}

#[test]
fn the_address_tells_what_is_shown() {
    let Some((folder, sample)) = page(|sample| sample.blocks("other")) else {
        return;
    };
    let hash = format!("#tab=table-0&theme=dark&proc=0:{}", sample.address("twice"));
    let document = browse(&folder, "page.html", &hash);
    assert_eq!(attribute(&document, "data-theme"), Some("dark"));
    assert_eq!(attribute(&document, "data-error"), None);
    assert!(document.contains("<h2 id=\"code-name\">twice</h2>"));
}

#[test]
fn long_names_are_shortened_and_told_whole() {
    let name = |last: &str| {
        format!(
            "outer::Map<{}int>::{last}(int)",
            "std::vector<int>, ".repeat(12)
        )
    };
    let Some(found) = shown(
        |sample| {
            let mut profile = sample.branches(2);
            let strings = profile["strings"].as_array_mut().unwrap();
            for string in strings {
                *string = json!(name(string.as_str().unwrap()));
            }
            profile
        },
        r##"
        const out = {};
        click("[role=tab]", "conditional branches"); await settle();
        out.shown = texts("#grid .row .name");
        out.whole = all("#grid .row .name").map((cell) => cell.title);
        type("#find", "std::vector<int>, std::vector"); out.found = texts("#grid .row .name");
        return out;
        "##,
    ) else {
        return;
    };
    let (shown, whole) = (strings(&found, "shown"), strings(&found, "whole"));
    assert_eq!(shown.len(), 2);
    for (shown, whole) in shown.iter().zip(&whole) {
        let last = whole.rsplit("::").next().unwrap().replace("(int)", "");
        assert_eq!(*whole, name(&last));
        assert!(
            shown.chars().count() <= 80 && shown.contains(&last),
            "{shown}"
        );
    }
    assert_ne!(shown[0], shown[1]);
    assert_eq!(strings(&found, "found").len(), 2);
}
