//! Runs that are sampled (`--sample`), and windows that have all of a run: what is measured is what an exact run counts.

use crate::common::{Folder, stderr};

/// Control that comes from outside into procedures without loops: pointers to functions, callbacks of the C library, switches,
/// labels as values, a longjmp; and data of several caches. The argument is the number of rounds. `threads`: in three threads.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define APART __attribute__((noinline, noclone, optimize("no-ipa-icf")))
typedef unsigned long Word;
static int rounds;
APART Word add(Word a, Word b) { return a + b; }
APART Word mix(Word a, Word b) { return (a ^ b) * 2654435761u; }
APART Word turn(Word a, Word b) { return a << 7 | b >> 57; }
static Word (*const operations[])(Word, Word) = { add, mix, turn };
APART int compare(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}
APART Word choose(Word n, Word x)
{
    switch (n % 9) {
    case 0: return x + 1;
    case 1: return x * 3;
    case 2: return x ^ n;
    case 3: return x - n;
    case 4: return x >> 1;
    case 5: return x * x;
    case 6: return ~x;
    case 7: return x + n;
    default: return x;
    }
}
APART Word interpret(Word x)
{
    static const unsigned char code[] = { 0, 1, 2, 1, 0, 2, 2, 1, 3 };
    static void *const labels[] = { &&up, &&down, &&twist, &&end };
    const unsigned char *at = code;
    goto *labels[*at++];
up: x += 3; goto *labels[*at++];
down: x -= 1; goto *labels[*at++];
twist: x = x * 5 + 1; goto *labels[*at++];
end: return x;
}
APART void jump(jmp_buf *to) { longjmp(*to, 1); }
APART Word walk(Word *table, Word n, Word at)
{
    for (Word i = 0; i < 50; i++) at = table[at % n] + i;
    return at;
}
static void *run(void *unused)
{
    Word x = 1, n = 1 << 15, *table = malloc(n * sizeof *table);
    int numbers[40];
    (void)unused;
    for (Word i = 0; i < n; i++) table[i] = i * 2654435761u >> 3;
    for (volatile int i = 0; i < rounds; i++) {
        jmp_buf here;
        for (int k = 0; k < 30; k++) x = operations[(x >> 5) % 3](x, k);
        for (int k = 0; k < 40; k++) numbers[k] = (x * (k + 1)) >> 20 & 0xffff;
        qsort(numbers, 40, sizeof *numbers, compare);
        for (int k = 0; k < 20; k++) x = choose(x >> 3, x + numbers[k]);
        x = interpret(x) + walk(table, i % 4 ? 512 : n, x);
        if (!setjmp(here)) jump(&here);
    }
    free(table);
    return (void *)x;
}
int main(int argc, char **argv)
{
    rounds = atoi(argv[1]);
    if (argc > 2) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, run, 0);
        for (int i = 0; i < 3; i++) {
            void *x;
            pthread_join(threads[i], &x);
            printf("%lu\n", (Word)x);
        }
    } else {
        printf("%lu\n", (Word)run(0));
    }
    return 0;
}
"#;

struct Place {
    folder: Folder,
}

impl Place {
    fn new(flags: &[&str]) -> Self {
        let folder = Folder::new();
        folder.compile("app", PROGRAM, &[&["-O2", "-pthread"], flags].concat());
        Self { folder }
    }

    /// What the program prints without a tool.
    fn plain(&self, arguments: &[&str]) -> Vec<u8> {
        let mut plain = std::process::Command::new(self.folder.join("app"));
        plain.args(arguments).output().unwrap().stdout
    }

    /// Runs the program under a tool, which must not change what it prints; returns the report.
    fn report(&self, options: &[&str], tool: &[&str], arguments: &[&str]) -> String {
        let words = [&["run"], options, tool, &["--", "./app"], arguments].concat();
        let output = self.folder.command(&words).output().expect("atom runs");
        assert!(output.status.success(), "{words:?} {}", stderr(&output));
        assert_eq!(output.stdout, self.plain(arguments), "{words:?}");
        String::from_utf8(self.folder.read(&format!("{}.out", tool[0]))).unwrap()
    }
}

/// A fact of a report: the number after its name.
fn fact(report: &str, name: &str) -> f64 {
    let line = report.lines().find_map(|line| {
        let rest = line.trim_start().strip_prefix(name)?;
        let number = rest.strip_prefix(' ')?.trim();
        number.replace(',', "").parse().ok()
    });
    line.unwrap_or_else(|| panic!("no {name} in {report}"))
}

fn is_near(a: f64, b: f64, part: f64) -> bool {
    (a - b).abs() <= part * b
}

#[test]
fn a_window_of_the_whole_run_has_all_of_it() {
    for flags in [&[][..], &["-static"], &["-fno-plt", "-fno-jump-tables"]] {
        let place = Place::new(flags);
        for (tool, facts) in [
            ("icount", &["instructions", "blocks executed"][..]),
            ("cache", &["references"]),
            ("calltree", &["instructions", "calls"]),
        ] {
            let exact = place.report(&[], &[tool], &["2000"]);
            let window = place.report(&["--for", "1000s"], &[tool], &["2000"]);
            for name in facts {
                let (exact, found) = (fact(&exact, name), fact(&window, name));
                // How much code of the C library runs depends on addresses, which differ from run to run.
                assert!(
                    is_near(found, exact, 0.005),
                    "{flags:?} {tool} {name}: {found} of {exact}"
                );
            }
        }
    }
}

