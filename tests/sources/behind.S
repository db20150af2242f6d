// Split stacks: a procedure calls what stands one byte behind its own call, or
// returns there, by changing its return address.
// variants: gcc-O0 gcc-O0-static-strip gcc-O0-nopie clang-O0-strip
// stdout: sum 15 other 9
// missed: sum large other skip
        .text
        .globl main
        .type main, @function
        .type sum, @function
        .type other, @function
        .type large, @function
        .type more, @function
        .type skip, @function
        .type through, @function
// As __morestack: calls the body with its arguments, then returns before it.
more:   pushq %rbp
        movq %rsp, %rbp
        movq 8(%rbp), %r10
        incq %r10
        call *%r10
        incl %eax
        popq %rbp
        ret
        .size more, .-more
// As __morestack_non_split: goes on behind the `ret`.
skip:   pushq %rax
        movq %rsp, %rax
        incq 8(%rsp)
        popq %rax
        ret
        .size skip, .-skip
through:
        movl %r10d, %r10d
        jmp more
        .size through, .-through
sum:    call more
        ret
        leal (%rdi,%rsi), %eax
        addl %edx, %eax
        ret
        .size sum, .-sum
large:  call through
        ret
        leal 1(%rdi), %eax
        ret
        .size large, .-large
other:  call skip
        ret
        leal 2(%rdi), %eax
        ret
        .size other, .-other
main:   pushq %rbx
        movl $3, %edi
        movl $5, %esi
        movl $6, %edx
        call sum
        movl %eax, %ebx
        movl $5, %edi
        call large
        movl %eax, %edi
        call other
        movl %ebx, %esi
        movl %eax, %edx
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "sum %d other %d\n"
        .section .note.GNU-stack,"",@progbits
