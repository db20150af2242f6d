//! `atom` itself as the program: 10 MB of rustc's newest code, threads, a library that is opened while it runs. What the
//! instrumented command writes is byte for byte what the command writes.

use std::path::Path;
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::{cache, programs};

/// Runs a command that instruments `program`, in a folder of its own whose path has the same length for each part.
fn written(command: &Path, folder: &Path, (program, tool): (&Path, &str)) -> Vec<u8> {
    std::fs::create_dir_all(folder).unwrap();
    let library = format!("lib{tool}.so");
    let library = atom::command().unwrap().with_file_name(library);
    let run = Command::new(command)
        .args([program, &library])
        .args(["-q", "-o", "out"])
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{tool}: {}: {said}", run.status);
    std::fs::read(folder.join("out")).unwrap()
}

#[test]
fn instrumented_atom_writes_what_atom_writes() {
    let folder = cache::folder("own");
    let (own, instrumented) = (atom::command().unwrap(), folder.join("atom"));
    let job = Job::Tool("icount".to_owned(), Vec::new());
    atom::instrument_once(&own, &instrumented, &job, true).unwrap();
    let program = programs::needed("bash");
    for tool in ["icount", "cache"] {
        let subject = (program.as_path(), tool);
        let expected = written(&own, &folder.join("orig0"), subject);
        let found = written(&instrumented, &folder.join("icnt0"), subject);
        assert!(expected == found, "the outputs with {tool} differ");
    }
}
