//! Keys: made once, found by their hash, dead once removed.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::testing::Scratch;

fn name(text: &str) -> KeyName {
    text.parse().unwrap()
}

#[test]
fn a_key_is_found_until_it_is_removed_and_no_other_is() {
    let scratch = Scratch::new("keys");
    let keys = Keys::in_directory(scratch.path());
    assert_eq!(keys.tenant_of("bbx_").unwrap(), None);
    let one = keys.create(name("one"), None).unwrap();
    let two = keys.create(name("two"), Some(name("team"))).unwrap();
    assert!(one.show_once().starts_with("bbx_") && one.show_once().len() == 4 + 43);
    assert_eq!(keys.tenant_of(one.show_once()).unwrap(), Some(name("one")));
    assert_eq!(keys.tenant_of(two.show_once()).unwrap(), Some(name("team")));
    assert_eq!(keys.tenant_of(&one.show_once()[..46]).unwrap(), None);
    // Another process removes it: what was read before does not keep it alive.
    Keys::in_directory(scratch.path()).remove(&name("one")).unwrap();
    assert_eq!(keys.tenant_of(one.show_once()).unwrap(), None);
    assert_eq!(keys.tenant_of(two.show_once()).unwrap(), Some(name("team")));
}

#[test]
fn a_key_in_the_form_of_e2b_is_what_its_sdks_take_and_opens_the_same() {
    let scratch = Scratch::new("key-form");
    let keys = Keys::in_directory(scratch.path());
    let key = keys.create_as(KeyForm::E2b, name("one"), None).unwrap();
    let digits = key.show_once().strip_prefix("e2b_").unwrap();
    assert!(digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
    assert_eq!(keys.tenant_of(key.show_once()).unwrap(), Some(name("one")));
    assert_eq!(keys.tenant_of(&key.show_once().to_uppercase()).unwrap(), None);
    assert_eq!(keys.tenant_of(&format!("bbx_{digits}")).unwrap(), None);
}

#[test]
fn the_file_is_private_and_holds_no_key() {
    let scratch = Scratch::new("key-file");
    let keys = Keys::in_directory(scratch.path());
    let key = keys.create(name("one"), None).unwrap();
    let path = scratch.path().join(FILE);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains(key.show_once()) && !text.contains(&key.show_once()[4..]));
    assert!(!format!("{key:?}").contains(&key.show_once()[4..]));
}

#[test]
fn a_name_is_given_once_and_an_unknown_one_cannot_be_removed() {
    let scratch = Scratch::new("key-names");
    let keys = Keys::in_directory(scratch.path());
    keys.create(name("one"), None).unwrap();
    assert!(matches!(keys.create(name("one"), None), Err(KeyError::Taken(_))));
    assert!(matches!(keys.remove(&name("two")), Err(KeyError::Unknown(_))));
    assert_eq!(keys.list().unwrap().len(), 1);
}

#[test]
fn a_broken_file_lets_nobody_in_and_is_not_overwritten() {
    let scratch = Scratch::new("key-broken");
    let keys = Keys::in_directory(scratch.path());
    fs::write(scratch.path().join(FILE), "{\"version\":1,\"keys\":[{\"name\":\"../x\"}]}").unwrap();
    assert!(matches!(keys.tenant_of("bbx_x"), Err(KeyError::Broken { .. })));
    assert!(matches!(keys.create(name("one"), None), Err(KeyError::Broken { .. })));
}

#[test]
fn no_key_opens_what_belongs_to_the_socket() {
    let scratch = Scratch::new("local");
    let keys = Keys::in_directory(scratch.path());
    let reserved = |made: Result<NewKey, KeyError>| matches!(made, Err(KeyError::Reserved(_)));
    assert!(reserved(keys.create("ci".parse().unwrap(), Some(Tenant::local()))));
    assert!(reserved(keys.create(Tenant::local(), None)));
    // The name alone opens nothing.
    assert!(keys.create(Tenant::local(), Some("ci".parse().unwrap())).is_ok());
}
