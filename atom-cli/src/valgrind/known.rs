//! The options of Valgrind 3.19, with some of later versions, and what becomes of each.
//!
//! Names are written with a space between them. A name that ends with `*` stands for all that begin so.

use super::Tool;

/// An option of which only some values mean the same here.
pub struct Limit {
    /// Its name.
    pub option: &'static str,
    /// The values, with a space between them, of which nothing has to be said.
    pub same: &'static str,
    /// What is to be said of others.
    pub why: &'static str,
}

/// Options of one tool, or of all.
pub struct Known {
    /// The command itself, or the tool in the option's place, takes the value.
    pub taken: &'static str,
    /// Without effect, and nobody misses it.
    pub nothing: &'static str,
    /// Other values have no effect, which is told in a line.
    pub told: &'static [Limit],
    /// Other values would have a wrong result: they are refused.
    pub refused: &'static [Limit],
}

const fn limit(option: &'static str, same: &'static str, why: &'static str) -> Limit {
    Limit { option, same, why }
}

/// Those of all tools.
const ALL: Known = Known {
    taken: "--tool --help --help-debug --help-dyn-options --version --quiet --verbose --trace-children \
            --trace-children-skip --child-silent-after-fork --log-fd --log-file --log-socket --xml --xml-fd --xml-file \
            --xml-socket --xml-user-comment --num-callers --error-limit --exit-on-first-error --error-exitcode \
            --suppressions --gen-suppressions --command-line-only",
    nothing: "--vgdb --vgdb-poll --vgdb-shadow-registers --vgdb-prefix --input-fd --dsymutil --max-stackframe \
              --main-stacksize --default-suppressions --redzone-size --allow-mismatched-debuginfo \
              --enable-debuginfod --read-inline-info --sim-hints --fair-sched --kernel-variant --num-transtab-sectors \
              --avg-transtab-entry-size --aspace-minaddr --valgrind-stacksize --soname-synonyms --sigill-diagnostics \
              --show-emwarns --unw-stack-scan-thresh --unw-stack-scan-frames --resync-filter --max-threads \
              --scheduling-quantum --keep-debuginfo --sanity-level --trace-flags --trace-notbelow --trace-notabove \
              --trace-syscalls --trace-signals --trace-symtab --trace-symtab-patt --trace-cfi --trace-redir --trace-sched \
              --trace-malloc --profile-flags --profile-interval --profile-heap --debug-dump --core-redzone-size --vex-* \
              --px-default --px-file-backed --dump-error --xtree-compress-strings",
    told: &[
        limit("--vgdb-error", "999999999", "there is no server for gdb"),
        limit("--vgdb-stop-at", "none", "there is no server for gdb"),
        limit("--wait-for-gdb", "no", "there is no server for gdb"),
        limit("--track-fds", "no", "open descriptors are not listed"),
        limit("--modify-fds", "no", "the program gets its own descriptors"),
        limit("--time-stamp", "no", "lines have no times"),
        limit("--demangle", "yes", "names are written as in the source"),
        limit(
            "--show-error-list",
            "no",
            "each error is told once, with its stack",
        ),
        limit("--show-below-main", "no", "stacks end with main"),
        limit(
            "--fullpath-after",
            "",
            "lines have file names without folders; XML has the folders",
        ),
        limit(
            "--extra-debuginfo-path",
            "",
            "docs/usage.md has the places of debug files",
        ),
        limit("--debuginfo-server", "", "DEBUGINFOD_URLS names servers"),
        limit(
            "--smc-check",
            "none stack all-non-file",
            "code that is made at run time is not seen",
        ),
        limit("--read-var-info", "no", "variables are not named"),
        limit(
            "--run-libc-freeres",
            "no",
            "what C's library keeps is reachable",
        ),
        limit(
            "--run-cxx-freeres",
            "no",
            "what C++'s library keeps is reachable",
        ),
        limit(
            "--merge-recursive-frames",
            "0",
            "all calls of a recursion are shown",
        ),
        limit("--stats", "no", "there are none"),
        limit("--sym-offsets", "no", "addresses are those of the file"),
        limit("--progress-interval", "0", "progress is not told"),
        limit(
            "--trace-children-skip-by-arg",
            "",
            "children are chosen by their paths alone",
        ),
    ],
    refused: &[
        limit("--error-markers", "none", "errors are told without markers"),
        limit("--alignment", "16", "blocks are at multiples of 16"),
        limit("--require-text-symbol", "", "symbols are not looked for"),
        limit(
            "--xtree-memory",
            "none",
            "`atom run heap` has the heap by call path",
        ),
        limit(
            "--xtree-memory-file",
            "",
            "`atom run heap` has the heap by call path",
        ),
    ],
};

