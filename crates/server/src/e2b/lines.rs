//! Which lines of a log are asked for: of a sandbox's, or of a build's.

use std::time::SystemTime;

use super::no::No;
use super::{form, moment};

const LONGEST_SEARCH: usize = 256;
const LEVELS: [&str; 4] = ["debug", "info", "warn", "error"];

/// From where on, in which direction, and what is too little to be told.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) backward: bool,
    cursor: Option<i64>,
    least: usize,
    search: String,
}

impl Choice {
    /// `cursor`, `direction`, `level` and `search` of a query.
    pub(super) fn of(query: &[(String, String)]) -> Result<Self, No> {
        let backward = match form::value(query, "direction") {
            None | Some("forward") => false,
            Some("backward") => true,
            Some(_) => return Err(No::bad("direction is forward or backward")),
        };
        let search = form::value(query, "search").unwrap_or_default().to_owned();
        if search.chars().count() > LONGEST_SEARCH {
            return Err(No::bad(format!("search has more than {LONGEST_SEARCH} characters")));
        }
        Ok(Self { backward, cursor: number(query, "cursor")?, search, ..Self::by_level(query)? })
    }

    /// `level` alone.
    pub(super) fn by_level(query: &[(String, String)]) -> Result<Self, No> {
        let Some(level) = form::value(query, "level") else { return Ok(Self::default()) };
        let least = LEVELS.iter().position(|known| *known == level);
        let least = least.ok_or_else(|| No::bad("level is debug, info, warn or error"))?;
        Ok(Self { least, ..Self::default() })
    }

    /// Whether a line is one of them.
    pub(super) fn takes(&self, at: SystemTime, level: &str, message: &str) -> bool {
        let at = moment::millis(at);
        let in_range =
            self.cursor.is_none_or(|cursor| if self.backward { at <= cursor } else { at >= cursor });
        let level = LEVELS.iter().position(|known| *known == level).unwrap_or(0);
        in_range && level >= self.least && message.contains(&self.search)
    }
}

/// A number of a query that is not below nought.
pub(super) fn number(query: &[(String, String)], name: &str) -> Result<Option<i64>, No> {
    let parsed = form::value(query, name).map(|text| text.parse::<i64>().ok().filter(|number| *number >= 0));
    match parsed {
        None => Ok(None),
        Some(Some(number)) => Ok(Some(number)),
        Some(None) => Err(No::bad(format!("{name} is not a number"))),
    }
}
