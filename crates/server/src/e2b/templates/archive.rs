//! Archives of homes and uploads, into a box and out of it.
//!
//! Trust: the box is hostile, and so is the caller. An archive is bounded, and given to nothing but boxes.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use blastbox_engine::{LiveBox, UnpackLimits};
use blastbox_wire::agent::{Entry, EntryKind, Parents, User};
use blastbox_wire::event::Hash;
use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::build::Site;
use super::place::Draft;
use crate::e2b::envd::paths::HOME;
use crate::e2b::template::Size;

/// How long an archive may take into a box.
const UNPACK_TIME: Duration = Duration::from_secs(600);
/// What a home may have.
const HOME_LIMITS: UnpackLimits = UnpackLimits { bytes: 512 << 20, entries: 200_000 };
const MOST_HOME: u64 = 700 << 20;
const GULP: usize = 256 * 1024;
/// Names of what is left out, in one message.
const NAMED: usize = 8;
const LONGEST_NAME: usize = 200;

/// A home that a step has made.
pub(super) type Home = Option<(Draft, Hash)>;

/// Gives a box the home that a build has made.
pub(super) async fn unpack_home(live: &LiveBox, archive: File) -> Result<(), String> {
    unpack(live, HOME, archive, Packed::No)
        .await
        .map_err(|why| format!("the home of the template cannot be unpacked: {why}"))
}

/// Gives it the files that a COPY takes.
pub(super) async fn unpack_upload(live: &LiveBox, to: &str, archive: &Path) -> Result<(), String> {
    let file = File::open(archive).map_err(|_| "its files were not uploaded".to_owned())?;
    unpack(live, to, file, Packed::Perhaps)
        .await
        .map_err(|why| format!("its files cannot be unpacked: {why}"))
}

/// Whether an archive may be packed with gzip: what the SDKs upload is, and homes are as agents pack them. A box could
/// otherwise leave a home that is small here and endless to whoever unpacks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packed {
    Perhaps,
    No,
}

/// Unpacks an archive in a box, by its agent, within a time. What is packed with gzip is passed on plain.
async fn unpack(live: &LiveBox, to: &str, file: File, packed: Packed) -> Result<(), String> {
    let done = timeout(UNPACK_TIME, unpack_all(live, to, file, packed)).await;
    done.unwrap_or_else(|_| Err(format!("it took longer than {} s", UNPACK_TIME.as_secs())))
}

async fn unpack_all(live: &LiveBox, to: &str, mut file: File, packed: Packed) -> Result<(), String> {
    let mut magic = [0_u8; 2];
    let packed = packed == Packed::Perhaps && file.read_exact(&mut magic).is_ok() && magic == [0x1f, 0x8b];
    std::io::Seek::rewind(&mut file).map_err(|error| unread(&error))?;
    let mut from: Box<dyn Read + Send> =
        if packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let upload = live.files().tar_in(to.as_bytes(), Parents::Make, HOME_LIMITS).await;
    let mut upload = upload.map_err(|error| blastbox_engine::causes(&error))?;
    let mut length = 0_u64;
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; GULP];
            from.read(&mut piece).map(|length| {
                piece.truncate(length);
                (piece, from)
            })
        });
        let piece =
            read.await.map_err(|_| "it could not be read".to_owned())?.map_err(|error| unread(&error))?;
        from = piece.1;
        if piece.0.is_empty() {
            break;
        }
        // A few bytes of gzip can be as many as somebody likes.
        length = length.saturating_add(u64::try_from(piece.0.len()).unwrap_or(u64::MAX));
        if length > MOST_HOME {
            return Err(format!("it has more than {MOST_HOME} bytes"));
        }
        upload.write(&piece.0).await.map_err(|error| blastbox_engine::causes(&error))?;
    }
    upload.finish().await.map(drop).map_err(|error| blastbox_engine::causes(&error))
}

