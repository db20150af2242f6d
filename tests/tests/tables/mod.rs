//! Tables of random bytes in the text, read in different ways, at all kinds of places: nothing may be written over them.
//!
//! The program prints a sum for each table, which any changed byte changes. The seed is printed; `ATOM_SEED` sets it.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::corpus::inputs::Numbers;
use atom_tests::outcome::{Setting, plain_environment, run};

/// Number of tables of a program.
const TABLES: u64 = 300;

/// How the code finds its table.
const WAYS: [&str; 4] = [
    // Adds an index to an address.
    "leaq TABLE(%rip), %rsi\n movl $SIZE, %ecx\n xorl %eax, %eax\n1: movzbl -1(%rsi,%rcx), %edx\n imulq $31, %rax, %rax\n \
     addq %rdx, %rax\n loop 1b\n",
    // Reads words by themselves.
    "movq TABLE(%rip), %rax\n rolq $7, %rax\n addq 8+TABLE(%rip), %rax\n",
    // Passes the address on.
    "leaq TABLE(%rip), %rdi\n movl $SIZE, %esi\n subq $8, %rsp\n call sum\n addq $8, %rsp\n",
    // Takes the address from data.
    "movq pointerNUMBER(%rip), %rdi\n movl $SIZE, %esi\n subq $8, %rsp\n call sum\n addq $8, %rsp\n",
];

/// Code around a table.
struct Place {
    /// What is in front of the procedure's code.
    before: &'static str,
    /// What stands between the code and its return.
    inside: &'static str,
    /// What is after the return, in the procedure.
    end: &'static str,
    /// What is after the procedure.
    behind: &'static str,
}

const PLACES: [Place; 6] = [
    Place {
        before: "",
        inside: "",
        end: "",
        behind: "DATA",
    },
    Place {
        before: "",
        inside: "",
        end: "",
        behind: ".balign 16\nDATA",
    },
    Place {
        before: "",
        inside: "",
        end: "",
        behind: ".balign 64, 0xcc\nDATA",
    },
    Place {
        before: ".balign 16\nDATA",
        inside: "",
        end: "",
        behind: "",
    },
    Place {
        before: "",
        inside: "jmp 2f\nDATA\n2: ",
        end: "",
        behind: "",
    },
    Place {
        before: "",
        inside: "",
        end: "DATA",
        behind: "",
    },
];

/// A program of assembly code with random tables, and the seed's next numbers.
fn program(random: &mut Numbers) -> String {
    let mut text = String::from(
        ".text\n.globl main\n.type sum, @function\nsum: xorl %eax, %eax\n1: movzbl -1(%rdi,%rsi), %edx\n \
         imulq $31, %rax, %rax\n addq %rdx, %rax\n decq %rsi\n jnz 1b\n ret\n.size sum, .-sum\n",
    );
    let mut main = String::from(
        ".type main, @function\nmain: .cfi_startproc\n subq $8, %rsp\n .cfi_adjust_cfa_offset 8\n",
    );
    let mut data = String::from(".section .data.rel.ro, \"aw\"\n");
    for number in 0..TABLES {
        let mut pick = |n: u64| random.below(n) as usize;
        let (way, place, size) = (
            WAYS[pick(WAYS.len() as u64)],
            &PLACES[pick(PLACES.len() as u64)],
            16 + pick(64),
        );
        let (is_object, is_described, is_named) = (pick(3) == 0, pick(2) == 0, pick(3) != 0);
        let bytes: Vec<String> = (0..size).map(|_| pick(256).to_string()).collect();
        // Some tables begin as code does, with a short jump to a procedure.
        let opening = match pick(4) {
            0 => format!("subb 0x26(%rcx,%rdi,2), %al\n movl $0x142d631e, %ebx\n jmp f{number}\n"),
            _ => String::new(),
        };
        let mut table = format!("table{number}: {opening} .byte {}\n", bytes.join(","));
        if is_object {
            let _ = write!(
                table,
                ".type table{number}, @object\n.size table{number}, {size}\n"
            );
        }
        let put = |text: &str| text.replace("DATA", &table);
        let named = |text: &str| {
            if is_named {
                text.replace("NAME", &format!("f{number}"))
            } else {
                String::new()
            }
        };
        let described = |text: &'static str| if is_described { text } else { "" };
        let code = way
            .replace("TABLE", &format!("table{number}"))
            .replace("SIZE", &size.to_string());
        let _ = write!(
            text,
            "{}\n{}f{number}: {}\n{}{} ret\n{}\n{}{}{}\n",
            put(place.before),
            named(".type NAME, @function\n"),
            described(".cfi_startproc"),
            code.replace("NUMBER", &number.to_string()),
            put(place.inside),
            put(place.end),
            described(".cfi_endproc\n"),
            named(".size NAME, .-NAME\n"),
            put(place.behind),
        );
        let _ = writeln!(data, "pointer{number}: .quad table{number}");
        let _ = write!(
            main,
            " call f{number}\n leaq format(%rip), %rdi\n movl ${number}, %esi\n movq %rax, %rdx\n xorl %eax, %eax\n call printf@PLT\n"
        );
    }
    format!(
        "{text}\n{main} xorl %eax, %eax\n addq $8, %rsp\n .cfi_adjust_cfa_offset -8\n ret\n.cfi_endproc\n.size main, .-main\n{data}\
         .section .rodata\nformat: .string \"%d %lx\\n\"\n.section .note.GNU-stack, \"\", @progbits\n"
    )
}

fn check(name: &str, flags: &[&str]) {
    let seed = match std::env::var("ATOM_SEED") {
        Ok(text) => text.parse().expect("ATOM_SEED is a number"),
        Err(_) => u64::from(std::process::id()),
    };
    println!("seed {seed}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tables-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, original) = (folder.join("tables.S"), folder.join("tables"));
    std::fs::write(&source, program(&mut Numbers(seed | 1))).unwrap();
    let made = Command::new("gcc")
        .args(flags)
        .arg("-o")
        .args([&original, &source])
        .status();
    assert!(made.expect("gcc runs").success());
    let outcome = |program: &Path| {
        let mut command = Command::new(program);
        plain_environment(&mut command);
        run(&mut command, &Setting::default()).unwrap()
    };
    let before = outcome(&original);
    assert_eq!(
        before.stdout.iter().filter(|b| **b == b'\n').count() as u64,
        TABLES
    );
    for job in [Job::Moved, Job::Tool("icount".into(), Vec::new())] {
        let rewritten = folder.join("rewritten");
        atom::instrument(&original, &rewritten, &job, true).unwrap();
        let after = outcome(&rewritten);
        let lines = |out: &[u8]| {
            String::from_utf8_lossy(out)
                .lines()
                .map(str::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            lines(&before.stdout),
            lines(&after.stdout),
            "seed {seed}, {job:?}"
        );
        assert_eq!(before.end, after.end, "seed {seed}, {job:?}");
    }
}

#[test]
fn with_symbols() {
    check("symbols", &[]);
}

#[test]
fn stripped() {
    check("stripped", &["-s"]);
}

#[test]
fn at_fixed_addresses() {
    check("fixed", &["-no-pie", "-s"]);
}

#[test]
fn static_() {
    check("static", &["-s", "-static"]);
}
