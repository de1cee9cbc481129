//! What is taken from a request: its body, its path, its query. Bounded, timed, and typed before a handler sees it.
//!
//! Trust: caller. Whoever has a key may send anything.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use blastbox_engine::keeper::SnapshotId;
use blastbox_policy::GuestName;
use blastbox_wire::BoxId;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::time::timeout;

use crate::gather::{Account, Ungathered, gather};
use crate::modules::ModuleTrouble;
use crate::{Hall, Trouble};

/// Most bytes of JSON: an argument list of the kernel's own limit fits, however it is escaped.
pub(crate) const MAX_BODY: usize = 8 * 1024 * 1024;
/// How long a body may take to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a body that comes piece by piece may fall silent.
const SILENCE: Duration = Duration::from_secs(60);
/// How much of a body that nobody wants is taken, and for how long.
const MOST_DRAINED: usize = 64 * 1024 * 1024;
const DRAIN: Duration = Duration::from_secs(2);
/// Most characters of a complaint that repeats what a caller sent.
const MOST_ECHOED: usize = 300;

/// A body of JSON. An empty one is an empty object.
#[derive(Debug)]
pub(crate) struct Given<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Hall> for Given<T> {
    type Rejection = Trouble;

    async fn from_request(request: Request, _: &Hall) -> Result<Self, Trouble> {
        let bytes = read(request, MAX_BODY, PATIENCE).await?;
        parse(&bytes).map(Self)
    }
}

/// Reads a body to its end, or says why not.
async fn read(request: Request, most: usize, patience: Duration) -> Result<Bytes, Trouble> {
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if announced.is_some_and(|text| text.parse::<usize>().is_ok_and(|length| length > most)) {
        return Err(Trouble::TooLarge { most });
    }
    let account = Account::of(request.extensions());
    gathered(request.into_body(), account, most, patience).await
}

/// The same for whoever needs the rest of the request.
pub(crate) async fn gathered(
    body: Body,
    account: Option<Arc<Account>>,
    most: usize,
    patience: Duration,
) -> Result<Bytes, Trouble> {
    gather(body, account, most, patience).await.map_err(|why| match why {
        Ungathered::TooLong => Trouble::TooLarge { most },
        Ungathered::TooSlow => Trouble::TooSlow,
        Ungathered::NoRoom => Trouble::NoBodyRoom,
        Ungathered::BrokeOff(why) => Trouble::BadRequest(clip(&why)),
    })
}

/// The next piece of a body; `None` at its end. Cancel safe.
pub(crate) async fn piece(body: &mut Body) -> Result<Option<Bytes>, Trouble> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Trouble::BadRequest("the body broke off".to_owned()))?;
        if let Ok(bytes) = frame.into_data()
            && !bytes.is_empty()
        {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// The next piece of a body that should be on its way. Whoever falls silent is not waited for.
pub(crate) async fn patient_piece(body: &mut Body) -> Result<Option<Bytes>, Trouble> {
    timeout(SILENCE, piece(body)).await.unwrap_or(Err(Trouble::TooSlow))
}

/// Takes what is still coming and nobody wants, for a moment, so that the answer can be heard.
pub(crate) async fn drain(body: &mut Body) {
    let taken = async {
        let mut left = MOST_DRAINED;
        while let Ok(Some(bytes)) = piece(body).await {
            left = left.saturating_sub(bytes.len());
            if left == 0 {
                return;
            }
        }
    };
    timeout(DRAIN, taken).await.ok();
}

/// Reads JSON. Where it is none, line and column say where.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Trouble> {
    let bytes = if bytes.iter().all(u8::is_ascii_whitespace) { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| {
        let text = clip(&error.to_string());
        match error.classify() {
            Category::Data => Trouble::BadField(text),
            Category::Syntax | Category::Eof | Category::Io => Trouble::BadJson(text),
        }
    })
}

