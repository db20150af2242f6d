//! Debugging with gdb: the instrument routine under the command itself, analysis
//! routines and the program's own code in its output.

use std::process::{Command, Output, Stdio};

use crate::common::{Folder, tool};

/// Standard output and standard error of a run.
fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn gdb_stops_in_the_instrument_routine() {
    let folder = Folder::with_app();
    let hello = tool("hello_tool");
    for option in ["-dbx", "--gdb"] {
        folder.write("commands", "bt 3\ncontinue\nquit\n");
        let commands = std::fs::File::open(folder.join("commands")).expect("the commands");
        let output = Command::new(env!("CARGO_BIN_EXE_atom"))
            .current_dir(folder.path())
            .args(["app", &hello, option, "-o", option.trim_start_matches('-')])
            .env("HOME", folder.path())
            .stdin(Stdio::from(commands))
            .output()
            .expect("the command runs");
        let text = text(&output);
        let stop = text
            .find("hit Breakpoint 1")
            .unwrap_or_else(|| panic!("no stop: {text}"));
        assert!(text[stop..].contains("instrument ("), "{text}");
        assert!(text[stop..].contains("hello-tool/src/lib.rs"), "{text}");
        // The program continues to its end.
        assert!(
            folder.join(option.trim_start_matches('-')).exists(),
            "{text}"
        );
    }
    folder.fails(&["app", "--gdb"], &["a tool is to be debugged but no tool"]);
    let no_tool = env!("CARGO_BIN_EXE_atom");
    folder.fails(
        &["app", no_tool, "--gdb", "-o", "x"],
        &["does not tell where its instrument routine is"],
    );
}

/// Runs gdb with commands on a program of the folder.
fn gdb(folder: &Folder, program: &str, commands: &[&str]) -> String {
    let mut gdb = Command::new("gdb");
    gdb.current_dir(folder.path())
        .args(["-q", "-nx", "-batch"])
        .env("HOME", folder.path())
        .env_remove("DEBUGINFOD_URLS");
    for command in commands {
        gdb.args(["-ex", command]);
    }
    text(&gdb.arg(program).output().expect("gdb runs"))
}

/// Compiles the sources in this folder, where gdb finds them.
fn compile(folder: &Folder, compiler: &str, name: &str, source: &str, flags: &[&str]) -> bool {
    let file = format!("{name}.{}", if compiler == "g++" { "cc" } else { "c" });
    folder.write(&file, source);
    let output = Command::new(compiler)
        .current_dir(folder.path())
        .args(flags)
        .args([&file, "-o", name])
        .output();
    output.is_ok_and(|o| o.status.success())
}

const PROGRAM: &str = r#"#include <stdio.h>
__attribute__((noinline)) int leaf(int n) {
    int k = n * 3;
    if (k > 5) k -= 2;
    return k;
}
__attribute__((noinline)) int middle(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += leaf(i);
    return sum;
}
int (*volatile pointer)(int) = middle;
int main(int argc, char **argv) {
    int r = pointer(argc + 3);
    printf("%d\n", r);
    return 0;
}
"#;

/// Lines of a backtrace without addresses.
fn frames(text: &str) -> Vec<String> {
    text.lines()
        .filter(|l| l.starts_with('#'))
        .map(|l| {
            let words: Vec<_> = l.split_whitespace().skip(1).collect();
            let words = match words.as_slice() {
                [address, "in", rest @ ..] if address.starts_with("0x") => rest,
                all => all,
            };
            words.join(" ")
        })
        .collect()
}

