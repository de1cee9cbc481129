//! Paging: a list in a fixed order, cut where a page ends, and a cursor that says where the next begins.
//!
//! The order is that of creation, so that boxes made or ended meanwhile neither repeat nor hide others.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blastbox_engine::keeper::BoxCard;
use serde::Serialize;

use crate::Trouble;
use crate::take::Query;

const USUAL: usize = 100;
const MOST: usize = 1000;

/// Which part of a list is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    limit: usize,
    after: Option<String>,
}

/// One page of boxes.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    pub(crate) boxes: Vec<BoxCard>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

impl Wanted {
    pub(crate) fn from(query: &Query) -> Result<Self, Trouble> {
        let limit = query.parsed("limit", "a number")?.unwrap_or(USUAL);
        if !(1..=MOST).contains(&limit) {
            return Err(Trouble::BadQuery(format!("`limit` is out of range; permitted is 1 to {MOST}")));
        }
        let after = query.text("cursor").map(|cursor| {
            let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
            bytes.and_then(|bytes| String::from_utf8(bytes).ok())
        });
        let bad = || Trouble::BadQuery("the cursor is not one of ours".to_owned());
        let after = after.map(|place| place.ok_or_else(bad)).transpose()?;
        Ok(Self { limit, after })
    }
}

fn place(card: &BoxCard) -> String {
    format!("{} {}", card.created_at, card.id.as_str())
}

/// Cuts a page out of all boxes.
pub(crate) fn cut(boxes: Vec<BoxCard>, wanted: &Wanted) -> Page {
    let mut all: Vec<(String, BoxCard)> = boxes.into_iter().map(|card| (place(&card), card)).collect();
    all.sort_by(|left, right| left.0.cmp(&right.0));
    all.retain(|(place, _)| wanted.after.as_ref().is_none_or(|after| place > after));
    let more = all.len() > wanted.limit;
    all.truncate(wanted.limit);
    let next = all.last().filter(|_| more).map(|(place, _)| URL_SAFE_NO_PAD.encode(place));
    Page { boxes: all.into_iter().map(|(_, card)| card).collect(), next }
}

#[cfg(test)]
mod tests {
    use blastbox_engine::keeper::{OnTimeout, Phase, Tenant};
    use blastbox_policy::{ThreatLevel, Tier};
    use blastbox_wire::BoxId;

    use super::*;

    fn card(number: u8) -> BoxCard {
        BoxCard {
            id: BoxId::from_random([number; 20]),
            tenant: Tenant::local(),
            phase: Phase::Ready,
            tier: Tier::Jail,
            level: ThreatLevel::High,
            policy: String::new(),
            image: "host".into(),
            gaps: Vec::new(),
            created_at: format!("2026-01-01T00:00:00.{:03}Z", number / 2),
            ends_at: String::new(),
            idle_seconds: 0,
            on_timeout: OnTimeout::Destroy,
            on_disk: false,
            warm: false,
            metadata: Default::default(),
        }
    }

    fn wanted(text: &str) -> Result<Wanted, Trouble> {
        Wanted::from(&Query::of(text))
    }

    #[test]
    fn pages_together_are_the_whole_list_though_boxes_come_and_go() {
        let mut boxes: Vec<BoxCard> = (0..10).rev().map(card).collect();
        let (mut seen, mut query) = (Vec::new(), "limit=3".to_owned());
        loop {
            let page = cut(boxes.clone(), &wanted(&query).unwrap());
            seen.extend(page.boxes.iter().map(|card| card.id.clone()));
            boxes.retain(|card| card.id != seen[0]);
            let Some(next) = page.next else { break };
            query = format!("limit=3&cursor={next}");
        }
        assert_eq!(seen, (0..10).map(|number| card(number).id).collect::<Vec<_>>());
    }

    #[test]
    fn a_page_that_nobody_could_want_is_refused() {
        for bad in ["limit=0", "limit=1001", "limit=-1", "limit=x", "cursor=%", "cursor=_w"] {
            assert!(wanted(bad).is_err(), "{bad}");
        }
        assert_eq!(wanted("").unwrap(), Wanted { limit: USUAL, after: None });
    }
}
