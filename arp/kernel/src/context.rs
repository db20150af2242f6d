//! The context of marked sections: calls and loop iterations that lead to them.
//!
//! A measurement means little without its call path. So each call site that can lead to a marked
//! section is a section of its own, and so is each iteration of a loop around one. Together with
//! their counters they identify each execution. A loop that contains only one such site needs no
//! section for its iterations, as the site's own counter counts them.
//!
//! A call through a pointer can lead to every procedure whose address is taken. So can a call of
//! a library function that calls back.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use atom_tool::{Block, EdgeKind, Inst, InstType, Proc, Way};

use crate::find::region::{Border, Point, Region, is_call};
use crate::find::view::{Family, View, base, is_stub};
use crate::find::{Found, How, MeasuredKind};
use crate::list;
use crate::options::Context;

/// Library functions that call a function that they get as an argument, at once or in another thread.
const CALLS_BACK: [&str; 27] = [
    "__cxa_thread_atexit_impl",
    "bsearch",
    "bsearch_r",
    "call_once",
    "dl_iterate_phdr",
    "ftw",
    "ftw64",
    "glob",
    "glob64",
    "lfind",
    "lsearch",
    "makecontext",
    "nftw",
    "nftw64",
    "pthread_create",
    "pthread_once",
    "qsort",
    "qsort_r",
    "raise",
    "scandir",
    "scandir64",
    "tdestroy",
    "tfind",
    "thrd_create",
    "tsearch",
    "twalk",
    "twalk_r",
];

/// The role of a section.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// The body of `main`.
    Root,
    /// A marked section: its number among the sections that were found.
    Marked(usize),
    /// An iteration of a loop.
    Iteration,
    /// A call.
    Call,
}

/// A section as it is recorded.
pub struct Site<'a> {
    /// Its role.
    pub role: Role,
    /// Its number in data files; the same in each build of the same source.
    pub id: u16,
    /// The text of which the number is a hash.
    key: String,
    /// A name for people.
    pub name: String,
    /// Source file.
    pub file: Option<String>,
    /// First and last line.
    pub lines: Option<(u32, u32)>,
    /// The points at which it begins and ends.
    pub border: Border<'a>,
    /// Number of its instructions: a section has more than the sections inside it.
    pub size: usize,
}

impl Site<'_> {
    /// Source position as `file.c:3-8`, or an empty text.
    pub fn place(&self) -> String {
        list::place(self.file.as_deref(), self.lines)
    }

    /// Its kind, if values of it are recorded.
    pub fn kind(&self, found: &Found<'_>) -> Option<MeasuredKind> {
        match self.role {
            Role::Marked(i) => Some(found.sections[i].kind),
            _ => None,
        }
    }
}

/// All sections, by id.
pub fn sites<'a>(view: &View<'a>, found: &Found<'a>, context: Context) -> Vec<Site<'a>> {
    let mut sites: Vec<Site> = found
        .sections
        .iter()
        .enumerate()
        .map(|(i, section)| {
            let sizes = section.regions.iter().map(|r| r.insts.len());
            Site {
                role: Role::Marked(i),
                id: 0,
                key: match (section.how, &section.file) {
                    // In a stripped program the function has no name.
                    (How::Marker, Some(file)) => format!("marker {} {}", base(file), section.name),
                    (how, _) => format!("{} {} {}", how.name(), section.function, section.name),
                },
                name: section.name.clone(),
                file: section.file.clone(),
                lines: section.lines,
                border: section.border.clone(),
                size: sizes.max().unwrap_or(0),
            }
        })
        .collect();
    if context == Context::None {
        number(&mut sites);
        return sites;
    }
    let graph = Graph::new(view, found);
    for family in graph.families(view) {
        around(&family, &graph, found, &mut sites);
    }
    if let Some(main) = view.program.named_proc("main").filter(|m| graph.leads(*m)) {
        let region = Region::whole(view.family(main));
        sites.push(Site {
            role: Role::Root,
            id: 0,
            key: "root main".to_owned(),
            name: "main".to_owned(),
            file: main.file().map(str::to_owned),
            lines: None,
            border: region.border(),
            size: region.insts.len(),
        });
    }
    number(&mut sites);
    sites
}

/// The name of a function without the suffixes of copies that compilers make.
fn plain(name: &str) -> &str {
    const COPIES: [&str; 6] = [
        ".constprop.",
        ".isra.",
        ".part.",
        ".cold",
        ".llvm.",
        ".lto_priv.",
    ];
    let ends = COPIES.iter().filter_map(|mark| name.find(mark));
    ends.filter(|at| *at > 0)
        .min()
        .map_or(name, |at| &name[..at])
}

