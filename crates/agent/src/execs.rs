//! All commands of the box.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use blastbox_sys::spawn::{self, Dead, Identity, Memory};
use blastbox_wire::agent::{AgentFrame, ExecSpec, Stage, StandingExec, User};
use blastbox_wire::limits::MAX_EXECS;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::control::Control;
use crate::denials::Denials;
use crate::exec::{Exec, FIRST_TO_GO, NotStarted, Part};
use crate::failpoint;
use crate::files::guise::Guise;
use crate::nurse::Nurse;
use crate::scratch::Scratch;

/// Tokens below this are not about commands.
pub(crate) const FIRST_TOKEN: u64 = 8;
/// Tokens of one command.
const TOKENS: u64 = 4;

/// Who says that a command goes before the agent when memory runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Volunteering {
    /// The command, while it is still a copy of the agent.
    ByItself,
    /// The agent, once it is a command. Where writes are watched: nobody may look into a copy of the agent, so nobody could say
    /// what it writes. Commands of the box's root stay as they are.
    ByAgent,
}

impl Volunteering {
    /// What a new process is to say.
    pub(crate) fn own_word(self) -> Option<i16> {
        (self == Self::ByItself).then_some(FIRST_TO_GO)
    }
}

/// Which commands get ready on the agent's own memory instead of a copy of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lending {
    /// None: a call of theirs may have to be answered by this process, or a process of the payload may disturb them.
    Never,
    /// The first, which nobody in the box can disturb: nothing of the payload's runs before it.
    ToTheFirst,
    /// All of them.
    Always,
}

impl Lending {
    /// The memory for the next command.
    fn next(&mut self) -> Memory {
        match self {
            Self::Never => Memory::Copied,
            Self::ToTheFirst => {
                *self = Self::Never;
                Memory::Lent
            }
            Self::Always => Memory::Lent,
        }
    }
}

/// The commands, each with the serial number that its tokens are made from. Unlike a descriptor's number a serial is
/// never used again: an event that comes late finds nobody, and not somebody else.
#[derive(Debug)]
pub(crate) struct Execs {
    list: Vec<(u64, Exec)>,
    serial: u64,
    payload: Option<Identity>,
    root: Option<Identity>,
    oom: Volunteering,
    lending: Lending,
    /// Bytes that all commands have printed.
    printed: u64,
    /// The last commands that have ended, with what they have printed.
    over: VecDeque<(u32, u64)>,
}

