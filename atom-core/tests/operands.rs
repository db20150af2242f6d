//! Registers, flags and memory of instructions against a table written by hand
//! from the processor manuals.
//!
//! Columns: instruction; registers used; registers updated, `!` if nothing of
//! the old value is left; flags read, written, of these undefined; memory.
//! Memory: `R`, `W` or both, `?` if it may not happen, size, `x` number of
//! elements, address, then `i` implicit, `s` string, `r` repeated, `b` broadcast,
//! `a` 32-bit address, `8` index of one byte,
//! `^` bit offset. A final `*` stands for the rest.

use std::path::Path;
use std::process::Command;

use atom_abi::host::Reg;
use atom_abi::query::{InstInfo, MemoryRecord, NO_REG, OperandKind, access, memory};
use atom_core::x86::memory::MemoryOperands;
use atom_core::x86::{decode_at, operands, registers};
use iced_x86::{Instruction, InstructionInfoFactory};
use object::{Object, ObjectSection};

const CASES: &str = "
    mov rax, rbx                    ; Rbx             ; Rax!            ;         ;
    mov eax, ebx                    ; Rbx             ; Rax!            ;         ;
    mov ax, bx                      ; Rbx             ; Rax             ;         ;
    mov ah, bl                      ; Rbx             ; Rax             ;         ;
    mov al, [rdi+rcx*8+16]          ; Rcx Rdi         ; Rax             ;         ; R1[Rdi+Rcx*8+16]
    mov [rsp-8], r15                ; Rsp R15         ;                 ;         ; W8[Rsp-8]
    mov rax, fs:[0x28]              ; FsBase          ; Rax!            ;         ; R8[FsBase:0x28]
    mov rax, gs:[rdi]               ; Rdi GsBase      ; Rax!            ;         ; R8[GsBase:Rdi]
    mov eax, [edi+4]                ; Rdi             ; Rax!            ;         ; R4[Rdi+4]a
    lea rax, [rdi+rcx]              ; Rcx Rdi         ; Rax!            ;         ;
    add rax, [rdi]                  ; Rax Rdi         ; Rax! Flags      ; -/CPAZSO/- ; R8[Rdi]
    add dword ptr [rdi], 1          ; Rdi             ; Flags           ; -/CPAZSO/- ; RW4[Rdi]
    adc eax, 0                      ; Rax Flags       ; Rax! Flags      ; C/CPAZSO/- ;
    inc ecx                         ; Rcx             ; Rcx! Flags      ; -/PAZSO/-  ;
    and eax, 1                      ; Rax             ; Rax! Flags      ; -/CPAZSO/A ;
    xor eax, eax                    ;                 ; Rax! Flags      ; -/CPAZSO/A ;
    cmp rax, rbx                    ; Rax Rbx         ; Flags           ; -/CPAZSO/- ;
    shl eax, cl                     ; Rax Rcx         ; Rax! Flags      ; -/CPAZSO/AO ;
    imul rax, rbx, 3                ; Rbx             ; Rax! Flags      ; -/CPAZSO/PAZS ;
    mul rbx                         ; Rax Rbx         ; Rax! Rdx! Flags ; -/CPAZSO/PAZS ;
    div cl                          ; Rax Rcx         ; Rax Flags       ; -/CPAZSO/CPAZSO ;
    cqo                             ; Rax             ; Rdx!            ;         ;
    sete al                         ; Flags           ; Rax             ; Z/-/-   ;
    cmovb rax, rbx                  ; Rbx Flags       ; Rax             ; C/-/-   ;
    cmovb eax, [rdi]                ; Rax Rdi Flags   ; Rax!            ; C/-/-   ; R4[Rdi]
    xchg rax, [rdi]                 ; Rax Rdi         ; Rax!            ;         ; RW8[Rdi]
    lock cmpxchg [rdi], ecx         ; Rax Rcx Rdi     ; Rax Flags       ; -/CPAZSO/- ; RW4[Rdi]
    push rbx                        ; Rbx Rsp         ; Rsp!            ;         ; W8[Rsp-8]i
    push qword ptr [rdi+8]          ; Rsp Rdi         ; Rsp!            ;         ; R8[Rdi+8] W8[Rsp-8]i
    pop rbx                         ; Rsp             ; Rbx! Rsp!       ;         ; R8[Rsp]i
    pop qword ptr [rsp]             ; Rsp             ; Rsp!            ;         ; W8[Rsp+8] R8[Rsp]i
    leave                           ; Rbp             ; Rsp! Rbp!       ;         ; R8[Rbp]i
    pushfq                          ; Rsp Flags       ; Rsp!            ; CPAZSDO/-/- ; W8[Rsp-8]i
    call .                          ; Rsp Pc          ; Rsp! Pc!        ;         ; W8[Rsp-8]i
    call rax                        ; Rax Rsp Pc      ; Rsp! Pc!        ;         ; W8[Rsp-8]i
    call [rax+8]                    ; Rax Rsp Pc      ; Rsp! Pc!        ;         ; R8[Rax+8] W8[Rsp-8]i
    ret                             ; Rsp             ; Rsp! Pc!        ;         ; R8[Rsp]i
    jmp .                           ; Pc              ; Pc!             ;         ;
    jmp [rax]                       ; Rax             ; Pc!             ;         ; R8[Rax]
    je .                            ; Pc Flags        ; Pc              ; Z/-/-   ;
    ja .                            ; Pc Flags        ; Pc              ; CZ/-/-  ;
    jrcxz .                         ; Rcx Pc          ; Pc              ;         ;
    loop .                          ; Rcx Pc          ; Rcx! Pc         ;         ;
    syscall                         ; Rax Rdx Rsi Rdi R8 R9 R10 Pc Flags ; Rax! Rcx! R11! Pc! Flags ; * ;
    rdtsc                           ; CycleCounter    ; Rax! Rdx!       ;         ;
    cpuid                           ; Rax Rcx         ; Rax! Rcx! Rdx! Rbx! ;     ;
    stosb                           ; Rax Rdi Flags   ; Rdi!            ; D/-/-   ; W1[Rdi]is
    rep stosq                       ; Rax Rcx Rdi Flags ; Rcx Rdi       ; D/-/-   ; W?8[Rdi]isr
    movsd                           ; Rsi Rdi Flags   ; Rsi! Rdi!       ; D/-/-   ; W4[Rdi]is R4[Rsi]is
    rep movsb                       ; Rcx Rsi Rdi Flags ; Rcx Rsi Rdi   ; D/-/-   ; W?1[Rdi]isr R?1[Rsi]isr
    repne scasb                     ; Rax Rcx Rdi Flags ; Rcx Rdi Flags ; D/CPAZSO/- ; R?1[Rdi]isr
    lodsw                           ; Rsi Flags       ; Rax Rsi!        ; D/-/-   ; R2[Rsi]is
    cmpsq                           ; Rsi Rdi Flags   ; Rsi! Rdi! Flags ; D/CPAZSO/- ; R8[Rsi]is R8[Rdi]is
    xlatb                           ; Rax Rbx         ; Rax             ;         ; R1[Rbx+Rax*1]8
    cld                             ;                 ; Flags           ; -/D/-   ;
    bt eax, ebx                     ; Rax Rbx         ; Flags           ; -/CPASO/PASO ;
    bt [rdi], eax                   ; Rax Rdi         ; Flags           ; -/CPASO/PASO ; R4[Rdi]^Rax
    bswap r9                        ; R9              ; R9!             ;         ;
    mulx rax, rbx, rcx              ; Rcx Rdx         ; Rax! Rbx!       ;         ;
    wrfsbase rax                    ; Rax             ; FsBase!         ;         ;
    rdgsbase rax                    ; GsBase          ; Rax!            ;         ;
    mov fs, ax                      ; Rax             ; FsBase!         ;         ;
    movaps xmm0, xmm1               ; Xmm1            ; Xmm0            ;         ;
    movss xmm0, [rdi]               ; Rdi             ; Xmm0            ;         ; R4[Rdi]
    addsd xmm2, [rdi]               ; Rdi Xmm2        ; Xmm2            ;         ; R8[Rdi]
    pxor xmm3, xmm3                 ;                 ; Xmm3            ;         ;
    vaddps ymm0, ymm1, [rdi]        ; Rdi Xmm1        ; Xmm0!           ;         ; R32[Rdi]
    vpxor xmm0, xmm1, xmm2          ; Xmm1 Xmm2       ; Xmm0!           ;         ;
    vfmadd231pd xmm0, xmm1, xmm2    ; Xmm0 Xmm1 Xmm2  ; Xmm0!           ;         ;
    vmovdqu64 zmm31, [rdi+64]       ; Rdi             ; Xmm31!          ;         ; R64[Rdi+64]
    vaddps zmm0{k1}, zmm1, zmm2     ; K1 Xmm0 Xmm1 Xmm2 ; Xmm0          ;         ;
    vaddps zmm0{k1}{z}, zmm1, zmm2  ; K1 Xmm1 Xmm2    ; Xmm0!           ;         ;
    vaddps zmm0, zmm1, [rdi]{1to16} ; Rdi Xmm1        ; Xmm0!           ;         ; R4[Rdi]b
    vmovups [rdi]{k2}, ymm3         ; Rdi K2 Xmm3     ;                 ;         ; W?32[Rdi]
    vpcmpeqd k3, zmm1, zmm2         ; Xmm1 Xmm2       ; K3!             ;         ;
    kandw k1, k2, k3                ; K2 K3           ; K1!             ;         ;
    vpgatherdd ymm0, [rdi+ymm1*4], ymm2 ; Rdi Xmm0 Xmm1 Xmm2 ; Xmm0 Xmm2! ;       ; R?4x8[Rdi+Xmm1*4]
    vgatherdpd ymm0, [rdi+xmm1*8], ymm2 ; Rdi Xmm0 Xmm1 Xmm2 ; Xmm0 Xmm2! ;       ; R?8x4[Rdi+Xmm1*8]
    vpgatherqd xmm0, [rdi+ymm1], xmm2 ; Rdi Xmm0 Xmm1 Xmm2 ; Xmm0 Xmm2! ;         ; R?4x4[Rdi+Xmm1*1]
    vpscatterdd [rdi+zmm1*4]{k1}, zmm2 ; Rdi K1 Xmm1 Xmm2 ; K1!         ;         ; W?4x16[Rdi+Xmm1*4]
    vmaskmovps [rdi], ymm0, ymm1    ; Rdi Xmm0 Xmm1   ;                 ;         ; W?32[Rdi]
    maskmovdqu xmm0, xmm1           ; Rdi Xmm0 Xmm1   ;                 ;         ; W?16[Rdi]i
    ldmxcsr [rdi]                   ; Rdi             ; Mxcsr!          ;         ; R4[Rdi]
    stmxcsr [rdi]                   ; Rdi Mxcsr       ;                 ;         ; W4[Rdi]
    ucomisd xmm0, xmm1              ; Xmm0 Xmm1       ; Flags           ; -/CPAZSO/- ;
    pmovmskb eax, xmm0              ; Xmm0            ; Rax!            ;         ;
    cvtsi2sd xmm0, rax              ; Rax Xmm0             ; Xmm0            ;         ;
    movq mm0, [rdi]                 ; Rdi             ; St0!            ;         ; R8[Rdi]
    fld qword ptr [rdi]             ; Rdi X87Status   ; X87Status St0! ;         ; R8[Rdi]
    fstp dword ptr [rdi]            ; Rdi X87Status St0 ; X87Status    ;         ; W4[Rdi]
    fadd st, st(1)                  ; St0 St1         ; X87Status St0!  ;         ;
    fldcw [rdi]                     ; Rdi             ; X87Control!     ;         ; R2[Rdi]
    prefetcht0 [rdi]                ; Rdi             ;                 ;         ;
    nop                             ;                 ;                 ;         ;
    endbr64                         ;                 ;                 ;         ;
    bsf rax, rbx                    ; Rbx             ; Rax Flags       ; -/CPAZSO/CPASO ;
    tzcnt rax, rbx                  ; Rbx             ; Rax! Flags      ; -/CPAZSO/PASO ;
    fxsave [rdi]                    ; Rdi *           ;                 ;         ; W512[Rdi]
