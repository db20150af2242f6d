//! The process and the machine.
//!
//! All of this is asked for when the report is written, by a few system calls and one file. The processor tells
//! its model by itself (`cpuid`); `/proc/cpuinfo` takes milliseconds on large machines.

use std::arch::x86_64::__cpuid;
use std::ffi::{CStr, c_char, c_int};

use super::json::Json;

/// Length of each field of `struct utsname`.
const FIELD: usize = 65;

/// Number of processors that [`processors`] asks for: more than Linux supports.
const PROCESSORS: usize = 8192;

unsafe extern "C" {
    fn uname(fields: *mut [[c_char; FIELD]; 6]) -> c_int;
    fn sched_getaffinity(process: c_int, size: usize, set: *mut u64) -> c_int;
}

/// The arguments of the program, its own name first; none if the system does not tell.
pub fn arguments() -> Vec<String> {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = line.strip_suffix(b"\0").unwrap_or(&line).split(|b| *b == 0);
    if line.is_empty() {
        Vec::new()
    } else {
        words
            .map(|w| String::from_utf8_lossy(w).into_owned())
            .collect()
    }
}

/// Writes the keys `process` and `host`.
pub fn write(json: &mut Json) {
    // A snapshot stands for the process that continues.
    let pid = if analysis_rt::is_snapshot() {
        analysis_rt::start_pid()
    } else {
        analysis_rt::pid()
    };
    json.key("process").open('{');
    json.key("pid").number(pid.into());
    let parent = std::os::unix::process::parent_id();
    json.key("parent").number(parent.into());
    if analysis_rt::counts_are_inherited() {
        json.key("inherits").truth(true);
    }
    json.close('}');

    let [name, kernel] = names();
    json.key("host").open('{');
    json.key("name").text(&name);
    json.key("kernel").text(&kernel);
    json.key("processor").text_or_null(&model());
    json.key("processors").number(processors());
    json.close('}');
}

/// Name of the machine, and version of its kernel.
fn names() -> [String; 2] {
    let mut fields = [[0; FIELD]; 6];
    // SAFETY: the system fills six fields, each with a null at its end.
    if unsafe { uname(&raw mut fields) } != 0 {
        return [String::new(), String::new()];
    }
    // The fields are system, node, release, version, machine, domain.
    [1, 2].map(|i: usize| {
        // SAFETY: the field ends with a null, if not before then at its last byte, which nobody has changed.
        let text = unsafe { CStr::from_ptr(fields[i].as_ptr()) };
        text.to_string_lossy().into_owned()
    })
}

/// Number of processors that the process may use; 0 if the system does not tell.
fn processors() -> u64 {
    let mut set = [0u64; PROCESSORS / 64];
    let size = size_of_val(&set);
    // SAFETY: the system writes at most `size` bytes.
    match unsafe { sched_getaffinity(0, size, set.as_mut_ptr()) } {
        0.. => set.iter().map(|word| u64::from(word.count_ones())).sum(),
        _ => 0,
    }
}

/// The processor's model; empty if it does not tell.
fn model() -> String {
    const EXTENDED: u32 = 0x8000_0000;
    const NAME: std::ops::RangeInclusive<u32> = 0x8000_0002..=0x8000_0004;
    if __cpuid(EXTENDED).eax < *NAME.end() {
        return String::new();
    }
    let words = NAME
        .map(__cpuid)
        .flat_map(|part| [part.eax, part.ebx, part.ecx, part.edx]);
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_owned()
}