#[test]
fn the_program_is_seen_as_it_was() {
    let folder = Folder::new();
    let hello = tool("hello_tool");
    let commands = [
        "break app.c:10",
        "run",
        "bt",
        "info locals",
        "next",
        "info line",
        "p pointer",
        "kill",
    ];
    let kinds = [
        ("gcc", &["-g", "-O0"][..]),
        ("gcc", &["-g", "-O2"]),
        ("gcc", &["-gdwarf-2", "-O1"]),
        ("gcc", &["-gdwarf-4", "-O2"]),
        ("gcc", &["-gdwarf-5", "-gz", "-g3", "-O2"]),
        ("gcc", &["-g", "-O2", "-fdebug-types-section", "-no-pie"]),
        ("gcc", &["-g", "-O1", "-static"]),
        ("gcc", &["-g", "-O1", "-static-pie"]),
        ("clang", &["-gdwarf-5", "-O2"]),
        ("clang", &["-gdwarf-4", "-O0"]),
    ];
    for (compiler, flags) in kinds {
        if !compile(&folder, compiler, "app", PROGRAM, flags) {
            // Only clang may be missing.
            assert_eq!(compiler, "clang", "{flags:?}");
            continue;
        }
        folder.atom_ok(&["app", &hello, "-g", "-o", "out"]);
        let after = gdb(&folder, "out", &commands);
        let stop = after
            .find("hit Breakpoint 1")
            .or_else(|| after.find("Breakpoint 1, "));
        let text = &after[stop.unwrap_or_else(|| panic!("{flags:?}: {after}"))..];
        assert!(
            text.contains("middle (n=4) at app.c:10"),
            "{flags:?}: {after}"
        );
        assert!(
            text.contains("i = 0\n") && text.contains("sum = 0\n"),
            "{flags:?}: {after}"
        );
        let frames = frames(text);
        assert!(frames.len() >= 2, "{flags:?}: {after}");
        assert_eq!(frames[0], "middle (n=4) at app.c:10", "{flags:?}");
        assert!(frames[1].starts_with("main ("), "{flags:?}: {after}");
        assert!(frames[1].ends_with(" at app.c:15"), "{flags:?}: {after}");
        // The breakpoint has one location, and the function pointer has its original value.
        assert!(
            after.contains("Breakpoint 1 at ") && !after.contains("locations"),
            "{after}"
        );
        assert!(text.contains("middle"), "{flags:?}: {after}");
        assert!(!after.contains("warning:"), "{flags:?}: {after}");
    }
}

#[test]
fn a_function_has_one_breakpoint_that_is_reached() {
    let folder = Folder::new();
    let hello = tool("hello_tool");
    let run = |options: &[&str], flags: &[&str]| {
        assert!(compile(&folder, "gcc", "app", PROGRAM, flags));
        let mut args = vec!["app", &hello, "-o", "out"];
        args.extend(options);
        folder.atom_ok(&args);
        let stops = [
            "break middle",
            "break leaf",
            "run",
            "continue",
            "continue",
            "bt",
            "kill",
        ];
        gdb(&folder, "out", &stops)
    };
    for flags in [
        &["-g", "-O0"][..],
        &["-g", "-O2"],
        &["-O2"],
        &["-O1", "-static-pie"],
    ] {
        for options in [&["-g"][..], &[]] {
            let text = run(options, flags);
            assert!(!text.contains("locations"), "{flags:?} {options:?}: {text}");
            // Called once by pointer, through a pad, then twice directly.
            let stops: Vec<_> = text
                .lines()
                .filter(|l| l.starts_with("Breakpoint "))
                .collect();
            let hits = |n: &str| stops.iter().filter(|l| l.starts_with(n)).count();
            assert_eq!(hits("Breakpoint 1, "), 1, "{flags:?} {options:?}: {text}");
            assert_eq!(hits("Breakpoint 2, "), 2, "{flags:?} {options:?}: {text}");
            let frames = frames(&text);
            let names: Vec<_> = frames.iter().map(|f| f.split(' ').next()).take(3).collect();
            assert_eq!(
                names,
                [Some("leaf"), Some("middle"), Some("main")],
                "{text}"
            );
        }
    }
}