";

/// The bytes of the cases, assembled.
fn assemble(name: &str, text: &str) -> Vec<u8> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, file) = (
        directory.join(format!("{name}.s")),
        directory.join(format!("{name}.o")),
    );
    std::fs::write(&source, format!(".intel_syntax noprefix\n{text}\n")).unwrap();
    let status = Command::new("gcc")
        .arg("-c")
        .arg("-o")
        .arg(&file)
        .arg(&source)
        .status()
        .unwrap();
    assert!(status.success());
    let object = std::fs::read(file).unwrap();
    let object = object::File::parse(&*object).unwrap();
    let section = object.section_by_name(".text").unwrap();
    section.data().unwrap().to_vec()
}

fn names(bits: [u64; 2]) -> Vec<String> {
    Reg::ALL
        .into_iter()
        .filter(|r| bits[*r as usize / 64] >> (*r as usize % 64) & 1 != 0)
        .map(|r| format!("{r:?}"))
        .collect()
}

fn flag_names(bits: u32) -> String {
    let all = [
        (0, 'C'),
        (2, 'P'),
        (4, 'A'),
        (6, 'Z'),
        (7, 'S'),
        (10, 'D'),
        (11, 'O'),
    ];
    let names: String = all
        .iter()
        .filter(|f| bits >> f.0 & 1 != 0)
        .map(|f| f.1)
        .collect();
    if names.is_empty() {
        "-".to_owned()
    } else {
        names
    }
}

