//! Archives (tar) as no honest program writes them.

/// One that grows.
#[derive(Debug)]
pub(crate) struct Archive(Vec<u8>);

const BLOCK: usize = 512;
/// The most that fits where a name stands.
const NAME: usize = 100;

struct Entry<'a> {
    name: &'a str,
    kind: u8,
    mode: u32,
    to: &'a str,
    device: (u32, u32),
    content: &'a [u8],
}

impl Archive {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn file(self, name: &str, mode: u32, content: &[u8]) -> Self {
        self.add(&Entry { name, kind: b'0', mode, to: "", device: (0, 0), content })
    }

    pub(crate) fn link(self, name: &str, to: &str) -> Self {
        self.add(&Entry { name, kind: b'2', mode: 0o777, to, device: (0, 0), content: b"" })
    }

    pub(crate) fn hard_link(self, name: &str, to: &str) -> Self {
        self.add(&Entry { name, kind: b'1', mode: 0o644, to, device: (0, 0), content: b"" })
    }

    pub(crate) fn device(self, name: &str, major: u32, minor: u32) -> Self {
        self.add(&Entry { name, kind: b'3', mode: 0o666, to: "", device: (major, minor), content: b"" })
    }

    pub(crate) fn pipe(self, name: &str) -> Self {
        self.add(&Entry { name, kind: b'6', mode: 0o644, to: "", device: (0, 0), content: b"" })
    }

    /// The next entry has another name than its own header says (PAX).
    pub(crate) fn renamed(self, name: &str) -> Self {
        self.extended(&record("path", name))
    }

    /// The same by the older way (GNU).
    pub(crate) fn long_name(self, name: &str) -> Self {
        let content = [name.as_bytes(), b"\0"].concat();
        let entry =
            Entry { name: "././@LongLink", kind: b'L', mode: 0, to: "", device: (0, 0), content: &content };
        self.put(&entry)
    }

    /// The bytes.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len().saturating_add(2 * BLOCK), 0);
        self.0
    }

    fn extended(self, records: &str) -> Self {
        let content = records.as_bytes();
        self.put(&Entry { name: "extended", kind: b'x', mode: 0o644, to: "", device: (0, 0), content })
    }

    fn add(self, entry: &Entry<'_>) -> Self {
        let mut records = String::new();
        if entry.name.len() > NAME {
            records.push_str(&record("path", entry.name));
        }
        if entry.to.len() > NAME {
            records.push_str(&record("linkpath", entry.to));
        }
        let archive = if records.is_empty() { self } else { self.extended(&records) };
        archive.put(entry)
    }

    fn put(mut self, entry: &Entry<'_>) -> Self {
        let mut header = Vec::with_capacity(BLOCK);
        let mut field = |text: &[u8], wide: usize| {
            header.extend(text.iter().copied().chain(std::iter::repeat(0)).take(wide));
        };
        field(entry.name.as_bytes(), NAME);
        field(format!("{:07o}", entry.mode).as_bytes(), 8);
        field(b"0000000", 8);
        field(b"0000000", 8);
        field(format!("{:011o}", entry.content.len()).as_bytes(), 12);
        field(b"00000000000", 12);
        // The sum is made as if spaces stood in its own place.
        field(b"        ", 8);
        field(&[entry.kind], 1);
        field(entry.to.as_bytes(), NAME);
        field(b"ustar\x0000", 8);
        field(b"", 64);
        field(format!("{:07o}", entry.device.0).as_bytes(), 8);
        field(format!("{:07o}", entry.device.1).as_bytes(), 8);
        field(b"", 167);
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header.splice(148..156, format!("{sum:06o}\0 ").into_bytes());
        self.0.extend(header);
        self.0.extend_from_slice(entry.content);
        let whole = self.0.len().div_ceil(BLOCK).saturating_mul(BLOCK);
        self.0.resize(whole, 0);
        self
    }
}

/// `LENGTH key=value\n`, where the length counts itself.
fn record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len().saturating_add(1);
    while length.to_string().len().saturating_add(rest.len()) != length {
        length = length.saturating_add(1);
    }
    format!("{length}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_whole_blocks_with_a_right_sum_and_records_count_themselves() {
        let bytes = Archive::new().file("a", 0o644, b"x").link("b", "/etc").end();
        assert_eq!(bytes.len(), 5 * BLOCK);
        let stored = u32::from_str_radix(std::str::from_utf8(&bytes[148..154]).unwrap(), 8).unwrap();
        let sum: u32 = bytes[..BLOCK].iter().map(|byte| u32::from(*byte)).sum();
        let own: u32 = bytes[148..156].iter().map(|byte| u32::from(*byte)).sum();
        assert_eq!(stored, sum - own + 8 * u32::from(b' '));
        for name in ["x", &"y".repeat(91), &"z".repeat(200)] {
            let line = record("path", name);
            assert_eq!(line.split(' ').next().unwrap().parse::<usize>().unwrap(), line.len());
        }
    }
}
