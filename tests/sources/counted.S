// Branches that count down or test rcx, with prefixes: of the address size, which makes them use ecx, and of kinds without
// a meaning here. Their targets are too far for one byte once tools have added code.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0-strip
// stdout: 48 48 48 48 8 16 8 0
        .text
        .globl main
        .type main, @function
        .macro work
        .rept 8
        addl (%rsp), %ebx
        .endr
        .endm
        .macro show
        movl %ebx, %esi
        leaq format(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %ebx, %ebx
        movl $6, %ecx
        .endm
main:   pushq %rbx
        subq $16, %rsp
        movl $1, (%rsp)
        xorl %ebx, %ebx
        movl $6, %ecx
1:      work
        loop 1b
        show
1:      work
        .byte 0x67
        loop 1b
        show
1:      work
        .byte 0x48
        loop 1b
        show
1:      work
        .byte 0x3e
        loop 1b
        show
1:      work
        testl %ebx, %ebx
        .byte 0x3e, 0x67
        loope 1b
        show
1:      work
        cmpl $16, %ebx
        .byte 0x67
        loopne 1b
        show
        .byte 0x67
        jrcxz 1f
        work
1:      show
        movabsq $0x100000000, %rcx
        .byte 0x67
        jrcxz 1f
        work
1:      show
        leaq end(%rip), %rdi
        call puts@PLT
        xorl %eax, %eax
        addq $16, %rsp
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
format: .string "%d "
end:    .string ""
        .section .note.GNU-stack,"",@progbits
