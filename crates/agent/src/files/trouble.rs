//! Why an operation failed, in words that say nothing about paths.

use blastbox_wire::agent::{Fault, FileEnd};
use rustix::io::Errno;

/// A failed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trouble(pub(super) Fault, pub(super) Errno);

impl Trouble {
    pub(super) fn bad_path(errno: Errno) -> Self {
        Self(Fault::BadPath, errno)
    }
    pub(super) fn bad_archive() -> Self {
        Self(Fault::BadArchive, Errno::INVAL)
    }
    /// A pipe, a socket, a device, or a file of /proc.
    pub(super) fn not_regular() -> Self {
        Self(Fault::NotRegular, Errno::NXIO)
    }
    pub(super) fn end(self) -> FileEnd {
        let Self(fault, errno) = self;
        FileEnd::Failed { fault, errno: errno.raw_os_error() }
    }
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        let fault = match errno {
            Errno::NOENT => Fault::NotFound,
            Errno::EXIST => Fault::Exists,
            Errno::NOTDIR => Fault::NotDirectory,
            Errno::ISDIR => Fault::IsDirectory,
            Errno::NXIO | Errno::NODEV => Fault::NotRegular,
            Errno::ACCESS | Errno::PERM => Fault::NotPermitted,
            Errno::NOTEMPTY => Fault::NotEmpty,
            Errno::NOSPC | Errno::DQUOT => Fault::NoSpace,
            Errno::FBIG => Fault::TooLarge,
            Errno::LOOP => Fault::Loop,
            Errno::NAMETOOLONG => Fault::NameTooLong,
            Errno::XDEV => Fault::CrossDevice,
            Errno::ROFS => Fault::ReadOnly,
            Errno::AGAIN | Errno::BUSY | Errno::TXTBSY | Errno::STALE => Fault::Busy,
            Errno::MFILE | Errno::NFILE => Fault::TooMany,
            _ => Fault::Failed,
        };
        Self(fault, errno)
    }
}
