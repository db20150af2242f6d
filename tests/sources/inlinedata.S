// A call that is followed by data: the callee pops its return address, reads
// the string there, and goes on behind it.
// missed: main skip_string
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie gcc-O0-strip gcc-O0-static-strip gcc-O0-nopie-strip clang-O0-strip
// stdout: Hello and World
// count: skip_string 2
        .text
        .globl main, skip_string
        .type main, @function
        .type skip_string, @function
// Returns behind the string that follows the call; the string in rax.
skip_string:
        popq %rdx
        movq %rdx, %rax
1:      cmpb $0, (%rdx)
        leaq 1(%rdx), %rdx
        jne 1b
        jmp *%rdx
        .size skip_string, .-skip_string
main:   pushq %rbx
        call skip_string
        .string "Hello"
        movq %rax, %rbx
        call skip_string
        .string "World"
        movq %rax, %rdx
        movq %rbx, %rsi
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "%s and %s\n"
        .section .note.GNU-stack,"",@progbits
