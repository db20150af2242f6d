// A program without any library: its own entry point, raw system calls, no
// sections or symbols to speak of when stripped.
// variants: gcc-bare gcc-bare-strip gcc-barepie gcc-barepie-strip
// stdout: bare
// exit: 21
        .text
        .globl _start
        .type _start, @function
_start: endbr64
        movq (%rsp), %rbx                // argc
        leaq 8(%rsp), %rsi               // argv
        movq (%rsi), %rdi
        testq %rdi, %rdi
        jz 1f
        xorl %ebp, %ebp
        movl $6, %ecx
        xorl %r12d, %r12d
2:      addl %ecx, %r12d
        loop 2b
        movl $1, %eax
        movl $1, %edi
        leaq message(%rip), %rsi
        movl $5, %edx
        syscall
        movl %r12d, %edi
        movl $231, %eax
        syscall
1:      ud2
        .size _start, .-_start
        .section .rodata
message: .ascii "bare\n"
        .section .note.GNU-stack,"",@progbits
