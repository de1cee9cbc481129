//! Moments as E2B's wire has them: RFC 3339 with any offset, and the dates of HTTP.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blastbox_wire::receipt::rfc3339;

/// Milliseconds since 1970.
pub(super) fn millis(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Seconds since 1970.
pub(super) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// RFC 3339 in UTC, to the millisecond.
pub(super) fn text(at: SystemTime) -> String {
    rfc3339(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// RFC 3339 in UTC, to the nanosecond. Before 1970 there is nothing.
pub(super) fn text_of_nanos(nanos: i64) -> String {
    let nanos = u64::try_from(nanos).unwrap_or(0);
    let millis = rfc3339(Duration::from_nanos(nanos));
    let whole = millis.split_once('.').map_or(millis.as_str(), |(whole, _)| whole);
    format!("{whole}.{:09}Z", nanos % 1_000_000_000)
}

/// Reads RFC 3339: a date, a time, perhaps a fraction, `Z` or an offset. Milliseconds since 1970.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (time, rest) = rest.split_at_checked(8)?;
    let days = days_since_1970(number(date.get(..4)?)?, number(date.get(5..7)?)?, number(date.get(8..)?)?)?;
    let (hour, minute, second) = (number(time.get(..2)?)?, number(time.get(3..5)?)?, number(time.get(6..)?)?);
    let dashed = date.as_bytes().get(4) == Some(&b'-') && date.as_bytes().get(7) == Some(&b'-');
    let colons = time.as_bytes().get(2) == Some(&b':') && time.as_bytes().get(5) == Some(&b':');
    if !dashed || !colons || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
        None => ("0", rest),
    };
    let mut millis = 0;
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
    for digit in digits {
        millis = millis * 10 + i64::from(digit - b'0');
    }
    if fraction.is_empty() {
        return None;
    }
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - offset(zone)?;
    Some(seconds * 1_000 + millis)
}

fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = zone.split_at_checked(1)?;
    let (hours, minutes) = rest.split_once(':')?;
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    let seconds = number(hours)? * 3_600 + number(minutes)? * 60;
    match sign {
        "+" => Some(seconds),
        "-" => Some(-seconds),
        _ => None,
    }
}

fn number(text: &str) -> Option<i64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) { None } else { text.parse().ok() }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let year = if month > 2 { year } else { year - 1 };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A date as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn http_date(seconds: u64) -> String {
    let text = rfc3339(Duration::from_secs(seconds));
    let part = |range| text.get(range).unwrap_or_default();
    let weekday = usize::try_from(seconds / 86_400 % 7).ok().and_then(|day| DAYS.get(day)).unwrap_or(&"");
    let month = part(5..7).parse::<usize>().ok().and_then(|month| MONTHS.get(month.wrapping_sub(1)));
    format!("{weekday}, {} {} {} {} GMT", part(8..10), month.unwrap_or(&""), part(0..4), part(11..19))
}

/// Reads such a date. Other forms that HTTP once had are nobody's any more.
pub(super) fn parse_http_date(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = words.as_slice() else { return None };
    let month = MONTHS.iter().position(|name| name == month)? + 1;
    let millis = parse(&format!("{year}-{month:02}-{day}T{time}Z"))?;
    u64::try_from(millis / 1_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_offsets_are_counted() {
        for seconds in [0, 951_782_399, 951_827_696, 1_700_000_000, 4_102_444_800] {
            let at = UNIX_EPOCH + Duration::from_millis(seconds * 1_000 + 250);
            assert_eq!(parse(&text(at)), Some(millis(at)), "{}", text(at));
            assert_eq!(parse_http_date(&http_date(seconds)), Some(seconds), "{}", http_date(seconds));
        }
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(parse("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(parse("1969-12-31T22:30:00.5-01:30"), Some(500));
        assert_eq!(text_of_nanos(1_000_000_007), "1970-01-01T00:00:01.000000007Z");
    }

    #[test]
    fn what_is_no_moment_is_none() {
        for bad in [
            "",
            "2024",
            "2024-01-01",
            "2024-01-01T00:00:00",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00+1:00",
            "2024x01-01T00:00:00Z",
            "2024-01-01T00:00:0éZ",
            "-024-01-01T00:00:00Z",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