fn memory_text(m: &MemoryRecord) -> String {
    let name = |reg: u32| format!("{:?}", Reg::from_number(reg).unwrap());
    let mut text = String::new();
    let has = |flag| m.flags & flag != 0;
    text += if m.access & access::READ != 0 {
        "R"
    } else {
        ""
    };
    text += if m.access & access::WRITE != 0 {
        "W"
    } else {
        ""
    };
    text += if m.access & access::CONDITIONAL != 0 {
        "?"
    } else {
        ""
    };
    text += &m.size.to_string();
    if m.count != 1 {
        text += &format!("x{}", m.count);
    }
    text += "[";
    if m.segment != NO_REG {
        text += &format!("{}:", name(m.segment));
    }
    if has(memory::FIXED) {
        text += &format!("{:#x}", m.address);
    } else {
        if m.base != NO_REG {
            text += &name(m.base);
        }
        if m.index != NO_REG {
            text += &format!("+{}*{}", name(m.index), m.scale);
        }
        if m.displacement != 0 {
            text += &format!("{:+}", m.displacement);
        }
    }
    text += "]";
    if m.bit_offset != NO_REG {
        text += &format!("^{}", name(m.bit_offset));
    }
    let flags = [
        (memory::IMPLICIT, "i"),
        (memory::STRING, "s"),
        (memory::REPEATED, "r"),
        (memory::BROADCAST, "b"),
        (memory::ADDRESS_32, "a"),
        (memory::INDEX_8, "8"),
    ];
    flags.iter().filter(|f| has(f.0)).for_each(|f| text += f.1);
    text
}

