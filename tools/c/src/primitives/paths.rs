//! Call paths: `include/atom.paths.h`.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::{Mutex, PoisonError};

use atom_tool::paths::{CallPaths, PathNode, PathOptions, PathState, Spot, Tree, amounts};
use atom_tool::{AllThreads, Place, Placed};

use super::handles::{fail, of_block, proc, program, stop, word};
use super::placed::{Data, data, keep};
use super::sites;

/// C's `PathOptions`.
#[repr(C)]
struct Options {
    by_site: c_int,
    repeats: c_int,
    most: c_long,
}

/// The call paths of a tool.
pub type Followed = Mutex<CallPaths>;

/// The argument for parameters `PATH` and `PATHS`.
pub fn argument(paths: &Followed, is_all: bool) -> Placed {
    let state = lock(paths).state;
    if is_all {
        Placed::all_paths(state)
    } else {
        Placed::path(state)
    }
}

fn lock(paths: &Followed) -> std::sync::MutexGuard<'_, CallPaths> {
    paths.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The call paths with a handle.
fn followed(handle: usize, primitive: &str) -> &'static Followed {
    match data(handle, primitive) {
        Data::Paths(paths) => paths,
        _ => stop(primitive, "these are no call paths"),
    }
}

/// # Safety
/// `options` is NULL or can be read.
#[unsafe(no_mangle)]
unsafe extern "C" fn AddCallPaths(options: *const Options) -> usize {
    const NAME: &str = "AddCallPaths";
    static IS_ADDED: Mutex<bool> = Mutex::new(false);
    let mut is_added = IS_ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::replace(&mut *is_added, true) {
        stop(NAME, "call paths were added before");
    }
    // SAFETY: the caller's promise.
    let options = match unsafe { options.as_ref() } {
        None => PathOptions::default(),
        Some(options) => match (u32::try_from(options.repeats), u64::try_from(options.most)) {
            (Ok(repeats), Ok(most)) if most > 0 => PathOptions {
                by_site: options.by_site != 0,
                repeats,
                most,
            },
            _ => stop(NAME, "`repeats` is at least 0, and `most` at least 1"),
        },
    };
    let paths = CallPaths::add(&program(), options);
    keep(Data::Paths(Box::leak(Box::new(Mutex::new(paths)))))
}

#[unsafe(no_mangle)]
extern "C" fn PathProcs(handle: usize) -> usize {
    let procs = lock(followed(handle, "PathProcs")).procs.clone();
    keep(sites::complete(procs))
}

#[unsafe(no_mangle)]
extern "C" fn PathCalls(handle: usize) -> usize {
    let calls = lock(followed(handle, "PathCalls")).calls.clone();
    keep(sites::complete(calls))
}

#[unsafe(no_mangle)]
extern "C" fn PathProcNumber(handle: usize, of: usize) -> c_int {
    const NAME: &str = "PathProcNumber";
    let of = proc(of, NAME);
    lock(followed(handle, NAME)).number(of) as c_int
}

/// # Safety
/// The name is a string of C; `amount` is a function that takes the handle of a block.
#[unsafe(no_mangle)]
unsafe extern "C" fn AddCallAmounts(
    of: usize,
    paths: usize,
    routine: *const c_char,
    amount: Option<extern "C" fn(usize) -> c_long>,
) {
    const NAME: &str = "AddCallAmounts";
    let Some(amount) = amount else {
        stop(NAME, "the function that gives the amounts is NULL");
    };
    // SAFETY: the caller's promise.
    let routine = unsafe { word(routine, NAME) };
    let (of, path) = (proc(of, NAME), argument(followed(paths, NAME), false));
    let spots = amounts(of, |block| amount(of_block(Some(block))) as u64);
    for (spot, sum) in spots {
        let args = [path.into(), (sum as i64).into()];
        let added = match spot {
            Spot::Block(block) => block.add_call_named(Place::Before, routine, &args),
            Spot::Edge(block, way) => block.add_call_named_on(way, routine, &args),
        };
        added.unwrap_or_else(|e| stop(NAME, e));
    }
}

// From here on: functions for analysis routines.

/// # Safety
/// `path` is an argument of type `PATH`.
#[unsafe(no_mangle)]
unsafe extern "C" fn CalledNode(
    path: *const PathState,
    proc: c_int,
    rsp: u64,
    rbp: u64,
) -> *const PathNode {
    // SAFETY: the caller's promise.
    std::ptr::from_ref(unsafe { (*path).called_here(proc as u32, rsp, rbp) })
}

