//! Thunks in the place of indirect jumps (`-mindirect-branch=thunk`). A non-local `goto` that jumps by one has loaded rsp
//! from memory before. The checker must know that the thunk's call shows what this rsp is.

use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::source::Source;

#[test]
fn a_goto_out_of_a_function_by_a_thunk_passes_the_checker() {
    let source = Source::named("thunks.c").unwrap();
    let folder = atom_tests::cache::folder("thunks");
    for variant in &source.variants {
        let program = folder.join(&variant.0);
        source.build(variant, &program).unwrap();
        for tool in ["counters", "calltree"] {
            let out = folder.join(format!("{}.{tool}", variant.0));
            let result = out.with_extension(format!("{tool}.report"));
            let options = ["--output", result.to_str().unwrap()].map(str::to_owned);
            let job = Job::Tool(tool.to_owned(), options.to_vec());
            atom::instrument(&program, &out, &job, true).unwrap();
            let mut command = Command::new(&out);
            plain_environment(&mut command);
            let outcome = run(&mut command, &Setting::default()).unwrap();
            let printed = String::from_utf8_lossy(&outcome.stdout);
            assert_eq!(printed, "sum 15\n", "{} {tool}", variant.0);
        }
    }
}
