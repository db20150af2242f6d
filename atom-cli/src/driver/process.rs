//! Instrumenting a program with all that it loads: the program, its interpreter and its libraries.
//!
//! The result is a *bundle*: the instrumented program, and beside it a folder with the interpreter, the
//! libraries and the file of the area that they share. The program names the interpreter of the bundle;
//! the interpreter maps the area, and opens the bundle's libraries in place of the originals.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use atom_abi::{ObjectInfo, ProcessInfo, TextPlace};
use atom_core::analysis::specialise::Specialiser;
use atom_core::analysis::{AnalysisImage, Summaries};
use atom_core::cfg::{Object, Returns};
use atom_core::emit::debug::{self, DebugSection};
use atom_core::emit::{self, area::Facts};
use atom_core::error::ErrorKind;
use atom_core::image::debug::DebugLines;
use atom_core::image::{Image, LoaderFamily, MONO, ObjectKind};
use atom_core::layout::{self, Area, Options, Placed, Region, Sites};
use atom_core::live::{Live, RegSet, Settled, has_foreign};
use atom_core::plan::kept::Late;
use atom_core::plan::{self, Home, Plan, ThreadOptions, ThreadWants, Told, Unit, Whole};
use atom_core::tool::room::Room;
use atom_core::tool::select::{Candidate, Selected};
use atom_core::tool::{Application, Calls, libraries, process_may_have_threads, process_uses_gs};
use atom_core::{Error, Result, check, memory, rewrite};

use crate::message::{count, note};
use crate::report::{Code, Totals};
use crate::request::Request;
use crate::run::closure;
use crate::steps::{Step, Steps};
use crate::tool_code::Loaded;

use super::bundle::{self, Bundle};
use super::calls::{end_after_panic, own_stack, refuse_wide_registers, routines};
use super::{NEAR, describe, late};

pub(super) const DOING: &str = "instrumenting the program with its libraries";

const WISHES: &str = "-D and --32addr change nothing for a whole process: the tool's data lies below 2 GiB in \
                      any case, and the loader chooses where libraries lie";

/// A file of the process.
pub(super) struct File {
    /// Path of the original, as the loader finds it.
    pub path: PathBuf,
    /// The original.
    pub image: Image,
    /// Path of the instrumented file.
    pub output: PathBuf,
    /// True if the interpreter loads the file with the program; false if that is not known of all files.
    pub is_global: bool,
    /// Number of objects that were there when this one was instrumented, itself included.
    pub known: usize,
}

/// Instruments the program of the request and what it loads. `image` is the program.
///
/// Where the room for libraries that are opened later does not fit, these run as they are.
pub fn run(request: &Request, image: Image, steps: &mut Steps) -> Result<()> {
    if request.wishes.data.is_some() || request.wishes.low {
        note(WISHES);
    }
    match instrument(request, image, steps) {
        Err(e) if e.kind == ErrorKind::TooLarge && !request.late.is_empty() => {
            instrument(&request.without_late(), Image::read(request.app)?, steps)
        }
        done => done,
    }
}

