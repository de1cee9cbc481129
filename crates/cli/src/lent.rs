//! What became of the leases of a run. Without a daemon nobody is left who could try again, or whom a ledger tells.

use std::time::Duration;

use blastbox_engine::leases::{News, Told};
use tokio::time::{Instant, timeout_at};

use crate::output::plain;

/// How long revocations are waited for that go on when the box is gone: their last try comes later than a box waits for them.
const PATIENCE: Duration = Duration::from_secs(2);

/// A line for each trouble with a lease, once the box is gone, or will not be. Without leases nothing is waited for.
pub(crate) async fn troubles(mut news: News) -> Vec<String> {
    let until = Instant::now() + PATIENCE;
    let (mut lines, mut open) = (Vec::new(), Vec::new());
    loop {
        match timeout_at(until, news.recv()).await {
            Ok(Some(word)) => {
                match &word {
                    Told::Minted { secret, ttl: Some(_) } => open.push(secret.to_string()),
                    Told::Revoked { secret } | Told::NotRevoked { secret, .. } => {
                        open.retain(|open| open != secret.as_str());
                    }
                    Told::Minted { ttl: None, .. }
                    | Told::Renewed { .. }
                    | Told::NotRenewed { .. }
                    | Told::Unreadable { .. } => {}
                }
                lines.extend(word.trouble().map(|(secret, why)| line(&secret, &why)));
            }
            Ok(None) => return lines,
            Err(_) => break,
        }
    }
    if !open.is_empty() {
        lines.push(line(&open.join(", "), "not known to be revoked: the source did not answer in time"));
    }
    lines
}

/// With words of a server in it.
fn line(secret: &str, why: &str) -> String {
    format!("blastbox: secret {}: {}; it ends by itself when its time is over", plain(secret), plain(why))
}

#[cfg(test)]
mod tests {
    use blastbox_policy::SecretName;
    use tokio::sync::mpsc;

    use super::*;

    fn name(text: &str) -> SecretName {
        text.parse().unwrap()
    }

    fn minted(text: &str) -> Told {
        Told::Minted { secret: name(text), ttl: Some(Duration::from_secs(100)) }
    }

    #[tokio::test]
    async fn a_lease_that_was_not_revoked_is_told_and_one_that_was_is_not() {
        let (tell, news) = mpsc::unbounded_channel();
        let words = [
            minted("db"),
            minted("other"),
            Told::Revoked { secret: name("other") },
            Told::NotRevoked { secret: name("db"), why: "sealed\u{1b}[2J".into() },
        ];
        words.into_iter().for_each(|word| tell.send(word).unwrap());
        drop(tell);
        let begun = Instant::now();
        let lines = troubles(news).await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("blastbox: secret db: not revoked: sealed"), "{lines:?}");
        assert!(!lines[0].contains('\u{1b}'), "{lines:?}");
        assert!(begun.elapsed() < PATIENCE, "and nothing is waited for");
    }

    #[tokio::test]
    async fn a_source_that_does_not_answer_is_told_and_not_waited_for_long() {
        let (tell, news) = mpsc::unbounded_channel();
        tell.send(Told::Minted { secret: name("fixed"), ttl: None }).unwrap();
        tell.send(minted("db")).unwrap();
        let begun = Instant::now();
        let lines = troubles(news).await;
        assert!(begun.elapsed() >= PATIENCE);
        assert!(lines.len() == 1 && lines[0].contains("secret db: not known to be revoked"), "{lines:?}");
        drop(tell);
    }
}
