//! The query interface for C programs: one loaded data file, and its traces.
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use arp_core::{Area, DataType, Error, Mode, Problem, Profile, Sid, Stats, Step};

use crate::active::mode;
use crate::context::Context;
use crate::end;
use crate::report::{ErrorCallback, Errors};
use crate::setup::path;

struct Loaded {
    profile: Profile,
    errors: Errors,
    names: HashMap<Sid, CString>,
}

static LOADED: Mutex<Option<Loaded>> = Mutex::new(None);

fn loaded() -> MutexGuard<'static, Option<Loaded>> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on the loaded file. If no file is loaded, or if `work` fails, reports that and returns `or`.
fn query<R>(
    function: &'static str,
    or: R,
    work: impl FnOnce(&mut Loaded) -> Result<R, &'static str>,
) -> R {
    let mut loaded = loaded();
    let errors = loaded.as_ref().map_or(Errors::NONE, |l| l.errors);
    let result = match loaded.as_mut() {
        Some(loaded) => work(loaded),
        None => Err("no data are loaded"),
    };
    drop(loaded);
    result.unwrap_or_else(|reason| {
        end::tell(&errors, &Problem::OutOfOrder { function, reason });
        or
    })
}

/// Loads a file; see the header.
///
/// # Safety
/// `name` is null or ends with a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn arp_load_data(
    name: *const c_char,
    error: Option<ErrorCallback>,
    context: *mut c_void,
) {
    let errors = Errors {
        callback: error,
        context: Context(context),
    };
    // SAFETY: the caller's promise.
    let Some(path) = (unsafe { path(name) }) else {
        let (function, reason) = ("arp_load_data", "there is no file name");
        return end::tell(&errors, &Problem::OutOfOrder { function, reason });
    };
    *loaded() = None;
    match load(&path) {
        Ok((profile, damage)) => {
            let name = |s: &arp_core::Section| Some((s.sid, CString::new(s.name.as_str()).ok()?));
            let named = profile.sections().iter().filter(|s| !s.name.is_empty());
            let names = named.filter_map(name).collect();
            *loaded() = Some(Loaded {
                profile,
                errors,
                names,
            });
            if let Some(damage) = damage {
                end::tell(&errors, &damage.into());
            }
        }
        Err(error) => end::tell(&errors, &error.into()),
    }
}

/// Loads a file. A damaged file yields the records before the damage, and the error.
fn load(path: &Path) -> Result<(Profile, Option<Error>), Error> {
    let mut profile = Profile::load(path)?;
    let damage = profile.take_damage();
    if profile.mode() != Mode::RecordAll {
        // A trace is a call path of all threads together.
        profile.switch_mode(profile.mode())?;
    }
    Ok((profile, damage))
}

/// The mode of the data.
#[unsafe(no_mangle)]
extern "C" fn arp_get_mode() -> u32 {
    query("arp_get_mode", 0, |loaded| Ok(loaded.profile.mode() as u32))
}

/// Converts the data to another mode; see the header.
#[unsafe(no_mangle)]
extern "C" fn arp_switch_mode(number: u32) {
    query("arp_switch_mode", (), |loaded| {
        let mode = mode(number).ok_or("there is no such mode")?;
        let switched = loaded.profile.switch_mode(mode);
        switched.map_err(|_| "the data do not have what that mode needs")
    });
}

/// Frees the loaded data.
#[unsafe(no_mangle)]
extern "C" fn arp_free_data() {
    *loaded() = None;
}

/// Number of sets of values.
#[unsafe(no_mangle)]
extern "C" fn arp_get_data_mult() -> u32 {
    query("arp_get_data_mult", 0, |loaded| {
        Ok(loaded.profile.sets().len() as u32)
    })
}

/// Type of a set of values.
#[unsafe(no_mangle)]
extern "C" fn arp_get_data_type(index: u32) -> u32 {
    query("arp_get_data_type", 0, |loaded| {
        let set = loaded.profile.sets().get(index as usize);
        set.map(|set| set.data_type as u32)
            .ok_or("there is no such set of values")
    })
}

/// Number of traces.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
extern "C" fn arp_get_nTraces() -> u32 {
    query("arp_get_nTraces", 0, |loaded| {
        u32::try_from(loaded.profile.len()).map_err(|_| "there are too many traces")
    })
}

/// The name of a section.
#[unsafe(no_mangle)]
extern "C" fn arp_get_section_name(sid: u16) -> *const c_char {
    query("arp_get_section_name", std::ptr::null(), |loaded| {
        let name = loaded.names.get(&Sid(sid.into()));
        Ok(name.map_or(std::ptr::null(), |name| name.as_ptr()))
    })
}

/// Target of an `arp_trace` pointer.
struct Trace {
    stack: Vec<Step>,
    count: u64,
    thread: c_int,
    values: Vec<Area>,
    stats: Vec<Stats>,
    quantiles: Vec<Option<arp_core::Histogram>>,
    mode: Mode,
}

