//! A file on its way to the host, piece by piece.

use std::os::fd::OwnedFd;

use blastbox_wire::agent::{Extent, FileSay};

use super::desk::{Desk, Next, Step, finished};
use super::facts;
use super::place::Places;
use super::trouble::Trouble;

/// A file that is being read.
#[derive(Debug)]
pub(super) struct Read {
    file: OwnedFd,
    at: u64,
    left: u64,
    sent: u64,
    /// Said first, when there is room for it.
    opening: Option<blastbox_wire::agent::Entry>,
}

impl Read {
    pub(super) fn open(
        places: &Places,
        path: &[u8],
        offset: u64,
        most: u64,
        extent: Extent,
    ) -> Result<Self, Trouble> {
        let (file, stat) = places.file(path)?;
        let entry = facts::plain(path.to_vec(), &stat);
        // A file that somebody makes longer for ever must not be read for ever.
        let left = match extent {
            Extent::Seen => most.min(entry.size.saturating_sub(offset)),
            Extent::Growing => most,
        };
        Ok(Self { file, at: offset, left, sent: 0, opening: Some(entry) })
    }

    pub(super) fn step(&mut self, desk: &mut Desk<'_>) -> Step {
        if let Some(entry) = self.opening.take() {
            desk.say(FileSay::Begun { entry });
        }
        // The kernel counts places in files with a sign.
        if self.left == 0 || i64::try_from(self.at).is_err() {
            return Ok(finished(self.sent));
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        if desk.allowance() == 0 {
            return Ok(Next::Sleep);
        }
        let (file, at) = (&self.file, self.at);
        let got =
            desk.chunk(most, |space| rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *space, at)))?;
        let got = u64::try_from(got).unwrap_or(0);
        if got == 0 {
            // It has become shorter; or, growing, it is all there for now.
            return Ok(finished(self.sent));
        }
        self.at = self.at.saturating_add(got);
        self.left = self.left.saturating_sub(got);
        self.sent = self.sent.saturating_add(got);
        Ok(Next::Again)
    }
}
