//! `atom arp`: output for data files whose sums are computed by hand.

use std::process::Command;

use crate::common::recordings::{Recording, by_hand};
use crate::common::{Folder, stderr};
use arp::{Format, Mode, Profile, Reader};
use serde_json::{Value, json};

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// A folder with a recording in `data.arp`.
fn with(recording: Recording<'_>) -> Folder {
    let folder = Folder::new();
    recording.write(&folder.join("data.arp"));
    folder
}

const SECTIONS: &str = "\
data.arp: record_all, binary, 13 records, 1 thread

ticks (unsigned long)
TOTAL      %  SELF  COUNT  MEAN  MIN  P50  P90  P99  MAX  ID  KIND      SECTION   SOURCE
  178  100.0   100      1   178  178  178  178  178  178   9  profiled  main      image.c:30-35
   78   43.8     3      3    26   25   26   27   27   27   2  profiled  filter    image.c:10-15
   78   43.8     0     3+     -    -    -    -    -    -   7  plain     loop      image.c:40-45
   60   33.7    60      6    10   10   10   10   10   10   1  kernel    convolve  image.c:12-17
   15    8.4    15      3     5    4    5    6    6    6   3  kernel    clip      image.c:20-25
All: 178

ends (double)
TOTAL      %  SELF  COUNT  MEAN  MIN  P50  P90  P99  MAX  ID  KIND      SECTION   SOURCE
   13  100.0     1      1    13   13   13   13   13   13   9  profiled  main      image.c:30-35
   12   92.3     3      3     4    4    4    4    4    4   2  profiled  filter    image.c:10-15
   12   92.3     0     3+     -    -    -    -    -    -   7  plain     loop      image.c:40-45
    6   46.2     6      6     1    1    1    1    1    1   1  kernel    convolve  image.c:12-17
    3   23.1     3      3     1    1    1    1    1    1   3  kernel    clip      image.c:20-25
All: 13
";

const TREE: &str = "\
TOTAL      %  SELF  COUNT  MEAN  MIN  MAX  SECTION         SOURCE
  178  100.0   100      1   178  178  178  main            image.c:30-35
   78   43.8     0     3+     -    -    -    loop          image.c:40-45
   78   43.8     3      3    26   25   27      filter      image.c:10-15
   60   33.7    60      6    10   10   10        convolve  image.c:12-17
   15    8.4    15      3     5    4    6        clip      image.c:20-25
All: 178
";

const COUNTERS: &str = "\
TOTAL      %  SELF  COUNT  MEAN  MIN  MAX  SECTION           SOURCE
  178  100.0   100      1   178  178  178  main@0            image.c:30-35
   25   14.0     0     1+     -    -    -    loop@0          image.c:40-45
   25   14.0     1      1    25   25   25      filter@0      image.c:10-15
   10    5.6    10      1    10   10   10        convolve@0  image.c:12-17
   10    5.6    10      1    10   10   10        convolve@1  image.c:12-17
    4    2.2     4      1     4    4    4        clip@0      image.c:20-25
";

#[test]
fn tables_of_sections_and_contexts() {
    let folder = with(Recording::default());
    assert_eq!(folder.atom_ok(&["arp", "data.arp"]), SECTIONS);
    let tree = folder.atom_ok(&["arp", "data.arp", "--tree", "--set", "ticks"]);
    assert_eq!(tree.splitn(4, '\n').nth(3), Some(TREE));
    let counters = ["arp", "data.arp", "--tree", "--set", "0", "--counters"];
    let text = folder.atom_ok(&counters);
    let table = text.splitn(4, '\n').nth(3).unwrap();
    assert!(table.starts_with(COUNTERS), "{text}");
    assert_eq!(table.lines().count(), 1 + 1 + 3 * 5 + 1);
    // Other orders and limits.
    let by_id = folder.atom_ok(&[
        "arp", "data.arp", "--sort", "id", "--limit", "2", "--set", "0",
    ]);
    let rows: Vec<_> = by_id.lines().skip(4).collect();
    assert!(
        rows[0].contains("convolve") && rows[1].contains("filter"),
        "{by_id}"
    );
    assert_eq!(rows[2], "... and 3 sections more");
    let quantiles = folder.atom_ok(&["arp", "data.arp", "--quantiles", "0.25,0.999"]);
    assert!(quantiles.contains(" P25  P99.9  MAX"), "{quantiles}");
    let shallow = folder.atom_ok(&["arp", "data.arp", "--tree", "--depth", "2", "--set", "0"]);
    assert!(
        shallow.contains("loop") && !shallow.contains("filter"),
        "{shallow}"
    );
}

