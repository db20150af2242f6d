// Two jump tables whose addresses are in the same register. In front of the second jump stands the code of the first,
// but control comes from elsewhere, with the other table. Two of its targets are four bytes
// apart, and the first of them is a target of the other table, too.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie gcc-O0-strip clang-O0
// stdout: 1 3 3 3 1 40 3
        .text
        .globl main, choose
        .type main, @function
        .type choose, @function
choose: xorl %r9d, %r9d
        movl %esi, %ecx
        leaq one(%rip), %r8
        testl %edi, %edi
        jne 2f
        leaq two(%rip), %r8
        cmpl $2, %esi
        ja 1f
        movslq (%r8,%rcx,4), %rax
        addq %r8, %rax
        jmp *%rax
first:  movl $1, %eax
        ret
1:      movl $3, %eax
        ret
2:      cmpl $2, %esi
        ja 1b
        movslq (%r8,%rcx,4), %rax
        addq %r8, %rax
        jmp *%rax
both:   orl $2, %r9d
half:   addl $1, %r9d
        movl %r9d, %eax
        ret
other:  movl $40, %eax
        ret
        .size choose, .-choose
main:   pushq %rbx
        xorl %ebx, %ebx
3:      leaq args(%rip), %rax
        movzbl (%rax,%rbx,2), %edi
        movzbl 1(%rax,%rbx,2), %esi
        call choose
        leaq format(%rip), %rdi
        movl %eax, %esi
        xorl %eax, %eax
        call printf@PLT
        incl %ebx
        cmpl $7, %ebx
        jne 3b
        leaq line(%rip), %rdi
        call puts@PLT
        xorl %eax, %eax
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
        .p2align 2
one:    .long both - one, half - one, other - one
two:    .long first - two, both - two, 1b - two
args:   .byte 0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2, 1, 3
format: .string "%d "
line:   .string ""
        .section .note.GNU-stack, "", @progbits
