// Jumps by a pointer into the immediates of moves, in which other instructions are: in the same procedure, and in another
// one. Neither has a place for a pad there.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0-strip
// missed: own other
// stdout: 6 7 105 9
        .text
        .globl main, own, other, enter
        .type main, @function
        .type own, @function
        .type other, @function
        .type enter, @function
own:    movl %edi, %ecx                  // edi + 1; edi + 100 with another second argument
        leaq 1f+1(%rip), %rax
        testl %esi, %esi
        jz 1f
        jmp *%rax
1:      .byte 0xb8                       // movl $imm32, %eax hides: incl %ecx; nop; nop
        .byte 0xff, 0xc1, 0x90, 0x90
        testl %esi, %esi
        jnz 2f
        addl $100, %ecx
2:      movl %ecx, %eax
        ret
        .size own, .-own
other:  .byte 0xb8                       // edi + 2 from its start, edi + 3 by `enter`
3:      .byte 0xff, 0xc7, 0x90, 0x90     // movl $imm32, %eax hides: incl %edi; nop; nop
        leal 2(%rdi), %eax
        ret
        .size other, .-other
enter:  leaq 3b(%rip), %rdx
        jmp *%rdx
        .size enter, .-enter
main:   pushq %rbx
        pushq %r12
        pushq %r13
        movl $5, %edi
        movl $1, %esi
        call own
        movl %eax, %ebx
        movl $4, %edi
        call enter
        movl %eax, %r12d
        movl $5, %edi
        xorl %esi, %esi
        call own
        movl %eax, %r13d
        movl $7, %edi
        call other
        movl %eax, %r8d
        movl %r13d, %ecx
        movl %r12d, %edx
        movl %ebx, %esi
        leaq format(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %r13
        popq %r12
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
format: .string "%d %d %d %d\n"
        .section .note.GNU-stack,"",@progbits