#[test]
fn every_format_and_mode_tells_the_same_sums() {
    let all = with(Recording::default());
    let expected: Vec<Value> = sums(&all.atom_ok(&["arp", "data.arp", "--json"]));
    assert_eq!(expected[0], json!([1, 6, 60, 60, 10.0, 10, 10]));
    for mode in [Mode::RecordAll, Mode::RecordAverage, Mode::RecordHistogram] {
        for format in [Format::Ascii, Format::Binary] {
            for gzip in [false, true] {
                let folder = with(Recording {
                    mode,
                    format,
                    gzip,
                    ..Recording::default()
                });
                let what = format!("{mode} {format:?} {gzip}");
                let text = folder.atom_ok(&["arp", "data.arp", "--json"]);
                assert_eq!(sums(&text), expected, "{what}");
                let json = parse(&text);
                assert_eq!(json["mode"], mode.to_string());
                assert_eq!(json["gzip"], gzip);
                let filter = section(&json, 2);
                let median = &filter["values"][0]["quantiles"]["0.5"];
                match mode {
                    Mode::RecordAverage => assert!(median.is_null(), "{what}"),
                    _ => assert_eq!(*median, 26.0, "{what}"),
                }
                // Plain sections have counts if the file has counters.
                let count = &section(&json, 7)["count"];
                match mode {
                    Mode::RecordAll => assert_eq!(*count, 3, "{what}"),
                    _ => assert!(count.is_null(), "{what}"),
                }
                let folded = folder.atom_ok(&["arp", "data.arp", "--folded", "--set", "ticks"]);
                let mut lines: Vec<_> = folded.lines().collect();
                lines.sort();
                assert_eq!(
                    lines,
                    [
                        "main 100",
                        "main;loop;filter 3",
                        "main;loop;filter;clip 15",
                        "main;loop;filter;convolve 60",
                    ],
                    "{what}"
                );
            }
        }
    }
}

fn section(json: &Value, id: u32) -> &Value {
    let sections = json["sections"].as_array().expect("sections");
    sections
        .iter()
        .find(|s| s["id"] == id)
        .expect("the section")
}

/// Number, count, total, self, mean, min and max of each measured section in the first set, by number.
fn sums(text: &str) -> Vec<Value> {
    let json = parse(text);
    let sections = json["sections"].as_array().expect("sections");
    let mut rows: Vec<_> = sections
        .iter()
        .filter(|s| s["values"][0]["mean"].is_number())
        .map(|s| {
            let v = &s["values"][0];
            json!([
                s["id"], s["count"], v["total"], v["self"], v["mean"], v["min"], v["max"]
            ])
        })
        .collect();
    rows.sort_by_key(|row| row[0].as_u64());
    rows
}

#[test]
fn other_programs_get_all_of_it() {
    let folder = with(Recording {
        clip: "clip, \"hard\"",
        threads: &[1, 5],
        ..Recording::default()
    });
    let csv = folder.atom_ok(&["arp", "data.arp", "--csv", "--set", "0"]);
    let mut lines = csv.lines();
    let head = "set,id,kind,name,file,line,end_line,count,count_is_exact,total,self,mean,min,max,\
        p50,p90,p99";
    assert_eq!(lines.next(), Some(head));
    assert_eq!(
        lines.next(),
        Some("0,9,profiled,main,image.c,30,35,2,true,356,200,178,178,178,178,178,178")
    );
    assert_eq!(
        lines.last(),
        Some("0,3,kernel,\"clip, \"\"hard\"\"\",image.c,20,25,6,true,30,30,5,4,6,5,6,6")
    );
    let tree = folder.atom_ok(&[
        "arp",
        "data.arp",
        "--csv",
        "--tree",
        "--by-thread",
        "--set",
        "1",
    ]);
    let row = "1,1,0,1,,9,,profiled,main,image.c,30,35,1,true,13,1,13,13,13";
    assert!(tree.contains(row), "{tree}");
    let json = parse(&folder.atom_ok(&["arp", "data.arp", "--json", "--by-thread"]));
    assert_eq!(
        json["threads"],
        json!([{ "id": 1, "records": 13 }, { "id": 5, "records": 13 }])
    );
    let contexts = json["contexts"].as_array().unwrap();
    assert_eq!(contexts.len(), 2 * 6);
    assert_eq!(contexts[6]["thread"], 5);
    assert_eq!(contexts[6]["values"][0]["total"], 178);
    assert_eq!(contexts[7]["parent"], 6);
    let one = parse(&folder.atom_ok(&["arp", "data.arp", "--json", "--thread", "5"]));
    assert_eq!(one["records"], 13);
    assert_eq!(section(&one, 9)["count"], 1);
}

