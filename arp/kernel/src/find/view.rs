//! A view of the program for finding sections: procedures with their fragments, and results that are
//! needed more than once.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use atom_tool::{Block, Edge, Inst, InstType, Loops, Proc, Program, Reg};

/// A procedure with its fragments.
pub struct Family<'a> {
    /// The procedure itself.
    pub proc: Proc<'a>,
    /// All blocks, in address order.
    pub blocks: Vec<Block<'a>>,
    /// The natural loops.
    pub loops: Loops<'a>,
    /// Blocks at which control can enter.
    pub entries: HashSet<Block<'a>>,
    edges: HashMap<Block<'a>, Vec<Edge<'a>>>,
    own: RefCell<HashMap<(String, String), Rc<Own>>>,
}

/// The position of an instruction in one function of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct SourcePlace {
    /// Line in that function: of the instruction, or of the inlined call that
    /// it comes from.
    pub line: u32,
    /// Number of the copy of the function, by inlining.
    pub copy: u32,
    /// The instruction is the function's own and does not come from an inlined call.
    pub own: bool,
}

/// The instructions of a procedure and its fragments that come from one function of the source.
#[derive(Default)]
pub struct Own {
    /// Position of each instruction, by its number.
    pub places: HashMap<usize, SourcePlace>,
}

impl<'a> Family<'a> {
    fn new(proc: Proc<'a>) -> Self {
        let mut seen: HashSet<Block> = proc.blocks().collect();
        let mut work: Vec<Block> = seen.iter().copied().collect();
        let mut edges = HashMap::new();
        while let Some(block) = work.pop() {
            let successors = block.successors();
            let around = block.predecessors();
            for next in successors.iter().chain(&around).filter_map(|e| e.block) {
                if seen.insert(next) {
                    work.push(next);
                }
            }
            edges.insert(block, successors);
        }
        let mut blocks: Vec<Block> = seen.into_iter().collect();
        blocks.sort_by_key(|b| b.index());
        let entries = proc.entries().into_iter().collect();
        Self {
            proc: whole(proc, &blocks, &entries),
            loops: proc.loops(),
            entries,
            blocks,
            edges,
            own: RefCell::default(),
        }
    }

    /// Edges to the blocks that control may enter after a block.
    pub fn successors(&self, block: Block<'a>) -> &[Edge<'a>] {
        self.edges.get(&block).map_or(&[], |e| e)
    }

    /// All instructions.
    pub fn insts(&self) -> impl Iterator<Item = Inst<'a>> + '_ {
        self.blocks.iter().flat_map(|b| b.insts())
    }

    /// The instructions that come from this function of this source file.
    pub fn own(&self, function: &str, file: &str) -> Rc<Own> {
        let key = (function.to_owned(), file.to_owned());
        let known = self.own.borrow().get(&key).cloned();
        known.unwrap_or_else(|| {
            let own = Rc::new(self.find_own(function, file));
            self.own.borrow_mut().insert(key, own.clone());
            own
        })
    }

    fn find_own(&self, function: &str, file: &str) -> Own {
        let mut own = Own::default();
        let mut copies = HashMap::new();
        for inst in self.insts() {
            let frames = inst.source_frames();
            let at = frames
                .iter()
                .position(|f| is_function(f.symbol, function) && is_same_file(f.file, file));
            let Some(at) = at else { continue };
            let Some(line) = frames[at].line else {
                continue;
            };
            let chain: Vec<(&str, _, _)> = frames[at + 1..]
                .iter()
                .map(|f| (f.symbol, f.line, f.column))
                .collect();
            let count = copies.len() as u32;
            let copy = *copies.entry(chain).or_insert(count);
            let own_inst = at == 0;
            let place = SourcePlace {
                line,
                copy,
                own: own_inst,
            };
            own.places.insert(inst.index(), place);
        }
        own
    }
}

/// The procedure that has fragments, among the procedures that these blocks belong to: control enters it.
fn whole<'a>(proc: Proc<'a>, blocks: &[Block<'a>], entries: &HashSet<Block<'a>>) -> Proc<'a> {
    let is_entered = |p: &Proc<'a>| p.first_block().is_some_and(|b| entries.contains(&b));
    let mut procs: Vec<Proc> = blocks.iter().map(|b| b.proc()).collect();
    procs.dedup();
    let mut entered = procs.into_iter().filter(is_entered);
    let named = |p: &&Proc<'a>| !p.symbol().ends_with(".cold");
    entered.find(|p| named(&p)).unwrap_or(proc)
}

