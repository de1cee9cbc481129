//! A file that does not arrive leaves nothing, and nobody waits for its end.

use std::sync::Arc;
use std::time::Duration;

use super::super::room::{Room, new_entries};
use super::super::tree::Amount;
use super::*;
use crate::testing::Scratch;

const MOST: Amount = Amount { bytes: 64 * 1024, entries: 4 };

struct Place {
    scratch: Scratch,
    room: Arc<Room>,
}

impl Place {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        fs::create_dir(scratch.path().join("v")).unwrap();
        let room = Room::of(scratch.path().join("v"), MOST);
        Self { scratch, room }
    }

    fn draft(&self, name: &str) -> Draft {
        let path = self.scratch.path().join(name);
        Draft::begin(
            (File::create(&path).unwrap(), path),
            self.room.hold(new_entries(1, 0)).unwrap().unwrap(),
            Threads::default(),
        )
    }

    fn has(&self, name: &str) -> bool {
        self.scratch.path().join(name).exists()
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.room.hold(new_entries(1, bytes)).unwrap().is_some()
    }
}

#[test]
fn drafts_count_for_their_volume_until_they_are_gone() {
    let place = Place::new("draft-counts");
    let (one, two) = (place.draft("one"), place.draft("two"));
    assert!(one.write(&[1; 40_960]).unwrap() && !two.write(&[2; 40_960]).unwrap());
    assert_eq!(fs::metadata(place.scratch.path().join("two")).unwrap().len(), 0);
    two.discard();
    assert!(!place.has("two") && !place.has_room(40_960));
    let at = place.scratch.path().join("v/one");
    one.arrive(|path| fs::rename(path, &at)).unwrap().unwrap();
    drop(one);
    assert!(place.has("v/one") && !place.has_room(40_960) && place.has_room(20_480));
}

#[test]
fn one_that_cannot_arrive_is_gone_with_its_room() {
    let place = Place::new("draft-refused");
    let draft = place.draft("one");
    assert!(draft.write(&[1; 65_536]).unwrap());
    draft.arrive(|_| Err::<(), _>(io::ErrorKind::AlreadyExists.into())).unwrap_err();
    assert!(place.has("one") && !place.has_room(1));
    drop(draft);
    assert!(!place.has("one") && place.has_room(65_536));
}

#[tokio::test]
async fn nobody_waits_on_a_thread_of_the_runtime_until_a_draft_is_gone() {
    let place = Place::new("draft-dropped");
    let draft = place.draft("one");
    assert!(draft.write(&[1; 65_536]).unwrap());
    // Somebody measures the volume, and takes his time.
    let (room, (begun, has_begun)) = (Arc::clone(&place.room), std::sync::mpsc::channel());
    let (end, may_end) = std::sync::mpsc::channel::<()>();
    let measures = std::thread::spawn(move || {
        let mut hold = room.hold(new_entries(1, 0)).unwrap().unwrap();
        hold.arrive(|| {
            begun.send(()).unwrap();
            may_end.recv().map_err(|_| io::ErrorKind::Other.into())
        })
    });
    has_begun.recv().unwrap();
    // This is the one thread of this runtime.
    drop(draft);
    end.send(()).unwrap();
    measures.join().unwrap().unwrap();
    for _ in 0..1000 {
        if !place.has("one") && place.has_room(60_000) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it is still there");
}