/// Gives ids: a hash of the key, or the next free number.
fn number(sites: &mut [Site<'_>]) {
    sites.sort_by(|a, b| a.key.cmp(&b.key));
    let mut taken = HashSet::new();
    for site in sites.iter_mut() {
        // FNV-1a, folded; 0 is no id.
        let hash = site.key.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, b| {
            (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut id = (hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48) as u16;
        while id == 0 || !taken.insert(id) {
            id = id.wrapping_add(1);
        }
        site.id = id;
    }
    sites.sort_by_key(|s| s.id);
}

/// Which procedures can lead to marked sections.
struct Graph<'a> {
    leads: Vec<bool>,
    /// True if a procedure that leads to one can be called through a pointer.
    by_pointer: bool,
    procs: Vec<Proc<'a>>,
}

impl<'a> Graph<'a> {
    fn new(view: &View<'a>, found: &Found<'a>) -> Self {
        let procs: Vec<Proc> = view.program.procs().collect();
        let mut callers: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut by_pointer: Vec<usize> = Vec::new();
        for proc in &procs {
            for block in proc.blocks() {
                let last = block.last_inst();
                match goes_to(last) {
                    Some(Callee::Proc(callee)) => {
                        callers
                            .entry(callee.index())
                            .or_default()
                            .push(proc.index());
                    }
                    Some(Callee::Unknown(_)) => by_pointer.push(proc.index()),
                    None => {}
                }
                // A part of a procedure that is elsewhere.
                if let Some(to) = block.last_inst().target().map(|t| t.proc())
                    && to != *proc
                {
                    callers.entry(to.index()).or_default().push(proc.index());
                }
            }
        }
        by_pointer.dedup();
        let mut graph = Self {
            leads: vec![false; procs.len()],
            by_pointer: false,
            procs,
        };
        let points = found.sections.iter().flat_map(|s| &s.border.enters);
        let mut work: Vec<usize> = points
            .filter_map(|p| Some(view.program.proc_at(p.address())?.index()))
            .collect();
        while let Some(proc) = work.pop() {
            if std::mem::replace(&mut graph.leads[proc], true) {
                continue;
            }
            work.extend(callers.get(&proc).into_iter().flatten());
            let first = graph.procs[proc].first_block();
            // Only the C library calls `main`, not the program.
            let is_main = graph.procs[proc].symbol() == "main";
            if !graph.by_pointer && !is_main && first.is_some_and(|b| b.is_address_taken()) {
                graph.by_pointer = true;
                work.extend(&by_pointer);
            }
        }
        graph
    }

    fn leads(&self, proc: Proc<'a>) -> bool {
        self.leads[proc.index()]
    }

    fn families(&self, view: &View<'a>) -> Vec<Rc<Family<'a>>> {
        let mut seen = HashSet::new();
        let mut families = Vec::new();
        for proc in self.procs.iter().filter(|p| self.leads(**p)) {
            if proc.first_block().is_none() {
                continue;
            }
            let family = view.family(*proc);
            if seen.insert(family.proc.index()) {
                families.push(family);
            }
        }
        families
    }

    /// True if the call or jump may lead to a marked section.
    fn may_lead(&self, callee: &Callee<'a>) -> bool {
        match callee {
            Callee::Proc(proc) => self.leads(*proc),
            Callee::Unknown(_) => self.by_pointer,
        }
    }
}

/// The callee of a call, or of a jump out of its procedure.
enum Callee<'a> {
    Proc(Proc<'a>),
    /// Through a pointer, or a function that calls back.
    Unknown(&'a str),
}

fn goes_to<'a>(inst: Inst<'a>) -> Option<Callee<'a>> {
    let is_call = is_call(inst);
    if is_call {
        let name = inst.called_name().ok().flatten().unwrap_or_default();
        let name = name.split('@').next().unwrap_or_default();
        if let Some(known) = CALLS_BACK.iter().find(|n| **n == name) {
            return Some(Callee::Unknown(known));
        }
        if let Some(callee) = inst.called_proc() {
            return Some(Callee::Proc(callee));
        }
        // An import is known not to call back.
        return name.is_empty().then_some(Callee::Unknown("*"));
    }
    if let Some(target) = inst.target() {
        let callee = target.proc();
        let enters = callee != inst.proc() && target.pc() == callee.pc();
        let is_part = callee.symbol().ends_with(".cold");
        return (enters && !is_part).then_some(Callee::Proc(callee));
    }
    let jumps = inst.is_type(InstType::Jump) && !inst.is_type(InstType::Ret);
    let leaves = || {
        let edges = inst.block().successors();
        edges.iter().all(|e| e.kind != EdgeKind::Table)
    };
    (jumps && !is_stub(inst.proc()) && leaves()).then_some(Callee::Unknown("*"))
}

/// Adds the call sites and iterations of one procedure.
fn around<'a>(
    family: &Rc<Family<'a>>,
    graph: &Graph<'a>,
    found: &Found<'a>,
    sites: &mut Vec<Site<'a>>,
) {
    // Number of sites directly in each loop.
    let mut direct: HashMap<usize, usize> = HashMap::new();
    let mut count = |inner: Option<usize>| {
        if let Some(i) = inner {
            *direct.entry(i).or_default() += 1;
        }
    };
    let caller = plain(family.proc.symbol());
    let mut ordinals: BTreeMap<&str, usize> = BTreeMap::new();
    for &block in &family.blocks {
        let last = block.last_inst();
        let Some(callee) = goes_to(last).filter(|c| graph.may_lead(c)) else {
            continue;
        };
        let (symbol, name) = match callee {
            Callee::Proc(proc) => (plain(proc.symbol()), plain(proc.name())),
            Callee::Unknown(name) => (name, if name == "*" { "(pointer)" } else { name }),
        };
        let ordinal = ordinals.entry(symbol).or_default();
        *ordinal += 1;
        count(block.innermost_loop());
        let mut border = Border::default();
        if is_call(last) {
            border.enters.push(Point::Before(last));
            border.leaves.push(Point::After(last));
        } else {
            // Its end is noticed later, when its frame is gone.
            border.enters.push(Point::Way(block, Way::Taken));
        }
        let line = last.line();
        sites.push(Site {
            role: Role::Call,
            id: 0,
            key: format!("call {caller} {symbol} {ordinal}"),
            name: format!("{} -> {name}", plain(family.proc.name())),
            file: line.map(|l| l.0.to_owned()),
            lines: line.map(|l| (l.1, l.1)),
            border,
            size: 0,
        });
    }
    for section in &found.sections {
        for region in section
            .regions
            .iter()
            .filter(|r| Rc::ptr_eq(&r.family, family))
        {
            count(enclosing(family, region));
        }
        if section.how == How::Marker {
            for point in &section.border.enters {
                if let Point::Before(inst) = point
                    && family
                        .blocks
                        .binary_search_by_key(&inst.block().index(), |b| b.index())
                        .is_ok()
                {
                    count(inst.block().innermost_loop());
                }
            }
        }
    }
    iterations(family, &direct, sites);
}

/// The innermost loop that contains all of a region but whose header is not in the region.
fn enclosing<'a>(family: &Family<'a>, region: &Region<'a>) -> Option<usize> {
    let blocks: Vec<Block> = family
        .blocks
        .iter()
        .copied()
        .filter(|b| b.insts().any(|i| region.has(i)))
        .collect();
    let mut at = blocks.first()?.innermost_loop();
    while let Some(i) = at {
        let item = &family.loops[i];
        let inside: HashSet<Block> = item.blocks.iter().copied().collect();
        let has_head = region.has(item.header.first_inst());
        if !has_head && blocks.iter().all(|b| inside.contains(b)) {
            return at;
        }
        at = item.parent;
    }
    None
}

