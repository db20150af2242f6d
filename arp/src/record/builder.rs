//! Options of a recording or a playback.
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::problem::Problem;
use crate::record::Meter;
use crate::record::playback::Index;
use crate::record::session::Session;
use crate::record::shared::{Factory, Handler, Output, Shared, lock};
use crate::types::{DataType, Format, Mode, Section, Sid, Tid, ValueSet};

/// Collects the options of a session; [`start`](Self::start) makes it.
pub struct SessionBuilder {
    mode: Mode,
    path: PathBuf,
    format: Format,
    gzip: Option<bool>,
    sets: Vec<ValueSet>,
    factories: Vec<Option<Factory>>,
    info: Vec<(String, String)>,
    sections: Vec<Section>,
    max_sid: Sid,
    fold: bool,
    late: bool,
    handler: Option<Handler>,
}

impl fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBuilder")
            .field("mode", &self.mode)
            .field("path", &self.path)
            .field("sets", &self.sets)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Default options of a session in this mode.
    pub fn builder(mode: Mode) -> SessionBuilder {
        SessionBuilder::new(mode)
    }
}

impl SessionBuilder {
    /// Default options.
    fn new(mode: Mode) -> Self {
        Self {
            mode,
            path: PathBuf::from("data.arp"),
            format: Format::Binary,
            gzip: None,
            sets: Vec::new(),
            factories: Vec::new(),
            info: Vec::new(),
            sections: Vec::new(),
            max_sid: Sid(u32::MAX - 1),
            fold: false,
            late: false,
            handler: None,
        }
    }

    /// The data file; `data.arp` by default. Playback reads it, other modes write it.
    /// A name that ends in `.gz` asks for gzip.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = path.into();
        self
    }

    /// The format of the file; [`Format::Binary`] by default.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Whether the file is compressed with gzip, whatever its name is.
    pub fn gzip(mut self, gzip: bool) -> Self {
        self.gzip = Some(gzip);
        self
    }

    /// Adds a set of callbacks whose values have the type `data_type` and the name `name`.
    /// `make` makes the callbacks of one thread.
    pub fn meter<M: Meter + 'static>(
        mut self,
        data_type: DataType,
        name: &str,
        make: impl Fn(Tid) -> M + Send + Sync + 'static,
    ) -> Self {
        let name = name.to_owned();
        self.sets.push(ValueSet { data_type, name });
        self.factories
            .push(Some(Box::new(move |tid| Box::new(make(tid)))));
        self
    }

    /// Adds a set of values without callbacks, for recorders that are made with [`Session::thread_with`].
    pub fn values(mut self, set: ValueSet) -> Self {
        self.sets.push(set);
        self.factories.push(None);
        self
    }

    /// Describes a section. Sections need not be described to be entered.
    pub fn section(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// Adds a note about the recording as a whole, such as the program's name. Only binary files keep it.
    pub fn info(mut self, key: &str, value: &str) -> Self {
        self.info.push((key.to_owned(), value.to_owned()));
        self
    }

    /// The greatest section number; greater numbers are reported and not recorded.
    pub fn max_sid(mut self, max: Sid) -> Self {
        self.max_sid = max;
        self
    }

    /// Whether recursion is folded. If it is, entering a section of any kind while it is open is no problem: the inner
    /// execution, and all that is entered in it, belongs to the outer one. Paths then stay short where functions are
    /// recursive. The file counts such executions; see [`Unrecorded`](crate::Unrecorded).
    /// If it is not, measured sections in recursion are reported and plain ones lengthen the path.
    pub fn fold_recursion(mut self, fold: bool) -> Self {
        self.fold = fold;
        self
    }

    /// Whether the file is made only when there is something to write, even in mode [`RecordAll`](Mode::RecordAll).
    pub fn late(mut self, late: bool) -> Self {
        self.late = late;
        self
    }

    /// Sets the handler of problems. Without one the first ten problems of each sort go to standard error.
    pub fn on_problem(mut self, handler: impl Fn(&Problem) + Send + Sync + 'static) -> Self {
        self.handler = Some(Box::new(handler));
        self
    }

    /// Starts recording, or reads the file for playback.
    ///
    /// In mode [`RecordAll`](Mode::RecordAll) the file is made now and grows as the program runs.
    /// Until the end it is in binary format, so that it can be read even if the program is killed.
    pub fn start(self) -> Result<Session> {
        if self.sets.is_empty() {
            return Err(Error::usage("start recording", "there are no callbacks"));
        }
        let playback = match self.mode {
            Mode::Playback => Some(Arc::new(self.load()?)),
            _ => None,
        };
        let gzip = self.gzip.unwrap_or_else(|| is_gz(&self.path));
        let shared = Shared {
            mode: self.mode,
            sets: self.sets,
            max_sid: self.max_sid,
            fold: self.fold,
            playback,
            factories: self.factories,
            handler: self.handler,
            printed: Default::default(),
            problems: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            sink: Mutex::new(Output {
                path: self.path,
                format: self.format,
                gzip,
                info: self.info,
                sections: self.sections,
                sink: None,
                done: None,
                finished: false,
            }),
            collected: Mutex::default(),
            left_out: Mutex::default(),
        };
        if shared.mode == Mode::RecordAll && !self.late {
            lock(&shared.sink).open_sink(&shared)?;
        }
        Ok(Session {
            shared: Arc::new(shared),
        })
    }

    fn load(&self) -> Result<Index> {
        let index = Index::load(&self.path)?;
        let types = |sets: &[ValueSet]| sets.iter().map(|s| s.data_type).collect::<Vec<_>>();
        let (there, here) = (types(&index.sets), types(&self.sets));
        if there != here {
            let list = |types: &[DataType]| {
                let names: Vec<_> = types.iter().map(DataType::to_string).collect();
                names.join(", ")
            };
            let reason = format!(
                "it has values of type {}, the callbacks have {}",
                list(&there),
                list(&here)
            );
            return Err(Error::usage("play back", reason).of_file(&self.path));
        }
        Ok(index)
    }
}

fn is_gz(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("gz"))
}
