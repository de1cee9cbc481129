//! Java's own bundle of authorities (`cacerts`, in the form JKS): it reads neither files of certificates nor their variables.
//!
//! An authority goes behind what the store has, so nothing of it needs to be read but its head; of two entries with one name Java
//! takes the last, and a store may have ours of a box around this one. A store of another form
//! (PKCS #12, since Java 18) is written anew from the box's bundle; Java tells the forms apart by their first bytes.
//!
//! ```text
//! FEEDFEED version count │ 2 alias date "X.509" certificate │ … │ SHA-1 of password, a phrase and all before
//! ```

use super::sha1::sha1;

const HEAD: [u8; 8] = [0xFE, 0xED, 0xFE, 0xED, 0, 0, 0, 2];
const COUNT: std::ops::Range<usize> = 8..12;
const MARK: usize = 20;
/// What every store of authorities is closed with. It keeps nothing secret, and is no defence against anybody: a store with another
/// mark is taken for damaged by whoever names the password.
const PASSWORD: &str = "changeit";
const PHRASE: &[u8] = b"Mighty Aphrodite";
const TRUSTED: u32 = 2;

/// `store` with the authority behind; written anew from `bundle` where it is of another form.
/// `None` where the authority is no certificate.
pub(super) fn with(store: &[u8], bundle: &[u8], authority: &str) -> Option<Vec<u8>> {
    let authority = certificates(authority.as_bytes()).next()?;
    let (count, entries) = match parts(store) {
        Some((count, entries)) => (count, entries.to_vec()),
        None => {
            let numbered = certificates(bundle).zip(0u32..);
            numbered.fold((0, Vec::new()), |(count, mut entries), (certificate, number)| {
                entry(&mut entries, &format!("authority-{number}"), &certificate);
                (count + 1, entries)
            })
        }
    };
    let mut whole = HEAD.to_vec();
    whole.extend(count.checked_add(1)?.to_be_bytes());
    whole.extend(entries);
    entry(&mut whole, "gateway-of-this-box", &authority);
    let mark = mark(&whole);
    whole.extend(mark);
    Some(whole)
}

/// How many entries a store has, and their bytes. An image's store may say anything: Java itself will refuse it then.
fn parts(store: &[u8]) -> Option<(u32, &[u8])> {
    let count = store.strip_prefix(&HEAD).and(store.get(COUNT))?;
    let entries = store.get(COUNT.end..store.len().checked_sub(MARK)?)?;
    Some((u32::from_be_bytes(count.try_into().ok()?), entries))
}

fn entry(into: &mut Vec<u8>, alias: &str, certificate: &[u8]) {
    let text = |into: &mut Vec<u8>, text: &str| {
        into.extend(u16::try_from(text.len()).unwrap_or_default().to_be_bytes());
        into.extend(text.as_bytes());
    };
    into.extend(TRUSTED.to_be_bytes());
    text(into, alias);
    // Since when it is believed: Java shows it to whoever lists the store.
    into.extend(0u64.to_be_bytes());
    text(into, "X.509");
    into.extend(u32::try_from(certificate.len()).unwrap_or_default().to_be_bytes());
    into.extend(certificate);
}

fn mark(whole: &[u8]) -> [u8; MARK] {
    let wide = PASSWORD.bytes().flat_map(|letter| [0, letter]);
    sha1(&wide.chain(PHRASE.iter().copied()).chain(whole.iter().copied()).collect::<Vec<u8>>())
}

/// The certificates of a bundle, as bytes. What is not one is left out.
fn certificates(bundle: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let mut lines = bundle.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    std::iter::from_fn(move || {
        lines.find(|line| *line == b"-----BEGIN CERTIFICATE-----")?;
        let letters: Vec<&[u8]> =
            lines.by_ref().take_while(|line| *line != b"-----END CERTIFICATE-----").collect();
        Some(from_base64(&letters.concat()))
    })
    .flatten()
}

fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut held) = (Vec::with_capacity(text.len() / 4 * 3), 0u32, 0u8);
    for letter in text.iter().filter(|letter| **letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xFF) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nAAECAwQF\nBgc=\n-----END CERTIFICATE-----\n";

    #[test]
    fn an_authority_goes_behind_one_of_the_same_name_and_the_mark_is_made_anew() {
        let empty = [&HEAD[..], &0u32.to_be_bytes(), &[0; MARK]].concat();
        let one = with(&empty, b"", AUTHORITY).unwrap();
        let other = AUTHORITY.replace("Bgc", "BgA");
        let two = with(&one, b"", &other).unwrap();
        assert_eq!((parts(&one).unwrap().0, parts(&two).unwrap().0), (1, 2));
        assert!(parts(&one).unwrap().1.ends_with(&[0, 0, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7]));
        assert!(parts(&two).unwrap().1.starts_with(parts(&one).unwrap().1));
        assert!(
            parts(&two).unwrap().1.ends_with(&[0, 0, 0, 8, 0, 1, 2, 3, 4, 5, 6, 0]),
            "the last is what Java takes"
        );
        assert_eq!(two[two.len() - MARK..], mark(&two[..two.len() - MARK]));
    }

    #[test]
    fn a_store_of_another_form_is_written_anew_from_the_bundle() {
        for other in [&b""[..], b"\x30\x82", &HEAD, &HEAD[..4]] {
            let store = with(other, AUTHORITY.repeat(3).as_bytes(), AUTHORITY).unwrap();
            assert_eq!(parts(&store).unwrap().0, 4, "{other:x?}");
        }
    }

    #[test]
    fn what_is_no_certificate_is_left_out() {
        assert_eq!(with(&HEAD, b"", "no certificate"), None);
        let damaged = AUTHORITY.replace("Bgc", "B!c");
        assert_eq!(with(&HEAD, b"", &damaged), None);
        // Without an end it is read to the end of the text.
        assert_eq!(certificates(b"x\n-----BEGIN CERTIFICATE-----\nAAEC").collect::<Vec<_>>(), [[0, 1, 2]]);
    }
}