#[test]
fn a_line_of_the_original_does_not_lead_into_a_pad() {
    let folder = Folder::new();
    assert!(compile(&folder, "gcc", "app", PROGRAM, &["-g", "-O0"]));
    folder.atom_ok(&["app", "-o", "out"]);
    let before = Command::new(folder.join("app")).output().expect("it runs");
    // Without -g gdb does not show the lines of the old text, which would be wrong.
    let text = gdb(
        &folder,
        "out",
        &["set breakpoint pending off", "break app.c:3", "run"],
    );
    assert!(
        text.contains("No symbol table is loaded") || text.contains("No source file"),
        "{text}"
    );
    assert!(
        text.contains(&String::from_utf8_lossy(&before.stdout).into_owned()),
        "{text}"
    );
}

#[test]
fn cpp_functions_are_found_by_name() {
    let source = r#"#include <cstdio>
struct Shape { virtual int area(int k) const = 0; virtual ~Shape() {} };
struct Square : Shape {
    int side;
    explicit Square(int s) : side(s) {}
    int area(int k) const override { if (k < 0) throw k; return side * k; }
};
namespace geometry { template <class T> __attribute__((noinline)) T twice(T v) { return v + v; } }
__attribute__((noinline)) static int total(const Shape *s) {
    int sum = 0;
    for (int i = 0; i < 2; i++) sum += s->area(i) + geometry::twice(i);
    return sum;
}
int main() {
    Square q(5);
    std::printf("%d\n", total(&q));
    try { q.area(-1); } catch (int e) { std::printf("%d\n", e); }
}
"#;
    let folder = Folder::new();
    assert!(compile(&folder, "g++", "app", source, &["-g", "-O0"]));
    folder.atom_ok(&["app", &tool("hello_tool"), "-g", "-o", "out"]);
    let commands = ["break Square::area", "run", "bt", "kill"];
    let text = gdb(&folder, "out", &commands);
    assert!(!text.contains("locations"), "{text}");
    let frames = frames(&text);
    assert!(frames[0].starts_with("Square::area (this="), "{text}");
    assert!(
        frames[1].starts_with("total (s=0x") && frames[1].ends_with("app.cc:11"),
        "{text}"
    );
    assert!(
        frames[2].starts_with("main (") && frames[2].ends_with("app.cc:16"),
        "{text}"
    );
    let commands = [
        "break geometry::twice<int>",
        "run",
        "bt",
        "info args",
        "kill",
    ];
    let text = gdb(&folder, "out", &commands);
    assert!(
        text.contains("geometry::twice<int> (v=") && text.contains(") at app.cc:8"),
        "{text}"
    );
}

#[test]
fn analysis_routines_stop_at_their_lines() {
    let folder = Folder::new();
    let hello = tool("hello_tool");
    for flags in [&["-g", "-O1"][..], &["-O1"], &["-O1", "-static-pie"]] {
        assert!(compile(&folder, "gcc", "app", PROGRAM, flags));
        folder.atom_ok(&["app", &hello, "-g", "-o", "out"]);
        let commands = [
            "break hello-tool/src/lib.rs:16",
            "run",
            "bt 1",
            "info symbol $pc",
            "kill",
        ];
        let text = gdb(&folder, "out", &commands);
        assert!(
            text.contains("hello-tool/src/lib.rs:16"),
            "{flags:?}: {text}"
        );
        assert!(text.contains("Breakpoint 1, "), "{flags:?}: {text}");
        assert!(
            text.contains("in section .text.analysis"),
            "{flags:?}: {text}"
        );
    }
}

