//! Masks of signals as the kernel has them.

/// Size in bytes of the kernel's signal mask; C's `sigset_t` is larger.
pub(crate) const KERNEL_SIGSET_SIZE: usize = 8;

/// The bit of a signal in the kernel's mask.
pub(crate) const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}
