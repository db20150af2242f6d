/* Procedures in which a tool sets registers, at an instruction with the immediate operand MARK. Each returns what the register
   holds afterwards, or -1 if anything else has changed: flags, what is below rsp, another register. */
#define MARK 0x5a5a11
#define ALL rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15

        .text
        .macro  keep
        .irp    r, rbx, rbp, r12, r13, r14, r15
        push    %\r
        .cfi_adjust_cfa_offset 8
        .endr
        .endm

        .macro  give_back
        .irp    r, r15, r14, r13, r12, rbp, rbx
        pop     %\r
        .cfi_adjust_cfa_offset -8
        .endr
        .endm

        .macro  procedure name
        .globl  \name
        .type   \name, @function
\name:
        .cfi_startproc
        .endm

        .macro  end name
        .cfi_endproc
        .size   \name, . - \name
        .endm

        .macro  sets reg
        procedure set_\reg
        keep
        movq    $0x1111, -8(%rsp)
        movq    $0x2222, -128(%rsp)
        .set    value, 3
        .irp    r, ALL
        mov     $value, %\r
        .set    value, value + 7
        .endr
        stc
        mov     $MARK, %\reg
        jnc     2f
        .set    value, 3
        .irp    r, ALL
        .ifnc   \r, \reg
        cmp     $value, %\r
        jne     2f
        .endif
        .set    value, value + 7
        .endr
        cmpq    $0x1111, -8(%rsp)
        jne     2f
        cmpq    $0x2222, -128(%rsp)
        jne     2f
        mov     %\reg, %rax
1:      give_back
        ret
2:      mov     $-1, %rax
        jmp     1b
        end     set_\reg
        .endm

        .irp    r, ALL
        sets    \r
        .endr

/* Before the instruction: the value is overwritten. */
        procedure before_rax
        mov     $1, %eax
        mov     $MARK, %eax
        ret
        end     before_rax

/* Where rsp leads to data. */
        procedure set_rdx_foreign
        mov     %rsp, %r11
        .cfi_def_cfa_register r11
        lea     table + 64(%rip), %rsp
        mov     $MARK, %edx
        mov     %r11, %rsp
        .cfi_def_cfa_register rsp
        mov     %rdx, %rax
        lea     table(%rip), %rcx
        mov     $8, %esi
1:      dec     %esi
        js      2f
        cmp     %rsi, (%rcx, %rsi, 8)
        je      1b
        mov     $-1, %rax
2:      ret
        end     set_rdx_foreign

/* The result of a callee, and of a system call. */
        procedure call_rax
        call    seven
        lea     1(%rax), %rax
        ret
        end     call_rax

        .type   seven, @function
seven:  mov     $7, %eax
        ret
        .size   seven, . - seven

        procedure syscall_rax
        mov     $39, %eax
        syscall
        ret
        end     syscall_rax

/* The first argument. */
        procedure entry_rdi
        lea     (%rdi, %rdi, 2), %rax
        ret
        end     entry_rdi

        .data
        .balign 16
table:  .quad   0, 1, 2, 3, 4, 5, 6, 7

        .section .note.GNU-stack, "", @progbits
