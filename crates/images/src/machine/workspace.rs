//! A caller's directory as a disk in memory, for one machine: copied once, sealed, gone with its last holder.
//!
//! Trust: the directory is the caller's, and a stranger may have filled it. It is read with the caller's own rights, nothing is
//! followed, everything is counted, and the directory itself is never written to.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::squashfs::{CopyCaps, write_workspace};
use super::template::{blank, seal_own};

/// Copies a directory. What does not fit, and what is neither file, directory nor link, is an error that names it.
pub fn copy_workspace(directory: BorrowedFd<'_>, caps: &CopyCaps) -> io::Result<OwnedFd> {
    let file = File::from(blank(0)?);
    write_workspace(directory, &file, caps)?;
    // What a machine reads is what was copied, whoever else holds it.
    seal_own(&file)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("machine-workspace-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("sub")).unwrap();
            fs::write(path.join("sub/file"), vec![b'x'; 5000]).unwrap();
            Self(path)
        }

        fn copy(&self, caps: CopyCaps) -> Result<OwnedFd, String> {
            let directory = File::open(&self.0).unwrap();
            copy_workspace(directory.as_fd(), &caps).map_err(|error| error.to_string())
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    const CAPS: CopyCaps = CopyCaps { bytes: 6000, entries: 4, file: 6000 };

    #[test]
    fn what_fits_is_a_sealed_disk_and_links_are_taken_as_links() {
        let place = Place::new("fits");
        symlink("/etc/passwd", place.0.join("link")).unwrap();
        let disk = place.copy(CAPS).unwrap();
        assert!(rustix::io::pwrite(&disk, b"x", 0).is_err());
        let mut magic = [0; 4];
        rustix::io::pread(&disk, &mut magic, 0).unwrap();
        assert_eq!(&magic, b"hsqs");
    }

    #[test]
    fn what_does_not_fit_or_is_no_file_is_refused_by_name() {
        let place = Place::new("refused");
        for caps in [
            CopyCaps { bytes: 4999, ..CAPS },
            CopyCaps { file: 4999, ..CAPS },
            CopyCaps { entries: 2, ..CAPS },
        ] {
            let said = place.copy(caps).unwrap_err();
            assert!(said.contains("sub: file: ") || caps.entries == 2, "{said}");
        }
        mknodat(CWD, place.0.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(place.copy(CAPS).unwrap_err().contains("pipe: it is neither"));
    }
}
