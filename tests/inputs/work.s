	.file	"work.c"
	.text
	.section	.rodata.str1.1,"aMS",@progbits,1
.LC1:
	.string	"n%d"
	.text
	.p2align 4
	.type	insert, @function
insert:
.LFB22:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset 6, -16
	movl	%esi, %ebp
	pushq	%rbx
	.cfi_def_cfa_offset 24
	.cfi_offset 3, -24
	subq	$8, %rsp
	.cfi_def_cfa_offset 32
	testq	%rdi, %rdi
	je	.L13
	movq	%rdi, %rbx
	cmpl	%esi, 16(%rdi)
	jg	.L14
	jl	.L15
.L1:
	addq	$8, %rsp
	.cfi_remember_state
	.cfi_def_cfa_offset 24
	movq	%rbx, %rax
	popq	%rbx
	.cfi_def_cfa_offset 16
	popq	%rbp
	.cfi_def_cfa_offset 8
	ret
	.p2align 4,,10
	.p2align 3
.L14:
	.cfi_restore_state
	movq	(%rdi), %rdi
	call	insert
	movq	%rax, (%rbx)
	addq	$8, %rsp
	.cfi_remember_state
	.cfi_def_cfa_offset 24
	movq	%rbx, %rax
	popq	%rbx
	.cfi_def_cfa_offset 16
	popq	%rbp
	.cfi_def_cfa_offset 8
	ret
	.p2align 4,,10
	.p2align 3
.L15:
	.cfi_restore_state
	movq	8(%rdi), %rdi
	call	insert
	movq	%rax, 8(%rbx)
	addq	$8, %rsp
	.cfi_remember_state
	.cfi_def_cfa_offset 24
	movq	%rbx, %rax
	popq	%rbx
	.cfi_def_cfa_offset 16
	popq	%rbp
	.cfi_def_cfa_offset 8
	ret
	.p2align 4,,10
	.p2align 3
.L13:
	.cfi_restore_state
	movl	$48, %esi
	movl	$1, %edi
	call	calloc@PLT
	pxor	%xmm0, %xmm0
	pxor	%xmm1, %xmm1
	cvtsi2sdl	%ebp, %xmm0
	movl	%ebp, 16(%rax)
	movq	%rax, %rbx
	ucomisd	%xmm0, %xmm1
	ja	.L10
	sqrtsd	%xmm0, %xmm0
.L5:
	movsd	%xmm0, 24(%rbx)
	leaq	32(%rbx), %rdi
	movl	%ebp, %ecx
	movl	$16, %esi
	leaq	.LC1(%rip), %rdx
	xorl	%eax, %eax
	call	snprintf@PLT
	jmp	.L1
.L10:
	call	sqrt@PLT
	jmp	.L5
	.cfi_endproc
.LFE22:
	.size	insert, .-insert
	.p2align 4
	.type	total, @function
total:
.LFB23:
	.cfi_startproc
	pxor	%xmm0, %xmm0
	testq	%rdi, %rdi
	je	.L63
	pushq	%r13
	.cfi_def_cfa_offset 16
	.cfi_offset 13, -16
	movapd	%xmm0, %xmm2
	pushq	%r12
	.cfi_def_cfa_offset 24
	.cfi_offset 12, -24
	pushq	%rbp
	.cfi_def_cfa_offset 32
	.cfi_offset 6, -32
	pushq	%rbx
	.cfi_def_cfa_offset 40
	.cfi_offset 3, -40
	movq	%rdi, %rbx
	subq	$40, %rsp
	.cfi_def_cfa_offset 80
	movq	(%rdi), %rbp
	testq	%rbp, %rbp
	je	.L18
	movq	0(%rbp), %r12
	movapd	%xmm0, %xmm1
	testq	%r12, %r12
	je	.L19
	movq	(%r12), %r13
	testq	%r13, %r13
	je	.L20
	movq	0(%r13), %rdi
	call	total
	addsd	24(%r13), %xmm0
	movq	8(%r13), %rdi
	movsd	%xmm0, (%rsp)
	call	total
	movsd	(%rsp), %xmm1
	addsd	%xmm0, %xmm1
.L20:
	addsd	24(%r12), %xmm1
	movq	8(%r12), %r12
	pxor	%xmm0, %xmm0
	testq	%r12, %r12
	je	.L21
	movq	(%r12), %rdi
	movsd	%xmm1, 8(%rsp)
	call	total
	addsd	24(%r12), %xmm0
	movq	8(%r12), %rdi
	movsd	%xmm0, (%rsp)
	call	total
	addsd	(%rsp), %xmm0
	movsd	8(%rsp), %xmm1
