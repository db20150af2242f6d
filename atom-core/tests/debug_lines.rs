//! Source lines agree with readelf's decoding, in every form that debug
//! information comes in, and damaged debug information does no harm.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use atom_core::image::Image;
use atom_core::image::debug::DebugLines;
use atom_core::image::separate;

const SOURCE: &str = r#"
#include "part.h"
int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 0; i < argc + 4; i++) {
        sum += part(i);
        if (sum > 100)
            sum -= 3;
    }
    return sum;
}
"#;

const PART: &str = r#"
static int part(int n) {
    return n > 2 ? n * 3
                 : n - 1;
}
"#;

fn run(folder: &Path, program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .current_dir(folder)
        .args(args)
        .output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {text}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A folder with the program `app`, compiled with these flags.
fn compiled(compiler: &str, flags: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    std::fs::create_dir(path.join("inc")).expect("a folder");
    // Enough lines for compression to pay.
    let more: String = (0..40)
        .map(|i| format!("int f{i}(int n) {{\n  n += {i};\n  return n * n;\n}}\n"))
        .collect();
    std::fs::write(path.join("app.c"), SOURCE.to_string() + &more).expect("a file");
    std::fs::write(path.join("inc/part.h"), PART).expect("a file");
    let args = [flags, &["-Iinc", "app.c", "-o", "app"]].concat();
    run(path, compiler, &args);
    folder
}

fn text_of(image: &Image) -> std::ops::Range<u64> {
    let text = image.section(".text").expect("a text section");
    text.address..text.address + text.size
}

/// Every row of the line table, as readelf decodes it, is found.
fn agrees_with_readelf(folder: &Path, debug_file: &str) {
    let image = Image::open(&folder.join("app")).expect("a program");
    let lines = DebugLines::new(&image);
    let decoded = run(
        folder,
        "readelf",
        &["-W", "--debug-dump=decodedline", debug_file],
    );
    // Of several rows for one address the last one counts; `-` ends a sequence.
    let mut rows = BTreeMap::new();
    for row in decoded.lines() {
        let fields: Vec<_> = row.split_whitespace().collect();
        let [file, line, address, ..] = fields[..] else {
            continue;
        };
        let Some(address) = address.strip_prefix("0x") else {
            continue;
        };
        let address = u64::from_str_radix(address, 16).expect("an address");
        if line != "-" || !rows.contains_key(&address) {
            rows.insert(address, (file.to_string(), line.parse().unwrap_or(0)));
        }
    }
    assert!(rows.len() > 10, "{decoded}");
    let addresses: Vec<_> = rows.keys().copied().collect();
    for (i, (address, (file, line))) in rows.iter().enumerate() {
        let next = addresses.get(i + 1).map_or(address + 1, |a| *a);
        for inside in [*address, next - 1] {
            let found = lines.line_of(inside);
            if *line == 0 {
                assert_eq!(found, None, "{inside:#x}");
            } else {
                let (our_file, our_line) = found.unwrap_or_else(|| panic!("{inside:#x}"));
                assert_eq!(our_line, *line, "{inside:#x}");
                assert!(
                    Path::new(our_file).ends_with(file),
                    "{inside:#x}: {our_file}, {file}"
                );
            }
        }
    }
    // The header's lines come with its folder.
    let part = image.symbols.iter().find(|s| s.name == "part");
    let found = part.and_then(|p| lines.line_of(p.address));
    assert!(part.is_none() || found.is_some_and(|f| f.0.ends_with("inc/part.h") && f.1 == 2));
}

#[test]
fn every_version_and_compiler() {
    for compiler in ["gcc", "clang"] {
        for version in ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
            for level in ["-O0", "-O2"] {
                let folder = compiled(compiler, &[version, level]);
                agrees_with_readelf(folder.path(), "app");
            }
        }
    }
}

#[test]
fn compressed() {
    for kind in ["zlib", "zlib-gnu", "zstd"] {
        let folder = compiled("gcc", &["-g"]);
        let plain = folder.path().join("plain");
        std::fs::copy(folder.path().join("app"), &plain).expect("a copy");
        let flag = format!("--compress-debug-sections={kind}");
        run(folder.path(), "objcopy", &[&flag, "app"]);
        let sizes =
            [&plain, &folder.path().join("app")].map(|p| p.metadata().expect("a file").len());
        assert!(sizes[1] < sizes[0], "{kind}");
        agrees_with_readelf(folder.path(), "plain");
    }
}

#[test]
fn separate_file() {
    // Found by its name, checked by the build id or by the checksum.
    for (id, place) in [("-Wl,--build-id", ".debug"), ("-Wl,--build-id=none", ".")] {
        let folder = compiled("gcc", &["-g", id]);
        let path = folder.path();
        std::fs::create_dir_all(path.join(place)).expect("a folder");
        let file = format!("{place}/app.debug");
        run(path, "objcopy", &["--only-keep-debug", "app", &file]);
        let link = format!("--add-gnu-debuglink={file}");
        run(path, "objcopy", &["--strip-all", &link, "app"]);
        agrees_with_readelf(path, &file);
        // That of another program is not taken.
        let other = compiled("gcc", &["-g", "-O2", id]);
        let contents = std::fs::read(other.path().join("app")).expect("a file");
        std::fs::write(path.join(&file), contents).expect("a file");
        let image = Image::open(&path.join("app")).expect("a program");
        assert!(DebugLines::new(&image).is_empty());
    }
}

