//! Many askers, little room, warm pools: with real boxes.

use std::time::Duration;

use blastbox_images::Image;
use tokio::time::{sleep, timeout};

use super::super::*;
use super::{Engine, Warden, draft, hear, keeper, me, new_box, program, roomy, shell, until};

#[tokio::test]
async fn a_thousand_creates_at_once_end_as_a_thousand_clear_answers() {
    let mut config = roomy();
    config.host.boxes = 50;
    config.host.queue = 300;
    config.host.patience = Duration::from_secs(60);
    config.tenant_default.boxes = 400;
    let Some(keeper) = keeper(config) else { return };
    let mut asked = tokio::task::JoinSet::new();
    for number in 0..1_000 {
        let keeper = keeper.clone();
        asked.spawn(async move {
            let tenant: Tenant = if number % 4 == 0 { "small" } else { "large" }.parse().unwrap();
            let outcome = keeper.create(&tenant, new_box()).await;
            match outcome {
                Ok(card) => {
                    keeper.kill(&tenant, &card.id).await.unwrap();
                    "made"
                }
                Err(error @ (KeepError::Busy { .. } | KeepError::QuotaSpent { .. })) => error.code(),
                Err(error) => panic!("{error:?}"),
            }
        });
    }
    let answers = asked.join_all().await;
    let count = |code: &str| answers.iter().filter(|answer| **answer == code).count();
    let (made, busy, spent) = (count("made"), count("busy"), count("quota_spent"));
    assert_eq!(made + busy + spent, 1_000);
    assert!(made >= 350, "{made} made, {busy} busy, {spent} over quota");
    let metrics = keeper.metrics();
    assert_eq!(metrics.creates + metrics.refusals.values().sum::<u64>(), 1_000);
    assert!(metrics.live.is_empty() && metrics.waiting == 0);
    keeper.stop().await;
}

#[tokio::test]
async fn a_pool_gives_live_boxes_only_and_grows_and_empties_with_demand() {
    let mut config = roomy();
    config.pool = PoolConfig { min: 0, max: 3, ttl: Duration::from_secs(3) };
    let Some(keeper) = keeper(config) else { return };
    let first = keeper.create(&me(), new_box()).await.unwrap();
    assert!(!first.warm);
    until("one is made", || keeper.metrics().pool_size == 1).await;
    let second = keeper.create(&me(), new_box()).await.unwrap();
    assert!(second.warm);
    let exec = keeper.exec(&me(), &second.id, shell("echo warm")).await.unwrap();
    assert_eq!(hear(keeper.tape(&me(), &second.id, exec, None).unwrap()).await.0, b"warm\n");
    // Another policy is another kind.
    let other = NewBox::new(draft().pids(99).seal().unwrap(), Image::host());
    assert!(!keeper.create(&me(), other).await.unwrap().warm);
    until("more are made", || keeper.metrics().pool_size >= 2).await;
    until("nobody asks, so none is left", || keeper.metrics().pool_size == 0).await;
    let metrics = keeper.metrics();
    assert_eq!((metrics.pool_hits, metrics.pool_misses, metrics.pool_poisoned), (1, 2, 0));
    keeper.stop().await;
}

/// A kind is known from its first question on; from then on it is never without members.
#[tokio::test]
async fn a_pool_has_its_least_members_as_soon_as_and_as_long_as_their_kind_is_known() {
    let mut config = roomy();
    config.pool = PoolConfig { min: 2, max: 3, ttl: Duration::from_secs(60) };
    let Some(keeper) = keeper(config) else { return };
    sleep(Duration::from_millis(50)).await;
    assert_eq!(keeper.metrics().pool_size, 0, "of which kind should they be?");
    let first = keeper.create(&me(), new_box()).await.unwrap();
    assert!(!first.warm);
    until("the least is there", || keeper.metrics().pool_size >= 2).await;
    let (second, third) = (keeper.create(&me(), new_box()).await, keeper.create(&me(), new_box()).await);
    assert!(second.unwrap().warm && third.unwrap().warm);
    until("and comes back", || keeper.metrics().pool_size >= 2).await;
    keeper.stop().await;
}

