//! Vault: stored secrets, secrets that it makes, and leases that end with their box, also after a crash.

use std::sync::Arc;
use std::time::Duration;

use blastbox_engine::CreateError;
use blastbox_engine::leases::{Broker, MintError, Register, Sources, Told, leases};
use tokio::sync::mpsc;

use crate::rig::{Room, Vault, bind, box_id, deaf};

pub(crate) fn sources(vault: &Vault, room: &Room, token: &str) -> Sources {
    let token = room.file("vault-token", token, 0o600);
    Sources::parse(&format!(
        "[vault]\naddress = \"{}\"\ntoken_file = {token:?}\n\
         [secrets.kv]\nhosts = [\"api.example.com\"]\nvault = {{ path = \"secret/data/api\", field = \"key\" }}\n\
         [secrets.db]\nhosts = [\"api.example.com\"]\nvault = {{ path = \"database/creds/app\", field = \"password\" }}\n\
         [secrets.none]\nhosts = [\"api.example.com\"]\nvault = {{ path = \"secret/data/none\", field = \"x\" }}\n\
         [secrets.odd]\nhosts = [\"api.example.com\"]\nvault = {{ path = \"secret/data/api\", field = \"x\" }}\n\
         [secrets.unfit]\nhosts = [\"api.example.com\"]\nvault = {{ path = \"database/creds/app\", field = \"x\" }}\n",
        vault.address
    ))
    .unwrap()
}

pub(crate) async fn world() -> (Vault, Room, Arc<Broker>, Register) {
    let (vault, room) = (Vault::start().await, Room::new());
    let register = Register::open(&room.0).unwrap();
    let broker = Broker::new(sources(&vault, &room, "s.root-token\n"), Some(register.clone()));
    (vault, room, broker, register)
}

fn drain(told: &mut mpsc::UnboundedReceiver<Told>) -> Vec<Told> {
    std::iter::from_fn(|| told.try_recv().ok()).collect()
}

#[tokio::test]
async fn a_stored_secret_is_read_and_has_nothing_to_revoke() {
    let (_vault, _room, broker, register) = world().await;
    let lent = broker.mint(&box_id(), &[bind("kv", "api.example.com")], &deaf()).await.unwrap();
    assert_eq!(lent[0].value.expose_to_gateway(), b"kv-secret-value-1");
    assert!(lent[0].lease().is_none() && lent[0].ttl.is_none());
    assert_eq!(register.all().unwrap().leases, []);
}

#[tokio::test]
async fn a_made_secret_is_another_for_each_box_and_ends_with_it() {
    let (vault, _room, broker, register) = world().await;
    let one = broker.mint(&box_id(), &[bind("db", "api.example.com")], &deaf()).await.unwrap();
    let other_box = blastbox_wire::BoxId::from_random([4; 20]);
    let other = broker.mint(&other_box, &[bind("db", "api.example.com")], &deaf()).await.unwrap();
    assert_eq!(one[0].value.expose_to_gateway(), b"made-password-1");
    assert_eq!(other[0].value.expose_to_gateway(), b"made-password-2");
    assert_eq!(one[0].ttl, Some(Duration::from_secs(100)));
    assert_eq!(register.all().unwrap().leases.len(), 2);
    // Ids only on the disk.
    for entry in std::fs::read_dir(register.folder()).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(text.contains("database/creds/app/") && !text.contains("made-password"), "{text}");
    }
    let (tell, mut told) = mpsc::unbounded_channel();
    broker.revoke(leases(&one), &tell).await;
    assert_eq!(drain(&mut told), [Told::Revoked { secret: "db".parse().unwrap() }]);
    assert_eq!(vault.state.lock().unwrap().leases.keys().collect::<Vec<_>>(), ["database/creds/app/2"]);
    assert_eq!(register.all().unwrap().leases.len(), 1);
}

#[tokio::test]
async fn what_a_killed_daemon_left_is_revoked_by_the_next() {
    let (vault, room, broker, register) = world().await;
    drop(broker.mint(&box_id(), &[bind("db", "api.example.com")], &deaf()).await.unwrap());
    drop(broker);
    assert_eq!(vault.state.lock().unwrap().leases.len(), 1);
    // Vault is down when the next daemon comes: the list stays.
    vault.state.lock().unwrap().sealed = true;
    let next = Broker::new(sources(&vault, &room, "s.root-token"), Some(Register::open(&room.0).unwrap()));
    let told = next.revoke_leftovers().await.unwrap();
    assert!(matches!(&told[..], [Told::NotRevoked { why, .. }] if why.contains("sealed")), "{told:?}");
    assert_eq!(register.all().unwrap().leases.len(), 1);
    vault.state.lock().unwrap().sealed = false;
    assert!(matches!(&next.revoke_leftovers().await.unwrap()[..], [Told::Revoked { .. }]));
    assert_eq!(vault.state.lock().unwrap().leases.len(), 0);
    assert_eq!(register.all().unwrap().leases, []);
    // Once more does no harm.
    assert_eq!(next.revoke_leftovers().await.unwrap(), []);
}

