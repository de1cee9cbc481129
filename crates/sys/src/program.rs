//! A program that nobody can change through its process, and its start.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, open, sendfile,
};

use crate::first;
use crate::mount::{self, Attributes, Beneath};

/// A program to be executed, which cannot be opened for writing through `/proc/PID/exe` (CVE-2019-5736): a read-only view
/// of its file, on a mount that is attached nowhere; or, for somebody who may not mount, the file itself where it is somebody else's, as an
/// installed one is, and else a sealed copy in memory, which takes a hundred times as long.
pub fn unwritable(path: &Path, name: &str) -> io::Result<OwnedFd> {
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    match read_only_view(file.as_fd()) {
        Ok(view) => Ok(view),
        Err(_) if first::is_out_of_reach(file.as_raw_fd()) => Ok(file),
        Err(_) => seal(file.as_fd(), name),
    }
}

fn read_only_view(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let view = mount::copy(file, "", Beneath::LeftOut)?;
    mount::restrict(view.as_fd(), Attributes::PLAIN.read_only(), Beneath::LeftOut)?;
    Ok(view)
}

/// Copies a program into a memory file that nobody can change any more: not even somebody who opens it for writing
/// through `/proc/self/exe` (CVE-2019-5736).
pub fn seal(program: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels from 6.3 on want to be told that it is to be executed; older ones do not know the flag.
    let sealed = memfd_create(name, flags | MemfdFlags::EXEC).or_else(|_| memfd_create(name, flags))?;
    let mut left = usize::try_from(rustix::fs::fstat(program)?.st_size).unwrap_or(0);
    let mut offset = 0;
    ftruncate(&sealed, left as u64)?;
    while left > 0 {
        match sendfile(&sealed, program, Some(&mut offset), left)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            sent => left = left.saturating_sub(sent),
        }
    }
    let seal =
        |writes| fcntl_add_seals(&sealed, writes | SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW);
    // Nobody else has had it: where the kernel holds pages of it (`EBUSY`, it moves them) nobody can write from now on, and nobody has.
    seal(SealFlags::WRITE).or_else(|_| seal(SealFlags::FUTURE_WRITE))?;
    Ok(sealed)
}

/// Becomes the program. Returns only if that fails.
pub fn execute(program: BorrowedFd<'_>, arguments: &[&CStr], environment: &[&CStr]) -> io::Error {
    let pointers = |list: &[&CStr]| -> Vec<*const libc::c_char> {
        list.iter().map(|text| text.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays end in a null pointer, and the strings that they point to outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Puts a program at this very number, to be executed from there, and to be gone then: a filter can tell this one execution
/// from any other.
pub fn place_to_execute(program: BorrowedFd<'_>, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: whatever was at `number` belongs to the caller, who gives it up; the flag is one that `dup3` knows.
    if unsafe { libc::dup3(program.as_raw_fd(), number, libc::O_CLOEXEC) } != number {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just put there, and whoever owned that number before has given it up.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes every descriptor from `first` on, for real: a process that never executes anything else would keep those
/// that are only marked (CVE-2024-21626).
pub fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: the caller gives up everything from `first` on; nothing that is still used owns such a descriptor.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts a descriptor at exactly this number and closes every higher one, for real.
pub fn place_last(fd: BorrowedFd<'_>, number: i32) -> io::Result<OwnedFd> {
    place(fd, number)?;
    close_from(number.unsigned_abs().saturating_add(1))?;
    // SAFETY: it was just put there, and whoever owned that number before has given it up.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Marks every descriptor from `first` on to be closed when a program is executed.
pub fn close_on_execute_from(first: u32) -> io::Result<()> {
    // SAFETY: only marks are set; no descriptor is closed here.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts a descriptor at exactly this number, to be inherited by the next program.
pub fn place(fd: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    if fd.as_raw_fd() == number {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
        return Ok(());
    }
    // SAFETY: whatever was at `number` belongs to the caller, who gives it up.
    let result = unsafe { libc::dup2(fd.as_raw_fd(), number) };
    if result == number { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_shown_or_sealed_cannot_be_changed_by_anybody() {
        let place = std::env::temp_dir().join(format!("blastbox-program-{}", std::process::id()));
        std::fs::write(&place, b"#!/bin/true\n").unwrap();
        let writes = |path: &str| std::fs::OpenOptions::new().write(true).open(path).map(drop);
        writes(place.to_str().unwrap()).expect("the file itself can be written");
        let file = std::fs::File::open(&place).unwrap();
        for program in [unwritable(&place, "program").unwrap(), seal(file.as_fd(), "program").unwrap()] {
            let through = format!("/proc/self/fd/{}", program.as_raw_fd());
            assert_eq!(std::fs::read(&through).unwrap(), b"#!/bin/true\n");
            let written = writes(&through).and_then(|()| std::fs::write(&through, b"x"));
            assert!(written.is_err(), "{through} can be written");
            assert_eq!(std::fs::read(&through).unwrap(), b"#!/bin/true\n");
        }
        std::fs::remove_file(&place).unwrap();
    }

    /// No bit of a mode.
    const WITH_CAPABILITIES: u32 = 1 << 20;

    #[test]
    fn a_file_is_out_of_reach_only_for_whoever_neither_owns_it_nor_may_write_to_it() {
        let root = rustix::process::geteuid().is_root();
        // In a process of its own: what it gives up is given up for good.
        let asked = |uid: u32, mode: u32| {
            let place =
                std::env::temp_dir().join(format!("blastbox-reach-{}-{uid}-{mode:o}", std::process::id()));
            std::fs::write(&place, b"#!/bin/true\n").unwrap();
            let file = std::fs::File::open(&place).unwrap();
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode & 0o7777)).unwrap();
            if mode & WITH_CAPABILITIES != 0 {
                // Version 2: every capability permitted, and effective at once.
                let all = [1, 0, 0, 2, 255, 255, 255, 255, 0, 0, 0, 0, 255, 1, 0, 0, 0, 0, 0, 0];
                rustix::fs::fsetxattr(&file, "security.capability", &all, rustix::fs::XattrFlags::empty())
                    .unwrap();
            }
            std::fs::remove_file(&place).unwrap();
            // SAFETY: the child makes system calls, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let group = |gid| {
                    // SAFETY: no memory is passed.
                    unsafe { libc::setresgid(gid, gid, gid) }
                };
                let user = |uid| {
                    // SAFETY: no memory is passed.
                    unsafe { libc::setresuid(uid, uid, uid) }
                };
                let became = uid == 0 || group(uid) == 0 && user(uid) == 0;
                let code = if became { i32::from(first::is_out_of_reach(file.as_raw_fd())) } else { 2 };
                crate::fork::leave(code);
            }
            let mut status = 0;
            // SAFETY: the status is a number of ours.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            libc::WEXITSTATUS(status)
        };
        // One's own file: also where its mode keeps one out, which its owner changes.
        assert_eq!((asked(0, 0o555), asked(0, 0o755)), (0, 0));
        if root {
            assert_eq!(asked(65_534, 0o755), 1, "root's file for somebody else");
            assert_eq!(asked(65_534, 0o757), 0, "that everybody may write");
            assert_eq!(asked(65_534, 0o755 | WITH_CAPABILITIES), 0, "that gives capabilities");
            assert_eq!((asked(65_534, 0o4755), asked(65_534, 0o2755)), (0, 0), "that makes somebody root");
        }
    }
}
