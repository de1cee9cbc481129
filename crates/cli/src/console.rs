//! What the kernel of a box says on its console, for `--console`: the beginning of it, as text that a terminal takes for nothing else.

use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

use crate::problem::Problem;
use crate::whole_file::WholeFile;

/// A guest may say as much as it likes: so much is kept, and the rest is heard and forgotten.
const MOST: usize = 1 << 20;
const CUT: &[u8] = b"\n[cut: the rest is not kept]\n";

/// Somebody who hears it, and where it goes in the end.
#[derive(Debug)]
pub(crate) struct Console {
    path: PathBuf,
    file: WholeFile,
    line: UnixStream,
    hears: JoinHandle<Vec<u8>>,
}

impl Console {
    /// The console, and the side of it that is the box's.
    pub(crate) fn open(path: &Path) -> Result<(Self, OwnedFd), Problem> {
        let failed = |source| Problem::Console { path: path.to_owned(), source };
        let file = WholeFile::prepare(path).map_err(failed)?;
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let line = ours.try_clone().map_err(failed)?;
        let hears = Builder::new().name("console".to_owned()).spawn(move || listen(ours)).map_err(failed)?;
        Ok((Self { path: path.to_owned(), file, line, hears }, theirs.into()))
    }

    /// Writes what was said until now, the end of the box. Should somebody still hold the other side, nobody hears it from here on.
    pub(crate) fn write(self) -> Result<(), Problem> {
        self.line.shutdown(Shutdown::Both).ok();
        let text = self.hears.join().unwrap_or_default();
        self.file.write(&text).map_err(|source| Problem::Console { path: self.path, source })
    }
}

fn listen(mut box_side: UnixStream) -> Vec<u8> {
    let (mut kept, mut bytes, mut cut) = (Vec::new(), [0; 4096], false);
    loop {
        match box_side.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => {
                let said = bytes.iter().take(count).copied().filter_map(plain);
                let room = MOST.saturating_sub(kept.len());
                cut |= count > room;
                kept.extend(said.take(room));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What was said before is what there is.
            Err(_) => break,
        }
    }
    if cut {
        kept.extend(CUT);
    }
    kept
}

/// A guest chooses the bytes, and its owner shows them on a terminal.
fn plain(byte: u8) -> Option<u8> {
    match byte {
        b'\r' => None,
        b'\n' | b'\t' | b' '..=b'~' => Some(byte),
        _ => Some(b'?'),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_is_said_is_kept_as_plain_text_and_no_more_than_its_bound() {
        let said = |bytes: &[u8]| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let hears = std::thread::spawn(move || listen(ours));
            theirs.write_all(bytes).unwrap();
            drop(theirs);
            hears.join().unwrap()
        };
        assert_eq!(said(b"one\r\n\x1b]0;x\x07two\xc2\x9b\n"), b"one\n?]0;x?two??\n");
        let flood = said(&vec![b'x'; 3 * MOST]);
        assert!(flood.len() == MOST + CUT.len() && flood.ends_with(CUT));
    }

    #[test]
    fn what_was_said_is_written_also_where_somebody_holds_the_other_side() {
        let path = std::env::temp_dir().join(format!("blastbox-receipt-{}-console", std::process::id()));
        let (console, theirs) = Console::open(&path).unwrap();
        let mut theirs = UnixStream::from(theirs);
        theirs.write_all(b"before").unwrap();
        console.write().unwrap();
        assert!(theirs.write_all(b"after").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_place_that_cannot_be_written_is_told_before_anything_runs() {
        assert!(matches!(Console::open(Path::new("/nowhere/console")), Err(Problem::Console { .. })));
    }
}
