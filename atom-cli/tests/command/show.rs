//! Output of `atom show`.

use std::process::{Command, Stdio};

use crate::common::Folder;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn table_of_procedures() {
    let folder = Folder::with_app();
    let text = folder.atom_ok(&["show", "app"]);
    let first = text.lines().next().unwrap();
    let columns: Vec<_> = first.split_whitespace().collect();
    assert_eq!(
        columns,
        ["ADDRESS", "SIZE", "BLOCKS", "INSTS", "STATUS", "NAME"]
    );
    let row = text
        .lines()
        .find(|l| l.ends_with(" twice"))
        .expect("a row for the procedure");
    let fields: Vec<_> = row.split_whitespace().collect();
    assert!(fields[0].starts_with("0x") && fields[4] == "full", "{row}");
    let last = text.lines().last().unwrap();
    let rows = text.lines().count() - 2;
    assert!(last.starts_with(&format!("{rows} procedures: ")), "{last}");
    assert!(text.lines().any(|l| l.ends_with(" printf@plt")), "{text}");
}

#[test]
fn json_agrees_with_the_symbol_table() {
    let folder = Folder::with_app();
    let shown = json(&folder.atom_ok(&["show", "app", "--json"]));
    let nm = Command::new("nm")
        .arg("-S")
        .arg(folder.join("app"))
        .output()
        .unwrap();
    let nm = String::from_utf8(nm.stdout).unwrap();
    for name in ["main", "twice", "_start"] {
        let fields: Vec<_> = nm
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>())
            .find(|f| f.last() == Some(&name))
            .unwrap();
        let [address, size] = [0, 1].map(|i| u64::from_str_radix(fields[i], 16).unwrap());
        let procs = shown["procedures"].as_array().unwrap();
        let proc = procs.iter().find(|p| p["name"] == name).unwrap();
        assert_eq!(proc["address"], format!("{address:#x}"));
        assert_eq!(proc["size"], size);
        assert_eq!(proc["status"], "full");
    }
    let totals = &shown["totals"];
    let sum: u64 = ["full", "partial", "opaque"]
        .iter()
        .map(|s| totals[s].as_u64().unwrap())
        .sum();
    assert_eq!(sum as usize, shown["procedures"].as_array().unwrap().len());
}

#[test]
fn one_procedure() {
    let folder = Folder::new();
    folder.compile("app", crate::common::APP, &["-O1", "-g"]);
    let shown = json(&folder.atom_ok(&["show", "app", "--proc", "twice", "--json"]));
    let proc = &shown[0];
    let mut next = u64::from_str_radix(&proc["address"].as_str().unwrap()[2..], 16).unwrap();
    let blocks = proc["blocks"].as_array().unwrap();
    assert_eq!(proc["block_count"].as_u64().unwrap() as usize, blocks.len());
    // The instructions lie one after the other, and their bytes are the bytes of the file.
    let mut last = String::new();
    for inst in blocks
        .iter()
        .flat_map(|b| b["instructions"].as_array().unwrap())
    {
        assert_eq!(inst["address"], format!("{next:#x}"));
        next += inst["bytes"].as_str().unwrap().len() as u64 / 2;
        assert!(inst["file"].as_str().unwrap().ends_with("app.c"), "{inst}");
        assert_eq!(inst["line"], 3);
        last = inst["text"].as_str().unwrap().to_string();
    }
    assert_eq!(last, "ret");
    // An address inside, with or without 0x, names the same procedure.
    let by_name = folder.atom_ok(&["show", "app", "--proc", "twice"]);
    for inside in [format!("{:#x}", next - 1), format!("{:x}", next - 1)] {
        assert_eq!(folder.atom_ok(&["show", "app", "--proc", &inside]), by_name);
    }
    assert!(
        by_name.contains("app.c:3\n") && by_name.contains("-> unknown"),
        "{by_name}"
    );
    let main = folder.atom_ok(&["show", "app", "--proc", "main"]);
    assert!(
        main.contains("; twice\n") && main.contains("; printf@plt\n"),
        "{main}"
    );
}

#[test]
fn frames_and_loops() {
    const SOURCE: &str = "volatile int sink;
        void use(void *);
        void nest(int n) {
            char space[100];
            use(space);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++) sink++;
        }
        void use(void *p) { *(volatile char *)p = 1; }
        int main(int argc, char **argv) { nest(argc); return 0; }";
    let folder = Folder::new();
    let flags = ["-O0", "-fno-stack-protector", "-fcf-protection=none"];
    folder.compile("loops", SOURCE, &flags);
    let shown = json(&folder.atom_ok(&["show", "loops", "--proc", "nest", "--json"]));
    let (frame, loops) = (&shown[0]["frame"], &shown[0]["loops"]);
    assert_eq!(
        (&frame["fixed"], &frame["register"]),
        (&true.into(), &"rbp".into())
    );
    // The frame holds the return address, rbp and at least the array.
    assert!(frame["size"].as_u64().unwrap() >= 116, "{frame}");
    assert_eq!(frame["saved"][0]["register"], "rbp");
    assert_eq!(frame["saved"][0]["offset"], -16);
    assert_eq!(loops.as_array().unwrap().len(), 2);
    assert_eq!(
        (&loops[0]["depth"], &loops[1]["depth"]),
        (&1.into(), &2.into())
    );
    assert_eq!(
        (&loops[0]["parent"], &loops[1]["parent"]),
        (&().into(), &0.into())
    );
    let text = folder.atom_ok(&["show", "loops", "--proc", "nest"]);
    for part in [
        "frame: ",
        "saved rbp at -16",
        "header of loop 0, depth 1",
        "header of loop 1, depth 2",
        "in loop 1",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn unknown_procedures() {
    let folder = Folder::with_app();
    folder.fails(
        &["show", "app", "--proc", "twic"],
        &["no procedure of this name", "twice"],
    );
    folder.fails(
        &["show", "app", "--proc", "zzz"],
        &["no procedure of this name", "help:"],
    );
    folder.fails(
        &["show", "app", "--proc", "0x1"],
        &["no procedure contains this address"],
    );
}

#[test]
fn cpp_names_are_demangled() {
    let folder = Folder::new();
    let source = "namespace shop { int price(int n) { return n * 3; } }\n\
                  int main(int c, char **) { return shop::price(c); }\n";
    folder.compile("app", source, &["-x", "c++", "-O0"]);
    let text = folder.atom_ok(&["show", "app"]);
    assert!(
        text.lines().any(|l| l.ends_with(" shop::price(int)")),
        "{text}"
    );
    let by_name = folder.atom_ok(&["show", "app", "--proc", "shop::price(int)"]);
    assert_eq!(
        folder.atom_ok(&["show", "app", "--proc", "_ZN4shop5priceEi"]),
        by_name
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let folder = Folder::with_app();
    let mut atom = Command::new(env!("CARGO_BIN_EXE_atom"))
        .args(["show", "app", "--json"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(atom.stdout.take());
    let output = atom.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(crate::common::stderr(&output), "");
}
