//! The receipt, in the file that `--receipt` names.

use std::path::{Path, PathBuf};

use blastbox_wire::receipt::Receipt;

use crate::problem::Problem;
use crate::whole_file::WholeFile;

/// Where the receipt will go.
#[derive(Debug)]
pub(crate) struct ReceiptFile {
    path: PathBuf,
    file: WholeFile,
}

impl ReceiptFile {
    /// Makes sure that it can be written. Leaves nothing behind.
    pub(crate) fn prepare(path: &Path) -> Result<Self, Problem> {
        let path = path.to_owned();
        match WholeFile::prepare(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(Problem::Receipt { path, source }),
        }
    }

    /// Writes the receipt.
    pub(crate) fn write(self, receipt: &Receipt) -> Result<(), Problem> {
        let mut text = serde_json::to_vec_pretty(receipt)?;
        text.push(b'\n');
        self.file.write(&text).map_err(|source| Problem::Receipt { path: self.path, source })
    }
}