/// As [`run`], with room for libraries if that is wanted.
fn instrument(request: &Request, image: Image, steps: &mut Steps) -> Result<()> {
    let Some(tool) = &request.tool else {
        return Err(Error::new(DOING, "no tool is named")
            .advice("name a tool: --tool NAME, or its file after the program"));
    };
    // Where the files are written, and where they will be when the program runs.
    let written = bundle::folder(&request.output)?;
    let folder = match request.placed_at {
        Some(path) => bundle::beside(path),
        None => written.clone(),
    };
    let files = steps.run(
        Step::Unwind,
        || files(request, image, &folder),
        |files| count(files.len(), "object"),
    )?;
    let starter = starter(request, &files)?;
    let loaded = steps.run(
        Step::Load,
        || Loaded::new(tool),
        |loaded| loaded.tool.path().display().to_string(),
    )?;
    let (objects, sites) = steps.run(Step::Cfg, || understand(&files, request.returns), blocks)?;
    let late = match may_grow(request, &files, &loaded) {
        true => Late::Possible,
        false => Late::Never,
    };
    let each = (&*files, &*objects, &[][..]);
    let (calls, lives, unselected) = calls(&loaded, request, each, late.rooms(), steps)?;
    let used = routines(&calls);
    let (analysis, summaries) = steps.run(
        Step::Analysis,
        || loaded.code(&used),
        |(analysis, _)| describe::bytes(analysis.text.len() as u64),
    )?;
    let tool_code = (&analysis, &summaries);
    let state = folder.join(bundle::LATE).join(late::STATE);
    let planned = || {
        let what = (calls, &late, &*state, objects.len());
        plan(request, &objects, &lives, starter, what, tool_code)
    };
    let whole = steps.run(Step::Plan, planned, insertions)?;
    let knows_modified = analysis.facts.version >= MODIFIED;
    let mut facts = facts(&files, (starter, knows_modified), &folder, request)?;
    let room = layout::room(&files[0].image);
    let sizes = (whole.shared.data.len() as u64, facts.bytes.len() as u64);
    let starter_file = &*files[starter].output;
    let end = late::end_of_area(&late, &room);
    let place_of = (&*folder, starter_file);
    let area = area(&analysis, sizes, used, place_of, room.start..end)?;
    let placed = steps.run(
        Step::Layout,
        || place(request, &objects, sites, &whole.plans, &area),
        |placed: &Vec<Placed<'_>>| {
            let size: u64 = placed.iter().map(|p| p.layout.end - p.layout.start).sum();
            describe::bytes(size)
        },
    )?;
    let places: Vec<[u64; 6]> = placed.iter().map(places_of).collect();
    tell_places(&mut facts, &places);
    let debug = debug_sections(request, (&analysis, area.start), &placed, steps)?;
    let mut contents = emit::area::write(
        &area,
        &analysis,
        &whole.shared,
        (whole.biases, whole.identities),
        &placed[starter],
        &facts,
    );
    emit::area_sections::append(&area, &analysis, &debug.1, &mut contents);
    let outputs = steps.run(
        Step::Emit,
        || outputs(&placed, &debug.0),
        |outputs| describe::bytes(outputs.iter().map(emit::Output::len).sum()),
    )?;
    if let Some(scope) = request.check {
        let subjects = placed.iter().zip(&lives).zip(&outputs);
        check(subjects, &summaries, scope, steps)?;
    }
    let bundle = Bundle {
        request,
        files: &files,
        placed: &placed,
        outputs: &outputs,
        area: &contents,
        unselected,
    };
    if let Some((kept, _)) = &whole.kept {
        let state =
            late::State::of_process(kept, &area, &whole, (request, &files), (&places, room.end))?;
        let folder = written.join(bundle::LATE);
        state.write(&folder)?;
        state.keep_graphs(&folder, &files, (&objects, &lives));
    }
    bundle.deliver(&written, steps)?;
    if !request.quiet {
        eprintln!("{}", bundle.summary(tool, &folder));
    }
    forget(placed);
    Ok(())
}

/// The area for data and facts of these sizes in bytes, in the folder of a bundle with this program interpreter.
fn area(
    analysis: &AnalysisImage,
    sizes: (u64, u64),
    used: Vec<u64>,
    (folder, loader): (&Path, &Path),
    room: Range<u64>,
) -> Result<Area> {
    let files = (&*folder.join(bundle::AREA), loader);
    Area::new(
        analysis,
        sizes.0,
        sizes.1,
        slots(analysis, used),
        files,
        room,
    )
}

