// Jumps through tables of distances from a label, as glibc's printf has them: with a table of bytes that gives
// the index, with one register for the table and then for the label, and with a comparison that gives the number
// of entries. Two procedures stay in place: the label of one comes from another block, and the jump of
// the other serves two labels. And a table of 64-bit distances from itself, as GHC has them: one instruction loads
// and adds.
// missed: far either
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0
// stdout: letters 344 again 1200 bound 180 far 117 either 140 added 140
        .text
        .type letters, @function
// The value of the character in edi: 10 for `a`, 20 for `b`, 1 for `-`, 3 for all others.
letters:
        movzbl %dil, %eax
        leaq bytes(%rip), %rdx
        subl $0x20, %eax
        leaq other(%rip), %rsi
        cltq
        movzbl (%rdx,%rax), %eax
        leaq distances(%rip), %rdx
        movslq (%rdx,%rax,4), %rax
        addq %rsi, %rax
        jmp *%rax
        .byte 6, 6, 6
first:  movl $10, %eax
        ret
        .byte 6
second: movl $20, %eax
        ret
other:  movl $3, %eax
        ret
        .byte 6, 6
minus:  movl $1, %eax
        ret
        .size letters, .-letters

// edi from 0 to 2: 30, 60 or 0.
        .type again, @function
again:  movl %edi, %eax
        leaq kinds(%rip), %rsi
        movzbl (%rsi,%rax), %eax
        leaq triple(%rip), %rsi
        movslq (%rsi,%rax,4), %rax
        leaq again_none(%rip), %rsi
        addq %rax, %rsi
        jmp *%rsi
        .byte 6
again_none: xorl %eax, %eax
        ret
again_two: movl $30, %eax
        ret
        .byte 6, 6
again_three: movl $60, %eax
        ret
        .size again, .-again

// edi from 0 to 2: 5, 6 or 7, else 0.
        .type bound, @function
bound:  xorl %eax, %eax
        cmpl $2, %edi
        ja 4f
        movl %edi, %eax
        leaq few(%rip), %rcx
        leaq bound_first(%rip), %rdx
        movslq (%rcx,%rax,4), %rax
        addq %rdx, %rax
        jmp *%rax
        .byte 6
bound_first: movl $5, %eax
        ret
        .byte 6
bound_second: movl $6, %eax
        ret
bound_third: movl $7, %eax
4:      ret
        .size bound, .-bound

        .type far, @function
far:    leaq far_first(%rip), %rdx
        testl %edi, %edi
        je 0f
        leaq distant(%rip), %rcx
        movl $1, %eax
        movslq (%rcx,%rax,4), %rax
        addq %rdx, %rax
        jmp *%rax
0:      xorl %eax, %eax
        ret
        .byte 6
far_first: movl $4, %eax
        ret
far_second: movl $3, %eax
        ret
        .size far, .-far

        .type either, @function
either: leaq either_first(%rip), %rdx
        testl %edi, %edi
        je 0f
        leaq either_second(%rip), %rdx
0:      leaq twofold(%rip), %rcx
        xorl %eax, %eax
        movslq (%rcx,%rax,4), %rax
        addq %rdx, %rax
        jmp *%rax
        .byte 6
        .p2align 4
either_first: nop
        .p2align 3
        movl $4, %eax
        ret
        .p2align 4
either_second: nop
        .p2align 3
        movl $3, %eax
        ret
        .size either, .-either

// edi from 8 to 10: 2, 4 or 8, else 0.
        .type added, @function
added:  movl %edi, %ecx
        xorl %eax, %eax
        cmpq $11, %rcx
        jae 0f
        cmpq $8, %rcx
        jb 0f
        addq $-8, %rcx
        leaq wide(%rip), %rdx
        addq (%rdx,%rcx,8), %rdx
        jmp *%rdx
        .byte 6
added_first: movl $2, %eax
        ret
        .byte 6
added_second: movl $4, %eax
        ret
added_third: movl $8, %eax
0:      ret
        .size added, .-added

        .globl main
        .type main, @function
main:   pushq %rbx
        pushq %r12
        pushq %r13
        pushq %r14
        pushq %r15
        pushq %rbp
        subq $24, %rsp
        xorl %ebx, %ebx
        xorl %r12d, %r12d
        xorl %r13d, %r13d
        xorl %r14d, %r14d
        xorl %r15d, %r15d
        xorl %ebp, %ebp
        movl $0, (%rsp)
0:      leaq text(%rip), %rax
        movzbl (%rax,%rbx), %edi
        call letters
        addl %eax, %r12d
        movl %ebx, %eax
        xorl %edx, %edx
        movl $3, %ecx
        divl %ecx
        movl %edx, %edi
        call again
        addl %eax, %r13d
        movl %ebx, %edi
        andl $3, %edi
        call bound
        addl %eax, %r14d
        movl %ebx, %edi
        call far
        addl %eax, %r15d
        movl %ebx, %edi
        andl $1, %edi
        call either
        addl %eax, %ebp
        movl %ebx, %edi
        andl $3, %edi
        addl $8, %edi
        call added
        addl %eax, (%rsp)
        incl %ebx
        cmpl $40, %ebx
        jne 0b
        leaq format(%rip), %rdi
        movl %r12d, %esi
        movl %r13d, %edx
        movl %r14d, %ecx
        movl %r15d, %r8d
        movl %ebp, %r9d
        xorl %eax, %eax
        call printf@plt
        xorl %eax, %eax
        addq $24, %rsp
        popq %rbp
        popq %r15
        popq %r14
        popq %r13
        popq %r12
        popq %rbx
        ret
        .size main, .-main

        .section .rodata
text:   .ascii "abba--ab cab -a- bcd abba--ab cab -a- bc"
        .p2align 2
distances:
        .long 0, first-other, minus-other, second-other
triple: .long 0, again_two-again_none, again_three-again_none
few:    .long 0, bound_second-bound_first, bound_third-bound_first
distant:
        .long 0, far_second-far_first
twofold:
        .long 8
        .p2align 3
wide:   .quad added_first-wide, added_second-wide, added_third-wide
bytes:  .fill 13, 1, 0
        .byte 2
        .fill 51, 1, 0
        .byte 1, 3
        .fill 29, 1, 0
kinds:  .byte 1, 2, 0
format: .asciz "letters %d again %d bound %d far %d either %d added %d\n"
        .section .note.GNU-stack, "", @progbits
