//! The pristine promise: without address randomisation every address that a
//! program can see of itself (code pointers, data, bss, heap, maps, stack) is
//! the original's, whatever linked the program and however it is loaded.
//!
//! Programs are compiled, rewritten without calls and with `int3` in dead old
//! text, and run beside their originals from folders whose names are equally
//! long (the kernel puts the program's path on the stack).

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::RwLock;

use atom_core::image::Image;
use atom_core::layout::{Extra, Options, Placed};
use atom_core::plan::Plan;
use atom_core::{Result, pipeline};

/// Held for writing while a program is written, for reading while a process is
/// started: a new process that for a moment has the file open for writing, too,
/// would keep others from running it.
static WRITING: RwLock<()> = RwLock::new(());

/// Runs a command to its end.
fn finish(command: &mut Command) -> Output {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = {
        let _guard = WRITING.read();
        command.spawn()
    };
    let child = child.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    child.wait_with_output().expect("its output")
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("atom-pristine-{id}-{name}"));
        for place in ["old", "new"] {
            std::fs::create_dir_all(path.join(place)).expect("a temporary folder");
        }
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn rewrite(from: &Path, to: &Path, plan: &Plan) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let image = Image::open(from)?;
    let (object, sites) = pipeline::understand(&image)?;
    let options = Options {
        strict: true,
        extra: Extra::All,
        ..Options::default()
    };
    let placed = Placed::new(&object, plan, None, sites, &options)?;
    let moved = placed.layout.moved_ranges(&object.cfg).len();
    let all = object.cfg.procs.len();
    assert!(moved > all / 2, "{moved} procedures moved");
    let out = pipeline::output(&placed, false)?;
    let _guard = WRITING.write();
    std::fs::write(to, out).expect("the output can be written");
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    Ok(())
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/pristine_programs")
        .join(name)
}

fn exists(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(command).exists())
}

/// Fails with advice where a compiler or linker is missing.
fn assert_installed(compiler: &str, options: &[&str]) {
    let linker = |name: &str| !options.contains(&format!("-fuse-ld={name}").as_str());
    let musl = compiler != "musl-gcc" || Path::new("/usr/lib/x86_64-linux-musl/libc.a").exists();
    let able = (linker("lld") || exists("ld.lld")) && (linker("gold") || exists("ld.gold")) && musl;
    let options = options.join(" ");
    assert!(
        able,
        "{compiler} {options}: not installed; `.ci/run` installs the packages of tests/packages.txt"
    );
}

fn compile(compiler: &str, file: &str, options: &[&str], out: &Path) {
    let mut command = Command::new(compiler);
    command.arg("-O2").arg(source(file)).arg("-o").arg(out);
    let done = finish(command.args(options));
    let messages = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{options:?}: {messages}");
}

/// Runs it without randomisation and with nothing that differs on its stack.
fn run(program: &Path) -> Output {
    let mut command = Command::new("setarch");
    finish(command.arg("-R").arg(program).env_clear())
}

fn text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{out}{err}{}", output.status)
}

/// Compiles, rewrites, runs both and compares.
fn check(name: &str, compiler: &str, file: &str, options: &[&str], plan: &Plan) {
    assert_installed(compiler, options);
    let folder = Folder::new(name);
    let (old, new) = (folder.0.join("old/program"), folder.0.join("new/program"));
    compile(compiler, file, options, &old);
    rewrite(&old, &new, plan).unwrap_or_else(|e| panic!("{name}: {e}"));
    let expected = run(&old);
    assert!(expected.stdout.len() > 50, "{name}: {}", text(&expected));
    assert_eq!(text(&run(&new)), text(&expected), "{name}");
}

/// A plan without calls; with `data`, one that needs a writable segment.
fn plan(data: bool) -> Plan {
    let mut plan = Plan::default();
    if data {
        plan.data.grow(100);
        plan.data_relocs = vec![8, 16];
    }
    plan
}

