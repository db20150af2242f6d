//! Random routines: parameters, statements and expressions, without a language.
//!
//! All variables are unsigned numbers of 64 bits. A template has the text in Rust and in C, with `{0}` and so on
//! for the operands and `{s}` for the routine's state.

use super::{Language, Random};

/// An operation: its text in Rust, in C, and its number of operands.
type Template = (&'static str, &'static str, usize);

/// Operations on numbers.
const OPERATIONS: [Template; 34] = [
    ("{0}.wrapping_add({1})", "({0} + {1})", 2),
    ("{0}.wrapping_sub({1})", "({0} - {1})", 2),
    ("{0}.wrapping_mul({1})", "({0} * {1})", 2),
    ("({0} & {1})", "({0} & {1})", 2),
    ("({0} | {1})", "({0} | {1})", 2),
    ("({0} ^ {1})", "({0} ^ {1})", 2),
    ("(!{0})", "(~{0})", 1),
    ("({0} << ({1} & 63))", "({0} << ({1} & 63))", 2),
    ("({0} >> ({1} & 63))", "({0} >> ({1} & 63))", 2),
    ("(u64::MAX >> ({0} & 63))", "(~0ul >> ({0} & 63))", 1),
    (
        "(({0} as i64 >> ({1} & 63)) as u64)",
        "((u64)((long){0} >> ({1} & 63)))",
        2,
    ),
    (
        "u64::from(({0} as u32) << ({1} & 31))",
        "((u64)((unsigned){0} << ({1} & 31)))",
        2,
    ),
    (
        "u64::from(({0} as u32) >> ({1} & 31))",
        "((u64)((unsigned){0} >> ({1} & 31)))",
        2,
    ),
    (
        "{0}.rotate_left({1} as u32 & 63)",
        "({0} << ({1} & 63) | {0} >> (-{1} & 63))",
        2,
    ),
    ("{0}.rotate_right(13)", "({0} >> 13 | {0} << 51)", 1),
    (
        "u64::from(({0} as u32).rotate_left({1} as u32 & 31))",
        "((u64)((unsigned){0} << ({1} & 31) | (unsigned){0} >> (-{1} & 31)))",
        2,
    ),
    ("({0} / ({1} | 1))", "({0} / ({1} | 1))", 2),
    ("({0} % ({1} | 1))", "({0} % ({1} | 1))", 2),
    ("({0} / 7)", "({0} / 7)", 1),
    ("({0} % 10)", "({0} % 10)", 1),
    (
        "u64::from({0} as u32 / ({1} as u32 | 1))",
        "((u64)((unsigned){0} / ((unsigned){1} | 1)))",
        2,
    ),
    ("u64::from({0} as u8)", "((u64)(unsigned char){0})", 1),
    ("u64::from({0} as u16)", "((u64)(unsigned short){0})", 1),
    ("({0} as i8 as u64)", "((u64)(signed char){0})", 1),
    ("({0} as i32 as u64)", "((u64)(int){0})", 1),
    ("u64::from({0} < {1})", "((u64)({0} < {1}))", 2),
    (
        "u64::from(({0} as i64) < ({1} as i64))",
        "((u64)((long){0} < (long){1}))",
        2,
    ),
    ("u64::from({0} == {1})", "((u64)({0} == {1}))", 2),
    (
        "(if {0} > {1} { {2} } else { {0} })",
        "({0} > {1} ? {2} : {0})",
        3,
    ),
    ("{0}.min({1})", "({0} < {1} ? {0} : {1})", 2),
    (
        "u64::from(({0} | 1).leading_zeros())",
        "((u64)__builtin_clzl({0} | 1))",
        1,
    ),
    ("{0}.swap_bytes()", "__builtin_bswap64({0})", 1),
    ("TABLE[({0} & 15) as usize]", "table[{0} & 15]", 1),
    (
        "SHARED[({0} & 7) as usize].load(Relaxed)",
        "shared[{0} & 7]",
        1,
    ),
];

/// Reads of the state.
const READS: [Template; 4] = [
    ("{s}.a.get()", "{s}->a", 0),
    ("{s}.b.get()", "{s}->b", 0),
    ("{s}.c.get()", "{s}->c", 0),
    ("{s}.sum.get()", "{s}->sum", 0),
];

