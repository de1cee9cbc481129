//! A line to a program that reads when it is let, and answers nothing.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use super::*;

fn id(number: u16) -> BoxId {
    let mut random = [0; 20];
    // Five bits of each are told apart.
    random[..3]
        .copy_from_slice(&[number, number >> 5, number >> 10].map(|part| u8::try_from(part % 32).unwrap()));
    BoxId::from_random(random)
}

fn unsent(link: &Link) -> bool {
    lock(&link.line().unwrap().warden).has_unsent()
}

#[tokio::test]
async fn a_kill_that_a_stopped_warden_has_no_room_for_is_sent_when_it_goes_on() {
    let warden = Warden::start_program(Path::new("/bin/cat")).unwrap();
    let pid = Pid::from_raw(i32::try_from(warden.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let supply: Supply = Box::new(|| Err(WardenError::Ended { status: None }));
    let link = Link::new(warden, supply).unwrap();
    // A thousand looks at once are a few messages.
    (0..1000).for_each(|number| link.count(&id(number)));
    assert!(!unsent(&link), "looks leave room");
    assert!(lock(&link.counts).in_flight() <= 8, "and no more of them are on their way");
    let mut boxes = 0..u16::MAX;
    while !unsent(&link) {
        link.say(Ask::Until { box_id: id(boxes.next().unwrap()), millis: 1 }).unwrap();
    }
    link.say(Ask::Kill(id(0))).unwrap();
    link.count(&id(0));
    assert!(unsent(&link));
    let listener = tokio::spawn(listen(Arc::downgrade(&link)));
    kill_process(pid, Signal::CONT).unwrap();
    let sent = async {
        while unsent(&link) {
            sleep(AGAIN).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), sent)
        .await
        .expect("it is sent once the warden reads again");
    listener.abort();
}

/// The runtime of this test has one thread: where asking held it, nobody could let the warden go on.
#[tokio::test]
async fn whoever_asks_a_stopped_warden_holds_up_no_thread() {
    let warden = Warden::start_program(Path::new("/bin/cat")).unwrap();
    let pid = Pid::from_raw(i32::try_from(warden.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let supply: Supply = Box::new(|| Err(WardenError::Ended { status: None }));
    let link = Link::new(warden, supply).unwrap();
    let mut boxes = 0..u16::MAX;
    while !unsent(&link) {
        link.say(Ask::Until { box_id: id(boxes.next().unwrap()), millis: 1 }).unwrap();
    }
    let asker = Arc::clone(&link);
    let asking = tokio::spawn(async move { asker.ask(&Ask::Sweep, &[]).await });
    for _ in 0..3 {
        sleep(AGAIN).await;
    }
    assert!(!asking.is_finished());
    kill_process(pid, Signal::CONT).unwrap();
    asking.await.unwrap().unwrap();
    assert!(!unsent(&link), "and what was said before went first");
}