fn check_c(name: &str, compiler: &str, options: &[&str]) {
    for data in [false, true] {
        let name = format!("{name}-{data}");
        check(&name, compiler, "addresses.c", options, &plan(data));
    }
}

fn check_cpp(name: &str, options: &[&str]) {
    let options: Vec<&str> = options.iter().copied().chain(["-pthread"]).collect();
    let name = format!("{name}-cpp");
    check(&name, "g++", "exceptions.cpp", &options, &plan(false));
}

const STATIC: [&str; 2] = ["-static", "-DSTATIC"];
const STATIC_PIE: [&str; 2] = ["-static-pie", "-DSTATIC"];
const ONE_SEGMENT_FOR_CODE: &str = "-Wl,-z,noseparate-code";
const HUGE_PAGES: &str = "-Wl,-z,max-page-size=0x200000";

fn and<'a>(options: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    options.iter().chain(more).copied().collect()
}

#[test]
fn dynamic() {
    for (name, options) in [
        ("pie", ["-pie", "-fPIE"]),
        ("exec", ["-no-pie", "-fno-pie"]),
    ] {
        check_c(name, "gcc", &options);
        check_cpp(name, &options);
    }
    check_c("pie-code", "gcc", &[ONE_SEGMENT_FOR_CODE]);
    check_cpp("pie-code", &[ONE_SEGMENT_FOR_CODE]);
}

#[test]
fn dynamic_by_other_linkers() {
    for linker in ["-fuse-ld=lld", "-fuse-ld=gold"] {
        let name = &linker[9..];
        check_c(&format!("{name}-pie"), "gcc", &[linker]);
        check_c(&format!("{name}-exec"), "gcc", &[linker, "-no-pie"]);
        check_cpp(&format!("{name}-pie"), &[linker]);
        check_cpp(&format!("{name}-exec"), &[linker, "-no-pie"]);
    }
}

#[test]
fn fixed_static() {
    check_c("static", "gcc", &STATIC);
    check_cpp("static", &STATIC);
}

#[test]
fn fixed_static_at_a_high_address() {
    let high = "-Wl,-Ttext-segment=0x60000000";
    check_c("static-high", "gcc", &and(&STATIC, &[high]));
    check_cpp("static-high", &and(&STATIC, &[high]));
}

/// lld leaves neither spare dynamic tags nor enough program headers that can
/// be spared, so both tables move.
#[test]
fn tables_move_where_nothing_is_spare() {
    assert_installed("gcc", &["-fuse-ld=lld"]);
    let folder = Folder::new("moves");
    let (old, new) = (folder.0.join("old/program"), folder.0.join("new/program"));
    compile("gcc", "addresses.c", &["-fuse-ld=lld"], &old);
    rewrite(&old, &new, &plan(false)).expect("it can be rewritten");
    let image = Image::open(&old).expect("a program");
    let out = std::fs::read(&new).expect("the output");
    let field = |at: usize| u64::from_le_bytes(out[at..at + 8].try_into().expect("eight bytes"));
    let table = field(32) as usize;
    assert!(table >= image.file.len(), "{table:#x}");
    let count = u16::from_le_bytes([out[56], out[57]]);
    let mut entries = (0..usize::from(count)).map(|i| table + 56 * i);
    let dynamic = entries
        .find(|at| out[*at..at + 4] == [2, 0, 0, 0])
        .expect("PT_DYNAMIC");
    assert!(field(dynamic + 16) > image.end);
    assert_eq!(text(&run(&new)), text(&run(&old)));
}

#[test]
fn packed_relative_relocations() {
    let packed = "-Wl,-z,pack-relative-relocs";
    check_c("packed", "gcc", &[packed]);
    check_c("packed-static-pie", "gcc", &and(&STATIC_PIE, &[packed]));
}

/// Two loadable segments, with and without a hole between them.
#[test]
fn fixed_static_with_code_and_constants_in_one_segment() {
    for (name, more) in [
        ("static-code", &[ONE_SEGMENT_FOR_CODE][..]),
        ("static-hole", &[ONE_SEGMENT_FOR_CODE, HUGE_PAGES]),
    ] {
        check_c(name, "gcc", &and(&STATIC, more));
        check_cpp(name, &and(&STATIC, more));
    }
}

