//! The start of the runtime.
//!
//! ABI: [`start`] is called once, before any code of the application, or while no thread of it runs ([`super::attached`]), with the
//! kernel's process stack (argc, argv, null, environment, null, auxiliary
//! vector); the thread pointer may still be 0.

use core::ffi::{c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use atom_abi::StartInfo;

use crate::c::environment::set_environment;
use crate::lifecycle::{actions, dispositions, faults, windows};
use crate::process::{identity, info, objects, run, told};
use crate::sys::{broker, segments, stacks};
use crate::threads::data;

/// An entry of an initialiser array.
type Initialiser = extern "C" fn(usize, *const usize, *const *const c_char);

static BEGIN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Sets what runs before all other code of the tool: its constructors and the calls at ProgramBefore.
pub fn set_begin_hook(hook: fn()) {
    BEGIN.store(hook as *mut c_void, Ordering::Release);
}

/// Starts the runtime; see [`atom_abi::ToolHeader::start`].
///
/// # Safety
/// Called by the instrumented program's start stub, once, before any other
/// analysis code, with `info` as described there and `stack` pointing to the
/// argument count on the process's initial stack.
pub unsafe extern "C" fn start(info: *const StartInfo, stack: *const usize) {
    if info::get().is_some() {
        return;
    }
    // SAFETY: the caller's promise about both pointers; the stack's layout is the kernel's ABI.
    unsafe {
        let argc = *stack;
        let argv = stack.add(1);
        let envp = argv.add(argc + 1).cast::<*const c_char>();
        let mut end = envp;
        while !(*end).is_null() {
            end = end.add(1);
        }
        info::set_auxv(end.add(1).cast());
        segments::begin(info::getauxval(libc::AT_HWCAP2 as usize));
        stacks::begin();
        info::set(info);
        set_environment(envp);
        identity::begin();
        data::begin();

        run::begin();
        let info = &*info;
        if let Some(process) = info.process.as_ref() {
            objects::begin(process);
        }
        if let Some(named) = told::named() {
            info::replace_auxval(libc::AT_EXECFN as usize, named as usize);
        }
        if run::is_attached() {
            dispositions::take_over();
        } else if actions::are_seen() {
            dispositions::begin();
        }
        faults::begin();
        broker::begin();
        windows::begin();
        run::show_path();
        let begin = BEGIN.load(Ordering::Acquire);
        if !begin.is_null() {
            // Only `set_begin_hook` writes it, always with a `fn()`.
            let begin: fn() = core::mem::transmute(begin);
            begin();
        }
        for i in 0..info.init_count {
            let function = *info.init_array.add(i);
            // The array may hold 0 and -1 as markers, as the ABI for it says.
            if function != 0 && function != usize::MAX {
                let function: Initialiser = core::mem::transmute(function);
                function(argc, argv, envp);
            }
        }
        (info.program_before)();
    }
}
