//! The source of tools in C.

use std::fmt::Write;

use super::block::BlockWriter;
use super::routine::{Argument, Routine};
use super::{Language, ROUTINES};

const LANGUAGE: Language = Language::C;

const HEAD: &str = r#"/* Made by a generator. */
#include <stdio.h>
#include <stdlib.h>
#include <instrument.h>
#include <atom.h>
typedef unsigned long u64;
typedef struct { u64 read; } Line;
typedef struct { u64 sum, a, b, c; Line *at; } State;
static Line lines[4];
static u64 shared[8];
static const u64 table[16] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 93, 1ul << 40 };
static int picked(u64 number, u64 every) { return (number * 0x9e3779b97f4a7c15ul >> 33) % every == 0; }
"#;

const TAIL: &str = r#"
void Instrument(int argc, char **argv) {
    u64 every = strtoul(argv[2], 0, 0);
    switch (atoi(argv[1])) {
"#;

/// The source of several tools.
pub fn source(tools: &[Vec<Routine>]) -> String {
    let mut text = HEAD.to_owned();
    for (t, tool) in tools.iter().enumerate() {
        for (k, routine) in tool.iter().enumerate() {
            write_routine(&mut text, t, k, routine);
        }
        write_tool(&mut text, t, tool);
    }
    text += TAIL;
    for t in 0..tools.len() {
        let _ = writeln!(text, "    case {t}: tool{t}(every, argv[3]); break;");
    }
    text += "    }\n}\n";
    text
}

fn write_routine(text: &mut String, t: usize, k: usize, routine: &Routine) {
    for (n, (parameters, body)) in routine.cold.iter().enumerate() {
        let list: String = (0..*parameters).map(|i| format!(", u64 v{i}")).collect();
        let _ = writeln!(
            text,
            "__attribute__((cold, noinline)) static void cold{t}_{k}_{n}(State *s{list}) {{"
        );
        BlockWriter::new(LANGUAGE, (t, k), None).write(text, body, *parameters);
        text.push_str("}\n");
    }
    let mut parameters = Vec::new();
    let mut variables = String::new();
    let (mut known, mut counter) = (0, None);
    for (i, argument) in routine.arguments.iter().enumerate() {
        let kind = match argument {
            Argument::Point => "unsigned ",
            Argument::Flag => "int ",
            Argument::Counter => "u64 *",
            _ => "u64 ",
        };
        parameters.push(format!("{kind}p{i}"));
        if argument.is_counter() {
            counter = Some(format!("p{i}"));
        } else {
            let _ = write!(variables, "u64 v{known} = p{i}; ");
            known += 1;
        }
    }
    parameters.insert(routine.state, "State *s".into());
    let list = parameters.join(", ");
    let _ = writeln!(text, "void r{t}_{k}({list}) {{ {variables}");
    BlockWriter::new(LANGUAGE, (t, k), counter.as_deref()).write(text, &routine.body, known);
    text.push_str("}\n");
}

/// The type in a prototype, and the argument of a call at the point number `n` by routine `k`.
fn argument(argument: &Argument, k: usize) -> (&'static str, String) {
    match argument {
        Argument::Point => ("int", "(int)n".into()),
        Argument::Wide => ("long", "(long)(n * 0x100000101ul)".into()),
        Argument::Flag => ("int", "(n & 64) != 0".into()),
        Argument::Constant(c) => ("long", format!("{c}l")),
        Argument::Counter => ("COUNTER", format!("CounterAt(counters, {k})")),
        Argument::Value(text) => ("VALUE", (*text).into()),
        Argument::Register(_, name) => ("REGV", (*name).into()),
        Argument::Sum {
            registers: [base, index],
            scale,
            displacement,
        } => (
            "VALUE",
            format!(
                "ValueOfSum({}, {}, {scale}, {displacement})",
                base.1, index.1
            ),
        ),
    }
}

fn write_tool(text: &mut String, t: usize, tool: &[Routine]) {
    let _ = writeln!(
        text,
        "void report{t}(char *sums, Counters *counters{}) {{
    Threads *all[] = {{ {} }};
    FILE *file = fopen(sums, \"w\");
    for (int k = 0; k < {ROUTINES}; k++)
        for (State *s = NextThreadData(all[k], 0); s; s = NextThreadData(all[k], s))
            fprintf(file, \"%lx %lx %lx %lx %lx\\n\", s->sum, s->a, s->b, s->c, counters->value[k]);
    for (int i = 0; i < 8; i++) fprintf(file, \"%lx\\n\", shared[i]);
    fclose(file);
}}
static void tool{t}(u64 every, char *sums) {{
    Data *counters = MakeCounters({ROUTINES}), *s[{ROUTINES}];
    for (int k = 0; k < {ROUTINES}; k++) s[k] = MakeThreadData(0, sizeof(State));
    AddCallProto(\"report{t}(char *, COUNTERS{})\");",
        (0..ROUTINES)
            .map(|k| format!(", Threads *s{k}"))
            .collect::<String>(),
        (0..ROUTINES)
            .map(|k| format!("s{k}"))
            .collect::<Vec<_>>()
            .join(", "),
        ", THREADS".repeat(ROUTINES),
    );
    for (k, routine) in tool.iter().enumerate() {
        let mut types: Vec<&str> = routine.arguments.iter().map(|a| argument(a, k).0).collect();
        types.insert(routine.state, "THREAD");
        let _ = writeln!(text, "AddCallProto(\"r{t}_{k}({})\");", types.join(", "));
    }
    let _ = writeln!(
        text,
        "u64 n = 0;
    for (Proc *p = GetFirstProc(); p; p = GetNextProc(p))
    for (Block *b = GetFirstBlock(p); b; b = GetNextBlock(b))
    for (Inst *i = GetFirstInst(b); i; i = GetNextInst(i)) {{
        if (!picked(++n, every)) continue;
        int calls = 0, last = i == GetLastInst(b);
        for (int k = 0; k < {ROUTINES}; k++) switch ((n + k) % {ROUTINES}) {{"
    );
    for (k, routine) in tool.iter().enumerate() {
        let place = if routine.after {
            "InstAfter"
        } else {
            "InstBefore"
        };
        let mut demands = vec!["calls < 2".to_owned()];
        for a in &routine.arguments {
            match a {
                Argument::Value(_) => {
                    demands.push(format!("InstOffers(i, {place}, {})", argument(a, k).1));
                }
                // A sum is before an instruction only.
                Argument::Sum { .. } if routine.after => demands.push("0".into()),
                _ => {}
            }
        }
        if routine.after {
            demands.push("!last".into());
        }
        let mut list: Vec<String> = routine.arguments.iter().map(|a| argument(a, k).1).collect();
        list.insert(routine.state, format!("s[{k}]"));
        let _ = writeln!(
            text,
            "case {k}: if ({}) {{ calls++; AddCallInst(i, {place}, \"r{t}_{k}\", {}); }} break;",
            demands.join(" && "),
            list.join(", ")
        );
    }
    let states: String = (0..ROUTINES).map(|k| format!(", s[{k}]")).collect();
    let _ = writeln!(
        text,
        "}}
    }}
    AddCallProgram(ProgramAfter, \"report{t}\", sums, counters{states});
}}"
    );
}
