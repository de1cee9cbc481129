//! What the driver makes of each frame of the agent. Every frame is a claim of the guest.

use std::mem;
use std::time::Instant;

use blastbox_wire::agent::{AgentFrame, FrameError, HostFrame, VERSION};
use blastbox_wire::limits::MAX_OUTPUT_CHUNK;

use crate::deeds::Wrote;
use crate::driver::{Driver, FULL_OUTBOX, Running};
use crate::outcome::{Ending, Loss};
use crate::outlet::{ExecEnd, Stream};
use crate::state::{Event, State, Stop};
use crate::tools::{self, Heard};

/// Bytes that may wait for an agent that calls and does not read. An order may put 4 MiB on top of a full outbox.
const MOST_UNREAD: usize = 8 * FULL_OUTBOX;
const NOT_RUNNING: &str = "a frame about a command that does not run";

/// Why the driver stops listening.
#[derive(Debug)]
enum Enough {
    /// The agent broke the protocol.
    Lie(String),
    /// The box printed more than it may.
    OutputSpent,
    /// The agent said its last word.
    GaveUp(String),
}

impl From<FrameError> for Enough {
    fn from(error: FrameError) -> Self {
        Self::Lie(error.to_string())
    }
}

fn lie(what: &str) -> Enough {
    Enough::Lie(what.to_owned())
}

impl Driver {
    /// Hears every whole frame that has arrived, and says how many bytes they were; a bad one ends the box.
    pub(crate) fn hear_agent(&mut self) -> usize {
        let mut inbox = mem::take(&mut self.log.inbox);
        let heard = inbox.frames(|frame| self.hear(frame));
        if self.log.execs.is_empty() && self.log.files.is_empty() {
            inbox.relax();
        }
        self.log.inbox = inbox;
        match heard {
            Ok(taken) => return taken,
            Err(Enough::Lie(how)) => self.stop(Stop::GuestLied, Ending::Lost(Loss::GuestLied(how))),
            Err(Enough::OutputSpent) => self.stop(Stop::OutputSpent, Ending::OutputSpent),
            Err(Enough::GaveUp(text)) => self.stop(Stop::AgentGone, Ending::Lost(Loss::AgentGaveUp(text))),
        }
        0
    }

    fn hear(&mut self, frame: AgentFrame<'_>) -> Result<(), Enough> {
        if self.log.adopting.is_some() {
            return self.hear_before_it_stands(frame);
        }
        if self.rest.is_asleep() && !matches!(frame, AgentFrame::Fault { .. }) {
            return Err(lie("a frame in its sleep"));
        }
        match frame {
            AgentFrame::Hello { version, facts } => {
                if version == 0 || version > VERSION {
                    return Err(Enough::Lie(format!("its agent speaks version {version}")));
                }
                self.log.facts = Some(facts);
                if self.happen(Event::Greeted) { Ok(()) } else { Err(lie("a second hello")) }
            }
            AgentFrame::Fault { text } => Err(Enough::GaveUp(text.to_owned())),
            _ if self.state == State::Provisioning => Err(lie("a frame before the hello")),
            AgentFrame::Started { exec, pid } => {
                let running = self.running(exec)?;
                if mem::replace(&mut running.has_begun, true) {
                    return Err(lie("a second start of one command"));
                }
                running.outlet.started(pid);
                self.happen(Event::CommandStarted);
                Ok(())
            }
            AgentFrame::NotStarted { exec, stage, errno } => {
                self.ended(exec, ExecEnd::NotStarted { stage, errno })
            }
            AgentFrame::Exited { exec, exit, usage } => self.ended(exec, ExecEnd::Exited { exit, usage }),
            AgentFrame::Output { exec, stream, bytes } => {
                self.output(exec, if stream == 2 { Stream::Stderr } else { Stream::Stdout }, bytes)
            }
            AgentFrame::Denied { number, count, pid, arguments } => {
                self.log.tally.denied(number, count, pid, arguments);
                self.bells.deny(number, count);
                Ok(())
            }
            AgentFrame::Wrote { oddity, number, count, pid, path } => {
                let what = Wrote::told(oddity, number, path);
                self.log.tally.wrote(what.clone(), count, pid);
                self.bells.wrote(what, count);
                Ok(())
            }
            AgentFrame::Full { met } => {
                self.filled(met);
                Ok(())
            }
            AgentFrame::StdinTaken { exec, bytes } => {
                let running = self.running(exec)?;
                running.stdin_out = running
                    .stdin_out
                    .checked_sub(bytes)
                    .ok_or_else(|| lie("more input taken than was sent"))?;
                running.room.add_permits(usize::try_from(bytes).unwrap_or(0));
                Ok(())
            }
            AgentFrame::Call { exec, call, tool, input } => self.call(exec, call, tool, input),
            AgentFrame::File { op, say } => self.hear_file(op, say).map_err(lie),
            AgentFrame::Pong { token } => match self.log.ping.take() {
                Some((asked, waiting)) if asked == token => {
                    // Whoever asked has given up on it meanwhile.
                    waiting.send(()).ok();
                    Ok(())
                }
                Some(_) | None => Err(lie("an answer that nobody asked for")),
            },
            AgentFrame::Standing { .. } => Err(lie("an answer that nobody asked for")),
            AgentFrame::Asleep { errno } => self.fell_asleep(errno).map_err(lie),
        }
    }

