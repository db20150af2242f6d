//! Entering: the process runs instrumented afterwards.
//!
//! At each moment the process is right, so this command may be ended at any of them. First everything new is mapped, and
//! nothing leads there. Then all threads are stopped; the runtime starts; threads in code that moves go to its copy, where calls still
//! come back to the whole original text. Last the text of each object is replaced by the one with pads, as a whole.

use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use atom_abi::{CONTROL_SUFFIX, StartInfo};
use atom_core::pipeline::Entered;
use atom_core::{Error, Result};

use super::helper::Helper;
use super::inject::{Worker, is_in_call};
use super::instrument::Files;
use super::maps::{self, Map};
use super::objects::{Object, PAGE};
use super::results::Folder;
use super::start_block;
use super::table::{Moved, Table};
use super::trace::{self, DOING, Registers, Threads};
use super::urgent::Urgent;

/// Size in bytes of the instruction `syscall`.
const SYSCALL: u64 = 2;
/// How often all threads are stopped until they are where they can be moved.
const TRIES: u32 = 200;

/// An object that is instrumented.
pub struct Inside {
    /// Run-time address minus address in the file.
    pub bias: u64,
    /// Where code is mapped.
    pub text: Vec<Map>,
    /// Where its parts are.
    pub entered: Entered,
    /// Which instructions moved; `None` if none did.
    pub table: Option<Table>,
    /// The helper's descriptors of the rewritten file and of the original.
    pub descriptors: [i32; 2],
    /// The bytes of the rewritten file.
    pub rewritten: memmap2::Mmap,
    /// The original.
    pub file: File,
}

impl Inside {
    /// Run-time addresses of the new segment.
    pub fn segment(&self) -> [u64; 2] {
        let [start, end] = self
            .entered
            .text
            .map(|address| address.wrapping_add(self.bias));
        [start, end.next_multiple_of(PAGE)]
    }
}

/// A process that is entered.
pub struct Attached {
    /// Its number.
    pub pid: i32,
    /// The helper.
    pub helper: Helper,
    /// The rewritten files.
    pub files: Files,
    /// The objects that are instrumented.
    pub objects: Vec<Inside>,
    /// What was mapped before.
    pub before: Vec<Map>,
    /// How long all threads were stopped.
    pub pause: Duration,
    /// True if the area has to stay when the process was left: a signal handler that runs may return to it.
    pub remains: bool,
}

fn failed(e: std::io::Error) -> Error {
    Error::new(DOING, e)
}

/// Enters a process. `folder` is the folder for its reports.
pub fn enter(pid: i32, objects: Vec<Object>, files: Files, folder: &Folder) -> Result<Attached> {
    let before = maps::read(pid)?;
    let block_size = start_block::room(pid, folder.named());
    let helper = Helper::start(pid, &before, block_size)?;
    let mut attached = Attached {
        pid,
        helper,
        objects: inside(objects, &files)?,
        files,
        before,
        pause: Duration::ZERO,
        remains: false,
    };
    let done = attached.map(folder).and_then(|()| attached.begin());
    match done {
        Ok(()) => Ok(attached),
        Err(e) => {
            if !attached.remains {
                attached.unmap();
            }
            Err(e)
        }
    }
}

/// The objects that are instrumented, in the order of the entrance.
fn inside(mut objects: Vec<Object>, files: &Files) -> Result<Vec<Inside>> {
    let mut all = Vec::new();
    for (entered, path) in files.entrance.objects.iter().zip(&files.objects) {
        let fail = |e: std::io::Error| Error::new(DOING, e).file(path);
        let at = objects.iter().position(|o| o.path == entered.path);
        let Some(at) = at else {
            return Err(Error::new(DOING, "it has other objects than before").file(&entered.path));
        };
        let object = objects.swap_remove(at);
        let file = File::open(path).map_err(fail)?;
        // SAFETY: an entry of the cache, which nobody changes.
        let rewritten = unsafe { memmap2::Mmap::map(&file) }.map_err(fail)?;
        all.push(Inside {
            bias: object.bias,
            text: object.text,
            table: Table::read(&rewritten, entered),
            entered: entered.clone(),
            descriptors: [-1; 2],
            rewritten,
            file: object.file,
        });
    }
    Ok(all)
}

