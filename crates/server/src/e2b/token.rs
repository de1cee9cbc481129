//! The token of a sandbox, and the signatures of file addresses that are made with it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};

/// Bytes of every signature: `v1_`, and 32 bytes in base64 without its end.
pub(super) const SIGNATURE: usize = 46;

/// Whoever has it may use the sandbox: read and write its files, run commands in it.
#[derive(Clone)]
pub(super) struct Token(String);

/// A signature, and what it is said to be of. What stands before the token is hashed once, however many tokens are tried.
#[derive(Debug)]
pub(super) struct Claim {
    before: Sha256,
    expires: Option<String>,
    given: String,
}

impl Claim {
    pub(super) fn new(deed: Deed, path: &str, user: &str, expires: Option<&str>, given: &str) -> Self {
        let deed = match deed {
            Deed::Read => "read",
            Deed::Write => "write",
        };
        let before = Sha256::new_with_prefix(format!("{path}:{deed}:{user}:"));
        Self { before, expires: expires.map(ToOwned::to_owned), given: given.to_owned() }
    }
}

/// What a signed address allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Read,
    Write,
}

impl Token {
    /// A new one of 256 bits. `None`: the kernel has no randomness to give, so nobody gets in.
    pub(super) fn new() -> Option<Self> {
        let mut random = [0_u8; 32];
        let got = getrandom(&mut random, GetRandomFlags::empty()).ok()?;
        (got == random.len()).then(|| Self(URL_SAFE_NO_PAD.encode(random)))
    }

    /// The one that an earlier daemon has written down.
    pub(super) fn kept(text: String) -> Self {
        Self(text)
    }

    /// The one place where it becomes text: the answer to whoever made the sandbox, or may see it.
    pub(super) fn show_to_owner(&self) -> &str {
        &self.0
    }

    /// Whether this is it.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        same(self.0.as_bytes(), given)
    }

    /// Whether this signature was made with it.
    pub(super) fn signed(&self, claim: &Claim) -> bool {
        let mut hash = claim.before.clone().chain_update(&self.0);
        if let Some(expires) = &claim.expires {
            hash = hash.chain_update(":").chain_update(expires);
        }
        let signature = format!("v1_{}", STANDARD_NO_PAD.encode(hash.finalize()));
        same(signature.as_bytes(), claim.given.as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Compares to the end, whatever is found on the way.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_that_the_sdks_make() {
        let token = Token("tok123".to_owned());
        let read = "v1_byj2OB/vujgbES/1KAKCaR27E+9eOrB6PzeTnIL8L6M";
        let write = "v1_8EU03QrSpNnjbExP0fkfydnr1VcnOpkk7IOe5Rd9b8w";
        let signed =
            |deed, path, user, expires, given| token.signed(&Claim::new(deed, path, user, expires, given));
        assert!(signed(Deed::Read, "/home/user/a.txt", "", None, read));
        assert!(signed(Deed::Write, "notes/b c.txt", "root", Some("1900000000"), write));
        assert!(!signed(Deed::Write, "/home/user/a.txt", "", None, read));
        assert!(!signed(Deed::Read, "/home/user/b.txt", "", None, read));
        assert!(!signed(Deed::Read, "/home/user/a.txt", "user", None, read));
        assert!(!signed(Deed::Read, "/home/user/a.txt", "", Some("1"), read));
    }

    #[test]
    fn a_token_is_long_its_own_and_not_printed() {
        let (one, two) = (Token::new().unwrap(), Token::new().unwrap());
        assert!(one.is(one.show_to_owner().as_bytes()) && !one.is(two.show_to_owner().as_bytes()));
        assert_eq!(one.show_to_owner().len(), 43);
        assert!(!format!("{one:?}").contains(one.show_to_owner()));
    }
}
