//! What a tool wants of the objects: its calls and its code; and what is live in the objects.

use std::panic::resume_unwind;
use std::path::Path;

use crate::analysis::{AnalysisImage, Summaries};
use crate::cfg::Object;
use crate::error::Result;
use crate::image::ObjectKind;
use crate::image::debug::DebugLines;
use crate::live::{Live, RegSet, Settled};
use crate::memory;
use crate::tool::borders::Borders;
use crate::tool::crossings::Crossings;
use crate::tool::select::{Candidate, Selected};
use crate::tool::space::Space;
use crate::tool::{Application, Calls};

use super::loaded::Loaded;
use super::progress::{Found, Progress, Stage, run};
use super::{Input, Options};

/// What came of the instrument routine.
pub(super) struct Instrumented<'a> {
    /// The calls on selected code.
    pub calls: Calls,
    /// Number of calls that were dropped because what they are on is not selected.
    pub unselected: usize,
    /// Where windows begin and end, for each object; empty if they do so nowhere.
    pub borders: Vec<Borders>,
    /// The tool's code and data.
    pub analysis: AnalysisImage,
    /// What the called routines change.
    pub summaries: Summaries,
    /// What is live, for each object.
    pub lives: Vec<Live<'a>>,
}

/// The objects that an instrument routine sees.
#[derive(Clone, Copy)]
pub(super) struct Objects<'a> {
    /// Their files.
    pub inputs: &'a [Input],
    /// Their code.
    pub objects: &'a [Object<'a>],
    /// What is known of their expectations of each other.
    pub settled: &'a [Option<Settled>],
}

/// What the instrument routine asks for.
struct ToolCalls {
    /// Its calls on what is selected.
    calls: Calls,
    /// Number of the others.
    unselected: usize,
    /// Where windows begin and end.
    borders: Vec<Borders>,
}

impl<'a> Objects<'a> {
    /// Runs the tool's instrument routine, and takes its code. The tool uses one thread; meanwhile the other threads
    /// compute liveness.
    pub fn instrument(
        &self,
        loaded: Loaded,
        spaces: [Space; 2],
        options: &Options<'_>,
        progress: &mut dyn Progress,
    ) -> Result<Instrumented<'a>> {
        std::thread::scope(|scope| {
            let live = scope.spawn(|| self.lives(options.keep_registers));
            let ToolCalls {
                calls,
                unselected,
                borders,
            } = self.call_tool(&loaded, spaces, options, progress)?;
            let (analysis, summaries) = run(
                progress,
                Stage::Analysis,
                || loaded.code(&calls.routines()),
                |(analysis, _)| Found::Analysis(analysis),
            )?;
            let lives = run(
                progress,
                Stage::Live,
                || {
                    let lives = live.join().unwrap_or_else(|e| resume_unwind(e));
                    memory::give_back();
                    self.inputs.iter().for_each(|i| i.image.release_pages());
                    Ok(lives)
                },
                |lives: &Vec<Live<'_>>| Found::Live(lives),
            )?;
            Ok(Instrumented {
                calls,
                unselected,
                borders,
                analysis,
                summaries,
                lives,
            })
        })
    }

    /// Runs the tool's instrument routine.
    fn call_tool(
        &self,
        loaded: &Loaded,
        spaces: [Space; 2],
        options: &Options<'_>,
        progress: &mut dyn Progress,
    ) -> Result<ToolCalls> {
        let lines: Vec<DebugLines<'_>> = (self.objects.iter())
            .map(|object| object.unwind.lines(object.image))
            .collect();
        // Before the tool runs, as a wrong pattern is the user's mistake.
        let (selected, borders) = self.chosen(options, &lines)?;
        let applications: Vec<Application<'_>> = (self.objects.iter().zip(self.inputs).enumerate())
            .map(|(i, (object, input))| Application {
                path: &input.path,
                image: object.image,
                cfg: &object.cfg,
                lines: &lines[i],
                selected: selected.as_ref().map(|all| &all[i]),
                crossings: (options.switch).map(|_| Crossings::in_object(&borders, i)),
                is_global: input.is_global,
                known: input.known,
            })
            .collect();
        progress.begin(Stage::Tool);
        let panicked = |error: &_| progress.tool_panicked(error);
        let tool = &loaded.tool;
        let mut calls = tool.instrument(&applications, options.arguments, spaces, &panicked)?;
        progress.end(Found::Tool(&calls));
        memory::give_back();
        let unselected = selected.map_or(0, |selected| {
            let pairs: Vec<_> = (self.objects.iter().map(|o| &o.cfg))
                .zip(selected)
                .collect();
            Selected::filter(&pairs, &mut calls)
        });
        Ok(ToolCalls {
            calls,
            unselected,
            borders,
        })
    }

    /// What the user has chosen in each object, `None` for everything; and where windows begin and end.
    fn chosen(
        &self,
        options: &Options<'_>,
        lines: &[DebugLines<'_>],
    ) -> Result<(Option<Vec<Selected>>, Vec<Borders>)> {
        let name = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        let names: Vec<[String; 2]> = (self.inputs.iter())
            .map(|input| [name(&input.path), name(&input.image.path)])
            .collect();
        let each = names.iter().zip(self.objects).zip(lines);
        let candidates: Vec<Candidate<'_>> = each
            .map(|((names, object), lines)| Candidate {
                names,
                image: object.image,
                cfg: &object.cfg,
                lines,
            })
            .collect();
        let selection = (!options.selection.is_all()).then_some(&options.selection);
        let selected = selection.map(|s| s.resolve(&candidates)).transpose()?;
        Ok((selected, options.windows.resolve(&candidates)?))
    }

    /// What is live in each object. In a process the loader's own entry points (lazy binding, thread-local variables)
    /// keep registers that the ABI lets functions change, so all are taken for live in it.
    fn lives(&self, keep_all: bool) -> Vec<Live<'a>> {
        let each: Vec<_> = self.objects.iter().map(|o| (o.image, &o.cfg)).collect();
        let lives = Live::compute_new(&each, self.settled);
        let is_process = self.objects.len() > 1;
        (lives.into_iter().zip(self.objects))
            .map(|(live, object)| {
                let is_loader = is_process && object.image.kind == ObjectKind::Interpreter;
                if keep_all || is_loader {
                    live.keeping(RegSet::ALL)
                } else {
                    live
                }
            })
            .collect()
    }
}
