//! Errors of heap memory in a whole process: accesses outside of blocks and of blocks that were freed, wrong frees, leaks.
//!
//! The program's allocators are replaced (`calls`) by one whose blocks have redzones and that keeps freed blocks for a while
//! (`heap`). Shadow memory (`shadow`) tells which bytes are addressable, and each reference that may be to the heap is
//! checked (`check`). `docs/tools/memcheck.md` describes options and output.

mod calls;
mod check;
mod errors;
mod heap;
mod leaks;
mod shadow;

use atom_tool::forks;
use atom_tool::prelude::*;
use atom_tool::stacks::CallStacks;

use check::Checked;
use leaks::Detail;

#[analysis(uninterrupted)]
fn begin(quarantine: u64, calls: Sites, accesses: Sites, checked: Array<Checked>, log: Str) {
    if !shadow::begin() || !heap::begin(quarantine) {
        eprintln!("memcheck: the process has no room for shadow memory");
        std::process::exit(1);
    }
    errors::begin(calls, accesses, &log);
    check::begin(checked);
    forks::in_child(|| {
        heap::in_child();
        errors::in_child();
    });
    errors::print("Memcheck, a memory error detector");
}

#[analysis(uninterrupted)]
fn end(detail: u32, exit_code: i32) {
    let details = [Detail::Summary, Detail::Full, Detail::No];
    let detail = details.into_iter().find(|d| *d as u32 == detail);
    let detail = detail.unwrap_or(Detail::Summary);
    let leaks = leaks::report(detail);
    let leaks = if detail == Detail::Full { leaks } else { 0 };
    let (errors, places) = errors::count();
    let (errors, places) = (errors + leaks, places as u64 + leaks);
    errors::print(&format!(
        "\nERROR SUMMARY: {errors} errors from {places} contexts"
    ));
    if errors != 0 && exit_code != 0 {
        std::process::exit(exit_code);
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let details = [
        ("summary", Detail::Summary),
        ("full", Detail::Full),
        ("yes", Detail::Full),
        ("no", Detail::No),
    ];
    let detail = options.choice("--leak-check", &details)?;
    let exit_code: i32 = match options.value("--error-exitcode")? {
        Some(code) => code.parse()?,
        None => 0,
    };
    let quarantine = options.size("--freelist-vol", 64 << 20)?;
    let log = options.value("--log-file")?.unwrap_or_default();
    options.finish()?;

    if calls::replace(program)? == 0 {
        return Err(
            "the program has no allocator by a name that is known; run it with `atom run`".into(),
        );
    }
    let stacks = CallStacks::add(program);
    let references = check::add(program);
    check::add_functions(program, &stacks);
    program.tables_may_grow();
    let args = (
        quarantine,
        &stacks.calls,
        &references.sites,
        &references.checked,
        log,
    );
    program.add_call(Before, begin, args);
    program.add_call(After, end, (detail as u32, exit_code));
    Ok(())
}

atom_tool::tool!(instrument, help = include_str!("help.txt"));
