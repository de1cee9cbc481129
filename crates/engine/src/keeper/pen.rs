//! What the keeper is about to do goes into the ledger first.
//!
//! Where it cannot be written, nothing new begins: no box, no command, no pause. What makes the world smaller (the end of
//! a box) happens all the same: a full disk must not keep anything alive.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use blastbox_images::ImageRef;
use blastbox_policy::{Gap, SealedPolicy, Tier};
use blastbox_wire::BoxId;
use blastbox_wire::agent::Exit;
use blastbox_wire::event::{About, Event, Hash, ImageMark, Label};

use super::cards::Tenant;
use super::error::KeepError;
use super::kept::Kept;
use super::post::{PAUSE, Post, Unheard};
use crate::ledger::{Ledger, LedgerError};
use crate::live::Command;
use crate::outlet::ExecEnd;
use crate::store::BoxRow;

/// The keeper's hand on its ledger, where it has one.
#[derive(Debug, Default)]
pub(crate) struct Pen {
    ledger: Mutex<Option<Ledger>>,
    post: Arc<Post>,
}

impl Pen {
    pub(crate) fn of(ledger: Option<Ledger>) -> Self {
        let post = Arc::<Post>::default();
        if let Some(ledger) = &ledger {
            post.written(ledger.head().seq);
        }
        Self { ledger: Mutex::new(ledger), post }
    }

    /// Announces something. On an error it must not be done.
    pub(crate) fn announce(&self, about: Option<&About>, event: &Event) -> Result<(), KeepError> {
        self.write(about, event).map(drop).map_err(KeepError::Ledger)
    }

    /// Records what has happened, or is done whatever becomes of the ledger. The number of the record, if there is one.
    pub(crate) fn record(&self, about: &About, event: &Event) -> Option<u64> {
        // The next announcement fails as well, and is heard.
        self.write(Some(about), event).ok().flatten()
    }

    /// Records the end of a box. Where a sink must acknowledge it, it is tried until it is there: an end that is in no
    /// ledger reaches no sink, and must not be told as if it had.
    pub(crate) async fn record_end(&self, about: &About, event: &Event) -> Result<Option<u64>, Unheard> {
        let mut pause = PAUSE;
        loop {
            match self.write(Some(about), event) {
                written if !self.post.must_acknowledge() => return Ok(written.ok().flatten()),
                Ok(Some(seq)) => return Ok(Some(seq)),
                // The ledger was laid down before this end.
                Ok(None) => return Err(Unheard),
                Err(_) => self.post.wait(&mut pause).await?,
            }
        }
    }

    fn write(&self, about: Option<&About>, event: &Event) -> Result<Option<u64>, LedgerError> {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ledger) = &mut *ledger else { return Ok(None) };
        ledger.append(about, event)?;
        // A record may have brought a signature with it.
        let seq = ledger.head().seq;
        self.post.written(seq);
        Ok(Some(seq))
    }

    /// Where the ledger lies.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.as_ref().map(|ledger| ledger.directory().to_owned())
    }

    pub(crate) fn post(&self) -> &Arc<Post> {
        &self.post
    }

    #[cfg(test)]
    pub(crate) fn jam_for_test(&self, stuck: bool) {
        if let Some(ledger) = &mut *self.ledger.lock().unwrap() {
            ledger.jam_for_test(stuck);
        }
    }

    /// Closes the ledger in order. What happens later is not recorded.
    pub(crate) fn lay_down(&self) {
        if let Some(mut ledger) = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).take() {
            ledger.append(None, &Event::DaemonStopped).ok();
            // One that cannot be closed says so to whoever verifies it: its tail is not signed.
            if let Ok(head) = ledger.close() {
                self.post.written(head.seq);
            }
        }
        self.post.close();
    }
}

/// Which box a record is about, and under which rules it stands.
pub(crate) fn about(
    box_id: Option<&BoxId>,
    tenant: &Tenant,
    policy: &SealedPolicy,
    image: &str,
    tier: Option<Tier>,
    gaps: &[Gap],
) -> About {
    About {
        box_id: box_id.cloned(),
        tenant: Label::new(tenant.as_str()),
        policy: policy.digest(),
        image: mark(image),
        tier,
        gaps: gaps.to_vec(),
    }
}