/// What is told of the objects of a process.
fn blocks((objects, _): &(Vec<Object<'_>>, Vec<Sites>)) -> String {
    let blocks = objects.iter().map(|o| o.cfg.blocks.len()).sum();
    count(blocks, "block")
}

/// What is told of their plans.
fn insertions(whole: &Whole) -> String {
    let insertions = whole.plans.iter().map(|p| p.insertions.len()).sum();
    count(insertions, "insertion")
}

/// True if libraries are to be added to the process when it opens them. In musl the loader is the C library: nothing tells
/// a library that is loaded from a file that the program reads.
fn may_grow(request: &Request, files: &[File], loaded: &Loaded) -> bool {
    let interpreter = files[0].image.interpreter.as_ref();
    let is_glibc = interpreter.is_some_and(|i| i.family == LoaderFamily::Glibc);
    !request.late.is_empty() && is_glibc && loaded.tool.facts().version >= ADDS_LIBRARIES
}

/// Version of the tool interface from which the runtime can add libraries to a process.
const ADDS_LIBRARIES: u32 = 24;

/// The functions of the tool that inserted code calls by their addresses: the routines of `used`, and those
/// that `atom` calls itself.
pub(super) fn slots(analysis: &AnalysisImage, mut used: Vec<u64>) -> Vec<u64> {
    used.extend(analysis.header_functions());
    let hooks = HOOKS.iter().chain([&plan::FORKED, &plan::APART]);
    used.extend(hooks.filter_map(|name| analysis.facts.export(name)));
    used
}

/// Keeps memory until the process ends, which is soon: it goes as a whole then.
fn forget<T>(kept: T) {
    std::mem::forget(kept);
}

/// The object of the program interpreter.
pub(super) fn starter(request: &Request, files: &[File]) -> Result<usize> {
    let mut kinds = files.iter().map(|f| f.image.kind);
    let at = kinds.position(|kind| kind == ObjectKind::Interpreter);
    at.ok_or_else(|| {
        Error::new(DOING, "its program interpreter is not known")
            .file(request.app)
            .advice("instrument the program alone")
    })
}

/// Exports of the runtime that inserted code calls before a system call: one that may become another
/// program, and one whose arguments the runtime looks at.
const EXEC: &str = "__atom_exec";
const SYSTEM_CALL: &str = "__atom_system_call";
const HOOKS: [&str; 2] = [EXEC, SYSTEM_CALL];
/// Export of runtimes that can follow executed programs.
const FOLLOW: &str = "__atom_follow";

/// Opens the program, what its loader loads for it, and what the user adds.
pub(super) fn files(request: &Request, program: Image, folder: &Path) -> Result<Vec<File>> {
    let fail = |reason: &str| Error::new(DOING, reason).file(request.app);
    let Some(interpreter) = program.interpreter.clone() else {
        return Err(fail("it has no program interpreter"));
    };
    if interpreter.family == LoaderFamily::Other {
        return Err(
            fail("its program interpreter is neither glibc's nor musl's")
                .advice("instrument the program alone"),
        );
    }
    let loader = PathBuf::from(&interpreter.path);
    let mut paths = match request.loads {
        [] => closure::libraries(&loader, request.app)?
            .into_iter()
            .filter_map(|loaded| loaded.path)
            .collect(),
        known => known.to_vec(),
    };
    paths.push(loader);
    let with_program = paths.len();
    paths.extend(request.with.iter().cloned());
    let mut names = BTreeSet::from([bundle::AREA, bundle::LINK, bundle::LATE].map(OsString::from));
    let mut seen = BTreeSet::new();
    let mut files = vec![File {
        path: request.app.to_path_buf(),
        image: program,
        output: request.output.clone(),
        is_global: true,
        known: 0,
    }];
    let mut all_are_known = true;
    for (i, path) in paths.into_iter().enumerate() {
        let real = std::fs::canonicalize(&path)
            .map_err(|e| Error::new(DOING, e.to_string()).file(&path))?;
        if !seen.insert(real.clone()) {
            continue;
        }
        let is_global = i < with_program;
        let Some(image) = library(&real) else {
            all_are_known &= !is_global;
            continue;
        };
        let own = path.file_name().unwrap_or("object".as_ref()).to_os_string();
        let mut name = own.clone();
        let mut copies = 1;
        while !names.insert(name.clone()) {
            copies += 1;
            name = own.clone();
            name.push(format!(".{copies}"));
        }
        files.push(File {
            output: folder.join(name),
            path,
            image,
            is_global,
            known: 0,
        });
    }
    let count = files.len();
    for file in &mut files {
        file.is_global &= all_are_known;
        file.known = count;
    }
    Ok(files)
}

/// A library or a loader, if it can be instrumented. One that cannot runs as it is, and the user is told.
pub(super) fn library(path: &Path) -> Option<Image> {
    match Image::read(path).and_then(readable) {
        Ok(image) if image.kind.is_program() || image.is_go() || image.is_mono() => {
            let what = match (image.is_go(), image.is_mono()) {
                (true, _) => "it was built by Go's tool chain",
                (_, true) => MONO,
                _ => "it is no library",
            };
            note(&format!("{} is left as it is: {what}", path.display()));
            None
        }
        Ok(image) => Some(image),
        Err(error) => {
            note(&format!(
                "{} is left as it is: {}",
                path.display(),
                error.reason
            ));
            None
        }
    }
}

/// The image, unless its exception tables cannot be read.
fn readable(image: Image) -> Result<Image> {
    image.unwind_table()?;
    Ok(image)
}

/// Finds the procedures of all objects.
pub(super) fn understand(
    files: &[File],
    returns: Returns,
) -> Result<(Vec<Object<'_>>, Vec<Sites>)> {
    let mut all = (Vec::new(), Vec::new());
    for file in files {
        let unwind = file.image.unwind_table()?;
        let (object, sites) = layout::understand(&file.image, unwind, returns)?;
        file.image.release_pages();
        all.0.push(object);
        all.1.push(sites);
    }
    memory::give_back();
    Ok(all)
}

/// Runs the tool's instrument routine, and computes liveness meanwhile. `known`: what is known of the objects' expectations.
pub(super) fn calls<'a>(
    loaded: &Loaded,
    request: &Request,
    (files, objects, known): (&[File], &'a [Object<'a>], &[Option<Settled>]),
    rooms: [Room; 2],
    steps: &mut Steps,
) -> Result<(Calls, Vec<Live<'a>>, usize)> {
    std::thread::scope(|scope| {
        let live = scope.spawn(|| lives(objects, known, request));
        let lines: Vec<DebugLines<'_>> = objects.iter().map(|o| o.unwind.lines(o.image)).collect();
        let selected = selected(request, files, objects, &lines)?;
        let choice = |i: usize| selected.as_ref().map(|all| &all[i]);
        let applications: Vec<Application<'_>> = (objects.iter().zip(&lines).enumerate())
            .map(|(i, (object, lines))| Application {
                path: &files[i].path,
                image: object.image,
                cfg: &object.cfg,
                lines,
                selected: choice(i),
                is_global: files[i].is_global,
                known: files[i].known,
            })
            .collect();
        let mut calls = steps.run(
            Step::Tool,
            || {
                let tool = &loaded.tool;
                tool.instrument(&applications, request.tool_options, rooms, &end_after_panic)
            },
            |calls| count(calls.calls.len(), "call"),
        )?;
        let wanted = calls.calls.len();
        if let Some(selected) = selected {
            let pairs: Vec<_> = objects.iter().map(|o| &o.cfg).zip(selected).collect();
            Selected::filter_all(&pairs, &mut calls);
        }
        let lives = steps.run(
            Step::Live,
            || Ok(live.join().unwrap_or_else(|e| resume_unwind(e))),
            |lives: &Vec<Live<'_>>| count(lives.len(), "object"),
        )?;
        memory::give_back();
        let unselected = wanted - calls.calls.len();
        Ok((calls, lives, unselected))
    })
}

