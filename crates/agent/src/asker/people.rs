//! The users that the box's image knows. Who may become whom is not decided here: in such a box everybody may.

use std::io::Read;

/// Longest list of users that is read.
const LONGEST: u64 = 1024 * 1024;

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) name: Vec<u8>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: Vec<u8>,
    pub(super) shell: Vec<u8>,
}

impl Person {
    fn numbered(uid: u32, gid: u32) -> Self {
        let (name, home) = match uid {
            0 => (b"root".to_vec(), b"/root".to_vec()),
            uid => (uid.to_string().into_bytes(), b"/".to_vec()),
        };
        Self { name, uid, gid, home, shell: b"/bin/sh".to_vec() }
    }
}

/// All of them; none where the list cannot be read.
pub(super) fn read() -> Vec<Person> {
    let mut text = Vec::new();
    if let Ok(file) = std::fs::File::open("/etc/passwd") {
        file.take(LONGEST).read_to_end(&mut text).ok();
    }
    text.split(|byte| *byte == b'\n').filter_map(person).collect()
}

fn person(line: &[u8]) -> Option<Person> {
    let mut parts = line.split(|byte| *byte == b':');
    let name = parts.next().filter(|name| !name.is_empty())?.to_vec();
    let mut number = |skip| parts.nth(skip).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let (uid, gid) = (number(1)?, number(0)?);
    let home = parts.nth(1).filter(|home| !home.is_empty()).unwrap_or(b"/").to_vec();
    let shell = parts.next().filter(|shell| !shell.is_empty()).unwrap_or(b"/bin/sh").to_vec();
    Some(Person { name, uid, gid, home, shell })
}

/// The one that is meant: a name, or `#` and a number.
pub(super) fn find(people: &[Person], wanted: &[u8]) -> Option<Person> {
    if let Some(found) = people.iter().find(|person| person.name == wanted) {
        return Some(found.clone());
    }
    if wanted == b"root" {
        return Some(Person::numbered(0, 0));
    }
    let uid = std::str::from_utf8(wanted.strip_prefix(b"#")?).ok()?.parse().ok()?;
    Some(
        people.iter().find(|person| person.uid == uid).cloned().unwrap_or_else(|| Person::numbered(uid, uid)),
    )
}

/// Whoever asks.
pub(super) fn caller(people: &[Person]) -> Person {
    let uid = rustix::process::getuid().as_raw();
    let known = people.iter().find(|person| person.uid == uid).cloned();
    known.unwrap_or_else(|| Person::numbered(uid, rustix::process::getgid().as_raw()))
}

/// A text for a message, cut and without control characters.
pub(super) fn quoted(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text.get(..64).unwrap_or(text)).into_owned();
    text.chars().filter(|letter| !letter.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_found_by_name_and_by_number() {
        let root = person(b"root:x:0:0:root:/root:/bin/bash").unwrap();
        let www = person(b"www:x:33:34::/var/www:").unwrap();
        assert_eq!((www.uid, www.gid, www.home.as_slice()), (33, 34, &b"/var/www"[..]));
        assert_eq!(www.shell, b"/bin/sh");
        let people = [root.clone(), www.clone()];
        assert_eq!(find(&people, b"www"), Some(www.clone()));
        assert_eq!(find(&people, b"#33"), Some(www));
        assert_eq!(find(&people, b"#7").map(|person| person.uid), Some(7));
        assert_eq!(find(&people, b"who"), None);
        assert_eq!(find(&[], b"root").map(|person| person.uid), Some(0));
    }

    #[test]
    fn a_line_that_is_none_is_nobody() {
        for line in ["", "root", "root:x:0", "a:x:-1:0::/:", ":x:0:0::/:"] {
            assert_eq!(person(line.as_bytes()), None, "{line}");
        }
    }
}