/// Debug information in a file of its own is used, and gdb does not load that file
/// with its old addresses by itself.
#[test]
fn separate_debug_information() {
    let folder = Folder::new();
    assert!(compile(
        &folder,
        "gcc",
        "app",
        PROGRAM,
        &["-g", "-O1", "-Wl,--build-id"]
    ));
    let objcopy = |args: &[&str]| {
        let status = Command::new("objcopy")
            .current_dir(folder.path())
            .args(args)
            .status();
        assert!(status.expect("objcopy runs").success());
    };
    objcopy(&["--only-keep-debug", "app", "app.debug"]);
    objcopy(&["--strip-debug", "--add-gnu-debuglink=app.debug", "app"]);
    let commands = [
        "set breakpoint pending off",
        "break app.c:10",
        "run",
        "bt",
        "kill",
    ];
    assert!(gdb(&folder, "app", &commands).contains("middle (n=4) at app.c:10"));
    folder.atom_ok(&["app", "-g", "-o", "out"]);
    let text = gdb(&folder, "out", &commands);
    assert_eq!(frames(&text)[0], "middle (n=4) at app.c:10", "{text}");
    folder.atom_ok(&["app", "-o", "out"]);
    let text = gdb(&folder, "out", &commands);
    assert!(!text.contains("app.c:10\n"), "{text}");
    assert!(text.contains("exited normally"), "{text}");
}

/// Independent readers find no fault in the debug information that is written.
#[test]
fn readers_agree() {
    let folder = Folder::new();
    let hello = tool("hello_tool");
    for flags in [
        &["-g", "-O2"][..],
        &["-gdwarf-4", "-O2"],
        &["-gdwarf-5", "-O2", "-static"],
    ] {
        assert!(compile(&folder, "gcc", "app", PROGRAM, flags));
        folder.atom_ok(&["app", &hello, "-g", "-o", "out"]);
        let dump = Command::new("readelf")
            .current_dir(folder.path())
            .args(["--debug-dump=info,decodedline,aranges,Ranges", "out"])
            .output()
            .expect("readelf runs");
        let errors = String::from_utf8_lossy(&dump.stderr);
        let dump = String::from_utf8_lossy(&dump.stdout);
        assert!(
            !errors.contains("Error") && !errors.contains("corrupt"),
            "{flags:?}: {errors}"
        );
        assert!(
            dump.contains("middle") && dump.contains("lib.rs"),
            "{flags:?}"
        );
    }
}

#[test]
fn a_backtrace_leads_from_an_analysis_routine_to_main() {
    let folder = Folder::new();
    let hello = tool("hello_tool");
    let stops = ["break atom_analysis_call", "run", "bt", "kill"];
    let kinds = [
        &["-g", "-O0"][..],
        &["-O2"],
        &["-O2", "-fomit-frame-pointer", "-no-pie"],
        &["-O1", "-static"],
        &["-O1", "-static-pie"],
        &["-O2", "-s"],
    ];
    for flags in kinds {
        let stripped = flags.contains(&"-s");
        let unstripped: Vec<_> = flags.iter().copied().filter(|f| *f != "-s").collect();
        assert!(compile(&folder, "gcc", "app", PROGRAM, &unstripped));
        let symbols = Command::new("nm").arg(folder.join("app")).output();
        let symbols = text(&symbols.expect("nm runs"));
        let leaf = symbols
            .lines()
            .find(|l| l.ends_with(" t leaf") || l.ends_with(" T leaf"));
        let leaf = leaf
            .and_then(|l| l.split(' ').next())
            .expect("it has a leaf");
        assert!(compile(&folder, "gcc", "app", PROGRAM, flags));
        let leaf = u64::from_str_radix(leaf, 16).expect("an address");
        let only = format!("{leaf:#x}-{:#x}", leaf + 1);
        let only = if stripped { &only[..] } else { "leaf" };
        let arguments = [
            "app",
            &hello,
            "-o",
            "out",
            "--no-inline",
            "--precise-signals",
        ];
        folder.atom_ok(&[&arguments[..], &["--only", only]].concat());
        let after = gdb(&folder, "out", &stops);
        let frames: Vec<String> = frames(&after)
            .iter()
            .map(|f| f.split(' ').next().unwrap_or_default().to_owned())
            .skip_while(|f| !["leaf", "??"].contains(&f.as_str()))
            .collect();
        let found: Vec<&str> = frames.iter().map(String::as_str).collect();
        if stripped {
            // The frames of leaf, middle, main and libc have names.
            assert_eq!(found[..3], ["??"; 3], "{after}");
            assert!(
                found[3..].iter().any(|f| f.starts_with("__libc_start")),
                "{after}"
            );
        } else {
            assert!(
                found.starts_with(&["leaf", "middle", "main"]),
                "{flags:?}: {after}"
            );
        }
    }
}

