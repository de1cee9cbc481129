//! Members of a pool that have begun a command before they are anybody's: with real boxes.

use blastbox_wire::event::Event;
use blastbox_wire::event::ledger_text::read_record;

use super::recorded::Place;
use super::*;
use crate::ledger::{Ledger, LedgerError, records};

/// Ready, and then this for each line that it is asked.
fn prepared_by(script: &str) -> Preparation {
    let script = format!("echo ready; while read word; do {script}; done");
    Preparation::new(shell(&script), b"ready\n", b"ping\n", b"pong\n")
}

fn with(preparation: &Preparation) -> NewBox {
    NewBox { preparation: Some(preparation.clone()), ..new_box() }
}

fn pooling(most: usize) -> KeeperConfig {
    let mut config = roomy();
    config.pool = PoolConfig { min: 0, max: most, ttl: Duration::from_secs(60) };
    config
}

async fn keep(keeper: &Keeper, preparation: &Preparation) {
    let NewBox { policy, image, .. } = new_box();
    keeper.keep_warm(policy, image, Some(preparation.clone()), 1).await.unwrap();
}

#[tokio::test]
async fn a_member_has_begun_its_command_before_anybody_asks_and_its_owner_talks_to_the_same_one() {
    let place = Place::new("prepared");
    let program = match program() {
        Ok(program) => program,
        Err(why) => return blastbox_skips::skip_this(why),
    };
    let engine = Engine::with_warden(Warden::start_program(&program).unwrap()).unwrap();
    let ledger = Ledger::open(place.options()).unwrap();
    let keeper = Keeper::start_recorded(engine, pooling(1), ledger).unwrap();
    let shared = prepared_by("[ $word = ping ] && echo pong || { echo mine: $word; exit 3; }");
    keep(&keeper, &shared).await;
    until("one is made", || keeper.metrics().pool_size == 1).await;
    let plain = keeper.create(&me(), new_box()).await.unwrap();
    assert!(!plain.warm, "one that begins something is another kind");
    let card = keeper.create(&me(), with(&shared)).await.unwrap();
    assert!(card.warm);
    let exec = keeper.prepared(&me(), &card.id).unwrap().unwrap();
    assert_eq!(keeper.prepared(&me(), &plain.id).unwrap(), None);
    let commands = keeper.get(&me(), &card.id).unwrap().1;
    assert_eq!(commands.iter().map(|command| command.exec).collect::<Vec<_>>(), [exec]);
    assert!(commands.iter().all(|command| command.pid.is_some() && command.ended.is_none()));
    keeper.write_stdin(&me(), &card.id, exec, b"hello\n").await.unwrap();
    let heard = hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await;
    assert_eq!(
        heard,
        (b"mine: hello\n".to_vec(), 0, ExecEnded::Exited { code: 3 }),
        "and nothing from before"
    );
    // The next command of the box is another one.
    assert_ne!(keeper.exec(&me(), &card.id, shell("true")).await.unwrap(), exec);
    keeper.kill(&me(), &card.id).await.unwrap();
    keeper.stop().await;
    let mut order = Vec::new();
    records(&place.ledger(), |_, _, line| {
        let record = read_record(line).unwrap();
        let here = record.about.as_ref().and_then(|about| about.box_id.as_ref()) == Some(&card.id);
        match &record.event {
            Event::CommandAsked { exec: number, .. } if here && *number == exec => order.push("begun"),
            Event::BoxReady { .. } if here => order.push("handed out"),
            Event::CommandEnded { exec: number, .. } if here && *number == exec => order.push("over"),
            _ => {}
        }
        Ok::<_, LedgerError>(())
    })
    .unwrap();
    assert_eq!(order, ["begun", "handed out", "over"]);
}

#[tokio::test]
async fn where_none_is_prepared_one_that_has_begun_nothing_serves_before_a_new_one_is_made() {
    let Some(keeper) = keeper(pooling(1)) else { return };
    let NewBox { policy, image, .. } = new_box();
    keeper.keep_warm(policy, image, None, 1).await.unwrap();
    until("one waits", || keeper.metrics().pool_size == 1).await;
    let never = Preparation::new(shell("sleep 600"), b"ready\n", b"ping\n", b"pong\n");
    let card = keeper.create(&me(), with(&never)).await.unwrap();
    assert!(card.warm && keeper.prepared(&me(), &card.id).unwrap().is_none());
    let exec = keeper.exec(&me(), &card.id, shell("echo alive")).await.unwrap();
    assert_eq!(hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await.0, b"alive\n");
    until("another takes its place", || keeper.metrics().pool_size == 1).await;
    keeper.stop().await;
}

/// What its command does when it is asked for a sign of life decides over the member.
#[tokio::test]
async fn a_member_whose_command_died_is_silent_or_answers_wrongly_is_never_handed_out() {
    for script in ["exit 0", "true", "echo pang", "printf 'pong\\nmore\\n'", "printf pon"] {
        let Some(keeper) = keeper(pooling(1)) else { return };
        let mut events = keeper.subscribe(None);
        let bad = prepared_by(script);
        keep(&keeper, &bad).await;
        until("one is made", || keeper.metrics().pool_size == 1).await;
        let card = keeper.create(&me(), with(&bad)).await.unwrap();
        assert_eq!(keeper.prepared(&me(), &card.id).unwrap(), None, "{script}");
        assert!(keeper.metrics().pool_poisoned >= 1, "{script}");
        let exec = keeper.exec(&me(), &card.id, shell("echo alive")).await.unwrap();
        assert_eq!(hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await.0, b"alive\n");
        keeper.stop().await;
        let mut told = 0;
        while let Some(EventItem::Event(event)) = events.next().await {
            told += usize::from(event.what == Happened::PoolPoisoned);
        }
        assert!(told >= 1, "{script}");
    }
}

