// Code before the first procedure that anything names, known to the start code only
// by its address, as `main` of a stripped program without unwind tables. One
// such procedure is found by what it does; the other looks like a table.
// missed: odd
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0 gcc-O0-strip
// stdout: 42 43 142 7
        .section .text.startup, "ax", @progbits
        .globl main, odd, known, helper
        .type main, @function
        .type odd, @function
        .type known, @function
        .type helper, @function
        .p2align 4
        .byte 6, 6, 6
odd:    movl $40, %edi
        call helper
        movl %eax, %esi
        movl $41, %edi
        jmp helper_inner
        .size odd, .-odd
        .p2align 4
main:   pushq %rbx
        pushq %r12
        pushq %r13
        leaq odd(%rip), %rax
        call *%rax
        movl %esi, %ebx
        movl %eax, %r12d
        movl $40, %edi
        movq table(%rip), %rax
        call *%rax
        movl %ebx, %esi
        movl %r12d, %edx
        movl %eax, %ecx
        movl $7, %r8d
        leaq format(%rip), %rdi
        xorl %eax, %eax
        call printf@plt
        xorl %eax, %eax
        popq %r13
        popq %r12
        popq %rbx
        ret
        .size main, .-main
        .text
        .p2align 4
known:  call helper
        addl $100, %eax
        ret
        .size known, .-known
        .p2align 4
helper: movl %edi, %eax
        nop
helper_inner:
        leal 2(%rdi), %eax
        ret
        .size helper, .-helper
        .data
        .p2align 3
table:  .quad known
        .section .rodata
format: .string "%d %d %d %d\n"
        .section .note.GNU-stack,"",@progbits