#[test]
fn registers_flags_and_memory() {
    let cases: Vec<Vec<String>> = CASES
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let words = |column: &str| column.split_whitespace().collect::<Vec<_>>().join(" ");
            line.split(';').map(words).collect()
        })
        .collect();
    let text: Vec<&str> = cases.iter().map(|c| c[0].as_str()).collect();
    let all = assemble("operands", &text.join("\n"));
    let mut bytes = &all[..];
    let mut factory = InstructionInfoFactory::new();
    let mut memory_operands = MemoryOperands::default();
    let mut wrong = Vec::new();
    for case in &cases {
        let instruction = decode_at(bytes, 0x1000).unwrap();
        bytes = &bytes[instruction.len()..];
        let usage = registers::usage(&mut factory, &instruction);
        let replaced = names(usage.replaced);
        let updated = names(usage.updated).into_iter().map(|name| {
            let mark = if replaced.contains(&name) { "!" } else { "" };
            name + mark
        });
        let flags = [usage.flags_read, usage.flags_written, usage.flags_undefined].map(flag_names);
        let memory: Vec<String> = operands::memory_accesses(&mut memory_operands, &instruction)
            .iter()
            .map(memory_text)
            .collect();
        let found = [
            names(usage.used).join(" "),
            updated.collect::<Vec<_>>().join(" "),
            match flags.join("/") {
                none if none == "-/-/-" => String::new(),
                flags => flags,
            },
            memory.join(" "),
        ];
        for (found, expected) in found.iter().zip(&case[1..]) {
            let as_expected = match expected.strip_suffix('*') {
                Some(start) => found.starts_with(start.trim()),
                None => found == expected,
            };
            if !as_expected {
                wrong.push(format!("{}: {found}, not {expected}", case[0]));
            }
        }
    }
    assert!(bytes.is_empty());
    assert!(wrong.is_empty(), "not as expected:\n{}", wrong.join("\n"));
}

