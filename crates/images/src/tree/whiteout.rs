//! What a layer takes away from the layers below it.

use std::os::fd::AsFd;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::beneath::{hold, kind, list, remove};
use super::{TreeError, TreeWriter};

const PREFIX: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const RESERVED: &[u8] = b".wh..wh.";

impl TreeWriter {
    /// Carries out a whiteout, if this is one. `true`: there is nothing to be made of the entry.
    pub(super) fn whiteout(&mut self, path: &[&[u8]]) -> Result<bool, TreeError> {
        let Some((name, above)) = path.split_last() else { return Ok(false) };
        if *name == OPAQUE {
            self.clear(above.join(&b'/'))?;
            return Ok(true);
        }
        // Book-keeping of another program, which means nothing here.
        if name.starts_with(RESERVED) {
            return Ok(true);
        }
        let Some(gone) = name.strip_prefix(PREFIX) else { return Ok(false) };
        if matches!(gone, b"" | b"." | b"..") {
            return Err(TreeError::outside(&path.join(&b'/'), "it takes away what is no name"));
        }
        let whole = [above, &[gone]].concat().join(&b'/');
        if self.of_layer.contains(&whole) {
            // What the layer has there stays, and what those below have beneath it goes.
            self.clear(whole)?;
            return Ok(true);
        }
        match hold(self.root(), above) {
            Ok(parent) => remove(parent.as_fd(), gone).map_err(|errno| TreeError::write(&whole, errno))?,
            // There is nothing to take away, and nothing is taken away over a link.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(TreeError::write(&whole, errno)),
        }
        self.forget_parent();
        Ok(true)
    }

    /// Takes away everything that a directory has from the layers below. Afterwards it has nothing of them, and gets nothing of
    /// them: a layer that says it again, of this directory or of one in it, has none read twice.
    fn clear(&mut self, path: Vec<u8>) -> Result<(), TreeError> {
        let mut left = vec![path];
        while let Some(path) = left.pop() {
            if self.cleared.contains(&path) {
                continue;
            }
            let parts: Vec<&[u8]> =
                path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
            let failed = |errno: Errno| TreeError::write(&path, errno);
            let here = match hold(self.root(), &parts) {
                Ok(here) => here,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(errno) => return Err(failed(errno)),
            };
            #[cfg(test)]
            {
                self.listings += 1;
            }
            for name in list(here.as_fd()).map_err(failed)? {
                let child = if path.is_empty() { name.clone() } else { [path.as_slice(), &name].join(&b'/') };
                if !self.of_layer.contains(&child) {
                    remove(here.as_fd(), &name).map_err(failed)?;
                } else if kind(here.as_fd(), &name).map_err(failed)? == Some(FileType::Directory) {
                    left.push(child);
                }
            }
            self.remember_bytes(path.len())?;
            self.cleared.insert(path);
        }
        self.forget_parent();
        Ok(())
    }
}
