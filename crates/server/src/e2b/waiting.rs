//! Bytes that came and are not taken yet. Taking moves nothing of what stays; what is taken is let go of when it is at least as
//! long as what stays. However many small things come at once, the work grows as their bytes do.

/// Bytes that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    bytes: Vec<u8>,
    /// How many of them are taken.
    taken: usize,
    /// How many of those that are not were looked at in vain for the end of a line.
    looked: usize,
    /// How many were moved or copied, ever: the work that all this was.
    pub(super) moved: usize,
}

impl Waiting {
    pub(super) fn with(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::default() }
    }

    /// Everything that is not taken.
    pub(super) fn all(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Lets go of so many, or of all that there are.
    pub(super) fn skip(&mut self, count: usize) {
        self.taken = self.taken.saturating_add(count).min(self.bytes.len());
        self.looked = 0;
        if self.taken >= self.len() {
            self.count(self.len());
            // Into new memory: that of a long one is not kept for the short ones after it.
            (self.bytes, self.taken) = (self.bytes.split_off(self.taken), 0);
        }
    }

    /// Takes so many, or all that there are.
    pub(super) fn take(&mut self, count: usize) -> Vec<u8> {
        let count = count.min(self.len());
        if self.taken == 0 && count >= self.len() - count {
            // A long one is not there twice.
            let rest = self.bytes.split_off(count);
            self.count(rest.len());
            self.looked = 0;
            return std::mem::replace(&mut self.bytes, rest);
        }
        let taken = self.all().get(..count).unwrap_or_default().to_vec();
        self.count(count);
        self.skip(count);
        taken
    }

    fn count(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// Takes a line, with its end; `None`: none is whole yet.
    pub(super) fn line(&mut self) -> Option<Vec<u8>> {
        let new = self.all().get(self.looked..).unwrap_or_default();
        let end = memchr::memchr(b'\n', new);
        match end {
            Some(at) => Some(self.take(self.looked + at + 1)),
            None => {
                self.looked = self.len();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_taken_in_its_order() {
        let mut waiting = Waiting::with(b"ab");
        waiting.add(b"cd\ne");
        assert_eq!((waiting.take(1), waiting.all()), (b"a".to_vec(), b"bcd\ne".as_slice()));
        waiting.skip(1);
        waiting.add(b"f");
        assert_eq!(waiting.line(), Some(b"cd\n".to_vec()));
        assert_eq!((waiting.line(), waiting.len()), (None, 2));
        waiting.add(b"\n");
        assert_eq!((waiting.line(), waiting.is_empty()), (Some(b"ef\n".to_vec()), true));
        waiting.skip(5);
        assert!(waiting.take(5).is_empty());
    }

    /// Twice as many take twice as much work, and not four times as much.
    #[test]
    fn work_grows_as_what_comes() {
        for (line, count) in [(1, 100_000), (10, 10_000), (1_000, 100)] {
            let mut waiting = Waiting::default();
            let text = format!("{}\n", "x".repeat(line)).repeat(count);
            for piece in text.as_bytes().chunks(4_096) {
                waiting.add(piece);
                while waiting.line().is_some() {}
            }
            assert!(
                waiting.is_empty() && waiting.moved <= 3 * text.len(),
                "{} of {}",
                waiting.moved,
                text.len()
            );
        }
    }
}
