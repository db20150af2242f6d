//! The simulating tools agree with simple models that process a single-step trace: references and
//! misses, instruction by instruction.

use atom_tests::depth;
use atom_tests::models::{Model, Question, check};

/// Geometries that differ in lines, sets and ways.
fn questions() -> Vec<Question> {
    let question = |tool, options, model, fetches| Question {
        tool,
        options,
        model,
        fetches,
    };
    vec![
        question(
            "cache",
            &["--preset", "atom"],
            Model::new(256, 1, 32),
            false,
        ),
        question(
            "cache",
            &[
                "--preset", "atom", "--size", "2k", "--line", "64", "--ways", "4",
            ],
            Model::new(8, 4, 64),
            false,
        ),
        question(
            "cache",
            &["--size=192", "--line=16", "--ways=12", "--icache"],
            Model::new(1, 12, 16),
            true,
        ),
        question(
            "cache",
            &["--preset", "l1", "--l2", "64k,4,128"],
            Model::new(64, 8, 64).with_second(Model::new(128, 4, 128)),
            false,
        ),
        // Small levels, so that the second one has misses of its own.
        question(
            "cache",
            &["--size=256", "--line=16", "--ways=2", "--l2=1k,2,32"],
            Model::new(8, 2, 16).with_second(Model::new(16, 2, 32)),
            false,
        ),
        question("dtb", &[], Model::new(1, 32, 4096), false),
        question(
            "dtb",
            &["--entries", "3", "--page", "1k"],
            Model::new(1, 3, 1024),
            false,
        ),
        question("dtb", &["--entries=1"], Model::new(1, 1, 4096), false),
        // The tool searches entries by groups of 8; these are five groups.
        question(
            "dtb",
            &["--entries=40", "--page=1k"],
            Model::new(1, 40, 1024),
            false,
        ),
    ]
}

/// Two builds of each source, or all dynamic ones. Static builds read their own program headers, which differ.
fn some(variant: &str) -> bool {
    if depth::is_full() {
        return !variant.contains("static") && !variant.contains("strip");
    }
    ["gcc-O0", "gcc-O2", "gcc-bare", "gcc-barepie", "rustc-O2"].contains(&variant)
}

tests_of_programs! {
    (|name| check(name, some, &questions()));
    asmpush_c: "asmpush.c",
    callpop_s: "callpop.S",
    coldpop_s: "coldpop.S",
    counted_s: "counted.S",
    deep_c: "deep.c",
    flags_s: "flags.S",
    jumps_c: "jumps.c",
    jumptables_c: "jumptables.c",
    order_s: "order.S",
    redparts_s: "redparts.S",
    redzone_s: "redzone.S",
    interrupts_c: "interrupts.c",
    strings_c: "strings.c",
    threads_c: "threads.c",
    vectors_c: "vectors.c",
    virtual_cc: "virtual.cc",
}
