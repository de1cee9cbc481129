//! No lease is lost: by an error, by a source that answers too late, by a caller who goes away, by a list that is damaged.

use std::sync::Arc;
use std::time::Duration;

use blastbox_engine::leases::{Broker, Lent, MintError, News, Register, Revocable, Told, leases};
use tokio::sync::mpsc;

use crate::in_vault::{skip, sources, world};
use crate::rig::{Room, Vault, bind, box_id, deaf};

const HOST: &str = "api.example.com";

/// Everything that is told until nothing can happen any more. A bound against hangs only.
async fn all_told(mut told: News) -> Vec<Told> {
    let mut words = Vec::new();
    let hear = async {
        while let Some(word) = told.recv().await {
            words.push(word);
        }
    };
    tokio::time::timeout(Duration::from_secs(120), hear).await.unwrap();
    words
}

fn revoked(secret: &str) -> Told {
    Told::Revoked { secret: secret.parse().unwrap() }
}

#[tokio::test]
async fn a_secret_that_is_bound_twice_has_two_leases_and_both_end() {
    let (vault, room, broker, register) = world().await;
    vault.state.lock().unwrap().life = 1;
    let twice = [bind("db", HOST), bind("db", HOST)];
    let lent = broker.mint(&box_id(), &twice, &deaf()).await.unwrap();
    assert_eq!(register.all().unwrap().leases.len(), 2);
    // Each is renewed for its own binding.
    let (tell, mut told) = mpsc::unbounded_channel();
    let renewable = lent.iter().filter_map(Lent::renewable).collect();
    let keeping = tokio::spawn(Arc::clone(&broker).keep_alive(renewable, tell));
    let mut renewed = [false, false];
    let hear = async {
        while renewed != [true, true] {
            match told.recv().await.unwrap() {
                Told::Renewed { binding, .. } => renewed[usize::from(binding)] = true,
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), hear).await.unwrap();
    keeping.abort();
    // The daemon is killed: the next one finds both.
    let next = Broker::new(sources(&vault, &room, "s.root-token"), Some(Register::open(&room.0).unwrap()));
    assert_eq!(next.revoke_leftovers().await.unwrap(), [revoked("db"), revoked("db")]);
    assert_eq!(vault.state.lock().unwrap().leases.len(), 0);
    assert_eq!(leases(&lent).len(), 2);
}

#[tokio::test]
async fn a_made_secret_that_cannot_be_used_is_revoked() {
    let (vault, _room, broker, register) = world().await;
    let (tell, told) = mpsc::unbounded_channel();
    let error = broker.mint(&box_id(), &[bind("unfit", HOST)], &tell).await.err().unwrap();
    assert!(matches!(error, MintError::Answer { .. }), "{error}");
    drop(tell);
    assert_eq!(all_told(told).await, [revoked("unfit")]);
    let state = vault.state.lock().unwrap();
    assert_eq!((state.minted, state.leases.len()), (1, 0));
    assert_eq!(register.all().unwrap().leases, []);
}

/// Waits until Vault has made so many secrets, whose answers it holds back.
async fn made(vault: &Vault, count: u32) {
    while vault.state.lock().unwrap().minted < count {
        vault.done.notified().await;
    }
}

#[tokio::test]
async fn a_caller_who_goes_away_while_a_secret_is_made_leaves_no_lease() {
    let (vault, _room, broker, register) = world().await;
    let (tell, told) = mpsc::unbounded_channel();
    let silent = vault.tongue.lock().await;
    let (id, wanted) = (box_id(), [bind("db", HOST)]);
    let asking = broker.mint(&id, &wanted, &tell);
    tokio::select! {
        _ = asking => panic!("it was not answered"),
        () = made(&vault, 1) => {}
    }
    drop((silent, tell));
    let words = all_told(told).await;
    assert!(matches!(&words[..], [Told::Minted { .. }, Told::Revoked { .. }]), "{words:?}");
    assert_eq!(vault.state.lock().unwrap().leases.len(), 0);
    assert_eq!(register.all().unwrap().leases, []);
}

#[tokio::test]
async fn a_secret_that_comes_too_late_is_revoked_when_it_comes() {
    let (vault, _room, broker, register) = world().await;
    let (tell, told) = mpsc::unbounded_channel();
    let silent = vault.tongue.lock().await;
    let (asker, wanted) = (Arc::clone(&broker), [bind("db", HOST)]);
    let asking = tokio::spawn(async move { asker.mint(&box_id(), &wanted, &tell).await.map(drop) });
    made(&vault, 1).await;
    // From here on waiting takes no time.
    tokio::time::pause();
    let error = asking.await.unwrap().unwrap_err();
    tokio::time::resume();
    assert!(matches!(error, MintError::TooSlow { .. }), "{error}");
    drop(silent);
    assert_eq!(all_told(told).await, [revoked("db")]);
    assert_eq!(vault.state.lock().unwrap().leases.len(), 0);
    assert_eq!(register.all().unwrap().leases, []);
}

#[tokio::test]
async fn a_list_that_cannot_be_read_is_an_error_and_a_file_of_it_is_told_and_kept() {
    let (vault, room, broker, register) = world().await;
    drop(broker.mint(&box_id(), &[bind("db", HOST)], &deaf()).await.unwrap());
    let damaged = register.folder().join("bx_damaged.db.0.lease");
    std::fs::write(&damaged, "{\"box\":").unwrap();
    let half = register.folder().join("bx_half.db.0.half");
    std::fs::write(&half, "").unwrap();
    let words = broker.revoke_leftovers().await.unwrap();
    assert!(
        matches!(&words[..], [Told::Unreadable { file, .. }, Told::Unreadable { file: other, .. }, Told::Revoked { .. }]
            if *file == damaged && *other == half),
        "{words:?}"
    );
    assert!(words[0].trouble().unwrap().1.contains("cannot be read"));
    assert!(damaged.exists() && half.exists());
    assert_eq!(vault.state.lock().unwrap().leases.len(), 0);
    // The whole list.
    let other = Room::new();
    let gone = Register::open(&other.0).unwrap();
    std::fs::remove_dir(gone.folder()).unwrap();
    std::fs::write(gone.folder(), "").unwrap();
    let blind = Broker::new(sources(&vault, &room, "s.root-token"), Some(gone));
    let error = blind.revoke_leftovers().await.unwrap_err();
    assert!(error.to_string().contains("nobody knows what is to be revoked"), "{error}");
}

#[tokio::test]
async fn a_half_that_holds_a_whole_lease_is_revoked_too() {
    let (vault, _room, broker, register) = world().await;
    drop(broker.mint(&box_id(), &[bind("db", HOST)], &deaf()).await.unwrap());
    // Killed between writing and naming.
    let file = std::fs::read_dir(register.folder()).unwrap().next().unwrap().unwrap().path();
    std::fs::rename(&file, file.with_extension("half")).unwrap();
    assert_eq!(broker.revoke_leftovers().await.unwrap(), [revoked("db")]);
    assert_eq!(vault.state.lock().unwrap().leases.len(), 0);
    assert_eq!(std::fs::read_dir(register.folder()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_lease_that_could_not_be_revoked_is_tried_again_while_the_daemon_lives() {
    let (vault, _room, broker, register) = world().await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let over = broker.mint(&box_id(), &[bind("db", HOST)], &deaf()).await.unwrap();
    let other_box = blastbox_wire::BoxId::from_random([4; 20]);
    let lives = broker.mint(&other_box, &[bind("db", HOST)], &deaf()).await.unwrap();
    let (general, _nobody) = mpsc::unbounded_channel();
    let working = tokio::spawn(Arc::clone(&broker).work_off(general));
    vault.state.lock().unwrap().sealed = true;
    broker.revoke(leases(&over), &tell).await;
    assert!(matches!(told.recv().await, Some(Told::NotRevoked { .. })));
    // It stays sealed for a while, and nobody is told again and again.
    for pause in [6, 11, 21] {
        let asked = vault.asked().len();
        skip(Duration::from_secs(pause)).await;
        let seen = async {
            while vault.asked().len() == asked {
                vault.done.notified().await
            }
        };
        tokio::time::timeout(Duration::from_secs(120), seen).await.unwrap();
        // Until it is known here too.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(told.is_empty());
    vault.state.lock().unwrap().sealed = false;
    skip(Duration::from_secs(41)).await;
    let word = tokio::time::timeout(Duration::from_secs(120), told.recv()).await.unwrap();
    assert_eq!(word, Some(revoked("db")));
    // That of the other box is not touched.
    assert_eq!(register.all().unwrap().leases, leases(&lives));
    assert_eq!(vault.state.lock().unwrap().leases.keys().collect::<Vec<_>>(), ["database/creds/app/2"]);
    // Nothing can happen to it any more.
    drop(tell);
    assert_eq!(told.recv().await, None);
    working.abort();
}

#[tokio::test]
async fn what_could_not_be_revoked_when_a_daemon_started_is_tried_again_too() {
    let (vault, room, broker, register) = world().await;
    drop(broker.mint(&box_id(), &[bind("db", HOST)], &deaf()).await.unwrap());
    drop(broker);
    vault.state.lock().unwrap().sealed = true;
    let next = Broker::new(sources(&vault, &room, "s.root-token"), Some(Register::open(&room.0).unwrap()));
    assert!(matches!(&next.revoke_leftovers().await.unwrap()[..], [Told::NotRevoked { .. }]));
    vault.state.lock().unwrap().sealed = false;
    let (tell, mut told) = mpsc::unbounded_channel();
    let working = tokio::spawn(Arc::clone(&next).work_off(tell));
    skip(Duration::from_secs(6)).await;
    let word = tokio::time::timeout(Duration::from_secs(120), told.recv()).await.unwrap();
    assert_eq!(word, Some(revoked("db")));
    assert_eq!(register.all().unwrap().leases, []);
    assert_eq!(vault.state.lock().unwrap().leases.len(), 0);
    working.abort();
}

#[tokio::test]
async fn a_source_that_hangs_does_not_keep_a_daemon_from_starting() {
    let (mut vault, room, _broker, register) = world().await;
    // Whoever calls is never answered.
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    vault.address = format!("http://{}", mute.local_addr().unwrap());
    for binding in 0..40 {
        let (secret, lease) = ("db".parse().unwrap(), format!("database/creds/app/{binding}"));
        register.add(&Revocable { box_id: box_id(), secret, binding, lease }).unwrap();
    }
    let broker = Broker::new(sources(&vault, &room, "s.root-token"), Some(register.clone()));
    let begun = tokio::time::Instant::now();
    // From here on waiting takes no time.
    tokio::time::pause();
    let words = broker.revoke_leftovers().await.unwrap();
    let waited = begun.elapsed();
    tokio::time::resume();
    assert!(waited < std::time::Duration::from_secs(25), "{waited:?} on the clock that was pushed on");
    assert_eq!(words.iter().filter(|word| matches!(word, Told::NotRevoked { .. })).count(), 40);
    assert_eq!(register.all().unwrap().leases.len(), 40);
}
