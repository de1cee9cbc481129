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
    assert_eq!(shelf.take_out(&id, || false).unwrap(), Parting::Used);
    drop(claim);
    assert_eq!(shelf.take_out(&id, || true).unwrap(), Parting::Used);
    assert!(shelf.find(None, &id).is_some());
    assert_eq!(shelf.take_out(&id, || false).unwrap(), Parting::Gone);
    assert!(shelf.claim(&ann, &["data"]).is_err());
    // Whoever comes second has nothing to clear.
    assert_eq!(shelf.take_out(&id, || false).unwrap(), Parting::Unknown);
    shelf.clear(&id).unwrap();
    assert!(Shelf::open(scratch.path(), LIMITS).unwrap().of(&ann).is_empty());
}

#[test]
fn one_that_is_written_to_stays_and_one_that_is_about_to_go_is_not_written_to() {
    let scratch = Scratch::new("shelf-written");
    let ann: Tenant = "ann".parse().unwrap();
    let shelf = Arc::new(Shelf::open(scratch.path(), LIMITS).unwrap());
    let id = shelf.make(&ann, "data").unwrap().id;
    let (one, other) = (shelf.claim_one(&id).unwrap(), shelf.claim_one(&id).unwrap());
    drop(one);
    assert_eq!(shelf.take_out(&id, || false).unwrap(), Parting::Used);
    drop(other);
    let looked = shelf.take_out(&id, || {
        assert!(shelf.claim_one(&id).is_none());
        false
    });
    assert_eq!(looked.unwrap(), Parting::Gone);
    assert!(shelf.claim_one(&id).is_none());
}

#[test]
fn one_that_is_about_to_go_is_nobodys_to_mount_and_stays_as_it_was_where_it_cannot_go() {
    let scratch = Scratch::new("shelf-leaving");
    let ann: Tenant = "ann".parse().unwrap();
    let shelf = Arc::new(Shelf::open(scratch.path(), LIMITS).unwrap());
    let id = shelf.make(&ann, "data").unwrap().id;
    let looked = shelf.take_out(&id, || {
        assert!(shelf.claim(&ann, &["data"]).is_err() && shelf.find(Some(&ann), &id).is_some());
        assert!(matches!(shelf.make(&ann, "data"), Err(Unmade::Taken)));
        assert_eq!(shelf.take_out(&id, || false).unwrap(), Parting::Underway);
        true
    });
    assert_eq!(looked.unwrap(), Parting::Used);
    drop(shelf.claim(&ann, &["data"]).unwrap());
    // Nobody can remove a directory as a file.
    let (record, away) = (shelf.record(&id), scratch.path().join("away"));
    std::fs::rename(&record, &away).unwrap();
    std::fs::create_dir(&record).unwrap();
    shelf.take_out(&id, || false).unwrap_err();
    drop(shelf.claim(&ann, &["data"]).unwrap());
    assert!(matches!(shelf.make(&ann, "data"), Err(Unmade::Taken)) && shelf.tree(&id).is_ok());
    std::fs::remove_dir(&record).unwrap();
    std::fs::rename(&away, &record).unwrap();
    assert_eq!(shelf.take_out(&id, || false).unwrap(), Parting::Gone);
    assert!(shelf.make(&ann, "data").is_ok());
}

#[test]
fn a_volume_whose_record_is_damaged_is_left_out_and_keeps_its_data_and_its_name() {
    let scratch = Scratch::new("shelf-damaged");
    let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    let made = {
        let shelf = Shelf::open(scratch.path(), VolumeLimits { count: 3, ..LIMITS }).unwrap();
        [(&ann, "data"), (&ann, "more"), (&bob, "own"), (&bob, "nobody")]
            .map(|(whose, name)| shelf.make(whose, name).unwrap())
    };
    let record = |id: &str| scratch.path().join(format!("{id}.json"));
    let [data, more, own, nobody] = &made;
    let whole = std::fs::read(record(&data.id)).unwrap();
    let token = made[0].token.show_to_owner();
    std::fs::write(scratch.path().join(&data.id).join("file"), "kept").unwrap();
    // Cut in the middle of the token; in the middle of the tenant; nothing of it was ever written.
    std::fs::write(record(&data.id), &whole[..whole.len() - 10]).unwrap();
    std::fs::write(record(&own.id), r#"{"name": "own", "tenant": "bo"#).unwrap();
    std::fs::write(record(&nobody.id), "").unwrap();
    let shelf = Shelf::open(scratch.path(), LIMITS).unwrap();
    assert!(shelf.find(None, &data.id).is_none() && shelf.find(None, &more.id).is_some());
    assert!(made.iter().all(|volume| scratch.path().join(&volume.id).exists()) && shelf.left().is_empty());
    let said = shelf.damaged();
    assert!(said.len() == 3 && said.iter().any(|line| line.contains("\"data\"")), "{said:?}");
    assert!(said.iter().any(|line| line.starts_with(&record(&data.id).display().to_string())), "{said:?}");
    assert!(!said.iter().any(|line| line.contains(&token[..20])), "{said:?}");
    // Its tenant's name, and everybody's where nobody knows whose it was. It counts among its tenant's.
    assert!(matches!(shelf.make(&ann, "data"), Err(Unmade::Damaged)));
    assert!(matches!(shelf.make(&ann, "own"), Err(Unmade::Damaged)));
    assert!(matches!(shelf.make(&ann, "new"), Err(Unmade::TooMany)));
    assert!(shelf.make(&bob, "data").is_ok());
    std::fs::write(record(&data.id), whole).unwrap();
    let shelf = Shelf::open(scratch.path(), LIMITS).unwrap();
    assert!(shelf.find(Some(&ann), &data.id).is_some_and(|found| found.token.is(token.as_bytes())));
    assert_eq!(std::fs::read(scratch.path().join(&data.id).join("file")).unwrap(), b"kept");
}

#[test]
fn two_of_one_name_are_not_made_at_once_and_readers_wait_for_no_writer() {
    let scratch = Scratch::new("shelf-at-once");
    let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    let shelf = Shelf::open(scratch.path(), LIMITS).unwrap();
    let made = std::thread::scope(|scope| {
        let all = [(); 8].map(|()| scope.spawn(|| shelf.make(&ann, "data").is_ok()));
        all.into_iter().filter_map(|one| one.join().ok()).filter(|made| *made).count()
    });
    assert_eq!((made, shelf.of(&ann).len()), (1, 1));
    // Whoever writes for one tenant is in nobody's way, however long its disk takes.
    shelf.writing.alone(&ann, || {
        assert_eq!(shelf.of(&ann).len(), 1);
        assert!(shelf.make(&bob, "data").is_ok());
    });
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
