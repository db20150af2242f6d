//! The tools' figures equal the stepper's, address by address, over the whole
//! text of each test program whose run is the same every time.

use atom_tests::check::{Check, check};

macro_rules! programs {
    ($($test:ident: $file:literal,)*) => {
        $(#[test]
        fn $test() {
            check($file, Check::Counts);
        })*

        #[test]
        fn every_countable_source_is_listed() {
            let listed = [$($file),*];
            for source in atom_tests::source::all().unwrap() {
                let name = source.name();
                assert_eq!(listed.contains(&name.as_str()), source.countable, "{name}");
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
    chosentable_s: "chosentable.S",
    coldpop_s: "coldpop.S",
    counted_s: "counted.S",
    constructors_cc: "constructors.cc",
    cfi_s: "cfi.S",
    conventions_c: "conventions.c",
    datatext_s: "datatext.S",
    discard_s: "discard.S",
    deep_c: "deep.c",
    ends_c: "ends.c",
    entries_s: "entries.S",
    epilogues_cc: "epilogues.cc",
    exceptions_cc: "exceptions.cc",
    flags_s: "flags.S",
    gocount_go: "gocount.go",
    halves_s: "halves.S",
    hardened_c: "hardened.c",
    ifunc_c: "ifunc.c",
    inlinedata_s: "inlinedata.S",
    labeltable_s: "labeltable.S",
    latecase_s: "latecase.S",
    lookalike_s: "lookalike.S",
    lowguest_c: "lowguest.c",
    flagdispatch_s: "flagdispatch.S",
    interrupts_c: "interrupts.c",
    ipa_ra_c: "ipa_ra.c",
    jumps_c: "jumps.c",
    jumptables_c: "jumptables.c",
    hiddenjump_s: "hiddenjump.S",
    midinsn_s: "midinsn.S",
    nostack_c: "nostack.c",
    nostackalone_c: "nostackalone.c",
    opaque_s: "opaque.S",
    passed_s: "passed.S",
    order_s: "order.S",
    plt_c: "plt.c",
    points_c: "points.c",
    poppedreturn_s: "poppedreturn.S",
    preinit_c: "preinit.c",
    profiled_c: "profiled.c",
    recompute_c: "recompute.c",
    redparts_s: "redparts.S",
    redzone_s: "redzone.S",
    scatter_s: "scatter.S",
    sections_cc: "sections.cc",
    shared_s: "shared.S",
    small_c: "small.c",
    startup_s: "startup.S",
    strings_c: "strings.c",
    threads_c: "threads.c",
    thunks_c: "thunks.c",
    thrown_cc: "thrown.cc",
    traps_c: "traps.c",
    masktable_s: "masktable.S",
    twotables_s: "twotables.S",
    typehash_s: "typehash.S",
    unfound_s: "unfound.S",
    unreachable_c: "unreachable.c",
    values_s: "values.S",
    vectors_c: "vectors.c",
    virtual_cc: "virtual.cc",
}
