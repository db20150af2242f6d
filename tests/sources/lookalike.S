// What looks as if return addresses were data, and is not: a memory barrier that adds 0
// to the word at the top of the stack, and a table of functions whose entries look like
// descriptors of frames, where some functions lie behind a call that does not return.
// missed: main
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0-strip
// stdout: sum 3300
        .text
        .globl main
        .type main, @function
        .type fails, @function
fails:  ud2
        .size fails, .-fails

        .macro group n
        .type barrier\n, @function
barrier\n:
        lock addl $0, (%rsp)
        leal \n(%rdi), %eax
        testl %edi, %edi
        js 1f
        ret
1:      call fails
        .size barrier\n, .-barrier\n
        .type behind\n, @function
behind\n:
        leal 1(%rdi), %eax
        ret
        .size behind\n, .-behind\n
        .type plain\n, @function
plain\n:
        leal 2(%rdi), %eax
        ret
        .size plain\n, .-plain\n
        .section .data.rel.ro, "aw"
        .irp f, barrier\n, behind\n, plain\n
        .quad \f
        .short 16, 0, 0, 0
        .endr
        .previous
        .endm

        .section .data.rel.ro, "aw"
        .p2align 3
table:
        .previous
        .altmacro
        .set i, 0
        .rept 40
        group %i
        .set i, i + 1
        .endr

        .section .data.rel.ro, "aw"
end:
        .previous
main:   pushq %rbx
        pushq %r12
        pushq %r13
        leaq table(%rip), %rbx
        leaq end(%rip), %r13
        xorl %r12d, %r12d
1:      movl $20, %edi
        call *(%rbx)
        addl %eax, %r12d
        addq $16, %rbx
        cmpq %r13, %rbx
        jne 1b
        movl $1, %edi
        call barrier1
        leaq format(%rip), %rdi
        movl %r12d, %esi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %r13
        popq %r12
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
format: .string "sum %d\n"
        .section .note.GNU-stack, "", @progbits
