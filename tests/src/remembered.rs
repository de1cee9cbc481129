//! What a process still has in memory.

use std::io::{Read as _, Seek as _, SeekFrom};

/// How often a text stands in the memory that a process may write to. `None`: this process may not read it.
#[must_use]
pub fn remembered(pid: u32, wanted: &str) -> Option<usize> {
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut found = 0;
    for line in
        maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|access| access.starts_with("rw")))
    {
        let (begin, end) = line.split(' ').next()?.split_once('-')?;
        let (begin, end) = (u64::from_str_radix(begin, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        memory.seek(SeekFrom::Start(begin)).ok()?;
        let mut piece = vec![0; usize::try_from(end - begin).ok()?];
        // One that has gone since it was listed holds nothing.
        if memory.read_exact(&mut piece).is_ok() {
            found += piece
                .windows(wanted.len())
                .filter(|window| window.first() == wanted.as_bytes().first() && *window == wanted.as_bytes())
                .count();
        }
    }
    Some(found)
}
