// Code that the program knows by addresses with a tag in their lowest bit, which lead behind the first byte of an instruction.
// The code decodes from there, too, and calls a function behind it.
// counts: no
// missed: hidden
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie gcc-O0-strip gcc-O0-nopie-strip
// stdout: 47 1047
        .text
        .globl main
        .type main, @function
main:   pushq %rbp
        movq %rsp, %rbp
        subq $256, %rsp
        pxor %xmm0, %xmm0
        movq near(%rip), %rax
        decq %rax
        call *%rax
        movl %eax, -4(%rbp)
        movq far(%rip), %rax
        decq %rax
        call *%rax
        movl %eax, %edx
        movl -4(%rbp), %esi
        leaq format(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        leave
        ret
        .size main, .-main
        .p2align 4
hidden: movups %xmm0, -0x98(%rbp)
        movl $5, -0x98(%rbp)
        movl $-42, %edi
        call abs@PLT
        addl -0x98(%rbp), %eax
        ret
        .rept 8
        movl $1, -0x90(%rbp)
        addq $2, -0x80(%rbp)
        .endr
        .p2align 1
        nop
        nop
7:      movups %xmm0, -0x98(%rbp)
        movl $1005, -0x98(%rbp)
        movl $-42, %edi
        call abs@PLT
        addl -0x98(%rbp), %eax
        ret
        .size hidden, .-hidden
        .data
        .p2align 3
near:   .quad hidden + 1
far:    .quad 7b + 1
        .section .rodata
format: .string "%d %d\n"
        .section .note.GNU-stack, "", @progbits
