//! Unwind tables of instrumented programs, judged at each instruction: inserted
//! code, guards, the tool's code and the start-up code lead to their callers.

use std::path::Path;
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::frames::{self, TextKind};
use atom_tests::outcome::plain_environment;
use atom_tests::source::{Source, Variant};
use object::{Object, ObjectSymbol};

/// Names of procedures at whose addresses the tables are wrong.
fn wrong(program: &Path, least: u64) -> Vec<String> {
    let mut command = Command::new(program);
    plain_environment(&mut command);
    command.stdout(std::process::Stdio::null());
    let findings = frames::judge(program, &mut command, false, 400_000).unwrap();
    let new = findings.judged.get(&TextKind::New).copied().unwrap_or(0);
    assert!(new >= least, "{}: {:?}", program.display(), findings.judged);
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut symbols: Vec<(u64, &str)> = file
        .symbols()
        .filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Text)
        .filter_map(|s| Some((s.address(), s.name().ok()?)))
        .collect();
    symbols.sort_unstable();
    let name = |address: u64| {
        let at = symbols.partition_point(|s| s.0 <= address);
        at.checked_sub(1).map_or("", |i| symbols[i].1)
    };
    findings
        .wrong
        .iter()
        // The compiler's start-up files have no tables.
        .filter(|(at, _)| !NO_TABLES.contains(&name(**at).trim_start_matches("original.")))
        .map(|(at, wrong)| format!("{at:#x} in {}: {}", name(*at), wrong.reason))
        .collect()
}

const NO_TABLES: [&str; 7] = [
    "_init",
    "_fini",
    "_start",
    "deregister_tm_clones",
    "register_tm_clones",
    "__do_global_dtors_aux",
    "frame_dummy",
];

fn judge(source: &str, variants: &[&str], jobs: &[(&str, &[&str])], least: u64) {
    let source = Source::named(source).unwrap();
    let folder = atom_tests::cache::folder("frames");
    for variant in variants {
        let program = folder.join(format!("{}-{variant}", source.name()));
        let variant = Variant((*variant).to_owned());
        source.build(&variant, &program).unwrap();
        for (tool, options) in jobs {
            let out = program.with_extension(tool);
            let mut options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
            options.push("--output".into());
            options.push(out.with_extension("result").to_string_lossy().into_owned());
            atom::instrument(
                &program,
                &out,
                &Job::Tool((*tool).to_owned(), options),
                true,
            )
            .unwrap();
            let wrong = wrong(&out, least);
            let shown = &wrong[..wrong.len().min(20)];
            assert!(
                wrong.is_empty(),
                "{}: {} {shown:#?}",
                out.display(),
                wrong.len()
            );
        }
    }
}

#[test]
fn each_instruction_of_a_program_leads_to_its_caller() {
    let jobs: [(&str, &[&str]); 3] = [
        ("icount", &[]),
        ("cache", &["--preset", "atom"]),
        ("points", &[]),
    ];
    judge("jumptables.c", &["gcc-O2"], &jobs, 10_000);
    judge("points.c", &["gcc-O0", "gcc-O2"], &jobs[1..], 500);
}

#[test]
fn epilogues_and_written_descriptions_lead_to_their_callers() {
    let jobs: [(&str, &[&str]); 2] = [("icount", &[]), ("calltree", &[])];
    judge("cfi.S", &["gcc-O0"], &jobs, 400);
    judge(
        "halves.S",
        &["gcc-O0"],
        &[("cache", &[]), ("calltree", &[])],
        200,
    );
    judge("epilogues.cc", &["clang-O2"], &jobs, 400);
}

#[test]
fn guards_of_threads_lead_to_their_callers() {
    judge("small.c", &["gcc-O2"], &[("threadcheck", &[])], 20);
}
