//! What a box's owner and its driver hand each other: orders in, a tally and a report out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blastbox_wire::agent::{BootFacts, ExecSpec, Oddity};
use blastbox_wire::receipt::{DeniedCall, LimitName, NetworkUse, Output, ToolUse, UnexpectedWrite};
use blastbox_wire::tools::ToolName;
use blastbox_wire::warden::Spent;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;

use crate::deeds::{self, Deeds, Kind, Wrote};
use crate::driver::Sleeping;
use crate::error::PauseError;
use crate::files::FileOrder;
use crate::met::Met;
use crate::outcome::Ending;
use crate::outlet::{Outlet, Stream};
use crate::tools::{Offer, ToolAnswer};

/// Different functions that a tally tells apart, of all commands of a box.
const MOST_TOOLS: usize = 256;

/// Something that the owner wants from the driver.
#[derive(Debug)]
pub(crate) enum Order {
    Exec {
        spec: Box<ExecSpec>,
        outlet: Arc<Outlet>,
        room: Arc<Semaphore>,
        offer: Offer,
    },
    Stdin {
        exec: u32,
        bytes: Vec<u8>,
    },
    StdinEnd {
        exec: u32,
    },
    Resize {
        exec: u32,
        rows: u16,
        columns: u16,
    },
    Signal {
        exec: u32,
        signal: u8,
    },
    Answer {
        exec: u32,
        call: u32,
        answer: ToolAnswer,
    },
    File {
        op: u32,
        order: FileOrder,
    },
    /// No other command follows: the box ends with those that it has.
    Farewell,
    Pause(Pausing),
    Resume(Pausing),
    /// Everything in it stops, and its agent says nothing more until the morning.
    Sleep(Sleeping),
    /// Whether the agent still answers, and rightly.
    Ping(oneshot::Sender<()>),
    /// Which limits the box has met. What is found rings the alarm.
    Look,
    /// What was printed so far was nobody's, and counts for nobody.
    Forgive,
}

/// Where the outcome of a pause, or of its end, is waited for.
pub(crate) type Pausing = oneshot::Sender<Result<(), PauseError>>;

/// Bells between the owner's desk and the driver's. They can be rung without waiting.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    /// A listener took so much that the agent should hear of it.
    pub(crate) credit: Notify,
    /// The owner is done with the box.
    pub(crate) stop: Notify,
    /// The owner gave the box another deadline.
    pub(crate) moved: Notify,
    deadline: Mutex<Option<Instant>>,
    /// A box that sleeps goes on.
    pub(crate) morning: Notify,
    /// The box was denied something, or has met a limit. Rung by the driver.
    pub(crate) alarm: Notify,
    deeds: Mutex<Deeds>,
    met: Mutex<Met>,
}

impl Bells {
    pub(crate) fn move_deadline(&self, to: Instant) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Some(to);
        self.moved.notify_one();
    }

    pub(crate) fn take_deadline(&self) -> Option<Instant> {
        self.deadline.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn deny(&self, number: u32, count: u64) {
        let mut deeds = self.deeds.lock().unwrap_or_else(PoisonError::into_inner);
        deeds::add(&mut deeds.denied, number, count);
        drop(deeds);
        self.alarm.notify_one();
    }

    pub(crate) fn wrote(&self, what: Wrote, count: u64) {
        let mut deeds = self.deeds.lock().unwrap_or_else(PoisonError::into_inner);
        deeds::add(&mut deeds.wrote, what, count);
        drop(deeds);
        self.alarm.notify_one();
    }

    /// The box has met a limit, perhaps: whoever watches is told where that is news.
    pub(crate) fn meet(&self, change: impl FnOnce(&mut Met)) {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *met;
        change(&mut met);
        let changed = before != *met;
        drop(met);
        if changed {
            self.alarm.notify_one();
        }
    }

    /// How often it has met each so far.
    pub(crate) fn met(&self) -> Met {
        *self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was denied and written since this was asked last.
    pub(crate) fn take_deeds(&self) -> Deeds {
        std::mem::take(&mut *self.deeds.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a box did, counted while it lived. The numbers come from a guest and are bounded, not believed.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// How much it printed.
    pub output: Output,
    denied: BTreeMap<u32, DeniedCall>,
    /// With the process that did it first.
    wrote: BTreeMap<Wrote, (u64, u32)>,
    /// Functions of the caller, how often they were called, and how often in vain.
    tools: BTreeMap<ToolName, (u64, u64)>,
    /// Calls that were not passed on.
    refused: u64,
    /// How often its scratch space became full. The rest of it the kernel counts.
    pub(crate) met: Met,
}

impl Tally {
    pub(crate) fn printed(&mut self, stream: Stream, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let total = match stream {
            Stream::Stdout => &mut self.output.stdout_bytes,
            Stream::Stderr => &mut self.output.stderr_bytes,
        };
        *total = total.saturating_add(bytes);
    }

    pub(crate) fn denied(&mut self, number: u32, count: u64, first_pid: u32, first_arguments: [u64; 3]) {
        if let Some(call) = self.denied.get_mut(&number) {
            call.count = call.count.saturating_add(count);
        } else if self.denied.len() < u32::MOST {
            let name = blastbox_isolation::syscall_name(number).map(ToOwned::to_owned);
            self.denied.insert(number, DeniedCall { number, name, count, first_pid, first_arguments });
        }
    }

    pub(crate) fn wrote(&mut self, what: Wrote, count: u64, first_pid: u32) {
        let known = self.wrote.entry(deeds::place(&self.wrote, what)).or_insert((0, first_pid));
        known.0 = known.0.saturating_add(count);
    }

    /// A function of the caller was called.
    pub(crate) fn called(&mut self, tool: &ToolName) {
        if self.tools.contains_key(tool) || self.tools.len() < MOST_TOOLS {
            let (calls, _) = self.tools.entry(tool.clone()).or_default();
            *calls = calls.saturating_add(1);
        }
    }

    /// A call was not passed on: of what was not offered, or with what is no JSON.
    pub(crate) fn refused(&mut self) {
        self.refused = self.refused.saturating_add(1);
    }

    /// Calls that were not passed on.
    #[must_use]
    pub fn refused_calls(&self) -> u64 {
        self.refused
    }

    /// It gave nothing.
    pub(crate) fn failed(&mut self, tool: &ToolName) {
        if let Some((_, failed)) = self.tools.get_mut(tool) {
            *failed = failed.saturating_add(1);
        }
    }

    /// The functions of the caller that it called.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolUse> {
        let each = |(tool, (calls, failed)): (&ToolName, &(u64, u64))| ToolUse {
            tool: tool.as_str().to_owned(),
            calls: *calls,
            failed: *failed,
        };
        self.tools.iter().map(each).collect()
    }

    /// What its scratch space had no more of, and memory that it was refused.
    pub(crate) fn filled(&self) -> impl Iterator<Item = LimitName> {
        self.met
            .names()
            .filter(|limit| matches!(limit, LimitName::Disk | LimitName::Inodes | LimitName::Memory))
    }

    /// The system calls that it was denied, most frequent first.
    #[must_use]
    pub fn denied_calls(&self) -> Vec<DeniedCall> {
        let mut calls: Vec<DeniedCall> = self.denied.values().cloned().collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.count));
        calls
    }
}

