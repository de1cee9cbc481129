//! Lines of a file, whole and bounded.

use std::io::{self, BufRead, Read};

use blastbox_wire::event::ledger_text::MAX_LINE;

/// What stands at a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A line that ends in a line feed, without it.
    Whole,
    /// Bytes without a line feed at the end of the file.
    Torn,
    /// More bytes than a line may have.
    Long,
    /// Nothing.
    End,
}

/// Reads the next line into the buffer. One that is too long is not read to its end.
pub(super) fn next(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Found> {
    line.clear();
    let most = u64::try_from(MAX_LINE).unwrap_or(u64::MAX).saturating_add(1);
    from.by_ref().take(most).read_until(b'\n', line)?;
    Ok(match line.pop() {
        None => Found::End,
        Some(b'\n') => Found::Whole,
        Some(other) => {
            line.push(other);
            if line.len() > MAX_LINE { Found::Long } else { Found::Torn }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_its_end_is_torn_and_one_without_bound_is_not_read_on() {
        let mut line = Vec::new();
        let mut from = b"a\n\nb".as_slice();
        assert_eq!((next(&mut from, &mut line).unwrap(), line.as_slice()), (Found::Whole, b"a".as_slice()));
        assert_eq!((next(&mut from, &mut line).unwrap(), line.as_slice()), (Found::Whole, b"".as_slice()));
        assert_eq!((next(&mut from, &mut line).unwrap(), line.as_slice()), (Found::Torn, b"b".as_slice()));
        assert_eq!(next(&mut from, &mut line).unwrap(), Found::End);
        let long = vec![b'x'; MAX_LINE * 3];
        assert_eq!(next(&mut long.as_slice(), &mut line).unwrap(), Found::Long);
        assert_eq!(line.len(), MAX_LINE + 1);
    }
}