fn clip(text: &str) -> String {
    let mut shown: String = text.chars().flat_map(char::escape_debug).take(MOST_ECHOED).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// The box in the path. What is no name of a box is nobody's box.
#[derive(Debug)]
pub(crate) struct BoxPath(pub(crate) BoxId);

/// The box and the command in the path.
#[derive(Debug)]
pub(crate) struct ExecPath(pub(crate) BoxId, pub(crate) u32);

/// The box, the command and its call in the path.
#[derive(Debug)]
pub(crate) struct CallPath(pub(crate) BoxId, pub(crate) u32, pub(crate) u32);

impl FromRequestParts<Hall> for CallPath {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, hall: &Hall) -> Result<Self, Trouble> {
        let ExecPath(id, exec) = ExecPath::from_request_parts(parts, hall).await?;
        Ok(Self(id, exec, named(parts, hall, "call", "call").await?))
    }
}

impl FromRequestParts<Hall> for BoxPath {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, hall: &Hall) -> Result<Self, Trouble> {
        named(parts, hall, "id", "box").await.map(Self)
    }
}

/// The module in the path.
#[derive(Debug)]
pub(crate) struct ModulePath(pub(crate) GuestName);

impl FromRequestParts<Hall> for ModulePath {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, hall: &Hall) -> Result<Self, Trouble> {
        let params = RawPathParams::from_request_parts(parts, hall).await;
        let params = params.map_err(|_| Trouble::NotFound("module"))?;
        let name = params.iter().find(|(key, _)| *key == "name").map(|(_, value)| value).unwrap_or_default();
        Ok(Self(name.parse().map_err(ModuleTrouble::BadName)?))
    }
}

/// The snapshot in the path.
#[derive(Debug)]
pub(crate) struct SnapshotPath(pub(crate) SnapshotId);

impl FromRequestParts<Hall> for SnapshotPath {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, hall: &Hall) -> Result<Self, Trouble> {
        named(parts, hall, "id", "snapshot").await.map(Self)
    }
}

impl FromRequestParts<Hall> for ExecPath {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, hall: &Hall) -> Result<Self, Trouble> {
        let id = named(parts, hall, "id", "box").await?;
        Ok(Self(id, named(parts, hall, "exec", "command").await?))
    }
}

async fn named<T: std::str::FromStr>(
    parts: &mut Parts,
    hall: &Hall,
    name: &str,
    what: &'static str,
) -> Result<T, Trouble> {
    let params = RawPathParams::from_request_parts(parts, hall).await.map_err(|_| Trouble::NotFound(what))?;
    let found = params.iter().find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok());
    found.ok_or(Trouble::NotFound(what))
}

/// The query, as pairs. Names and values of ours need no escapes, so none are undone, but for paths.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl FromRequestParts<Hall> for Query {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, _: &Hall) -> Result<Self, Trouble> {
        Ok(Self::of(parts.uri.query().unwrap_or_default()))
    }
}

impl Query {
    pub(crate) fn of(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(owned).collect())
    }

    /// Refuses every name that is not among these, and every name that comes twice.
    pub(crate) fn only(self, names: &[&str]) -> Result<Self, Trouble> {
        let mut seen = Vec::new();
        for (name, _) in &self.0 {
            if !names.contains(&name.as_str()) {
                let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(Trouble::BadQuery(format!(
                    "unknown parameter `{}`; this route takes {known}",
                    clip(name)
                )));
            }
            if seen.contains(&name) {
                return Err(Trouble::BadQuery(format!("the parameter `{name}` comes twice")));
            }
            seen.push(name);
        }
        Ok(self)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A value as bytes, with its escapes undone. Every byte can be escaped, so every name of a file can be asked for.
    pub(crate) fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, Trouble> {
        let bad = || Trouble::BadQuery(format!("the parameter `{name}` has an escape that is none"));
        self.text(name).map(|text| unescape(text).ok_or_else(bad)).transpose()
    }

    /// A path in a box. It must be there; what the box makes of it is the box's matter.
    pub(crate) fn path(&self, name: &str) -> Result<Vec<u8>, Trouble> {
        let path = self.bytes(name)?;
        path.ok_or_else(|| Trouble::BadQuery(format!("the parameter `{name}` is missing")))
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self, name: &str, absent: bool) -> Result<bool, Trouble> {
        Ok(self.parsed(name, "`true` or `false`")?.unwrap_or(absent))
    }

    pub(crate) fn parsed<T: std::str::FromStr>(&self, name: &str, what: &str) -> Result<Option<T>, Trouble> {
        let bad = || Trouble::BadQuery(format!("the parameter `{name}` is not {what}"));
        self.text(name).map(|text| text.parse().map_err(|_| bad())).transpose()
    }
}