impl Tally {
    /// What it changed where nobody expects it, what others trust first.
    #[must_use]
    pub fn unexpected_writes(&self) -> Vec<UnexpectedWrite> {
        let mut writes: Vec<_> = self.wrote.iter().collect();
        writes.sort_by_key(|(what, (count, _))| {
            (what.oddity != Oddity::PoisonsTools, std::cmp::Reverse(*count))
        });
        let told = |(what, (count, first_pid)): (&Wrote, &(u64, u32))| UnexpectedWrite {
            path: what.path.clone(),
            reason: what.oddity.as_str().to_owned(),
            syscall: what.syscall(),
            count: *count,
            first_pid: *first_pid,
        };
        writes.into_iter().map(told).collect()
    }
}

/// What is known of a box when nothing is left of it.
#[derive(Debug, Clone)]
pub struct Ended {
    /// What it used and which limits it met, as the kernel counted; all zero where nobody could say.
    pub spent: Spent,
    /// What it did.
    pub tally: Tally,
    /// Why it ended, where it was not its owner's wish.
    pub ending: Option<Ending>,
    /// What it did with its network, as its gateway told.
    pub network: NetworkUse,
    /// What its agent found, where it got so far.
    pub facts: Option<BootFacts>,
    /// From the question to the agent's answer; up to the end, where it never answered.
    pub setup: Duration,
    /// From there until somebody or something ended it.
    pub run: Duration,
    /// From there until nothing was left.
    pub teardown: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeds_that_wait_are_bounded_and_none_goes_uncounted() {
        let bells = Bells::default();
        (0..100_000).for_each(|number| bells.deny(number, 2));
        (0..100_000).for_each(|number| bells.wrote(Wrote::told(Oddity::Outside, number, b"/x"), 2));
        let Deeds { denied, wrote } = bells.take_deeds();
        assert_eq!((denied.len(), denied.values().sum()), (u32::MOST + 1, 200_000_u64));
        assert_eq!((wrote.len(), wrote.values().sum()), (Wrote::MOST + 1, 200_000_u64));
    }

    #[test]
    fn a_guest_cannot_make_the_tally_grow_without_end() {
        let mut tally = Tally::default();
        for number in 0..100_000 {
            tally.denied(number, u64::MAX, 2, [0; 3]);
            tally.denied(number, 7, 3, [1; 3]);
        }
        assert_eq!(tally.denied_calls().len(), u32::MOST);
        assert!(tally.denied_calls().iter().all(|call| call.count == u64::MAX && call.first_pid == 2));
        for number in 0..100_000 {
            tally.wrote(Wrote::told(Oddity::PoisonsTools, number, b"/workspace/.bashrc"), u64::MAX, 2);
        }
        assert_eq!(tally.unexpected_writes().len(), Wrote::MOST + 1);
    }
}