.L21:
	addsd	%xmm0, %xmm1
.L19:
	addsd	24(%rbp), %xmm1
	movq	8(%rbp), %rbp
	pxor	%xmm0, %xmm0
	testq	%rbp, %rbp
	je	.L22
	movq	0(%rbp), %r12
	movapd	%xmm0, %xmm2
	testq	%r12, %r12
	je	.L23
	movq	(%r12), %rdi
	movsd	%xmm1, 8(%rsp)
	call	total
	addsd	24(%r12), %xmm0
	movq	8(%r12), %rdi
	movsd	%xmm0, (%rsp)
	call	total
	movsd	(%rsp), %xmm2
	movsd	8(%rsp), %xmm1
	addsd	%xmm0, %xmm2
.L23:
	addsd	24(%rbp), %xmm2
	movq	8(%rbp), %rbp
	pxor	%xmm0, %xmm0
	testq	%rbp, %rbp
	je	.L24
	movq	0(%rbp), %rdi
	movsd	%xmm2, 16(%rsp)
	movsd	%xmm1, 8(%rsp)
	call	total
	addsd	24(%rbp), %xmm0
	movq	8(%rbp), %rdi
	movsd	%xmm0, (%rsp)
	call	total
	addsd	(%rsp), %xmm0
	movsd	16(%rsp), %xmm2
	movsd	8(%rsp), %xmm1
.L24:
	addsd	%xmm2, %xmm0
.L22:
	movapd	%xmm1, %xmm2
	addsd	%xmm0, %xmm2
.L18:
	addsd	24(%rbx), %xmm2
	movq	8(%rbx), %rbx
	pxor	%xmm1, %xmm1
	testq	%rbx, %rbx
	je	.L25
	movq	(%rbx), %rbp
	testq	%rbp, %rbp
	je	.L26
	movq	0(%rbp), %r12
	testq	%r12, %r12
	je	.L27
	movq	(%r12), %rdi
	movsd	%xmm2, 8(%rsp)
	call	total
	addsd	24(%r12), %xmm0
	movq	8(%r12), %rdi
	movsd	%xmm0, (%rsp)
	call	total
	movsd	(%rsp), %xmm1
	movsd	8(%rsp), %xmm2
	addsd	%xmm0, %xmm1
.L27:
	addsd	24(%rbp), %xmm1
	movq	8(%rbp), %rbp
	pxor	%xmm0, %xmm0
	testq	%rbp, %rbp
	je	.L28
	movq	0(%rbp), %rdi
	movsd	%xmm1, 16(%rsp)
	movsd	%xmm2, 8(%rsp)
	call	total
	addsd	24(%rbp), %xmm0
	movq	8(%rbp), %rdi
	movsd	%xmm0, (%rsp)
	call	total
	addsd	(%rsp), %xmm0
	movsd	16(%rsp), %xmm1
	movsd	8(%rsp), %xmm2
.L28:
	addsd	%xmm0, %xmm1
.L26:
	addsd	24(%rbx), %xmm1
	movq	8(%rbx), %rbx
	pxor	%xmm0, %xmm0
	testq	%rbx, %rbx
	je	.L29
	movq	(%rbx), %rbp
	movapd	%xmm0, %xmm3
	testq	%rbp, %rbp
	je	.L30
	movq	0(%rbp), %rdi
	movsd	%xmm1, 16(%rsp)
	movsd	%xmm2, 8(%rsp)
	call	total
	addsd	24(%rbp), %xmm0
	movq	8(%rbp), %rdi
	movsd	%xmm0, (%rsp)
	call	total
	movsd	(%rsp), %xmm3
	movsd	16(%rsp), %xmm1
	movsd	8(%rsp), %xmm2
	addsd	%xmm0, %xmm3
.L30:
	addsd	24(%rbx), %xmm3
	movq	8(%rbx), %rbx
	pxor	%xmm0, %xmm0
	testq	%rbx, %rbx
	je	.L31
	movq	(%rbx), %rdi
	movsd	%xmm3, 24(%rsp)
	movsd	%xmm1, 16(%rsp)
	movsd	%xmm2, 8(%rsp)
	call	total
	addsd	24(%rbx), %xmm0
	movq	8(%rbx), %rdi
	movsd	%xmm0, (%rsp)
	call	total
	addsd	(%rsp), %xmm0
	movsd	24(%rsp), %xmm3
	movsd	16(%rsp), %xmm1
	movsd	8(%rsp), %xmm2
