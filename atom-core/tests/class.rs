//! Types and classes of instructions, one by one, as the assembler encodes them.

use std::path::Path;
use std::process::Command;

use atom_core::tool::demangle;
use atom_core::x86::class::Classifier;
use atom_core::x86::decode_at;
use object::{Object, ObjectSection};

/// Instruction; class; types, each by its first letters.
const CASES: &str = "
    mov rax, rbx                    ; Iarithmetic ;
    mov rax, [rdi]                  ; Load        ; Load
    mov [rdi], rax                  ; Store       ; Store
    mov dword ptr [rdi], 1          ; Store       ; Store
    movzx eax, byte ptr [rdi]       ; Load        ; Load
    movsxd rax, ecx                 ; Iarithmetic ;
    movbe eax, [rdi]                ; Load        ; Load
    movnti [rdi], eax               ; Store       ; Store
    mov ax, fs                      ; Null        ;
    lea rax, [rdi + 8]              ; Iarithmetic ;
    push rax                        ; Store       ; Store
    push qword ptr [rdi]            ; Store       ; Load Store
    pop rax                         ; Load        ; Load
    pop qword ptr [rdi]             ; Store       ; Load Store
    pushfq                          ; Store       ; Store
    leave                           ; Load        ; Load
    xlatb                           ; Load        ; Load
    call .                          ; Subroutine  ; Store Call
    call rax                        ; Subroutine  ; Store Jump Call
    call [rax]                      ; Subroutine  ; Load Store Jump Call
    ret                             ; Subroutine  ; Load Jump Ret
    jmp .                           ; Ibranch     ; UncondBr
    jmp rax                         ; Ibranch     ; Jump
    jmp [rax]                       ; Ibranch     ; Load Jump
    je .                            ; Ibranch     ; CondBr
    jrcxz .                         ; Ibranch     ; CondBr
    loop .                          ; Ibranch     ; CondBr
    loopne .                        ; Ibranch     ; CondBr
    xbegin .                        ; Null        ;
    add rax, [rdi]                  ; Iarithmetic ; Load Add
    add [rdi], rax                  ; Iarithmetic ; Load Store Add
    adc eax, 1                      ; Iarithmetic ; Add
    inc qword ptr [rdi]             ; Iarithmetic ; Load Store Add
    dec eax                         ; Iarithmetic ; Sub
    sbb eax, eax                    ; Iarithmetic ; Sub
    neg rax                         ; Iarithmetic ;
    lock xadd [rdi], eax            ; Iarithmetic ; Load Store Add
    xchg [rdi], rax                 ; Iarithmetic ; Load Store
    cqo                             ; Iarithmetic ;
    imul eax, ebx                   ; Imultiplyl  ; Mul
    imul rax, rbx, 3                ; Imultiplyq  ; Mul
    mul qword ptr [rdi]             ; Imultiplyq  ; Load Mul
    mul cl                          ; Imultiplyl  ; Mul
    mulx rax, rbx, rcx              ; Imultiplyq  ; Mul
    div rcx                         ; Null        ; Div
    idiv dword ptr [rdi]            ; Null        ; Load Div
    and eax, 1                      ; Ilogical    ;
    xor eax, eax                    ; Ilogical    ;
    not qword ptr [rdi]             ; Ilogical    ; Load Store
    bts eax, 3                      ; Ilogical    ;
    popcnt rax, [rdi]               ; Ilogical    ; Load
    shl rax, 3                      ; Ishift      ;
    shlx rax, rbx, rcx              ; Ishift      ;
    sar dword ptr [rdi], cl         ; Ishift      ; Load Store
    ror eax, 1                      ; Ishift      ;
    cmovne eax, [rdi]               ; Icondmove   ; Load
    sete al                         ; Icondmove   ;
    setb [rdi]                      ; Icondmove   ; Store
    cmp eax, [rdi]                  ; Icompare    ; Load
    test al, al                     ; Icompare    ;
    bt eax, 3                       ; Icompare    ;
    lock cmpxchg [rdi], eax         ; Icompare    ; Load Store
    movsb                           ; Store       ; Load Store
    rep movsq                       ; Store       ; Load Store
    movsd                           ; Store       ; Load Store
    rep stosb                       ; Store       ; Store
    lodsq                           ; Load        ; Load
    repne scasb                     ; Icompare    ; Load
    repe cmpsb                      ; Icompare    ; Load
    cmpsd                           ; Icompare    ; Load
    nop                             ; Null        ;
    nop qword ptr [rax + 1]         ; Null        ;
    prefetcht0 [rdi]                ; Null        ;
    endbr64                         ; Null        ;
    mfence                          ; Null        ;
    syscall                         ; Null        ;
    ud2                             ; Null        ;
    cpuid                           ; Null        ;
    movsd xmm0, [rdi]               ; Fload       ; Load
    movsd [rdi], xmm0               ; Fstore      ; Store
    movaps xmm0, xmm1               ; Fpop        ;
    movq xmm0, rax                  ; Fpop        ;
    movdqu xmm0, [rdi]              ; Fload       ; Load
    movntdq [rdi], xmm0             ; Fstore      ; Store
    movmskps eax, xmm0              ; Fpop        ;
    vmovups ymm0, [rdi]             ; Fload       ; Load
    vmovdqu64 [rdi], zmm0           ; Fstore      ; Store
    vbroadcastss ymm0, [rdi]        ; Fload       ; Load
    kmovq k1, [rdi]                 ; Fload       ; Load
    addsd xmm0, [rdi]               ; Fpop        ; Load Add
    vaddps ymm0, ymm1, ymm2         ; Fpop        ; Add
    vsubpd ymm0, ymm1, ymm2         ; Fpop        ; Sub
    addsubps xmm0, xmm1             ; Fpop        ; Add Sub
    paddq xmm0, xmm1                ; Fpop        ; Add
    pmulld xmm0, xmm1               ; Fpop        ; Mul
    vmulps ymm0, ymm1, ymm2         ; Fpop        ; Mul
    vfmadd231pd ymm0, ymm1, [rdi]   ; Fpop        ; Load Mul Add
    vfnmsub132ss xmm0, xmm1, xmm2   ; Fpop        ; Mul Sub
    divss xmm0, xmm1                ; Fdivs       ; Div
    vdivps ymm0, ymm1, [rdi]        ; Fdivs       ; Load Div
    divpd xmm0, [rdi]               ; Fdivd       ; Load Div
    sqrtsd xmm0, xmm1               ; Fpop        ;
    comisd xmm0, [rdi]              ; Fpop        ; Load
    cmpsd xmm0, xmm1, 1             ; Fpop        ;
    cvtsi2sd xmm0, rax              ; Fpop        ;
    vmaxps ymm0, ymm1, ymm2         ; Fpop        ;
    vmaskmovps [rdi], ymm0, ymm1    ; Fstore      ; Store
    vpgatherdd ymm0, [rdi+ymm1], ymm2 ; Fload     ; Load
    fld qword ptr [rdi]             ; Fload       ; Load
    fld1                            ; Fpop        ;
    fstp tbyte ptr [rdi]            ; Fstore      ; Store
    fild dword ptr [rdi]            ; Fload       ; Load
    fadd dword ptr [rdi]            ; Fpop        ; Load Add
    fdivp st(1), st                 ; Fdivd       ; Div
    fldcw [rdi]                     ; Null        ; Load
    vzeroupper                      ; Null        ;
    movabs eax, [0x1122334455667788] ; Load       ; Load
    movdir64b rax, [rdi]            ; Store       ; Load Store
    popfq                           ; Load        ; Load
    enter 16, 0                     ; Store       ; Store
    pop fs                          ; Null        ; Load
    adcx eax, ebx                   ; Iarithmetic ; Add
    lock dec dword ptr [rdi]        ; Iarithmetic ; Load Store Sub
    lock cmpxchg16b [rdi]           ; Icompare    ; Load Store
    bt [rdi], eax                   ; Icompare    ; Load
    andn eax, ebx, [rdi]            ; Ilogical    ; Load
    pext rax, rbx, rcx              ; Ilogical    ;
    crc32 eax, byte ptr [rdi]       ; Ilogical    ; Load
    bswap eax                       ; Ilogical    ;
    lzcnt eax, ebx                  ; Ilogical    ;
    rorx eax, [rdi], 3              ; Ishift      ; Load
    shld eax, ebx, 3                ; Ishift      ;
    imul word ptr [rdi]             ; Imultiplyl  ; Load Mul
    rep stosd                       ; Store       ; Store
    outsb                           ; Null        ; Load
    rdtsc                           ; Null        ;
    rdrand eax                      ; Null        ;
    cld                             ; Null        ;
    fxsave [rdi]                    ; Null        ; Store
    xrstor [rdi]                    ; Null        ; Load
    ldmxcsr [rdi]                   ; Null        ; Load
    clflush [rdi]                   ; Null        ; Load
    pause                           ; Null        ;
    cvttsd2si rax, [rdi]            ; Fpop        ; Load
    cvttsd2si rax, xmm0             ; Fpop        ;
    vcvtsd2usi rax, [rdi]           ; Fpop        ; Load
    cvtdq2ps xmm0, [rdi]            ; Fpop        ; Load
    vcvtps2ph [rdi], ymm0, 0        ; Fstore      ; Store
    movd eax, xmm0                  ; Fpop        ;
    movq [rdi], xmm0                ; Fstore      ; Store
    movhps xmm0, [rdi]              ; Fload       ; Load
    movlpd [rdi], xmm0              ; Fstore      ; Store
    movddup xmm0, [rdi]             ; Fload       ; Load
    lddqu xmm0, [rdi]               ; Fload       ; Load
    pmovzxbw xmm0, [rdi]            ; Fload       ; Load
    pmovzxbw xmm0, xmm1             ; Fpop        ;
    pinsrd xmm0, [rdi], 1           ; Fpop        ; Load
    pextrd [rdi], xmm0, 1           ; Fstore      ; Store
    vextractf128 [rdi], ymm0, 1     ; Fstore      ; Store
    vpgatherqd xmm0, [rdi+ymm1], xmm2 ; Fload     ; Load
    vpscatterdd [rdi+zmm1]{k1}, zmm2 ; Fstore     ; Store
    vcompressps [rdi]{k1}, zmm2     ; Fstore      ; Store
    vexpandps zmm0{k1}, [rdi]       ; Fload       ; Load
    vmovdqa32 zmm0{k1}{z}, [rdi]    ; Fload       ; Load
    vpmovdb [rdi], zmm0             ; Fstore      ; Store
    vaddps zmm0{k1}, zmm1, [rdi]{1to16} ; Fpop    ; Load Add
    vdivph zmm0, zmm1, zmm2         ; Fdivs       ; Div
    vdivss xmm0, xmm1, [rdi]        ; Fdivs       ; Load Div
    vdivpd zmm0{k1}, zmm1, zmm2     ; Fdivd       ; Div
    vdivsd xmm0, xmm1, xmm2         ; Fdivd       ; Div
    vpcmpeqd k1, zmm1, zmm2         ; Fpop        ;
    vpternlogd zmm0, zmm1, zmm2, 3  ; Fpop        ;
    kandw k1, k2, k3                ; Fpop        ;
    kortestw k1, k2                 ; Fpop        ;
    kmovw [rdi], k1                 ; Fstore      ; Store
    vpdpbusd zmm0, zmm1, zmm2       ; Fpop        ; Mul Add
    dpps xmm0, xmm1, 1              ; Fpop        ; Mul Add
    vpmadd52luq zmm0, zmm1, zmm2    ; Fpop        ; Mul Add
    vfmaddsub213pd ymm0, ymm1, ymm2 ; Fpop        ; Mul Add Sub
    phsubw xmm0, xmm1               ; Fpop        ; Sub
    psubusb mm0, [rdi]              ; Fpop        ; Load Sub
    movq mm0, [rdi]                 ; Fload       ; Load
    aesenc xmm0, [rdi]              ; Fpop        ; Load
    pcmpistri xmm0, xmm1, 1         ; Fpop        ;
    ptest xmm0, [rdi]               ; Fpop        ; Load
    fisttp dword ptr [rdi]          ; Fstore      ; Store
    fbld tbyte ptr [rdi]            ; Fload       ; Load
    fidiv word ptr [rdi]            ; Fdivd       ; Load Div
    fsubr dword ptr [rdi]           ; Fpop        ; Load Sub
    fcomi st, st(1)                 ; Fpop        ;
    fcmovb st, st(1)                ; Fpop        ;
    fsqrt                           ; Fpop        ;
    fnstsw ax                       ; Null        ;
    fnsave [rdi]                    ; Null        ; Store
    emms                            ; Null        ;
    tileloadd tmm0, [rdi+rsi]       ; Fload       ; Load
    tdpbssd tmm0, tmm1, tmm2        ; Fpop        ; Mul Add
