//! Which members are made first, and of which boxes there are any.

use blastbox_images::Image;
use blastbox_policy::{Draft, Profile, Tier};
use blastbox_wire::agent::{Io, User};

use super::*;
use crate::keeper::prepare::Preparation;
use crate::live::Command;

const BROKERED: &str = "[network]\nmode = \"allow\"\nallow = [{ host = \"api.example.com\", tls = \"inspect\" }]\n\
    [credentials]\nmode = \"brokered\"\nbind = [{ secret = \"s\", host = \"api.example.com\" }]\n";

fn draft() -> Draft {
    Profile::Default.draft().unwrap()
}

#[test]
fn boxes_that_cannot_be_alike_before_somebody_asks_are_not_pooled() {
    let tier = *Tier::ALL.first().unwrap();
    let of = |image: &Image, draft: Draft| Kind::of(image, &draft.seal().unwrap(), tier, None);
    assert!(of(&Image::host(), draft()).is_some());
    assert_eq!(of(&Image::host(), draft()), of(&Image::host(), draft()));
    assert_ne!(of(&Image::host(), draft()), of(&Image::host(), draft().pids(99)));
    let brokered = blastbox_policy::parse(BROKERED).unwrap();
    assert_eq!(of(&Image::host(), brokered), None, "a secret is minted for one box");
    let directory = Image::parse("/usr").unwrap();
    assert_eq!(of(&directory, draft()), None, "its owner may change it meanwhile");
}
fn recipe(draft: Draft, preparation: Option<Preparation>) -> (Kind, Recipe) {
    let (policy, image) = (draft.seal().unwrap(), Arc::new(Image::host()));
    let tier = Tier::Jail;
    let kind = Kind::of(&image, &policy, tier, preparation.as_ref()).unwrap();
    (kind, Recipe { policy, image, tier, copied: false, preparation })
}

fn pool() -> Arc<Pool> {
    Pool::new(PoolConfig { min: 8, max: 8, ttl: Duration::from_secs(60) })
}

#[tokio::test]
async fn what_must_always_wait_is_made_before_what_may_be_asked_for() {
    // In either order: the kinds are looked at by their names.
    for swapped in [false, true] {
        let (one, other) = (recipe(draft(), None), recipe(draft().pids(99), None));
        let (always, asked) = if swapped { (other, one) } else { (one, other) };
        let pool = pool();
        pool.claim(&asked.0, || asked.1);
        assert!(pool.keep(always.0.clone(), always.1, 2));
        let missing = pool.survey().missing;
        assert_eq!(missing.len(), MAKING);
        assert!(missing.iter().take(2).all(|(kind, _)| *kind == always.0), "{missing:?}");
        assert!(pool.survey().missing.is_empty(), "they are in the making");
    }
}

#[tokio::test]
async fn members_that_take_long_to_get_ready_leave_a_place_to_others() {
    let command = Command {
        arguments: vec![b"true".to_vec()],
        environment: Vec::new(),
        directory: b"/".to_vec(),
        io: Io::PipesWithStdin,
        user: User::Payload,
    };
    let preparation = Preparation::new(command, b"ready", b"ping", b"pong");
    let (slow, quick) = (recipe(draft(), Some(preparation)), recipe(draft(), None));
    let pool = pool();
    assert!(pool.keep(slow.0.clone(), slow.1, 8));
    pool.claim(&quick.0, || quick.1);
    let made = |survey: Survey| {
        let slow = survey.missing.iter().filter(|(kind, _)| *kind == slow.0).count();
        (slow, survey.missing.len() - slow)
    };
    assert_eq!(made(pool.survey()), (PREPARING, 1));
    // Those that are made at the same time do not get ready: that is told once.
    assert_eq!([1, 2, 3].map(|_| pool.is_unready(&slow.0)), [true, false, false]);
    // One of each comes to nothing: the next ones come after a pause, and nothing is made in their place meanwhile.
    pool.put(&quick.0, None);
    assert_eq!(made(pool.survey()), (0, 0));
}
