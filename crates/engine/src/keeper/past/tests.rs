//! Ends of boxes of an earlier daemon, with a ledger and a store, and no box.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::*;
use crate::keeper::OnTimeout;
use crate::ledger::Options;
use crate::store::Deadlines;

pub(in crate::keeper) fn box_id(number: u8) -> BoxId {
    BoxId::from_random([number; 20])
}

/// A box of the local tenant, in this state.
pub(in crate::keeper) fn row(id: &BoxId, state: BoxState) -> BoxRow {
    let policy = blastbox_policy::Draft::at(blastbox_policy::ThreatLevel::High).seal().unwrap();
    BoxRow {
        id: id.clone(),
        tenant: Tenant::local(),
        state,
        policy: policy.digest(),
        policy_text: String::new(),
        image: "host".to_owned(),
        tier: blastbox_policy::Tier::Jail,
        gaps: Vec::new(),
        warden: String::new(),
        survives: false,
        made_at: SystemTime::UNIX_EPOCH,
        deadlines: Deadlines {
            life: Duration::from_secs(1),
            idle: Duration::from_secs(1),
            on_timeout: OnTimeout::Destroy,
            ends_at: SystemTime::UNIX_EPOCH,
            ends_up: None,
            overtime: false,
        },
        metadata: BTreeMap::new(),
    }
}

/// What a daemon left that had these.
pub(in crate::keeper) fn lost_boxes(boxes: Vec<BoxRow>) -> Leftovers {
    Leftovers {
        boxes,
        nobodys: Vec::new(),
        killed: 0,
        stuck: Vec::new(),
        warden: None,
        on_disk: Vec::new(),
        kept: Vec::new(),
    }
}

/// A directory with a ledger and a store in it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("blastbox-past-{}-{name}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        Self(place)
    }

    fn ledger(&self) -> Ledger {
        Ledger::open(Options::new(self.0.join("ledger"), self.0.join("key"))).unwrap()
    }

    fn store_with(&self, row: &BoxRow) -> Store {
        let store = Store::open(&self.0).unwrap();
        store.begin_box(&row.id, &row.policy.to_string(), &row.image, row.tier, "").unwrap();
        store.give_box(row).unwrap();
        store
    }

    /// How often the end of a box is in the ledger.
    fn ends(&self) -> usize {
        let mut found = 0;
        records(&self.0.join("ledger"), |_, _, line| {
            found += usize::from(matches!(read_record(line).unwrap().event, Event::BoxEnded { .. }));
            Ok::<_, LedgerError>(())
        })
        .unwrap();
        found
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn state(store: &Store) -> BoxState {
    store.unfinished().unwrap().0[0].state
}

#[test]
fn before_an_end_is_recorded_the_store_says_that_it_may_be() {
    let place = Place::new("before");
    let store = place.store_with(&row(&box_id(1), BoxState::Live));
    let mut ledger = place.ledger();
    // Between its two writes, as whoever is killed there leaves it.
    ledger.jam_for_test(true);
    let left = |store: &Store| lost_boxes(store.unfinished().unwrap().0);
    assert!(Past::record(&mut ledger, &store, &left(&store), &[]).is_err());
    assert_eq!((state(&store), place.ends()), (BoxState::Ending, 0));
    ledger.jam_for_test(false);
    Past::record(&mut ledger, &store, &left(&store), &[]).unwrap();
    assert_eq!((state(&store), place.ends()), (BoxState::Ended, 1));
    // Killed after the second, before the store took that it is over.
    store.move_box(&box_id(1), BoxState::Ending).unwrap();
    let past = Past::record(&mut ledger, &store, &left(&store), &[]).unwrap();
    assert_eq!(place.ends(), 1);
    assert!(past.holds(&Tenant::local(), &box_id(1)), "it is told all the same");
}

#[test]
fn the_end_of_a_box_whose_file_is_missing_is_recorded_once() {
    let place = Place::new("missing");
    let lies = row(&box_id(2), BoxState::OnDisk);
    let store = place.store_with(&lies);
    let mut ledger = place.ledger();
    Past::record(&mut ledger, &store, &lost_boxes(Vec::new()), std::slice::from_ref(&lies)).unwrap();
    assert_eq!((state(&store), place.ends()), (BoxState::Ended, 1));
    // Its daemon took the file away and recorded its end, and its store did not take either.
    Past::record(&mut ledger, &store, &lost_boxes(Vec::new()), &[lies]).unwrap();
    assert_eq!(place.ends(), 1);
}
