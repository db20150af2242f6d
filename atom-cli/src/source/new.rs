//! `atom new`: a crate for a tool, with a test.

use std::path::{Path, PathBuf};

use atom_core::{Error, Result};
use clap::Args;

use super::Sources;
use super::manifest::{crate_name, quoted};
use crate::kept::identity::Identity;

const DOING: &str = "making a crate for a tool";

/// Arguments of `atom new`.
#[derive(Args)]
pub struct New {
    /// The folder of the crate; its last part is the tool's name
    pub name: PathBuf,
    /// Build without a network: with the packages that an installation of atom has. Packages of your own
    /// cannot be added then
    #[arg(long)]
    pub offline: bool,
}

/// Makes the crate.
pub fn run(args: &New) -> Result<()> {
    let folder = &args.name;
    let fail = |reason: String| Error::new(DOING, reason).file(folder);
    let name = folder.file_name().and_then(|n| n.to_str()).unwrap_or("");
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(is_word) {
        return Err(fail(format!("`{name}` cannot be a crate's name"))
            .advice("use letters, digits, - and _, as in `atom new mytool`"));
    }
    if folder.exists() {
        return Err(fail("it exists already".into()).advice("choose another name"));
    }
    let sources = Sources::find()?;
    let vendored = if args.offline {
        Some(sources.vendored().ok_or_else(|| {
            fail("an installation has packages for --offline, a checkout has none".into())
                .advice("leave --offline out: cargo keeps what it has downloaded for a checkout")
        })?)
    } else {
        None
    };
    let library = format!("lib{}.so", crate_name(name));
    let command = Identity::command()?;
    let manifest = MANIFEST
        .replace("NAME", name)
        .replace("PATH", &sources.tool_crate());
    let test = (TEST.replace("LIBRARY", &library)).replace("ATOM_PATH", &quoted(&command));
    let mut files = vec![
        ("Cargo.toml", manifest),
        (".gitignore", "/target\n".to_owned()),
        ("src/lib.rs", TOOL.replace("NAME", name)),
        ("tests/tool.rs", test),
    ];
    if let Some(vendored) = vendored {
        files.push((
            ".cargo/config.toml",
            OFFLINE.replace("PATH", &quoted(&vendored)),
        ));
    }
    for (file, text) in files {
        let file = folder.join(file);
        let made = std::fs::create_dir_all(file.parent().unwrap_or(folder))
            .and_then(|()| std::fs::write(&file, text));
        if let Err(e) = made {
            // Nothing was there before, so all of it is this command's.
            std::fs::remove_dir_all(folder).unwrap_or_default();
            return Err(Error::new(DOING, e).file(file));
        }
    }
    tell(folder, &library);
    Ok(())
}

fn tell(folder: &Path, library: &str) {
    println!(
        "The tool is in {0}/src/lib.rs. Try it:\n  cd {0}\n  cargo test\n  cargo build --release\n  \
         atom run target/release/{library} -- ls",
        folder.display()
    );
}

const MANIFEST: &str = r#"[package]
name = "NAME"
version = "0.1.0"
edition = "2024"

# The shared object is the tool. cargo builds it for tests only if the crate is a library, too.
[lib]
crate-type = ["cdylib", "rlib"]

[dependencies]
atom-tool = { path = PATH }

# A routine that panics must not unwind into the program.
[profile.dev]
panic = "abort"
opt-level = 1

[profile.release]
panic = "abort"

[workspace]
"#;

const TOOL: &str = r#"//! Counts the calls of each procedure.

use atom_tool::prelude::*;

#[analysis]
fn call(counter: Counter) {
    counter.increment();
}

#[analysis]
fn finish(files: Files, program: Str, counters: Counters, sites: Sites) {
    let mut report = Report::new("NAME", &program);
    let table = report.table("procedures", ["calls", "pc", "line", "procedure"]);
    for ([calls], site) in counters.rows().zip(sites.iter()) {
        if calls != 0 {
            let name = site.proc.into();
            table.row([calls.into(), Cell::Address(site.pc), site.place(), name]);
        }
    }
    table.sort(0);
    report.write(files);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    options.finish()?;

    let procs: Vec<Proc> = program.procs().filter(|p| !p.is_opaque()).collect();
    let counters = program.counters(procs.len());
    let mut sites = SiteList::new();
    for (proc, counter) in procs.iter().zip(counters.rows()) {
        proc.add_call(Before, call, (counter,));
        sites.push_proc(*proc);
    }
    program.add_call(After, finish, (&files, program.name(), counters, &sites));
    Ok(())
}

// `atom run TOOL --help` shows this.
atom_tool::tool!(
    instrument,
    help = "The number of calls of each procedure\n\nOptions:\n",
    report = "NAME.out"
);
"#;

const TEST: &str = r#"//! Runs the tool on a program.

use std::process::Command;

/// The command that made this crate; the variable ATOM names another one.
const ATOM: &str = ATOM_PATH;

#[test]
fn calls_of_a_program_are_counted() {
    // cargo builds the tool into the folder of this test.
    let tool = std::env::current_exe().unwrap().with_file_name("LIBRARY");
    let atom = std::env::var_os("ATOM").unwrap_or(ATOM.into());
    let report = concat!(env!("CARGO_TARGET_TMPDIR"), "/report");
    let output = Command::new(atom)
        .arg("run")
        .arg(tool)
        .args(["--output", report, "--", "/bin/echo", "hello"])
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert_eq!(output.stdout, b"hello\n");
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains("procedures"), "{report}");
}
"#;

const OFFLINE: &str = r#"# Builds without a network. Remove this file before you add packages from crates.io.
[source.crates-io]
replace-with = "atom-vendored"

[source.atom-vendored]
directory = PATH
"#;