/// An image as records name it. The label of a stored one carries its digest; `host` and directories have none.
fn mark(label: &str) -> ImageMark {
    let digest = label.parse::<ImageRef>().ok().and_then(|image| image.digest);
    ImageMark { label: Label::new(label), digest }
}

/// A box of an earlier daemon, as its row tells.
pub(crate) fn about_row(row: &BoxRow) -> About {
    About {
        box_id: Some(row.id.clone()),
        tenant: Label::new(row.tenant.as_str()),
        policy: row.policy,
        image: mark(&row.image),
        tier: Some(row.tier),
        gaps: row.gaps.clone(),
    }
}

impl Kept {
    /// How records name this box.
    pub(crate) fn about(&self) -> About {
        let card = &self.card;
        about(Some(&card.id), &card.tenant, &self.policy(), &card.image, Some(card.tier), &card.gaps)
    }
}

/// A command, without what its arguments say: people put tokens there.
pub(crate) fn asked(exec: u32, command: &Command) -> Event {
    let program =
        command.arguments.first().map(|program| String::from_utf8_lossy(program)).unwrap_or_default();
    let arguments = command.arguments.len().saturating_sub(1);
    Event::CommandAsked {
        exec,
        program: Label::new(&program),
        arguments: u32::try_from(arguments).unwrap_or(u32::MAX),
        digest: Hash::of_command(&command.arguments),
    }
}

/// How a command of nobody's ended; `None`: it did not, and ends with its box.
pub(crate) fn over(exec: u32, end: Option<&ExecEnd>) -> Event {
    let (code, signal) = match end {
        Some(ExecEnd::Exited { exit: Exit::Code(code), .. }) => (Some(*code), None),
        Some(ExecEnd::Exited { exit: Exit::Signal(signal), .. }) => (None, Some(*signal)),
        _ => (None, None),
    };
    Event::CommandEnded { exec, code, signal, fuel: None }
}

#[cfg(test)]
mod tests {
    use blastbox_wire::receipt::{Outcome, Usage};

    use super::*;
    use crate::ledger::Options;

    fn ended() -> (About, Event) {
        let policy = blastbox_policy::Draft::at(blastbox_policy::ThreatLevel::High).seal().unwrap();
        let event = Event::BoxEnded { outcome: Outcome::Exited, spent: Usage::default() };
        (about(None, &Tenant::local(), &policy, "host", None, &[]), event)
    }

    #[tokio::test]
    async fn an_end_that_must_be_acknowledged_waits_until_it_is_in_the_ledger() {
        let place = std::env::temp_dir().join(format!("blastbox-pen-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        let ledger = Ledger::open(Options::new(place.join("ledger"), place.join("key"))).unwrap();
        let pen = Pen::of(Some(ledger));
        let (about, event) = ended();
        pen.jam_for_test(true);
        assert_eq!(pen.record_end(&about, &event).await, Ok(None), "nobody has to know of it");
        let sink = pen.post().wait_for_sink(0);
        let mut recording = Box::pin(pen.record_end(&about, &event));
        tokio::select! {
            biased;
            told = &mut recording => panic!("{told:?}"),
            () = std::future::ready(()) => {}
        }
        pen.jam_for_test(false);
        let head = recording.await.unwrap().unwrap();
        assert_eq!(pen.ledger.lock().unwrap().as_ref().unwrap().head().seq, head);
        // One that comes after the last word of the ledger is in none.
        pen.lay_down();
        assert_eq!(pen.record_end(&about, &event).await, Err(Unheard));
        drop(sink);
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn only_a_stored_image_has_a_digest_in_the_ledger() {
        let digest = Hash::of([b"tree".as_slice()]);
        assert_eq!(mark(&format!("base@{digest}")).digest, Some(digest));
        for label in ["host", "dir:/srv/rootfs", &format!("dir:/srv/x@{digest}")] {
            assert_eq!(mark(label).digest, None, "{label}");
        }
    }
}
