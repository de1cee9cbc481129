//! Where modules lie and whose they are, without a compiler: with one they are brought in `tests/tests/wasm_brought.rs`.

use std::fs;

use super::*;
use crate::testing::Scratch;

const LIMITS: ModuleLimits = ModuleLimits { count: 2, largest: 10, disk: 100 };

fn name(text: &str) -> GuestName {
    text.parse().unwrap()
}

fn tenant(text: &str) -> Tenant {
    text.parse().unwrap()
}

/// One that came and was compiled.
fn bring(place: &Place, whose: &Tenant, called: &str, digest: &str) {
    let home = place.fresh(whose).unwrap();
    fs::write(home.join(place::brought_as(Form::Component, digest)), "12345").unwrap();
    fs::create_dir(home.join("key")).unwrap();
    fs::write(home.join("key/code"), "123").unwrap();
    place.put(whose, &name(called), &home).unwrap();
}

#[test]
fn each_tenant_has_its_own_of_a_name_and_one_takes_the_place_of_another() {
    let scratch = Scratch::new("modules");
    let place = Place::open(&scratch.path().join("modules")).unwrap();
    let (one, other) = (tenant("one"), tenant("other"));
    bring(&place, &one, "tool", "0a");
    bring(&place, &one, "another", "0c");
    bring(&place, &other, "tool", "0b");
    bring(&place, &one, "tool", "0d");
    let told = |whose: &Tenant| {
        let cards = place.list(whose).unwrap().into_iter();
        cards.map(|card| (card.name, card.digest, card.bytes)).collect::<Vec<_>>()
    };
    let card = |name: &str, digest: &str| (name.to_owned(), format!("sha256:{digest}"), 5);
    assert_eq!(told(&one), [card("another", "0c"), card("tool", "0d")]);
    assert_eq!(told(&other), [card("tool", "0b")]);
    assert_eq!((place.used(&one), place.used_by(&one, &name("tool")), place.used(&other)), (16, 8, 8));
    assert!(place.remove(&other, &name("tool")).unwrap());
    assert!(!place.remove(&other, &name("tool")).unwrap());
    assert_eq!((told(&other), told(&one).len()), (Vec::new(), 2));
    assert!(place.find(&one, &name("tool")).unwrap().unwrap().ends_with("tool/component.0d.wasm"));
    assert_eq!(place.find(&other, &name("tool")).unwrap(), None);
}

#[test]
fn a_start_removes_what_is_half_made_and_nothing_else() {
    let scratch = Scratch::new("modules");
    let place = Place::open(scratch.path()).unwrap();
    let one = tenant("one");
    bring(&place, &one, "tool", "0a");
    fs::write(place.fresh(&one).unwrap().join(place::BROUGHT), "half").unwrap();
    fs::write(scratch.path().join("a file of somebody"), "").unwrap();
    let place = Place::open(scratch.path()).unwrap();
    assert_eq!(fs::read_dir(scratch.path().join("one")).unwrap().count(), 1);
    assert_eq!(place.list(&one).unwrap().len(), 1);
    assert!(scratch.path().join("a file of somebody").is_file());
}

#[tokio::test]
async fn a_tenant_brings_one_at_a_time_and_nothing_where_nobody_runs_it() {
    let scratch = Scratch::new("modules");
    let none = Arc::new(Modules::open(scratch.path(), LIMITS, None).unwrap());
    let (one, other) = (tenant("one"), tenant("other"));
    let refused = none.begin(&one, &name("tool")).unwrap_err();
    assert_eq!((refused.code().as_ref(), refused.status().as_u16()), ("wasm_not_installed", 422));
    let turn = none.turn(&one).unwrap();
    let refused = none.turn(&one).unwrap_err();
    assert_eq!((refused.code().as_ref(), refused.status().as_u16()), ("module_underway", 429));
    assert!(refused.retry_after().is_some() && none.turn(&other).is_ok());
    drop(turn);
    assert!(none.turn(&one).is_ok());
    let policy = blastbox_policy::Profile::Default.draft().unwrap().seal().unwrap();
    for bad in ["", "../other", "tool.wasm"] {
        let refused = none.image(&one, bad, &policy).await.unwrap_err();
        assert_eq!(refused.code(), "bad_field", "{bad:?}");
    }
    let unknown = none.image(&one, "tool", &policy).await.unwrap_err();
    assert_eq!(unknown.to_string(), "there is no module \"tool\" of this tenant");
    assert!(none.underway().is_empty(), "whoever was refused has given its turn back");
}

#[test]
fn what_the_compiler_says_is_told_with_its_own_code() {
    let unfit = ModuleTrouble::Unfit("wasm_import_unknown: it imports what is not offered: env.x".to_owned());
    assert_eq!((unfit.code().as_ref(), unfit.status().as_u16()), ("wasm_import_unknown", 422));
    assert!(unfit.fix().is_some());
}