/// Names of the procedures of the program `app` that its symbols give.
fn names(folder: &Path) -> Vec<String> {
    let image = Image::open(&folder.join("app")).expect("a program");
    let functions = image.symbols.iter().filter(|s| s.is_func && s.address != 0);
    functions.map(|s| s.name.clone()).collect()
}

#[test]
fn names_of_a_separate_file() {
    let folder = compiled("gcc", &["-g", "-Wl,--build-id"]);
    let path = folder.path();
    let own = names(path);
    assert!(own.iter().any(|name| name == "f17"));
    run(path, "objcopy", &["--only-keep-debug", "app", "app.debug"]);
    run(path, "strip", &["app"]);
    assert!(names(path).is_empty());
    let file = path.join("app");
    let id = separate::missing(&file).expect("a build id");
    // As debuginfod's client keeps it.
    let kept = path.join("cache").join(&id);
    std::fs::create_dir_all(&kept).expect("a folder");
    std::fs::copy(path.join("app.debug"), kept.join("debuginfo")).expect("a copy");
    // SAFETY: variables are read only by functions of std, which has a lock for them.
    unsafe { std::env::set_var("DEBUGINFOD_CACHE_PATH", path.join("cache")) };
    assert_eq!(names(path), own);
    assert_eq!(separate::missing(&file), None);
    assert!(separate::candidates(&file).contains(&kept.join("debuginfo")));
    // SAFETY: as above.
    unsafe { std::env::remove_var("DEBUGINFOD_CACHE_PATH") };
    run(path, "objcopy", &["--add-gnu-debuglink=app.debug", "app"]);
    assert_eq!(names(path), own);
    // A program of the same build id whose code was moved has other addresses.
    let text = "--change-section-address=.text+0x100";
    run(path, "objcopy", &[text, "app.debug", "moved.debug"]);
    std::fs::rename(path.join("moved.debug"), path.join("app.debug")).expect("a file");
    assert!(names(path).is_empty());
}

#[test]
fn names_inside_the_program() {
    let folder = compiled("gcc", &["-g"]);
    let path = folder.path();
    let own = names(path);
    // As Fedora's find-debuginfo does it, but with all symbols.
    let mini = ["--strip-debug", "--remove-section=.comment", "app", "mini"];
    run(path, "objcopy", &mini);
    run(path, "xz", &["mini"]);
    run(path, "strip", &["app"]);
    assert!(names(path).is_empty());
    let section = "--add-section=.gnu_debugdata=mini.xz";
    run(path, "objcopy", &[section, "app"]);
    assert_eq!(names(path), own);
    // Damage is no symbol table.
    std::fs::write(path.join("mini.xz"), b"\xfd7zXZ\0damaged").expect("a file");
    run(path, "strip", &["-R", ".gnu_debugdata", "app"]);
    run(path, "objcopy", &[section, "app"]);
    assert!(names(path).is_empty());
}

#[test]
fn no_debug_information() {
    let folder = compiled("gcc", &["-s"]);
    let image = Image::open(&folder.path().join("app")).expect("a program");
    let lines = DebugLines::new(&image);
    assert!(lines.is_empty());
    for address in [image.entry.expect("a program"), 0, u64::MAX] {
        assert_eq!(lines.line_of(address), None);
    }
}

#[test]
fn damage_does_no_harm() {
    let mut seed = 7u64;
    let mut random = |below: usize| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    for flags in [
        ["-g", "-gz=none"],
        ["-g", "-gz=zlib"],
        ["-gdwarf-4", "-gz=none"],
    ] {
        let folder = compiled("gcc", &flags);
        let path = folder.path().join("app");
        let whole = std::fs::read(&path).expect("a file");
        let ranges: Vec<_> = {
            let image = Image::open(&path).expect("a program");
            let sections = image
                .sections
                .iter()
                .filter(|s| s.name.starts_with(".debug_line"));
            sections
                .map(|s| s.offset as usize..(s.offset + s.size) as usize)
                .collect()
        };
        for _ in 0..300 {
            let mut bytes = whole.clone();
            for _ in 0..3 {
                let range = &ranges[random(ranges.len())];
                let length = 1 + random(8.min(range.len()));
                let at = range.start + random(range.len() - length + 1);
                let value = [0, 0xff, random(256) as u8][random(3)];
                bytes[at..at + length].fill(value);
            }
            std::fs::write(&path, bytes).expect("a file");
            let image = Image::open(&path).expect("a program");
            let lines = DebugLines::new(&image);
            for address in text_of(&image) {
                let _ = lines.line_of(address);
            }
        }
    }
}
