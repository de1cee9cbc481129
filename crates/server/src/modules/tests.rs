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
    if let Some(before) = place.put(whose, &name(called), &home).unwrap() {
        fs::remove_dir_all(before).unwrap();
    }
}

/// Every module of this place, as if it had been compiled.
fn modules(place: &Path) -> Arc<Modules> {
    Arc::new(Modules::open(place, LIMITS, None).unwrap())
}

/// What the compiler would have said of the one that lies there.
fn compiled(modules: &Modules, whose: &Tenant, called: &str) -> ModuleImage {
    let directory = modules.place.home(whose, &name(called)).join("key");
    let (name, form, digest) = (called.to_owned(), Form::Component, "0a".to_owned());
    ModuleImage { directory, name, form, digest }
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
    let gone = place.remove(&other, &name("tool")).unwrap().unwrap();
    assert!(gone.join("key/code").is_file() && gone.parent() == Some(&scratch.path().join("modules/other")));
    assert_eq!(place.remove(&other, &name("tool")).unwrap(), None);
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
    // And a compiler that was killed, once the module was there.
    let making = place.home(&one, &name("tool")).join(".making-0a");
    fs::create_dir(&making).unwrap();
    fs::write(making.join("tool.cwasm"), "half").unwrap();
    fs::write(scratch.path().join("a file of somebody"), "").unwrap();
    let place = Place::open(scratch.path()).unwrap();
    assert_eq!(fs::read_dir(scratch.path().join("one")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(scratch.path().join("one/tool")).unwrap().count(), 2);
    assert_eq!((place.list(&one).unwrap().len(), place.used(&one)), (1, 8));
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

#[test]
fn one_that_takes_the_place_of_another_is_there_at_once_and_the_other_lies_beside_it() {
    let scratch = Scratch::new("modules");
    let place = Place::open(scratch.path()).unwrap();
    let (one, tool) = (tenant("one"), name("tool"));
    bring(&place, &one, "tool", "0a");
    let home = place.fresh(&one).unwrap();
    fs::write(home.join(place::brought_as(Form::Module, "0b")), "new").unwrap();
    let before = place.put(&one, &tool, &home).unwrap().unwrap();
    assert!(place.find(&one, &tool).unwrap().unwrap().ends_with("tool/module.0b.wasm"));
    // Whoever is killed here leaves the new one whole, and what the next start removes.
    assert!(before.join("component.0a.wasm").is_file());
    assert_eq!(Place::open(scratch.path()).unwrap().list(&one).unwrap().len(), 1);
    assert!(!before.exists());
}

#[test]
fn what_a_box_begins_with_stays_until_it_has_begun_and_nobody_else_is_given_it() {
    let scratch = Scratch::new("modules");
    let modules = modules(scratch.path());
    let (one, tool) = (tenant("one"), name("tool"));
    bring(&modules.place, &one, "tool", "0a");
    let key = key(&one, "tool", Metering::None);
    let left = || fs::read_dir(scratch.path().join("one")).unwrap().count();
    modules.learn(&one, Metering::None, compiled(&modules, &one, "tool"));
    let (_, lease) = modules.handed_out(&key).unwrap();
    let (_, another) = modules.handed_out(&key).unwrap();
    assert!(modules.remove(&one, &tool).unwrap());
    assert!(modules.handed_out(&key).is_none() && modules.list(&one).unwrap().is_empty());
    drop(lease);
    assert_eq!(left(), 1);
    drop(another);
    assert_eq!(left(), 0);
    // One that nobody begins with goes at once.
    bring(&modules.place, &one, "tool", "0a");
    modules.learn(&one, Metering::None, compiled(&modules, &one, "tool"));
    assert!(modules.remove(&one, &tool).unwrap());
    assert_eq!(left(), 0);
    assert!(!modules.remove(&one, &tool).unwrap());
}

#[tokio::test]
async fn boxes_that_want_a_module_at_once_wait_for_each_other_and_find_what_the_first_one_has_made() {
    let scratch = Scratch::new("modules");
    let modules = modules(scratch.path());
    let one = tenant("one");
    bring(&modules.place, &one, "tool", "0a");
    let turn = modules.turn(&one).unwrap();
    let policy = Arc::new(blastbox_policy::Profile::Default.draft().unwrap().seal().unwrap());
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let (modules, one, policy) = (Arc::clone(&modules), one.clone(), Arc::clone(&policy));
            tokio::spawn(async move { modules.image(&one, "tool", &policy).await })
        })
        .collect();
    // Whoever asks for one that is not there waits for nobody.
    let unknown = modules.image(&one, "other", &policy).await.unwrap_err();
    assert_eq!(unknown.code(), "module_unknown");
    assert!(waiting.iter().all(|waits| !waits.is_finished()));
    modules.learn(&one, Metering::None, compiled(&modules, &one, "tool"));
    drop(turn);
    for waits in waiting {
        let (image, _lease) = waits.await.unwrap().unwrap();
        assert_eq!(image.label(), "module:tool@sha256:0a");
    }
}

