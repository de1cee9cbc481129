//! Bytes to and from the agent, never waited for.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use blastbox_wire::agent::parse;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::{Driver, FULL_OUTBOX};
use crate::state::State;

impl Driver {
    pub(super) fn flush(&mut self) {
        if let Some(mark) = &self.mark {
            match say_marked(&self.agent, mark.as_fd()) {
                Ok(()) => self.mark = None,
                // Nothing goes before it.
                Err(error) if is_patience(&error) => return,
                Err(_) => self.mark = None,
            }
        }
        while !self.log.outbox.is_empty() {
            match self.agent.try_write(&self.log.outbox) {
                Ok(sent) => {
                    self.log.outbox.drain(..sent);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The agent is gone, which reading says as well, after its last words. What is kept for nobody would
                // keep the channel ready, and the driver from ever waiting.
                Err(_) => self.log.outbox.clear(),
            }
        }
        // A command line of 2 MiB should not stay in memory for the life of the box.
        if self.log.outbox.capacity() > FULL_OUTBOX {
            self.log.outbox = Vec::new();
        }
    }

    /// The agent's channel is ready for something: one write, one read.
    pub(super) fn talk(&mut self) {
        self.flush();
        if self.heritable {
            return self.look();
        }
        match self.read() {
            Ok(0) => self.agent_gone(),
            Ok(_) => drop(self.hear_agent()),
            Err(error) if is_patience(&error) => {}
            Err(_) => self.agent_gone(),
        }
    }

    /// Reads once. What does not fill the room was all that there was, which the channel is told, so that nobody looks again in vain
    /// before those have their turn who wait for what came.
    fn read(&mut self) -> io::Result<usize> {
        let agent = &self.agent;
        self.log.inbox.fill(|room| {
            let (mut got, most) = (0, room.len());
            let read = agent.try_io(Interest::READABLE, || {
                got = recv(agent, room, RecvFlags::DONTWAIT)?.0;
                if (1..most).contains(&got) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            if got > 0 { Ok(got) } else { read.map(|()| got) }
        })
    }

    /// The same for a box that outlives this process: a frame is taken off the channel whole, and when it was acted upon, so
    /// that the next process begins at the head of one.
    fn look(&mut self) {
        let agent = &self.agent;
        let peeked = self.log.inbox.look(|room| {
            agent.try_io(Interest::READABLE, || {
                let got = peek(agent, room)?;
                if !is_half(room, got) {
                    return Ok(got);
                }
                // The kernel rings again when there is more of it, and rings on where the other side is gone: what it
                // sent last may have come in between.
                if !is_hung_up(agent)? {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                let got = peek(agent, room)?;
                Ok(if is_half(room, got) { 0 } else { got })
            })
        });
        match peeked {
            Ok(0) => self.agent_gone(),
            Ok(_) => {
                let mut taken = self.hear_agent();
                let mut scratch = [0; 4096];
                while taken > 0 {
                    let most = taken.min(scratch.len());
                    let room = scratch.get_mut(..most).unwrap_or_default();
                    match recv(&self.agent, room, RecvFlags::DONTWAIT) {
                        Ok((got @ 1.., _)) => taken = taken.saturating_sub(got),
                        Err(rustix::io::Errno::INTR) => {}
                        // What was there a moment ago is not: somebody else reads this channel.
                        Ok(_) | Err(_) => return self.agent_gone(),
                    }
                }
            }
            Err(error) if is_patience(&error) => {}
            Err(_) => self.agent_gone(),
        }
    }

    /// Reads what a dead agent has left. Bounded by what a socket holds.
    pub(super) fn drain(&mut self) {
        if self.heritable {
            // Half a frame that was looked at would be read twice.
            self.log.inbox.forget();
        }
        while self.state != State::Teardown {
            match self.take() {
                Ok(1..) => drop(self.hear_agent()),
                Ok(0) | Err(_) => return,
            }
        }
    }
}

fn peek(agent: &UnixStream, room: &mut [u8]) -> io::Result<usize> {
    Ok(recv(agent, room, RecvFlags::PEEK | RecvFlags::DONTWAIT)?.0)
}

/// Whether these are the bytes of no whole frame.
fn is_half(room: &[u8], got: usize) -> bool {
    let bytes = room.get(..got).unwrap_or_default();
    got > 0 && got < room.len() && matches!(parse(bytes), Ok(None))
}

fn is_hung_up(agent: &UnixStream) -> io::Result<bool> {
    let mut seen = [PollFd::new(agent, PollFlags::RDHUP)];
    let ready = poll(&mut seen, Some(&Timespec::default()))?;
    Ok(ready > 0)
}

/// One byte that carries a descriptor.
fn say_marked(agent: &UnixStream, mark: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(&mark)));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(agent, &[IoSlice::new(&[0])], &mut control, flags)?;
    Ok(())
}

pub(super) fn is_patience(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