/// What a parameter `PATHS` is.
///
/// # Safety
/// It is an argument of that type.
unsafe fn all(paths: *const c_void, function: &str) -> AllThreads<PathState> {
    if paths.is_null() {
        fail(function, "the call paths are NULL");
    }
    // SAFETY: the caller's promise: the type is transparent over a pointer.
    unsafe { std::mem::transmute(paths) }
}

/// # Safety
/// `paths` is an argument of type `PATHS`.
#[unsafe(no_mangle)]
unsafe extern "C" fn MergePaths(paths: *const c_void) -> *mut Tree {
    // SAFETY: the caller's promise.
    Box::into_raw(Box::new(Tree::merged(unsafe { all(paths, "MergePaths") })))
}

/// # Safety
/// As for [`MergePaths`].
#[unsafe(no_mangle)]
unsafe extern "C" fn GetThreadPaths(paths: *const c_void, n: c_int) -> *mut Tree {
    // SAFETY: the caller's promise.
    let mut trees = Tree::of_threads(unsafe { all(paths, "GetThreadPaths") });
    let tree = usize::try_from(n).ok().and_then(|n| trees.nth(n));
    tree.map_or(std::ptr::null_mut(), |tree| Box::into_raw(Box::new(tree)))
}

/// # Safety
/// `tree` is NULL, or a result of the functions above that was not freed.
#[unsafe(no_mangle)]
unsafe extern "C" fn FreeCallTree(tree: *mut Tree) {
    if !tree.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(tree) });
    }
}

/// C's `CallNode`.
#[repr(C)]
struct CallNode {
    parent: c_long,
    depth: c_long,
    proc: c_long,
    call: c_long,
    own: u64,
    total: u64,
    entries: u64,
}

/// C's `CallRepeat`.
#[repr(C)]
struct CallRepeat {
    from: c_long,
    to: c_long,
    calls: u64,
}

/// The item of a list with a number of C.
fn item<T>(list: &[T], n: c_long) -> Option<&T> {
    list.get(usize::try_from(n).ok()?)
}

/// Writes an item for C and returns 1; 0 without an item.
///
/// # Safety
/// `to` may be written.
unsafe fn give<T>(item: Option<T>, to: *mut T) -> c_int {
    match item {
        // SAFETY: the caller's promise.
        Some(item) => unsafe {
            to.write(item);
            1
        },
        None => 0,
    }
}

/// # Safety
/// `tree` was not freed; `to` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn GetCallNode(tree: *const Tree, n: c_long, to: *mut CallNode) -> c_int {
    let number = |of: Option<usize>| of.map_or(-1, |n| n as c_long);
    // SAFETY: the caller's promise.
    unsafe {
        let node = item(&(*tree).nodes, n).map(|node| CallNode {
            parent: node.parent as c_long,
            depth: node.depth as c_long,
            proc: number(node.proc),
            call: number(node.call),
            own: node.own,
            total: node.total,
            entries: node.calls,
        });
        give(node, to)
    }
}

/// # Safety
/// As for [`GetCallNode`].
#[unsafe(no_mangle)]
unsafe extern "C" fn IsOutermostNode(tree: *const Tree, n: c_long) -> c_int {
    // SAFETY: the caller's promise.
    let tree = unsafe { &*tree };
    item(&tree.nodes, n)
        .is_some_and(|node| node.is_outermost)
        .into()
}

/// # Safety
/// As for [`GetCallNode`].
#[unsafe(no_mangle)]
unsafe extern "C" fn GetCallRepeat(tree: *const Tree, n: c_long, to: *mut CallRepeat) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let repeat = item(&(*tree).repeats, n).map(|repeat| CallRepeat {
            from: repeat.from as c_long,
            to: repeat.to as c_long,
            calls: repeat.calls,
        });
        give(repeat, to)
    }
}

/// # Safety
/// As for [`GetCallNode`].
#[unsafe(no_mangle)]
unsafe extern "C" fn GetPathValue(
    tree: *const Tree,
    n: c_long,
    value: *mut u64,
    node: *mut c_long,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some((own, at)) = item(&(*tree).kept, n) else {
            return 0;
        };
        give(Some(*own), value) & give(Some(*at as c_long), node)
    }
}
