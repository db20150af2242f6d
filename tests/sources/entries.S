// Procedures with several entries: a second name in the middle, a part that is shared, a
// fall-through from one into the next, and an entry that is only reached through a pointer, which
// is a procedure of its own as a function's symbol names it.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie
// exit: 42
// How often each is entered, by whatever entry, and how often it is left.
// after: both 12 12
// after: falls 4 4
// after: into 9 9
// after: by_pointer 0 0
// after: inner 3 3
// count: second 7
// count: third 9
        .text
        .globl main
        .type main, @function
main:   push %rbx
        mov $5, %ebx
1:      call both
        dec %ebx
        jnz 1b
        mov $7, %ebx
2:      call second
        dec %ebx
        jnz 2b
        mov $4, %ebx
3:      call falls
        dec %ebx
        jnz 3b
        mov $5, %ebx
4:      call into
        dec %ebx
        jnz 4b
        mov $3, %ebx
        lea inner(%rip), %rdx
5:      call *%rdx
        dec %ebx
        jnz 5b
        mov $42, %eax
        pop %rbx
        ret
        .size main, .-main

        # Two entries, one exit.
        .type both, @function
both:   lea 1(%rdi), %rdi
        jmp 6f
second: lea 2(%rdi), %rdi
6:      lea (%rdi,%rdi), %rsi
        ret
        .size both, .-both

        # The end of the first is the start of the next.
        .type falls, @function
falls:  lea 3(%rdi), %rdi
        .size falls, .-falls
        .type into, @function
into:
third:  lea 4(%rdi), %rdi
        ret
        .size into, .-into

        # Entered in the middle, and only through a pointer.
        .type by_pointer, @function
by_pointer:
        xor %eax, %eax
        .type inner, @function
inner:  lea 5(%rdi), %rdi
        ret
        .size inner, .-inner
        .size by_pointer, .-by_pointer
        .section .note.GNU-stack, "", @progbits
