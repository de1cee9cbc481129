//! A thousand who ask at once are a thousand clear answers.

use std::time::Duration;

use blastbox_engine::keeper::KeeperConfig;
use blastbox_server::Patience;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::task::JoinSet;

use crate::rig::{Daemon, HEAD, skip};

const CALLERS: usize = 1_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_creates_at_once_are_boxes_or_told_when_to_come_back() {
    const NAME: &str = "a_thousand_creates_at_once_are_boxes_or_told_when_to_come_back";
    // Both ends of every connection, and what boxes need.
    let most = getrlimit(Resource::Nofile).maximum;
    if most.is_some_and(|most| most < 8_192) {
        skip::<()>(NAME, "fewer than 8192 descriptors may be open here");
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let mut config = KeeperConfig::default();
    config.host.boxes = 8;
    config.host.queue = 100;
    config.host.patience = Duration::from_secs(1);
    config.pool.max = 0;
    let patience = Patience { head: HEAD * 50, connections: 2 * CALLERS, per_tenant: 2 * CALLERS };
    let Some(daemon) = Daemon::patient(NAME, config, patience).await else { return };
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let me = daemon.local();
        callers.spawn(async move {
            let answer = me.post("/v1/boxes", json!({ "limits": { "memory": "64MiB" } })).await;
            match answer.status {
                201 => {
                    let made = format!("/v1/boxes/{}", answer.body["id"].as_str().unwrap());
                    assert_eq!(me.delete(&made).await.status, 200);
                    true
                }
                503 => {
                    assert!(["busy", "create_too_slow"].contains(&answer.code()), "{answer:?}");
                    let after = answer.headers.get("retry-after").unwrap().to_str().unwrap();
                    assert!(after.parse::<u32>().unwrap() >= 1, "{after}");
                    false
                }
                other => panic!("{other}: {answer:?}"),
            }
        });
    }
    let answers = callers.join_all().await;
    let made = answers.iter().filter(|made| **made).count();
    assert_eq!(answers.len(), CALLERS);
    assert!((8..CALLERS).contains(&made), "{made} were made");
    let me = daemon.local();
    assert_eq!(me.get("/v1/boxes").await.body["boxes"], json!([]));
    me.create(json!({})).await;
    daemon.stop().await;
}