/// Whoever takes its place gets neither the token nor a question, and a namespace is asked in and in no other.
#[tokio::test]
async fn a_vault_over_tls_is_believed_by_the_operators_file_alone_and_asked_in_its_namespace() {
    let ((vault, authority), room) = (Vault::secure().await, Room::new());
    vault.state.lock().unwrap().namespace = Some("team/a");
    let (token, theirs) =
        (room.file("token", "s.root-token", 0o600), room.file("vault.crt", &authority, 0o644));
    let empty = room.file("empty.crt", "no certificate", 0o644);
    let sources = |address: &str, more: &str| {
        Sources::parse(&format!(
            "[vault]\naddress = \"{address}\"\ntoken_file = {token:?}\n{more}\n[secrets.db]\nhosts = [\"api.example.com\"]\n\
             vault = {{ path = \"database/creds/app\", field = \"password\" }}\n"
        ))
    };
    let mint = async |address: &str, more: &str| {
        let broker = Broker::new(sources(address, more).unwrap(), None);
        let minted = broker.mint(&box_id(), &[bind("db", "api.example.com")], &deaf()).await;
        minted.map(|lent| (broker, lent))
    };
    let believed = format!("ca_file = {theirs:?}");
    let (by_name, here) = (vault.address.replace("127.0.0.1", "localhost"), vault.address.as_str());
    for (address, more) in [(here, ""), (by_name.as_str(), believed.as_str())] {
        let error = mint(address, &format!("{more}\nnamespace = \"team/a\"")).await.err().unwrap();
        let why = blastbox_engine::causes(&error);
        assert!(why.contains("certificate"), "{address} {more}: {why}");
    }
    assert!(vault.asked().is_empty(), "{:?}", vault.asked());
    let error = mint(here, &believed).await.err().unwrap();
    assert!(error.to_string().contains("vault.namespace"), "{error}");
    let (broker, lent) = mint(here, &format!("{believed}\nnamespace = \"team/a\"")).await.unwrap();
    assert_eq!(lent[0].value.expose_to_gateway(), b"made-password-1");
    let (tell, mut told) = mpsc::unbounded_channel();
    broker.revoke(leases(&lent), &tell).await;
    assert!(matches!(&drain(&mut told)[..], [Told::Revoked { .. }]));
    assert_eq!(vault.asked(), ["GET /v1/database/creds/app", "PUT /v1/sys/leases/revoke"]);
    let error = sources(here, &format!("ca_file = {empty:?}")).err().unwrap();
    assert!(blastbox_engine::causes(&error).contains("no certificate"), "{error}");
}

#[tokio::test]
async fn a_lease_that_vault_has_forgotten_counts_as_revoked() {
    let (vault, _room, broker, register) = world().await;
    let lent = broker.mint(&box_id(), &[bind("db", "api.example.com")], &deaf()).await.unwrap();
    vault.state.lock().unwrap().leases.clear();
    let (tell, mut told) = mpsc::unbounded_channel();
    broker.revoke(leases(&lent), &tell).await;
    assert!(matches!(&drain(&mut told)[..], [Told::Revoked { .. }]));
    assert_eq!(register.all().unwrap().leases, []);
}

#[tokio::test]
async fn a_path_that_is_not_found_says_nothing_about_a_lease() {
    let (vault, _room, broker, register) = world().await;
    let lent = broker.mint(&box_id(), &[bind("db", "api.example.com")], &deaf()).await.unwrap();
    // A proxy that has lost its way, or another namespace.
    vault.state.lock().unwrap().elsewhere = true;
    let (tell, mut told) = mpsc::unbounded_channel();
    broker.revoke(leases(&lent), &tell).await;
    let words = drain(&mut told);
    assert!(
        matches!(&words[..], [Told::NotRevoked { why, .. }] if why.contains("Vault answered 404")),
        "{words:?}"
    );
    assert_eq!(vault.state.lock().unwrap().leases.len(), 1, "it lives");
    assert_eq!(register.all().unwrap().leases, leases(&lent));
}

#[tokio::test]
async fn when_one_secret_cannot_be_had_the_others_are_given_back() {
    let (vault, _room, broker, register) = world().await;
    let wanted = [bind("db", "api.example.com"), bind("none", "api.example.com")];
    let error = broker.mint(&box_id(), &wanted, &deaf()).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "secret none: Vault answered 404; see that vault.address, vault.namespace and the path in the secrets file are right"
    );
    assert_eq!(vault.state.lock().unwrap().leases.len(), 0);
    assert_eq!(register.all().unwrap().leases, []);
}