impl Attached {
    /// Maps everything new.
    fn map(&mut self, reports: &Folder) -> Result<()> {
        let open = |path: &Path| File::open(path).map_err(|e| Error::new(DOING, e).file(path));
        let area = open(&self.files.area)?;
        let rewritten = self
            .files
            .objects
            .iter()
            .map(|path| open(path))
            .collect::<Result<Vec<_>>>()?;
        let folder = open(reports.path())?;
        let originals = self.objects.iter().map(|o| &o.file);
        let all: Vec<&File> = [&area, &folder]
            .into_iter()
            .chain(&rewritten)
            .chain(originals)
            .collect();
        let descriptors = self.helper.receive(&all)?;
        let count = self.objects.len();
        for (i, object) in self.objects.iter_mut().enumerate() {
            object.descriptors = [descriptors[2 + i], descriptors[2 + count + i]];
        }
        self.helper.go_to(descriptors[1])?;
        let entrance = &self.files.entrance;
        let [start, written, end] = entrance.area;
        let code = libc::PROT_READ | libc::PROT_EXEC;
        let data = libc::PROT_READ | libc::PROT_WRITE;
        if written > start {
            self.helper
                .map([start, written], code, Some((descriptors[0], 0)))?;
        }
        self.helper.map(
            [written, end],
            data,
            Some((descriptors[0], entrance.written_at)),
        )?;
        for object in &self.objects {
            let [start, end] = object.segment();
            if end > start {
                self.helper.map(
                    [start, end],
                    code,
                    Some((object.descriptors[0], object.entered.offset)),
                )?;
            }
        }
        self.write_facts(reports.named())
    }

    /// Writes into the area what is known only now.
    fn write_facts(&self, folder: &Path) -> Result<()> {
        let entrance = &self.files.entrance;
        let write = |at: u64, word: u64| {
            self.helper
                .memory
                .write_all_at(&word.to_le_bytes(), at)
                .map_err(failed)
        };
        for (i, object) in self.objects.iter().enumerate() {
            write(entrance.biases + 8 * i as u64, object.bias)?;
        }
        let bias = self.objects[entrance.starter].bias;
        let fields = [
            offset_of!(StartInfo, program_before),
            offset_of!(StartInfo, program_after),
        ];
        for (field, call) in fields.into_iter().zip(entrance.calls) {
            let function = match call {
                0 => self.nothing()?,
                call => call.wrapping_add(bias),
            };
            write(entrance.info + field as u64, function)?;
        }
        let block = start_block::bytes(self.pid, folder, self.helper.room());
        self.helper
            .memory
            .write_all_at(&block, self.helper.room())
            .map_err(failed)
    }

    /// Address of a function that does nothing: an instruction `ret` of the area.
    fn nothing(&self) -> Result<u64> {
        const RET: u8 = 0xc3;
        let [start, written, _] = self.files.entrance.area;
        let mut bytes = vec![0; (written - start) as usize];
        self.helper
            .memory
            .read_exact_at(&mut bytes, start)
            .map_err(failed)?;
        let at = bytes.iter().position(|b| *b == RET);
        at.map(|at| start + at as u64)
            .ok_or_else(|| Error::new(DOING, "the tool has no code"))
    }

    /// Stops all threads, starts the runtime and lets the threads continue in the new text.
    fn begin(&mut self) -> Result<()> {
        let _urgent = Urgent::with(self.helper.pid);
        for _ in 0..TRIES {
            let start = Instant::now();
            let threads = Threads::stop(self.pid)?;
            let all = threads
                .all
                .iter()
                .map(|tid| Ok((*tid, trace::registers(*tid).map_err(failed)?)));
            let mut all = all.collect::<Result<Vec<(i32, Registers)>>>()?;
            if all.iter().any(|(_, r)| r.gs_base != 0) {
                return Err(Error::new(
                    DOING,
                    "it uses the gs segment, by which threads find their counters",
                )
                .advice("attach with --no-gs"));
            }
            if all.iter_mut().all(|(_, registers)| self.moves(registers)) {
                if let Err(e) = self.begin_in(&threads, &all) {
                    // The runtime may have started.
                    self.remains = self.leave_in(&threads).is_err();
                    return Err(e);
                }
                drop(threads);
                self.pause = start.elapsed();
                return Ok(());
            }
            drop(threads);
            sleep(Duration::from_millis(1));
        }
        Err(Error::new(DOING, "a thread is in code of which nothing is known").advice("try again"))
    }

