//! A keeper with real boxes. Needs root and the built programs; where one of them is missing, each test says so.

use std::path::{Path, PathBuf};
use std::time::Duration;

use blastbox_images::Image;
use blastbox_isolation::Warden;
use blastbox_policy::{Bytes, Cpus, Draft, Gap, Profile, Seconds};
use blastbox_wire::agent::{Io, User};
use blastbox_wire::receipt::Outcome;
use tokio::time::{Instant, sleep, timeout};

use super::events::wall_clock;
use super::*;
use crate::{Command, Engine, Stream};

mod alerts;
mod crowd;
mod deadlines;
mod prepared;
mod recorded;

/// The warden, or why there is none.
fn program() -> Result<PathBuf, &'static str> {
    if !rustix::process::geteuid().is_root() {
        return Err("not root");
    }
    let warden = |dir: PathBuf| Some(dir.join("blastbox-warden")).filter(|warden| warden.is_file());
    let found = match std::env::var_os("BLASTBOX_BIN_DIR") {
        Some(dir) => warden(dir.into()),
        None => {
            let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/blastbox");
            // What `cargo build` leaves lies above the directory of this test.
            let beside =
                std::env::current_exe().ok().and_then(|own| Some(own.parent()?.parent()?.to_owned()));
            warden(built).or_else(|| beside.and_then(warden))
        }
    };
    found.ok_or("there is no blastbox-warden in BLASTBOX_BIN_DIR, target/blastbox or beside the test: run `make build`")
}

fn roomy() -> KeeperConfig {
    let mut config = KeeperConfig::default();
    config.host.memory = 1 << 40;
    config.host.millicpus = 1_000_000;
    config.tenant_default = Quota { boxes: 10_000, memory: 1 << 40, millicpus: 1_000_000 };
    config.pool.max = 0;
    config
}

/// `None`, and a line that says why, where there can be no real box.
fn keeper(config: KeeperConfig) -> Option<Keeper> {
    match program() {
        Ok(program) => {
            let warden = Warden::start_program(&program).unwrap();
            Some(Keeper::start(Engine::with_warden(warden).unwrap(), config))
        }
        Err(why) => {
            blastbox_skips::skip_this(why);
            None
        }
    }
}

fn draft() -> Draft {
    let draft = Profile::Default.draft().unwrap().memory(Bytes::mib(64)).cpus(Cpus::from_millis(100));
    // Whatever this host lacks, it is not what is tested here.
    Gap::ALL.iter().fold(draft, |draft, gap| draft.accept(*gap)).timeout(Seconds(1))
}

fn new_box() -> NewBox {
    NewBox::new(draft().seal().unwrap(), Image::host())
}

fn shell(script: &str) -> Command {
    Command {
        arguments: ["/bin/sh", "-c", script].iter().map(|word| word.as_bytes().to_vec()).collect(),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
        directory: b"/".to_vec(),
        io: Io::PipesWithStdin,
        user: User::Payload,
    }
}

fn me() -> Tenant {
    Tenant::local()
}

async fn hear(mut reader: TapeReader) -> (Vec<u8>, u64, ExecEnded) {
    let (mut printed, mut dropped) = (Vec::new(), 0);
    loop {
        match timeout(Duration::from_secs(20), reader.next()).await.unwrap().unwrap().1 {
            TapeEvent::Started { pid } => assert!(pid > 1),
            TapeEvent::Output { stream, bytes } => {
                assert_eq!(stream, Stream::Stdout);
                printed.extend(bytes);
            }
            TapeEvent::Dropped { bytes } => dropped += bytes,
            TapeEvent::Ended { ended, .. } => {
                assert_eq!(reader.next().await, None);
                return (printed, dropped, ended);
            }
        }
    }
}

