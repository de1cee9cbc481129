//! What a member of a pool has begun before it is anybody's: one command, the same for all of its kind, which waits to be asked.
//!
//! It is started with nothing of anybody, says that it is ready, and answers once more when its box is claimed. Trust: what it
//! says comes out of a box. It is compared and never read: what is missing or other, or more by the time that the answer is whole,
//! makes the member nobody's.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blastbox_wire::agent::Io;
use blastbox_wire::event::{About, Hash};
use tokio::time::timeout;

use super::commands::{Purpose, Title};
use super::house::House;
use super::kept::Kept;
use super::pen;
use super::pump::{Terms, pump};
use crate::live::{Command, Exec, LiveBox};
use crate::outlet::{ExecEvent, Stream};

/// How long such a command may take to get ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command that members of a pool have begun, and how it shows that it waits. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preparation(Arc<Words>);

#[derive(Debug, PartialEq, Eq)]
struct Words {
    command: Command,
    ready: Vec<u8>,
    question: Vec<u8>,
    answer: Vec<u8>,
    digest: Hash,
}

impl Preparation {
    /// `ready` is all that the command prints by itself. To `question` it prints `answer`, and nothing else. It gets a pipe as its
    /// standard input.
    #[must_use]
    pub fn new(command: Command, ready: &[u8], question: &[u8], answer: &[u8]) -> Self {
        let command = Command { io: Io::PipesWithStdin, ..command };
        let lists = [&command.arguments, &command.environment].map(|list| Hash::of_command(list));
        let user = [u8::from(command.user == blastbox_wire::agent::User::Root)];
        let parts = [command.directory.as_slice(), ready, question, answer, &user];
        let rest = parts.map(|part| Hash::of([part]));
        let all: Vec<String> = lists.iter().chain(&rest).map(ToString::to_string).collect();
        let digest = Hash::of([all.concat().as_bytes()]);
        let [ready, question, answer] = [ready, question, answer].map(<[u8]>::to_vec);
        Self(Arc::new(Words { command, ready, question, answer, digest }))
    }

    /// What makes two of them alike.
    pub(crate) fn digest(&self) -> Hash {
        self.0.digest
    }
}

/// The command of a member, which waits.
#[derive(Debug)]
pub(crate) struct Prepared {
    preparation: Preparation,
    exec: Exec,
    began: SystemTime,
    pid: Option<u32>,
}

impl Prepared {
    /// Begins it and waits until it is ready. `None`: it did not get so, or could not be written down.
    pub(crate) async fn begin(
        house: &House,
        live: &LiveBox,
        preparation: &Preparation,
        nobody: &About,
    ) -> Option<Self> {
        let number = live.take_number();
        let about = About { box_id: Some(live.id().clone()), ..nobody.clone() };
        house.pen.announce(Some(&about), &pen::asked(number, &preparation.0.command)).ok()?;
        let exec = live.exec_as(number, preparation.0.command.clone(), Vec::new()).await;
        let (preparation, began) = (preparation.clone(), SystemTime::now());
        let mut prepared = Self { preparation, exec, began, pid: None };
        let ready = timeout(PATIENCE, prepared.says(|words| &words.ready)).await;
        matches!(ready, Ok(true)).then_some(prepared)
    }

    /// Whether it answers, and as it should.
    pub(crate) async fn answers(&mut self) -> bool {
        let words = Arc::clone(&self.preparation.0);
        self.exec.write(&words.question).await.is_ok() && self.says(|words| &words.answer).await
    }

    /// Whether what it prints next is exactly this.
    async fn says(&mut self, which: impl FnOnce(&Words) -> &[u8]) -> bool {
        let words = Arc::clone(&self.preparation.0);
        let mut rest = which(&words);
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

    /// Its number in the box.
    pub(crate) fn number(&self) -> u32 {
        self.exec.number()
    }

    /// From here on it is a command of the box's owner.
    pub(crate) fn hand_over(self, house: &Arc<House>, kept: &Arc<Kept>) {
        let Self { preparation, exec, began, pid } = self;
        let command = &preparation.0.command;
        house.register.exec_begun(&kept.card.id, exec.number(), command);
        let title = Title::begun_at(command, Purpose::Owner, began);
        let terms = Terms::default();
        let exec = kept.commands.add(title, exec, terms.tape());
        if let Some(pid) = pid {
            exec.started(pid);
        }
        kept.fate().clock.running += 1;
        house.count(|metrics| metrics.execs += 1);
        tokio::spawn(pump(Arc::clone(house), Arc::clone(kept), exec, terms));
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
