// Parts that the compiler put elsewhere (alloc.cold) and that begin with a pop, which undoes what
// the procedure pushed: they take no return address, and the procedure's callers are not missed.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0 gcc-O0-strip gcc-O0-static-strip
// stdout: 7 -1 -2 8 -4
// count: alloc 3
// count: alloc.cold 2
// count: load.cold 1
        .text
        .globl main
        .type main, @function
        .type alloc, @function
        .type load, @function
        .type alloc.cold, @function
        .type load.cold, @function
// Undone by one pop into a free register, as gcc does.
alloc:  .cfi_startproc
        pushq %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        subq $8, %rsp
        .cfi_def_cfa_offset 24
        movq %rdi, %rbx
        cmpq $-1, %rdi
        je alloc.cold
        cmpq $-2, %rdi
        jne 1f
        jmp alloc.cold
1:      movq %rbx, %rax
        addq $8, %rsp
        .cfi_def_cfa_offset 16
        popq %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size alloc, .-alloc
// A value that the frame keeps, which the part reads from the top of the stack.
load:   .cfi_startproc
        pushq %rdi
        .cfi_def_cfa_offset 16
        testq %rdi, %rdi
        js 1f
        popq %rax
        .cfi_def_cfa_offset 8
        ret
1:      .cfi_def_cfa_offset 16
        jmp load.cold
        .cfi_endproc
        .size load, .-load
        .section .text.unlikely, "ax", @progbits
alloc.cold:
        .cfi_startproc
        .cfi_def_cfa_offset 24
        .cfi_offset %rbx, -16
        popq %rdx
        .cfi_def_cfa_offset 16
        movq %rbx, %rax
        popq %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size alloc.cold, .-alloc.cold
load.cold:
        .cfi_startproc
        .cfi_def_cfa_offset 16
        popq %rax
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size load.cold, .-load.cold
        .text
main:   .cfi_startproc
        pushq %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        pushq %r12
        .cfi_def_cfa_offset 24
        .cfi_offset %r12, -24
        pushq %r13
        .cfi_def_cfa_offset 32
        .cfi_offset %r13, -32
        movq $7, %rdi
        call alloc
        movq %rax, %rbx
        movq $-1, %rdi
        call alloc
        movq %rax, %r12
        movq $-2, %rdi
        call alloc
        movq %rax, %r13
        movq $8, %rdi
        call load
        pushq %rax
        .cfi_def_cfa_offset 40
        movq $-4, %rdi
        call load
        popq %r8
        .cfi_def_cfa_offset 32
        movq %rax, %r9
        movq %r13, %rcx
        movq %r12, %rdx
        movq %rbx, %rsi
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %r13
        .cfi_def_cfa_offset 24
        popq %r12
        .cfi_def_cfa_offset 16
        popq %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size main, .-main
        .section .rodata
fmt:    .string "%ld %ld %ld %ld %ld\n"
        .section .note.GNU-stack,"",@progbits
