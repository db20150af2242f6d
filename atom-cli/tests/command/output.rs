//! Files that the command writes, and its messages about them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::{Folder, stderr};
use object::{Object, ObjectSection, ObjectSegment};
use serde_json::Value;

fn run(folder: &Folder, program: &str, args: &[&str]) -> Output {
    Command::new(folder.join(program))
        .args(args)
        .output()
        .expect("the program runs")
}

#[test]
fn empty_rewrite_behaves_the_same() {
    let folder = Folder::with_app();
    let output = folder.atom(&["app"]);
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    assert!(output.stdout.is_empty());
    // One line, and the default name in the working directory.
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in [
        "app: ",
        " procedures (",
        " full",
        " blocks, 0 calls -> app.atom in ",
        " s\n",
    ] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
    for args in [&[][..], &["a", "b", "c"]] {
        let [before, after] = ["app", "app.atom"].map(|p| run(&folder, p, args));
        assert_eq!(before.stdout, after.stdout);
        assert_eq!(before.status.code(), after.status.code());
        assert!(!after.stdout.is_empty());
    }
}

/// A program whose code is far above its headers, so the new code cannot have its usual distance: from
/// there address 0, to which undefined weak symbols resolve, would be out of reach.
#[test]
fn a_static_program_in_two_distant_parts() {
    let folder = Folder::new();
    let source = "#include <stdio.h>\nextern int weak(void) __attribute__((weak));\n\
        int main(int n, char **v) { (void)v; printf(\"%d\\n\", n); return weak ? weak() : n; }";
    folder.compile(
        "app",
        source,
        &["-O1", "-static", "-no-pie", "-Wl,-Ttext=0x20000000"],
    );
    folder.atom_ok(&["app", "--move-all", "--check", "-o", "out"]);
    let [before, after] = ["app", "out"].map(|p| run(&folder, p, &["a"]));
    assert_eq!(before.stdout, b"2\n");
    assert_eq!(before.stdout, after.stdout);
    assert_eq!(before.status.code(), after.status.code());
}

/// The contents of a program's section `.text`.
fn text_of(folder: &Folder, program: &str) -> Vec<u8> {
    let bytes = folder.read(program);
    let file = object::File::parse(&bytes[..]).expect("an ELF file");
    let section = file.section_by_name(".text").expect("a text section");
    section.data().expect("its contents").to_vec()
}

#[test]
fn only_what_gets_calls_moves() {
    let folder = Folder::with_app();
    let moved = |name: &str| -> u64 {
        let report: Value = serde_json::from_slice(&folder.read(name)).expect("JSON");
        report["procedures"]["moved"].as_u64().expect("a number")
    };
    folder.atom_ok(&["app", "-o", "none", "--report", "none.json"]);
    assert_eq!(text_of(&folder, "app"), text_of(&folder, "none"));
    assert_eq!(moved("none.json"), 0);
    folder.atom_ok(&["app", "--move-all", "-o", "all", "--report", "all.json"]);
    assert_ne!(text_of(&folder, "app"), text_of(&folder, "all"));
    assert!(moved("all.json") > 5);
    let bytes = folder.read("all");
    let file = object::File::parse(&bytes[..]).expect("an ELF file");
    assert!(
        file.segments()
            .any(|s| s.address() > 1 << 30 && s.size() > 100)
    );
}

#[test]
fn strict_behaves_the_same() {
    let folder = Folder::with_app();
    folder.atom_ok(&["app", "--strict", "-o", "out"]);
    assert_eq!(
        run(&folder, "app", &["x"]).stdout,
        run(&folder, "out", &["x"]).stdout
    );
}

#[test]
fn verbose_tells_each_step() {
    let folder = Folder::with_app();
    let text = stderr(&folder.atom(&["app", "-v"]));
    let steps: Vec<_> = text
        .lines()
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    let wanted = [
        "image", "unwind", "cfg", "layout", "rewrite", "emit", "write", "app:",
    ];
    assert_eq!(steps, wanted, "{text}");
}

