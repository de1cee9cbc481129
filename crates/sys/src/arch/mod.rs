//! Everything that differs by processor architecture: one table per architecture, nothing else in this crate asks.
//!
//! A new architecture is a new file with the same four constants, and its `entry.rs`.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::entry::system_call;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{AUDIT_ARCH, CALLS, FOREIGN_BIT, FOREIGN_NUMBERS};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("no system call table for this architecture yet: write crates/sys/src/arch/<name>.rs");

/// The name of a native system call, for reports about denied calls. `None`: newer than the table, or no call at all.
#[must_use]
pub fn syscall_name(nr: u32) -> Option<&'static str> {
    let at = CALLS.binary_search_by_key(&nr, |&(number, _)| number).ok()?;
    CALLS.get(at).map(|&(_, name)| name)
}

/// The number of a native system call. `None`: this architecture does not have it.
#[must_use]
pub fn syscall_number(name: &str) -> Option<u32> {
    CALLS.iter().find(|&&(_, known)| known == name).map(|&(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_name_is_there_once() {
        assert!(CALLS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let mut names: Vec<_> = CALLS.iter().map(|call| call.1).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn numbers_agree_with_the_c_library() {
        let known = [
            ("read", libc::SYS_read),
            ("clone", libc::SYS_clone),
            ("execve", libc::SYS_execve),
            ("ptrace", libc::SYS_ptrace),
            ("openat", libc::SYS_openat),
            ("seccomp", libc::SYS_seccomp),
            ("rseq", libc::SYS_rseq),
            ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
            ("clone3", libc::SYS_clone3),
            ("memfd_secret", libc::SYS_memfd_secret),
            ("fchmodat2", libc::SYS_fchmodat2),
            ("mseal", libc::SYS_mseal),
        ];
        for (name, number) in known {
            let number = u32::try_from(number).unwrap();
            assert_eq!(syscall_number(name), Some(number), "{name}");
            assert_eq!(syscall_name(number), Some(name));
        }
    }

    #[test]
    fn a_number_without_a_call_has_no_name() {
        assert_eq!(syscall_name(u32::MAX), None);
        assert_eq!(syscall_number("launch_missiles"), None);
    }
}