const OK: ExecEnded = ExecEnded::Exited { code: 0 };

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_command_goes_on_when_nobody_listens_and_is_heard_by_two_who_come_late() {
    let Some(keeper) = keeper(roomy()) else { return };
    let card = keeper.create(&me(), new_box()).await.unwrap();
    assert_eq!(card.phase, Phase::Ready);
    let exec =
        keeper.exec(&me(), &card.id, shell("read word; echo $word; sleep 1.2; echo done")).await.unwrap();
    keeper.write_stdin(&me(), &card.id, exec, b"hi\n").await.unwrap();
    assert_eq!(keeper.get(&me(), &card.id).unwrap().0.phase, Phase::Executing);
    // Longer than the timeout of the policy, which is for `run`.
    let first = hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await;
    assert_eq!(first, (b"hi\ndone\n".to_vec(), 0, OK));
    let second = hear(keeper.tape(&me(), &card.id, exec, Some(4)).unwrap()).await;
    assert_eq!(second.0, b"done\n");
    let (card, execs) = keeper.get(&me(), &card.id).unwrap();
    assert_eq!((card.phase, execs[0].ended.clone(), execs[0].timed_out), (Phase::Ready, Some(OK), false));
    let outcome = keeper.write_stdin(&me(), &card.id, exec, b"x").await;
    assert!(matches!(outcome, Err(KeepError::CommandOver)));
    assert_eq!(keeper.kill(&me(), &card.id).await.unwrap().outcome, Outcome::Signalled);
    keeper.stop().await;
}

#[tokio::test]
async fn another_tenant_sees_nothing_and_does_nothing() {
    let Some(keeper) = keeper(roomy()) else { return };
    let card = keeper.create(&me(), new_box()).await.unwrap();
    let other: Tenant = "other".parse().unwrap();
    assert!(keeper.list(&other).is_empty());
    assert!(matches!(keeper.get(&other, &card.id), Err(KeepError::NotFound)));
    assert!(matches!(keeper.kill(&other, &card.id).await, Err(KeepError::NotFound)));
    assert!(matches!(keeper.exec(&other, &card.id, shell("true")).await, Err(KeepError::NotFound)));
    assert!(matches!(keeper.pause(&other, &card.id).await, Err(KeepError::NotFound)));
    assert_eq!(keeper.list(&me()).len(), 1);
    keeper.kill(&me(), &card.id).await.unwrap();
    assert!(matches!(keeper.kill(&other, &card.id).await, Err(KeepError::NotFound)));
    keeper.stop().await;
}

#[tokio::test]
async fn a_receipt_tells_the_clock_that_the_box_lived_by() {
    let Some(keeper) = keeper(roomy()) else { return };
    let life = Duration::from_secs(1_234);
    let card = keeper.create(&me(), NewBox { life, ..new_box() }).await.unwrap();
    let receipt = keeper.kill(&me(), &card.id).await.unwrap();
    let said: Vec<&String> = receipt.boundaries.iter().flat_map(|line| &line.how).collect();
    let own = format!("ends at {} at the latest, or after ", card.ends_at);
    assert!(said.iter().any(|line| line.starts_with(&own)), "{said:?}");
    assert!(!said.iter().any(|line| line.starts_with("ends after 1s ")), "not the policy's: {said:?}");
    assert_eq!(receipt.limits.map(|limits| limits.timeout_seconds), Some(1_234));
    keeper.stop().await;
}

#[tokio::test]
async fn all_that_kill_a_box_get_its_receipt() {
    let Some(keeper) = keeper(roomy()) else { return };
    let card = keeper.create(&me(), new_box()).await.unwrap();
    let exec = keeper.exec(&me(), &card.id, shell("sleep 60")).await.unwrap();
    let tape = keeper.tape(&me(), &card.id, exec, None).unwrap();
    let tenant = me();
    let both = tokio::join!(keeper.kill(&tenant, &card.id), keeper.kill(&tenant, &card.id));
    assert!(matches!(&both, (Ok(one), Ok(other)) if one == other), "{both:?}");
    assert!(matches!(keeper.kill(&tenant, &card.id).await, Err(KeepError::Gone)));
    let (_, _, ended) = hear(tape).await;
    assert!(matches!(ended, ExecEnded::BoxEnded { code, .. } if code == "killed"));
    assert!(matches!(keeper.get(&me(), &card.id), Err(KeepError::Gone)));
    assert_eq!(keeper.receipt(&me(), &card.id).unwrap().box_id, Some(card.id));
    keeper.stop().await;
}