";

const TYPES: [&str; 11] = [
    "Load", "Store", "Jump", "Div", "Mul", "Add", "Sub", "CondBr", "UncondBr", "Call", "Ret",
];

#[test]
fn each_instruction_has_its_class_and_types() {
    let cases: Vec<Vec<&str>> = CASES
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.split(';').map(str::trim).collect())
        .collect();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, file) = (directory.join("class.s"), directory.join("class.o"));
    let text: Vec<&str> = cases.iter().map(|case| case[0]).collect();
    std::fs::write(
        &source,
        format!(".intel_syntax noprefix\n{}\n", text.join("\n")),
    )
    .unwrap();
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
    let mut bytes = object.section_by_name(".text").unwrap().data().unwrap();
    let mut classifier = Classifier::new();
    let mut wrong = Vec::new();
    for case in &cases {
        let instruction = decode_at(bytes, 0x1000).unwrap();
        bytes = &bytes[instruction.len()..];
        let bits = classifier.types(&instruction);
        let mut types: Vec<&str> = (0..11)
            .filter(|i| bits >> i & 1 != 0)
            .map(|i| TYPES[i])
            .collect();
        let mut expected: Vec<&str> = case[2].split_whitespace().collect();
        types.sort();
        expected.sort();
        let class = format!("{:?}", classifier.class(&instruction));
        if class != case[1] || types != expected {
            wrong.push(format!("{}: {class}, {types:?}", case[0]));
        }
    }
    assert!(bytes.is_empty());
    assert!(wrong.is_empty(), "not as expected:\n{}", wrong.join("\n"));
}

#[test]
fn hostile_names_end() {
    let deep = format!("_Z1f{}", "P".repeat(100_000));
    assert!(!demangle(&deep).is_empty());
    let wide = format!("_Z{}", "NS_".repeat(50_000));
    assert!(!demangle(&wide).is_empty());
}
