//! `/volumecontent/{id}/…`: what lies in a volume, for whoever has its token.

mod transfer;

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Method, Response, StatusCode};
use axum::response::IntoResponse;
use rustix::fs::FileType;
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::{Value, json};

use super::room::{Hold, new_entries};
use super::shelf::{Claim, Shelf, Volume};
use super::tree::{Amount, Found, Place, Tree};
use crate::e2b::apart::Threads;
use crate::e2b::control::body;
use crate::e2b::desk::Desk;
use crate::e2b::no::{No, echo};
use crate::e2b::{edge, endpoints, form, moment};

/// Who owns everything in a volume, as boxes see it.
const OWNER: u32 = 1_000;
const DEEPEST: usize = 32;

/// Whether a request is about what lies in a volume: it brings a token, and no key.
pub(in crate::e2b) fn is_content(parts: &[&str]) -> bool {
    matches!(parts, ["volumecontent", ..])
}

/// Errors have words for codes here, where all others have numbers.
pub(in crate::e2b) async fn answer(
    desk: &Desk,
    parts: &[&str],
    request: Request,
) -> Result<Response<Body>, No> {
    reply(desk, parts, request).await.or_else(|no| {
        let status = StatusCode::from_u16(no.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let code = status.canonical_reason().unwrap_or("error").to_ascii_lowercase().replace(' ', "_");
        let mut response = show(status, json!({ "code": code, "message": no.message() }));
        response.headers_mut().insert("should-retry", HeaderValue::from_static("false"));
        Ok(response)
    })
}

async fn reply(desk: &Desk, parts: &[&str], request: Request) -> Result<Response<Body>, No> {
    edge::let_through(&request)?;
    let shelf = Arc::clone(super::shelf(desk)?);
    endpoints::check(endpoints::CONTROL, request.method().as_str(), parts)?;
    let ["volumecontent", id, what] = parts else { return Err(No::defect()) };
    let volume = opened_by(desk, &shelf, id, &request)?;
    edge::sit_down(&request, &volume.tenant)?;
    let query = form::pairs(request.uri().query());
    let path = form::value(&query, "path").ok_or_else(|| No::bad("path is missing"))?;
    let place = Place::read(path).ok_or_else(|| No::bad("path leads out of the volume, or is too long"))?;
    let wish = Wish::read(&query)?;
    let threads = desk.apart.of(&volume.tenant);
    let writes = request.method() != Method::GET;
    // A volume does not go while somebody writes to it: what came would lie in what is nobody's any more.
    let claim = if writes { Some(shelf.claim_one(&volume.id).ok_or_else(|| gone(&volume))?) } else { None };
    let on = On { shelf, volume, place, threads, _claim: claim.map(Arc::new) };
    match (request.method().as_str(), *what) {
        ("GET", "path") => on.ask(StatusCode::OK, |tree, place| tree.look(place)).await,
        ("PATCH", "path") => {
            let Patch { uid, gid, mode } = body::read(request).await?;
            owned_by_user(uid, gid)?;
            on.ask(StatusCode::OK, move |tree, place| match mode {
                Some(mode) => tree.set_mode(place, mode),
                None => tree.look(place),
            })
            .await
        }
        ("DELETE", "path") => {
            on.blocking(|tree, place| tree.remove(place)).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        ("GET", "dir") => {
            let depth = wish.depth;
            let listed = on.apart(move |on| on.listed(depth)).await?;
            Ok(show(StatusCode::OK, listed.iter().map(stat).collect()))
        }
        ("POST", "dir") => {
            let (parents, mode) = (wish.force == Some(true), wish.mode.unwrap_or(0o755));
            let make = move |on: &On| {
                let mut hold = on.hold(new_entries(on.place.depth(), 0))?;
                on.at_disk(|tree, place| hold.arrive(|| tree.make(place, mode, parents)))
            };
            Ok(show(StatusCode::CREATED, stat(&on.apart(make).await?)))
        }
        ("GET", "file") => transfer::read(on).await,
        ("PUT", "file") => transfer::write(on, &wish, request).await,
        _ => Err(No::defect()),
    }
}

/// The volume whose token was brought. Whoever brings another learns nothing of it, nor whoever's keys are gone.
fn opened_by(desk: &Desk, shelf: &Shelf, id: &str, request: &Request) -> Result<Volume, No> {
    let token =
        request.headers().get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let volume = shelf.find(None, id).filter(|volume| token.is_some_and(|token| volume.token.is(token)));
    let volume = volume.filter(|volume| desk.hall().keys.lets_in(&volume.tenant));
    volume.ok_or_else(|| No::new(401, "the token of a volume is missing, or not this one's"))
}

#[derive(Debug, Deserialize)]
struct Patch {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
}

/// What is said beside the path.
#[derive(Debug)]
struct Wish {
    depth: usize,
    mode: Option<u32>,
    force: Option<bool>,
}

impl Wish {
    fn read(query: &[(String, String)]) -> Result<Self, No> {
        let number = |name: &str| {
            let text = form::value(query, name);
            let bad = |_| No::bad(format!("{name} is no number"));
            text.map(|text| text.parse::<u32>().map_err(bad)).transpose()
        };
        owned_by_user(number("uid")?, number("gid")?)?;
        let depth = number("depth")?.map_or(1, |depth| usize::try_from(depth).unwrap_or(usize::MAX));
        if !(1..=DEEPEST).contains(&depth) {
            return Err(No::bad(format!("depth is 1 to {DEEPEST}")));
        }
        let force = match form::value(query, "force") {
            None => None,
            Some("true" | "True" | "1") => Some(true),
            Some("false" | "False" | "0") => Some(false),
            Some(_) => return Err(No::bad("force is true or false")),
        };
        Ok(Self { depth, mode: number("mode")?, force })
    }
}

/// Nobody else owns anything in a volume.
fn owned_by_user(uid: Option<u32>, gid: Option<u32>) -> Result<(), No> {
    if [uid, gid].into_iter().flatten().all(|id| id == OWNER) {
        return Ok(());
    }
    Err(No::bad(format!(
        "uid and gid other than {OWNER} are refused: everything in a volume belongs to the user of sandboxes"
    )))
}

/// A place in a volume.
#[derive(Debug, Clone)]
struct On {
    shelf: Arc<Shelf>,
    volume: Volume,
    place: Place,
    threads: Threads,
    /// Until nothing is done there any more, also on a thread whose caller has gone away. None: nothing is written.
    _claim: Option<Arc<Claim>>,
}

impl On {
    /// On a thread of its own: nobody else waits for a disk.
    async fn apart<T: Send + 'static>(
        self,
        deed: impl FnOnce(&Self) -> Result<T, No> + Send + 'static,
    ) -> Result<T, No> {
        let threads = self.threads.clone();
        threads.run(move || deed(&self)).await?
    }

    async fn blocking<T: Send + 'static>(
        self,
        deed: impl FnOnce(&Tree, &Place) -> io::Result<T> + Send + 'static,
    ) -> Result<T, No> {
        self.apart(move |on| on.at_disk(deed)).await
    }

    async fn ask(
        self,
        status: StatusCode,
        deed: impl FnOnce(&Tree, &Place) -> io::Result<Found> + Send + 'static,
    ) -> Result<Response<Body>, No> {
        Ok(show(status, stat(&self.blocking(deed).await?)))
    }

    fn at_disk<T>(&self, deed: impl FnOnce(&Tree, &Place) -> io::Result<T>) -> Result<T, No> {
        let done = self.shelf.tree(&self.volume.id).and_then(|tree| deed(&tree, &self.place));
        done.map_err(|error| unheard(&error, &self.place))
    }

    /// What lies in a directory. What is there and is none is told apart from what is not there.
    fn listed(&self, depth: usize) -> Result<Vec<Found>, No> {
        let listed = self.at_disk(|tree, place| {
            let kind = FileType::from_raw_mode(tree.look(place)?.stat.st_mode);
            Ok(if kind == FileType::Directory { Some(tree.list(place, depth)?) } else { None })
        })?;
        listed.ok_or_else(|| No::bad(format!("path \"{}\" is not a directory", echo(&self.place.text()))))
    }

    /// Holds room in the volume for something new. Looks at the disk.
    fn hold(&self, amount: Amount) -> Result<Hold, No> {
        if !self.shelf.disk_has_room() {
            return Err(no_disk());
        }
        let room = self.shelf.room(&self.volume.id).ok_or_else(|| Errno::NOENT.into());
        let held = room.and_then(|room| room.hold(amount));
        held.map_err(|error| unheard(&error, &self.place))?.ok_or_else(|| full(self.shelf.most().bytes))
    }
}

