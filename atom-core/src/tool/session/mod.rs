//! State of one run of an instrument routine.
//!
//! The routine calls back through plain functions with a context pointer, so
//! the state is after cells. One thread uses all of it.

mod cache;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;

use crate::x86::{FormatMnemonicOptions, Formatter, Instruction, NasmFormatter};

use cache::Cache;

use super::LineInfo;
use super::application::Application;
use super::calls::Calls;
use super::crossings::Crossings;
use super::load::Tool;
use super::names::demangle;
use super::select::Selected;
use super::space::Space;
use crate::cfg::{Cfg, Numbers, ProcKind, Status};
use crate::error::Reason;
use crate::ids::{InstId, ProcId};
use crate::image::Image;
use crate::x86::class::{Classifier, types_of_flow};
use crate::{Error, Result};

const DOING: &str = "running the tool's instrument routine of";

/// What the sessions of all objects share.
#[derive(Default)]
pub(super) struct Results {
    /// The calls, with the numbers and addresses of the process.
    calls: RefCell<Calls>,
    errors: RefCell<Errors>,
}

/// Errors of one run of an instrument routine.
#[derive(Default)]
struct Errors {
    /// The first error.
    first: Option<Error>,
    /// Number of errors.
    count: usize,
    /// The first error says where in the tool's source it comes from.
    is_placed: bool,
    /// True if a piece of data was not placed. The calls that use it fail for that alone.
    lacks_data: bool,
}

/// State of one run of an instrument routine, as far as it belongs to one object.
pub(super) struct Session<'a> {
    pub(super) tool: &'a Tool,
    /// The numbers that the process has for the object's procedures, blocks and instructions.
    pub(super) numbers: Numbers,
    /// True if the process has several objects.
    pub(super) is_one_of_several: bool,
    /// Path by which the object is loaded.
    pub(super) path: &'a Path,
    pub(super) image: &'a Image,
    pub(super) cfg: &'a Cfg,
    pub(super) lines: &'a dyn LineInfo,
    pub(super) panicked: &'a dyn Fn(&Error) -> Infallible,
    pub(super) selected: Option<&'a Selected>,
    pub(super) crossings: Option<Crossings<'a>>,
    pub(super) classifier: RefCell<Classifier>,
    formatter: RefCell<NasmFormatter>,
    pub(super) calls: &'a RefCell<Calls>,
    errors: &'a RefCell<Errors>,
    /// Strings that were passed to the tool; in boxes, so that they do not move.
    texts: RefCell<Vec<Box<str>>>,
    proc_names: Vec<OnceCell<Box<str>>>,
    by_name: OnceCell<HashMap<String, ProcId>>,
    pub(super) cache: Cache<'a>,
    /// Parts of procedures that are elsewhere, by the whole.
    fragments: OnceCell<HashMap<ProcId, Vec<ProcId>>>,
}

impl Results {
    /// No calls yet; placed data gets this space.
    pub(super) fn with(spaces: [Space; 2]) -> Self {
        let calls = Calls {
            spaces,
            ..Calls::default()
        };
        Self {
            calls: RefCell::new(calls),
            ..Self::default()
        }
    }

    /// The calls, unless there was an error. `code` is the value that the routine returned.
    pub(super) fn finish(self, tool: &Tool, code: i32) -> Result<Calls> {
        let Errors { first, count, .. } = self.errors.into_inner();
        match first {
            Some(mut error) => {
                match count {
                    0 | 1 => {}
                    2 => error.reason.push_str(" (and one more error)"),
                    _ => error
                        .reason
                        .push_str(&format!(" (and {} more errors)", count - 1)),
                }
                Err(error)
            }
            None if code != 0 => Err(Error::new(
                DOING,
                format!("it failed with code {code} and no message"),
            )
            .file(tool.path())),
            None => Ok(self.calls.into_inner()),
        }
    }
}

impl<'a> Session<'a> {
    pub(super) fn new(
        tool: &'a Tool,
        application: Application<'a>,
        (numbers, is_one_of_several): (Numbers, bool),
        results: &'a Results,
        panicked: &'a dyn Fn(&Error) -> Infallible,
    ) -> Self {
        let Application {
            path,
            image,
            cfg,
            lines,
            selected,
            crossings,
            ..
        } = application;
        Self {
            tool,
            numbers,
            is_one_of_several,
            path,
            image,
            cfg,
            lines,
            panicked,
            selected,
            crossings,
            classifier: RefCell::default(),
            formatter: RefCell::new(NasmFormatter::new()),
            calls: &results.calls,
            errors: &results.errors,
            texts: RefCell::default(),
            proc_names: cfg.procs.iter().map(|_| OnceCell::new()).collect(),
            by_name: OnceCell::new(),
            cache: Cache::default(),
            fragments: OnceCell::new(),
        }
    }

    /// Makes an error of the tool.
    pub(super) fn error(&self, reason: impl Into<Reason>) -> Error {
        Error::new(DOING, reason).file(self.tool.path())
    }

    /// Notes an error. The routine continues, and its result is refused later.
    pub(super) fn note(&self, error: Error) {
        let mut errors = self.errors.borrow_mut();
        errors.count += 1;
        errors.first.get_or_insert(error);
    }

