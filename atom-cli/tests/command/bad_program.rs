//! Files that are no programs, or programs that cannot be instrumented: each is
//! refused with the reason, and nothing is left behind.

use crate::common::{APP, Folder};

/// Offsets in the ELF header.
const CLASS: usize = 4;
const DATA: usize = 5;
const TYPE: usize = 16;
const MACHINE: usize = 18;

/// A folder with a changed program named `bad`.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Folder {
    let folder = Folder::with_app();
    let mut bytes = folder.read("app");
    change(&mut bytes);
    folder.write("bad", bytes);
    folder
}

/// Checks that both commands that read a program refuse it.
fn refused(folder: &Folder, needles: &[&str]) {
    folder.fails(&["bad"], needles);
    folder.fails(&["bad", "-o", "out", "--report", "report.json"], needles);
    folder.fails(&["show", "bad"], needles);
}

#[test]
fn missing() {
    let folder = Folder::new();
    refused(&folder, &["reading the program bad", "no such file"]);
    folder.fails(&["sh"], &["no such file", "help:", "/sh?"]);
}

/// `atom run` says what `atom APP` says.
#[test]
fn run_names_the_same_reason() {
    let executable = |folder: &Folder| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.join("bad"), mode).unwrap();
    };
    let refused = |folder: &Folder, needle: &str| {
        executable(folder);
        folder.fails(&["run", "icount", "--", "./bad"], &[needle, "help:"]);
    };
    refused(&changed(Vec::clear), "the file is empty");
    refused(
        &changed(|bytes| bytes.truncate(3000)),
        "past the end of the file",
    );
    refused(&changed(|bytes| bytes[CLASS] = 1), "32-bit ELF file");
}

#[test]
fn mistyped_commands() {
    let folder = Folder::new();
    let needles = [
        "there is no program rport",
        "help: did you mean the command `atom report`?",
    ];
    folder.fails(&["rport", "x"], &needles);
    folder.fails(&["rport"], &needles);
    folder.fails(&["icount"], &["help: ", "`atom run icount -- PROGRAM`"]);
}

#[test]
fn directory() {
    let folder = Folder::new();
    std::fs::create_dir(folder.join("bad")).unwrap();
    refused(&folder, &["directory", "help:"]);
}

#[test]
fn device() {
    Folder::new().fails(&["/dev/null"], &["/dev/null", "not a regular file"]);
}

#[test]
fn unreadable() {
    let folder = Folder::with_app();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    std::fs::set_permissions(folder.join("app"), mode).unwrap();
    // Root may read the file all the same, so there is nothing to test then.
    if std::fs::read(folder.join("app")).is_err() {
        folder.fails(&["app"], &["permission denied"]);
    }
}

#[test]
fn not_elf() {
    let folder = Folder::new();
    folder.write(
        "bad",
        "just some text, longer than any header that could be read from it",
    );
    refused(&folder, &["not an ELF file"]);
    folder.write("bad", "#!/usr/bin/python3 -u\nprint(1)\n");
    refused(&folder, &["script", "/usr/bin/python3"]);
    folder.write("bad", "");
    refused(&folder, &["empty"]);
}

#[test]
fn other_machines() {
    refused(&changed(|b| b[CLASS] = 1), &["32-bit"]);
    refused(&changed(|b| b[DATA] = 2), &["little-endian"]);
    refused(&changed(|b| b[MACHINE] = 40), &["Arm"]);
    refused(&changed(|b| b[MACHINE] = 183), &["Arm", "x86-64"]);
    refused(&changed(|b| b[MACHINE] = 243), &["RISC-V"]);
}

#[test]
fn program_headers_within_the_elf_header() {
    refused(&changed(|b| b[32] = 8), &["overlap the ELF header"]);
}

#[test]
fn other_kinds_of_elf() {
    refused(&changed(|b| b[TYPE] = 4), &["core file"]);
    let folder = Folder::new();
    folder.compile("bad", APP, &["-c"]);
    refused(&folder, &["object file", "link it"]);
    folder.compile("bad", APP, &["-shared", "-fPIC"]);
    // A library may be instrumented alone; the C library and the loader may not.
    assert!(folder.atom(&["bad"]).status.success());
    assert!(folder.atom(&["show", "bad"]).status.success());
    for (file, reason, advice) in [
        (
            "/lib/x86_64-linux-gnu/libc.so.6",
            "it is the C library",
            "--libs",
        ),
        (
            "/lib64/ld-linux-x86-64.so.2",
            "program interpreter",
            "name the program that it is to load",
        ),
    ] {
        folder.fails(&[file, "-o", "out"], &[reason, advice]);
    }
}

#[test]
fn truncated() {
    refused(&changed(|b| b.truncate(3)), &["not an ELF file"]);
    refused(&changed(|b| b.truncate(40)), &["cut off"]);
    refused(&changed(|b| b.truncate(100)), &["cut off"]);
    let half = |b: &mut Vec<u8>| b.truncate(b.len() / 2);
    refused(&changed(half), &["help:", "truncated"]);
}

/// A file that is cut off or damaged anywhere leads to an error or a result, never to a crash.
#[test]
fn damage_anywhere() {
    let folder = Folder::with_app();
    let app = folder.read("app");
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: usize| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    for round in 0..200 {
        let mut bytes = app.clone();
        if round % 4 == 0 {
            bytes.truncate(random(app.len()));
        } else {
            // Damage to headers, which are at the start and the end, matters most.
            let header = if round % 2 == 0 {
                0..0x400
            } else {
                app.len() - 0x800..app.len()
            };
            for _ in 0..4 {
                let at = header.start + random(header.len());
                bytes[at] = random(256) as u8;
            }
        }
        folder.write("bad", &bytes);
        let output = folder.atom(&["show", "bad"]);
        let text = crate::common::stderr(&output);
        assert!(
            matches!(output.status.code(), Some(0 | 1)),
            "round {round}: {text}"
        );
        assert!(!text.contains("internal error"), "round {round}: {text}");
    }
}