/// Takes along the home that a step leaves.
pub(super) async fn pack_home(site: &Site, live: &LiveBox, user: User, step: &str) -> Result<Home, String> {
    let mut draft =
        site.templates.place.draft("homes", &site.tenant).await.map_err(|error| unkept(&error))?;
    let unread = |error| format!("its home cannot be read: {}", blastbox_engine::causes(&error));
    let mut download = live.files_as(user).tar_out(HOME.as_bytes()).await.map_err(unread)?;
    let (mut hasher, mut length) = (Sha256::new(), 0_u64);
    while let Some(bytes) = download.next().await.map_err(unread)? {
        length = length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if length > MOST_HOME {
            return Err(format!("its home has more than {MOST_HOME} bytes"));
        }
        hasher.update(&bytes);
        draft = draft.take(&bytes).await.map_err(|error| unkept(&error))?;
    }
    let skipped = download.summary().await.map_err(unread)?.skipped;
    if skipped > 0 {
        let what = lost(download.left_out()).map_err(|lost| unreadable(skipped, &lost))?;
        site.log.say("warn", step, &format!("{skipped} entries of its home are left out: {what}"));
    }
    // Steps may have more room than sandboxes.
    let size = Size::of(&site.of_sandboxes);
    if length > size.disk_mib << 20 {
        return Err(format!(
            "its home has {} MiB, and files of a sandbox {} MiB where memoryMB is {}",
            length.div_ceil(1 << 20),
            size.disk_mib,
            size.memory_mib
        ));
    }
    let hex: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let digest = format!("sha256:{hex}").parse().map_err(|_| "a digest is none".to_owned())?;
    // An archive of nothing is its end mark.
    Ok((length > 1_024).then_some((draft, digest)))
}

/// Pipes and sockets are nothing that a template could keep. Anything else that is left out is a file that its sandboxes would
/// miss: the names of those.
fn lost(left_out: &[Entry]) -> Result<String, String> {
    let (special, lost): (Vec<&Entry>, Vec<&Entry>) =
        left_out.iter().partition(|entry| entry.kind == EntryKind::Other);
    let names = |entries: &[&Entry]| {
        let name = |entry: &&Entry| {
            let shown: String = String::from_utf8_lossy(&entry.path).chars().take(LONGEST_NAME).collect();
            format!("{shown:?}")
        };
        entries.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ")
    };
    if lost.is_empty() && !special.is_empty() { Ok(names(&special)) } else { Err(names(&lost)) }
}

fn unreadable(skipped: u64, lost: &str) -> String {
    format!(
        "its home has files that its user may not read, and a template without them would be another one; let the step make them \
         readable (`chmod -R u+rX ~`) or remove them: {lost} ({skipped} entries could not be taken along)"
    )
}

pub(super) fn unkept(error: &std::io::Error) -> String {
    format!("files of templates cannot be kept: {error}")
}

fn unread(error: &std::io::Error) -> String {
    format!("the archive cannot be read: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: EntryKind) -> Entry {
        let (size, mode, uid, gid, modified_nanos) = (0, 0, 0, 0, 0);
        Entry { path: path.into(), kind, size, mode, uid, gid, modified_nanos, link: None }
    }

    #[test]
    fn a_file_that_a_home_would_lose_is_named_and_a_pipe_is_none() {
        let (pipe, file) = (entry("agent.sock", EntryKind::Other), entry(".key\n", EntryKind::File));
        assert_eq!(lost(std::slice::from_ref(&pipe)), Ok("\"agent.sock\"".to_owned()));
        assert_eq!(lost(&[pipe, file]), Err("\".key\\n\"".to_owned()));
        // An agent that names nothing may have left out anything.
        assert_eq!(lost(&[]), Err(String::new()));
        let many: Vec<Entry> = (0..16).map(|_| entry(&"d/".repeat(2_000), EntryKind::Directory)).collect();
        let said = lost(&many).unwrap_err();
        assert!(said.len() < NAMED * (LONGEST_NAME + 8), "{}", said.len());
    }
}