#[test]
fn fixed_static_by_other_linkers() {
    for linker in ["-fuse-ld=lld", "-fuse-ld=gold"] {
        let name = format!("{}-static", &linker[9..]);
        check_c(&name, "gcc", &and(&STATIC, &[linker]));
        check_cpp(&name, &and(&STATIC, &[linker]));
    }
}

#[test]
fn static_pie() {
    check_c("static-pie", "gcc", &STATIC_PIE);
    check_cpp("static-pie", &STATIC_PIE);
    check_c(
        "lld-static-pie",
        "gcc",
        &and(&STATIC_PIE, &["-fuse-ld=lld"]),
    );
    check_cpp("lld-static-pie", &and(&STATIC_PIE, &["-fuse-ld=lld"]));
}

#[test]
fn static_pie_of_unusual_alignment_and_size() {
    for (name, more) in [
        ("static-pie-64k", &["-Wl,-z,max-page-size=0x10000"][..]),
        ("static-pie-2m", &[HUGE_PAGES]),
        ("static-pie-big", &["-DBIG"]),
        ("static-pie-big-2m", &["-DBIG", HUGE_PAGES]),
        ("static-pie-code", &[ONE_SEGMENT_FOR_CODE]),
    ] {
        check_c(name, "gcc", &and(&STATIC_PIE, more));
    }
}

/// musl's loader has used the heap by the time that any code of the program
/// runs, so there the kernel's idea of the heap's end is not checked.
#[test]
fn musl() {
    for (name, options) in [
        ("musl-pie", &["-DHEAP_USED_BY_LOADER", "-pie", "-fPIE"][..]),
        (
            "musl-exec",
            &["-DHEAP_USED_BY_LOADER", "-no-pie", "-fno-pie"],
        ),
        ("musl-static", &STATIC),
        ("musl-lld", &["-DHEAP_USED_BY_LOADER", "-fuse-ld=lld"]),
        ("musl-gold", &["-DHEAP_USED_BY_LOADER", "-fuse-ld=gold"]),
    ] {
        check_c(name, "musl-gcc", options);
    }
}

#[test]
fn static_pie_by_musl() {
    let folder = "/usr/lib/x86_64-linux-musl";
    let start = ["rcrt1.o", "crti.o"].map(|f| format!("{folder}/{f}"));
    assert_installed("musl-gcc", &[]);
    let (libs, end) = (format!("-L{folder}"), format!("{folder}/crtn.o"));
    let options = [
        "-fPIE",
        "-static-pie",
        "-DSTATIC",
        "-nostdinc",
        "-isystem",
        "/usr/include/x86_64-linux-musl",
        "-nostdlib",
        &start[0],
        &start[1],
        &libs,
        "-lc",
        "-lgcc",
        &end,
    ];
    check_c("musl-static-pie", "gcc", &options);
}

/// With randomisation addresses differ from run to run, but the heap still
/// follows the image and nothing collides.
#[test]
fn randomised() {
    for (name, options, heap_follows) in [
        ("pie", &["-pie", "-fPIE"][..], true),
        ("static", &STATIC, true),
        ("static-pie", &STATIC_PIE, false),
    ] {
        let folder = Folder::new(&format!("random-{name}"));
        let (old, new) = (folder.0.join("old/program"), folder.0.join("new/program"));
        compile("gcc", "addresses.c", options, &old);
        rewrite(&old, &new, &plan(true)).unwrap_or_else(|e| panic!("{name}: {e}"));
        for i in 0..40 {
            let run = finish(Command::new(&new).arg("x"));
            let out = text(&run);
            assert!(out.contains("heap"), "{name}, run {i}: {out}");
            let is_near = out.contains("near");
            assert!(is_near || !heap_follows, "{name}, run {i}: {out}");
            assert_eq!(run.status.code(), Some(6), "{name}, run {i}: {out}");
        }
    }
}