/// Statements without a block.
const STATEMENTS: [Template; 12] = [
    ("{s}.a.set({0});", "{s}->a = {0};", 1),
    ("{s}.b.set({0});", "{s}->b = {0};", 1),
    ("{s}.c.set({s}.c.get() | {0});", "{s}->c |= {0};", 1),
    ("{s}.a.add({0});", "{s}->a += {0};", 1),
    ("{s}.b.add(1);", "{s}->b++;", 0),
    (
        "{s}.sum.set({s}.sum.get().rotate_left(5) ^ {0});",
        "{s}->sum = ({s}->sum << 5 | {s}->sum >> 59) ^ {0};",
        1,
    ),
    ("{s}.sum.add({0});", "{s}->sum += {0};", 1),
    ("{s}.sum.set({s}.sum.get() ^ {0});", "{s}->sum ^= {0};", 1),
    (
        "SHARED[({0} & 7) as usize].store({1}, Relaxed);",
        "shared[{0} & 7] = {1};",
        2,
    ),
    (
        "SHARED[3].fetch_add({0}, Relaxed);",
        "__atomic_fetch_add(&shared[3], {0}, __ATOMIC_RELAXED);",
        1,
    ),
    (
        "{s}.at.set(&raw const LINES[({0} & 3) as usize] as u64);",
        "{s}->at = &lines[{0} & 3];",
        1,
    ),
    (
        "if let Some(line) = unsafe { ({s}.at.get() as *const Line).as_ref() } { line.read.set(line.read.get() | {0}); {s}.sum.add(line.read.get()); }",
        "if ({s}->at) { {s}->at->read |= {0}; {s}->sum += {s}->at->read; }",
        1,
    ),
];

/// Conditions.
const CONDITIONS: [Template; 10] = [
    ("{0} == {1}", "{0} == {1}", 2),
    ("{0} < {1}", "{0} < {1}", 2),
    ("({0} as i64) < ({1} as i64)", "(long){0} < (long){1}", 2),
    ("{0} & {1} == 0", "({0} & {1}) == 0", 2),
    ("{0} & 7 != 0", "({0} & 7) != 0", 1),
    ("{0} / 64 == {s}.a.get()", "{0} / 64 == {s}->a", 1),
    ("{s}.b.get() > {0}", "{s}->b > {0}", 1),
    ("{s}.at.get() != 0", "{s}->at != 0", 0),
    (
        "({0} as u8) > ({1} as u8)",
        "(unsigned char){0} > (unsigned char){1}",
        2,
    ),
    ("({0} as i32) < 0", "(int){0} < 0", 1),
];

/// What is passed for a parameter.
#[derive(Clone, Debug)]
pub enum Argument {
    /// The number of the point, as 32 bits.
    Point,
    /// A number of 64 bits that depends on the point.
    Wide,
    /// True at every other point.
    Flag,
    /// The same constant everywhere.
    Constant(u64),
    /// The routine's counter.
    Counter,
    /// A value, by its text in both languages, which `Inst::offers` knows.
    Value(&'static str),
    /// A register, by its name in Rust and in C.
    Register(&'static str, &'static str),
    /// A sum of registers.
    Sum {
        /// Base and index.
        registers: [(&'static str, &'static str); 2],
        /// Factor of the index.
        scale: u8,
        /// In bytes.
        displacement: i32,
    },
}

const VALUES: [&str; 16] = [
    "BrCondValue",
    "EffAddrOf(0)",
    "EffAddrOf(0)",
    "EffAddrOf(1)",
    "AccessSizeOf(0)",
    "AccessSize",
    "LoadedValueOf(0)",
    "LoadedValue",
    "StoredValueOf(0)",
    "StoredValue",
    "RepCount",
    "Direction",
    "BranchTarget",
    "ReturnValue",
    "EffAddrValue",
    "EffAddrValue",
];

const REGISTERS: [(&str, &str); 20] = [
    ("Rax", "REG_RAX"),
    ("Rcx", "REG_RCX"),
    ("Rdx", "REG_RDX"),
    ("Rbx", "REG_RBX"),
    ("Rsp", "REG_RSP"),
    ("Rbp", "REG_RBP"),
    ("Rsi", "REG_RSI"),
    ("Rdi", "REG_RDI"),
    ("R8", "REG_R8"),
    ("R9", "REG_R9"),
    ("R10", "REG_R10"),
    ("R11", "REG_R11"),
    ("R12", "REG_R12"),
    ("R13", "REG_R13"),
    ("R14", "REG_R14"),
    ("R15", "REG_R15"),
    ("Pc", "REG_PC"),
    ("Flags", "REG_FLAGS"),
    ("Xmm0", "FREG_0"),
    ("Xmm1", "FREG_1"),
];

impl Argument {
    fn random(r: &mut Random) -> Self {
        match r.below(12) {
            0 => Self::Point,
            1 => Self::Wide,
            2 => Self::Flag,
            3 => Self::Constant(*r.of(&[0, 1, 7, 64, 300, 1 << 40])),
            4 => Self::Counter,
            5 | 6 => {
                let (rust, c) = if r.chance(6) {
                    *r.of(&REGISTERS[16..])
                } else {
                    *r.of(&REGISTERS[..16])
                };
                Self::Register(rust, c)
            }
            7 => {
                let base = *r.of(&REGISTERS[..16]);
                let mut index = *r.of(&REGISTERS[..16]);
                if index.0 == "Rsp" {
                    index = REGISTERS[0];
                }
                Self::Sum {
                    registers: [base, index],
                    scale: 1 << r.below(4),
                    displacement: r.below(4000) as i32 - 2000,
                }
            }
            _ => Self::Value(VALUES[r.below(VALUES.len())]),
        }
    }

