//! What a member of a pool has begun before it is anybody's, the same for all of its kind: a command that has come to its end, one that
//! waits to be asked, or both.
//!
//! The one that waits is started with nothing of anybody, says that it is ready, and answers once more when its box is claimed. Trust: what it
//! says comes out of a box. It is compared and never read: what is missing or other, or more by the time that the answer is whole,
//! makes the member nobody's.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blastbox_wire::agent::{Exit, Io};
use blastbox_wire::event::{About, Hash};
use tokio::time::timeout;

use super::commands::{Purpose, Title};
use super::house::House;
use super::kept::Kept;
use super::pen;
use super::pump::{Terms, pump};
use crate::live::{Command, Exec, LiveBox};
use crate::outlet::{ExecEnd, ExecEvent, Stream};

/// How long a command may take to get ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one may take that is waited for to its end.
const FIRST: Duration = Duration::from_secs(120);

/// What members of a pool have begun. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preparation(Arc<Words>);

#[derive(Debug, PartialEq, Eq)]
struct Words {
    /// A command that has ended, and well, before anything else begins.
    first: Option<Command>,
    /// A command that waits.
    waits: Option<Waits>,
    digest: Hash,
}

/// A command, and how it shows that it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waits {
    command: Command,
    ready: Vec<u8>,
    question: Vec<u8>,
    answer: Vec<u8>,
}

impl Preparation {
    /// `ready` is all that the command prints by itself. To `question` it prints `answer`, and nothing else. It gets a pipe as its
    /// standard input.
    #[must_use]
    pub fn new(command: Command, ready: &[u8], question: &[u8], answer: &[u8]) -> Self {
        let command = Command { io: Io::PipesWithStdin, ..command };
        let [ready, question, answer] = [ready, question, answer].map(<[u8]>::to_vec);
        Self::of(None, Some(Waits { command, ready, question, answer }))
    }

    /// A command that has to end with 0, and then what else there is. What it leaves, files and processes that it has started, is
    /// what members have.
    #[must_use]
    pub fn after(first: Command, then: Option<&Self>) -> Self {
        Self::of(Some(Command { io: Io::Pipes, ..first }), then.and_then(|then| then.0.waits.clone()))
    }

    fn of(first: Option<Command>, waits: Option<Waits>) -> Self {
        let parts = first.iter().map(digest_of).chain(waits.iter().flat_map(|waits| {
            let Waits { command, ready, question, answer } = waits;
            let words = [ready, question, answer].map(|part| Hash::of([part.as_slice()]));
            [digest_of(command)].into_iter().chain(words)
        }));
        let all: Vec<String> = parts.map(|part| part.to_string()).collect();
        let kinds = format!("{}{}", first.is_some(), waits.is_some());
        let digest = Hash::of([all.concat().as_bytes(), kinds.as_bytes()]);
        Self(Arc::new(Words { first, waits, digest }))
    }

    /// What makes two of them alike.
    pub(crate) fn digest(&self) -> Hash {
        self.0.digest
    }

    /// Whether a command of it waits, which whoever asks for such a box has to know how to ask.
    pub(crate) fn waits(&self) -> bool {
        self.0.waits.is_some()
    }

    /// The number of the command that waits, in a box in which nothing else has run; of the last one where none does.
    fn last_number(&self) -> u32 {
        u32::from(self.0.first.is_some()) + u32::from(self.0.waits.is_some())
    }
}

fn digest_of(command: &Command) -> Hash {
    let lists = [&command.arguments, &command.environment].map(|list| Hash::of_command(list));
    let user = [u8::from(command.user == blastbox_wire::agent::User::Root)];
    let rest = [command.directory.as_slice(), &user].map(|part| Hash::of([part]));
    let all: Vec<String> = lists.iter().chain(&rest).map(ToString::to_string).collect();
    Hash::of([all.concat().as_bytes()])
}

/// A member in which everything has begun.
#[derive(Debug)]
pub(crate) struct Prepared {
    waiting: Option<Waiting>,
}

/// The command of a member, which waits.
#[derive(Debug)]
struct Waiting {
    words: Waits,
    exec: Exec,
    began: SystemTime,
    pid: Option<u32>,
}

impl Prepared {
    /// Begins all of it and waits until it is ready. `None`: it did not get so, or could not be written down.
    pub(crate) async fn begin(
        house: &House,
        live: &LiveBox,
        preparation: &Preparation,
        nobody: &About,
    ) -> Option<Self> {
        let about = About { box_id: Some(live.id().clone()), ..nobody.clone() };
        let Words { first, waits, .. } = &*preparation.0;
        if let Some(first) = first {
            let exec = start(house, live, first, &about).await?;
            let end = timeout(FIRST, end_of(&exec)).await.ok().flatten();
            house.pen.record(&about, &pen::over(exec.number(), end.as_ref()));
            end.filter(|end| matches!(end, ExecEnd::Exited { exit: Exit::Code(0), .. }))?;
            // Whoever gets the box has printed none of it.
            live.forgive_output().await;
        }
        let Some(words) = waits else { return Some(Self { waiting: None }) };
        let exec = start(house, live, &words.command, &about).await?;
        let mut waiting = Waiting { words: words.clone(), exec, began: SystemTime::now(), pid: None };
        let ready = timeout(PATIENCE, waiting.says(|words| &words.ready)).await;
        matches!(ready, Ok(true)).then_some(Self { waiting: Some(waiting) })
    }

