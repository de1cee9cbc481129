//! A stand-in for a secret: random, of this box only, worth nothing anywhere else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Random bytes in a stand-in.
const RANDOM: usize = 16;
/// Says what it is to a person who finds it; begins after the vendor's prefix.
const MARK: &str = "bbx";

/// A stand-in. The box may know it, so it may be printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder(String);

impl Placeholder {
    /// A fresh one that begins with `prefix`.
    pub fn fresh(prefix: &str) -> std::io::Result<Self> {
        let mut random = [0; RANDOM];
        let mut filled = 0;
        while let Some(rest) = random.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
        }
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(format!("{prefix}{MARK}{digits}")))
    }

    /// The text that stands in the box.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it stands in a text, as it is or in base64 of a login.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        contains(text, self.0.as_bytes()) || self.in_login(text)
    }

    fn in_login(&self, value: &[u8]) -> bool {
        login(value).is_some_and(|login| contains(&login, self.0.as_bytes()))
    }

    /// The value with the real one in its place: in the text itself, or in a Basic login.
    pub(super) fn replaced(&self, value: &[u8], real: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if contains(value, self.0.as_bytes()) {
            return Some(replace(value, self.0.as_bytes(), real));
        }
        let login = login(value).filter(|login| contains(login, self.0.as_bytes()))?;
        let login = Zeroizing::new(STANDARD.encode(&*replace(&login, self.0.as_bytes(), real)));
        Some(Zeroizing::new([b"Basic ", login.as_bytes()].concat()))
    }
}

/// What a Basic login says.
fn login(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = value.split_at_checked(6)?;
    let encoded = rest.trim_ascii();
    scheme.eq_ignore_ascii_case(b"basic ").then(|| STANDARD.decode(encoded).ok())?
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// In memory that does not grow while it is written: what it grew out of would be freed, and not wiped.
fn replace(text: &[u8], part: &[u8], by: &[u8]) -> Zeroizing<Vec<u8>> {
    let times = text.windows(part.len()).filter(|window| *window == part).count();
    let mut result = Zeroizing::new(Vec::with_capacity(text.len() + times * by.len()));
    let mut rest = text;
    while let Some(at) = rest.windows(part.len()).position(|window| window == part) {
        result.extend_from_slice(rest.get(..at).unwrap_or_default());
        result.extend_from_slice(by);
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    result.extend_from_slice(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike_and_each_keeps_its_prefix() {
        let (one, other) = (Placeholder::fresh("ghp_").unwrap(), Placeholder::fresh("ghp_").unwrap());
        assert_ne!(one, other);
        assert!(one.as_str().starts_with("ghp_bbx") && one.as_str().len() == 4 + 3 + 2 * RANDOM);
    }

    #[test]
    fn it_is_replaced_in_a_value_and_in_a_login() {
        let stand_in = Placeholder::fresh("").unwrap();
        let bearer = format!("Bearer {}", stand_in.as_str());
        assert_eq!(stand_in.replaced(bearer.as_bytes(), b"real").unwrap().as_slice(), b"Bearer real");
        let basic = format!("basic {}", STANDARD.encode(format!("user:{}", stand_in.as_str())));
        assert!(stand_in.is_in(basic.as_bytes()));
        let expected = format!("Basic {}", STANDARD.encode("user:real"));
        assert_eq!(stand_in.replaced(basic.as_bytes(), b"real").unwrap().as_slice(), expected.as_bytes());
        assert_eq!(stand_in.replaced(b"Bearer other", b"real"), None);
        assert!(!stand_in.is_in(b"Basic !!!"));
    }
}