#[test]
fn report_says_what_was_done() {
    let folder = Folder::with_app();
    folder.atom_ok(&["app", "-o", "out", "--report", "report.json"]);
    let report: Value = serde_json::from_slice(&folder.read("report.json")).expect("JSON");
    let shown: Value = serde_json::from_str(&folder.atom_ok(&["show", "app", "--json"])).unwrap();
    let procedures = &report["procedures"];
    for status in ["full", "partial", "opaque"] {
        assert_eq!(procedures[status], shown["totals"][status]);
    }
    let names = |list: &Value| {
        let list = list.as_array().expect("a list");
        list.iter()
            .map(|p| p["name"].as_str().expect("a name").to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&procedures["list"]), names(&shown["procedures"]));
    assert!(names(&procedures["list"]).contains(&"twice".to_string()));
    assert_eq!(report["blocks"], shown["blocks"]);
    assert_eq!(report["instructions"], shown["instructions"]);
    assert_eq!(report["calls"]["added"], 0);
    assert_eq!(report["program"]["bytes"], folder.read("app").len());
    assert_eq!(report["output"]["bytes"], folder.read("out").len());
    for size in ["in", "out"] {
        assert!(report["text_bytes"][size].as_u64().expect("a size") > 100);
    }
    let steps = report["steps"].as_array().expect("steps");
    let seconds: f64 = steps
        .iter()
        .map(|s| s["seconds"].as_f64().expect("seconds"))
        .sum();
    assert!(seconds > 0.0 && seconds <= report["seconds"].as_f64().expect("seconds"));
    assert!(report["peak_memory_bytes"].as_u64().expect("bytes") > 1 << 20);
}

#[test]
fn mode_bits() {
    let folder = Folder::with_app();
    let mode = |name: &str| std::fs::metadata(folder.join(name)).unwrap().mode() & 0o7777;
    let set = |mode| {
        let permissions = PermissionsExt::from_mode(mode);
        std::fs::set_permissions(folder.join("app"), permissions).unwrap();
    };
    set(0o751);
    folder.atom_ok(&["app", "-o", "out"]);
    assert_eq!(mode("out"), 0o751);
    set(0o6755);
    let text = stderr(&folder.atom(&["app", "-o", "out"]));
    assert_eq!(mode("out"), 0o755);
    assert!(
        text.contains("note: ") && text.contains("set-user-ID"),
        "{text}"
    );
}

#[test]
fn capabilities() {
    let folder = Folder::with_app();
    let path = std::ffi::CString::new(folder.join("app").to_str().unwrap()).unwrap();
    // Version 2 of the attribute: permitted and inheritable capabilities, twice. The
    // capability is CAP_NET_BIND_SERVICE (10).
    let mut value = [0u8; 20];
    value[..4].copy_from_slice(&0x0200_0000u32.to_le_bytes());
    value[5] = 1 << (10 - 8);
    // SAFETY: the pointers lead to two strings and twenty bytes, which are only read.
    let set = unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    let text = stderr(&folder.atom(&["app", "-o", "out"]));
    // Only root may set capabilities.
    assert_eq!(text.contains("file capabilities"), set == 0, "{text}");
}

#[test]
fn output_is_the_program() {
    let folder = Folder::with_app();
    std::os::unix::fs::symlink("app", folder.join("link")).unwrap();
    std::fs::hard_link(folder.join("app"), folder.join("twin")).unwrap();
    for out in ["app", "./app", "link", "twin"] {
        folder.fails(&["app", "-o", out], &["same file as the program", "help:"]);
    }
    folder.fails(&["link", "-o", "twin"], &["same file as the program"]);
    folder.fails(
        &["app", "-o", "out", "--report", "twin"],
        &["same file as the program"],
    );
    folder.fails(
        &["app", "-o", "out", "--report", "out"],
        &["instrumented program too"],
    );
}

#[test]
fn output_cannot_be_written() {
    let folder = Folder::with_app();
    std::fs::create_dir(folder.join("folder")).unwrap();
    folder.fails(
        &["app", "-o", "folder"],
        &["writing folder", "it is a directory"],
    );
    folder.fails(
        &["app", "-o", "none/out"],
        &["writing none/out", "no directory none"],
    );
    folder.fails(&["app", "-o", "app/out"], &["writing app/out", "directory"]);
    folder.fails(
        &["app", "-o", "/proc/atom-out"],
        &["writing /proc/atom-out"],
    );
    folder.fails(
        &["app", "-o", "/dev/full"],
        &["writing /dev/full", "no space"],
    );
    // A report that cannot be written leaves no output either.
    folder.fails(
        &["app", "-o", "out", "--report", "/dev/full"],
        &["writing /dev/full"],
    );
    folder.fails(
        &["app", "-o", "out", "--report", "none/r"],
        &["no directory none"],
    );
    let long = "x".repeat(300);
    folder.fails(&["app", "-o", &long], &["writing xxx"]);
}

