//! `Range` of a request. Pure.

/// Which bytes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of them.
    Whole,
    /// From the first to the last of these, both included.
    Part { first: u64, last: u64 },
    /// None that are there.
    Nothing,
}

/// Reads a range of a file of this size. More than one, another unit and nonsense mean the whole, as the standard lets
/// a server do.
pub(super) fn parse(header: Option<&str>, size: u64) -> Wanted {
    let Some(range) = header.and_then(|text| text.trim().strip_prefix("bytes=")) else {
        return Wanted::Whole;
    };
    let Some((first, last)) = range.split_once('-') else { return Wanted::Whole };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (first.trim(), last.trim()) {
        ("", tail) => match number(tail) {
            None => Wanted::Whole,
            Some(0) => Wanted::Nothing,
            Some(_) if size == 0 => Wanted::Nothing,
            Some(tail) => Wanted::Part { first: size.saturating_sub(tail), last: size - 1 },
        },
        (first, last) => {
            let Some(first) = number(first) else { return Wanted::Whole };
            let last = if last.is_empty() { Some(u64::MAX) } else { number(last) };
            match last {
                None => Wanted::Whole,
                Some(last) if last < first => Wanted::Whole,
                Some(_) if first >= size => Wanted::Nothing,
                Some(last) => Wanted::Part { first, last: last.min(size - 1) },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_the_standard_says() {
        let part = |first, last| Wanted::Part { first, last };
        for (text, size, wanted) in [
            (None, 10, Wanted::Whole),
            (Some("bytes=0-3"), 10, part(0, 3)),
            (Some("bytes=5-"), 10, part(5, 9)),
            (Some("bytes=5-99"), 10, part(5, 9)),
            (Some("bytes=-4"), 10, part(6, 9)),
            (Some("bytes=-40"), 10, part(0, 9)),
            (Some("bytes=10-"), 10, Wanted::Nothing),
            (Some("bytes=-0"), 10, Wanted::Nothing),
            (Some("bytes=0-"), 0, Wanted::Nothing),
            (Some("bytes=-1"), 0, Wanted::Nothing),
            (Some("bytes=3-1"), 10, Wanted::Whole),
            (Some("bytes=0-1,3-4"), 10, Wanted::Whole),
            (Some("lines=0-1"), 10, Wanted::Whole),
            (Some("bytes=x-"), 10, Wanted::Whole),
            (Some("bytes=99999999999999999999-"), 10, Wanted::Whole),
        ] {
            assert_eq!(parse(text, size), wanted, "{text:?}");
        }
    }
}