/// True for an entry of the procedure linkage table: a few instructions that end in a jump
/// through a fixed slot.
pub fn is_stub(proc: Proc<'_>) -> bool {
    if proc.name().ends_with("@plt") {
        return true;
    }
    let (Some(block), 1) = (proc.first_block(), proc.blocks().len()) else {
        return false;
    };
    let last = block.last_inst();
    let jumps = last.is_type(InstType::Jump) && !last.is_type(InstType::Ret);
    let fixed = || last.memory().iter().any(|m| m.base == Some(Reg::Pc));
    jumps && !last.is_type(InstType::Call) && block.insts().len() <= 4 && fixed()
}

/// An empty name fits every function.
fn is_function(symbol: &str, wanted: &str) -> bool {
    wanted.is_empty() || symbol == wanted
}

/// True if two paths may name the same file. Paths are written in several ways, so only file names
/// are compared.
pub fn is_same_file(a: Option<&str>, b: &str) -> bool {
    a.is_some_and(|a| base(a) == base(b))
}

/// The file name at the end of a path.
pub fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The procedures of a program with their fragments, each computed at its first use.
pub struct View<'a> {
    /// The program.
    pub program: Program<'a>,
    families: RefCell<HashMap<usize, Rc<Family<'a>>>>,
    /// By file name: (line, number of the procedure), sorted.
    lines: OnceCell<HashMap<&'a str, Vec<(u32, u32)>>>,
}

impl<'a> View<'a> {
    /// The view of a program.
    pub fn new(program: &Program<'a>) -> Self {
        Self {
            program: *program,
            families: RefCell::default(),
            lines: OnceCell::new(),
        }
    }

    /// A procedure with its fragments, or the procedure that a fragment belongs to, with all its fragments.
    pub fn family(&self, proc: Proc<'a>) -> Rc<Family<'a>> {
        if let Some(known) = self.families.borrow().get(&proc.index()) {
            return known.clone();
        }
        let family = Rc::new(Family::new(proc));
        let mut families = self.families.borrow_mut();
        families.insert(proc.index(), family.clone());
        for block in &family.blocks {
            families
                .entry(block.proc().index())
                .or_insert_with(|| family.clone());
        }
        family
    }

    fn lines(&self) -> &HashMap<&'a str, Vec<(u32, u32)>> {
        self.lines.get_or_init(|| {
            let mut lines: HashMap<&str, Vec<(u32, u32)>> = HashMap::new();
            for proc in self.program.procs() {
                for inst in proc.blocks().flat_map(|b| b.insts()) {
                    if let Some((file, line)) = inst.line() {
                        let list = lines.entry(base(file)).or_default();
                        let entry = (line, proc.index() as u32);
                        if list.last() != Some(&entry) {
                            list.push(entry);
                        }
                    }
                }
            }
            for list in lines.values_mut() {
                list.sort_unstable();
                list.dedup();
            }
            lines
        })
    }

    /// True if some code comes from the file, by debug information.
    pub fn has_file(&self, file: &str) -> bool {
        self.lines().contains_key(base(file))
    }

    /// The procedures, with their fragments, that have code from these lines of a file.
    pub fn with_lines(&self, file: &str, first: u32, last: u32) -> Vec<Rc<Family<'a>>> {
        let list = self.lines().get(base(file)).map_or(&[][..], |l| l);
        let from = list.partition_point(|e| e.0 < first);
        let to = list.partition_point(|e| e.0 <= last);
        let mut procs: Vec<u32> = list[from..to].iter().map(|e| e.1).collect();
        procs.sort_unstable();
        procs.dedup();
        let all = self.program.procs();
        let mut families: Vec<Rc<Family>> = procs
            .into_iter()
            .filter_map(|p| all.clone().nth(p as usize))
            .map(|p| self.family(p))
            .collect();
        families.sort_by_key(|f| f.proc.index());
        families.dedup_by_key(|f| f.proc.index());
        families
    }
}
