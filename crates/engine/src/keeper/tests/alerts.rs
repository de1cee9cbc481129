//! Alerts that a real box raises.

use std::collections::BTreeSet;

use super::*;
use crate::ledger::AlertCode;

#[tokio::test]
async fn what_a_box_tries_and_what_it_meets_is_told_to_a_person() {
    let Some(keeper) = keeper(roomy()) else { return };
    let mut events = keeper.subscribe(None);
    let few = NewBox::new(draft().pids(16).seal().unwrap(), Image::host());
    let card = keeper.create(&me(), few).await.unwrap();
    // The first is kept from it by the filter, the second by the limit on processes.
    let script = "/usr/sbin/chroot /tmp true; i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i+1)); done";
    let exec = keeper.exec(&me(), &card.id, shell(script)).await.unwrap();
    let mut tape = keeper.tape(&me(), &card.id, exec, None).unwrap();
    while let Some((_, heard)) = timeout(Duration::from_secs(20), tape.next()).await.unwrap() {
        if let TapeEvent::Ended(_) = heard {
            break;
        }
    }
    keeper.kill(&me(), &card.id).await.unwrap();
    keeper.stop().await;
    let mut raised = BTreeSet::new();
    while let Some(item) = events.next().await {
        if let EventItem::Event(event) = item
            && let Some(alert) = &event.alert
        {
            raised.insert(alert.code.as_str());
        }
    }
    assert!(raised.contains(AlertCode::MountAttempt.as_str()), "{raised:?}");
    let counted = keeper.metrics().denials;
    assert!(counted.contains_key("chroot"), "{counted:?}");
    // Where there is no group there is no limit on processes, which is a gap with a name.
    if keeper.0.engine.powers().pids {
        assert!(raised.contains(AlertCode::LimitMet.as_str()), "{raised:?}");
    }
}