    /// True if the parameter is a counter and no number.
    pub fn is_counter(&self) -> bool {
        matches!(self, Self::Counter)
    }
}

/// An expression.
#[derive(Clone, Debug)]
pub enum Expression {
    /// The variable with a number.
    Variable(usize),
    /// A constant.
    Constant(u64),
    /// An operation.
    Operation(&'static Template, Vec<Expression>),
}

impl Expression {
    fn random(r: &mut Random, variables: usize, depth: usize) -> Self {
        match r.below(8) {
            0 => Self::Constant(match r.below(3) {
                0 => r.word() >> r.below(64),
                1 => 1 << r.below(64),
                _ => r.below(100) as u64,
            }),
            1 => Self::Operation(r.of(&READS), Vec::new()),
            2..=4 if depth > 0 => {
                let template = r.of(&OPERATIONS);
                Self::Operation(template, Self::some(r, variables, depth - 1, template.2))
            }
            _ if variables > 0 => Self::Variable(r.below(variables)),
            _ => Self::Constant(r.word() >> r.below(64)),
        }
    }

    fn some(r: &mut Random, variables: usize, depth: usize, count: usize) -> Vec<Self> {
        (0..count)
            .map(|_| Self::random(r, variables, depth))
            .collect()
    }

    /// Its text.
    pub fn text(&self, language: Language) -> String {
        match self {
            Self::Variable(n) => format!("v{n}"),
            Self::Constant(n) if language == Language::Rust => format!("{n}u64"),
            Self::Constant(n) => format!("{n}ul"),
            Self::Operation(template, operands) => fill(template, operands, language),
        }
    }
}

/// The text of a template with its operands.
pub fn fill(template: &Template, operands: &[Expression], language: Language) -> String {
    let text = match language {
        Language::Rust => template.0,
        Language::C => template.1,
    };
    let mut text = text.replace("{s}", "s");
    for (i, operand) in operands.iter().enumerate() {
        text = text.replace(&format!("{{{i}}}"), &operand.text(language));
    }
    text
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Statement {
    /// A new variable, which has the next number.
    Variable(Expression),
    /// A statement of one line.
    Simple(&'static Template, Vec<Expression>),
    /// An addition to the routine's counter, if it has one.
    Count(Expression),
    /// A branch; the variables of a side are known in it only.
    If(
        &'static Template,
        Vec<Expression>,
        Vec<Statement>,
        Vec<Statement>,
    ),
    /// A call of a function that is apart.
    Cold(usize, Vec<Expression>),
    /// The end of the routine.
    Return,
}

/// A routine.
#[derive(Clone, Debug)]
pub struct Routine {
    /// True if its calls are made after instructions.
    pub after: bool,
    /// Arguments of its calls. The state is one more, in front of the one with this number.
    pub arguments: Vec<Argument>,
    /// Number of the parameter that is the state.
    pub state: usize,
    /// Its body.
    pub body: Vec<Statement>,
    /// Functions that it may call: the number of their parameters, and their bodies.
    pub cold: Vec<(usize, Vec<Statement>)>,
}

impl Routine {
    /// The numbers of the parameters that are variables, in order.
    pub fn variables(&self) -> usize {
        self.arguments.iter().filter(|a| !a.is_counter()).count()
    }

    pub(super) fn random(r: &mut Random) -> Self {
        let mut arguments: Vec<Argument> = (0..r.below(6)).map(|_| Argument::random(r)).collect();
        // One counter is enough.
        let mut counters = 0;
        arguments.retain(|a| {
            counters += usize::from(a.is_counter());
            !a.is_counter() || counters == 1
        });
        let state = r.below(arguments.len() + 1);
        let mut routine = Self {
            after: r.chance(3),
            arguments,
            state,
            body: Vec::new(),
            cold: Vec::new(),
        };
        let cold = r.below(3);
        let variables = routine.variables();
        for _ in 0..cold {
            // Most get what the routine has got.
            let count = if r.chance(2) { variables } else { r.below(6) };
            let steps = 1 + r.below(3);
            routine.cold.push((count, block(r, count, steps, &[], 0)));
        }
        let colds: Vec<usize> = routine.cold.iter().map(|c| c.0).collect();
        if cold > 0 && !r.chance(3) {
            routine.body = quick_or_cold(r, variables, &colds);
            return routine;
        }
        let steps = 1 + r.below(5);
        routine.body = block(r, variables, steps, &colds, 2);
        let sum = &STATEMENTS[5];
        if variables > 0 && !r.chance(3) {
            let mut seen = Expression::some(r, variables, 2, 2);
            seen[0] = Expression::Variable(r.below(variables));
            let seen = Expression::Operation(&OPERATIONS[r.below(3)], seen);
            let at = if r.chance(2) { 0 } else { routine.body.len() };
            routine.body.insert(at, Statement::Simple(sum, vec![seen]));
        }
        routine
    }
}

/// The usual form of a routine: the quick path returns, if one or two conditions hold, and nothing is stored before
/// them; the rest is done by a function.
fn quick_or_cold(r: &mut Random, variables: usize, colds: &[usize]) -> Vec<Statement> {
    let mut known = variables;
    let mut steps = Vec::new();
    for _ in 0..r.below(3) {
        steps.push(Statement::Variable(Expression::random(r, known, 2)));
        known += 1;
    }
    let some = 1 + r.below(4);
    let mut quick = block(r, known, some, &[], 1);
    quick.push(Statement::Return);
    for _ in 0..1 + r.below(2) {
        let condition = r.of(&CONDITIONS);
        let operands = Expression::some(r, known, 1, condition.2);
        let (yes, no) = if r.chance(3) {
            (Vec::new(), quick)
        } else {
            (quick, Vec::new())
        };
        quick = vec![Statement::If(condition, operands, yes, no)];
    }
    steps.extend(quick);
    let which = r.below(colds.len());
    let mut operands = Expression::some(r, variables, 1, colds[which]);
    for (i, operand) in operands.iter_mut().enumerate() {
        if i < variables && !r.chance(6) {
            *operand = Expression::Variable(i);
        }
    }
    steps.push(Statement::Cold(which, operands));
    steps
}

fn cold_call(r: &mut Random, variables: usize, colds: &[usize]) -> Statement {
    let which = r.below(colds.len());
    // Most are passed on as they are.
    let depth = r.below(2);
    Statement::Cold(which, Expression::some(r, variables, depth, colds[which]))
}

/// A block of about `steps` statements, in which `variables` variables are known. `colds` has the numbers of
/// parameters of the functions that may be called.
fn block(
    r: &mut Random,
    variables: usize,
    steps: usize,
    colds: &[usize],
    depth: usize,
) -> Vec<Statement> {
    let mut known = variables;
    let mut all = Vec::new();
    for _ in 0..steps {
        match r.below(8) {
            0 | 1 => {
                all.push(Statement::Variable(Expression::random(r, known, 2)));
                known += 1;
            }
            2 if !colds.is_empty() => all.push(cold_call(r, known, colds)),
            3 | 4 if depth > 0 => {
                let condition = r.of(&CONDITIONS);
                let operands = Expression::some(r, known, 1, condition.2);
                let some = 1 + r.below(3);
                let mut yes = block(r, known, some, colds, depth - 1);
                if r.chance(3) {
                    yes.push(Statement::Return);
                }
                let some = r.below(3);
                let no = block(r, known, some, colds, depth - 1);
                all.push(Statement::If(condition, operands, yes, no));
            }
            5 => all.push(Statement::Count(Expression::random(r, known, 1))),
            _ => {
                let statement = r.of(&STATEMENTS);
                let operands = Expression::some(r, known, 2, statement.2);
                all.push(Statement::Simple(statement, operands));
            }
        }
    }
    all
}
