//! The tool `predict` gives, branch by branch, the figures of a plain model that a single-stepper feeds; and what theory
//! says of known patterns.

mod model;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use atom_tests::atom::{self, Job};
use atom_tests::check::{Case, check_few};
use atom_tests::counts::{Missed, key};
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::source::Source;
use atom_tests::stepper::{self, Options, Step, Text};
use iced_x86::FlowControl;
use object::{Object, ObjectSection};
use serde_json::Value;

use model::Model;

/// Figures by table and address, in the order of their names in [`TABLES`].
type Figures = BTreeMap<(usize, u64), Vec<u64>>;

const BRANCHES: usize = 0;
const JUMPS: usize = 1;
const RETURNS: usize = 2;

/// Tables of the tool's JSON, and the columns that are compared.
const TABLES: [(&str, &[&str]); 3] = [
    (
        "conditional_branches",
        &["executed", "taken", "2-bit", "gshare", "tage"],
    ),
    ("indirect_jumps_and_calls", &["executed", "buffer", "path"]),
    ("returns", &["executed", "mispredicted"]),
];

/// The tables of a report. Some tables have the name of a fact.
fn read(path: &Path) -> Figures {
    let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut figures = Figures::new();
    for (number, (table, columns)) in TABLES.into_iter().enumerate() {
        for row in json[table].as_array().unwrap_or_else(|| panic!("{table}")) {
            let pc = key(row["pc"].as_str().unwrap()).unwrap();
            let values = columns.iter().map(|c| row[*c].as_u64().unwrap());
            figures.insert((number, pc), values.collect());
        }
    }
    figures
}

/// The code of a program, and what a call there leads to.
struct Code {
    text: Text,
    /// Sections through which libraries are called.
    stubs: Vec<std::ops::Range<u64>>,
    missed: Missed,
}

impl Code {
    fn read(program: &Path, missed: Missed) -> Self {
        let data = std::fs::read(program).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let is_stub = |s: &object::Section<'_, '_>| s.name().is_ok_and(|n| n.starts_with(".plt"));
        let range = |s: object::Section<'_, '_>| s.address()..s.address() + s.size();
        Self {
            text: Text::read(program).unwrap(),
            stubs: file.sections().filter(is_stub).map(range).collect(),
            missed,
        }
    }

    /// Whether a direct call leads to code whose returns are not seen.
    fn leaves(&self, target: u64) -> bool {
        self.stubs.iter().any(|range| range.contains(&target))
            || self.missed.around(target).is_some()
    }
}

/// Adds an instruction to the figures.
fn tell(code: &Code, model: &mut Model, figures: &mut Figures, step: &Step<'_>) {
    let inst = code.text.decode(step.pc);
    let mut add = |table: usize, values: &[bool]| {
        let row = figures.entry((table, step.pc)).or_default();
        row.resize(values.len() + 1, 0);
        row[0] += 1;
        for (sum, value) in row[1..].iter_mut().zip(values) {
            *sum += u64::from(*value);
        }
    };
    let back = step.pc + step.len as u64;
    match inst.flow_control() {
        FlowControl::ConditionalBranch => {
            let taken = step.next != back;
            let [two_bit, gshare, tage] = model.branch(step.pc, taken);
            add(BRANCHES, &[taken, two_bit, gshare, tage]);
        }
        FlowControl::IndirectBranch => add(JUMPS, &model.jump(step.pc, step.next)),
        FlowControl::IndirectCall => {
            add(JUMPS, &model.jump(step.pc, step.next));
            if code.text.contains(step.next) {
                model.call(back);
            }
        }
        FlowControl::Call if inst.is_call_near() && !code.leaves(inst.near_branch_target()) => {
            model.call(back);
        }
        FlowControl::Return if code.text.contains(step.next) => {
            add(RETURNS, &[model.ret(step.next)]);
        }
        _ => {}
    }
}

