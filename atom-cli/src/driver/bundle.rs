//! The files of a bundle: the instrumented program, and beside it a folder with the interpreter, the libraries,
//! the file of the area and a link to the original program; and the report of what was done.

use std::path::{Path, PathBuf};

use atom_core::emit::Output;
use atom_core::layout::Placed;
use atom_core::{Error, Result};

use crate::message::{count, number};
use crate::output::PendingFile;
use crate::report::{self, Calls, FileFacts, ObjectReport, Procedures, ProcessReport, TextBytes};
use crate::request::Request;
use crate::steps::{self, Step, Steps};

use super::process::File;
use super::{deliver, describe};

/// The file of the area in a bundle's folder.
pub(super) const AREA: &str = "area";
/// The symbolic link to the original program in a bundle's folder.
pub(super) const LINK: &str = "program";

/// The folder, in a bundle's folder, of libraries that are added to running processes.
pub(super) const LATE: &str = "late";

/// The folder beside the output in which the other files of the bundle lie, as an absolute path.
pub(super) fn folder(output: &Path) -> Result<PathBuf> {
    let parent = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = std::fs::canonicalize(parent)
        .map_err(|e| Error::new("writing the bundle", e.to_string()).file(parent))?;
    Ok(beside(&parent.join(output.file_name().unwrap_or_default())))
}

/// The path of the folder that belongs to the program of a bundle.
pub fn beside(program: &Path) -> PathBuf {
    let mut path = program.as_os_str().to_os_string();
    path.push(".libs");
    path.into()
}

/// What is written: a value for each object, in the order of `files`.
pub(super) struct Bundle<'a> {
    /// What the user asked for.
    pub request: &'a Request<'a>,
    /// The originals and the paths of their rewrites.
    pub files: &'a [File],
    /// The instrumented objects.
    pub placed: &'a [Placed<'a>],
    /// Their contents.
    pub outputs: &'a [Output<'a>],
    /// The contents of the area's file.
    pub area: &'a Output<'a>,
    /// Number of calls left out because of `--only` or `--skip`.
    pub unselected: usize,
}

impl Bundle<'_> {
    /// Writes all files into `folder` and the program beside it. The program gets its name when all
    /// others have theirs, so a bundle whose program exists is whole.
    pub fn deliver(&self, folder: &Path, steps: &mut Steps) -> Result<()> {
        let request = self.request;
        steps.run(
            Step::Write,
            || self.write(folder),
            |()| describe::bytes(self.size()),
        )?;
        if let Some(file) = request.report {
            let json = report::to_json(&self.report(steps));
            PendingFile::write(file, |f| f.write_all(&json), 0o644)?.commit()?;
        }
        if let (Some(target), Some(tool)) = (request.keep_tool, &request.tool) {
            deliver::keep(tool, target)?.commit()?;
        }
        Ok(())
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let fail = |e: std::io::Error| Error::new("writing the bundle", e.to_string()).file(folder);
        std::fs::create_dir_all(folder).map_err(fail)?;
        let link = folder.join(LINK);
        let program = std::fs::canonicalize(self.request.app).map_err(fail)?;
        match std::fs::remove_file(&link) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(fail(e)),
            _ => {}
        }
        std::os::unix::fs::symlink(program, &link).map_err(fail)?;
        let area = folder.join(AREA);
        PendingFile::write(&area, |file| self.area.write_to(file), 0o644)?.commit()?;
        for (file, output) in self.files.iter().zip(self.outputs).rev() {
            let mode = deliver::output_mode(&file.path)?;
            let target = match file.image.kind.is_program() {
                true => self.request.output.clone(),
                false => folder.join(file.output.file_name().unwrap_or_default()),
            };
            let pending = PendingFile::write(&target, |file| output.write_to(file), mode)?;
            pending.commit()?;
        }
        Ok(())
    }

    /// Size of all files in bytes.
    fn size(&self) -> u64 {
        self.area.len() + self.outputs.iter().map(Output::len).sum::<u64>()
    }

    /// The line that says what happened.
    pub fn summary(&self, tool: &Path, folder: &Path) -> String {
        let tool = tool.file_stem().unwrap_or_default().to_string_lossy();
        format!(
            "{} with {} -> {} and {}: {}, {} bytes",
            self.request.app.display(),
            tool.trim_start_matches("lib"),
            self.request.output.display(),
            folder.display(),
            count(self.files.len(), "object"),
            number(self.size()),
        )
    }

    /// The contents of the JSON file.
    fn report(&self, steps: &Steps) -> ProcessReport<'_> {
        let request = self.request;
        let objects = self.files.iter().zip(self.placed).zip(self.outputs);
        let objects: Vec<ObjectReport<'_>> = objects
            .map(|((file, placed), output)| {
                let (cfg, layout) = (&placed.object.cfg, &placed.layout);
                ObjectReport {
                    original: FileFacts::new(&file.path, file.image.file.len() as u64),
                    output: FileFacts::new(&file.output, output.len()),
                    procedures: Procedures::of(cfg, &layout.moved),
                    blocks: cfg.blocks.len(),
                    instructions: cfg.insts.len(),
                    text_bytes: TextBytes {
                        r#in: deliver::text_size(&file.image),
                        out: layout.end - layout.start,
                    },
                }
            })
            .collect();
        let text = |of: fn(&TextBytes) -> u64| objects.iter().map(|o| of(&o.text_bytes)).sum();
        ProcessReport {
            program: FileFacts::new(request.app, self.files[0].image.file.len() as u64),
            tool: request.tool.as_deref().map(|t| t.display().to_string()),
            output: FileFacts::new(&request.output, self.size()),
            procedures: (self.placed.iter())
                .map(|placed| report::Totals::of(&placed.object.cfg))
                .sum(),
            blocks: objects.iter().map(|o| o.blocks).sum(),
            instructions: objects.iter().map(|o| o.instructions).sum(),
            calls: Calls::of(self.placed.iter().map(|p| p.plan), self.unselected),
            text_bytes: TextBytes {
                r#in: text(|t| t.r#in),
                out: text(|t| t.out),
            },
            objects,
            steps: report::steps(steps),
            seconds: steps.elapsed().as_secs_f64(),
            peak_memory_bytes: steps::memory("VmHWM:"),
        }
    }
}