/// As forms are written: `%41` is a byte, `+` is a blank.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut found = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        found.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    Some(found)
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Thing {
        #[expect(dead_code, reason = "only read by serde")]
        size: Option<u32>,
    }

    fn code(text: &str) -> String {
        parse::<Thing>(text.as_bytes()).map_or_else(|trouble| trouble.code().into_owned(), |_| "ok".into())
    }

    #[test]
    fn what_is_not_json_is_told_from_what_is_not_ours() {
        for (text, expected) in [
            ("", "ok"),
            ("  \n", "ok"),
            ("{\"size\":1}", "ok"),
            ("{\"size\":", "bad_json"),
            ("{size:1}", "bad_json"),
            ("{} x", "bad_json"),
            ("{\"size\":\"a\"}", "bad_field"),
            ("{\"Size\":1}", "bad_field"),
            ("{\"size\":1,\"size\":2}", "bad_field"),
            ("{\"size\":-1}", "bad_field"),
        ] {
            assert_eq!(code(text), expected, "{text}");
        }
        assert_eq!(code(&"[".repeat(100_000)), "bad_field");
        assert_eq!(code("\u{0}"), "bad_json");
    }

    #[test]
    fn a_complaint_says_where_and_repeats_little() {
        let text = format!("{{\n \"{}\u{1b}\": 1}}", "a".repeat(10_000));
        let shown = parse::<Thing>(text.as_bytes()).unwrap_err().to_string();
        assert!(shown.chars().count() < 400 && !shown.contains('\u{1b}'), "{shown}");
        let shown = parse::<Thing>(b"{\n  \"size\": x}").unwrap_err().to_string();
        assert!(shown.contains("line 2 column 11"), "{shown}");
    }

    #[test]
    fn a_parameter_that_nobody_knows_or_that_comes_twice_is_refused() {
        assert!(Query::of("limit=1&cursor=a").only(&["limit", "cursor"]).is_ok());
        assert!(Query::of("limti=1").only(&["limit"]).is_err());
        assert!(Query::of("limit=1&limit=2").only(&["limit"]).is_err());
        assert!(Query::of("limit=x").parsed::<u32>("limit", "a number").is_err());
        assert_eq!(Query::of("").parsed::<u32>("limit", "a number").unwrap(), None);
    }

    #[test]
    fn every_byte_can_be_written_in_a_path() {
        let path = |text: &str| Query::of(&format!("path={text}")).path("path");
        assert_eq!(path("/a+b%2Bc%0a%ff%00").unwrap(), b"/a b+c\n\xff\0");
        assert_eq!(path("").unwrap(), b"");
        assert!(path("%").is_err() && path("%4").is_err() && path("%zz").is_err() && path("%+1").is_err());
        assert!(Query::of("").path("path").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_bounded_and_timed() {
        let request = |body: Body| Request::new(body);
        let long = read(request(Body::from(vec![b' '; 11])), 10, PATIENCE).await;
        assert!(matches!(long, Err(Trouble::TooLarge { most: 10 })));
        assert_eq!(read(request(Body::from("0123456789")), 10, PATIENCE).await.unwrap().len(), 10);
        let (_keep, silent) = crate::sse::channel();
        assert!(matches!(read(request(silent), 10, PATIENCE).await, Err(Trouble::TooSlow)));
        let mut lying = request(Body::empty());
        lying.headers_mut().insert(CONTENT_LENGTH, "99999999999".parse().unwrap());
        assert!(matches!(read(lying, 10, PATIENCE).await, Err(Trouble::TooLarge { .. })));
    }
}
