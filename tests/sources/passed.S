// Procedures without names, frame descriptions and callers, to which control comes by their addresses only: start code
// passes `main`, library functions get the others as arguments, or code jumps to a sum. None looks like typical code.
// The last one is known by a word of data alone, and stays in place with the bytes of another procedure to which it jumps.
// missed: computes lonely frame_dummy known _init _fini
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0 gcc-O0-strip gcc-O0-nopie-strip clang-O0-strip gcc-O0-static-strip musl-O0 gcc-O0-noplt-strip
// stdout: 1 2 3 5 6 8 9 28 7 bye
        .text
        .type main, @function
        .type computes, @function
        .globl main, computes
        .p2align 4
        .byte 6, 6, 6
        .globl compare
compare:
        movl (%rdi), %eax
        subl (%rsi), %eax
        ret
        .byte 0xff
bye:    leaq farewell(%rip), %rdi
        jmp puts@plt
        .byte 6, 6
lonely: movl $7, %eax
        jmp hidden
        .byte 0xff, 0xff
other:  xorl %eax, %eax
        ret
shared: nop
        ret
// Jumps to one of two places.
computes:
        leaq steps(%rip), %rax
        leaq (%rax,%rdi,8), %rax
        jmp *%rax
        .p2align 3
steps:  movl $3, %eax
        jmp shared
        .p2align 3
        movl $25, %eax
        jmp shared
        .size computes, .-computes
        .byte 6
        .type known, @function
known:  xorl %eax, %eax
        ret
        .byte 6
hidden: nop
        ret
        .size known, .-known
main:   pushq %rbx
        call known
        leaq bye(%rip), %rdi
        call atexit@plt
        leaq numbers(%rip), %rdi
        movl $7, %esi
        movl $4, %edx
        leaq compare(%rip), %rcx
        call qsort@plt
        leaq numbers(%rip), %rbx
1:      movl (%rbx), %esi
        leaq format(%rip), %rdi
        xorl %eax, %eax
        call printf@plt
        addq $4, %rbx
        leaq end(%rip), %rax
        cmpq %rax, %rbx
        jne 1b
        xorl %edi, %edi
        call computes
        movl %eax, %ebx
        movl $1, %edi
        call computes
        leal (%rax,%rbx), %esi
        leaq format(%rip), %rdi
        xorl %eax, %eax
        call printf@plt
        call *pointer(%rip)
        movl %eax, %esi
        leaq format(%rip), %rdi
        xorl %eax, %eax
        call printf@plt
        xorl %eax, %eax
        popq %rbx
        ret
        .size main, .-main
        .data
        .p2align 3
pointer: .quad lonely
numbers: .long 9, 2, 8, 1, 6, 3, 5
end:
        .section .rodata
format: .string "%d "
farewell: .string "bye"
        .section .note.GNU-stack,"",@progbits
