//! The program of the exercise: its calls as the tool, its own logging and gprof count them.

use std::path::Path;
use std::process::Command;

use super::{analyze, compile, figures, folder, log};

/// The program of the exercise, written after its description: `main` calls A three
/// times, A and B call each other and B itself.
const EXERCISE: &str = r#"
static volatile int n;
static int main_rounds = 2, a_rounds = 20000, b_rounds = 20000;
#define WHOLE __attribute__((noinline, noclone, noipa))
WHOLE int A(void);
WHOLE int B(void);
int main(void) {
    START
    ENTER(0)
    for (int i = 0; i <= main_rounds; i++) { n = 0; A(); }
    LEAVE(0)
    WRITE
    return 0;
}
int A(void) {
    ENTER(1)
    n++;
    for (volatile int i = 0; i <= a_rounds; i++) {}
    if (n <= 200) B();
    LEAVE(1)
    return 0;
}
int B(void) {
    ENTER(2)
    for (volatile int i = 0; i <= b_rounds; i++) {}
    if (n % 2 == 0) A(); else { n++; B(); }
    LEAVE(2)
    return 0;
}
"#;

/// The program without logging.
const PLAIN: &str = "#define START\n#define ENTER(p)\n#define LEAVE(p)\n#define WRITE\n";

const CALLS: [(&str, u64); 3] = [("main", 1), ("A", 303), ("B", 600)];

#[test]
fn the_exercises_program() {
    for (name, flags) in [
        ("O0", &["-O0"][..]),
        ("O2", &["-O2", "-fno-optimize-sibling-calls"]),
    ] {
        let folder = folder(&format!("exercise-{name}"));
        let program = compile(&folder, &format!("{PLAIN}{EXERCISE}"), flags);
        for clock in ["tsc", "monotonic", "cpu", "prof"] {
            let place = log(&folder, &program, "calllog", &["--clock", clock], &[]);
            let figures = figures(&analyze(&["--json"], &place.join("calllog.out")), 0);
            for (proc, calls) in CALLS {
                assert_eq!(figures[proc], (calls, 0), "{name} {clock} {proc}");
            }
        }
        // The exercise's own format, and its description of reports.
        let options = [
            "--format",
            "exercise",
            "--clock",
            "tsc",
            "--indat",
            "analyze.indat",
        ];
        let place = log(&folder, &program, "calllog", &options, &[]);
        let figures = figures(&analyze(&["--json"], &place.join("analyze.indat")), 0);
        for (proc, calls) in CALLS {
            assert_eq!(figures[proc].0, calls, "{name} {proc}");
        }
        assert_eq!(
            std::fs::metadata(place.join("timing.dat")).unwrap().len() % 24,
            0
        );
    }
}

/// The log that `profile.h` writes in the exercise's program, in C and in C++.
#[test]
fn a_program_augmented_by_hand() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let include = format!("-I{}", include.canonicalize().unwrap().display());
    let augmented = "#define log_size 5000\n#include \"profile.h\"\n\
        #define START start_log;\n#define ENTER(p) write_log(0, p);\n\
        #define LEAVE(p) write_log(1, p);\n#define WRITE write_log_to_file();\n";
    let reports = "timing.dat\nAll three.\n0 Main 1\n1 A 1\n2 B1 1\n\n\
        timing.dat\nTwo of them.\n0 Main 1\n1 A 0\n2 B1 1\n";
    let strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", &include];
    for (name, flags) in [
        (
            "c89",
            &["-std=gnu89", "-O0", "-Wno-declaration-after-statement"][..],
        ),
        ("c", &["-std=c11", "-D_GNU_SOURCE", "-O2"]),
        ("clock", &["-O2", "-Dlog_clock=CLOCK_MONOTONIC"]),
        ("cxx", &["-xc++", "-O2"]),
    ] {
        let folder = folder(&format!("profile-{name}"));
        let source = match name {
            // This standard has no declarations in `for`.
            "c89" => EXERCISE
                .replace("for (int i", "int i; for (i")
                .replace("for (volatile int i", "volatile int i; for (i"),
            _ => EXERCISE.to_owned(),
        };
        let flags = [flags, &strict].concat();
        let program = compile(&folder, &format!("{augmented}{source}"), &flags);
        let mut command = Command::new(&program);
        assert!(command.current_dir(&folder).status().unwrap().success());
        std::fs::write(folder.join("analyze.indat"), reports).unwrap();
        let text = analyze(&["--json"], &folder.join("analyze.indat"));
        let all = figures(&text, 0);
        let want = [("Main", 1), ("A", 303), ("B1", 600)];
        for (proc, calls) in want {
            assert_eq!(all[proc].0, calls, "{name}");
        }
        let two = figures(&text, 1);
        assert_eq!(two.len(), 2);
        assert_eq!(two["B1"].0, 600);
        // The time of an excluded procedure belongs to its caller, so no time is lost.
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let total = |report: usize| json["reports"][report]["time_ms"].as_f64().unwrap();
        assert!((total(0) - total(1)).abs() < 1e-9, "{name}");
        let table = analyze(&[], &folder.join("analyze.indat"));
        assert!(table.contains("\nA\n"), "{table}");
        assert!(table.contains("600   99.83%"), "{table}");
    }
}

/// A program compiled with `-pg`: calls agree, and the cycle of A and B is reported.
#[test]
fn gprof_is_compared_with() {
    let folder = folder("gprof");
    for flags in [&["-O0", "-pg"][..], &["-O0", "-pg", "-no-pie"]] {
        let source = format!("{PLAIN}{EXERCISE}").replace("20000", "600000");
        let program = compile(&folder, &source, flags);
        let mut command = Command::new(&program);
        assert!(command.current_dir(&folder).status().unwrap().success());
        let place = log(&folder, &program, "calllog", &["--clock", "cpu"], &[]);
        let gmon = folder.join("gmon.out");
        for app in [&[][..], &[program.to_str().unwrap()]] {
            let options = ["--json", "--gprof", gmon.to_str().unwrap()];
            let text = analyze(&[app, &options].concat(), &place.join("calllog.out"));
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            let rows = json["procedures"].as_array().unwrap();
            let row = |name| rows.iter().find(|r| r["procedure"] == name).unwrap();
            for (name, calls, other) in [("A", 303, "B"), ("B", 600, "A")] {
                assert_eq!(row(name)["log"]["calls"], calls);
                assert_eq!(row(name)["gprof"]["calls"], calls);
                assert_eq!(row(name)["gprof"]["circle"][0], other);
            }
            // A busy machine loses ticks, and with them samples of one procedure or the other.
            let samples = ["A", "B"].map(|name| row(name)["gprof"]["samples"].as_f64().unwrap());
            assert!(samples.iter().sum::<f64>() > 0.0, "{samples:?}");
            let remark = row("main")["remarks"][0].as_str().unwrap();
            assert!(remark.contains("from outside"), "{remark}");
        }
    }
}
