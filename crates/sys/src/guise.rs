//! Whose files a process opens: the file user and group, which the kernel asks about files and about nothing else.
//!
//! A process that changes them can still be signalled and traced only by whom it could be before.

use std::io;

/// Takes on a user and a group for files alone. An error leaves the caller with neither more nor less than one of both
/// pairs: it must not go on to open anything.
///
/// The calls themselves never say whether they were refused, so the result is asked for.
///
/// gVisor's kernel knows no file user. There the effective one is changed instead, which takes the capabilities away meanwhile;
/// who may signal and trace the caller still depends on the other two.
pub fn open_files_as(uid: u32, gid: u32) -> io::Result<()> {
    // The group first: afterwards the user may no longer be one that may.
    match set(libc::SYS_setfsgid, gid) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            set_effective(libc::SYS_setresgid, gid)?;
            set_effective(libc::SYS_setresuid, uid)
        }
        done => {
            done?;
            set(libc::SYS_setfsuid, uid)
        }
    }
}

fn set_effective(call: libc::c_long, id: u32) -> io::Result<()> {
    // SAFETY: no memory is passed; the other two ids stay as they are.
    let done = unsafe { libc::syscall(call, u32::MAX, id, u32::MAX) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set(call: libc::c_long, id: u32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    if unsafe { libc::syscall(call, id) } == -1 {
        // An answer that no id can be: the kernel does not know the call.
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    // An id that nobody has changes nothing, and the call answers with the one that holds.
    // SAFETY: no memory is passed.
    let now = unsafe { libc::syscall(call, u32::MAX) };
    if u32::try_from(now).is_ok_and(|now| now == id) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_own_ids_can_be_taken_on_and_strange_ones_cannot() {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        open_files_as(uid, gid).unwrap();
        if uid != 0 {
            assert!(open_files_as(0, 0).is_err());
        }
        assert!(open_files_as(u32::MAX, gid).is_err());
        open_files_as(uid, gid).unwrap();
    }
}
