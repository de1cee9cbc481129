//! Bytes to and from the agent, never waited for.

use std::io;

use super::{Driver, FULL_OUTBOX};
use crate::state::State;

impl Driver {
    pub(super) fn flush(&mut self) {
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
        match self.read() {
            Ok(0) => self.agent_gone(),
            Ok(_) => self.hear_agent(),
            Err(error) if is_patience(&error) => {}
            Err(_) => self.agent_gone(),
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        let agent = &self.agent;
        self.log.inbox.fill(|room| agent.try_read(room))
    }

    /// Reads what a dead agent has left. Bounded by what a socket holds.
    pub(super) fn drain(&mut self) {
        // Tokio may not have seen yet that there is something to read: ask the kernel, not the cache.
        while self.state != State::Teardown {
            let agent = &self.agent;
            let read = self
                .log
                .inbox
                .fill(|room| Ok(rustix::net::recv(agent, room, rustix::net::RecvFlags::DONTWAIT)?.0));
            match read {
                Ok(1..) => self.hear_agent(),
                Ok(0) | Err(_) => return,
            }
        }
    }
}

fn is_patience(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
