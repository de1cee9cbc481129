//! Volumes outlive daemons, and what is nobody's does not.

use super::*;
use crate::testing::Scratch;

const LIMITS: VolumeLimits = VolumeLimits { count: 2, size: 1 << 20 };

#[test]
fn volumes_outlive_the_daemon_and_what_has_no_record_does_not() {
    let scratch = Scratch::new("shelf");
    let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    let made = {
        let shelf = Shelf::open(scratch.path(), LIMITS).unwrap();
        shelf.make(&ann, "data").unwrap()
    };
    std::fs::create_dir_all(scratch.path().join("volnobody/in")).unwrap();
    let shelf = Shelf::open(scratch.path(), LIMITS).unwrap();
    let found = shelf.find(Some(&ann), &made.id).unwrap();
    assert!(found.name == "data" && found.token.is(made.token.show_to_owner().as_bytes()));
    assert!(shelf.find(Some(&bob), &made.id).is_none() && shelf.of(&bob).is_empty());
    assert!(!scratch.path().join("volnobody").exists());
    assert!(matches!(shelf.make(&ann, "data"), Err(Unmade::Taken)));
    assert!(shelf.make(&bob, "data").is_ok());
    shelf.make(&ann, "more").unwrap();
    assert!(matches!(shelf.make(&ann, "most"), Err(Unmade::TooMany)));
}

#[test]
fn what_somebody_has_is_not_taken_out() {
    let scratch = Scratch::new("shelf-claims");
    let ann: Tenant = "ann".parse().unwrap();
    let shelf = Arc::new(Shelf::open(scratch.path(), LIMITS).unwrap());
    let id = shelf.make(&ann, "data").unwrap().id;
    assert_eq!(shelf.claim(&ann, &["data", "none"]).unwrap_err(), "none");
    let (claim, _) = shelf.claim(&ann, &["data"]).unwrap();
    assert!(!shelf.take_out(&id, || false).unwrap());
    drop(claim);
    assert!(!shelf.take_out(&id, || true).unwrap() && shelf.find(None, &id).is_some());
    assert!(shelf.take_out(&id, || false).unwrap());
    assert!(shelf.claim(&ann, &["data"]).is_err());
    shelf.clear(&id).unwrap();
    assert!(Shelf::open(scratch.path(), LIMITS).unwrap().of(&ann).is_empty());
}

#[test]
fn what_cannot_be_taken_away_stays_until_the_next_start() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("shelf-stuck");
    let ann: Tenant = "ann".parse().unwrap();
    let kept = Shelf::open(scratch.path(), LIMITS).unwrap().make(&ann, "data").unwrap().id;
    let closed = scratch.path().join("volclosed");
    std::fs::create_dir_all(closed.join("in")).unwrap();
    // A box has closed it before it was deleted: that is in nobody's way.
    for directory in [closed.join("in"), closed.clone()] {
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o0)).unwrap();
    }
    // No file of ours: nobody can remove a directory as one, whoever they are.
    let stuck = scratch.path().join(DRAFTS).join("stuck");
    std::fs::create_dir(&stuck).unwrap();
    let shelf = Shelf::open(scratch.path(), LIMITS).unwrap();
    assert!(!closed.exists() && shelf.find(Some(&ann), &kept).is_some());
    let [left] = shelf.left() else { panic!("{:?}", shelf.left()) };
    assert!(left.starts_with(&stuck.display().to_string()), "{left}");
    std::fs::remove_dir(&stuck).unwrap();
    assert!(Shelf::open(scratch.path(), LIMITS).unwrap().left().is_empty());
}
