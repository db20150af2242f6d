//! The page of `atom arp --html` in a browser: chromium without a window.

use crate::common::Folder;
use crate::common::browser::{attribute, browse, drive, is_installed};
use crate::common::recordings::{Recording, by_hand};

/// Uses the page: opens and closes the tree, sorts, zooms, searches, changes the set of values.
const USE_PAGE: &str = r##"
        const text = (q) => all(q).map((e) => e.textContent);
        const push = (q) => { const e = all(q)[0]; e.dispatchEvent(new MouseEvent("click", { bubbles: true })); };
        const names = () => text("#tree tbody tr td:nth-last-child(2)").map((t) => t.replace(/[▸▾]/, ""));
        const out = {};
        out.title = text("h1")[0];
        out.first = names();
        push("#close"); out.closed = names();
        push("#tree tbody button"); out.opened = names();
        push("#open"); out.all = names();
        out.totals = text("#tree tbody tr td:first-child");
        push("#tree th:nth-child(4)"); out.byCount = names();
        push("#tree th:nth-child(4)"); out.byCountUp = names();
        out.sections = text("#sections tbody tr td:nth-last-child(2)");
        out.sources = text("#sections tbody tr td:last-child");
        const frames = () => all("#flame .frame").map((e) => [e.textContent, e.style.left, e.style.width]);
        out.flame = frames();
        all("#flame .frame").find((e) => e.textContent === "filter").click(); out.zoomed = frames();
        all("#flame .frame")[0].click(); out.back = frames();
        const find = all("#find")[0];
        find.value = "CONV"; find.dispatchEvent(new Event("input"));
        out.found = text("#found")[0]; out.marked = text(".frame.found");
        find.value = ""; find.dispatchEvent(new Event("input"));
        out.unmarked = all(".found").length;
        out.figures = text("figcaption");
        out.bars = all("figure").map((f) => [...f.querySelectorAll("rect title")]
            .map((t) => Number(t.textContent.split(": ")[1])).filter((n) => n > 0));
        const set = all("#set")[0]; out.sets = [...set.options].map((o) => o.textContent);
        set.value = "1"; set.dispatchEvent(new Event("change"));
        out.ends = text("#sections tbody tr td:first-child");
        out.images = all("img").length;
        return out;
"##;

#[test]
fn tree_flame_graph_and_histograms_are_drawn_and_can_be_used() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new();
    let clip = "</script><img src=x onerror=\"document.documentElement.dataset.error='code'\">";
    let recording = Recording {
        clip,
        ..Recording::default()
    };
    recording.write(&folder.join("data.arp"));
    folder.atom_ok(&["arp", "data.arp", "--html", "page.html"]);
    let text = String::from_utf8(folder.read("page.html")).unwrap();
    for needle in ["http://", "https://", "src=\"", "@import"] {
        let text = text.replace("http://www.w3.org/2000/svg", "");
        // The hostile name of a section has `src=` without a quote, as text.
        assert!(!text.contains(needle), "the page needs nothing: {needle}");
    }
    let found = drive(&folder, "page.html", USE_PAGE);
    let strings = |key: &str| -> Vec<String> {
        serde_json::from_value(found[key].clone()).unwrap_or_else(|_| panic!("{key} in {found}"))
    };
    assert!(
        found["title"]
            .as_str()
            .unwrap()
            .starts_with("data.arp: record_all")
    );
    assert_eq!(
        strings("first"),
        ["main", "loop", "filter", "convolve", clip]
    );
    assert_eq!(strings("closed"), ["main"]);
    assert_eq!(strings("opened"), ["main", "loop"]);
    assert_eq!(strings("all"), ["main", "loop", "filter", "convolve", clip]);
    assert_eq!(strings("totals"), ["178", "78", "78", "60", "15"]);
    assert_eq!(strings("byCount")[3..], ["convolve", clip]);
    assert_eq!(strings("byCountUp")[3..], [clip, "convolve"]);
    assert_eq!(
        strings("sections"),
        ["main", "filter", "loop", "convolve", clip]
    );
    assert_eq!(strings("sources")[0], "image.c:30-35");

    let frames = |key: &str| -> Vec<(String, String, f64)> {
        let list: Vec<(String, String, String)> =
            serde_json::from_value(found[key].clone()).unwrap();
        let width = |text: &str| text.trim_end_matches('%').parse().unwrap();
        list.into_iter()
            .map(|(n, l, w)| (n, l, width(&w)))
            .collect()
    };
    let width = |key: &str, name: &str| {
        let frames = frames(key);
        let frame = frames.iter().find(|f| f.0 == name);
        frame.unwrap_or_else(|| panic!("{name} in {frames:?}")).2
    };
    assert_eq!(frames("flame").len(), 6);
    for (name, part) in [
        ("main", 178.0),
        ("filter", 78.0),
        ("convolve", 60.0),
        (clip, 15.0),
    ] {
        assert!((width("flame", name) - part / 1.78).abs() < 0.01, "{name}");
    }
    assert_eq!(width("zoomed", "filter"), 100.0);
    assert_eq!(width("zoomed", "main"), 100.0);
    assert!((width("zoomed", "convolve") - 60.0 / 0.78).abs() < 0.01);
    assert_eq!(frames("back"), frames("flame"));
    assert_eq!(found["found"], "60 (33.7 %)");
    assert_eq!(strings("marked"), ["convolve"]);
    assert_eq!(found["unmarked"], 0);
    assert_eq!(strings("figures"), ["main", "filter", "convolve", clip]);
    let bars: Vec<Vec<u64>> = serde_json::from_value(found["bars"].clone()).unwrap();
    assert_eq!(bars, [vec![1], vec![1, 1, 1], vec![6], vec![1, 1, 1]]);
    assert_eq!(strings("sets"), ["ticks (unsigned long)", "ends (double)"]);
    // main 13, three filters of 4, six convolutions, three clips, in the order of the table.
    let mut ends = strings("ends");
    ends.sort();
    assert_eq!(ends, ["12", "12", "13", "3", "6"]);
    assert_eq!(found["images"], 0);
}

#[test]
fn pages_of_averages_and_of_nothing() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new();
    let averages = ["1 0 4: 3 2 1 5;", "2 1 6: 2 nan -inf 0.5;"];
    folder.write("averages.arp", by_hand(0, &[11], &averages));
    folder.write("nothing.arp", by_hand(1, &[4], &[]));
    let script = r##"
        return [all("#tree tbody tr").length, all(".frame").length, all("figure").length];
    "##;
    folder.atom_ok(&["arp", "averages.arp", "--html", "page.html"]);
    let seen = drive(&folder, "page.html", script);
    assert_eq!(seen[0], 2);
    assert_eq!(seen[2], 0);
    folder.atom_ok(&["arp", "nothing.arp", "--html", "page.html"]);
    assert_eq!(
        drive(&folder, "page.html", script),
        serde_json::json!([0, 1, 0])
    );
}

#[test]
fn a_page_whose_script_fails_is_noticed() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new();
    Recording::default().write(&folder.join("data.arp"));
    folder.atom_ok(&["arp", "data.arp", "--html", "page.html"]);
    let text = String::from_utf8(folder.read("page.html")).unwrap();
    let broken = text.replacen("drawTree();\n", "missing();\n", 20);
    assert_ne!(broken, text);
    folder.write("broken.html", broken);
    let document = browse(&folder, "broken.html", "");
    assert!(attribute(&document, "data-error").is_some_and(|e| e.contains("missing")));
    assert_eq!(attribute(&document, "data-state"), None);
}