/// A tool without symbols or debug information works under gdb too: a backtrace leads to main from each
/// instruction from the point of a call through the analysis routine and back.
#[test]
fn stripped_tools() {
    let folder = Folder::new();
    assert!(compile(&folder, "gcc", "app", PROGRAM, &["-g", "-O1"]));
    for how in ["--strip-debug", "--strip-all"] {
        let stripped = Command::new("strip")
            .args([how, "-o"])
            .arg(folder.join("tool.so"))
            .arg(tool("hello_tool"))
            .status();
        assert!(stripped.expect("strip runs").success());
        let arguments = ["--only", "leaf", "--no-inline", "--precise-signals"];
        folder.atom_ok(&[&["app", "./tool.so", "-g", "-o", "out"], &arguments[..]].concat());
        folder.write(
            "steps",
            "break *leaf\nrun\nset $i = 0\nwhile $i < 40\necho STEP\\n\ninfo symbol $pc\nbt\nstepi\nset $i = $i + 1\nend\nkill\n",
        );
        let text = gdb(&folder, "out", &["source steps"]);
        let mut inside = 0;
        let steps: Vec<&str> = text.split("STEP\n").skip(1).collect();
        assert_eq!(steps.len(), 40, "{how}: {text}");
        for step in steps {
            let found = frames(step);
            let names = found
                .iter()
                .map(|f| f.split(' ').next().unwrap_or_default());
            let names: Vec<&str> = names.collect();
            let leaf = names.iter().position(|n| *n == "leaf");
            // The routine may have returned.
            let leaf = leaf.unwrap_or_default();
            let ways = [&["leaf", "middle", "main"][..], &["middle", "main"]];
            assert!(
                ways.iter().any(|way| names[leaf..].starts_with(way)),
                "{how}: the way is lost: {step}"
            );
            inside += usize::from(leaf > 0);
        }
        // The frames of the routine and of the wrapper that saves registers around it.
        assert!(inside >= 3, "{how}: {text}");
        // The program's own lines are shown.
        let text = gdb(&folder, "out", &["break leaf", "run", "bt 1", "kill"]);
        assert!(text.contains("app.c:"), "{how}: {text}");
    }
    // Stopping in an instrument routine without a symbol is refused with the reason.
    folder.fails(
        &["app", "./tool.so", "--gdb", "-o", "x"],
        &["instrument routine"],
    );
}

/// A unit of which a part stays where it was, while the rest moves, is known as a whole.
#[test]
fn units_may_move_in_part() {
    let folder = Folder::new();
    let hello = tool("hello_tool");
    let kinds = [
        ("gcc", &["-g", "-O0"][..]),
        ("gcc", &["-g", "-O2"]),
        ("gcc", &["-gdwarf-2", "-O1"]),
        ("gcc", &["-gdwarf-4", "-O2", "-no-pie"]),
        ("clang", &["-gdwarf-4", "-O1"]),
        ("clang", &["-gdwarf-5", "-O1"]),
    ];
    for (compiler, flags) in kinds {
        if !compile(&folder, compiler, "app", PROGRAM, flags) {
            assert_eq!(compiler, "clang", "{flags:?}");
            continue;
        }
        folder.atom_ok(&["app", &hello, "-g", "--only", "leaf", "-o", "out"]);
        let commands = [
            "break app.c:4",
            "run",
            "bt",
            "up",
            "info locals",
            "info scope main",
            "list main",
            "kill",
        ];
        let text = gdb(&folder, "out", &commands);
        assert!(!text.contains("Internal error"), "{flags:?}: {text}");
        let frames = frames(&text);
        assert!(frames[0].starts_with("leaf (n="), "{flags:?}: {text}");
        assert!(
            frames[1].starts_with("middle (n=4) at app.c:10"),
            "{flags:?}: {text}"
        );
        assert!(frames[2].starts_with("main ("), "{flags:?}: {text}");
        assert!(text.contains("sum = "), "{flags:?}: {text}");
    }
}

