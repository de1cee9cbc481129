//! Limits that a box meets while it lives.

use blastbox_wire::receipt::LimitName;
use blastbox_wire::warden::Ask;

use super::*;
use crate::met::Met;

/// Looks, and waits until the warden was asked for the numbers of the box so often.
async fn look(rig: &Rig, times: usize) {
    rig.live.look_for_limits();
    let count =
        |asked: &[(Ask, Vec<OwnedFd>)]| asked.iter().filter(|(ask, _)| matches!(ask, Ask::Count(_))).count();
    while count(&rig.link.asked.lock().unwrap()) < times {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn whoever_looks_hears_what_the_kernel_counted_and_what_the_agent_found() {
    let mut rig = calm();
    rig.hello();
    let exec = rig.exec().await;
    rig.say(&AgentFrame::Started { exec: 1, pid: 2 });
    look(&rig, 1).await;
    // The command, and the question for a sign of life.
    assert_eq!((rig.hear(), rig.hear()), (130, 137));
    let spent = Spent { oom_kills: 3, ..Spent::default() };
    rig.link.hand_out(Answer::Counted { box_id: rig.id.clone(), spent });
    rig.live.bells.alarm.notified().await;
    assert_eq!(rig.live.bells.met(), Met { memory: 3, ..Met::default() });
    rig.say(&AgentFrame::Full { met: [true, false, false, false] });
    rig.live.bells.alarm.notified().await;
    assert_eq!(rig.live.bells.met(), Met { memory: 3, disk: 1, ..Met::default() });
    // An agent that has not answered is asked nothing more.
    look(&rig, 2).await;
    rig.say(&AgentFrame::Exited { exec: 1, exit: Exit::Code(0), usage: Usage::default() });
    assert!(matches!(last(&exec).await.1, ExecEnd::Exited { .. }));
    assert!(!rig.live.is_stopped());
    rig.agent.set_nonblocking(true).unwrap();
    assert!(rig.agent.read(&mut [0; 8]).is_err(), "there is nothing to read");
    let ended = rig.gone(spent).await;
    assert_eq!(ended.tally.filled().collect::<Vec<_>>(), [LimitName::Disk]);
}

#[tokio::test]
async fn a_guest_that_says_without_end_that_it_is_full_costs_a_number() {
    let mut rig = calm();
    rig.hello();
    let full = AgentFrame::Full { met: [false, true, false, false] }.encode();
    rig.agent.write_all(&full.repeat(1_000)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while rig.live.bells.met().inodes < 1_000 {
        assert!(Instant::now() < deadline);
        rig.live.bells.alarm.notified().await;
    }
    assert_eq!(rig.gone(Spent::default()).await.tally.filled().count(), 1);
}

#[tokio::test]
async fn what_a_box_met_before_it_was_taken_over_is_told_by_whoever_took_it() {
    let (mut rig, stood) = adopted::adopted(&[]).await;
    rig.say(&AgentFrame::Full { met: [true, false, false, false] });
    rig.say(&AgentFrame::Standing { token: 5, printed: 0, execs: Vec::new() });
    rig.live.ready().await.unwrap();
    stood.await.unwrap();
    let counted = |oom_kills| Answer::Counted {
        box_id: rig.id.clone(),
        spent: Spent { oom_kills, ..Spent::default() },
    };
    // Asked at once: what it met while nobody looked is news.
    assert!(rig.link.asked.lock().unwrap().iter().any(|(ask, _)| matches!(ask, Ask::Count(_))));
    rig.link.hand_out(counted(2));
    rig.link.hand_out(counted(3));
    while rig.live.bells.met().memory < 3 {
        rig.live.bells.alarm.notified().await;
    }
    assert_eq!(rig.live.bells.met(), Met { memory: 3, disk: 1, ..Met::default() });
    let ended = rig.gone(Spent::default()).await;
    assert_eq!(ended.tally.filled().collect::<Vec<_>>(), [LimitName::Disk]);
}

/// What decides about the outcome of a machine's box; of any other the host's kernel alone says it. A worker that refuses memory has
/// killed nobody.
#[tokio::test]
async fn what_a_guest_says_of_memory_and_processes_counts_where_it_has_a_kernel_of_its_own() {
    for (own_kernel, refuses_memory) in [(false, false), (true, false), (false, true)] {
        let (mut rig, mut driver) = parked(Duration::from_secs(60), 1 << 30);
        (driver.log.own_kernel, driver.log.refuses_memory) = (own_kernel, refuses_memory);
        tokio::spawn(driver.run());
        rig.hello();
        rig.live.ready().await.unwrap();
        rig.say(&AgentFrame::Full { met: [false, false, true, true] });
        rig.say(&AgentFrame::Full { met: [false, true, false, true] });
        while rig.live.bells.met().inodes == 0 {
            rig.live.bells.alarm.notified().await;
        }
        let ended = rig.gone(Spent { oom_kills: 1, ..Spent::default() }).await;
        let counted = (ended.spent.oom_kills, ended.spent.pids_refused);
        assert_eq!(counted, if own_kernel { (2, 2) } else { (1, 0) });
        let memory = (own_kernel || refuses_memory).then_some(LimitName::Memory);
        let told: Vec<LimitName> = memory.into_iter().chain([LimitName::Inodes]).collect();
        assert_eq!(ended.tally.filled().collect::<Vec<_>>(), told);
    }
}
