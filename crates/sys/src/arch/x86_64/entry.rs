//! How a program is entered and asks the kernel before its libraries are there: see [`crate::first`].

use std::arch::{asm, global_asm};

// The kernel's stack is handed on as it was, and so is the one register that means something. None of the registers that are kept across the
// call mean anything yet.
global_asm!(
    ".globl blastbox_first",
    ".type blastbox_first, @function",
    "blastbox_first:",
    "xor ebp, ebp",
    "mov r12, rsp",
    "mov r13, rdx",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {first}",
    "mov rsp, r12",
    "mov rdx, r13",
    "jmp _start",
    first = sym crate::first::first,
);

/// One system call; a negative number is an error.
///
/// # Safety
/// The arguments are what the call wants them to be.
pub(crate) unsafe fn system_call(number: libc::c_long, arguments: [usize; 5]) -> libc::c_long {
    let [a, b, c, d, e] = arguments;
    let result;
    // SAFETY: the kernel's convention: these registers in, two lost, the result in `rax`. The rest is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}
