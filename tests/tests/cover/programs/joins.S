# Blocks to which control comes from several blocks that lead nowhere else, and which lead to such a block at a lower
# address.
    .globl main
    .type main, @function
main:
    mov     %edi, %eax          # the number of words
    cmp     $2, %eax
    je      .Lsecond
    cmp     $3, %eax
    je      .Lthird
    cmp     $4, %eax
    je      .Lfourth
    cmp     $5, %eax
    je      .Lfifth
    nop
    jmp     .Llowest
.Lfifth:
    xor     %ecx, %ecx
.Llowest:
    xor     %eax, %eax
    ret
.Llower:
    lea     1(%rcx), %ecx
    jmp     .Llowest
.Lfourth:
    mov     $4, %ecx
    jmp     .Llower
.Lsecond:
    mov     $2, %ecx
    jmp     .Lupper
.Lthird:
    mov     $3, %ecx
    jmp     .Lupper
.Lupper:
    lea     2(%rcx), %ecx
    jmp     .Llower
    .size main, . - main
    .section .note.GNU-stack, "", @progbits
