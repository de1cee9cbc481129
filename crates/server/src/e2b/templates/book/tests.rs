//! What outlives the daemon, what has an end, and what makes place.

use super::*;
use crate::e2b::templates::record::{MOST_TAGS, Made};
use crate::testing::Scratch;

/// No build is at work.
const NOBODY: &dyn Fn(&str) -> bool = &|_| false;

fn made(home: u8) -> Made {
    let home = Some(Hash::of([[home].as_slice()]));
    let (env, workdir, user) = (BTreeMap::new(), "/home/user".to_owned(), "user".to_owned());
    Made { tree: None, base: None, home, env, workdir, user, start: None, ready: None }
}

#[test]
fn templates_outlive_the_daemon_and_builds_that_it_was_at_have_failed() {
    let scratch = Scratch::new("book");
    let open = || Book::open(scratch.path().to_owned()).unwrap();
    let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    let named = Named::parse("mine").unwrap();
    let book = open();
    let (id, first) = book.begin(&ann, &named, Vec::new(), (1, 512), NOBODY).unwrap();
    let done = book.change(&ann, &id, |record| {
        let build = record.build_mut(&first).unwrap();
        (build.status, build.made) = (Status::Ready, Some(made(1)));
        record.tag(&first, &["default".to_owned()])
    });
    done.unwrap();
    let (same, second) = book.begin(&ann, &named, vec!["next".to_owned()], (1, 512), NOBODY).unwrap();
    assert_eq!(same, id);
    let (others, _) = book.begin(&bob, &named, Vec::new(), (1, 512), NOBODY).unwrap();
    assert!(others != id && book.find(&bob, &id).is_none() && book.own(&bob, "mine").unwrap().id == others);
    let again = open();
    let found = again.own(&ann, "mine:next").unwrap();
    assert_eq!(found.build(&second).unwrap().status, Status::Error);
    assert_eq!(found.tagged("default").unwrap().made, Some(made(1)));
    assert_eq!(again.needed().len(), 1);
    assert_eq!(again.remove(&bob, &id).unwrap_err().status(), 404);
    again.remove(&ann, &id).unwrap();
    assert!(open().find(&ann, "mine").is_none() && open().needed().is_empty());
}

#[test]
fn what_cannot_be_written_has_not_happened_and_a_tenants_bytes_have_an_end() {
    let scratch = Scratch::new("book-unwritten");
    let book = Book::open(scratch.path().to_owned()).unwrap();
    let ann: Tenant = "ann".parse().unwrap();
    let begin = |name: &str| book.begin(&ann, &Named::parse(name).unwrap(), Vec::new(), (1, 512), NOBODY);
    let (id, build) = begin("mine").unwrap();
    let refused = book.change(&ann, &id, |record| {
        record.name = "changed".to_owned();
        Err::<(), _>(No::bad("no"))
    });
    assert!(refused.is_err() && book.find(&ann, "changed").is_none());
    std::fs::create_dir(scratch.path().join("templates.draft")).unwrap();
    assert_eq!(begin("other").unwrap_err().status(), 500);
    assert!(book.find(&ann, "other").is_none());
    std::fs::remove_dir(scratch.path().join("templates.draft")).unwrap();
    book.spawned(&ann, "mine");
    let long = "x".repeat(MOST_BYTES);
    let done = book.change(&ann, &id, |record| {
        let made = Made { start: Some(long), ..made(1) };
        record.build_mut(&build).unwrap().made = Some(made);
        Ok(())
    });
    done.unwrap();
    assert_eq!(begin("more").unwrap_err().status(), 429);
    assert_eq!(Book::open(scratch.path().to_owned()).unwrap().own(&ann, "mine").unwrap().spawns, 1);
}

