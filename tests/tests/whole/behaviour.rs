//! The behaviour sources, each in one build, with all that they load.

use std::path::Path;

use atom_tests::atom::{self, Job};
use atom_tests::check::Case;
use atom_tests::source::{self, Variant};

/// Sources that cannot be run whole, and why.
const NOT_WHOLE: [(&str, &str); 1] = [(
    "pristine.c",
    "larger libraries lie at other addresses, and with them thread-local variables",
)];

#[test]
fn every_source_behaves_as_its_original() {
    let sources = source::all().unwrap();
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(source) = sources.get(at) else { break };
                    if let Some(failure) = failure(source) {
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The build of a source that is run whole: dynamic, by gcc or g++ if there is one.
fn variant(source: &source::Source) -> Option<Variant> {
    let dynamic = |v: &&Variant| !v.0.contains("static") && !v.0.contains("bare");
    let mut all = source.variants.iter().filter(dynamic);
    let plain = Variant("gcc-O2".to_owned());
    if source.variants.contains(&plain) {
        Some(plain)
    } else {
        all.next().cloned()
    }
}

fn failure(source: &source::Source) -> Option<String> {
    let name = source.name();
    if !source.runs_here() || NOT_WHOLE.iter().any(|(n, _)| *n == name) {
        return None;
    }
    let variant = variant(source)?;
    let label = format!("{name} {}", variant.0);
    match try_whole(source, &variant) {
        Ok(None) => None,
        Ok(Some(difference)) => Some(format!("{label}: {difference}")),
        Err(e) => Some(format!("{label}: {e}")),
    }
}

fn try_whole(
    source: &source::Source,
    variant: &Variant,
) -> atom_tests::error::Result<Option<String>> {
    let case = Case::build(source, variant)?;
    let out = case.rewritten("whole");
    let folder: &Path = out.parent().expect("a folder");
    std::fs::create_dir_all(folder)
        .map_err(|e| atom_tests::error::Error::new("making a folder", e).file(folder))?;
    let _lock = atom_tests::lock::exclusive(&folder.join("lock"))?;
    let job = Job::Whole(Box::new(Job::Icount("/dev/null".into())), Vec::new());
    atom::instrument(&case.original(), &out, &job, false)?;
    for run in &source.runs {
        let original = case.run(&case.original(), run, source.pristine)?;
        let found = case.run(&out, run, source.pristine)?;
        if let Some(difference) = found.differs_from(&original) {
            return Ok(Some(format!("{:?}: {difference}", run.args)));
        }
    }
    Ok(None)
}
