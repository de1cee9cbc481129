//! The file that `--receipt` names: written whole or not at all, and known to be writable before anything runs.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use blastbox_wire::receipt::Receipt;

use crate::problem::Problem;

/// Where the receipt will go.
#[derive(Debug)]
pub(crate) struct ReceiptFile {
    path: PathBuf,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// Written beside it and moved over it.
    Replace { beside: PathBuf },
    /// A pipe or a device: written into.
    Into(File),
}

impl ReceiptFile {
    /// Makes sure that it can be written. Leaves nothing behind.
    pub(crate) fn prepare(path: &Path) -> Result<Self, Problem> {
        let failed = |source| Problem::Receipt { path: path.to_owned(), source };
        let way = match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
            Ok(found) if found.file_type().is_fifo() || found.file_type().is_char_device() => {
                Way::Into(OpenOptions::new().write(true).open(path).map_err(failed)?)
            }
            Ok(_) | Err(_) => {
                let beside = beside(path).ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
                drop(create(&beside).map_err(failed)?);
                fs::remove_file(&beside).map_err(failed)?;
                Way::Replace { beside }
            }
        };
        Ok(Self { path: path.to_owned(), way })
    }

    /// Writes the receipt.
    pub(crate) fn write(self, receipt: &Receipt) -> Result<(), Problem> {
        let mut text = serde_json::to_vec_pretty(receipt)?;
        text.push(b'\n');
        let written = match self.way {
            Way::Into(mut file) => file.write_all(&text),
            Way::Replace { beside } => replace(&self.path, &beside, &text),
        };
        written.map_err(|source| Problem::Receipt { path: self.path, source })
    }
}

fn beside(path: &Path) -> Option<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}.tmp", std::process::id()));
    Some(path.with_file_name(name))
}

/// For the owner alone: a receipt tells what was run.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn replace(path: &Path, beside: &Path, text: &[u8]) -> io::Result<()> {
    let written = create(beside).and_then(|mut file| {
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(text)?;
        fs::rename(beside, path)
    });
    if written.is_err() {
        // Whatever went wrong, half a receipt is not left lying about.
        fs::remove_file(beside).ok();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_and_a_missing_directory_are_refused_before_anything_runs() {
        assert!(ReceiptFile::prepare(Path::new("/")).is_err());
        assert!(ReceiptFile::prepare(Path::new("/nowhere/receipt.json")).is_err());
        assert!(ReceiptFile::prepare(Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn preparing_leaves_nothing_and_writing_is_for_the_owner_alone() {
        let directory = std::env::temp_dir().join(format!("blastbox-receipt-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("r.json");
        let file = ReceiptFile::prepare(&path).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        let Way::Replace { beside } = &file.way else { panic!("a file is replaced") };
        replace(&path, beside, b"{}").unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_dir_all(&directory).unwrap();
    }
}
