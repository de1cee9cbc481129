//! A keeper with a ledger: everything is announced, and what cannot be announced is not begun.

use blastbox_wire::event::Event;
use blastbox_wire::event::ledger_text::read_record;

use super::*;
use crate::keeper::past::Past;
use crate::keeper::past::tests::{box_id, lost_boxes, row};
use crate::ledger::{Entry, Grade, Ledger, Need, Options, Sink, SinkError, Trust, records, verify};
use crate::store::{BoxState, Store};

/// A directory of this test's own, gone at the end.
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("blastbox-recorded-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub(super) fn ledger(&self) -> PathBuf {
        self.0.join("ledger")
    }
    pub(super) fn options(&self) -> Options {
        Options::new(self.0.join("ledger"), self.0.join("key"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn recorded(place: &Place) -> Option<Keeper> {
    match program() {
        Ok(program) => {
            let engine = Engine::with_warden(Warden::start_program(&program).unwrap()).unwrap();
            let ledger = Ledger::open(place.options()).unwrap();
            Some(Keeper::start_recorded(engine, roomy(), ledger).unwrap())
        }
        Err(why) => {
            blastbox_skips::skip_this(why);
            None
        }
    }
}

#[tokio::test]
async fn the_life_of_a_box_is_in_the_ledger_in_its_order_and_verifies() {
    let place = Place::new("life");
    let Some(keeper) = recorded(&place) else { return };
    let card = keeper.create(&me(), new_box()).await.unwrap();
    let exec = keeper.exec(&me(), &card.id, shell("unshare -U true; exit 7")).await.unwrap();
    hear_any(keeper.tape(&me(), &card.id, exec, None).unwrap()).await;
    keeper.kill(&me(), &card.id).await.unwrap();
    keeper.stop().await;
    let report = verify(&place.0.join("ledger"), &Trust::default()).unwrap();
    assert!(report.is_intact(), "{report:?}");
    let mut kinds = Vec::new();
    records(&place.0.join("ledger"), |_, _, line| {
        let record = read_record(line).unwrap();
        let about = record.about.as_ref();
        match &record.event {
            Event::DaemonStarted { .. } => kinds.push("started"),
            Event::BoxAsked { .. } => kinds.push("asked"),
            Event::BoxReady { kernel, engine } => {
                assert_eq!((*kernel, engine.as_ref()), (None, None), "it has none of its own");
                assert_eq!(about.and_then(|about| about.box_id.as_ref()), Some(&card.id));
                kinds.push("ready");
            }
            Event::CommandAsked { exec: number, program, .. } => {
                assert_eq!((*number, program.as_str()), (exec, "/bin/sh"));
                kinds.push("command");
            }
            Event::CommandEnded { code, .. } => {
                assert_eq!(*code, Some(7));
                kinds.push("over");
            }
            Event::KillAsked { .. } => kinds.push("kill"),
            Event::BoxEnded { .. } => kinds.push("ended"),
            Event::DaemonStopped => kinds.push("stopped"),
            Event::SyscallDenied { name, .. } => {
                assert_eq!(name.as_ref().map(|name| name.as_str()), Some("unshare"));
            }
            _ => {}
        }
        Ok::<_, crate::ledger::LedgerError>(())
    })
    .unwrap();
    assert_eq!(kinds, ["started", "asked", "ready", "command", "over", "kill", "ended", "stopped"]);
}

#[tokio::test]
async fn a_keeper_whose_ledger_fails_begins_nothing_and_still_ends_boxes() {
    let place = Place::new("closed");
    let Some(keeper) = recorded(&place) else { return };
    let card = keeper.create(&me(), new_box()).await.unwrap();
    keeper.0.pen.jam_for_test(true);
    let refused = keeper.create(&me(), new_box()).await.unwrap_err();
    assert_eq!(refused.code(), "ledger_failed");
    let refused = keeper.exec(&me(), &card.id, shell("true")).await.unwrap_err();
    assert_eq!(refused.code(), "ledger_failed");
    assert_eq!(keeper.list(&me()).len(), 1);
    keeper.kill(&me(), &card.id).await.unwrap();
    assert!(keeper.list(&me()).is_empty());
    keeper.stop().await;
}

/// A sink that takes nothing until it is opened.
#[derive(Debug)]
struct Gate(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Sink for Gate {
    fn name(&self) -> &str {
        "gate"
    }
    fn grade(&self) -> Grade {
        Grade::Durable
    }
    fn deliver(&mut self, batch: &[Entry]) -> Result<u64, SinkError> {
        match batch.last() {
            Some(last) if self.0.load(std::sync::atomic::Ordering::SeqCst) => Ok(last.seq),
            Some(_) | None => Err(SinkError::NoProgress),
        }
    }
}

#[tokio::test]
async fn who_ends_a_box_that_is_being_ended_hears_what_the_first_hears_and_not_before() {
    let place = Place::new("both");
    let Some(keeper) = recorded(&place) else { return };
    let open = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    keeper.ship_to(Box::new(Gate(open.clone())), Need::MustAcknowledge).unwrap();
    let card = keeper.create(&me(), new_box()).await.unwrap();
    let kill = |keeper: Keeper, id: blastbox_wire::BoxId| async move { keeper.kill(&me(), &id).await };
    let first = tokio::spawn(kill(keeper.clone(), card.id.clone()));
    let written = || {
        let mut ends = 0;
        records(&place.0.join("ledger"), |_, _, line| {
            ends += u32::from(matches!(read_record(line).unwrap().event, Event::BoxEnded { .. }));
            Ok::<_, crate::ledger::LedgerError>(())
        })
        .unwrap();
        ends
    };
    until("its end is recorded", || written() == 1).await;
    // It is over, and not acknowledged: there is nothing to hear yet, whoever asks and how.
    let second = tokio::spawn(kill(keeper.clone(), card.id.clone()));
    assert_eq!(keeper.get(&me(), &card.id).unwrap().0.phase, Phase::Ending);
    assert!(keeper.receipt(&me(), &card.id).is_none() && !first.is_finished());
    tokio::task::yield_now().await;
    open.store(true, std::sync::atomic::Ordering::SeqCst);
    let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
    assert_eq!(first, second);
    assert!(matches!(keeper.kill(&me(), &card.id).await, Err(KeepError::Gone)));
    keeper.stop().await;
    assert_eq!((written(), keeper.untold()), (1, 0));
}

async fn hear_any(mut reader: TapeReader) {
    while timeout(Duration::from_secs(20), reader.next()).await.unwrap().is_some() {}
}

/// How often something that fits is in the ledger.
fn count(place: &Place, fits: impl Fn(&Event) -> bool) -> usize {
    let mut found = 0;
    records(&place.0.join("ledger"), |_, _, line| {
        found += usize::from(fits(&read_record(line).unwrap().event));
        Ok::<_, crate::ledger::LedgerError>(())
    })
    .unwrap();
    found
}

#[tokio::test]
async fn while_the_ledger_takes_nothing_what_a_gateway_told_waits_in_its_order() {
    use blastbox_wire::egress::Record;
    let place = Place::new("untold");
    let Some(keeper) = recorded(&place) else { return };
    let card = keeper.create(&me(), new_box()).await.unwrap();
    let kept = keeper.0.find(&me(), &card.id).unwrap();
    let mut untold = crate::keeper::traffic::Untold::default();
    let question = |name: &str| Record::Question { name: name.to_owned(), kind: 1, denied: None, count: 1 };
    let names: Vec<String> = (0..100).map(|number| format!("name-{number}.example")).collect();
    untold.add(names.iter().map(|name| question(name)).collect());
    keeper.0.pen.jam_for_test(true);
    untold.write(&keeper.0, &kept);
    // Nothing more is taken from the gateway as long as this holds.
    assert!(!untold.is_empty());
    keeper.0.pen.jam_for_test(false);
    untold.due().await;
    // Others have their turn in between.
    untold.write(&keeper.0, &kept);
    assert!(!untold.is_empty());
    untold.write(&keeper.0, &kept);
    assert!(untold.is_empty());
    keeper.kill(&me(), &card.id).await.unwrap();
    keeper.stop().await;
    let mut told = Vec::new();
    records(&place.0.join("ledger"), |_, _, line| {
        if let Event::NameAsked { name, .. } = read_record(line).unwrap().event {
            told.push(name.as_str().to_owned());
        }
        Ok::<_, crate::ledger::LedgerError>(())
    })
    .unwrap();
    assert_eq!(told, names);
}

#[tokio::test]
async fn what_becomes_of_a_lease_is_written_down_after_the_end_of_its_box() {
    let place = Place::new("late");
    let Some(keeper) = recorded(&place) else { return };
    let card = keeper.create(&me(), new_box()).await.unwrap();
    let about = keeper.0.find(&me(), &card.id).unwrap().about();
    keeper.kill(&me(), &card.id).await.unwrap();
    let (tell, news) = tokio::sync::mpsc::unbounded_channel();
    crate::keeper::unborn::write_rest(&keeper.0, about, Some(news));
    let why = "Vault did not answer in time".to_owned();
    tell.send(crate::leases::Told::NotRevoked { secret: "db".parse().unwrap(), why }).unwrap();
    until("it is written down", || count(&place, |event| matches!(event, Event::SecretTrouble { .. })) == 1)
        .await;
    keeper.stop().await;
}

#[tokio::test]
async fn an_end_that_is_in_the_ledger_is_not_recorded_again_by_the_next_daemon() {
    let place = Place::new("once");
    let Some(keeper) = recorded(&place) else { return };
    let card = keeper.create(&me(), new_box()).await.unwrap();
    keeper.kill(&me(), &card.id).await.unwrap();
    keeper.stop().await;
    drop(keeper);
    // Killed between the ledger and its store: there the box is still ending.
    let ends = || count(&place, |event| matches!(event, Event::BoxEnded { .. }));
    assert_eq!(ends(), 1);
    let store = Store::open(&place.0).unwrap();
    let mut ledger = Ledger::open(place.options()).unwrap();
    let left = lost_boxes(vec![row(&card.id, BoxState::Ending)]);
    Past::record(&mut ledger, &store, &left, &[]).unwrap();
    assert_eq!(ends(), 1);
    // Killed after its file was taken away, where the store did not take that it is ending: its row says that it lies there.
    Past::record(&mut ledger, &store, &lost_boxes(Vec::new()), &[row(&card.id, BoxState::OnDisk)]).unwrap();
    assert_eq!(ends(), 1);
}

#[tokio::test]
async fn the_end_of_a_box_that_is_not_taken_over_is_told_when_the_sink_has_it_and_keeps_no_door_closed() {
    let place = Place::new("lost");
    let Some(keeper) = recorded(&place) else { return };
    let open = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    keeper.ship_to(Box::new(Gate(open.clone())), Need::MustAcknowledge).unwrap();
    let (id, ends) = (box_id(7), || count(&place, |event| matches!(event, Event::BoxEnded { .. })));
    let mut events = keeper.subscribe(None);
    keeper.0.pen.jam_for_test(true);
    let (channel, _agent) = std::os::unix::net::UnixStream::pair().unwrap();
    // What is written down of it is not what was sealed. The start of the daemon waits for its boxes, and not for a sink.
    let lost = vec![(row(&id, BoxState::Live), channel.into())];
    assert_eq!(timeout(Duration::from_secs(10), keeper.adopt(lost)).await.unwrap(), 0);
    let asked = || keeper.get(&me(), &id).unwrap_err();
    assert!(matches!(asked(), KeepError::Unacknowledged), "{:?}", asked());
    assert_eq!((ends(), keeper.untold()), (0, 1));
    keeper.0.pen.jam_for_test(false);
    until("its end is recorded", || ends() == 1).await;
    assert!(matches!(asked(), KeepError::Unacknowledged), "the sink does not have it: {:?}", asked());
    open.store(true, std::sync::atomic::Ordering::SeqCst);
    let told = async {
        loop {
            if let Some(EventItem::Event(event)) = events.next().await
                && matches!(
                    event.what,
                    Happened::BoxEnded { outcome: blastbox_wire::receipt::Outcome::Lost, .. }
                )
            {
                return event;
            }
        }
    };
    let told = timeout(Duration::from_secs(20), told).await.unwrap();
    assert_eq!((told.box_id.as_ref(), ends(), keeper.untold()), (Some(&id), 1, 0));
    keeper.stop().await;
}
