//! What the tests of this crate share: a place of their own, and archives that nobody honest would write.

use std::fs;
use std::path::{Path, PathBuf};

use blastbox_wire::tar::{BLOCK, padding};

/// A directory of this test's own, gone at the end.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("images-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// An archive, entry by entry, with nothing checked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Archive(Vec<u8>);

impl Archive {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn file(self, path: &str, mode: u32, content: &[u8]) -> Self {
        self.entry(b'0', path, "", mode, content)
    }

    pub(crate) fn directory(self, path: &str, mode: u32) -> Self {
        self.entry(b'5', path, "", mode, b"")
    }

    pub(crate) fn link(self, path: &str, target: &str) -> Self {
        self.entry(b'2', path, target, 0o777, b"")
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(b'1', path, target, 0o644, b"")
    }

    /// A file whose header promises more than follows.
    pub(crate) fn lying(mut self, path: &str, size: u64) -> Self {
        self.header(b'0', path.as_bytes(), b"", 0o644, size);
        self
    }

    /// An empty file with a path that fits in no header.
    pub(crate) fn long(self, path: &str) -> Self {
        self.entry(b'L', "long", "", 0o644, path.as_bytes()).file("cut", 0o644, b"")
    }

    pub(crate) fn entry(mut self, kind: u8, path: &str, link: &str, mode: u32, content: &[u8]) -> Self {
        let size = u64::try_from(content.len()).unwrap();
        self.header(kind, path.as_bytes(), link.as_bytes(), mode, size);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len() + padding(size), 0);
        self
    }

    fn header(&mut self, kind: u8, path: &[u8], link: &[u8], mode: u32, size: u64) {
        let mut block = [0_u8; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, path);
        put(100, format!("{mode:07o}").as_bytes());
        if size < 1 << 33 {
            put(124, format!("{size:011o}").as_bytes());
        } else {
            put(124, &[0x80, 0, 0, 0]);
            put(128, &size.to_be_bytes());
        }
        put(136, b"14000000000");
        put(148, b"        ");
        put(156, &[kind]);
        put(157, link);
        put(257, b"ustar\x0000");
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.0.extend_from_slice(&block);
    }

    /// Without an end.
    pub(crate) fn blocks(&self) -> Vec<u8> {
        self.0.clone()
    }

    pub(crate) fn finish(&self) -> Vec<u8> {
        [self.0.as_slice(), &[0; 2 * BLOCK]].concat()
    }
}
