//! Pages of a list: where one stands in it, whatever comes and goes beside it.

use std::cmp::Reverse;

use axum::http::{HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::e2b::no::No;

/// Entries of a page.
pub(in crate::e2b) const MOST: usize = 100;
const NEXT: HeaderName = HeaderName::from_static("x-next-token");

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::e2b) enum Order {
    OldestFirst,
    #[default]
    NewestFirst,
}

/// The header that says where the next page begins; without it there is none.
pub(in crate::e2b) type Next = Option<(HeaderName, HeaderValue)>;

/// How many are asked for.
pub(in crate::e2b) fn limit(asked: Option<&str>) -> Result<usize, No> {
    let Some(asked) = asked else { return Ok(MOST) };
    let limit = asked.parse().ok().filter(|limit| (1..=MOST).contains(limit));
    limit.ok_or_else(|| No::bad(format!("limit is 1 to {MOST}")))
}

/// The place that a token means.
pub(in crate::e2b) fn place(token: &str) -> Result<String, No> {
    let place = URL_SAFE_NO_PAD.decode(token).ok();
    let place = place.and_then(|place| String::from_utf8(place).ok());
    place.ok_or_else(|| No::bad("nextToken is not one of ours"))
}

/// Those of one page, each with its place, and where the next one begins, if there is one.
pub(in crate::e2b) fn cut<T>(
    mut all: Vec<(String, T)>,
    order: Order,
    limit: usize,
    after: Option<&str>,
) -> (Vec<(String, T)>, Next) {
    match order {
        Order::OldestFirst => all.sort_by(|left, right| left.0.cmp(&right.0)),
        Order::NewestFirst => all.sort_by(|left, right| Reverse(&left.0).cmp(&Reverse(&right.0))),
    }
    all.retain(|(place, _)| match (after, order) {
        (None, _) => true,
        (Some(after), Order::OldestFirst) => place.as_str() > after,
        (Some(after), Order::NewestFirst) => place.as_str() < after,
    });
    let more = all.len() > limit;
    all.truncate(limit);
    let next = all.last().filter(|_| more).map(|(place, _)| URL_SAFE_NO_PAD.encode(place));
    let next = next.and_then(|next| HeaderValue::try_from(next).ok()).map(|next| (NEXT, next));
    (all, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_one_another_in_either_order_and_the_last_has_no_next() {
        let all: Vec<(String, ())> = ["a", "b", "c"].map(|place| (place.to_owned(), ())).into();
        for (order, expected) in
            [(Order::OldestFirst, ["a", "b", "c"]), (Order::NewestFirst, ["c", "b", "a"])]
        {
            let mut after = None;
            for (index, expected) in expected.iter().enumerate() {
                let (page, next) = cut(all.clone(), order, 1, after.as_deref());
                assert_eq!(page.iter().map(|(place, ())| place.as_str()).collect::<Vec<_>>(), [*expected]);
                assert_eq!(next.is_some(), index < 2);
                after = next.map(|(_, token)| place(token.to_str().unwrap()).unwrap());
            }
        }
        assert!(place("%").is_err() && limit(Some("0")).is_err() && limit(None).unwrap() == MOST);
    }
}