/// What the user has chosen in each object; `None`: everything.
fn selected(
    request: &Request,
    files: &[File],
    objects: &[Object<'_>],
    lines: &[DebugLines<'_>],
) -> Result<Option<Vec<Selected>>> {
    if request.selection.is_all() {
        return Ok(None);
    }
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let names: Vec<[String; 2]> = (files.iter())
        .map(|file| [name(&file.path), name(&file.image.path)])
        .collect();
    let each = names.iter().zip(objects).zip(lines);
    let candidates: Vec<Candidate<'_>> = each
        .map(|((names, object), lines)| Candidate {
            names,
            cfg: &object.cfg,
            lines,
        })
        .collect();
    request.selection.resolve_all(&candidates).map(Some)
}

/// What is live in each object. The loader's own entry points (lazy binding, thread-local variables) keep
/// registers that the ABI lets functions change, so all are taken for live in it.
fn lives<'a>(
    objects: &'a [Object<'a>],
    known: &[Option<Settled>],
    request: &Request,
) -> Vec<Live<'a>> {
    let each: Vec<_> = objects.iter().map(|o| (o.image, &o.cfg)).collect();
    let lives = Live::compute_new(&each, known);
    (lives.into_iter().zip(objects))
        .map(|(live, object)| {
            match request.keep_registers || object.image.kind == ObjectKind::Interpreter {
                true => live.keeping(RegSet::ALL),
                false => live,
            }
        })
        .collect()
}