/// Somebody said in advance what would be asked for.
#[tokio::test]
async fn a_kind_that_is_kept_warm_has_its_least_members_before_anybody_asks_and_keeps_them() {
    let mut config = roomy();
    config.pool = PoolConfig { min: 0, max: 3, ttl: Duration::from_secs(2) };
    let Some(keeper) = keeper(config) else { return };
    let NewBox { policy, image, .. } = new_box();
    keeper.keep_warm(policy, image, None, 2).await.unwrap();
    until("the least is there", || keeper.metrics().pool_size >= 2).await;
    // Longer than a member waits: nobody has asked, and there are others.
    sleep(Duration::from_secs(3)).await;
    until("and again", || keeper.metrics().pool_size >= 2).await;
    assert!(keeper.create(&me(), new_box()).await.unwrap().warm, "the very first one");
    let metrics = keeper.metrics();
    assert_eq!((metrics.pool_hits, metrics.pool_misses, metrics.pool_poisoned), (1, 0, 0));
    keeper.stop().await;
}

#[tokio::test]
async fn what_is_never_pooled_is_not_kept_warm_either() {
    let mut config = roomy();
    config.pool.max = 2;
    let Some(keeper) = keeper(config) else { return };
    let NewBox { policy, image, .. } = new_box();
    let many = keeper.keep_warm(policy.clone(), image, None, 3).await;
    assert!(matches!(many, Err(WarmError::TooMany { least: 3, most: 2 })), "{many:?}");
    let directory = keeper.keep_warm(policy, Image::parse("/usr").unwrap().into(), None, 1).await;
    assert!(matches!(directory, Err(WarmError::NotPooled)), "{directory:?}");
    keeper.stop().await;
}

#[tokio::test]
async fn kinds_that_together_are_more_than_the_host_has_room_for_are_not_kept_warm() {
    let mut config = roomy();
    (config.host.boxes, config.pool.max) = (3, 3);
    let Some(keeper) = keeper(config) else { return };
    let NewBox { policy, image, .. } = new_box();
    let other = draft().pids(77).seal().unwrap();
    keeper.keep_warm(policy.clone(), image, None, 2).await.unwrap();
    let over = keeper.keep_warm(other.clone(), Image::host().into(), None, 2).await;
    assert!(matches!(over, Err(WarmError::NoRoom { limit: "boxes" })), "{over:?}");
    // The same kind once more is no other, and what fits is taken.
    keeper.keep_warm(policy, Image::host().into(), None, 2).await.unwrap();
    keeper.keep_warm(other, Image::host().into(), None, 1).await.unwrap();
    keeper.stop().await;
}

#[tokio::test]
async fn a_member_that_died_in_the_pool_is_never_handed_out_and_somebody_is_told() {
    let mut config = roomy();
    config.pool = PoolConfig { min: 0, max: 2, ttl: Duration::from_secs(60) };
    let Some(keeper) = keeper(config) else { return };
    let mut events = keeper.subscribe(None);
    keeper.create(&me(), new_box()).await.unwrap();
    until("one is made", || keeper.metrics().pool_size == 1).await;
    keeper.0.pool.poison_for_test();
    sleep(Duration::from_millis(100)).await;
    let card = keeper.create(&me(), new_box()).await.unwrap();
    let exec = keeper.exec(&me(), &card.id, shell("echo alive")).await.unwrap();
    assert_eq!(hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await.0, b"alive\n");
    until("it was counted", || keeper.metrics().pool_poisoned == 1).await;
    keeper.stop().await;
    let mut told = 0;
    while let Some(EventItem::Event(event)) = events.next().await {
        told += usize::from(event.what == Happened::PoolPoisoned);
    }
    assert_eq!(told, 1);
}