#[tokio::test]
async fn what_carries_for_strangers_pushes_no_command_of_the_owner_off_the_list() {
    let Some(keeper) = keeper(roomy()) else { return };
    let card = keeper.create(&me(), new_box()).await.unwrap();
    let exec = keeper.exec(&me(), &card.id, shell("echo mine")).await.unwrap();
    hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await;
    // More than are remembered.
    for _ in 0..70 {
        let (number, tape) = keeper.carry(&me(), &card.id, shell("echo theirs")).await.unwrap();
        assert_eq!(hear(tape).await.0, b"theirs\n");
        until("it is forgotten", || keeper.tape(&me(), &card.id, number, None).is_err()).await;
    }
    let (_, cards) = keeper.get(&me(), &card.id).unwrap();
    assert_eq!(cards.iter().map(|card| card.exec).collect::<Vec<_>>(), [exec]);
    assert_eq!(hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await.0, b"mine\n");
    keeper.stop().await;
}

#[tokio::test]
async fn a_command_that_comes_while_its_box_is_ended_runs_and_ends_with_it_or_is_refused() {
    let Some(keeper) = keeper(roomy()) else { return };
    for round in 0..20 {
        let card = keeper.create(&me(), new_box()).await.unwrap();
        let asking = |keeper: Keeper, id: blastbox_wire::BoxId| async move {
            for _ in 0..round % 5 {
                tokio::task::yield_now().await;
            }
            let exec = keeper.exec(&me(), &id, shell("sleep 60")).await?;
            Ok::<_, KeepError>(keeper.tape(&me(), &id, exec, None).ok())
        };
        let (one, two) = (asking(keeper.clone(), card.id.clone()), asking(keeper.clone(), card.id.clone()));
        let (one, two) = (tokio::spawn(one), tokio::spawn(two));
        keeper.kill(&me(), &card.id).await.unwrap();
        for outcome in [one.await.unwrap(), two.await.unwrap()] {
            match outcome {
                Ok(Some(mut tape)) => {
                    while timeout(Duration::from_secs(20), tape.next()).await.unwrap().is_some() {}
                }
                Ok(None) | Err(KeepError::Gone) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(keeper.list(&me()).is_empty());
    }
    keeper.stop().await;
}

#[tokio::test]
async fn a_paused_box_runs_nothing_and_goes_on_when_resumed() {
    let Some(keeper) = keeper(roomy()) else { return };
    let card = keeper.create(&me(), new_box()).await.unwrap();
    let script = "while :; do echo x; sleep 0.01; done";
    let exec = keeper.exec(&me(), &card.id, shell(script)).await.unwrap();
    assert_eq!(keeper.pause(&me(), &card.id).await.unwrap().phase, Phase::Paused);
    let refused = keeper.exec(&me(), &card.id, shell("true")).await;
    assert!(matches!(refused, Err(KeepError::WrongPhase(Phase::Paused))));
    assert!(matches!(keeper.pause(&me(), &card.id).await, Err(KeepError::WrongPhase(Phase::Paused))));
    assert_eq!(keeper.resume(&me(), &card.id).await.unwrap().phase, Phase::Executing);
    keeper.signal(&me(), &card.id, exec, 15).await.unwrap();
    let (_, _, ended) = hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await;
    assert_eq!(ended, ExecEnded::Signalled { signal: 15 });
    keeper.stop().await;
}

#[tokio::test]
async fn a_command_is_killed_when_its_time_is_over_and_its_box_goes_on() {
    let Some(keeper) = keeper(roomy()) else { return };
    let card = keeper.create(&me(), new_box()).await.unwrap();
    let short = Some(Duration::from_millis(200));
    let exec = keeper.exec_within(&me(), &card.id, shell("sleep 60"), short).await.unwrap();
    let (_, _, ended) = hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await;
    assert_eq!(ended, ExecEnded::Signalled { signal: 9 });
    let (card, execs) = keeper.get(&me(), &card.id).unwrap();
    assert!(execs[0].timed_out && card.phase == Phase::Ready);
    keeper.stop().await;
}

#[tokio::test]
async fn life_and_idleness_end_a_box_or_pause_it_as_its_owner_chose() {
    let Some(keeper) = keeper(roomy()) else { return };
    let mut events = keeper.subscribe(Some(&me()));
    let soon = Duration::from_millis(300);
    let busy = keeper.create(&me(), NewBox { life: soon, ..new_box() }).await.unwrap();
    let exec = keeper.exec(&me(), &busy.id, shell("sleep 60")).await.unwrap();
    let (_, _, ended) = hear(keeper.tape(&me(), &busy.id, exec, None).unwrap()).await;
    assert!(matches!(ended, ExecEnded::BoxEnded { code, .. } if code == "timed_out"));
    until("the box is gone", || keeper.receipt(&me(), &busy.id).is_some()).await;
    assert_eq!(keeper.receipt(&me(), &busy.id).unwrap().outcome, Outcome::TimedOut);

    let idle = keeper.create(&me(), NewBox { idle: soon, ..new_box() }).await.unwrap();
    until("the idle box is gone", || keeper.receipt(&me(), &idle.id).is_some()).await;

    let paused = NewBox { life: soon, on_timeout: OnTimeout::Pause, ..new_box() };
    let paused = keeper.create(&me(), paused).await.unwrap();
    until("it is paused", || {
        keeper.get(&me(), &paused.id).is_ok_and(|(card, _)| card.phase == Phase::Paused)
    })
    .await;
    keeper.set_deadline(&me(), &paused.id, Duration::from_secs(60)).unwrap();
    assert_eq!(keeper.resume(&me(), &paused.id).await.unwrap().phase, Phase::Ready);
    keeper.stop().await;
    let mut told = Vec::new();
    while let Some(EventItem::Event(event)) = events.next().await {
        told.push(event);
    }
    let warned = |event: &&std::sync::Arc<KeeperEvent>| matches!(event.what, Happened::DeadlineNear { .. });
    assert!(told.iter().any(|event| warned(&event) && event.box_id.as_ref() == Some(&busy.id)));
    let reasons: Vec<&str> = told
        .iter()
        .filter_map(|event| match &event.what {
            Happened::BoxEnded { reason, .. } => Some(reason.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["timed_out", "idle", "stopped"]);
}

#[tokio::test]
async fn a_flood_that_nobody_reads_is_dropped_from_its_beginning_and_one_that_is_held_back_is_whole() {
    let Some(keeper) = keeper(roomy()) else { return };
    let card = keeper.create(&me(), new_box()).await.unwrap();
    let script = "head -c 5000000 /dev/zero";
    let exec = keeper.exec(&me(), &card.id, shell(script)).await.unwrap();
    until("it is over", || keeper.get(&me(), &card.id).unwrap().1[0].ended.is_some()).await;
    let (printed, dropped, ended) = hear(keeper.tape(&me(), &card.id, exec, None).unwrap()).await;
    assert_eq!((printed.len() as u64 + dropped, ended), (5_000_000, OK));
    assert!(printed.len() > 500_000 && dropped > 3_000_000);
    let exec = keeper.exec(&me(), &card.id, shell(&format!("sleep 0.2; {script}"))).await.unwrap();
    let reader = keeper.tape(&me(), &card.id, exec, None).unwrap().hold_back();
    sleep(Duration::from_millis(600)).await;
    let (printed, dropped, ended) = hear(reader).await;
    assert_eq!((printed.len(), dropped, ended), (5_000_000, 0, OK));
    keeper.stop().await;
}

#[tokio::test]
async fn a_denied_system_call_is_told_while_the_box_lives() {
    let Some(keeper) = keeper(roomy()) else { return };
    let mut events = keeper.subscribe(Some(&me()));
    let card = keeper.create(&me(), new_box()).await.unwrap();
    keeper.exec(&me(), &card.id, shell("mount -t tmpfs x /tmp; unshare -U true; sleep 30")).await.unwrap();
    let denied = async {
        while let Some(item) = events.next().await {
            if let EventItem::Event(event) = item
                && let Happened::SyscallDenied { .. } = event.what
            {
                return;
            }
        }
        panic!("no denial was told");
    };
    timeout(Duration::from_secs(10), denied).await.unwrap();
    assert!(!keeper.metrics().denials.is_empty());
    keeper.stop().await;
}