#[test]
fn a_report_that_cannot_be_made_is_told_before_the_run() {
    let folder = Folder::with_app();
    let run = |file: &str| {
        let words = ["run", "icount", "--output", file, "--", "./app"];
        folder.command(&words).output().unwrap()
    };
    let output = run("none/icount.out");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("none/icount.out: no directory none"),
        "{said}"
    );
    assert!(
        output.stdout.is_empty() && !said.contains("report: "),
        "{said}"
    );
    // What is known at the end only: the report is cut, and is not named.
    let output = run("/dev/full");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("cannot write /dev/full: "), "{said}");
    assert!(
        !output.stdout.is_empty() && !said.contains("report: "),
        "{said}"
    );
}

#[test]
fn an_old_output_is_replaced_whole() {
    let folder = Folder::with_app();
    folder.write("out", vec![7; 1 << 20]);
    folder.atom_ok(&["app", "-o", "out"]);
    assert_eq!(
        run(&folder, "out", &[]).stdout,
        run(&folder, "app", &[]).stdout
    );
    // An output in use is replaced, and a failure leaves the old output.
    let before = folder.read("out");
    folder.fails(&["none", "-o", "out"], &["no such file"]);
    assert!(before == folder.read("out"));
}

/// A signal that arrives when the output is written but not in place yet: the command
/// leaves nothing behind. It waits at that point for a reader of its report.
#[test]
fn stopped_by_a_signal() {
    for (signal, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
        let folder = Folder::with_app();
        let made = Command::new("mkfifo").arg(folder.join("report")).status();
        assert!(made.expect("mkfifo runs").success());
        let entries = || {
            let entries = std::fs::read_dir(folder.path()).expect("the folder");
            let mut names: Vec<_> = entries.map(|e| e.expect("an entry").file_name()).collect();
            names.sort();
            names
        };
        let mut atom = Command::new(env!("CARGO_BIN_EXE_atom"))
            .current_dir(folder.path())
            .args(["app", "-o", "out", "--report", "report"])
            .spawn()
            .expect("the command runs");
        let deadline = Instant::now() + Duration::from_secs(30);
        while entries().len() < 3 {
            assert!(Instant::now() < deadline, "no temporary file appeared");
            std::thread::sleep(Duration::from_millis(5));
        }
        let killed = Command::new("kill")
            .args([signal, &atom.id().to_string()])
            .status();
        assert!(killed.expect("kill runs").success());
        let status = atom.wait().expect("the command ends");
        assert_eq!(status.signal(), Some(number));
        assert_eq!(entries(), ["app", "report"]);
    }
}

/// A program of 120 bytes whose code is in the ELF header. The code stays there, and runs.
#[test]
fn code_in_the_header() {
    let folder = Folder::new();
    let mut file = vec![0u8; 64 + 56];
    file[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
    // mov dil, 42; mov al, 60; syscall
    file[8..15].copy_from_slice(&[0x40, 0xb7, 42, 0xb0, 60, 0x0f, 0x05]);
    let size = file.len() as u64;
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &[2, 0, 62, 0, 1, 0, 0, 0]); // ET_EXEC, x86-64
    put(24, &0x40_0008u64.to_le_bytes()); // e_entry
    put(32, &64u64.to_le_bytes()); // e_phoff
    put(52, &[64, 0, 56, 0, 1, 0]);
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]); // PT_LOAD, R E
    put(80, &0x40_0000u64.to_le_bytes());
    put(96, &size.to_le_bytes());
    put(104, &size.to_le_bytes());
    put(112, &4096u64.to_le_bytes());
    folder.write("tiny", &file);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.join("tiny"), mode).unwrap();
    assert_eq!(run(&folder, "tiny", &[]).status.code(), Some(42));
    folder.atom_ok(&["tiny", "--move-all", "--check", "-o", "out"]);
    assert_eq!(run(&folder, "out", &[]).status.code(), Some(42));
    assert!(
        folder
            .atom_ok(&["show", "tiny"])
            .contains("headers of the file")
    );
}
