//! A directory for a ledger, gone when the test is over.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use blastbox_policy::{Draft, Gap, ThreatLevel, Tier};
use blastbox_wire::BoxId;
use blastbox_wire::event::{About, Event, ImageMark, Label};

use crate::ledger::{Ledger, Options, Report, Trust, verify};

static COUNT: AtomicU32 = AtomicU32::new(0);

pub(super) struct Room(pub(super) PathBuf);

impl Room {
    pub(super) fn new() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("blastbox-ledger-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn ledger(&self) -> PathBuf {
        self.0.join("ledger")
    }

    pub(super) fn file(&self, number: u32) -> PathBuf {
        self.ledger().join(super::super::place::name(number))
    }

    pub(super) fn options(&self) -> Options {
        Options { checkpoint_every: 8, ..Options::new(self.ledger(), self.0.join("key")) }
    }

    pub(super) fn open(&self) -> Ledger {
        Ledger::open(self.options()).unwrap()
    }

    pub(super) fn verify(&self) -> Report {
        verify(&self.ledger(), &Trust::default()).unwrap()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

pub(super) fn about() -> About {
    About {
        box_id: Some(BoxId::from_random([3; 20])),
        tenant: Label::new("acme"),
        policy: Draft::at(ThreatLevel::High).seal().unwrap().digest(),
        image: ImageMark { label: Label::new("host"), digest: None },
        tier: Some(Tier::Jail),
        gaps: vec![Gap::SharedKernel, Gap::HostImage],
    }
}

pub(super) fn fill(ledger: &mut Ledger, records: u32) {
    let about = about();
    for exec in 0..records {
        ledger.append(Some(&about), &Event::CommandStarted { exec }).unwrap();
    }
}

pub(super) fn lines(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}
