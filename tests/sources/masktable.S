// A jump table for an index that a mask bounds by 7 and that is never above 3, as LLVM makes it: the entries for the values
// that do not occur are missing, and the next table follows. Read as entries of the first table, its entries lead to
// the middle of an instruction of its own second target. The code that uses the next table is found by the first table only.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie gcc-O0-strip clang-O0
// stdout: 10 40 41 42
        .text
        .globl main, choose
        .type main, @function
        .type choose, @function
choose: movl %edi, %eax
        andl $7, %eax
        leaq one(%rip), %rcx
        movslq (%rcx,%rax,4), %rax
        addq %rcx, %rax
        jmp *%rax
a:      movl $10, %eax
        ret
b:      movzbl %sil, %eax
        leaq two(%rip), %rcx
        movslq (%rcx,%rax,4), %rax
        addq %rcx, %rax
        jmp *%rax
        .skip 8, 0x90
        ret
        .skip 15, 0x90
d:      cmpl $5, %edi
        .byte 0x0f, 0x84                        // je c
        .long c - . - 4
        movabsq $0x8000000000000002, %rbx
        movq %rbx, %rax
        nop
        nop
c:      leal 40(%rsi), %eax
        ret
        .size choose, .-choose
main:   pushq %rbx
        pushq %r12
        xorl %r12d, %r12d
1:      leaq args(%rip), %rax
        movzbl (%rax,%r12,2), %edi
        movzbl 1(%rax,%r12,2), %esi
        call choose
        movzbl %al, %esi
        leaq format(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        incl %r12d
        cmpl $4, %r12d
        jne 1b
        leaq line(%rip), %rdi
        call puts@PLT
        xorl %eax, %eax
        popq %r12
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
        .p2align 2
one:    .long a - one, b - one, a - one, b - one
two:    .long c - two, d - two, c - two, d - two
args:   .byte 0, 0, 1, 0, 3, 1, 1, 2
format: .string "%d "
line:   .string ""
        .section .note.GNU-stack, "", @progbits
