//! Every connection that was let in leaves a record, also one that comes to nothing.

use std::time::Duration;

use blastbox_wire::egress::{Carried, Record};
use tokio::io::AsyncWriteExt;

use crate::rig::{World, unbelieving};

const ALLOW: &str = r#"{ host = "a.test", ports = [PORT], tls = "inspect" }"#;

/// Waits for the end of a connection, which is all that may have been told of it.
async fn only_its_end(world: &World) -> (String, u64) {
    let told = async {
        loop {
            if let [one] = &world.records()[..] {
                return one.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(20), told).await.expect("no record, or several");
    let Record::Closed { target, port, carried: Carried { sent, .. }, reason: None, .. } = told else {
        panic!("{told:?}")
    };
    assert_eq!(port, world.port);
    (target, sent)
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_recorded() {
    let world = World::new(ALLOW, "", &[]).await;
    drop(world.connect("a.test").await.unwrap());
    assert_eq!(only_its_end(&world).await, ("a.test".to_owned(), 0));
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_of_its_hello_is_recorded() {
    let world = World::new(ALLOW, "", &[]).await;
    let mut stream = world.connect("a.test").await.unwrap();
    stream.write_all(&[22, 3, 1, 2]).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(only_its_end(&world).await, ("a.test".to_owned(), 4));
}

#[tokio::test]
async fn a_connection_whose_client_does_not_believe_the_gateway_is_recorded() {
    let world = World::new(ALLOW, "", &[]).await;
    let stream = world.connect("a.test").await.unwrap();
    unbelieving("a.test", stream).await.unwrap_err();
    assert!(only_its_end(&world).await.1 > 0);
}

#[tokio::test]
async fn a_connection_without_a_request_is_recorded() {
    for alpn in [&b"http/1.1"[..], b"h2"] {
        let world = World::new(ALLOW, "", &[]).await;
        drop(world.tls("a.test", alpn).await.unwrap());
        assert!(only_its_end(&world).await.1 > 0);
    }
}
