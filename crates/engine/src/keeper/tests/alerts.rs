//! Alerts that a real box raises.

use std::collections::BTreeSet;

use blastbox_wire::receipt::LimitName;

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
        if let TapeEvent::Ended { .. } = heard {
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

/// What fills a limit, and then stays.
#[tokio::test]
async fn a_limit_is_told_while_the_box_that_met_it_lives_and_not_once_more_at_its_end() {
    let Some(keeper) = keeper(roomy()) else { return };
    let powers = keeper.0.engine.powers();
    let few = draft().inodes(64);
    let cases = [
        // A line that never ends is kept whole.
        (LimitName::Memory, powers.memory, draft(), "head -c 200000000 /dev/zero | tail >/dev/null"),
        (
            LimitName::Pids,
            powers.pids,
            draft().pids(16),
            "i=0; while [ $i -lt 40 ]; do sleep 60 & i=$((i+1)); done",
        ),
        (LimitName::Disk, true, draft().disk(Bytes::mib(1)), "head -c 2000000 /dev/zero >/tmp/x"),
        (LimitName::Inodes, true, few, "i=0; while [ $i -lt 90 ]; do touch /tmp/$i; i=$((i+1)); done"),
    ];
    for (limit, holds, draft, script) in cases {
        if !holds {
            blastbox_skips::left_out(
                "a_limit_is_told_while_the_box_that_met_it_lives_and_not_once_more_at_its_end",
                &format!("{limit:?}"),
                "it is not counted on this host",
            );
            continue;
        }
        let mut events = keeper.subscribe(None);
        let card = keeper.create(&me(), NewBox::new(draft.seal().unwrap(), Image::host())).await.unwrap();
        // In a shell of its own: one that cannot fork gives up.
        let script = format!("(eval '{script}'); exec sleep 60");
        keeper.exec(&me(), &card.id, shell(&script)).await.unwrap();
        let met = |item: &EventItem| matches!(item, EventItem::Event(event) if event.what == Happened::LimitMet { limit });
        loop {
            let item = timeout(Duration::from_secs(60), events.next()).await.unwrap().unwrap();
            if met(&item) {
                break;
            }
        }
        assert_eq!(keeper.get(&me(), &card.id).unwrap().0.phase, Phase::Executing, "{limit:?}");
        let receipt = keeper.kill(&me(), &card.id).await.unwrap();
        assert!(receipt.limits_hit.contains(&limit), "{limit:?}: {:?}", receipt.limits_hit);
        let (mut again, mut over) = (0, false);
        while !over {
            let item = timeout(Duration::from_secs(60), events.next()).await.unwrap().unwrap();
            again += usize::from(met(&item));
            over =
                matches!(&item, EventItem::Event(event) if matches!(event.what, Happened::BoxEnded { .. }));
        }
        // It may have been met again after it was told: then its end says so, once.
        assert!(again <= 1 && (limit != LimitName::Disk || again == 0), "{limit:?} {again}");
    }
    keeper.stop().await;
}