fn gone(volume: &Volume) -> No {
    No::new(404, format!("volume \"{}\" is about to be deleted", volume.name))
}

fn full(most: u64) -> No {
    No::new(507, format!("the volume is full: it may have {most} bytes"))
}

fn no_disk() -> No {
    No::new(507, "the disk of the host has no room for what is written to volumes")
}

fn show(status: StatusCode, value: Value) -> Response<Body> {
    crate::answer::Answer(status, value).into_response()
}

/// VolumeEntryStat.
fn stat(found: &Found) -> Value {
    let kind = match FileType::from_raw_mode(found.stat.st_mode) {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        _ => "unknown",
    };
    let at = |seconds: i64, nanos: u64| {
        moment::text_of_nanos(
            seconds.saturating_mul(1_000_000_000).saturating_add(i64::try_from(nanos).unwrap_or(0)),
        )
    };
    let Found { place, stat, target } = found;
    let mut shown = json!({
        "name": place.name(),
        "type": kind,
        "path": place.text(),
        "size": stat.st_size,
        "mode": stat.st_mode & 0o7777,
        "uid": OWNER,
        "gid": OWNER,
        "atime": at(stat.st_atime, stat.st_atime_nsec),
        "mtime": at(stat.st_mtime, stat.st_mtime_nsec),
        "ctime": at(stat.st_ctime, stat.st_ctime_nsec),
    });
    if let (Some(target), Some(fields)) = (target, shown.as_object_mut()) {
        fields.insert("target".to_owned(), json!(target));
    }
    shown
}

fn unheard(error: &io::Error, place: &Place) -> No {
    let path = echo(&place.text());
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
            No::new(404, format!("path \"{path}\" not found"))
        }
        Some(Errno::EXIST) => No::new(409, format!("path \"{path}\" exists already")),
        Some(Errno::ISDIR) => No::bad(format!("path \"{path}\" is a directory")),
        Some(Errno::INVAL) => No::bad(format!("path \"{path}\" is neither a file nor a directory")),
        Some(Errno::TOOBIG) => No::bad(format!("path \"{path}\" has too many entries for one answer")),
        Some(Errno::ACCESS | Errno::PERM) => No::new(403, format!("path \"{path}\" is closed by its mode")),
        Some(Errno::NOSPC | Errno::DQUOT) => No::new(507, "the disk of the host is full"),
        _ => No::new(500, format!("path \"{path}\" cannot be used: {error}")),
    }
}