    /// Where in the tool's source the call is added that was refused just now. The first error is the one that is told.
    pub(super) fn note_place(&self, file: &str, line: u32) {
        let errors = &mut *self.errors.borrow_mut();
        let is_this = errors.count == 1 && !errors.is_placed && !errors.lacks_data;
        if let Some(error) = errors.first.as_mut().filter(|_| is_this) {
            error.reason.push_str(&format!(" ({file}, line {line})"));
            errors.is_placed = true;
        }
    }

    /// Notes that a piece of data was not placed. Calls that are added from here on are dropped and not judged: a tool
    /// adds one for each block of a large program, and the message of each error takes time to write.
    pub(super) fn note_lack(&self, error: Error) {
        self.note(error);
        self.errors.borrow_mut().lacks_data = true;
    }

    /// True if a piece of data was not placed.
    pub(super) fn lacks_data(&self) -> bool {
        self.errors.borrow().lacks_data
    }

    /// Keeps a string for the tool.
    pub(super) fn keep(&self, text: String) -> &str {
        let text = text.into_boxed_str();
        let kept: *const str = &*text;
        self.texts.borrow_mut().push(text);
        // SAFETY: a box's contents do not move, and `texts` only grows.
        unsafe { &*kept }
    }

    /// A procedure's demangled name.
    pub(super) fn proc_name(&self, id: ProcId) -> &str {
        self.proc_names[id.index()]
            .get_or_init(|| demangle(&self.cfg.proc(id).display_name()).into())
    }

    /// A procedure's name as in the symbol table.
    pub(super) fn proc_symbol(&self, id: ProcId) -> &str {
        match &self.cfg.proc(id).name {
            Some(name) => name,
            None => self.keep(self.cfg.proc(id).display_name()),
        }
    }

    /// The procedure with a name: its own name, an alias, or the demangled name.
    pub(super) fn named_proc(&self, name: &str) -> Option<ProcId> {
        let by_name = self.by_name.get_or_init(|| {
            let mut map = HashMap::new();
            for i in 0..self.cfg.procs.len() {
                let id = ProcId::from_index(i);
                map.entry(self.cfg.proc(id).display_name()).or_insert(id);
            }
            for symbol in self.image.symbols.iter().chain(&self.image.dynamic_symbols) {
                let proc = self.cfg.proc_at(symbol.address);
                if let Some(id) = proc.filter(|id| self.cfg.proc(*id).start == symbol.address)
                    && symbol.is_func
                    && !symbol.is_undefined
                {
                    map.entry(symbol.name.clone()).or_insert(id);
                }
            }
            for i in 0..self.cfg.procs.len() {
                let id = ProcId::from_index(i);
                map.entry(self.proc_name(id).to_owned()).or_insert(id);
            }
            map
        });
        by_name.get(name).copied()
    }

    pub(super) fn decode(&self, id: InstId) -> Instruction {
        self.cfg.decode(self.image, id)
    }

    /// The parts of a procedure that are elsewhere.
    pub(super) fn fragments(&self, id: ProcId) -> impl Iterator<Item = ProcId> {
        let all = self.fragments.get_or_init(|| {
            let mut all: HashMap<ProcId, Vec<ProcId>> = HashMap::new();
            for p in (0..self.cfg.procs.len()).map(ProcId::from_index) {
                if let ProcKind::Fragment(Some(whole)) = self.cfg.proc(p).kind {
                    all.entry(whole).or_default().push(p);
                }
            }
            all
        });
        all.get(&id).into_iter().flatten().copied()
    }

    /// An instruction as assembly text, in NASM's notation.
    pub(super) fn inst_text(&self, id: InstId) -> String {
        let mut text = String::new();
        self.formatter
            .borrow_mut()
            .format(&self.decode(id), &mut text);
        text
    }

    /// The mnemonic with which [`Self::inst_text`] begins, without prefixes.
    pub(super) fn mnemonic(&self, id: InstId) -> String {
        let mut text = String::new();
        self.formatter.borrow_mut().format_mnemonic_options(
            &self.decode(id),
            &mut text,
            FormatMnemonicOptions::NO_PREFIXES,
        );
        text
    }

    pub(super) fn inst_bytes(&self, id: InstId) -> &'a [u8] {
        let len = usize::from(self.cfg.inst(id).len);
        self.image
            .bytes_at(self.cfg.inst_pc(id), len)
            .unwrap_or(&[])
    }

    /// The types of an instruction, as bits of `InstType`.
    pub(super) fn inst_types(&self, id: InstId) -> u32 {
        types_of_flow(self.cfg.inst(id).flow, self.inst_bytes(id))
            .unwrap_or_else(|| self.classifier.borrow_mut().types(&self.decode(id)))
    }

    /// The reason why a procedure takes no calls; `None` if it takes calls.
    pub(super) fn opaque_reason(&self, id: ProcId) -> Option<&str> {
        let proc = self.cfg.proc(id);
        match &proc.status {
            Status::Opaque(reason) => Some(reason),
            _ if proc.block_count == 0 => Some("it has no code that is understood"),
            _ => None,
        }
    }
}