/// Plans the calls for all objects. `first` is the number of objects that the process begins with, and `state` the file that is
/// told to the runtime for libraries that come later.
pub(super) fn plan(
    request: &Request,
    objects: &[Object<'_>],
    lives: &[Live<'_>],
    starter: usize,
    (calls, late, state, first): (Calls, &Late<'_>, &Path, usize),
    (analysis, summaries): (&AnalysisImage, &Summaries),
) -> Result<Whole> {
    refuse_wide_registers(analysis, summaries, &routines(&calls))?;
    let follow = (!request.follow.is_empty()).then_some(&FOLLOW);
    let mut hooks = HOOKS.iter().chain(follow);
    if let Some(missing) = hooks.find(|h| analysis.facts.export(h).is_none()) {
        let what = match *missing == FOLLOW {
            true => "follow executed programs",
            false => "see whole processes",
        };
        let reason = format!("it was built before tools could {what}: no {missing}");
        return Err(Error::new("loading the tool", reason)
            .file(&analysis.file)
            .advice("build the tool again with the atom-tool crate that belongs to this atom"));
    }
    let each = || objects.iter().map(|o| (o.image, &o.cfg));
    let may_have_threads = process_may_have_threads(each());
    let facts = &analysis.facts;
    let stacks = objects.iter().map(|o| own_stack(o, facts));
    let own_stack = stacks.collect::<Result<Vec<bool>>>()?.contains(&true);
    // A library that comes later must find the access that the process began with.
    let begun = &objects[..first];
    let names_gs = || libraries::that_uses_gs(begun.iter().map(|o| o.image)).is_some();
    let wants = ThreadWants {
        has_data: calls.thread_data.len != 0,
        may_have_threads,
        own_stack,
        has_foreign: &|| begun.iter().any(|o| has_foreign(o.image, &o.cfg)),
        uses_gs: &|| request.no_gs || process_uses_gs(each()) || names_gs(),
    };
    let bodies = Specialiser::new(analysis);
    let options = plan::Options {
        finish: Some(facts.finish),
        exec: facts.export(EXEC),
        apart: facts.export(plan::APART),
        system_call: facts.export(SYSTEM_CALL),
        follows: !request.follow.is_empty(),
        may_have_threads,
        bodies: request.inline.then_some(&bodies),
        threads: ThreadOptions::new(&wants, facts),
        every_point: request.precise_signals,
        home: Home::Area,
        low_room: 0,
    };
    let clobbers = |routine| summaries.of(routine).into();
    let units: Vec<Unit<'_>> = (objects.iter().zip(lives))
        .map(|(object, live)| Unit {
            image: object.image,
            cfg: &object.cfg,
            live,
        })
        .collect();
    let mut whole = Whole::build(&units, starter, calls, &clobbers, &options, late)?;
    memory::give_back();
    let record = request.record.map(|path| path.as_os_str().as_bytes());
    let mut late_words = request.late.clone();
    if !late_words.is_empty() {
        late_words.extend(state.as_os_str().as_bytes());
        late_words.push(0);
    }
    let opaque: usize = objects.iter().map(|o| Totals::of(&o.cfg).opaque).sum();
    whole.shared.tell(&Told {
        record: record.unwrap_or_default(),
        unseen: "",
        named: &[],
        link: &[],
        opaque: opaque as u64,
        code: objects
            .iter()
            .map(|o| Code::of(&o.cfg))
            .sum::<Code>()
            .told(),
        follow: &request.follow,
        original: super::calls::original(request),
        tool: &super::calls::tool_name(request),
        late: match late {
            Late::Never => &[],
            _ => &late_words,
        },
    });
    Ok(whole)
}

/// Places the objects' new segments.
pub(super) fn place<'a>(
    request: &Request,
    objects: &'a [Object<'a>],
    sites: Vec<Sites>,
    plans: &'a [Plan],
    area: &'a Area,
) -> Result<Vec<Placed<'a>>> {
    let each = objects.iter().zip(sites).zip(plans);
    each.map(|((object, sites), plan)| {
        let region = match object.image.kind.is_program() {
            true => Region::wanted(object.image, &request.wishes)?,
            false => Region::of(object.image),
        };
        let options = Options {
            strict: request.strict,
            extra: request.extra,
            region: Some(region),
            area: Some(area),
        };
        let placed = Placed::new(object, plan, None, sites, &options)?;
        if placed.layout.region.start != region.start {
            note(NEAR);
        }
        Ok(placed)
    })
    .collect()
}

