//! Deadlines that are set while a box comes back from disk.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::super::on_disk::OnDisk;
use super::{keeper, me, new_box, roomy, wall_clock};
use crate::keeper::{BoxCard, NewBox};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_box_that_comes_back_from_disk_has_the_deadline_that_was_set_last_wherever_it_was_found() {
    let Some(keeper) = keeper(roomy()) else { return };
    let house = &keeper.0;
    let made = keeper.create(&me(), NewBox { life: HOUR, ..new_box() }).await.unwrap();
    // Times of one form are in the order of their letters.
    let ends_after = |card: &BoxCard, life: Duration| card.ends_at >= wall_clock(SystemTime::now() + life);
    let kept = house.find(&me(), &made.id).unwrap();

    // It lies on disk for everybody who asks, and is made meanwhile.
    house.lies_on_disk(OnDisk::of(&kept));
    let asked = keeper.set_deadline(&me(), &made.id, 3 * HOUR).unwrap();
    assert!(asked.on_disk && ends_after(&asked, 2 * HOUR));
    assert!(!ends_after(&kept.card(), 2 * HOUR), "nobody has told the box itself");

    house.move_in(&Arc::clone(&kept)).unwrap();
    assert!(ends_after(&kept.card(), 2 * HOUR), "what was asked of the one on disk holds at once");
    let later = keeper.set_deadline(&me(), &made.id, 5 * HOUR).unwrap();
    assert!(!later.on_disk && ends_after(&later, 4 * HOUR));
    assert!(ends_after(&keeper.get(&me(), &made.id).unwrap().0, 4 * HOUR));
    keeper.stop().await;
}
