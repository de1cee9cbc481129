//! The archive that a kernel unpacks before it starts its first process: cpio, in the form `newc`.

use std::io::{self, Write};

/// What an entry is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Entry<'a> {
    /// A directory.
    Directory,
    /// A file that may be executed.
    File(&'a [u8]),
    /// A character device.
    Device {
        /// Its major number.
        major: u32,
        /// Its minor number.
        minor: u32,
    },
}

/// The longest name that is written, its end included.
const MOST_NAME: usize = 4096;
const TRAILER: &str = "TRAILER!!!";

/// Writes an archive. Everything in it is root's and without a date, so that equal content gives equal bytes.
#[derive(Debug)]
pub(super) struct Archive<W> {
    to: W,
    number: u32,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, number: 0 }
    }

    pub(super) fn add(&mut self, name: &str, entry: Entry<'_>) -> io::Result<()> {
        let (mode, content, (major, minor)): (u32, &[u8], _) = match entry {
            Entry::Directory => (0o040_755, &[], (0, 0)),
            Entry::File(content) => (0o100_755, content, (0, 0)),
            Entry::Device { major, minor } => (0o020_666, &[], (major, minor)),
        };
        self.number = self.number.saturating_add(1);
        self.entry(name, mode, content, (major, minor))
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.number = 0;
        self.entry(TRAILER, 0, &[], (0, 0))?;
        Ok(self.to)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8], (major, minor): (u32, u32)) -> io::Result<()> {
        let named = name.len().saturating_add(1);
        let size = u32::try_from(content.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if named > MOST_NAME || name.contains('\0') {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        let head = format!(
            "070701{:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{size:08x}{:08x}{:08x}{major:08x}{minor:08x}{named:08x}{:08x}",
            self.number, 0, 0, 1, 0, 0, 0, 0
        );
        self.to.write_all(head.as_bytes())?;
        self.to.write_all(name.as_bytes())?;
        self.pad(head.len().saturating_add(named), 1)?;
        self.to.write_all(content)?;
        self.pad(content.len(), 0)
    }

    /// Zeros up to a multiple of four, and `more` that belong to what was written.
    fn pad(&mut self, written: usize, more: usize) -> io::Result<()> {
        let zeros = written.next_multiple_of(4).saturating_sub(written).saturating_add(more);
        self.to.write_all([0_u8; 8].get(..zeros).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_aligned_and_ends_with_its_trailer() {
        let mut archive = Archive::new(Vec::new());
        archive.add("dev", Entry::Directory).unwrap();
        archive.add("dev/null", Entry::Device { major: 1, minor: 3 }).unwrap();
        archive.add("init", Entry::File(b"abcde")).unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("070701").count(), 4);
        assert!(text.contains("TRAILER!!!") && text.contains("abcde"));
        let head = &text[..110];
        assert_eq!(&head[14..22], "000041ed");
    }

    #[test]
    fn a_name_without_end_is_refused() {
        let mut archive = Archive::new(Vec::new());
        assert!(archive.add(&"x".repeat(MOST_NAME), Entry::Directory).is_err());
        assert!(archive.add("a\0b", Entry::Directory).is_err());
    }
}