#[tokio::test]
async fn each_failure_says_what_is_wrong() {
    let (vault, room, broker, _register) = world().await;
    let mint = async |broker: &Arc<Broker>, name: &str| {
        broker.mint(&box_id(), &[bind(name, "api.example.com")], &deaf()).await.err().unwrap()
    };
    assert_eq!(mint(&broker, "odd").await.to_string(), "secret odd: what Vault has there has no such field");
    vault.state.lock().unwrap().sealed = true;
    // As whoever asks for a box reads it.
    let refusal = |error: MintError| blastbox_engine::causes(&CreateError::Secret(error));
    assert_eq!(
        refusal(mint(&broker, "kv").await),
        "cannot lend the box its secrets: secret kv: Vault answered 503: Vault is sealed; unseal it or bring it back"
    );
    vault.state.lock().unwrap().sealed = false;
    let denied = Broker::new(sources(&vault, &room, "s.other"), None);
    assert_eq!(
        mint(&denied, "kv").await.to_string(),
        "secret kv: Vault answered 403: permission denied; see that the token in vault.token_file is valid and may do this"
    );
    // A port that nobody listens on: bound, never listened to.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let gone = Vault { address, ..vault };
    let error = mint(&Broker::new(sources(&gone, &room, "s.root-token"), None), "kv").await;
    assert!(matches!(error, MintError::VaultUnreachable { .. }), "{error}");
    // The token itself is in no message.
    assert!(!format!("{error:?}").contains("root-token"));
    let text = refusal(error);
    let told = format!(
        "cannot lend the box its secrets: secret kv: cannot reach Vault at {}; see that it runs there, or correct \
         vault.address in the secrets file: Connection refused",
        gone.address
    );
    assert!(text.starts_with(&told), "{text}");
}

#[tokio::test]
async fn a_lease_is_renewed_before_its_life_is_over() {
    let (vault, _room, broker, _register) = world().await;
    // Short, so that nobody waits long; the server ends no lease by itself, so nothing hangs on how long exactly.
    vault.state.lock().unwrap().life = 1;
    let lent = broker.mint(&box_id(), &[bind("db", "api.example.com")], &deaf()).await.unwrap();
    let (tell, mut told) = mpsc::unbounded_channel();
    let renewable = lent.iter().filter_map(blastbox_engine::leases::Lent::renewable).collect();
    let keeping = tokio::spawn(Arc::clone(&broker).keep_alive(renewable, tell));
    for _ in 0..2 {
        let word = tokio::time::timeout(Duration::from_secs(120), told.recv()).await.unwrap().unwrap();
        assert_eq!(
            word,
            Told::Renewed { secret: "db".parse().unwrap(), binding: 0, ttl: Duration::from_secs(1) }
        );
    }
    assert!(vault.state.lock().unwrap().leases["database/creds/app/1"] >= 2);
    // What was revoked elsewhere cannot be renewed, and that is told.
    vault.state.lock().unwrap().leases.clear();
    let why = tokio::time::timeout(Duration::from_secs(120), async {
        loop {
            // One more may have been renewed before it was revoked.
            match told.recv().await.unwrap() {
                Told::NotRenewed { why, .. } => break why,
                other => assert!(matches!(other, Told::Renewed { .. }), "{other:?}"),
            }
        }
    });
    assert!(why.await.unwrap().contains("invalid lease"));
    keeping.await.unwrap();
    assert!(vault.asked().iter().any(|line| line == "PUT /v1/sys/leases/renew"));
}

/// Lets this much time pass at once, for whoever waits for it already.
pub(crate) async fn skip(time: Duration) {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_renewal_that_fails_is_tried_again_while_the_lease_lives() {
    let (vault, _room, broker, _register) = world().await;
    let lent = broker.mint(&box_id(), &[bind("db", "api.example.com")], &deaf()).await.unwrap();
    let (tell, mut told) = mpsc::unbounded_channel();
    let renewable = lent.iter().filter_map(blastbox_engine::leases::Lent::renewable).collect();
    let keeping = tokio::spawn(Arc::clone(&broker).keep_alive(renewable, tell));
    vault.state.lock().unwrap().sealed = true;
    // It lives for 100 s, of which 30 are left then.
    skip(Duration::from_secs(71)).await;
    let mut hear =
        async || tokio::time::timeout(Duration::from_secs(120), told.recv()).await.unwrap().unwrap();
    let word = hear().await;
    assert!(
        matches!(&word, Told::NotRenewed { why, .. } if why.contains("sealed") && why.ends_with("; tried again until its time is over")),
        "{word:?}"
    );
    vault.state.lock().unwrap().sealed = false;
    assert!(matches!(hear().await, Told::Renewed { .. }));
    assert_eq!(vault.state.lock().unwrap().leases["database/creds/app/1"], 1);
    // The whole of what is left is used, and not more.
    vault.state.lock().unwrap().sealed = true;
    skip(Duration::from_secs(71)).await;
    assert!(matches!(hear().await, Told::NotRenewed { .. }));
    let begun = tokio::time::Instant::now();
    // From here on waiting takes no time.
    tokio::time::pause();
    let word = hear().await;
    let tried = begun.elapsed();
    tokio::time::resume();
    assert!(matches!(&word, Told::NotRenewed { why, .. } if why.ends_with("; its time is over")), "{word:?}");
    assert!((20..60).contains(&tried.as_secs()), "{tried:?} on the clock that was pushed on");
    keeping.await.unwrap();
}
