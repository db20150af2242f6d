//! Lists of sites and of strings: collected by the instrument routine, read by analysis routines.
//!
//! A list grows until a call is added with it, since the call copies it.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use atom_tool::{NamedArg, SiteList, Sites, StringList, Strings};

use super::handles::{block, fail, inst, proc, stop, word};
use super::placed::{Data, Growing, List, data, keep};

/// A new list, which lives for ever.
pub fn new(list: List) -> Data {
    Data::List(Box::leak(Box::new(Mutex::new(list))))
}

/// A list of sites that is complete.
pub fn complete(sites: SiteList) -> Data {
    new(List::Sites(Growing::Open(sites)))
}

fn lock(list: &Mutex<List>) -> MutexGuard<'_, List> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The list as an argument.
pub fn argument(list: &Mutex<List>) -> NamedArg<'static> {
    match &mut *lock(list) {
        List::Sites(sites) => sites.give().into(),
        List::Strings(strings) => strings.give().into(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn MakeSites() -> usize {
    keep(complete(SiteList::new()))
}

#[unsafe(no_mangle)]
extern "C" fn MakeStrings() -> usize {
    keep(new(List::Strings(Growing::Open(StringList::new()))))
}

/// Changes the sites with a handle.
fn push(handle: usize, primitive: &str, push: impl FnOnce(&mut SiteList) -> usize) -> c_long {
    if let Data::List(list) = data(handle, primitive)
        && let List::Sites(sites) = &mut *lock(list)
    {
        return push(sites.open(primitive)) as c_long;
    }
    stop(primitive, "this is no list of sites")
}

#[unsafe(no_mangle)]
extern "C" fn PushSite(sites: usize, handle: usize) -> c_long {
    const NAME: &str = "PushSite";
    push(sites, NAME, |sites| sites.push(inst(handle, NAME)))
}

#[unsafe(no_mangle)]
extern "C" fn PushBlockSite(sites: usize, handle: usize) -> c_long {
    const NAME: &str = "PushBlockSite";
    push(sites, NAME, |sites| sites.push_block(block(handle, NAME)))
}

#[unsafe(no_mangle)]
extern "C" fn PushProcSite(sites: usize, handle: usize) -> c_long {
    const NAME: &str = "PushProcSite";
    push(sites, NAME, |sites| sites.push_proc(proc(handle, NAME)))
}

/// # Safety
/// The text is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn PushString(strings: usize, text: *const c_char) -> c_int {
    const NAME: &str = "PushString";
    // SAFETY: the caller's promise.
    let text = unsafe { word(text, NAME) };
    if let Data::List(list) = data(strings, NAME)
        && let List::Strings(strings) = &mut *lock(list)
    {
        return strings.open(NAME).intern(text) as c_int;
    }
    stop(NAME, "this is no list of strings")
}

// From here on: functions for analysis routines.

/// What a parameter `SITES` is.
///
/// # Safety
/// It is an argument of that type.
pub unsafe fn sites(at: *const c_void, function: &str) -> Sites {
    if at.is_null() {
        fail(function, "the sites are NULL");
    }
    // SAFETY: the caller's promise: the type is transparent over a pointer.
    unsafe { std::mem::transmute(at) }
}

/// A site, as C sees it.
#[repr(C)]
pub struct CSite {
    pc: u64,
    proc: *const c_char,
    proc_pc: u64,
    file: *const c_char,
    line: c_int,
    length: c_int,
}

impl CSite {
    /// The site of which this is a copy.
    ///
    /// # Safety
    /// The strings are those of a list.
    pub unsafe fn site(&self) -> atom_tool::Site {
        let text = |at| {
            // SAFETY: the caller's promise: such strings live as long as the program.
            let bytes: &'static [u8] = unsafe { crate::varargs::bytes(at) };
            std::str::from_utf8(bytes).unwrap_or_default()
        };
        atom_tool::Site {
            pc: self.pc,
            proc: text(self.proc),
            proc_pc: self.proc_pc,
            file: text(self.file),
            line: self.line as u32,
            len: self.length as u32,
        }
    }
}

/// A string of a list for C: a null is after it, but after an empty one that stands for none.
fn for_c(text: &'static str) -> *const c_char {
    match text {
        "" => c"".as_ptr(),
        text => text.as_ptr().cast(),
    }
}

/// # Safety
/// `all` is an argument of type `SITES`; `to` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn GetSite(all: *const c_void, n: c_long, to: *mut CSite) -> c_int {
    // SAFETY: the caller's promise.
    let all = unsafe { sites(all, "GetSite") };
    let Some(site) = usize::try_from(n).ok().and_then(|n| all.get(n)) else {
        return 0;
    };
    let site = CSite {
        pc: site.pc,
        proc: for_c(site.proc),
        proc_pc: site.proc_pc,
        file: for_c(site.file),
        line: site.line as c_int,
        length: site.len as c_int,
    };
    // SAFETY: the caller's promise.
    unsafe { to.write(site) };
    1
}

/// # Safety
/// `all` is an argument of type `STRINGS`.
#[unsafe(no_mangle)]
unsafe extern "C" fn GetString(all: *const c_void, key: c_int) -> *const c_char {
    if all.is_null() {
        fail("GetString", "the strings are NULL");
    }
    // SAFETY: the caller's promise: the type is transparent over a pointer.
    let all: Strings = unsafe { std::mem::transmute(all) };
    for_c(all.get(key as u32))
}