/// A trace; see the header.
#[unsafe(no_mangle)]
extern "C" fn arp_get_trace(number: u32) -> *mut c_void {
    query("arp_get_trace", std::ptr::null_mut(), |loaded| {
        let (profile, index) = (&loaded.profile, number as usize);
        if index >= profile.len() {
            return Err("there is no such trace");
        }
        let sets: Vec<DataType> = profile.sets().iter().map(|s| s.data_type).collect();
        let mut values = vec![Area::default(); sets.len()];
        for (set, area) in values.iter_mut().enumerate() {
            if let Some(value) = profile.value(index, set) {
                area.set(sets[set], value);
            }
        }
        let range = 0..sets.len();
        let trace = Trace {
            stack: profile.stack(index),
            count: profile.count(index),
            thread: profile.thread(index).map_or(-1, |t| t.0 as c_int),
            values,
            stats: range
                .clone()
                .filter_map(|set| profile.stats(index, set))
                .collect(),
            quantiles: range
                .map(|set| profile.histogram(index, set).cloned())
                .collect(),
            mode: profile.mode(),
        };
        Ok(Box::into_raw(Box::new(trace)).cast())
    })
}

/// Frees a trace.
///
/// # Safety
/// `trace` comes from `arp_get_trace` and has not been freed, or is null.
#[unsafe(no_mangle)]
unsafe extern "C" fn arp_free_trace(trace: *mut c_void) {
    if !trace.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(trace.cast::<Trace>()) });
    }
}

/// # Safety
/// `trace` comes from `arp_get_trace` and has not been freed, or is null.
unsafe fn with<R>(
    function: &'static str,
    trace: *mut c_void,
    or: R,
    work: impl FnOnce(&Trace) -> Option<R>,
) -> R {
    // SAFETY: the caller's promise.
    let result = unsafe { trace.cast::<Trace>().as_ref() }.map(work);
    let reason = match result {
        Some(Some(result)) => return result,
        Some(None) => "the index, or what is there, is too large",
        None => "there is no trace",
    };
    let errors = loaded().as_ref().map_or(Errors::NONE, |l| l.errors);
    end::tell(&errors, &Problem::OutOfOrder { function, reason });
    or
}

/// Defines functions that answer from a trace; the value after `or` is for a trace or an index that is not there.
macro_rules! of_trace {
    ($($(#[$about:meta])* fn $name:ident($trace:ident $(, $arg:ident: $type:ty)*) -> $result:ty, or $or:expr => $found:expr;)*) => {$(
        $(#[$about])*
        ///
        /// # Safety
        /// `trace` comes from `arp_get_trace` and has not been freed, or is null.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(trace: *mut c_void $(, $arg: $type)*) -> $result {
            let found = |$trace: &Trace| $found;
            // SAFETY: the caller's promise.
            unsafe { with(stringify!($name), trace, $or, found) }
        }
    )*};
}

of_trace! {
    /// Number of executions that a trace stands for.
    fn arp_trace_get_count(t) -> u32, or 0 => Some(u32::try_from(t.count).unwrap_or(u32::MAX));
    /// Number of open sections of a trace.
    fn arp_trace_get_stack_length(t) -> u32, or 0 => Some(t.stack.len() as u32);
    /// The section of a trace at a depth.
    fn arp_trace_get_stack_pos(t, depth: u32) -> u16, or 0 => u16::try_from(t.stack.get(depth as usize)?.sid.0).ok();
    /// The counter of a trace at a depth.
    fn arp_trace_get_stack_index(t, depth: u32) -> c_int, or 0 => c_int::try_from(t.stack.get(depth as usize)?.counter).ok();
    /// A value of a trace in C's representation.
    fn arp_trace_get_value(t, set: u32) -> *const c_void, or std::ptr::null() =>
        t.values.get(set as usize).map(|area| (&raw const *area).cast());
    /// The thread of a trace; -1 if it is not known.
    fn arp_trace_get_thread(t) -> c_int, or -1 => Some(t.thread);
    /// The mean of a trace's values.
    fn arp_trace_get_mean(t, set: u32) -> f64, or f64::NAN => t.stats.get(set as usize).map(Stats::mean);
    /// The minimum of a trace's values.
    fn arp_trace_get_minimum(t, set: u32) -> f64, or f64::NAN => t.stats.get(set as usize).map(Stats::min);
    /// The maximum of a trace's values.
    fn arp_trace_get_maximum(t, set: u32) -> f64, or f64::NAN => t.stats.get(set as usize).map(Stats::max);
    /// A quantile of a trace's values.
    fn arp_trace_get_quantile(t, set: u32, q: f64) -> f64, or f64::NAN => {
        let stats = t.stats.get(set as usize)?;
        Some(match t.quantiles.get(set as usize) {
            Some(Some(histogram)) => histogram.quantile(q),
            _ if q <= 0.0 => stats.min(),
            _ if q >= 1.0 || t.mode == Mode::RecordAll => stats.max(),
            _ => f64::NAN,
        })
    };
}
