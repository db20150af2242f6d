//! Random conventions: assembly whose callers and callees, which meet through pointers only, agree on which
//! registers carry arguments and results, and which ones the callee keeps.

use std::fmt::Write;

/// Registers that the System V ABI lets a callee change, without rax, which has the callee's address.
const POOL: [&str; 8] = ["rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11"];

/// What a register is for in one convention.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// The callee does not touch it.
    Left,
    /// The callee saves and restores it.
    Saved,
    /// It has a result.
    Result,
    /// The callee changes it.
    Scratch,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

/// Writes the callee of a pair and the part of the caller that calls it. rbx has the sum of all that is read.
fn pair(number: usize, random: &mut Random, callees: &mut String, caller: &mut String) {
    use Role::*;
    let roles = POOL.map(|_| [Left, Saved, Result, Scratch][random.below(4) as usize]);
    let is = |role: Role| {
        POOL.iter()
            .zip(roles)
            .filter(move |(_, r)| *r == role)
            .map(|(name, _)| *name)
    };
    let argument = POOL[random.below(8) as usize];
    let vector = random.below(16);
    let returns_carry = random.below(2) == 0;
    for (i, name) in is(Left).chain(is(Saved)).enumerate() {
        writeln!(caller, "mov ${},%{name}", 3 + 5 * i + number).unwrap();
    }
    writeln!(caller, "mov ${},%{argument}", number * 7 + 1).unwrap();
    writeln!(caller, "movq %rbx,%xmm{vector}").unwrap();
    writeln!(caller, "mov table+{}(%rip),%rax\ncall *%rax", number * 8).unwrap();
    if returns_carry {
        writeln!(caller, "adc $0,%rbx").unwrap();
    }
    for name in is(Left).chain(is(Saved)).chain(is(Result)) {
        writeln!(caller, "add %{name},%rbx\nrol $3,%rbx").unwrap();
    }
    writeln!(caller, "movq %xmm{vector},%rax\nadd %rax,%rbx").unwrap();
    writeln!(
        callees,
        ".type callee{number},@function\ncallee{number}: mov %{argument},%rax"
    )
    .unwrap();
    for name in is(Saved) {
        writeln!(callees, "push %{name}").unwrap();
    }
    for (i, name) in is(Saved).chain(is(Scratch)).enumerate() {
        writeln!(callees, "mov ${i},%{name}\nadd %{name},%rax").unwrap();
    }
    for (i, name) in is(Result).enumerate() {
        writeln!(callees, "lea {i}(%rax),%{name}").unwrap();
        // A result that is read again is no evidence in the callee.
        if random.below(2) == 0 {
            writeln!(callees, "add %{name},%rax").unwrap();
        }
    }
    let saved: Vec<&str> = is(Saved).collect();
    for name in saved.iter().rev() {
        writeln!(callees, "pop %{name}").unwrap();
    }
    if returns_carry {
        writeln!(callees, "cmp $9,%rax").unwrap();
    }
    writeln!(callees, "ret\n.size callee{number},.-callee{number}").unwrap();
}

/// A program in C with `pairs` pairs.
pub fn program(seed: u64, pairs: usize) -> String {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut callees, mut caller) = (String::new(), String::new());
    for number in 0..pairs {
        pair(number, &mut random, &mut callees, &mut caller);
    }
    let table: String = (0..pairs).map(|n| format!(".quad callee{n}\n")).collect();
    let assembly = format!(
        ".text\n{callees}.globl drive\n.type drive,@function\ndrive: push %rbx\nmov %rdi,%rbx\n{caller}\
         mov %rbx,%rax\npop %rbx\nret\n.size drive,.-drive\n\
         .section .data.rel.ro,\"aw\"\ntable:\n{table}.text\n"
    );
    let lines: String = assembly
        .lines()
        .map(|l| format!("{:?}\n", format!("{l}\n")))
        .collect();
    format!(
        "#include <stdio.h>\nasm({lines});\nlong drive(long);\n\
         int main(void) {{ for (int i = 0; i < 50; i++) printf(\"%lx\\n\", drive(i)); return 0; }}\n"
    )
}
