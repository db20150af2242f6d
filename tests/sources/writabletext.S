// Code in a segment that is writable from the start, so that the program changes it without a system call: the constant
// of an instruction of another procedure, an own constant at each call, and a jump before it is reached.
// missed: value sum next once
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0 gcc-O0-strip
// stdout: 11 14 7 10 1 2 3 5
// counts: no
        .section .changing, "awx", @progbits
        .type value, @function
        .type sum, @function
        .type next, @function
        .type once, @function
value:  movl $11, %eax
        ret
        .size value, .-value
sum:    subq $8, %rsp
        call value
        addl $3, %eax
        addq $8, %rsp
        ret
        .size sum, .-sum
next:   movl $1, %eax
        incl next+1(%rip)
        ret
        .size next, .-next
once:   movl $5, %eax
        movb $0xeb, 1f(%rip)
        jmp 1f
1:      nop                     // becomes a jump over the next instruction
        .byte 2
        xorl %eax, %eax
        ret
        .size once, .-once

        .text
        .globl main
        .type main, @function
        .type show, @function
show:   movl %eax, %esi
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        jmp printf@PLT
        .size show, .-show
        .type change, @function
change: movl %esi, 1(%rdi)
        ret
        .size change, .-change
main:   subq $8, %rsp
        call value
        call show
        call sum
        call show
        leaq value(%rip), %rdi
        movl $7, %esi
        call change
        call value
        call show
        call sum
        call show
        .rept 3
        call next
        call show
        .endr
        call once
        movl %eax, %esi
        leaq last(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        addq $8, %rsp
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "%d "
last:   .string "%d\n"
        .section .note.GNU-stack, "", @progbits