/// The contents of the instrumented objects.
pub(super) fn outputs<'a>(
    placed: &'a [Placed<'a>],
    debug: &'a [Vec<DebugSection>],
) -> Result<Vec<emit::Output<'a>>> {
    let each = placed.iter().zip(debug);
    each.map(|(placed, debug)| emit::write(placed, rewrite::code(placed)?, debug))
        .collect()
}

/// The debug information of each instrumented object, and of the tool, if it is wanted. `tool` is the
/// tool with the address at which its address 0 lies.
fn debug_sections(
    request: &Request,
    tool: (&AnalysisImage, u64),
    placed: &[Placed<'_>],
    steps: &mut Steps,
) -> Result<(Vec<Vec<DebugSection>>, Vec<DebugSection>)> {
    if !request.debug_info {
        return Ok((placed.iter().map(|_| Vec::new()).collect(), Vec::new()));
    }
    let size = |sections: &(Vec<Vec<DebugSection>>, Vec<DebugSection>)| {
        let all = sections.0.iter().flatten().chain(&sections.1);
        let size: usize = all.map(|s| s.bytes.len()).sum();
        describe::bytes(size as u64)
    };
    let build = || {
        let objects = placed.iter().map(debug::build).collect();
        Ok((objects, debug::build_analysis(tool.0, tool.1)))
    };
    steps.run(Step::Debug, build, size)
}

/// Compares the instrumented objects with the originals.
pub(super) fn check<'a>(
    objects: impl Iterator<Item = ((&'a Placed<'a>, &'a Live<'a>), &'a emit::Output<'a>)>,
    summaries: &Summaries,
    scope: check::Scope,
    steps: &mut Steps,
) -> Result<()> {
    let clobbers = |routine| summaries.of(routine).into();
    let check = || {
        let each = objects.map(|((placed, live), output)| {
            check::check(&check::Subject {
                placed,
                live,
                clobbers: &clobbers,
                output: &output.to_vec()?,
                scope,
            })
        });
        each.sum::<Result<check::Checked>>()
    };
    steps.run(Step::Check, check, |done| describe::checked(*done))?;
    Ok(())
}

/// Version of the tool interface from which the runtime knows a library by the time of its modification, before by
/// the time of its inode's change.
pub(super) const MODIFIED: u32 = 19;