#[test]
fn all_types_of_values_written_by_hand() {
    let folder = Folder::new();
    let types: Vec<u8> = (0..13).collect();
    let most = "127 255 32767 65535 2147483647 4294967295 9223372036854775807 \
        18446744073709551615 9223372036854775807 18446744073709551615 1.5 1e300 -2.25";
    let least = "-128 0 -32768 0 -2147483648 0 -9223372036854775808 0 -9223372036854775808 \
        0 -1.5 -1e300 2.25";
    let records = [format!("1 0 6@0: {most};"), format!("1 0 6@1: {least};")];
    let records: Vec<_> = records.iter().map(String::as_str).collect();
    folder.write("data.arp", by_hand(1, &types, &records));
    let json = parse(&folder.atom_ok(&["arp", "data.arp", "--json"]));
    let values = section(&json, 6)["values"].as_array().unwrap();
    let all = |key: &str| values.iter().map(|v| v[key].clone()).collect::<Vec<_>>();
    let maxima = parse(
        "[127,255,32767,65535,2147483647,4294967295,9223372036854775807,18446744073709551615,\
         9223372036854775807,18446744073709551615,1.5,1e300,2.25]",
    );
    assert_eq!(Value::from(all("max")), maxima);
    let totals = parse(
        "[-1,255,-1,65535,-1,4294967295,-1,18446744073709551615,-1,18446744073709551615,\
         0.0,0.0,0.0]",
    );
    assert_eq!(Value::from(all("total")), totals);
    let names: Vec<_> = json["sets"].as_array().unwrap().iter().collect();
    assert_eq!(names[0]["type"], "char");
    assert_eq!(names[12]["type"], "long double");
    let text = folder.atom_ok(&["arp", "data.arp"]);
    assert!(text.contains("set 9 (unsigned long long)"), "{text}");
    assert!(text.contains("18,446,744,073,709,551,615"), "{text}");
    assert!(text.contains("section 6"), "{text}");
    // Infinities and not-a-number are shown as such.
    folder.write(
        "nan.arp",
        by_hand(1, &[11], &["1 0 1@0: nan;", "1 0 2@0: -inf;"]),
    );
    let text = folder.atom_ok(&["arp", "nan.arp"]);
    assert!(text.contains(" nan ") && text.contains("-inf"), "{text}");
    let json = parse(&folder.atom_ok(&["arp", "nan.arp", "--json"]));
    assert_eq!(section(&json, 1)["values"][0]["total"], "nan");
}