.L31:
	addsd	%xmm3, %xmm0
.L29:
	addsd	%xmm0, %xmm1
.L25:
	addsd	%xmm1, %xmm2
	addq	$40, %rsp
	.cfi_def_cfa_offset 40
	popq	%rbx
	.cfi_def_cfa_offset 32
	popq	%rbp
	.cfi_def_cfa_offset 24
	popq	%r12
	.cfi_def_cfa_offset 16
	popq	%r13
	.cfi_def_cfa_offset 8
	movapd	%xmm2, %xmm0
	ret
	.p2align 4,,10
	.p2align 3
.L63:
	.cfi_restore 3
	.cfi_restore 6
	.cfi_restore 12
	.cfi_restore 13
	ret
	.cfi_endproc
.LFE23:
	.size	total, .-total
	.section	.rodata.str1.8,"aMS",@progbits,1
	.align 8
.LC2:
	.string	"the quick brown fox + 12 - 7 * 3 / 2"
	.section	.rodata.str1.1
.LC4:
	.string	"work"
.LC6:
	.string	"%.3f %d %d %.1f %lu\n"
	.section	.text.startup,"ax",@progbits
	.p2align 4
	.globl	main
	.type	main, @function
main:
.LFB27:
	.cfi_startproc
	pushq	%r12
	.cfi_def_cfa_offset 16
	.cfi_offset 12, -16
	pxor	%xmm0, %xmm0
	xorl	%edi, %edi
	pushq	%rbp
	.cfi_def_cfa_offset 24
	.cfi_offset 6, -24
	pushq	%rbx
	.cfi_def_cfa_offset 32
	.cfi_offset 3, -32
	xorl	%ebx, %ebx
	subq	$1584, %rsp
	.cfi_def_cfa_offset 1616
	movl	$0, 32(%rsp)
	movaps	%xmm0, (%rsp)
	movaps	%xmm0, 16(%rsp)
	.p2align 4,,10
	.p2align 3
.L67:
	movl	%ebx, %edx
	movl	%ebx, %eax
	movl	%ebx, %esi
	addl	$7919, %ebx
	imulq	$63849861, %rdx, %rdx
	shrq	$32, %rdx
	subl	%edx, %eax
	shrl	%eax
	addl	%edx, %eax
	shrl	$9, %eax
	imull	$1009, %eax, %eax
	subl	%eax, %esi
	call	insert
	movq	%rax, %rdi
	cmpl	$2375700, %ebx
	jne	.L67
	leaq	.LC2(%rip), %rcx
	movl	$116, %eax
	movl	$1065233, %r9d
	leaq	.L72(%rip), %r8
	.p2align 4,,10
	.p2align 3
.L79:
	cmpb	$57, %al
	jg	.L68
	cmpb	$8, %al
	jle	.L70
	leal	-9(%rax), %edx
	cmpb	$48, %dl
	ja	.L70
	movzbl	%dl, %edx
	movslq	(%r8,%rdx,4), %rdx
	addq	%r8, %rdx
	jmp	*%rdx
	.section	.rodata
	.align 4
	.align 4
.L72:
	.long	.L77-.L72
	.long	.L77-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L77-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L70-.L72
	.long	.L76-.L72
	.long	.L75-.L72
	.long	.L70-.L72
	.long	.L74-.L72
	.long	.L70-.L72
	.long	.L73-.L72
	.long	.L88-.L72
	.long	.L88-.L72
	.long	.L88-.L72
	.long	.L88-.L72
	.long	.L88-.L72
	.long	.L88-.L72
	.long	.L88-.L72
	.long	.L88-.L72
	.long	.L88-.L72
	.long	.L88-.L72
	.section	.text.startup
.L68:
	leal	-97(%rax), %esi
	cmpb	$20, %sil
	ja	.L70
	btq	%rsi, %r9
	movl	$1, %edx
	jc	.L71
.L70:
	shrl	$4, %eax
	andl	$8, %eax
	movl	%eax, %edx
	.p2align 4,,10
	.p2align 3
.L71:
	movslq	%edx, %rax
	addq	$1, %rcx
	addl	$1, (%rsp,%rax,4)
	movzbl	(%rcx), %eax
	testb	%al, %al
	jne	.L79
	leaq	48(%rsp), %r9
	leaq	560(%rsp), %rbx
	xorl	%esi, %esi
	movdqa	.LC5(%rip), %xmm5
	movdqa	.LC3(%rip), %xmm6
	movq	%rbx, %rcx
	movq	%r9, %rdx
	jmp	.L82
	.p2align 4,,10
	.p2align 3
