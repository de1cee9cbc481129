//! Files that a caller names to be read: what is no file is refused, and never waited for.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// Opens it. A pipe that nobody writes to would hold its reader up for ever, and a device may do anything.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    match found.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe or a device, and no file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_nobody_writes_to_is_refused_at_once_and_a_file_is_read() {
        let place = std::env::temp_dir().join(format!("blastbox-regular-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        let pipe = place.join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        assert!(open_regular(&pipe).unwrap_err().to_string().contains("no file"));
        assert!(open_regular(Path::new("/dev/null")).is_err());
        assert_eq!(open_regular(&place).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        std::fs::write(place.join("file"), "x").unwrap();
        assert!(open_regular(&place.join("file")).is_ok());
        std::fs::remove_dir_all(&place).unwrap();
    }
}