/// In a whole process the tool's code is in a file of its own, the area's, which gdb is told of.
#[test]
fn a_whole_process_is_seen_with_its_analysis_routines() {
    let folder = Folder::new();
    let hello = tool("hello_tool");
    for flags in [&["-g", "-O1"][..], &["-g", "-O1", "-no-pie"]] {
        assert!(compile(&folder, "gcc", "app", PROGRAM, flags));
        let arguments = ["app", &hello, "--libs", "-g", "--no-inline"];
        let only = ["--only", "libc.so.6:*printf*", "-o", "out"];
        folder.atom_ok(&[&arguments[..], &only].concat());
        let stops = [
            "set sysroot /nowhere",
            "set solib-search-path out.libs",
            "break main",
            "run",
            "add-symbol-file out.libs/area",
            "break atom_analysis_call",
            "continue",
            "bt",
            "info symbol $pc",
            "kill",
        ];
        let text = gdb(&folder, "out", &stops);
        assert!(text.contains("Breakpoint 2, "), "{flags:?}: {text}");
        assert!(text.contains("section .text.analysis"), "{flags:?}: {text}");
        let frames = frames(&text);
        let of = |name: &str| frames.iter().position(|f| f.starts_with(name));
        let (call, print, main) = (of("call ("), of("__printf ("), of("main ("));
        assert!(
            call.is_some() && call < print && print < main,
            "{flags:?}: {text}"
        );
        let line = &frames[call.expect("just seen")];
        assert!(line.ends_with("hello-tool/src/lib.rs:8"), "{text}");
        assert!(!text.contains("Internal error"), "{text}");
    }
}

/// The symbols of the area's file stand at the bytes that they name, with and without `-g`.
#[test]
fn the_area_names_the_analysis_routines() {
    use object::{Object, ObjectSection, ObjectSymbol};
    let folder = Folder::with_app();
    let hello = tool("hello_tool");
    let contents = |file: &object::File<'_>, address: u64, size: u64| {
        let mut sections = file.sections();
        let found = sections.find_map(|s| s.data_range(address, size).ok().flatten());
        found.map(<[u8]>::to_vec)
    };
    for options in [&[][..], &["-g"]] {
        folder.atom_ok(&[&["app", &hello, "--libs", "-o", "out"], options].concat());
        let area = std::fs::read(folder.join("out.libs/area")).expect("the area's file");
        let area = object::File::parse(&*area).expect("it is an ELF file");
        assert_eq!(area.has_debug_symbols(), !options.is_empty());
        let tool = std::fs::read(&hello).expect("the tool's file");
        let tool = object::File::parse(&*tool).expect("it is an ELF file");
        let mut compared = 0;
        for symbol in area.symbols().filter(|s| s.size() != 0) {
            let same = |s: &object::Symbol<'_, '_>| s.name() == symbol.name();
            let mut originals = tool.symbols().filter(same);
            let here = contents(&area, symbol.address(), symbol.size());
            assert!(here.is_some(), "{symbol:?}");
            let is_here =
                |s: object::Symbol<'_, '_>| contents(&tool, s.address(), s.size()) == here;
            assert!(originals.any(is_here), "{symbol:?}");
            compared += 1;
        }
        assert!(compared > 100, "{compared}");
    }
}