#[test]
fn damaged_and_empty_files() {
    let folder = with(Recording::default());
    let whole = folder.read("data.arp");
    // Without the end mark all records are shown, and the loss is reported.
    folder.write("cut.arp", &whole[..whole.len() - 3]);
    let output = folder.atom(&["arp", "cut.arp"]);
    assert!(output.status.success());
    let shown = String::from_utf8_lossy(&output.stdout).replace("cut.arp", "data.arp");
    assert_eq!(shown, SECTIONS);
    let told = stderr(&output);
    assert!(
        told.contains("cut.arp at byte") && told.contains("note"),
        "{told}"
    );
    let json = parse(&folder.atom_ok(&["arp", "cut.arp", "--json"]));
    assert_eq!(json["damage"].as_array().unwrap().len(), 1);
    // The records before an invalid record are shown, and the command fails.
    folder.write("bad.arp", by_hand(1, &[4], &["1 0 1@0: 7;", "1 0 x@0: 8;"]));
    let output = folder.atom(&["arp", "bad.arp"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("All: 7"));
    assert!(stderr(&output).contains("line 5"), "{}", stderr(&output));
    // A text file that ends too early.
    let text = by_hand(1, &[4], &["1 0 1@0: 7;", "1 0 1@1: 8;", "1 0 1@2: 9;"]);
    folder.write("short.arp", &text[..text.len() - 6]);
    let output = folder.atom(&["arp", "short.arp"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("All: 15"));
    let told = stderr(&output);
    assert!(told.contains("after 2 of 3 records"), "{told}");
    folder.write("none.arp", by_hand(1, &[4], &[]));
    assert!(folder.atom_ok(&["arp", "none.arp"]).contains("No records."));
    assert_eq!(folder.atom_ok(&["arp", "none.arp", "--folded"]), "");
    folder.write("empty.arp", "");
    folder.fails(&["arp", "empty.arp"], &["empty.arp", "it is empty"]);
    folder.write("other.arp", "ELF");
    folder.fails(&["arp", "other.arp"], &["no ARP data file"]);
    folder.fails(&["arp", "missing.arp"], &["missing.arp", "No such file"]);
    folder.fails(
        &["arp", "data.arp", "--set", "7"],
        &["no set `7`", "help: there are: ticks"],
    );
    folder.fails(
        &["arp", "data.arp", "--quantiles", "50"],
        &["between 0 and 1"],
    );
}

const DIFF: &str = "\
ticks (unsigned long)
TOTAL A  TOTAL B  CHANGE      %  SELF A  SELF B  COUNT A  COUNT B  CHANGE  MEAN A  MEAN B      %  ID  SECTION   SOURCE
     60       72     +12  +20.0      60      72        6        6       0      10      12  +20.0   1  convolve  image.c:12-17
     78       90     +12  +15.4       3       3        3        3       0      26      30  +15.4   2  filter    image.c:10-15
     78       90     +12  +15.4       0       0        3        3       0       -       -      -   7  loop      image.c:40-45
    178      190     +12   +6.7     100     100        1        1       0     178     190   +6.7   9  main      image.c:30-35
1 section the same (--all shows them)
All: 178 -> 190 (+12)
";

#[test]
fn differences() {
    let folder = with(Recording::default());
    let slower = Recording {
        convolution: 12,
        ..Recording::default()
    };
    slower.write(&folder.join("slower.arp"));
    let text = folder.atom_ok(&["arp", "diff", "data.arp", "slower.arp", "--set", "0"]);
    assert_eq!(text.splitn(4, '\n').nth(3), Some(DIFF));
    let tree = folder.atom_ok(&["arp", "diff", "data.arp", "slower.arp", "--tree", "--all"]);
    assert!(tree.contains("main > loop > filter > convolve"), "{tree}");
    let same = folder.atom_ok(&["arp", "diff", "data.arp", "data.arp"]);
    assert_eq!(same.matches("No difference.").count(), 2, "{same}");
    // Sections that only one file has are distinguished by name if they have the same number.
    let renamed = Recording {
        clip: "saturate",
        ..Recording::default()
    };
    renamed.write(&folder.join("renamed.arp"));
    let text = folder.atom_ok(&["arp", "diff", "data.arp", "renamed.arp", "--set", "0"]);
    let row = |name: &str| -> Vec<&str> {
        let row = text.lines().find(|l| l.contains(name)).expect("a row");
        row.split_whitespace().collect()
    };
    assert_eq!(row("clip")[..4], ["15", "-", "-15", "gone"]);
    assert_eq!(row("saturate")[..4], ["-", "15", "+15", "new"]);
    let json = parse(&folder.atom_ok(&["arp", "diff", "data.arp", "slower.arp", "--json"]));
    let first = &json["sets"][0]["sections"][0];
    assert_eq!((&first["id"], &first["change"]), (&json!(1), &json!(12)));
    assert_eq!(first["b"]["total"], 72);
    let deepest = &json["sets"][0]["contexts"][0];
    assert_eq!(deepest["path"], json!([9, 7, 2, 1]));
    let csv = folder.atom_ok(&["arp", "diff", "data.arp", "slower.arp", "--csv"]);
    assert!(
        csv.contains("0,1,convolve,,60,72,12,60,72,6,6,10,12\n"),
        "{csv}"
    );
}

#[test]
fn merged_files() {
    let folder = with(Recording::default());
    let slower = Recording {
        convolution: 12,
        ..Recording::default()
    };
    slower.write(&folder.join("slower.arp"));
    let merge = ["arp", "merge", "data.arp", "slower.arp", "-o"];
    folder.atom_ok(&[&merge[..], &["all.arp"]].concat());
    let json = parse(&folder.atom_ok(&["arp", "all.arp", "--json"]));
    let convolve = section(&json, 1);
    assert_eq!(convolve["count"], 12);
    assert_eq!(convolve["values"][0]["total"], 60 + 72);
    assert_eq!(convolve["name"], "convolve");
    assert_eq!(json["sets"][0]["name"], "ticks");
    folder.atom_ok(&[&merge[..], &["apart.arp", "--renumber"]].concat());
    let json = parse(&folder.atom_ok(&["arp", "apart.arp", "--json"]));
    assert_eq!(json["threads"].as_array().unwrap().len(), 2);
    folder.atom_ok(&[&merge[..], &["mean.txt", "--mode", "average"]].concat());
    let profile = Profile::load(folder.join("mean.txt")).unwrap();
    assert_eq!((profile.mode(), profile.len()), (Mode::RecordAverage, 4));
    folder.fails(
        &[
            "arp", "merge", "mean.txt", "data.arp", "-o", "x.arp", "--mode", "all",
        ],
        &["record_average", "help:"],
    );
    folder.fails(
        &["arp", "merge", "data.arp", "missing.arp", "-o", "x.arp"],
        &["missing.arp"],
    );
}

#[test]
fn converted_files() {
    let folder = with(Recording::default());
    let whole = folder.atom_ok(&["arp", "data.arp", "--json", "--counters"]);
    let without_head = |text: &str| {
        let json = parse(text);
        json!([
            json["sections"],
            json["contexts"],
            json["sets"],
            json["records"]
        ])
    };
    for (name, more, format, gzip) in [
        ("a.txt", &[][..], Format::Ascii, false),
        ("a.txt.gz", &[], Format::Ascii, true),
        ("a.bin", &[], Format::Binary, false),
        ("a.bin.gz", &[], Format::Binary, true),
        ("a.arp", &[], Format::Binary, false),
        ("a.arp.gz", &[], Format::Binary, true),
        ("b.arp", &["--to", "ascii-gz"], Format::Ascii, true),
        ("b.txt", &["--to", "binary"], Format::Binary, false),
    ] {
        folder.atom_ok(&[&["arp", "convert", "data.arp", name], more].concat());
        let reader = Reader::open(folder.join(name)).unwrap();
        assert_eq!(
            (reader.format(), reader.is_gzip()),
            (format, gzip),
            "{name}"
        );
        // Conversion back to the first format.
        folder.atom_ok(&["arp", "convert", name, "back.bin"]);
        let back = folder.atom_ok(&["arp", "back.bin", "--json", "--counters"]);
        assert_eq!(without_head(&back), without_head(&whole), "{name}");
    }
    let text = String::from_utf8(folder.read("a.txt")).unwrap();
    assert!(
        text.lines().nth(3).unwrap().starts_with("1 0 9@0: 178 13"),
        "{text}"
    );
    let whole = folder.read("data.arp");
    folder.write("cut.arp", &whole[..whole.len() - 3]);
    let partial = ["arp", "convert", "cut.arp", "x.txt"];
    folder.fails(&partial, &["cut.arp", "help: --partial"]);
    folder.atom_ok(&[&partial[..], &["--partial"]].concat());
    assert!(
        Profile::load(folder.join("x.txt"))
            .unwrap()
            .damage()
            .is_none()
    );
}

#[test]
fn a_program_called_arp_can_be_instrumented() {
    let folder = Folder::with_app();
    std::fs::rename(folder.join("app"), folder.join("arp")).unwrap();
    folder.atom_ok(&["./arp", "-o", "out"]);
    let status = Command::new(folder.join("out")).output().unwrap().status;
    assert!(status.code().is_some());
}

#[test]
fn many_records_in_little_memory() {
    // A hundred thousand records for each thread; the number of contexts bounds the memory.
    let folder = Folder::new();
    let mut text = by_hand(1, &[7], &[]).replace("\n0\n", "\n1000000\n");
    for i in 0..1000 {
        text.push_str(&format!("3 0 8@{i} 7@0 1@0: 1;\n"));
        for k in 1..1000 {
            text.push_str(&format!("3 2 1@{k}: {k};\n"));
        }
    }
    folder.write("data.arp", text);
    let output = Command::new("sh")
        .current_dir(folder.path())
        .args(["-c", "ulimit -v 300000; exec \"$0\" arp data.arp --csv"])
        .arg(env!("CARGO_BIN_EXE_atom"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let csv = String::from_utf8(output.stdout).unwrap();
    let total = 1000 * (1 + 999 * 1000 / 2);
    let row = format!(",1000000,true,{total},{total},");
    assert!(csv.contains(&row), "{csv}");
}
