//! A box that is put to sleep to be copied.

use blastbox_wire::agent::{Morning, WAKE};

use super::*;

impl Rig {
    async fn falling(&mut self) -> oneshot::Receiver<Result<(), Sleepless>> {
        let (to, from) = oneshot::channel();
        self.live.orders.send(Order::Sleep(to)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        from
    }
}

#[tokio::test]
async fn a_box_that_sleeps_is_told_nothing_and_says_nothing_until_the_morning() {
    let mut rig = calm();
    rig.hello();
    rig.live.ready().await.unwrap();
    let falling = rig.falling().await;
    assert_eq!(rig.hear(), 147);
    rig.say(&AgentFrame::Asleep { errno: 0 });
    assert_eq!(falling.await.unwrap(), Ok(()));
    // What is asked meanwhile waits.
    let _exec = rig.exec().await;
    rig.agent.set_nonblocking(true).unwrap();
    let silence = rig.agent.read(&mut [0]).unwrap_err();
    assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
    rig.agent.set_nonblocking(false).unwrap();
    rig.live.wake();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut morning = [0; WAKE];
    rig.agent.read_exact(&mut morning).unwrap();
    assert_eq!(Morning::parse(&morning), Ok(Morning::Same));
    assert_eq!(rig.hear(), 130);
    // It sleeps again, and talks in its sleep.
    let falling = rig.falling().await;
    assert_eq!(rig.hear(), 147);
    rig.say(&AgentFrame::Asleep { errno: 0 });
    assert_eq!(falling.await.unwrap(), Ok(()));
    rig.say(&AgentFrame::Full { met: [true, false, false, false] });
    rig.live.stopped().await;
    assert!(matches!(rig.gone(Spent::default()).await.ending, Some(Ending::Lost(Loss::GuestLied(_)))));
}

#[tokio::test]
async fn a_box_that_cannot_sleep_goes_on_and_one_that_was_not_asked_to_has_lied() {
    let mut rig = calm();
    rig.hello();
    rig.live.ready().await.unwrap();
    let falling = rig.falling().await;
    assert_eq!(rig.hear(), 147);
    rig.say(&AgentFrame::Asleep { errno: 110 });
    assert_eq!(falling.await.unwrap(), Err(Sleepless::Guest(110)));
    let _exec = rig.exec().await;
    assert_eq!(rig.hear(), 130);
    rig.say(&AgentFrame::Asleep { errno: 0 });
    rig.live.stopped().await;
    assert!(matches!(rig.gone(Spent::default()).await.ending, Some(Ending::Lost(Loss::GuestLied(_)))));
}

#[tokio::test]
async fn whoever_wanted_it_to_sleep_and_went_away_does_not_leave_it_asleep() {
    let mut rig = calm();
    rig.hello();
    rig.live.ready().await.unwrap();
    drop(rig.falling().await);
    assert_eq!(rig.hear(), 147);
    rig.say(&AgentFrame::Asleep { errno: 0 });
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut morning = [0; WAKE];
    rig.agent.read_exact(&mut morning).unwrap();
    assert_eq!(Morning::parse(&morning), Ok(Morning::Same));
}

#[tokio::test]
async fn nobody_waits_for_ever_for_a_box_to_sleep_and_one_that_does_so_late_goes_on() {
    let mut rig = calm();
    rig.hello();
    rig.live.ready().await.unwrap();
    let slept = rig.live.sleep(Duration::from_millis(20)).await;
    assert_eq!(slept, Err(Some(Sleepless::Late)));
    assert_eq!(rig.hear(), 147);
    rig.say(&AgentFrame::Asleep { errno: 0 });
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut morning = [0; WAKE];
    rig.agent.read_exact(&mut morning).unwrap();
    assert_eq!(Morning::parse(&morning), Ok(Morning::Same));
    // Whoever has gone away before it comes to it is not obeyed at all.
    let (to, _) = oneshot::channel();
    rig.live.orders.send(Order::Sleep(to)).await.unwrap();
    let _exec = rig.exec().await;
    assert_eq!(rig.hear(), 130);
}
