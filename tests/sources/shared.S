// Procedures that share a tail, have two entries, fall through into the next
// one, or call each other's middle; a procedure of one byte.
// missed: tiny
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0 gcc-O0-strip
// stdout: 11 12 105 5 1006 6 77
// count: tiny 3
// count: second_entry 2
        .text
        .globl main, first_entry, second_entry, tail_a, tail_b, falls, into, tiny, middle
        .type main, @function
        .type first_entry, @function
        .type second_entry, @function
        .type tail_a, @function
        .type tail_b, @function
        .type falls, @function
        .type into, @function
        .type tiny, @function
first_entry:
        addl $100, %edi
second_entry:
        leal 5(%rdi), %eax
        ret
        .size first_entry, .-first_entry
        .size second_entry, .-second_entry
tail_a: movl $1, %eax
        jmp common
        .size tail_a, .-tail_a
tail_b: movl $2, %eax
common: addl $10, %eax
        ret
        .size tail_b, .-tail_b
falls:  addl $1000, %edi
        .size falls, .-falls
into:   leal 6(%rdi), %eax
        ret
        .size into, .-into
tiny:   ret
        .size tiny, .-tiny
two:    jmp tiny
callmid:
        xorl %eax, %eax
        call middle+5
        ret
middle: movl $1, %eax
        addl $77, %eax
        ret
main:   pushq %rbx
        pushq %r12
        pushq %r13
        pushq %r14
        pushq %r15
        call tail_a
        movl %eax, %ebx
        call tail_b
        movl %eax, %r12d
        xorl %edi, %edi
        call first_entry
        movl %eax, %r13d
        xorl %edi, %edi
        call second_entry
        movl %eax, %r14d
        xorl %edi, %edi
        call falls
        movl %eax, %r15d
        xorl %edi, %edi
        call into
        pushq %rax
        call tiny
        call two
        leaq tiny(%rip), %rax
        call *%rax
        call callmid
        popq %rcx
        subq $8, %rsp
        pushq %rax
        pushq %rcx
        movl %ebx, %esi
        movl %r12d, %edx
        movl %r13d, %ecx
        movl %r14d, %r8d
        movl %r15d, %r9d
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        addq $24, %rsp
        xorl %eax, %eax
        popq %r15
        popq %r14
        popq %r13
        popq %r12
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "%d %d %d %d %d %d %d\n"
        .section .note.GNU-stack,"",@progbits