#[tokio::test]
async fn a_member_that_hangs_in_the_pool_is_never_handed_out_and_somebody_is_told() {
    let program = match program() {
        Ok(program) => program,
        Err(why) => return blastbox_skips::skip_this(why),
    };
    let mut config = roomy();
    config.pool = PoolConfig { min: 0, max: 1, ttl: Duration::from_secs(60) };
    let warden = Warden::start_program(&program).unwrap();
    let pid = warden.pid();
    let keeper = Keeper::start(Engine::with_warden(warden).unwrap(), config);
    let mut events = keeper.subscribe(None);
    let first = keeper.create(&me(), new_box()).await.unwrap();
    keeper.kill(&me(), &first.id).await.unwrap();
    until("one is made", || keeper.metrics().pool_size == 1).await;
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let agent = children.trim().parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(agent, rustix::process::Signal::STOP).unwrap();
    let card = keeper.create(&me(), new_box()).await.unwrap();
    // Whether it is a fresh box or the next member, which was made meanwhile, is all the same.
    assert_eq!(keeper.metrics().pool_poisoned, 1);
    let exec = keeper.exec(&me(), &card.id, shell("echo alive")).await.unwrap();
    assert_eq!(hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await.0, b"alive\n");
    keeper.stop().await;
    let mut told = 0;
    while let Some(EventItem::Event(event)) = events.next().await {
        told += usize::from(event.what == Happened::PoolPoisoned);
    }
    assert_eq!(told, 1);
}

#[tokio::test]
async fn whoever_waits_for_room_gets_that_of_the_pool() {
    let mut config = roomy();
    config.pool = PoolConfig { min: 0, max: 2, ttl: Duration::from_secs(60) };
    config.host.boxes = 2;
    let Some(keeper) = keeper(config) else { return };
    keeper.create(&me(), new_box()).await.unwrap();
    until("one is made", || keeper.metrics().pool_size == 1).await;
    let other = NewBox::new(draft().pids(99).seal().unwrap(), Image::host());
    assert!(!keeper.create(&me(), other).await.unwrap().warm);
    assert_eq!(keeper.metrics().pool_size, 0);
    keeper.stop().await;
}

#[tokio::test]
async fn an_asker_who_goes_away_leaves_no_box_and_nothing_reserved() {
    let mut config = roomy();
    config.tenant_default.boxes = 1;
    let Some(keeper) = keeper(config) else { return };
    for micros in [0, 50, 300, 1_000, 3_000] {
        let tenant = me();
        let asking = keeper.create(&tenant, new_box());
        if let Ok(made) = timeout(Duration::from_micros(micros), asking).await {
            keeper.kill(&me(), &made.unwrap().id).await.unwrap();
        }
        assert!(keeper.list(&me()).is_empty());
    }
    let card = keeper.create(&me(), new_box()).await.unwrap();
    assert!(matches!(keeper.create(&me(), new_box()).await, Err(KeepError::QuotaSpent { what: "boxes" })));
    keeper.kill(&me(), &card.id).await.unwrap();
    keeper.create(&me(), new_box()).await.unwrap();
    keeper.stop().await;
}

#[tokio::test]
async fn forks_that_were_sent_and_that_nobody_took_end() {
    let Some(keeper) = keeper(roomy()) else { return };
    let mut forks = Vec::new();
    for _ in 0..2 {
        forks.push(keeper.create(&me(), new_box()).await);
    }
    let (caller, answer) = tokio::sync::oneshot::channel();
    let untold = super::super::forks::Untold { keeper: keeper.clone(), tenant: me(), forks };
    assert!(caller.send(untold).is_ok());
    // Whoever asked goes away between the answer and the moment when it would read it.
    drop(answer);
    until("both are gone", || keeper.list(&me()).is_empty()).await;
    keeper.stop().await;
}
