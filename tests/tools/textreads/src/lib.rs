//! Finds loads that read bytes of a pad.
//!
//! Looks at the address of every load of the process. Where it is in the text of an object, the bytes in memory are
//! compared with the object's original file; a difference is one that the rewriter has made. `--output FILE` gets a line
//! for each such load, the address of its instruction and of what it read, and a last line with the numbers of loads, of
//! loads from text, and of loads of changed text.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use atom_tool::prelude::*;
use atom_tool::{Repeat, Uninterrupted};

/// Numbers of a text: index of its object, address in the file, offset in the file, size in bytes.
const NUMBERS: usize = 4;

/// Executable bytes of an object, as the original's file has them.
struct Text {
    object: usize,
    address: u64,
    bytes: Vec<u8>,
}

static TEXTS: OnceLock<Vec<Text>> = OnceLock::new();
static LOADS: AtomicU64 = AtomicU64::new(0);
static FROM_TEXT: AtomicU64 = AtomicU64::new(0);
static CHANGED: AtomicU64 = AtomicU64::new(0);
/// Loads of changed text: instruction and address.
static FOUND: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

#[analysis]
fn begin(paths: Strings, numbers: Array<u64>) {
    let paths: Vec<&str> = paths.iter().collect();
    let (texts, _) = numbers.as_slice().as_chunks::<NUMBERS>();
    let read = |&[object, address, offset, size]: &[u64; NUMBERS]| {
        let object = object as usize;
        let mut bytes = vec![0; size as usize];
        let read =
            File::open(paths[object]).and_then(|file| file.read_exact_at(&mut bytes, offset));
        if let Err(e) = read {
            eprintln!("textreads: {}: {e}", paths[object]);
            bytes.clear();
        }
        Text {
            object,
            address,
            bytes,
        }
    };
    let _ = TEXTS.set(texts.iter().map(read).collect());
}

#[analysis]
fn load(pc: u64, address: u64, size: u64, count: u64) {
    LOADS.fetch_add(1, Relaxed);
    if count == 0 {
        return;
    }
    let Some(place) = Address::of_run_time(address) else {
        return;
    };
    let (object, in_file) = (place.object_number(), place.in_file());
    let texts = TEXTS.get().map_or(&[][..], Vec::as_slice);
    for text in texts.iter().filter(|text| text.object == object) {
        let at = in_file.wrapping_sub(text.address) as usize;
        let Some(then) = text.bytes.get(at..) else {
            continue;
        };
        FROM_TEXT.fetch_add(1, Relaxed);
        let len = then.len().min(size.saturating_mul(count) as usize);
        // SAFETY: the program is about to read these bytes itself, and text is not written to meanwhile.
        let now = unsafe { std::slice::from_raw_parts(address as *const u8, len) };
        let changed = now.iter().zip(then).position(|(now, then)| now != then);
        if let Some(first) = changed {
            CHANGED.fetch_add(1, Relaxed);
            // The set needs more of a stack than the program's may have. Only this rare work goes to another.
            Uninterrupted::run(|_| {
                let mut found = FOUND.lock().unwrap_or_else(|e| e.into_inner());
                found.insert((pc, place.0 + first as u64));
            });
        }
    }
}

#[analysis]
fn end(output: Str) {
    let written = output::create(&output).and_then(|mut file| {
        let found = FOUND.lock().unwrap_or_else(|e| e.into_inner());
        for (pc, address) in found.iter() {
            writeln!(file, "{}\t{}", Address(*pc), Address(*address))?;
        }
        let [loads, text, changed] = [&LOADS, &FROM_TEXT, &CHANGED].map(|n| n.load(Relaxed));
        writeln!(file, "loads\t{loads}\t{text}\t{changed}")?;
        file.flush()
    });
    if let Err(e) = written {
        eprintln!("textreads: {e}");
    }
}

/// The executable segments of a file: address, offset and size of each.
fn executable(path: &str) -> Result<Vec<[u64; 3]>> {
    const LOAD: u64 = 1;
    const EXECUTABLE: u64 = 1;
    let bytes = std::fs::read(path)?;
    let number = |at: usize, size: usize| {
        let field = bytes.get(at..at + size);
        let field = field.ok_or_else(|| format!("{path}: it is cut short"))?;
        let mut word = [0; 8];
        word[..size].copy_from_slice(field);
        Ok::<u64, String>(u64::from_le_bytes(word))
    };
    let (table, count) = (number(32, 8)? as usize, number(56, 2)? as usize);
    let mut found = Vec::new();
    for header in (0..count).map(|i| table + 56 * i) {
        let (kind, flags) = (number(header, 4)?, number(header + 4, 4)?);
        if kind == LOAD && flags & EXECUTABLE != 0 {
            let (offset, address) = (number(header + 8, 8)?, number(header + 16, 8)?);
            found.push([address, offset, number(header + 32, 8)?]);
        }
    }
    Ok(found)
}

/// Adds calls in front of the loads of an instruction.
fn add_loads(inst: &Inst) {
    // Other repetitions may end earlier.
    let repeats = inst.repeat() == Some(Repeat::Counted);
    for (n, operand) in inst.memory().iter().enumerate() {
        let n = n as u8;
        // What an instruction of the stack reads is no text.
        let is_stack = operand.is_implicit() && !operand.is_string();
        if !operand.access.reads() || is_stack || !inst.offers(Before, EffAddrOf(n)) {
            continue;
        }
        let (pc, size) = (inst.pc(), u64::from(operand.size));
        if repeats {
            inst.add_call(Before, load, (pc, EffAddrOf(n), size, RepCount))
        } else {
            inst.add_call(Before, load, (pc, EffAddrOf(n), size, 1u64))
        };
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let output = options.value("--output")?.unwrap_or("textreads.out");
    options.finish()?;
    let mut paths = StringList::new();
    let mut numbers = Vec::new();
    for object in program.objects() {
        paths.push(object.path());
        for [address, offset, size] in executable(object.path())? {
            numbers.extend([object.index() as u64, address, offset, size]);
        }
    }
    program.add_call(Before, begin, (&paths, &numbers));
    for inst in program
        .procs()
        .flat_map(|p| p.blocks())
        .flat_map(|b| b.insts())
    {
        add_loads(&inst);
    }
    program.add_call(After, end, (output,));
    Ok(())
}

// A tool for tests, which is not listed.
atom_tool::tool!(instrument, help = "");