fn decoded(text: &str) -> (Instruction, Vec<u8>) {
    let name: String = text.chars().filter(|c| c.is_alphanumeric()).collect();
    let bytes = assemble(&format!("one-{name}"), text);
    (decode_at(&bytes, 0x1000).unwrap(), bytes)
}

#[test]
fn parts_of_registers() {
    let mut factory = InstructionInfoFactory::new();
    let mut parts = |text: &str| -> Vec<(String, u32, u32, u32)> {
        let (instruction, _) = decoded(text);
        let list = registers::accesses(&mut factory, &instruction);
        let name = |n| format!("{:?}", Reg::from_number(n).unwrap());
        list.iter()
            .map(|p| (name(p.reg), p.offset, p.size, p.access))
            .collect()
    };
    let (r, w) = (access::READ, access::WRITE);
    let part = |name: &str, offset, size, access| (name.to_owned(), offset, size, access);
    assert_eq!(
        parts("mov ah, bl"),
        [part("Rax", 1, 1, w), part("Rbx", 0, 1, r)]
    );
    assert_eq!(
        parts("mov r9w, dx"),
        [part("R9", 0, 2, w), part("Rdx", 0, 2, r)]
    );
    assert_eq!(parts("mov dil, spl")[1], part("Rsp", 0, 1, r));
    // Writing 32 bits clears the upper half.
    assert_eq!(
        parts("mov ecx, edx"),
        [part("Rcx", 0, 8, w), part("Rdx", 0, 4, r)]
    );
    assert_eq!(
        parts("add bh, dh"),
        [part("Rbx", 1, 1, r | w), part("Rdx", 1, 1, r)]
    );
    assert_eq!(
        parts("movaps xmm1, xmm2"),
        [part("Xmm1", 0, 16, w), part("Xmm2", 0, 16, r)]
    );
    // AVX clears the rest of the widest register.
    assert_eq!(
        parts("vmovaps xmm1, xmm2"),
        [part("Xmm1", 0, 64, w), part("Xmm2", 0, 16, r)]
    );
    assert_eq!(parts("vmovaps ymm1, ymm2")[1], part("Xmm2", 0, 32, r));
}