/// Adds a section for the iterations of each loop that needs one.
fn iterations<'a>(
    family: &Rc<Family<'a>>,
    direct: &HashMap<usize, usize>,
    sites: &mut Vec<Site<'a>>,
) {
    let mut has_inner = vec![false; family.loops.len()];
    for &i in direct.keys() {
        let mut at = family.loops[i].parent;
        while let Some(p) = at {
            has_inner[p] = true;
            at = family.loops[p].parent;
        }
    }
    for (i, item) in family.loops.iter().enumerate() {
        let own = direct.get(&i).copied().unwrap_or(0);
        if !has_inner[i] && own < 2 {
            continue;
        }
        let blocks: HashSet<Block> = item.blocks.iter().copied().collect();
        let region = Region::of_blocks(family.clone(), &blocks);
        let mut border = region.border();
        for &latch in &item.latches {
            for point in back(family, latch, item.header) {
                border.enters.push(point.clone());
                border.leaves.push(point);
            }
        }
        let lines = item.blocks.iter().flat_map(|b| b.insts());
        let lines: Vec<(&str, u32)> = lines.filter_map(|inst| inst.line()).collect();
        let file = item.header.first_inst().line().map(|l| l.0);
        let mine = || lines.iter().filter(|l| Some(l.0) == file).map(|l| l.1);
        sites.push(Site {
            role: Role::Iteration,
            id: 0,
            key: format!("loop {} {i}", plain(family.proc.symbol())),
            name: format!("loop in {}", plain(family.proc.name())),
            file: file.map(str::to_owned),
            lines: mine().min().zip(mine().max()),
            border,
            size: region.insts.len(),
        });
    }
}

/// The points at which control goes from a latch back to the header.
fn back<'a>(family: &Family<'a>, latch: Block<'a>, header: Block<'a>) -> Vec<Point<'a>> {
    let edges = family.successors(latch);
    let tables = edges.iter().filter(|e| e.kind == EdgeKind::Table);
    let mut points = Vec::new();
    for edge in edges.iter().filter(|e| e.block == Some(header)) {
        let point = match (Way::of(edge.kind), edge.kind) {
            (Some(way), _) => Point::Way(latch, way),
            (None, EdgeKind::Table) if tables.clone().count() == 1 => Point::Way(latch, Way::Taken),
            (None, EdgeKind::Table) => Point::Table(latch.last_inst(), vec![header.pc()]),
            _ => continue,
        };
        if !points.contains(&point) {
            points.push(point);
        }
    }
    points
}