    /// What the agent said to the process before this one, which may have acted on some of it, up to how it stands.
    fn hear_before_it_stands(&mut self, frame: AgentFrame<'_>) -> Result<(), Enough> {
        match frame {
            AgentFrame::Output { exec, stream, bytes } => {
                let Some(running) = self.log.execs.get_mut(&exec) else { return Ok(()) };
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                running.window =
                    running.window.checked_sub(length).ok_or_else(|| lie("more output than its window"))?;
                running.outlet.push(if stream == 2 { Stream::Stderr } else { Stream::Stdout }, bytes);
                self.saw_before(exec, u64::from(length));
                Ok(())
            }
            AgentFrame::Started { exec, pid } => {
                if let Some(running) = self.log.execs.get(&exec) {
                    running.outlet.started(pid);
                }
                Ok(())
            }
            AgentFrame::NotStarted { exec, stage, errno } if self.log.execs.contains_key(&exec) => {
                self.ended(exec, ExecEnd::NotStarted { stage, errno })
            }
            AgentFrame::Exited { exec, exit, usage } if self.log.execs.contains_key(&exec) => {
                self.ended(exec, ExecEnd::Exited { exit, usage })
            }
            AgentFrame::Denied { number, count, pid, arguments } => {
                self.log.tally.denied(number, count, pid, arguments);
                self.bells.deny(number, count);
                Ok(())
            }
            AgentFrame::Wrote { oddity, number, count, pid, path } => {
                let what = Wrote::told(oddity, number, path);
                self.log.tally.wrote(what.clone(), count, pid);
                self.bells.wrote(what, count);
                Ok(())
            }
            AgentFrame::Full { met } => {
                self.filled(met);
                Ok(())
            }
            AgentFrame::Standing { token, printed, execs } => {
                self.stands(token, printed, &execs).map_err(lie)
            }
            AgentFrame::Fault { text } => Err(Enough::GaveUp(text.to_owned())),
            AgentFrame::Hello { .. } => Err(lie("a second hello")),
            AgentFrame::Asleep { .. } => Err(lie("a sleep that nobody asked for")),
            // Somebody else's: commands that were over, file operations, signs of life.
            AgentFrame::NotStarted { .. }
            | AgentFrame::Exited { .. }
            | AgentFrame::StdinTaken { .. }
            | AgentFrame::Call { .. }
            | AgentFrame::File { .. }
            | AgentFrame::Pong { .. } => Ok(()),
        }
    }

    fn running(&mut self, exec: u32) -> Result<&mut Running, Enough> {
        self.log.execs.get_mut(&exec).ok_or_else(|| lie(NOT_RUNNING))
    }

    /// A command calls a function of the caller, or has a request made.
    fn call(&mut self, exec: u32, call: u32, tool: &str, input: &[u8]) -> Result<(), Enough> {
        // A worker reads what one call came to before it says the next: what grows here is read by nobody.
        if self.log.outbox.len() > MOST_UNREAD {
            return Err(lie("calls whose answers it does not read"));
        }
        let running = self.log.execs.get_mut(&exec).ok_or_else(|| lie(NOT_RUNNING))?;
        match running.offer.hear(call, tool, input).map_err(lie)? {
            Heard::Pass(passed) => {
                let tool = passed.tool.clone();
                running.outlet.call(passed);
                self.log.tally.called(&tool);
            }
            Heard::Fetch => {
                let errands =
                    self.errands.as_ref().ok_or_else(|| lie("a request where there is no gateway"))?;
                match errands.run(exec, call, input.to_vec()) {
                    Ok(errand) => running.errand = Some(errand),
                    Err(why) => self.fetched(exec, call, Err(why)),
                }
            }
            Heard::Refuse(why) => {
                self.log.tally.refused();
                self.send(&tools::frame(exec, call, &Err(why)));
            }
        }
        Ok(())
    }

    /// A request came to its end.
    pub(crate) fn fetched(&mut self, exec: u32, call: u32, answer: Result<Vec<u8>, String>) {
        // The command may be over.
        let Some(running) = self.log.execs.get_mut(&exec) else { return };
        if running.offer.fetched(call) {
            running.errand = None;
            let (good, bytes) = match answer {
                Ok(bytes) => (true, bytes),
                Err(why) => (false, serde_json::Value::from(why).to_string().into_bytes()),
            };
            self.send(&HostFrame::Answer { exec, call, good, bytes });
        }
    }

    fn ended(&mut self, exec: u32, end: ExecEnd) -> Result<(), Enough> {
        let nobody = || lie("the end of a command that does not run");
        // One that lies about its end has not ended: its owner is told why the box did.
        self.log.execs.get(&exec).ok_or_else(nobody)?.offer.over(&end).map_err(lie)?;
        let running = self.log.execs.remove(&exec).ok_or_else(nobody)?;
        running.room.close();
        running.outlet.end(end);
        if self.log.execs.is_empty() {
            self.happen(Event::LastCommandEnded);
            if let Some(vigil) = &mut self.vigil {
                vigil.end(&self.house.stir, Instant::now());
            }
        }
        Ok(())
    }

    fn output(&mut self, exec: u32, stream: Stream, bytes: &[u8]) -> Result<(), Enough> {
        let left = usize::try_from(self.output_left).unwrap_or(usize::MAX);
        let running = self.running(exec)?;
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        debug_assert!(bytes.len() <= MAX_OUTPUT_CHUNK, "the parser bounds it");
        running.window =
            running.window.checked_sub(length).ok_or_else(|| lie("more output than its window"))?;
        let within = bytes.get(..left).unwrap_or(bytes);
        running.outlet.push(stream, within);
        self.log.tally.printed(stream, within.len());
        self.output_left -= u64::try_from(within.len()).unwrap_or(0);
        if within.len() < bytes.len() {
            self.log.tally.output.truncated = true;
            return Err(Enough::OutputSpent);
        }
        Ok(())
    }
}