#[tokio::test]
async fn a_member_that_never_gets_ready_is_none_and_its_kind_is_made_when_it_is_asked_for() {
    let Some(keeper) = keeper(pooling(1)) else { return };
    let mut events = keeper.subscribe(None);
    let never = Preparation::new(shell("echo rea; echo dy"), b"ready\n", b"ping\n", b"pong\n");
    keep(&keeper, &never).await;
    until("it was tried", || keeper.metrics().failures >= 1).await;
    let card = keeper.create(&me(), with(&never)).await.unwrap();
    assert!(!card.warm && keeper.prepared(&me(), &card.id).unwrap().is_none());
    assert_eq!(keeper.metrics().pool_size, 0);
    keeper.stop().await;
    let mut told = 0;
    while let Some(EventItem::Event(event)) = events.next().await {
        told += usize::from(event.what == Happened::PoolPoisoned);
    }
    assert_eq!(told, 1, "however often it is tried");
}

#[tokio::test]
async fn what_has_to_end_first_has_ended_in_a_member_and_whoever_asks_for_such_a_box_gets_it_without_a_word()
{
    let Some(keeper) = keeper(pooling(1)) else { return };
    let first = Preparation::after(shell("echo heard by nobody; echo left > /tmp/left"), None);
    keep(&keeper, &first).await;
    until("one is made", || keeper.metrics().pool_size == 1).await;
    let card = keeper.create(&me(), new_box()).await.unwrap();
    assert!(card.warm && keeper.prepared(&me(), &card.id).unwrap().is_none());
    let commands = keeper.get(&me(), &card.id).unwrap().1;
    assert!(commands.is_empty(), "it is no command of its owner's: {commands:?}");
    let exec = keeper.exec(&me(), &card.id, shell("cat /tmp/left")).await.unwrap();
    assert_eq!(hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await.0, b"left\n");
    // Before what waits, where both are wanted.
    let both = Preparation::after(shell("echo left > /tmp/left"), Some(&prepared_by("cat /tmp/$word")));
    assert_ne!(both.digest(), first.digest());
    assert!(both.waits() && !first.waits());
    keeper.stop().await;
}

#[tokio::test]
async fn what_a_first_command_prints_is_not_counted_as_its_owners() {
    let Some(keeper) = keeper(pooling(1)) else { return };
    let print = "head -c 40000 /dev/zero";
    let policy = new_box().policy.draft().output(Bytes(64 * 1024)).seal().unwrap();
    let first = Preparation::after(shell(print), None);
    keeper.keep_warm(policy.clone(), new_box().image, Some(first), 1).await.unwrap();
    until("one is made", || keeper.metrics().pool_size == 1).await;
    let card = keeper.create(&me(), NewBox { policy, ..new_box() }).await.unwrap();
    assert!(card.warm);
    let exec = keeper.exec(&me(), &card.id, shell(print)).await.unwrap();
    let (printed, _, end) = hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await;
    assert_eq!((printed.len(), end), (40_000, ExecEnded::Exited { code: 0 }));
    let receipt = keeper.kill(&me(), &card.id).await.unwrap();
    assert_eq!(receipt.output.stdout_bytes, 40_000);
    keeper.stop().await;
}

#[tokio::test]
async fn a_member_whose_first_command_fails_is_none_and_that_is_told_once() {
    for script in ["exit 3", "kill -9 $$"] {
        let Some(keeper) = keeper(pooling(1)) else { return };
        let mut events = keeper.subscribe(None);
        keep(&keeper, &Preparation::after(shell(script), None)).await;
        until("it was tried", || keeper.metrics().failures >= 1).await;
        let card = keeper.create(&me(), new_box()).await.unwrap();
        assert!(!card.warm && keeper.metrics().pool_size == 0, "{script}");
        keeper.stop().await;
        let mut told = 0;
        while let Some(EventItem::Event(event)) = events.next().await {
            told += usize::from(event.what == Happened::PoolPoisoned);
        }
        assert_eq!(told, 1, "{script}");
    }
}

/// What cannot be had is refused before anybody makes room for it.
#[tokio::test]
async fn a_machine_for_which_there_is_never_room_costs_no_member_of_a_pool() {
    let mut config = pooling(1);
    config.host.memory = 256 << 20;
    let Some(keeper) = keeper(config) else { return };
    keep(&keeper, &prepared_by("echo pong")).await;
    until("one waits", || keeper.metrics().pool_size == 1).await;
    let no = keeper.0.room_for_machine(129 << 20).await.unwrap_err();
    assert!(matches!(no, KeepError::QuotaSpent { what: "host_memory" }), "{no}");
    assert_eq!(keeper.metrics().pool_size, 1);
    keeper.stop().await;
}
