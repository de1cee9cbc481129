//! Whatever comes at once does not pass a volume's size together.

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::testing::Scratch;

const MOST: Amount = Amount { bytes: 16 * BLOCK, entries: 20 };

fn room(scratch: &Scratch) -> Arc<Room> {
    Room::of(scratch.path().to_owned(), MOST)
}

fn coming(room: &Room) -> Amount {
    room.held().coming
}

#[test]
fn what_comes_at_once_fits_together_or_is_refused() {
    let scratch = Scratch::new("room-at-once");
    let room = room(&scratch);
    fs::write(scratch.path().join("there"), vec![7; 4 * 4_096]).unwrap();
    let (begin, all_hold, fitted) = (Barrier::new(8), Barrier::new(8), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                begin.wait();
                let hold = room.hold(new_entries(1, 5 * BLOCK)).unwrap();
                fitted.fetch_add(hold.iter().count(), Ordering::Relaxed);
                all_hold.wait();
            });
        }
    });
    assert_eq!(fitted.load(Ordering::Relaxed), 2);
    assert_eq!(coming(&room), Amount::default());
}

#[test]
fn one_that_grows_takes_what_others_have_left_and_gives_it_back() {
    let scratch = Scratch::new("room-grows");
    let room = room(&scratch);
    let mut one = room.hold(new_entries(1, 0)).unwrap().unwrap();
    let mut two = room.hold(new_entries(1, 0)).unwrap().unwrap();
    assert!(one.reach(9 * BLOCK).unwrap() && two.reach(7 * BLOCK - 1).unwrap());
    assert!(!two.reach(7 * BLOCK + 1).unwrap() && room.hold(new_entries(1, 1)).unwrap().is_none());
    // What was refused has changed nothing.
    assert_eq!(coming(&room), Amount { bytes: 16 * BLOCK, entries: 2 });
    drop(one);
    assert!(two.reach(16 * BLOCK).unwrap());
    drop(two);
    assert_eq!(coming(&room), Amount::default());
    assert!(
        room.hold(new_entries(21, 0)).unwrap().is_none() && room.hold(new_entries(20, 0)).unwrap().is_some()
    );
}

#[test]
fn what_has_arrived_counts_where_it_lies_and_what_was_removed_no_more() {
    let scratch = Scratch::new("room-arrives");
    let room = room(&scratch);
    let file = scratch.path().join("file");
    let mut hold = room.hold(new_entries(1, 10 * BLOCK)).unwrap().unwrap();
    hold.arrive(|| fs::write(&file, vec![7; 10 * 4_096])).unwrap();
    drop(hold);
    assert_eq!(coming(&room), Amount::default());
    assert!(room.hold(new_entries(1, 7 * BLOCK)).unwrap().is_none());
    let mut hold = room.hold(new_entries(1, 5 * BLOCK)).unwrap().unwrap();
    hold.arrive(|| Err::<(), _>(io::ErrorKind::AlreadyExists.into())).unwrap_err();
    assert_eq!(coming(&room).entries, 1);
    drop(hold);
    // Whoever removed it told nobody: who would be refused is not, for what is gone.
    fs::remove_file(&file).unwrap();
    assert!(room.hold(new_entries(1, 16 * BLOCK)).unwrap().is_some());
}

#[test]
fn what_a_sandbox_wrote_meanwhile_counts_before_anything_arrives() {
    let scratch = Scratch::new("room-filled");
    let room = room(&scratch);
    let mut hold = room.hold(new_entries(1, 10 * BLOCK)).unwrap().unwrap();
    fs::write(scratch.path().join("of a box"), vec![7; 10 * 4_096]).unwrap();
    if let Some((at, _)) = &mut room.held().lies {
        *at -= LASTS;
    }
    assert!(!hold.reach(10 * BLOCK).unwrap());
}
