# A program of its own, for assemblers, linkers and binary tools.
        .globl _start, helper
        .text
        .type _start, @function
_start: movl $7, %edi
        call helper
        movl %eax, %edi
        movl $60, %eax
        syscall
        .size _start, .-_start
        .type helper, @function
helper: leal 1(%rdi,%rdi,2), %eax
        addl value(%rip), %eax
        ret
        .size helper, .-helper
        .data
value:  .long 20
        .section .note.GNU-stack,"",@progbits
