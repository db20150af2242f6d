//! Functions of the C interface before the recording starts, and its start.
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use arp_core::{DataType, Format, Mode, Problem, Section, SectionKind, Session, Sid, ValueSet};

use crate::active::{self, Active, LockCallback, active, handler, is_running, mode};
use crate::context::{CallbackSet, Context, EnterLeave, SpawnJoin};
use crate::end::{self, end_if_due};
use crate::report::{ErrorCallback, Errors};
use crate::{fork, system};

struct Setup {
    sets: Vec<CallbackSet>,
    path: Option<PathBuf>,
    format: Format,
    sections: Vec<Section>,
}

static SETUP: Mutex<Setup> = Mutex::new(Setup {
    sets: Vec::new(),
    path: None,
    format: Format::Ascii,
    sections: Vec::new(),
});

fn setup() -> MutexGuard<'static, Setup> {
    SETUP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports an invalid call, to the recording's error callback if there is one.
fn refuse(function: &'static str, reason: &'static str) {
    let problem = Problem::OutOfOrder { function, reason };
    match active() {
        Some(active) => active.report(&problem),
        None => end::tell(&Errors::NONE, &problem),
    }
    end_if_due();
}

/// Adds a set of callbacks; see the header.
#[unsafe(no_mangle)]
extern "C" fn arp_add_callbacks(
    data_type: u32,
    enter: Option<EnterLeave>,
    leave: Option<EnterLeave>,
    spawn: Option<SpawnJoin>,
    join: Option<SpawnJoin>,
    context: *mut c_void,
) {
    let function = "arp_add_callbacks";
    if is_running() {
        return refuse(function, "called after arp_start");
    }
    let Some(data_type) = DataType::from_number(data_type.into()) else {
        return refuse(function, "there is no such data type");
    };
    if enter.is_none() || leave.is_none() {
        return refuse(function, "an enter and a leave callback are needed");
    }
    let context = Context(context);
    setup().sets.push(CallbackSet {
        data_type,
        enter,
        leave,
        spawn,
        join,
        context,
    });
}

/// Names the data file; see the header.
///
/// # Safety
/// `name` is null or ends with a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn arp_set_file_name(name: *const c_char) {
    if is_running() {
        return refuse("arp_set_file_name", "called after arp_start");
    }
    // SAFETY: the caller's promise.
    setup().path = unsafe { path(name) };
}

/// # Safety
/// `name` is null or ends with a zero byte.
pub(crate) unsafe fn path(name: *const c_char) -> Option<PathBuf> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    (!bytes.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(bytes)))
}

/// Chooses the data file's format; see the header.
#[unsafe(no_mangle)]
extern "C" fn arp_set_output_file_format(format: u32) {
    let function = "arp_set_output_file_format";
    if is_running() {
        return refuse(function, "called after arp_start");
    }
    setup().format = match format {
        0 => Format::Ascii,
        1 => Format::Binary,
        _ => return refuse(function, "there is no such format"),
    };
}

/// Describes a section; see the header.
///
/// # Safety
/// The texts are null or end with a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn arp_describe_section(
    sid: u16,
    kind: c_int,
    name: *const c_char,
    file: *const c_char,
    line: u32,
    end_line: u32,
) {
    // SAFETY: the caller's promise.
    let text = |text: *const c_char| match unsafe { path(text) } {
        Some(path) => path.to_string_lossy().into_owned(),
        None => String::new(),
    };
    let Some(kind) = u64::try_from(kind).ok().and_then(SectionKind::from_number) else {
        return refuse("arp_describe_section", "there is no such kind");
    };
    let section = Section {
        sid: Sid(sid.into()),
        kind,
        name: text(name),
        file: text(file),
        line,
        end_line,
    };
    match active().filter(|_| is_running()) {
        Some(active) => {
            if let Err(error) = active.session.add_sections(&[section]) {
                active.report(&error.into());
            }
            end_if_due();
        }
        None => setup().sections.push(section),
    }
}

/// Starts the recording; see the header.
#[unsafe(no_mangle)]
extern "C" fn arp_start(
    max_tid: u16,
    max_sid: u16,
    mode_number: u32,
    error: Option<ErrorCallback>,
    error_context: *mut c_void,
    lock: Option<LockCallback>,
    unlock: Option<LockCallback>,
    lock_context: *mut c_void,
) {
    let errors = Arc::new(Errors {
        callback: error,
        context: Context(error_context),
    });
    let fail = |problem: Problem| {
        if !is_running() {
            active::fail();
        }
        end::tell(&errors, &problem);
    };
    let refuse = |reason| {
        fail(Problem::OutOfOrder {
            function: "arp_start",
            reason,
        })
    };
    if is_running() {
        return refuse("called twice");
    }
    let Some(mode) = mode(mode_number) else {
        return refuse("there is no such mode");
    };
    if lock.is_some() != unlock.is_some() {
        return refuse("a lock callback needs an unlock callback, and the other way round");
    }
    let (sets, session) = {
        let mut setup = setup();
        if setup.sets.is_empty() {
            drop(setup);
            return refuse("arp_add_callbacks has not been called");
        }
        let sets = std::mem::take(&mut setup.sets);
        let path = setup
            .path
            .take()
            .unwrap_or_else(|| PathBuf::from("data.arp"));
        (
            sets.clone(),
            builder(
                mode,
                &sets,
                max_sid,
                setup.format,
                path,
                &mut setup.sections,
            ),
        )
    };
    let session = match session.on_problem(handler(Arc::clone(&errors))).start() {
        Ok(session) => session,
        Err(error) => return fail(error.into()),
    };
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        fork::prepare();
        system::prepare_fences();
        // A program that ends without `arp_finish` keeps its data.
        // SAFETY: the function lives as long as the process.
        unsafe { libc::atexit(at_exit) };
    });
    let locks = (lock, unlock, Context(lock_context));
    Active::new(session, max_tid, sets, locks).begin();
}

fn builder(
    mode: Mode,
    sets: &[CallbackSet],
    max_sid: u16,
    format: Format,
    path: PathBuf,
    sections: &mut Vec<Section>,
) -> arp_core::SessionBuilder {
    let mut builder = Session::builder(mode)
        .file(path)
        .format(format)
        .max_sid(Sid(max_sid.into()));
    for set in sets {
        let (data_type, name) = (set.data_type, String::new());
        builder = builder.values(ValueSet { data_type, name });
    }
    for section in sections.drain(..) {
        builder = builder.section(section);
    }
    builder
}

extern "C" fn at_exit() {
    end::finish_quietly();
}
