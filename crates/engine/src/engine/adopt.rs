//! Boxes that outlive their daemon: who may, and how the next daemon has them.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use blastbox_images::Image;
use blastbox_isolation::{Choice, Request, choose};
use blastbox_policy::{Refusal, SealedPolicy, SurvivesDaemon};
use blastbox_wire::BoxId;
use blastbox_wire::warden::Ask;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Engine, Seat, connect, path_of_root, token};
use crate::driver::Stood;
use crate::error::CreateError;
use crate::live::LiveBox;

/// What a box has at least until its keeper says how long it lives.
const TAKING_OVER: Duration = Duration::from_secs(15);

impl Engine {
    /// Refuses a box that is to outlive its daemon where there is none, or where a new one could not know it again.
    pub(super) fn survivable(&self, policy: &SealedPolicy, image: &Image, choice: Choice) -> Choice {
        if policy.lifetime().survives_daemon == SurvivesDaemon::No || choice.chosen.is_err() {
            return choice;
        }
        let (why, fix) = match image {
            Image::Host(_) if self.house.link.is_heritable() => return choice,
            Image::Host(_) => (
                "nobody would come after it: only boxes of a daemon can outlive it (lifetime.survives_daemon)",
                "make the box with a daemon (`blastbox serve`, `blastbox create`), or leave the rule out",
            ),
            Image::Directory(_) | Image::Stored(_) | Image::Module(_) => (
                "a box that outlives its daemon (lifetime.survives_daemon) has the host's image",
                "leave the image out, or the rule",
            ),
        };
        Choice { chosen: Err(Refusal::HostUnfit { why: why.to_owned(), fix: fix.to_owned() }), ..choice }
    }

    /// Takes over a box of an earlier daemon: its channel, as the warden has kept it, and the numbers of the commands that
    /// may still run. Ready when its agent has said how it stands, which is told at the other end.
    pub(crate) fn adopt(
        &self,
        id: BoxId,
        policy: &SealedPolicy,
        image: &Image,
        channel: OwnedFd,
        commands: &[u32],
        left: Duration,
    ) -> Result<(LiveBox, oneshot::Receiver<Vec<Stood>>), CreateError> {
        let request = Request { box_id: id.clone(), image, workspace: None, volumes: &[] };
        let choice = choose(policy, &self.facts, &request);
        let channel = StdStream::from(channel);
        channel.set_nonblocking(true).map_err(CreateError::Channel)?;
        let (mark, _) = StdStream::pair().map_err(CreateError::Channel)?;
        let lifetime = policy.lifetime();
        let (mut live, mut driver) = connect(Seat {
            id: id.clone(),
            choice,
            house: Arc::clone(&self.house),
            agent: UnixStream::from_std(channel).map_err(CreateError::Channel)?,
            words: self.house.link.expect(id.clone()),
            asked: Instant::now(),
            // Not a whole life anew: a daemon that is killed again and again would give the box one each time.
            timeout: Duration::from_secs(lifetime.timeout.0).min(left.max(TAKING_OVER)),
            output: lifetime.output.0,
            making: None,
            again: None,
            birth: None,
        });
        live.variables.extend(path_of_root(policy, image));
        // It may be stopped, and would not answer.
        self.house.link.say(Ask::Resume(id)).map_err(CreateError::Ask)?;
        let stood = driver.take_over(mark.into(), token()?, commands);
        tokio::spawn(driver.run());
        Ok((live, stood))
    }

    /// Ends a box that a warden has kept and nobody wants.
    pub(crate) fn let_go(&self, id: &BoxId) {
        self.house.link.say(Ask::Kill(id.clone())).ok();
    }
}