#[tokio::test]
async fn a_daemon_that_is_ending_compiles_nothing() {
    let scratch = Scratch::new("modules");
    let modules = modules(scratch.path());
    let one = tenant("one");
    bring(&modules.place, &one, "tool", "0a");
    modules.stop();
    let policy = blastbox_policy::Profile::Default.draft().unwrap().seal().unwrap();
    let refused = modules.image(&one, "tool", &policy).await.unwrap_err();
    assert_eq!((refused.code().as_ref(), refused.status().as_u16()), ("stopping", 503));
    assert!(modules.underway().is_empty());
}

#[test]
fn room_on_the_disk_that_is_promised_is_promised_once() {
    let scratch = Scratch::new("modules");
    let place = Place::open(scratch.path()).unwrap();
    let disk = rustix::fs::statvfs(scratch.path()).unwrap();
    // Less than there is, with what must stay free, by enough for whatever else is written meanwhile.
    let most = disk.f_bavail.saturating_mul(disk.f_frsize).saturating_sub(2 << 30);
    let promise = place.reserve(most).unwrap();
    let refused = ModuleTrouble::from(place.reserve(2 << 30).unwrap_err());
    assert_eq!((refused.code().as_ref(), refused.status().as_u16()), ("modules_disk_full", 507));
    drop(promise);
    place.has_free(most).unwrap();
    assert!(place.has_free(u64::MAX).is_err());
}

#[test]
fn machine_code_for_another_engine_is_of_no_use_and_that_for_the_other_way_to_compile_is() {
    let scratch = Scratch::new("modules");
    let place = Place::open(scratch.path()).unwrap();
    let one = tenant("one");
    bring(&place, &one, "tool", "0a");
    let home = place.home(&one, &name("tool"));
    let code = |key: &str, file: &str| {
        let directory = home.join(key.repeat(32));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(file), "").unwrap();
        directory
    };
    let (old, new) = (code("0a", "tool.guest"), code("0b", "tool.guest"));
    let _metered = code("0c", "tool.metered.guest");
    let other = Metering::Fuel.manifest("tool");
    assert_eq!(place.outdated(&home, Some(&new), &other).unwrap(), [old]);
    assert_eq!(place.outdated(&home, None, &other).unwrap().len(), 2);
}

#[test]
fn where_things_lie_on_the_host_is_told_to_the_operator_alone() {
    let failed = CompileError::Refused("cannot write /somewhere/modules/one: no".to_owned());
    let trouble = ModuleTrouble::from(failed);
    assert_eq!((trouble.code().as_ref(), trouble.status().as_u16()), ("compiler_failed", 500));
    assert!(!trouble.to_string().contains("/somewhere"), "{trouble}");
    assert!(trouble.cause().unwrap().contains("/somewhere"));
    let unfit = ModuleTrouble::from(CompileError::Refused("wasm_no_start: it has none".to_owned()));
    assert_eq!((unfit.code().as_ref(), unfit.cause()), ("wasm_no_start", None));
}
