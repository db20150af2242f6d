//! Rewritten test programs behave like their originals: with no procedure moved, with
//! all moved, with half of them moved, with *icount*, *branch*, and a tool drawn from all. Unused old
//! text is filled with traps.

use atom_tests::check::{Check, check};

macro_rules! programs {
    ($($test:ident: $file:literal,)*) => {
        $(#[test]
        fn $test() {
            check($file, Check::Behaviour);
        })*

        #[test]
        fn every_source_is_listed() {
            let listed = [$($file),*];
            for source in atom_tests::source::all().unwrap() {
                assert!(listed.contains(&source.name().as_str()), "{} has no test", source.name());
            }
        }
    };
}

programs! {
    asmpush_c: "asmpush.c",
    avx512_s: "avx512.S",
    behind_s: "behind.S",
    callpop_s: "callpop.S",
    changedreturn_s: "changedreturn.S",
    auxv_c: "auxv.c",
    cfi_s: "cfi.S",
    coldpop_s: "coldpop.S",
    chosentable_s: "chosentable.S",
    constructors_cc: "constructors.cc",
    conventions_c: "conventions.c",
    counted_s: "counted.S",
    datatext_s: "datatext.S",
    deep_c: "deep.c",
    discard_s: "discard.S",
    ends_c: "ends.c",
    entries_s: "entries.S",
    epilogues_cc: "epilogues.cc",
    epilogues_rs: "epilogues.rs",
    exceptions_cc: "exceptions.cc",
    exec_c: "exec.c",
    flags_s: "flags.S",
    go_go: "go.go",
    gocount_go: "gocount.go",
    goheap_go: "goheap.go",
    halves_s: "halves.S",
    hardened_c: "hardened.c",
    ifunc_c: "ifunc.c",
    inlinedata_s: "inlinedata.S",
    interrupts_c: "interrupts.c",
    ipa_ra_c: "ipa_ra.c",
    jumps_c: "jumps.c",
    jumptables_c: "jumptables.c",
    labeltable_s: "labeltable.S",
    last_c: "last.c",
    lastbyte_c: "lastbyte.c",
    latecase_s: "latecase.S",
    lookalike_s: "lookalike.S",
    flagdispatch_s: "flagdispatch.S",
    midinsn_s: "midinsn.S",
    hiddenjump_s: "hiddenjump.S",
    nested_c: "nested.c",
    opaque_s: "opaque.S",
    passed_s: "passed.S",
    nostack_c: "nostack.c",
    nostackalone_c: "nostackalone.c",
    plt_c: "plt.c",
    points_c: "points.c",
    poppedreturn_s: "poppedreturn.S",
    preinit_c: "preinit.c",
    profiled_c: "profiled.c",
    order_s: "order.S",
    ownheaders_c: "ownheaders.c",
    pristine_c: "pristine.c",
    pristine_cc: "pristine.cc",
    printf_c: "printf.c",
    procs_c: "procs.c",
    recompute_c: "recompute.c",
    redparts_s: "redparts.S",
    redzone_s: "redzone.S",
    runtimestack_c: "runtimestack.c",
    rust_rs: "rust.rs",
    scatter_s: "scatter.S",
    sections_cc: "sections.cc",
    shared_s: "shared.S",
    shorttable_s: "shorttable.S",
    signals_c: "signals.c",
    small_c: "small.c",
    startup_s: "startup.S",
    spdata_c: "spdata.c",
    strings_c: "strings.c",
    tagged_s: "tagged.S",
    textrel_s: "textrel.S",
    restorer_c: "restorer.c",
    threads_c: "threads.c",
    thrown_cc: "thrown.cc",
    torn_cc: "torn.cc",
    thunks_c: "thunks.c",
    unwind_c: "unwind.c",
    unwinding_c: "unwinding.c",
    traps_c: "traps.c",
    lowguest_c: "lowguest.c",
    masktable_s: "masktable.S",
    twotables_s: "twotables.S",
    typehash_s: "typehash.S",
    unfound_s: "unfound.S",
    unreachable_c: "unreachable.c",
    values_s: "values.S",
    vectors_c: "vectors.c",
    virtual_cc: "virtual.cc",
    writabletext_s: "writabletext.S",
}