.L101:
	addl	$1, %esi
	addq	$64, %rdx
	addq	$64, %rcx
	cmpl	$8, %esi
	je	.L100
.L82:
	movd	%esi, %xmm7
	xorl	%eax, %eax
	movdqa	%xmm6, %xmm1
	pshufd	$0, %xmm7, %xmm2
.L81:
	movdqa	%xmm1, %xmm0
	movdqa	%xmm1, %xmm4
	paddd	%xmm2, %xmm0
	paddd	%xmm5, %xmm4
	cvtdq2pd	%xmm0, %xmm3
	pshufd	$238, %xmm0, %xmm0
	movaps	%xmm3, (%rdx,%rax)
	cvtdq2pd	%xmm0, %xmm0
	movaps	%xmm0, 16(%rdx,%rax)
	movdqa	%xmm2, %xmm0
	psubd	%xmm1, %xmm0
	cvtdq2pd	%xmm0, %xmm1
	pshufd	$238, %xmm0, %xmm0
	movaps	%xmm1, (%rcx,%rax)
	cvtdq2pd	%xmm0, %xmm0
	movaps	%xmm0, 16(%rcx,%rax)
	cmpq	$32, %rax
	je	.L101
	movl	$32, %eax
	movdqa	%xmm4, %xmm1
	jmp	.L81
.L88:
	movl	$2, %edx
	jmp	.L71
.L73:
	movl	$7, %edx
	jmp	.L71
.L74:
	movl	$5, %edx
	jmp	.L71
.L75:
	movl	$4, %edx
	jmp	.L71
.L76:
	movl	$6, %edx
	jmp	.L71
.L100:
	leaq	1072(%rsp), %r11
	leaq	512(%r9), %r12
	leaq	624(%rsp), %r10
	leaq	512(%rbx), %rbp
	.p2align 4,,10
	.p2align 3
.L83:
	movq	%rbp, %rcx
	movq	%r11, %r8
	movq	%rbx, %rsi
.L85:
	movq	%rsi, %rax
	movq	%r9, %rdx
	pxor	%xmm1, %xmm1
	.p2align 4,,10
	.p2align 3
.L84:
	movsd	(%rdx), %xmm0
	addq	$64, %rax
	addq	$8, %rdx
	unpcklpd	%xmm0, %xmm0
	mulpd	-64(%rax), %xmm0
	addpd	%xmm0, %xmm1
	cmpq	%rcx, %rax
	jne	.L84
	addq	$16, %rsi
	movaps	%xmm1, (%r8)
	leaq	16(%rax), %rcx
	addq	$16, %r8
	cmpq	%r10, %rsi
	jne	.L85
	addq	$64, %r9
	addq	$64, %r11
	cmpq	%r9, %r12
	jne	.L83
	movl	$119, %eax
	leaq	.LC4(%rip), %rsi
	movl	$5381, %ecx
	.p2align 4,,10
	.p2align 3
.L86:
	movq	%rcx, %rdx
	addq	$1, %rsi
	salq	$5, %rdx
	addq	%rcx, %rdx
	xorq	%rdx, %rax
	movq	%rax, %rcx
	movzbl	(%rsi), %eax
	testb	%al, %al
	jne	.L86
	movabsq	$2361183241434822607, %rax
	movq	%rcx, %rdx
	call	total
	shrq	$3, %rdx
	movl	4(%rsp), %esi
	movsd	1296(%rsp), %xmm1
	mulq	%rdx
	leaq	.LC6(%rip), %rdi
	movq	%rdx, %rax
	movl	8(%rsp), %edx
	shrq	$4, %rax
	imulq	$1000, %rax, %rax
	subq	%rax, %rcx
	movl	$2, %eax
	call	printf@PLT
	addq	$1584, %rsp
	.cfi_remember_state
	.cfi_def_cfa_offset 32
	xorl	%eax, %eax
	popq	%rbx
	.cfi_def_cfa_offset 24
	popq	%rbp
	.cfi_def_cfa_offset 16
	popq	%r12
	.cfi_def_cfa_offset 8
	ret
.L77:
	.cfi_restore_state
	movl	$3, %edx
	jmp	.L71
	.cfi_endproc
.LFE27:
	.size	main, .-main
	.section	.rodata.cst16,"aM",@progbits,16
	.align 16
.LC3:
	.long	0
	.long	1
	.long	2
	.long	3
	.align 16
.LC5:
	.long	4
	.long	4
	.long	4
	.long	4
	.section	.note.GNU-stack,"",@progbits
