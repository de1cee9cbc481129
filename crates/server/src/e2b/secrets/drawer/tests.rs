//! What is kept of secrets, and what is never said of them.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::testing::Scratch;

const LIMITS: SecretLimits = SecretLimits { count: 2 };
const VALUE: &str = "sk-real-\"value\"\\one";

fn tenant(name: &str) -> Tenant {
    name.parse().unwrap()
}

fn hidden(text: &str) -> Hidden {
    Hidden::new(text.to_owned())
}

fn made(drawer: &Drawer, name: &str) -> Result<About, Undone> {
    drawer.make(&tenant("ann"), name.to_owned(), hidden(VALUE), Metadata::new())
}

#[test]
fn secrets_are_there_for_the_next_daemon_and_for_their_tenant_alone() {
    let scratch = Scratch::new("secrets");
    let path = scratch.path().join("secrets");
    let drawer = Drawer::open(&path, LIMITS).unwrap();
    let one = made(&drawer, "one").unwrap();
    assert!(one.id.starts_with(PREFIX) && one.id.len() == 28 && one.version == 1);
    assert!(!format!("{drawer:?}").contains("sk-real"));
    let file = path.join("ann.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let notes = Metadata::from([("team".to_owned(), "a\u{1}\"".repeat(40))]);
    let again = drawer.renew(&tenant("ann"), "ONE", hidden("sk-another-value"), Some(notes.clone())).unwrap();
    assert!(again.version == 2 && again.id == one.id && again.created == one.created);
    // What a daemon left that was killed while it wrote.
    fs::write(path.join("ann.json.new"), VALUE).unwrap();
    let next = Drawer::open(&path, LIMITS).unwrap();
    assert!(!path.join("ann.json.new").exists());
    for called in ["one", "One", one.id.as_str()] {
        assert_eq!(next.value(&tenant("ann"), called).unwrap().expose(), "sk-another-value");
        assert_eq!(next.find(&tenant("ann"), called).unwrap().metadata, notes);
        assert!(next.find(&tenant("bob"), called).is_none() && next.value(&tenant("bob"), called).is_none());
    }
    let kept = next.renew(&tenant("ann"), "one", hidden(VALUE), None).unwrap();
    assert!(kept.metadata == notes && kept.version == 3);
    next.remove(&tenant("ann"), &one.id).unwrap();
    assert!(matches!(next.remove(&tenant("ann"), &one.id), Err(Undone::Unknown)));
    assert!(!fs::read_to_string(&file).unwrap().contains("sk-"));
    assert!(Drawer::open(&path, LIMITS).unwrap().of(&tenant("ann")).is_empty());
}

#[test]
fn a_name_is_one_secret_and_there_are_no_more_than_allowed() {
    let scratch = Scratch::new("secrets");
    let drawer = Drawer::open(scratch.path(), LIMITS).unwrap();
    made(&drawer, "one").unwrap();
    assert!(matches!(made(&drawer, "one"), Err(Undone::Taken)));
    made(&drawer, "two").unwrap();
    assert!(matches!(made(&drawer, "three"), Err(Undone::TooMany)));
    let other = drawer.make(&tenant("bob"), "one".to_owned(), hidden(VALUE), Metadata::new()).unwrap();
    assert_eq!(drawer.of(&tenant("bob")).len(), 1);
    assert!(drawer.find(&tenant("ann"), &other.id).is_none());
}

#[test]
fn whoever_writes_at_once_loses_nothing_and_keeps_no_reader_waiting() {
    let scratch = Scratch::new("secrets-at-once");
    let drawer = Drawer::open(scratch.path(), SecretLimits { count: 8 }).unwrap();
    let (ann, bob) = (tenant("ann"), tenant("bob"));
    let drawer = &drawer;
    let made = std::thread::scope(|scope| {
        let names = ["a", "b", "c", "d", "same", "same", "same", "same"];
        let all = names.map(|name| scope.spawn(move || made(drawer, name).is_ok()));
        all.into_iter().filter_map(|one| one.join().ok()).filter(|made| *made).count()
    });
    assert_eq!((made, drawer.of(&ann).len()), (5, 5));
    assert_eq!(Drawer::open(scratch.path(), LIMITS).unwrap().of(&ann).len(), 5);
    // Whoever writes for one tenant is in nobody's way, however long its disk takes.
    drawer.writing.alone(&ann, || {
        assert_eq!(drawer.value(&ann, "a").unwrap().expose(), VALUE);
        drawer.make(&bob, "a".to_owned(), hidden(VALUE), Metadata::new()).unwrap();
    });
}

#[test]
fn what_cannot_be_written_is_not_kept_and_what_cannot_be_read_is_not_repeated() {
    let scratch = Scratch::new("secrets");
    let path = scratch.path().join("secrets");
    let drawer = Drawer::open(&path, LIMITS).unwrap();
    made(&drawer, "one").unwrap();
    // Nobody can write where a directory is.
    fs::create_dir(path.join("ann.json.new")).unwrap();
    assert!(matches!(made(&drawer, "two"), Err(Undone::Disk(_))));
    assert!(matches!(
        drawer.renew(&tenant("ann"), "one", hidden("sk-other-value"), None),
        Err(Undone::Disk(_))
    ));
    assert!(matches!(drawer.remove(&tenant("ann"), "one"), Err(Undone::Disk(_))));
    let own = drawer.of(&tenant("ann"));
    assert!(own.len() == 1 && own[0].version == 1);
    assert_eq!(drawer.value(&tenant("ann"), "one").unwrap().expose(), VALUE);
    fs::remove_dir(path.join("ann.json.new")).unwrap();
    fs::write(path.join("ann.json"), r#"["sk-real-value"]"#).unwrap();
    let next = Drawer::open(&path, LIMITS).unwrap();
    let [said] = next.wrong() else { panic!("{:?}", next.wrong()) };
    assert!(said.contains("line 1") && said.contains("ann.json") && !said.contains("sk-real"), "{said}");
}

#[test]
fn a_file_that_is_damaged_is_one_tenants_and_is_kept_as_it_is() {
    let scratch = Scratch::new("secrets-damaged");
    let path = scratch.path();
    let (ann, bob) = (tenant("ann"), tenant("bob"));
    {
        let drawer = Drawer::open(path, LIMITS).unwrap();
        made(&drawer, "one").unwrap();
        drawer.make(&bob, "one".to_owned(), hidden(VALUE), Metadata::new()).unwrap();
    }
    let whole = fs::read(path.join("ann.json")).unwrap();
    let half = &whole[..whole.len() / 2];
    fs::write(path.join("ann.json"), half).unwrap();
    fs::write(path.join("Nobody at all.json"), "[]").unwrap();
    // Nobody can remove a directory as a file, whoever they are.
    fs::create_dir(path.join("bob.json.new")).unwrap();
    let drawer = Drawer::open(path, LIMITS).unwrap();
    assert!(drawer.is_damaged(&ann) && !drawer.is_damaged(&bob));
    assert_eq!(drawer.wrong().len(), 3, "{:?}", drawer.wrong());
    assert!(drawer.of(&ann).is_empty() && drawer.value(&ann, "one").is_none());
    assert_eq!(drawer.value(&bob, "one").unwrap().expose(), VALUE);
    // What is new would be written over what may be mended.
    assert!(matches!(made(&drawer, "two"), Err(Undone::Damaged)));
    assert_eq!(fs::read(path.join("ann.json")).unwrap(), half);
    fs::write(path.join("ann.json"), whole).unwrap();
    assert_eq!(Drawer::open(path, LIMITS).unwrap().value(&ann, "one").unwrap().expose(), VALUE);
}