    /// The same in a copy of a box in which it has begun, which must be alive there. `None`: it is not, or something else is. Whoever
    /// asks bounds it.
    pub(crate) async fn find(
        house: &House,
        live: &LiveBox,
        preparation: &Preparation,
        about: &About,
    ) -> Option<Self> {
        let about = About { box_id: Some(live.id().clone()), ..about.clone() };
        let mut stood = live.take_stood().await;
        let number = preparation.last_number();
        live.took_numbers(number);
        let Some(words) = &preparation.0.waits else {
            return stood.is_empty().then_some(Self { waiting: None });
        };
        let found = stood.pop().filter(|found| stood.is_empty() && found.exec == number && found.pid != 0)?;
        house.pen.announce(Some(&about), &pen::asked(number, &words.command)).ok()?;
        let (pid, began) = (Some(found.pid), SystemTime::now());
        let waiting = Waiting { words: words.clone(), exec: live.found(found), began, pid };
        let mut prepared = Self { waiting: Some(waiting) };
        prepared.answers().await.then_some(prepared)
    }

    /// Whether what waits answers, and as it should.
    pub(crate) async fn answers(&mut self) -> bool {
        let Some(waiting) = &mut self.waiting else { return true };
        let question = waiting.words.question.clone();
        waiting.exec.write(&question).await.is_ok() && waiting.says(|words| &words.answer).await
    }

    /// The number of what waits in the box.
    pub(crate) fn number(&self) -> Option<u32> {
        self.waiting.as_ref().map(|waiting| waiting.exec.number())
    }

    /// From here on it is a command of the box's owner.
    pub(crate) fn hand_over(self, house: &Arc<House>, kept: &Arc<Kept>) {
        let Some(Waiting { words: Waits { command, .. }, exec, began, pid }) = self.waiting else { return };
        let terms = Terms::default();
        house.register.exec_begun(&kept.card.id, exec.number(), &command, terms.timeout);
        let title = Title::begun_at(&command, Purpose::Owner, began);
        let exec = kept.commands.add(title, exec, terms.tape());
        if let Some(pid) = pid {
            exec.started(pid);
        }
        kept.fate().clock.running += 1;
        house.count(|metrics| metrics.execs += 1);
        tokio::spawn(pump(Arc::clone(house), Arc::clone(kept), exec, terms));
    }
}

impl Waiting {
    /// Whether what it prints next is exactly this.
    async fn says(&mut self, which: impl FnOnce(&Waits) -> &[u8]) -> bool {
        let mut rest = which(&self.words);
        while !rest.is_empty() {
            match self.exec.next().await {
                ExecEvent::Started { pid } => self.pid = Some(pid),
                ExecEvent::Output { stream: Stream::Stdout, bytes } => {
                    match rest.strip_prefix(bytes.as_slice()) {
                        Some(left) => rest = left,
                        None => return false,
                    }
                }
                // What it complains about is nobody's to hear, and no answer.
                ExecEvent::Output { stream: Stream::Stderr, .. } => {}
                // It is offered nothing that it could call.
                ExecEvent::Called(_) | ExecEvent::Ended(_) => return false,
            }
        }
        true
    }
}

/// Begins a command of nobody's, which is written down before.
async fn start(house: &House, live: &LiveBox, command: &Command, about: &About) -> Option<Exec> {
    let number = live.take_number();
    house.pen.announce(Some(about), &pen::asked(number, command)).ok()?;
    Some(live.exec_as(number, command.clone(), Vec::new()).await)
}

/// How it ends; `None`: it calls what it was not offered. What it prints is nobody's to hear.
async fn end_of(exec: &Exec) -> Option<ExecEnd> {
    loop {
        match exec.next().await {
            ExecEvent::Started { .. } | ExecEvent::Output { .. } => {}
            ExecEvent::Called(_) => return None,
            ExecEvent::Ended(end) => return Some(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use blastbox_wire::agent::User;

    use super::*;

    #[test]
    fn preparations_are_alike_only_where_every_word_is() {
        let command = |word: &str| Command {
            arguments: vec![b"sh".to_vec(), word.as_bytes().to_vec()],
            environment: Vec::new(),
            directory: b"/".to_vec(),
            io: Io::Pipes,
            user: User::Payload,
        };
        let digest =
            |word, ready: &[u8], ask: &[u8]| Preparation::new(command(word), ready, ask, b"pong").digest();
        assert_eq!(digest("a", b"r", b"q"), digest("a", b"r", b"q"));
        for other in [digest("b", b"r", b"q"), digest("a", b"rq", b""), digest("a", b"r", b"p")] {
            assert_ne!(digest("a", b"r", b"q"), other);
        }
    }
}