fn judge(case: &Case<'_>, source: &Source) {
    let label = case.label("predict");
    let _lock = atom_tests::lock::exclusive(&case.folder().join("predict.lock")).unwrap();
    let json = case.folder().join("predict.json");
    // A file that is not there is made.
    let _ = std::fs::remove_file(&json);
    let out = case.rewritten("prdct");
    std::fs::create_dir_all(out.parent().unwrap()).unwrap();
    let options = vec!["--json".into(), json.display().to_string()];
    let job = Job::Tool("predict".into(), options);
    let made = atom::instrument(&case.original(), &out, &job, true).unwrap();
    case.run(&out, &source.runs[0], true).unwrap();
    let mut found = read(&json);

    let original = case.original();
    let code = Code::read(&original, Missed::from_report(&made.report));
    let mut command = Command::new(&original);
    plain_environment(&mut command);
    command
        .args(&source.runs[0].args)
        .current_dir(case.folder())
        .stderr(Stdio::null());
    let options = Options {
        skip_libraries: true,
        capture: true,
        ..Options::default()
    };
    let mut models: HashMap<i32, Model> = HashMap::new();
    let mut expected = Figures::new();
    let mut on_step = |step: &Step<'_>| {
        if !step.repeated && code.missed.around(step.pc).is_none() {
            let model = models.entry(step.thread).or_default();
            tell(&code, model, &mut expected, step);
        }
    };
    let profile = stepper::watch(&original, &mut command, options, &mut on_step).unwrap();
    profile.ended_as(source.runs[0].end).unwrap();
    if models.len() > 1 {
        // A thread may go on with the predictor of one that has ended.
        for figures in [&mut found, &mut expected] {
            for ((table, _), row) in figures.iter_mut() {
                row.truncate(if *table == BRANCHES { 2 } else { 1 });
            }
        }
    }
    assert!(!expected.is_empty(), "{label}");
    let places = found.keys().chain(expected.keys());
    let wrong: Vec<String> = places
        .filter(|place| found.get(place) != expected.get(place))
        .map(|place| {
            let (table, pc) = *place;
            let [found, expected] = [&found, &expected].map(|figures| figures.get(place));
            format!(
                "{} {pc:#x}: {found:?}, expected {expected:?}",
                TABLES[table].0
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{label}:\n{}", wrong.join("\n"));
}

fn check(name: &str) {
    check_few(name, judge);
}

tests_of_programs! {
    check;
    asmpush_c: "asmpush.c",
    callpop_s: "callpop.S",
    deep_c: "deep.c",
    flags_s: "flags.S",
    jumps_c: "jumps.c",
    jumptables_c: "jumptables.c",
    order_s: "order.S",
    poppedreturn_s: "poppedreturn.S",
    strings_c: "strings.c",
    threads_c: "threads.c",
    virtual_cc: "virtual.cc",
}

/// Compiles the program with known patterns.
fn patterns() -> PathBuf {
    let folder = atom_tests::cache::folder("predict");
    let program = folder.join("patterns");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/predict/programs/patterns.S");
    let mut command = Command::new("gcc");
    command
        .args(["-nostdlib", "-static"])
        .arg(source)
        .arg("-o")
        .arg(&program);
    assert!(command.status().unwrap().success());
    program
}

#[test]
fn patterns_are_predicted_as_theory_says() {
    let program = patterns();
    let [out, json] = ["rewritten", "json"].map(|name| program.with_extension(name));
    let options = vec!["--json".into(), json.display().to_string()];
    atom::instrument(&program, &out, &Job::Tool("predict".into(), options), true).unwrap();
    let mut command = Command::new(&out);
    plain_environment(&mut command);
    run(&mut command, &Setting::default()).unwrap();

    let symbols = atom_tests::counts::Symbols::read(&program);
    let found = read(&json);
    let of = |table: usize, name: &str| {
        let row = found.get(&(table, symbols.address(name).unwrap()));
        row.unwrap_or_else(|| panic!("{name} is not in {found:x?}"))
            .clone()
    };
    let near = |value: u64, expected: u64, by: u64| value.abs_diff(expected) <= by;
    // A loop of 8 rounds: two-bit counters are wrong at each end, and once at the very start.
    let row = of(BRANCHES, "loop_of_8");
    assert_eq!(row[..2], [80_000, 70_000]);
    assert!(
        near(row[2], 10_000, 2) && row[3] < 300 && row[4] < 300,
        "{row:?}"
    );
    // Taken and not taken by turns: from weakly not taken, two-bit counters are always wrong.
    let row = of(BRANCHES, "by_turns");
    assert_eq!(row[..2], [10_000, 5_000]);
    assert!(
        [0, 5_000, 10_000].iter().any(|n| near(row[2], *n, 4)),
        "{row:?}"
    );
    assert!(row[3] < 300 && row[4] < 300, "{row:?}");
    // A loop of 40 rounds is longer than gshare's history and shorter than TAGE's.
    let row = of(BRANCHES, "loop_of_40");
    assert_eq!(row[0], 400_000);
    assert!(
        near(row[2], 10_000, 2) && near(row[3], 10_000, 300),
        "{row:?}"
    );
    assert!(row[4] < 500, "{row:?}");
    // Chance: nobody is right more often than half of the time.
    let row = of(BRANCHES, "chance");
    assert_eq!(row[0], 10_000);
    assert!(row[2..].iter().all(|n| near(*n, 5_000, 400)), "{row:?}");
    // Four targets in a fixed order: the last one is always wrong, the path is right.
    let row = of(JUMPS, "dispatch");
    assert_eq!(row[0], 10_000);
    assert!(row[1] > 9_990 && row[2] < 100, "{row:?}");
    // A recursion of 24 calls, 100 times: the stack keeps 16 return addresses.
    let row = of(RETURNS, "deep_return");
    assert_eq!(row[0], 2_400);
    // The addresses of the deepest 16 calls are right. The first call came from elsewhere; the others all come back
    // to one place, so an overwritten address is right, too.
    assert_eq!(row[1], 100);
}

/// Both ways to count give the same number of executions, in a whole process that forks.
#[test]
fn executions_are_those_of_branch() {
    let Some(shell) = atom_tests::programs::in_path("/bin/dash") else {
        return;
    };
    let folder = atom_tests::cache::empty_folder("predict-whole");
    let script = "work() { i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; }; work; (work); work";
    let both = |tool: &str| {
        let out = folder.join(format!("{tool}-shell"));
        let json = folder.join(format!("{tool}.json"));
        let options = vec!["--json".into(), json.display().to_string()];
        let job = Job::Whole(Box::new(Job::Tool(tool.into(), options)), Vec::new());
        atom::instrument(&shell, &out, &job, false).unwrap();
        let mut command = Command::new(&out);
        plain_environment(&mut command);
        command.args(["-c", script]);
        let fixed = Setting {
            fixed_addresses: true,
            ..Setting::default()
        };
        let outcome = run(&mut command, &fixed).unwrap();
        assert_eq!(outcome.stderr, b"");
        let reports = std::fs::read_dir(&folder).unwrap().filter_map(|file| {
            let path = file.unwrap().path();
            let name = path.file_name()?.to_str()?;
            name.starts_with(&format!("{tool}.json")).then_some(path)
        });
        let mut sums: Vec<u64> = reports
            .map(|path| {
                let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
                let rows = json["conditional_branches"].as_array().unwrap();
                rows.iter()
                    .map(|row| row["executed"].as_u64().unwrap())
                    .sum()
            })
            .collect();
        sums.sort_unstable();
        sums
    };
    let [branch, predict] = ["branch", "predict"].map(both);
    assert_eq!(branch.len(), 2, "the parent and the child report");
    assert_eq!(predict.len(), 2, "the parent and the child report");
    for (a, b) in branch.iter().zip(&predict) {
        // Numbers of processes have more or fewer digits.
        assert!(a.abs_diff(*b) * 1000 < *a, "{branch:?} {predict:?}");
    }
}
