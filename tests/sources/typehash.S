// Hashes of types before procedures, as clang's -fsanitize=kcfi writes them: calls through pointers compare the bytes
// before the callee. The hashes have function symbols; here without padding, with some before, and with some after.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie-strip clang-O0
// stdout: close 4 padded 6 patchable 9
        .text
        .globl main, __cfi_close_, close_, __cfi_padded, padded, __cfi_patchable, patchable
        .type main, @function
        .macro hash name, before, after  // of int (int)
        .type __cfi_\name, @function
        .type \name, @function
__cfi_\name:
        .fill \before, 1, 0x90
        movl $0x00050794, %eax
        .fill \after, 1, 0x90
        .size __cfi_\name, .-__cfi_\name
\name: .cfi_startproc
        .endm
        .macro checked pointer, distance // calls pointer(edi), whose hash must be right
        movq \pointer(%rip), %r11
        movl $0xfffaf86c, %r10d
        addl -\distance(%r11), %r10d
        je 9f
        ud2
9:      call *%r11
        .endm
        hash close_, 0, 0
        leal 1(%rdi), %eax
        ret
        .cfi_endproc
        .size close_, .-close_
        .p2align 4
        hash padded, 11, 0
        leal 2(%rdi), %eax
        testl %edi, %edi
        jne 1f
        xorl %eax, %eax
1:      ret
        .cfi_endproc
        .size padded, .-padded
        .p2align 4
        hash patchable, 8, 3
        leal 3(%rdi), %eax
        ret
        .cfi_endproc
        .size patchable, .-patchable
main:   pushq %rbx
        pushq %r12
        subq $8, %rsp
        movl $3, %edi
        checked first, 4
        movl %eax, %ebx
        movl $4, %edi
        checked second, 4
        movl %eax, %r12d
        movl $6, %edi
        checked third, 7
        movl %eax, %ecx
        movl %r12d, %edx
        movl %ebx, %esi
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        addq $8, %rsp
        popq %r12
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "close %d padded %d patchable %d\n"
        .section .data.rel.ro, "aw"
        .p2align 3
first:  .quad close_
second: .quad padded
third:  .quad patchable
        .section .note.GNU-stack, "", @progbits
