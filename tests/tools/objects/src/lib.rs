//! What a tool sees of the objects of a process: names, call targets across objects, load biases.
//!
//! The instrument routine writes `--seen FILE`: a line for each object, and one for each call or tail call
//! out of the procedures that `--from NAME` names. The analysis half writes `--output FILE`: a line each time
//! that an object is mapped, and at the end the run-time address of each object's first procedure, as
//! inserted code and as the runtime compute it.

use std::fmt::Write;
use std::sync::Mutex;

use atom_tool::ObjectEvent;
use atom_tool::prelude::*;

/// Numbers of the objects that were mapped or unmapped, in order, with their load biases.
static LOADED: Mutex<Vec<(usize, ObjectEvent, u64)>> = Mutex::new(Vec::new());

#[analysis]
fn begin() {
    atom_tool::on_object_event(|object, event| {
        let bias = Address((object as u64) << 32).at_run_time();
        if let Ok(mut loaded) = LOADED.lock() {
            loaded.push((object, event, bias.unwrap_or(0)));
        }
    });
}

/// Appends the run-time address of a procedure of an object.
#[analysis]
fn end(output: Str, name: Str, pc: u64, computed: u64) {
    let mut text = String::new();
    let by_runtime = Address(pc).at_run_time();
    let back = by_runtime.and_then(Address::of_run_time).map_or(0, |a| a.0);
    let in_file = Address(pc).in_file();
    let _ = writeln!(
        text,
        "address {} {in_file:#x} {computed:#x} {:#x} {}",
        &*name,
        by_runtime.unwrap_or(0),
        back == pc
    );
    append(&output, &text);
}

#[analysis]
fn loaded(output: Str) {
    let Ok(loaded) = LOADED.lock() else { return };
    let mut text = String::new();
    for (object, event, bias) in loaded.iter() {
        let _ = writeln!(text, "{event:?} {object} {bias:#x}");
    }
    append(&output, &text);
}

fn append(file: &str, text: &str) {
    let open = std::fs::File::options()
        .create(true)
        .append(true)
        .open(file);
    let written = open.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    if let Err(e) = written {
        eprintln!("objects: {file}: {e}");
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let output = options.value("--output")?.ok_or("--output is missing")?;
    let seen = options.value("--seen")?.ok_or("--seen is missing")?;
    let from = options.values("--from")?;
    options.finish()?;

    let mut text = String::new();
    for object in program.objects() {
        let hex = |id: &[u8]| id.iter().map(|b| format!("{b:02x}")).collect();
        let kind = match (object.is_program(), object.is_interpreter()) {
            (true, false) => "program",
            (false, true) => "interpreter",
            (false, false) => "library",
            (true, true) => return Err("an object of two kinds".into()),
        };
        let id: String = object.build_id().map_or("-".to_owned(), hex);
        let (name, soname) = (object.name(), object.soname().unwrap_or("-"));
        let procs = object.procs();
        if !procs.clone().all(|proc| proc.object() == object) {
            return Err(format!("{name} has a procedure of another object").into());
        }
        let (index, count, path) = (object.index(), procs.len(), object.path());
        writeln!(
            text,
            "object {index} {kind} {name} {soname} {id} {count} {path}"
        )?;
        let at = program.address_text(procs.clone().next().map_or(0, |p| p.pc()));
        writeln!(text, "first {name} {at}")?;
    }
    for proc in program.procs().filter(|p| from.contains(&p.name())) {
        for inst in proc.blocks().map(|block| block.last_inst()) {
            let callee = if inst.is_type(InstType::Call) {
                inst.called_proc()
            } else {
                inst.entered_proc()
            };
            let is_indirect = inst.is_type(InstType::Call);
            let Some(callee) = callee else {
                if is_indirect {
                    writeln!(text, "call {} - -", proc.name())?;
                }
                continue;
            };
            let object = callee.object().name();
            writeln!(text, "call {} {} {object}", proc.name(), callee.name())?;
        }
    }
    std::fs::write(seen, text)?;

    program.add_call(Before, begin, ());
    for object in program.objects() {
        if let Some(proc) = object.procs().next() {
            let pc = proc.pc();
            program.add_call(After, end, (output, object.name(), pc, ImageAddress(pc)));
        }
    }
    program.add_call(After, loaded, (output,));
    Ok(())
}

// A tool for tests, which is not listed.
atom_tool::tool!(instrument, help = "");