#[test]
fn bursts_estimate_the_whole_run() {
    for flags in [&[][..], &["-static"]] {
        let place = Place::new(flags);
        let exact = place.report(&[], &["icount"], &["20000"]);
        // Enough bursts, so that the error of a count is small, whatever their places are.
        for options in [
            ["--sample", "50%", "--burst", "20"],
            ["--sample", "10%", "--burst", "100"],
        ] {
            let sampled = place.report(&options, &["icount"], &["20000"]);
            for name in ["instructions", "blocks executed"] {
                let (exact, found) = (fact(&exact, name), fact(&sampled, name));
                assert!(
                    is_near(found, exact, 0.02),
                    "{flags:?} {options:?} {name}: {found} for {exact}"
                );
            }
            assert!(sampled.contains("counts are estimates from "), "{sampled}");
        }
    }
}

#[test]
fn each_thread_is_sampled() {
    let place = Place::new(&[]);
    let exact = place.report(&[], &["icount"], &["5000", "threads"]);
    let options = ["--sample", "20%", "--burst", "50"];
    let sampled = place.report(&options, &["icount"], &["5000", "threads"]);
    let (exact, found) = (fact(&exact, "instructions"), fact(&sampled, "instructions"));
    assert!(is_near(found, exact, 0.02), "{found} for {exact}");
}

#[test]
fn intervals_contain_the_exact_values() {
    let place = Place::new(&[]);
    let shape = ["cache", "--preset", "l1"];
    let exact = place.report(&[], &shape, &["20000"]);
    let sampled = |seed: u32| {
        let seed = seed.to_string();
        let options = ["--sample", "2%", "--burst", "500", "--seed", &seed];
        place.report(&options, &shape, &["20000"])
    };
    let sampled: Vec<String> = (1..=20).map(sampled).collect();
    for name in ["references", "misses", "miss %"] {
        let exact = fact(&exact, name);
        let is_inside = |sampled: &&String| {
            let half = fact(sampled, &format!("{name} ±"));
            assert!(half < 0.2 * exact, "{name} {half} of {exact}");
            (fact(sampled, name) - exact).abs() <= half
        };
        let inside = sampled.iter().filter(is_inside).count();
        // 91 of 100 do, measured with 160 seeds: 95 of 100 would if no part of the run were as rare as the loop that fills
        // the table. Fewer than 14 of 20 have a probability of 0.1 %.
        assert!(inside >= 14, "{name}: {inside} of 20 contain {exact}");
    }
}

/// One program serves runs of any share, length and seed, and each run has what its own command line says.
#[test]
fn other_bursts_need_no_other_program() {
    let place = Place::new(&[]);
    let tests = |report: &str| {
        let head = report.lines().find(|line| line.starts_with("sampled: "));
        let words: Vec<&str> = head.expect("a line").split_whitespace().collect();
        [words[1], words[3]].map(|number| number.parse::<f64>().unwrap())
    };
    let run = |share, burst, seed| {
        let options = ["--sample", share, "--burst", burst, "--seed", seed];
        place.report(&options, &["icount"], &["20000"])
    };
    let [few, many] = [("2%", "1000"), ("20%", "200")].map(|(share, burst)| {
        let [first, again, other] = ["7", "7", "8"].map(|seed| run(share, burst, seed));
        assert_eq!(tests(&first), tests(&again));
        assert_ne!(tests(&first), tests(&other));
        tests(&first)
    });
    assert!(is_near(few[1], 2.0, 0.3), "{} %", few[1]);
    assert!(is_near(many[1], 20.0, 0.1), "{} %", many[1]);
    assert!(many[0] > 20.0 * few[0], "{many:?} {few:?}");
    assert_eq!(place.folder.entries(), 1);
}

#[test]
fn what_a_tool_counts_while_it_warms_up_is_left_out() {
    let place = Place::new(&[]);
    let options = |warm_up| {
        [
            "--sample",
            "5%",
            "--burst",
            "100",
            "--warm-up",
            warm_up,
            "--seed",
            "1",
        ]
    };
    let [few, many] = ["10", "1000"].map(|warm_up| {
        let report = place.report(&options(warm_up), &["icount"], &["20000"]);
        fact(&report, "instructions")
    });
    assert!(is_near(many, few, 0.1), "{many} for {few}");
}

#[test]
fn mistakes_are_told() {
    let place = Place::new(&[]);
    for (options, told) in [
        (&["--sample", "0"][..], "a share is more than 0"),
        (&["--sample", "1%", "--from", "main"], "cannot be used with"),
        (&["--sample", "1%", "--off"], "or measured in windows"),
        (&["--burst", "20"], "--sample"),
    ] {
        let words = [&["run"], options, &["icount", "--", "./app", "1"]].concat();
        let output = place.folder.command(&words).output().unwrap();
        assert!(!output.status.success(), "{options:?}");
        assert!(
            stderr(&output).contains(told),
            "{options:?} {}",
            stderr(&output)
        );
    }
}
