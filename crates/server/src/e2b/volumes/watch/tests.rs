//! A volume that nobody can look at is not taken for a small one.

use super::super::shelf::VolumeLimits;
use super::*;
use crate::testing::Scratch;

#[tokio::test]
async fn who_cannot_be_measured_three_times_in_a_row_has_too_much() {
    let scratch = Scratch::new("watch");
    let limits = VolumeLimits { count: 2, size: 1 << 20 };
    let shelf = Arc::new(Shelf::open(scratch.path(), limits).unwrap());
    let ann = "ann".parse().unwrap();
    let (id, other) = (shelf.make(&ann, "data").unwrap().id, shelf.make(&ann, "other").unwrap().id);
    let (place, away) = (scratch.path().join(&id), scratch.path().join("away"));
    let mut eyes = Eyes::default();
    for _ in 0..2 {
        std::fs::rename(&place, &away).unwrap();
        assert_eq!([eyes.look(&shelf, &id).await, eyes.look(&shelf, &id).await], [None, None]);
        // One look that sees it begins anew.
        std::fs::rename(&away, &place).unwrap();
        assert_eq!(eyes.look(&shelf, &id).await, None);
    }
    std::fs::rename(&place, &away).unwrap();
    assert_eq!([eyes.look(&shelf, &id).await, eyes.look(&shelf, &id).await], [None, None]);
    assert_eq!(eyes.look(&shelf, &other).await, None);
    let why = eyes.look(&shelf, &id).await.unwrap();
    assert!(why.message() == "cannot be measured" && why.reason().contains("No such file"), "{why:?}");
    std::fs::rename(&away, &place).unwrap();
    std::fs::write(place.join("much"), vec![7; 2 << 20]).unwrap();
    assert_eq!(eyes.look(&shelf, &id).await, Some(Why::Outgrown("bytes")));
}
