//! Adding the calls: at each point first the ends of sections, the innermost first, then the
//! begins, the outermost first.

use std::cmp::Reverse;
use std::collections::HashMap;

use atom_tool::ThreadData;
use atom_tool::prelude::*;

use crate::context::{Role, Site};
use crate::find::Found;
use crate::find::region::Point;
use crate::run::{self, Thread};

/// An action at a point.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Leave,
    LeaveScope,
    Enter,
}

struct Task {
    action: Action,
    /// Index in the table of sections.
    section: u32,
    /// Order of nesting: outer sections have greater ranks.
    rank: (usize, Reverse<Role>, u32),
}

/// Adds all calls of these sections.
pub fn weave<'a>(sites: &[Site<'a>], found: &Found<'a>, thread: ThreadData<Thread>) {
    let mut points: HashMap<&Point<'a>, Vec<Task>> = HashMap::new();
    for (i, site) in sites.iter().enumerate() {
        let section = i as u32;
        let lists = [
            (&site.border.leaves, Action::Leave),
            (&site.border.enters, Action::Enter),
        ];
        for (list, action) in lists {
            for point in list {
                points.entry(point).or_default().push(Task {
                    action,
                    section,
                    rank: (site.size, Reverse(site.role), section),
                });
            }
        }
    }
    for point in &found.scope_ends {
        points.entry(point).or_default().push(Task {
            action: Action::LeaveScope,
            section: 0,
            rank: (0, Reverse(Role::Call), 0),
        });
    }
    let mut points: Vec<_> = points.into_iter().collect();
    points.sort_by_key(|p| (p.0.address(), p.1.first().map(|t| t.section)));
    for (point, mut tasks) in points {
        let (mut leaves, mut enters): (Vec<Task>, Vec<Task>) =
            tasks.drain(..).partition(|t| t.action != Action::Enter);
        leaves.sort_by_key(|t| t.rank);
        enters.sort_by_key(|t| Reverse(t.rank));
        for task in leaves.iter().chain(&enters) {
            match point {
                Point::Before(inst)
                    if task.action == Action::Enter && found.with_start.contains(point) =>
                {
                    let args = (thread, task.section, Reg::Rsp, Reg::Rdi);
                    inst.add_call(Before, run::enter_from, args);
                }
                _ => add(point, task, thread),
            }
        }
    }
}

fn add(point: &Point<'_>, task: &Task, thread: ThreadData<Thread>) {
    let args = (thread, task.section, Reg::Rsp);
    let routine = match (point, task.action) {
        (_, Action::LeaveScope) => run::leave_scope,
        (Point::Perhaps(_), Action::Enter) => run::enter_if_closed,
        (Point::Perhaps(_), Action::Leave) => run::leave_if_open,
        (_, Action::Enter) => run::enter,
        (_, Action::Leave) => run::leave,
    };
    match point {
        Point::Before(inst) => inst.add_call(Before, routine, args),
        Point::After(inst) => inst.add_call(After, routine, args),
        Point::Way(block, way) => {
            block.add_call_on::<(PerThread<Thread>, u32, RegV)>(*way, routine, args)
        }
        Point::Perhaps(block) => block.add_call(Before, routine, args),
        Point::Table(inst, targets) => {
            let pc = inst.pc();
            let offsets: Vec<i64> = targets.iter().map(|t| t.wrapping_sub(pc) as i64).collect();
            let enters = task.action == Action::Enter;
            let what = (
                thread,
                task.section,
                enters,
                Reg::Rsp,
                BranchTarget,
                Reg::Pc,
                &offsets,
            );
            inst.add_call(Before, run::table, what);
        }
    }
}

/// Adds the calls that count instructions, so that a thread's number is right at
/// each point where a section begins or ends.
pub fn count(program: &Program<'_>, sites: &[Site<'_>], thread: ThreadData<Thread>) {
    let borders = sites
        .iter()
        .flat_map(|s| s.border.enters.iter().chain(&s.border.leaves));
    let inside: std::collections::HashSet<usize> = borders
        .filter_map(|p| match p {
            Point::Before(inst) => Some(inst.index()),
            _ => None,
        })
        .collect();
    for block in program.procs().flat_map(|p| p.blocks()) {
        // From each such point on, up to the next one.
        let mut start = block.first_inst();
        let mut n = 0u64;
        for inst in block.insts() {
            if inside.contains(&inst.index()) && n != 0 {
                start.add_call(Before, run::count, (thread, n));
                (start, n) = (inst, 0);
            }
            n += 1;
        }
        start.add_call(Before, run::count, (thread, n));
    }
}

/// Functions that make a thread and store its number where their first argument points.
const MAKES_THREAD: [&str; 3] = ["pthread_create", "thrd_create", "_M_start_thread"];

/// Adds the calls at which threads are made, so that they begin in the sections
/// that are open there.
pub fn spawns(program: &Program<'_>, thread: ThreadData<Thread>) {
    for block in program.procs().flat_map(|p| p.blocks()) {
        let last = block.last_inst();
        if !last.is_type(InstType::Call) {
            continue;
        }
        let name = last.called_name().ok().flatten().unwrap_or_default();
        if MAKES_THREAD.iter().any(|n| name.contains(n)) {
            last.add_call(Before, run::spawning, (thread, Reg::Rdi));
            // This C++ function throws if it fails and returns nothing.
            if name.contains("_M_start_thread") {
                last.add_call(After, run::spawned_surely, (thread,))
            } else {
                last.add_call(After, run::spawned, (thread, Reg::Rax))
            }
        }
    }
}