#[test]
fn there_is_an_end_to_templates_builds_tags_and_layers() {
    let scratch = Scratch::new("book-end");
    let book = Book::open(scratch.path().to_owned()).unwrap();
    let ann: Tenant = "ann".parse().unwrap();
    let begin = |name: &str| book.begin(&ann, &Named::parse(name).unwrap(), Vec::new(), (1, 512), NOBODY);
    for _ in 0..MOST_BUILDS {
        begin("one").unwrap();
    }
    assert_eq!(begin("one").unwrap_err().status(), 429, "all of them wait");
    (1..MOST_TEMPLATES).for_each(|number| drop(begin(&format!("t{number}")).unwrap()));
    assert_eq!(begin("more").unwrap_err().status(), 429);
    for number in 0..2 * MOST_LAYERS {
        let key = Hash::of([number.to_string().as_bytes()]);
        book.remember(Layer { tenant: "ann".to_owned(), key, home: None, tree: None }).unwrap();
    }
    assert_eq!(book.pages().layers.len(), MOST_LAYERS);
    let many = |from: usize| (from..from + 20).map(|number| format!("v{number}")).collect::<Vec<_>>();
    let tagged = |tags| book.begin(&ann, &Named::parse("t1").unwrap(), tags, (1, 512), NOBODY);
    tagged(many(0)).unwrap();
    tagged(many(20)).unwrap();
    assert_eq!(tagged(many(40)).unwrap_err().status(), 400, "it is told before anything is built");
    let tags: Vec<String> = (0..=MOST_TAGS).map(|number| number.to_string()).collect();
    assert_eq!(book.change(&ann, "one", |record| record.tag("x", &tags)).unwrap_err().status(), 400);
}

#[test]
fn builds_that_nobody_ever_started_make_place_and_those_that_wait_for_their_turn_do_not() {
    let scratch = Scratch::new("book-unstarted");
    let book = Book::open(scratch.path().to_owned()).unwrap();
    let ann: Tenant = "ann".parse().unwrap();
    let named = Named::parse("one").unwrap();
    let ids: Vec<String> =
        (0..MOST_BUILDS).map(|_| book.begin(&ann, &named, Vec::new(), (1, 512), NOBODY).unwrap().1).collect();
    let long_ago = book.change(&ann, "one", |record| {
        record.builds.iter_mut().for_each(|build| build.created = "2020-01-01T00:00:00Z".to_owned());
        Ok(())
    });
    long_ago.unwrap();
    let all_wait = |_: &str| true;
    assert_eq!(book.begin(&ann, &named, Vec::new(), (1, 512), &all_wait).unwrap_err().status(), 429);
    let second_waits = |id: &str| id == ids[1];
    book.begin(&ann, &named, Vec::new(), (1, 512), &second_waits).unwrap();
    let found = book.own(&ann, "one").unwrap();
    assert!(found.build(&ids[0]).is_none() && found.build(&ids[1]).is_some());
}

#[test]
fn what_no_tag_means_and_steps_that_are_only_remembered_hold_no_home() {
    let scratch = Scratch::new("book-homes");
    let book = Book::open(scratch.path().to_owned()).unwrap();
    let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    let named = Named::parse("one").unwrap();
    for home in [1, 2] {
        let (id, build) = book.begin(&ann, &named, Vec::new(), (1, 512), NOBODY).unwrap();
        let done = book.change(&ann, &id, |record| {
            let found = record.build_mut(&build).unwrap();
            (found.status, found.made) = (Status::Ready, Some(made(home)));
            record.tag(&build, &["default".to_owned()])
        });
        done.unwrap();
    }
    // The second has the tag, so that nobody can mean the first.
    assert_eq!(book.needed(), BTreeSet::from([("ann".to_owned(), made(2).home.unwrap())]));
    for (tenant, home) in [("ann", 3), ("bob", 4)] {
        let (key, home) = (Hash::of([[home].as_slice()]), made(home).home);
        book.remember(Layer { tenant: tenant.to_owned(), key, home, tree: None }).unwrap();
    }
    assert_eq!(book.needed().len(), 3);
    assert!(book.forget_layers(&ann).unwrap());
    assert_eq!(book.needed().len(), 2);
    // Nothing is written, and nobody waits for a disk, where there is nothing to forget.
    std::fs::create_dir(scratch.path().join("templates.draft")).unwrap();
    assert!(!book.forget_layers(&ann).unwrap());
    assert!(book.layer(&bob, &Hash::of([[4].as_slice()])).is_some());
}

#[test]
fn a_build_whose_end_cannot_be_written_has_ended_all_the_same() {
    let scratch = Scratch::new("book-full");
    let book = Book::open(scratch.path().to_owned()).unwrap();
    let ann: Tenant = "ann".parse().unwrap();
    let (id, build) = book.begin(&ann, &Named::parse("one").unwrap(), Vec::new(), (1, 512), NOBODY).unwrap();
    book.lost(&ann, &id, &build, "no room");
    let found = book.own(&ann, "one").unwrap();
    let found = found.build(&build).unwrap();
    assert_eq!((found.status, found.reason.as_ref().unwrap().message.as_str()), (Status::Error, "no room"));
}
