# A program of which every block is known.
        .text
        .globl  main, twice, sum
        .type   main, @function
main:                                   # block: entry
        push    %rbx
        sub     $32, %rsp
        mov     $3, %edi
        call    twice
        mov     %eax, %edi
        call    sum
        mov     %eax, %ebx
        movl    $7, 8(%rsp)
        addl    $1, 8(%rsp)
        mov     %ebx, %eax
        add     $32, %rsp
        pop     %rbx
        ret
        .size   main, .-main

        .type   twice, @function
twice:
        cmp     $2, %edi
        jle     1f
        lea     (%rdi,%rdi), %eax
        ret
1:      mov     %edi, %eax
        ret
        .size   twice, .-twice

        .type   sum, @function
sum:                                    # 6 + 5 + ... + 1
        xor     %eax, %eax
2:      add     %edi, %eax
        dec     %edi
        jne     2b
        cvtsi2sd %eax, %xmm0
        addsd   %xmm0, %xmm0
        ret
        .size   sum, .-sum
        .section .note.GNU-stack,"",@progbits