    fn begin_in(&mut self, threads: &Threads, moved: &[(i32, Registers)]) -> Result<()> {
        let entrance = self.files.entrance.clone();
        let memory = &self.helper.memory;
        let mut bases = Vec::new();
        let mut info = [0; 8];
        let field = offset_of!(StartInfo, threads) as u64;
        memory
            .read_exact_at(&mut info, entrance.info + field)
            .map_err(failed)?;
        let has_data = u64::from_le_bytes(info) != 0;
        for (i, tid) in threads.all.iter().enumerate() {
            if i > 0 && !has_data {
                break;
            }
            let mut worker = Worker::new(*tid, self.helper.code, memory, self.helper.frame())?;
            if i == 0 {
                worker.function(memory, entrance.start, [entrance.info, self.helper.room()])?;
            } else {
                worker.function(memory, entrance.enter, [0; 2])?;
            }
            worker.end()?;
            bases.push(trace::registers(*tid).map_err(failed)?.gs_base);
        }
        for (i, (tid, registers)) in moved.iter().enumerate() {
            let mut registers = *registers;
            registers.gs_base = bases.get(i).copied().unwrap_or(0);
            trace::set_registers(*tid, &registers).map_err(failed)?;
        }
        for object in self.objects.iter().filter(|o| o.table.is_some()) {
            for map in &object.text {
                let code = libc::PROT_READ | libc::PROT_EXEC;
                self.helper.replace(
                    [map.start, map.end],
                    code,
                    (object.descriptors[0], map.offset),
                )?;
            }
        }
        Ok(())
    }

    /// Lets a thread continue in the new text. False if it is where that is not possible.
    fn moves(&self, registers: &mut Registers) -> bool {
        let back = if is_in_call(registers) { SYSCALL } else { 0 };
        let at = registers.rip - back;
        let Some(object) = self.objects.iter().find(|o| o.has_text(at)) else {
            return true;
        };
        let Some(table) = &object.table else {
            return true;
        };
        match table.moved(at.wrapping_sub(object.bias)) {
            Moved::No => true,
            Moved::Unknown => false,
            Moved::To { label, copy } => {
                let to = if back == 0 { label } else { copy + back };
                registers.rip = to.wrapping_add(object.bias);
                true
            }
        }
    }

    /// Unmaps everything new but the helper's own memory.
    pub fn unmap(&mut self) {
        let [start, _, end] = self.files.entrance.area;
        let segments: Vec<_> = self
            .objects
            .iter()
            .map(Inside::segment)
            .filter(|[s, e]| e > s)
            .collect();
        for range in segments.into_iter().chain([[start, end]]) {
            self.helper.unmap(range);
        }
        for range in self.of_runtime() {
            self.helper.unmap(range);
        }
    }

    /// Memory that the runtime has mapped, the file of this command too: it takes addresses that nobody else does.
    fn of_runtime(&self) -> Vec<[u64; 2]> {
        const PLACES: [[u64; 2]; 2] = [
            [0x5500_0000_0000, 0x5555_0000_0000],
            [0x5660_0000_0000, 0x5680_0000_0000],
        ];
        let is_in = |m: &Map| {
            PLACES
                .iter()
                .any(|[start, end]| (*start..*end).contains(&m.start))
        };
        let was_there = |m: &Map| {
            self.before
                .iter()
                .any(|b| b.start <= m.start && m.end <= b.end)
        };
        let is_page = |m: &Map| m.path.to_string_lossy().contains(CONTROL_SUFFIX);
        let now = maps::read(self.pid).unwrap_or_default();
        let new = now
            .iter()
            .filter(|m| (m.is_anonymous() || is_page(m)) && is_in(m) && !was_there(m));
        new.map(|m| [m.start, m.end]).collect()
    }
}

impl Inside {
    /// True for an address of the original text.
    pub fn has_text(&self, address: u64) -> bool {
        self.text
            .iter()
            .any(|m| (m.start..m.end).contains(&address))
    }
}
