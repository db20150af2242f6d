# Branches whose outcomes follow known patterns. A label stands on each of them.
        .globl  _start, loop_of_8, loop_of_40, by_turns, chance, dispatch, deep_return
        .text
_start:
# 10,000 times a loop of 8 rounds.
        mov     $10000, %ebx
1:      mov     $8, %ecx
2:      dec     %ecx
loop_of_8:
        jnz     2b
        dec     %ebx
        jnz     1b

# 10,000 times a loop of 40 rounds.
        mov     $10000, %ebx
1:      mov     $40, %ecx
2:      dec     %ecx
loop_of_40:
        jnz     2b
        dec     %ebx
        jnz     1b

# By turns.
        mov     $10000, %ebx
1:      test    $1, %bl
by_turns:
        jnz     2f
        nop
2:      dec     %ebx
        jnz     1b

# A generator of random numbers (xorshift) decides.
        mov     $10000, %ebx
        mov     $88172645463325252, %rax
1:      mov     %rax, %rdx
        shl     $13, %rdx
        xor     %rdx, %rax
        mov     %rax, %rdx
        shr     $7, %rdx
        xor     %rdx, %rax
        mov     %rax, %rdx
        shl     $17, %rdx
        xor     %rdx, %rax
        bt      $40, %rax
chance:
        jc      2f
        nop
2:      dec     %ebx
        jnz     1b

# A jump with four targets in a fixed order.
        mov     $10000, %ebx
again:  mov     %ebx, %ecx
        and     $3, %ecx
dispatch:
        jmp     *table(,%rcx,8)
        .p2align 4
zero:   nop
        jmp     next
        .p2align 4
one:    jmp     next
        .p2align 4
two:    nop
        nop
        jmp     next
        .p2align 4
three:  nop
        nop
        nop
next:   dec     %ebx
        jnz     again

# A recursion of 24 calls.
        mov     $100, %ebx
1:      mov     $24, %ecx
        call    deep
        dec     %ebx
        jnz     1b

        mov     $60, %eax
        xor     %edi, %edi
        syscall

        .type   deep, @function
deep:
        dec     %ecx
        jz      deep_return
        call    deep
deep_return:
        ret
        .size   deep, . - deep

        .section .rodata
        .p2align 3
table:  .quad   zero, one, two, three
        .section .note.GNU-stack, "", @progbits