#[test]
fn encodings() {
    let info = |text: &str, what: InstInfo| {
        let (instruction, bytes) = decoded(text);
        operands::info(&instruction, &bytes, what as u32)
    };
    use InstInfo::*;
    assert_eq!(info("mov rax, [rdi-8]", MemDisp), Some(-8));
    assert_eq!(info("mov rax, [rdi-8]", MemDispSize), Some(1));
    assert_eq!(info("mov rax, [rdi-800]", MemDisp), Some(-800));
    assert_eq!(info("mov rax, [rdi-800]", MemDispSize), Some(4));
    assert_eq!(info("mov rax, [rip+0x123456]", MemDisp), Some(0x123456));
    assert_eq!(info("mov rax, [rdi]", MemDisp), None);
    assert_eq!(
        info("movabs al, [0x8877665544332211]", MemDispSize),
        Some(8)
    );
    // As encoded, in units of the operand's 64 bytes.
    assert_eq!(info("vmovdqu64 zmm0, [rdi+128]", MemDisp), Some(2));
    assert_eq!(info("add eax, ebx", MemDisp), None);
    assert_eq!(info("jmp .", BrDisp), Some(-2));
    assert_eq!(info("call . + 0x1000", BrDisp), Some(0x1000 - 5));
    assert_eq!(info("jmp rax", BrDisp), None);
    assert_eq!(info("imul eax, ebx", Opcode), Some(0xaf));
    assert_eq!(info("imul eax, ebx", OpcodeMap), Some(1));
    assert_eq!(info("add eax, ebx", OpcodeMap), Some(0));
    assert_eq!(info("add eax, ebx", Encoding), Some(0));
    assert_eq!(info("vaddps ymm0, ymm1, ymm2", Encoding), Some(1));
    assert_eq!(info("vaddps zmm0, zmm1, zmm2", Encoding), Some(2));
    assert_eq!(info("vpshufb ymm0, ymm1, ymm2", OpcodeMap), Some(2));
    assert_eq!(info("add rax, -5", Immediate), Some(-5));
    assert_eq!(info("add rax, -5", ImmediateSize), Some(1));
    assert_eq!(info("mov eax, 0x80000000", Immediate), Some(0x8000_0000));
    assert_eq!(info("movabs rax, -2", ImmediateSize), Some(8));
    assert_eq!(info("ret", Immediate), None);
    assert_eq!(info("vaddps ymm0, ymm1, ymm2", OperandCount), Some(3));
    let repeat = |text: &str| {
        let number = u32::try_from(info(text, Repeat)?).ok()?;
        atom_abi::query::Repeat::from_number(number)
    };
    use atom_abi::query::Repeat::{Counted, Once, UntilEqual, WhileEqual};
    assert_eq!(repeat("movsb"), Some(Once));
    assert_eq!(repeat("rep movsq"), Some(Counted));
    assert_eq!(repeat("rep lodsb"), Some(Counted));
    assert_eq!(repeat("repe cmpsb"), Some(WhileEqual));
    assert_eq!(repeat("repne scasd"), Some(UntilEqual));
    assert_eq!(repeat("movsd xmm0, [rdi]"), None);
    assert_eq!(repeat("rep ret"), None);
    let (instruction, bytes) = decoded("ret");
    assert_eq!(operands::info(&instruction, &bytes, 99), None);
}

#[test]
fn operands_as_written() {
    let mut factory = InstructionInfoFactory::new();
    let mut list = |text: &str| {
        let (instruction, _) = decoded(text);
        operands::operands(&mut factory, &instruction)
    };
    let three = list("vfmadd213sd xmm1, xmm2, [rdi]");
    let kinds: Vec<u32> = three.iter().map(|o| o.kind).collect();
    let (register, memory) = (OperandKind::Register as u32, OperandKind::Memory as u32);
    assert_eq!(kinds, [register, register, memory]);
    assert_eq!(three[0].reg, Reg::Xmm1 as u32);
    assert_eq!(three[0].access, access::READ | access::WRITE);
    assert_eq!((three[2].size, three[2].access), (8, access::READ));
    let two = list("mov ah, 200");
    assert_eq!((two[0].reg, two[0].offset, two[0].size), (0, 1, 1));
    assert_eq!(two[1].kind, OperandKind::Constant as u32);
    assert_eq!((two[1].value, two[1].size), (200, 1));
    // A segment register has no number in `Reg`, but one of its own.
    assert_eq!(list("mov eax, ds")[1].reg, NO_REG);
    assert_eq!(list("mov eax, ds")[1].value, 3);
    assert_eq!(list("lea rax, [rdi]")[1].access, 0);
    let target = list("jmp .")[0];
    assert_eq!(
        (target.kind, target.value),
        (OperandKind::Target as u32, 0x1000)
    );
}