const MEMCHECK: Known = Known {
    taken: "--leak-check --leak-resolution --show-leak-kinds --errors-for-leak-kinds --show-reachable \
            --show-possibly-lost --undef-value-errors --track-origins --freelist-vol --malloc-fill --free-fill \
            --show-mismatched-frees --partial-loads-ok",
    nothing: "--expensive-definedness-checks --freelist-big-blocks --workaround-gcc296-bugs --keep-stacktraces \
              --ignore-range-below-sp --xtree-leak-file",
    told: &[
        limit(
            "--leak-check-heuristics",
            "all stdstring,length64,newarray",
            "stdstring, length64 and newarray are used",
        ),
        limit(
            "--show-realloc-size-zero",
            "no",
            "realloc with the size 0 is not told",
        ),
    ],
    refused: &[
        limit(
            "--ignore-ranges",
            "",
            "errors at given addresses would be told",
        ),
        limit("--xtree-leak", "no", "leaks are not written as a tree"),
    ],
};

const CALLGRIND: Known = Known {
    taken: "--callgrind-out-file",
    nothing: "--compress-strings --compress-pos --skip-plt --simulate-wb --simulate-hwpref --cacheuse --I1 --D1 --LL \
              --ct-verbose* --ct-vstart",
    told: &[
        limit("--dump-line", "yes", "costs have lines"),
        limit(
            "--dump-instr",
            "no",
            "costs are by line; `atom annotate` shows instructions",
        ),
        limit("--combine-dumps", "no", "there is one dump, at the end"),
        limit(
            "--collect-jumps",
            "no",
            "jumps are not counted; `atom run branch` does",
        ),
        limit("--collect-bus", "no", "locked accesses are not counted"),
        limit("--collect-systime", "no", "system calls are not measured"),
        limit(
            "--separate-threads",
            "no",
            "threads are added up; `atom run calltree --per-thread`",
        ),
        limit(
            "--separate-recs",
            "0 1 2",
            "a recursion leads back to its procedure",
        ),
        limit(
            "--separate-recs*",
            "",
            "a recursion leads back to its procedure",
        ),
        limit(
            "--separate-callers*",
            "0",
            "`atom run calltree` has the costs of whole paths",
        ),
        limit(
            "--skip-direct-rec",
            "yes",
            "a recursion leads back to its procedure",
        ),
    ],
    refused: &[
        limit("--dump-every-bb", "0", "there is one dump, at the end"),
        limit("--dump-before", "", "there is one dump, at the end"),
        limit("--dump-after", "", "there is one dump, at the end"),
        limit(
            "--zero-before",
            "",
            "`atom run --from` begins at a procedure",
        ),
        limit(
            "--instr-atstart",
            "yes",
            "`atom run --off` begins by `atom ctl`",
        ),
        limit(
            "--collect-atstart",
            "yes",
            "`atom run --off` begins by `atom ctl`",
        ),
        limit("--toggle-collect", "", "`atom run --from --to` has windows"),
        limit("--fn-skip", "", "no procedure is hidden"),
        limit("--cache-sim", "no", "`--tool=cachegrind` simulates caches"),
        limit(
            "--branch-sim",
            "no",
            "`atom run predict` simulates branch predictors",
        ),
    ],
};

const CACHEGRIND: Known = Known {
    taken: "--cachegrind-out-file --cache-sim --D1 --LL",
    nothing: "",
    told: &[limit(
        "--I1",
        "",
        "no instruction cache is simulated; `atom run cache --icache` does",
    )],
    refused: &[limit(
        "--branch-sim",
        "no",
        "`atom run predict` simulates branch predictors",
    )],
};

const MASSIF: Known = Known {
    taken: "--massif-out-file",
    nothing: "--max-snapshots --peak-inaccuracy --heap-admin",
    told: &[
        limit("--depth", "30", "call paths are whole"),
        limit(
            "--threshold",
            "1.0",
            "each call path of a snapshot is written",
        ),
        limit(
            "--detailed-freq",
            "10",
            "the snapshots of the peak and of the end have call paths",
        ),
        limit("--time-unit", "ms", "times are milliseconds"),
        limit(
            "--alloc-fn",
            "",
            "the caller of the allocator is shown; `atom run heap --alloc` adds allocators",
        ),
    ],
    refused: &[
        limit("--heap", "yes", "there would be nothing in the file"),
        limit("--stacks", "no", "stacks are not measured"),
        limit("--pages-as-heap", "no", "pages are not followed"),
        limit("--ignore-fn", "", "all allocations are in the sums"),
    ],
};

const LACKEY: Known = Known {
    taken: "",
    nothing: "--fnname",
    told: &[limit(
        "--detailed-counts",
        "no",
        "`atom run mix` has kinds of instructions",
    )],
    refused: &[
        limit("--basic-counts", "yes", "there would be no counts"),
        limit(
            "--trace-mem",
            "no",
            "`atom run memtrace` writes traces of memory",
        ),
        limit("--trace-superblocks", "no", "blocks are not traced"),
    ],
};

