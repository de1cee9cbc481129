//! Struck out in every form, at every border; nothing else is touched or delayed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;

const TOKEN: &str = "ghp_S3cretTokenValue0123456789abcdef";

fn patterns(secrets: &[&str]) -> Patterns {
    let secrets: Vec<_> = secrets.iter().map(|s| Secret::new(s.as_bytes().to_vec()).ok().unwrap()).collect();
    Patterns::of(&secrets).unwrap()
}

fn in_pieces(patterns: &Patterns, text: &[u8], size: usize) -> Vec<u8> {
    let mut scrubber = Scrubber::default();
    let mut clean: Vec<u8> = text.chunks(size).flat_map(|piece| scrubber.feed(patterns, piece)).collect();
    clean.extend(scrubber.finish(patterns));
    clean
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[test]
fn every_form_is_struck_out_however_the_bytes_are_cut() {
    let patterns = patterns(&[TOKEN]);
    let login = STANDARD.encode(format!("user:{TOKEN}"));
    let hex: String = TOKEN.bytes().map(|byte| format!("{byte:02x}")).collect();
    for form in [TOKEN, &login, &hex] {
        let text = format!("before {form} between {form}{form} after");
        for size in 1..text.len() {
            let clean = in_pieces(&patterns, text.as_bytes(), size);
            assert_eq!(clean.len(), text.len());
            assert!(clean.starts_with(b"before ") && clean.ends_with(b" after"), "{size}");
            // The first and last characters of a login also hold bits of its neighbours; the middle must be gone.
            let middle = &form.as_bytes()[8..form.len() - 8];
            assert!(!holds(&clean, middle), "{size}: {}", String::from_utf8_lossy(&clean));
        }
    }
}

#[test]
fn whole_or_in_pieces_the_result_is_the_same() {
    let patterns = patterns(&["abcabcabcabd", "cabdxxxxxxxx", "abdxxxxx"]);
    let text = b"..abcabcabcabcabdxxxxxxxxx..abcabcabcabcabcabcabd..abdxxxxcabdxxxxxxxabdxxxxx";
    let whole = in_pieces(&patterns, text, text.len());
    for size in 1..text.len() {
        assert_eq!(
            String::from_utf8_lossy(&in_pieces(&patterns, text, size)),
            String::from_utf8_lossy(&whole),
            "{size}"
        );
    }
}

#[test]
fn an_event_is_not_held_back_because_a_secret_is_long() {
    let patterns = patterns(&[TOKEN]);
    let mut scrubber = Scrubber::default();
    let event = b"data: {\"done\":true}\n\n";
    assert_eq!(scrubber.feed(&patterns, event), event);
    // The beginning of a form waits, and only that.
    assert_eq!(scrubber.feed(&patterns, b"data: ghp_S3"), b"data: ");
    assert_eq!(scrubber.feed(&patterns, b"x\n"), b"ghp_S3x\n");
}

#[test]
fn a_shorter_form_inside_an_unfinished_one_is_struck_out_at_the_end() {
    let patterns = patterns(&["12345678", "abc12345678defgh"]);
    assert_eq!(in_pieces(&patterns, b"xx abc12345678def", 3), b"xx abc********def");
}

#[test]
fn text_without_a_secret_passes_unchanged() {
    let patterns = patterns(&[TOKEN]);
    assert_eq!(patterns.strike(b"ghp_S3cretTokenValue0123456789abcde"), None);
    assert_eq!(patterns.strike(TOKEN.as_bytes()), Some(vec![b'*'; TOKEN.len()]));
    assert!(patterns.in_name(b"x-ghp_s3crettokenvalue0123456789abcdef"));
    assert!(!patterns.in_name(b"x-request-id"));
}

#[test]
fn no_secrets_no_patterns() {
    let none = patterns(&[]);
    assert!(none.is_empty());
    assert_eq!(in_pieces(&none, b"anything", 2), b"anything");
    assert!(!none.in_name(b"anything"));
}