impl Execs {
    pub(crate) fn new(
        payload: Option<Identity>,
        root: Option<Identity>,
        oom: Volunteering,
        lending: Lending,
    ) -> Self {
        let serial = FIRST_TOKEN / TOKENS;
        Self { list: Vec::new(), serial, payload, root, oom, lending, printed: 0, over: VecDeque::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The command that the host calls by this number. None: it has ended, and the host may not know yet.
    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Exec> {
        self.list.iter_mut().map(|(_, exec)| exec).find(|exec| exec.number() == number)
    }

    /// The processes that have not been waited for.
    pub(crate) fn pids(&self) -> impl Iterator<Item = Pid> {
        self.list.iter().filter_map(|(_, exec)| exec.pid())
    }

    /// Starts a command, or tells the host why not.
    pub(crate) fn start(&mut self, spec: ExecSpec, epoll: &OwnedFd, control: &mut Control) {
        let number = spec.exec;
        let admitted = if self.get(number).is_some() {
            Err(NotStarted(Stage::Admission, Errno::EXIST.raw_os_error()))
        } else if self.list.len() >= MAX_EXECS {
            Err(NotStarted(Stage::Admission, Errno::AGAIN.raw_os_error()))
        } else {
            self.identity(spec.user)
        };
        let serial = self.serial;
        let token = |part: Part| serial.saturating_mul(TOKENS).saturating_add(part.number());
        let word = self.oom.own_word();
        match admitted.and_then(|user| Exec::start(spec, user, word, self.lending.next(), epoll, token)) {
            Ok(exec) => {
                self.serial = serial.saturating_add(1);
                self.list.push((serial, exec));
            }
            Err(NotStarted(stage, errno)) => {
                control.send(&AgentFrame::NotStarted { exec: number, stage, errno });
            }
        }
    }

    /// Who a command becomes. A box that has no root starts nothing as it.
    fn identity(&self, user: User) -> Result<Option<Identity>, NotStarted> {
        match (user, self.root) {
            (User::Payload, _) => Ok(self.payload),
            (User::Root, Some(root)) => Ok(Some(root)),
            (User::Root, None) => Err(NotStarted(Stage::Identity, Errno::PERM.raw_os_error())),
        }
    }

    /// An event about a part of a command.
    pub(crate) fn ready(&mut self, token: u64, control: &mut Control) {
        let (serial, number) = (token / TOKENS, token % TOKENS);
        let Ok(at) = self.list.binary_search_by_key(&serial, |&(serial, _)| serial) else { return };
        let Some((_, exec)) = self.list.get_mut(at) else { return };
        if number == Part::Outcome.number() {
            self.settle(at, control);
        } else {
            for part in [Part::Input, Part::Output, Part::Error] {
                if part.number() == number {
                    exec.ready(part);
                }
            }
        }
    }

    /// The start of this command has been decided. Whether it is still in the list.
    fn settle(&mut self, at: usize, control: &mut Control) -> bool {
        let Some((_, exec)) = self.list.get_mut(at) else { return false };
        match exec.settle(control) {
            Ok(()) => {
                if let Some(pid) = exec.pid()
                    && (self.payload.is_none() || self.oom == Volunteering::ByAgent)
                {
                    volunteer_for_the_oom_killer(pid, Guise::new(self.payload));
                }
                true
            }
            Err(NotStarted(stage, errno)) => {
                control.send(&AgentFrame::NotStarted { exec: exec.number(), stage, errno });
                self.list.remove(at);
                false
            }
        }
    }

    /// A process has ended. Most often a command's; or one that a command left behind.
    pub(crate) fn ended(&mut self, dead: &Dead, control: &mut Control) {
        let Some(at) = self.list.iter().position(|(_, exec)| exec.pid() == Some(dead.pid)) else { return };
        // Whether it ended as the command or before it became one, the pipe knows.
        if self.settle(at, control)
            && let Some((_, exec)) = self.list.get_mut(at)
        {
            exec.end(dead);
        }
    }

    /// Whether [`Execs::pump`] would find something to do, given room for it.
    pub(crate) fn have_work(&self) -> bool {
        self.list.iter().any(|(_, exec)| exec.has_output() || exec.finished().is_some())
    }

    /// Carries input, output and ends, until nothing moves or the queue to the host is full. All commands in turn, so
    /// that one that says much does not silence the others.
    pub(crate) fn pump(
        &mut self,
        control: &mut Control,
        denials: &mut Denials,
        (scratch, nurse): (&mut Scratch, Option<&Nurse>),
    ) {
        for (_, exec) in &mut self.list {
            exec.pump_input(control);
        }
        let mut moved = true;
        while moved && control.has_room() {
            moved = false;
            for (_, exec) in &mut self.list {
                if control.has_room() && exec.has_output() {
                    let printed = exec.pump_output(control);
                    self.printed = self.printed.saturating_add(printed);
                    moved |= printed > 0;
                }
            }
        }
        let over = &mut self.over;
        self.list.retain(|(_, exec)| {
            let Some((exit, usage)) = exec.finished().filter(|_| control.has_room()) else { return true };
            failpoint::reach("exec-ended");
            // First what the command was refused and has filled: with its end the host has seen everything about it.
            denials.flush(control);
            scratch.look(control, nurse);
            control.send(&AgentFrame::Exited { exec: exec.number(), exit, usage });
            over.push_back((exec.number(), exec.printed()));
            if over.len() > MAX_EXECS {
                over.pop_front();
            }
            false
        });
    }

    /// Another host is here: every command may print a whole window again. What all have printed, and each of them.
    pub(crate) fn stand(&mut self) -> (u64, Vec<StandingExec>) {
        let over = self.over.iter().map(|(exec, printed)| StandingExec {
            exec: *exec,
            pid: 0,
            ended: true,
            printed: *printed,
            unread: 0,
            takes_input: false,
        });
        (self.printed, self.list.iter_mut().map(|(_, exec)| exec.stand()).chain(over).collect())
    }

    /// Signals a command's process group.
    pub(crate) fn signal(&mut self, number: u32, signal: u8) {
        if let Some(pid) = self.get(number).and_then(|exec| exec.pid())
            && (1..=64).contains(&signal)
        {
            // It may have ended this moment; that is what the host will hear next.
            spawn::signal_group(pid, signal).ok();
        }
    }

    /// Gives a command's terminal another size.
    pub(crate) fn resize(&mut self, number: u32, rows: u16, columns: u16) {
        if let Some(exec) = self.get(number) {
            // A terminal that has gone has no size.
            exec.resize(rows, columns).ok();
        }
    }
}

/// For a command that could not do this itself: one that runs as the same user as the agent was as hidden as the agent until its
/// exec. Best effort, as there.
fn volunteer_for_the_oom_killer(pid: Pid, as_payload: Guise) {
    let Ok(worn) = as_payload.put_on() else { return };
    std::fs::write(format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero()), FIRST_TO_GO.to_string()).ok();
    if worn.take_off().is_err() {
        // It would go on as somebody else.
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_command_is_lent_memory_where_a_payload_could_disturb_the_others() {
        let mut lending = Lending::ToTheFirst;
        assert_eq!(
            [lending.next(), lending.next(), lending.next()],
            [Memory::Lent, Memory::Copied, Memory::Copied]
        );
        assert_eq!(Lending::Never.next(), Memory::Copied);
        let mut always = Lending::Always;
        assert_eq!([always.next(), always.next()], [Memory::Lent, Memory::Lent]);
    }
}