const NONE: Known = Known {
    taken: "",
    nothing: "",
    told: &[],
    refused: &[],
};

/// Options that are yes or no.
const YES_OR_NO: &str = "--trace-children --child-silent-after-fork --xml --error-limit --exit-on-first-error \
     --show-reachable --show-possibly-lost --undef-value-errors --track-origins --show-mismatched-frees --cache-sim \
     --branch-sim --command-line-only --demangle --stacks --heap --default-suppressions";

/// Options with one of some words.
const WORDS: [(&str, &str); 5] = [
    ("--leak-check", "no summary yes full"),
    ("--leak-resolution", "low med high"),
    ("--gen-suppressions", "no yes all"),
    ("--track-fds", "no yes all bad"),
    ("--vgdb", "no yes full"),
];

/// Options with a number.
const NUMBERS: &str =
    "--num-callers --error-exitcode --freelist-vol --log-fd --xml-fd --vgdb-error";

/// What becomes of an option.
pub enum Fate {
    /// The value is taken.
    Taken,
    /// It has no effect.
    Nothing,
    /// It has no effect, which is told for this reason.
    Told(&'static str),
    /// It is refused for this reason.
    Refused(&'static str),
    /// There is no such option.
    Unknown,
}

fn is_in(names: &str, option: &str) -> bool {
    names
        .split_whitespace()
        .any(|name| match name.strip_suffix('*') {
            Some(start) => option.starts_with(start),
            None => name == option,
        })
}

/// What becomes of an option of a tool that has this value.
pub fn fate(tool: Tool, option: &str, value: &str) -> Fate {
    let of_tool = match tool {
        Tool::Memcheck => MEMCHECK,
        Tool::Callgrind => CALLGRIND,
        Tool::Cachegrind => CACHEGRIND,
        Tool::Massif => MASSIF,
        Tool::Lackey => LACKEY,
        Tool::None => NONE,
    };
    for known in [of_tool, ALL] {
        let find =
            |limits: &'static [Limit]| limits.iter().find(|limit| is_in(limit.option, option));
        if is_in(known.taken, option) {
            return Fate::Taken;
        }
        for (limits, fate) in [
            (known.told, Fate::Told as fn(&'static str) -> Fate),
            (known.refused, Fate::Refused),
        ] {
            match find(limits) {
                Some(limit) if is_in(limit.same, value) => return Fate::Nothing,
                Some(limit) => return fate(limit.why),
                None => {}
            }
        }
        if is_in(known.nothing, option) {
            return Fate::Nothing;
        }
    }
    Fate::Unknown
}

/// Why a value is none of an option's. An empty text says that Valgrind would not know the option with it.
pub fn wrong_value(option: &str, value: &str) -> Option<String> {
    let words = WORDS.iter().find(|(name, _)| *name == option);
    if let Some((_, words)) = words {
        return (!is_in(words, value)).then(String::new);
    }
    if is_in(YES_OR_NO, option) {
        return (!is_in("yes no", value)).then(String::new);
    }
    let is_number = !is_in(NUMBERS, option) || value.parse::<u32>().is_ok();
    (!is_number).then(|| format!("Invalid integer value '{value}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_the_start_of_names() {
        assert!(is_in("--a --vex-*", "--vex-a") && !is_in("--a --vex-*", "--vex"));
    }

    #[test]
    fn values_decide() {
        let fate = |tool, option, value| match fate(tool, option, value) {
            Fate::Taken => "taken",
            Fate::Nothing => "nothing",
            Fate::Told(_) => "told",
            Fate::Refused(_) => "refused",
            Fate::Unknown => "unknown",
        };
        let memcheck = |option, value| fate(Tool::Memcheck, option, value);
        assert_eq!(memcheck("--leak-check", "full"), "taken");
        assert_eq!(memcheck("--vgdb", "full"), "nothing");
        assert_eq!(memcheck("--track-fds", "no"), "nothing");
        assert_eq!(memcheck("--track-fds", "yes"), "told");
        assert_eq!(memcheck("--xtree-leak", "yes"), "refused");
        assert_eq!(memcheck("--callgrind-out-file", "x"), "unknown");
        assert_eq!(fate(Tool::Callgrind, "--trace-children", "yes"), "taken");
        assert_eq!(fate(Tool::Callgrind, "--separate-callers3", "f"), "told");
    }

    #[test]
    fn wrong_values_are_told_as_valgrind_does() {
        assert_eq!(wrong_value("--leak-check", "foo"), Some(String::new()));
        assert_eq!(wrong_value("--trace-children", ""), Some(String::new()));
        assert!(wrong_value("--num-callers", "x").is_some_and(|why| why.contains("'x'")));
        assert_eq!(wrong_value("--num-callers", "12"), None);
        assert_eq!(wrong_value("--log-file", "x"), None);
    }
}
