//! Assembly that calls a function of the runtime where the program's registers have to keep their values.

/// Lines for `global_asm!` that make a call and keep rbp, the vector registers and all general registers that a function
/// may change but rax; flags neither. During the call rbp leads to the nine words that it has pushed.
macro_rules! keeping_registers {
    ($($call:literal),* $(,)?) => {
        concat!(
            ".irp register, rcx, rdx, rsi, rdi, r8, r9, r10, r11, rbp\n",
            "push \\register\n",
            ".endr\n",
            "mov rbp, rsp\n",
            "sub rsp, 256\n",
            "and rsp, -16\n",
            ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n",
            "movups [rsp + 16 * \\number], xmm\\number\n",
            ".endr\n",
            $($call, "\n",)*
            ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n",
            "movups xmm\\number, [rsp + 16 * \\number]\n",
            ".endr\n",
            "mov rsp, rbp\n",
            ".irp register, rbp, r11, r10, r9, r8, rdi, rsi, rdx, rcx\n",
            "pop \\register\n",
            ".endr",
        )
    };
}

pub(crate) use keeping_registers;
