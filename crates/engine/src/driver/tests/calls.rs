//! Commands that call functions, and agents that say that theirs do.

use blastbox_wire::agent::ExecSpec;

use super::*;

#[tokio::test]
async fn an_agent_that_knows_no_calls_and_counts_no_work_lies_when_it_tells_of_some() {
    let usage = Usage { fuel: Some(1), ..Usage::default() };
    for lie in [
        AgentFrame::Call { exec: 1, call: 1, tool: "add", input: b"1" },
        AgentFrame::Exited { exec: 1, exit: Exit::FuelSpent, usage: Usage::default() },
        AgentFrame::Exited { exec: 1, exit: Exit::Code(0), usage },
    ] {
        let mut rig = calm();
        rig.hello();
        let exec = rig.exec().await;
        rig.say(&AgentFrame::Started { exec: 1, pid: 2 });
        rig.say(&lie);
        let (_, end) = last(&exec).await;
        assert!(matches!(end, ExecEnd::BoxEnded(Ending::Lost(Loss::GuestLied(_)))), "{lie:?}: {end:?}");
        let ended = rig.gone(Spent::default()).await;
        assert!(matches!(ended.ending, Some(Ending::Lost(Loss::GuestLied(_)))), "{:?}", ended.ending);
    }
}

/// Each refusal is longer than the call that it answers: one who only talks would have the host hold them all.
#[tokio::test]
async fn a_worker_that_calls_and_reads_no_answer_ends_its_box_and_fills_no_memory() {
    let mut rig = calm();
    rig.hello();
    let mut calls = Vec::new();
    for exec in 1..=30 {
        let (outlet, room) = (Arc::new(Outlet::default()), Arc::new(Semaphore::new(0)));
        let spec = Box::new(ExecSpec {
            exec,
            arguments: vec![b"x".to_vec()],
            environment: Vec::new(),
            directory: b"/".to_vec(),
            user: User::Payload,
            io: Io::Pipes,
            window: OUTPUT_WINDOW,
        });
        let offer = Offer::of(vec!["add".parse().unwrap()], None);
        rig.live.orders.send(Order::Exec { spec, outlet, room, offer }).await.unwrap();
        for call in 1..=4096 {
            calls.extend(AgentFrame::Call { exec, call, tool: "add", input: b"{" }.encode());
        }
    }
    // The driver takes the orders before the agent speaks of them.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut agent = rig.agent.try_clone().unwrap();
    // An error: nobody listens any more.
    let said = tokio::task::spawn_blocking(move || agent.write_all(&calls).ok());
    rig.live.stopped().await;
    let ended = rig.gone(Spent::default()).await;
    assert!(matches!(ended.ending, Some(Ending::Lost(Loss::GuestLied(_)))), "{:?}", ended.ending);
    assert!(ended.tally.refused_calls() > 0 && ended.tally.refused_calls() < 30 * 4096);
    said.await.unwrap();
}
