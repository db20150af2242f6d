//! The tool `kernel`: marked sections are found, and are executed as often as
//! the source says; otherwise the tool says that a section was not found.

use std::path::Path;

use super::{Summary, compile, folder, list, profile, source};

/// Every ordinary beginning has an end.
fn assert_balanced(summary: &Summary, program: &Path) {
    for fact in [
        "closed because their procedures were gone",
        "ends without a begin",
    ] {
        assert_eq!(summary.facts[fact], 0, "{}: {fact}", program.display());
    }
}

const COMPILERS: [&str; 2] = ["gcc", "clang"];
const LEVELS: [&str; 4] = ["-O0", "-O1", "-O2", "-O3"];

#[test]
fn the_image_filter_is_counted_right_or_it_is_said_why_not() {
    const SECTIONS: [(&str, u64); 4] = [
        ("ato_kernel_line", 75),
        ("ato_kernel_column", 75),
        ("ato_profile_lines", 3),
        ("ato_profile_columns", 3),
    ];
    let folder = folder("filter");
    let mut wrong = 0;
    for compiler in COMPILERS {
        for level in LEVELS {
            let program = folder.join(format!("{compiler}{level}"));
            compile(compiler, &["-g", level], &[source("filter.c")], &program);
            let list = list(&program, &[]);
            let summary = profile(&program, &[]);
            assert_balanced(&summary, &program);
            for (name, count) in SECTIONS {
                let kind = name.split('_').nth(1).unwrap();
                let said =
                    list.contains(&format!("not found: {kind} {name} ")) || is_doubted(&list, name);
                let right = summary.counts.get(name) == Some(&count);
                assert!(right || said, "{} {name}: {list}", program.display());
                wrong += u32::from(!right);
                assert!(
                    !said || level == "-O3",
                    "{} {name}: {list}",
                    program.display()
                );
            }
            if level == "-O0" {
                assert!(list.contains("kernel ato_kernel_line at filter.c:35-40 in filter_lines"));
                assert!(
                    list.contains("profile ato_profile_columns at filter.c:48-56"),
                    "{list}"
                );
                assert_eq!(summary.counts["main -> filter_lines"], 3);
                assert_eq!(summary.counts["main"], 1);
            }
        }
    }
    // gcc -O3 splits the loops over columns.
    assert!(wrong <= 2, "{wrong}");
}

/// Whether the list says that a section may be incomplete.
fn is_doubted(list: &str, name: &str) -> bool {
    let mut lines = list
        .lines()
        .skip_while(|l| !l.contains(&format!(" {name} ")));
    lines.next();
    let mut lines = lines.take_while(|l| l.starts_with(' '));
    lines.any(|l| l.contains("incomplete:"))
}

#[test]
fn labels_before_all_kinds_of_statement() {
    let path = source("labels.c");
    let text = std::fs::read_to_string(&path).unwrap();
    let kernels: Vec<(&str, u64)> = text
        .lines()
        .filter_map(|l| l.strip_prefix("// kernel: ")?.split_once(' '))
        .map(|(name, n)| (name, n.parse().unwrap()))
        .collect();
    let refused = text.lines().filter_map(|l| l.strip_prefix("// refused: "));
    let refused: Vec<&str> = refused.collect();
    assert!(kernels.len() > 9 && refused.len() == 2);
    let folder = folder("labels");
    for compiler in COMPILERS {
        for level in LEVELS {
            let program = folder.join(format!("{compiler}{level}"));
            compile(
                compiler,
                &["-g", level],
                std::slice::from_ref(&path),
                &program,
            );
            let list = list(&program, &[]);
            let summary = profile(&program, &[]);
            assert_balanced(&summary, &program);
            let mut found = 0;
            for (name, count) in &kernels {
                match summary.counts.get(*name) {
                    Some(n) if n == count => found += 1,
                    Some(n) => assert!(is_doubted(&list, name), "{} {name} {n}", program.display()),
                    None => assert!(
                        list.contains(&format!("not found: kernel {name} ")),
                        "{} {name}: {list}",
                        program.display()
                    ),
                }
            }
            // clang unrolls some loops from -O2 on.
            let all = compiler == "gcc" || matches!(level, "-O0" | "-O1");
            assert!(
                found >= if all { kernels.len() } else { 8 },
                "{}: {list}",
                program.display()
            );
            for name in &refused {
                assert!(
                    list.contains(&format!("not found: kernel {name} ")),
                    "{list}"
                );
            }
        }
    }
}

#[test]
fn markers_are_exact_everywhere() {
    let folder = folder("marks");
    let mut ids = Vec::new();
    for compiler in ["gcc", "clang", "g++", "clang++"] {
        let language = if compiler.ends_with("++") { "c++" } else { "c" };
        for options in [
            &["-O0"][..],
            &["-O2", "-s"],
            &["-O3", "-static", "-Wl,--gc-sections", "-s"],
        ] {
            let program = folder.join(format!("{compiler}{}", options.concat().replace(',', "")));
            let mut all = vec!["-x", language];
            all.extend(options);
            compile(compiler, &all, &[source("marks.c")], &program);
            let summary = profile(&program, &[]);
            assert_balanced(&summary, &program);
            for (name, count) in [("body", 255), ("tail", 8), ("unrolled", 30), ("none", 0)] {
                // A section that is never executed may be missing.
                let found = summary.counts.get(name).copied().unwrap_or(0);
                assert_eq!(found, count, "{} {name}", program.display());
            }
            ids.push(summary.ids["unrolled"]);
        }
    }
    // The same source has the same ids.
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}
