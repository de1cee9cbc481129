//! A warden that is asked to stop a box, or to let it go on, and answers late.

use super::*;
use crate::error::PauseError;

#[tokio::test(start_paused = true)]
async fn a_warden_that_answers_no_pause_is_waited_for_so_long_and_what_it_does_later_is_undone() {
    let mut rig = calm();
    rig.hello();
    rig.live.ready().await.unwrap();
    let unanswered = Err(PauseError::Unanswered(PATIENCE));
    let asked = |rig: &Rig| -> Vec<Ask> {
        let asked = std::mem::take(&mut *rig.link.asked.lock().unwrap());
        asked.into_iter().map(|(ask, _)| ask).filter(|ask| !matches!(ask, Ask::Until { .. })).collect()
    };
    let moment = || tokio::time::sleep(Duration::from_millis(1));
    let begun = Instant::now();
    assert_eq!(rig.live.pause().await, unanswered);
    assert_eq!(begun.elapsed(), PATIENCE);
    assert!(matches!(asked(&rig).as_slice(), [Ask::Pause(_)]));
    // What comes next could be taken for the answer to another question.
    assert_eq!(rig.live.pause().await, unanswered);
    assert!(asked(&rig).is_empty());
    rig.link.hand_out(Answer::Paused { box_id: rig.id.clone() });
    moment().await;
    assert!(matches!(asked(&rig).as_slice(), [Ask::Resume(_)]), "it goes on, as its owner was told");
    rig.link.hand_out(Answer::Resumed { box_id: rig.id.clone() });
    moment().await;
    // From then on it is paused as any other; and the same the other way round.
    let (paused, ()) = tokio::join!(rig.live.pause(), async {
        moment().await;
        rig.link.hand_out(Answer::Paused { box_id: rig.id.clone() });
    });
    assert_eq!(paused, Ok(()));
    assert!(matches!(asked(&rig).as_slice(), [Ask::Pause(_)]));
    assert_eq!(rig.live.resume().await, unanswered);
    assert!(matches!(asked(&rig).as_slice(), [Ask::Resume(_)]));
    rig.link.hand_out(Answer::Resumed { box_id: rig.id.clone() });
    moment().await;
    assert!(matches!(asked(&rig).as_slice(), [Ask::Pause(_)]), "it stands still, as its owner was told");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_undone_ends_the_box_with_the_reason() {
    let mut rig = calm();
    rig.hello();
    rig.live.ready().await.unwrap();
    assert_eq!(rig.live.pause().await, Err(PauseError::Unanswered(PATIENCE)));
    rig.link.hand_out(Answer::Paused { box_id: rig.id.clone() });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let tried = "let the processes of the box go on".to_owned();
    rig.link.hand_out(Answer::NotPaused { box_id: rig.id.clone(), tried: tried.clone(), errno: 0 });
    rig.link.hand_out(Answer::Ended { box_id: rig.id.clone(), spent: Spent::default() });
    assert_eq!(rig.live.end().await.ending, Some(Ending::Lost(Loss::NotUndone(tried))));
}
