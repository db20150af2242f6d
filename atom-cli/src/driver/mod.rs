//! Instrumenting: from the command line to the files that are written. `atom_core::pipeline` does what is between.

mod deliver;
mod graphs;
pub mod late;
mod objects;
mod origin;
mod settings;
mod state;
mod summary;

use atom_core::image::Image;
use atom_core::pipeline::{self, Input};
use atom_core::{Error, Result, memory};

use crate::choices::Run;
use crate::describe;
use crate::find;
use crate::message::note;
use crate::request::Request;
use crate::steps::{Step, Steps};
use output::message::say;
use settings::Settings;

pub use deliver::beside;
pub use settings::{AREA, ENTRANCE};

/// Name of the link to the original beside a program that `atom run` has instrumented alone.
pub const ORIGINAL: &str = ".original";

const WISHES: &str = "-D and --32addr change nothing for a whole process: the tool's data lies below 2 GiB in \
                      any case, and the loader chooses where libraries lie";

/// Runs `atom APP ...`.
pub fn run(args: &Run) -> Result<()> {
    memory::set_allocator();
    let request = Request::new(args)?;
    if args.heap.is_some() {
        note(
            "-heap is not needed: the program and the tool have heaps of their own, \
             and the program's addresses do not change",
        );
    }
    let mut steps = Steps::new(&request);
    let image = steps.run(Step::Image, || open(&request), describe::image)?;
    refuse_unsupported(&image, &request)?;
    // A static program that runs already is a process of one object.
    let is_process = image.kind.is_dynamic_program() || request.job.attach.is_some();
    if !request.libraries || !is_process {
        let settings = Settings::alone(&request, &image);
        return instrument(&request, vec![Input::alone(image)], &settings, &mut steps);
    }
    if request.options.requested.data.is_some() || request.options.requested.low {
        note(WISHES);
    }
    process(&request, image, &mut steps)
}

/// Instruments the program with what it loads. The result is a *bundle*: the instrumented program, and beside it a
/// folder with the interpreter, the libraries and the file of the area that they share. The program names the
/// interpreter of the bundle; the interpreter maps the area, and opens the bundle's libraries in place of the originals.
fn process(request: &Request, image: Image, steps: &mut Steps) -> Result<()> {
    // Where the files will be when the program runs.
    let folder = match &request.job.placed_at {
        Some(path) => beside(path.path()),
        None => deliver::folder(&request.output)?,
    };
    let inputs = objects::all(request, image, &folder)?;
    let state = folder.join(settings::LATE).join(state::STATE);
    let settings = Settings::process(request, &folder, &state);
    instrument(request, inputs, &settings, steps)
}

fn instrument(
    request: &Request,
    inputs: Vec<Input>,
    settings: &Settings,
    steps: &mut Steps,
) -> Result<()> {
    let options = settings.options(request, None);
    let tool = request.tool.as_deref();
    pipeline::instrument(inputs, tool, &options, steps, |made, steps| {
        deliver::deliver(request, made, steps)?;
        if !request.quiet {
            say(&summary::summary(request, made, steps));
            if let Some(line) = summary::changes(made) {
                say(&line);
            }
            if tool.is_some()
                && let Some(line) = summary::left_out(made, options.unseen_code)
            {
                say(&line);
            }
        }
        Ok(())
    })
}

/// Opens the program.
fn open(request: &Request) -> Result<Image> {
    let opened = Image::open(request.app).map_err(|e| find::advise_program(request.app, e))?;
    // With its libraries a program knows itself by its original path.
    if request.libraries {
        Ok(opened)
    } else {
        Ok(origin::keep(opened, &request.output))
    }
}

/// Refuses programs that cannot be instrumented although the file is sound.
fn refuse_unsupported(image: &Image, request: &Request) -> Result<()> {
    if image.interpreter.is_none() || !image.dynamic.is_empty() {
        return Ok(());
    }
    let reason =
        "it names an interpreter but has no dynamic section, so only that knows how it starts";
    Err(Error::new("reading the program", reason)
        .file(request.app)
        .advice("link it statically (klibc: `klcc -static`)"))
}