/// What the runtime is told of the process, whose starting object is `starter`.
pub(super) fn facts(
    files: &[File],
    (starter, knows_modified): (usize, bool),
    folder: &Path,
    request: &Request,
) -> Result<Facts> {
    let mut facts = Facts::new();
    let table = facts.add(&vec![0; size_of::<ObjectInfo>() * files.len()]);
    facts.put_address(offset_of!(ProcessInfo, objects), table);
    facts.put(offset_of!(ProcessInfo, object_count), files.len() as u64);
    facts.put(offset_of!(ProcessInfo, interpreter), starter as u64);
    facts.put(
        offset_of!(ProcessInfo, entry),
        files[0].image.entry.unwrap_or(0),
    );
    // A relative path would be another file's in another folder.
    let absolute = || std::path::absolute(request.app).unwrap_or(request.app.to_path_buf());
    let named = request.named.map_or_else(absolute, Path::to_path_buf);
    facts.put_text(offset_of!(ProcessInfo, named), named.as_os_str().as_bytes());
    let link = folder.join(bundle::LINK);
    facts.put_text(offset_of!(ProcessInfo, link), link.as_os_str().as_bytes());
    for tables in [
        offset_of!(ProcessInfo, returns),
        offset_of!(ProcessInfo, boundaries),
    ] {
        let each = facts.add(&vec![0; size_of::<u64>() * files.len()]);
        facts.put_address(tables, each);
    }
    let texts = facts.add(&vec![0; size_of::<TextPlace>() * files.len()]);
    facts.put_address(offset_of!(ProcessInfo, texts), texts);
    for (i, file) in files.iter().enumerate() {
        let at = table + i * size_of::<ObjectInfo>();
        let stat = std::fs::metadata(&file.path)
            .map_err(|e| Error::new(DOING, e.to_string()).file(&file.path))?;
        facts.put_text(
            at + offset_of!(ObjectInfo, path),
            file.path.as_os_str().as_bytes(),
        );
        // The kernel opens the program and the interpreter; nobody else may get the new ones.
        if file.image.kind == ObjectKind::SharedObject {
            let path = file.output.as_os_str().as_bytes();
            facts.put_text(at + offset_of!(ObjectInfo, instrumented), path);
        }
        let time = match knows_modified {
            true => [stat.mtime(), stat.mtime_nsec()],
            false => [stat.ctime(), stat.ctime_nsec()],
        };
        for (field, value) in [
            (offset_of!(ObjectInfo, device), stat.dev()),
            (offset_of!(ObjectInfo, inode), stat.ino()),
            (offset_of!(ObjectInfo, size), stat.size()),
            (offset_of!(ObjectInfo, modified), time[0] as u64),
            (offset_of!(ObjectInfo, modified_nanoseconds), time[1] as u64),
            (offset_of!(ObjectInfo, base), file.image.base),
        ] {
            facts.put(at + field, value);
        }
    }
    Ok(facts)
}

/// What the runtime is told of an object when it is placed: the end of its image, the addresses of its table of return
/// addresses and of its table of instruction boundaries, and the table, start and end of its moved code; 0 for what there is not.
pub(super) fn places_of(placed: &Placed<'_>) -> [u64; 6] {
    let layout = &placed.layout;
    let [table, start, end] = match &placed.placement.text {
        Some(text) => [text.address, text.range.0, text.range.1],
        None => [0; 3],
    };
    let image_end = placed.object.image.end.max(placed.placement.end);
    let maps = [layout.return_map(), layout.boundaries()].map(|map| map.unwrap_or(0));
    [image_end, maps[0], maps[1], table, start, end]
}

/// Tells the runtime where the objects' images end and where the tables by which it looks up addresses lie, which is
/// known when all is placed.
pub(super) fn tell_places(facts: &mut Facts, all: &[[u64; 6]]) {
    let table = facts.number(offset_of!(ProcessInfo, objects)) as usize;
    let returns = facts.number(offset_of!(ProcessInfo, returns)) as usize;
    let texts = facts.number(offset_of!(ProcessInfo, texts)) as usize;
    let boundaries = facts.number(offset_of!(ProcessInfo, boundaries)) as usize;
    for (i, [image_end, return_map, boundary_map, text, start, end]) in all.iter().enumerate() {
        let at = table + i * size_of::<ObjectInfo>() + offset_of!(ObjectInfo, end);
        facts.put(at, *image_end);
        facts.put(returns + i * size_of::<u64>(), *return_map);
        facts.put(boundaries + i * size_of::<u64>(), *boundary_map);
        let at = texts + i * size_of::<TextPlace>();
        facts.put(at + offset_of!(TextPlace, table), *text);
        facts.put(at + offset_of!(TextPlace, start), *start);
        facts.put(at + offset_of!(TextPlace, end), *end);
    }
}
