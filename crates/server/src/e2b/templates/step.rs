//! One step of a build, in a box of its own: the home that the steps before made goes in, the step is run, the home comes out.
//!
//! Trust: the box is hostile. An archive of it is bounded, and given to nothing but other boxes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::time::Duration;

use blastbox_engine::keeper::{ExecEnded, NewBox, TapeEvent};
use blastbox_engine::{Command, LiveBox, USUAL_PATH, UnpackLimits};
use blastbox_images::store::layer_key;
use blastbox_policy::NetworkMode;
use blastbox_wire::BoxId;
use blastbox_wire::agent::{Io, Parents, User};
use blastbox_wire::event::Hash;
use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::ask::{self, Planned, What};
use super::book::Layer;
use super::build::Site;
use super::log::Cutter;
use super::record::Made;
use crate::e2b::ending::Ending;
use crate::e2b::envd::paths::{self, HOME};
use crate::trouble::line;

/// How long one command may take.
const STEP_TIME: Duration = Duration::from_secs(1_800);
/// How long an archive may take into a box.
const UNPACK_TIME: Duration = Duration::from_secs(600);
/// What a home may have.
const HOME_LIMITS: UnpackLimits = UnpackLimits { bytes: 512 << 20, entries: 200_000 };
const MOST_HOME: u64 = 700 << 20;
/// Where a COPY finds what was uploaded, in the box.
const UPLOADED: &str = "/tmp/.blastbox-copy";
/// A directory is copied by what is in it; several files, or a place that ends in `/`, make a directory.
const COPY: &str = include_str!("copy.sh");
/// As commands of a sandbox are run, where the image has what that takes.
const SHELL: &str = "if [ -x /bin/bash ]; then exec /bin/bash -l -c \"$0\"; else exec /bin/sh -c \"$0\"; fi";
const GULP: usize = 256 * 1024;

/// Carries a step out, and changes what the template is made of. An error is a sentence for whoever builds.
pub(super) async fn carry_out(
    site: &Site,
    number: usize,
    step: &Planned,
    made: &mut Made,
) -> Result<(), String> {
    match &step.what {
        What::Env(variables) => made.env.extend(variables.clone()),
        What::Workdir(path) => made.workdir = ask::from(&made.workdir, path),
        What::User(user) => made.user = user.clone(),
        What::Run { command, user: _ } => {
            let words = ["/bin/sh", "-c", SHELL, command].map(ToOwned::to_owned).to_vec();
            in_a_box(site, Work { number, words, upload: None }, step.force, made).await?;
        }
        What::Copy { from, to, user: _, mode, hash } => {
            let to = ask::from(&made.workdir, to);
            let mode = mode.clone().unwrap_or_default();
            let words = ["/bin/sh", "-c", COPY, "COPY", from, &to, &mode, UPLOADED];
            let words = words.map(ToOwned::to_owned).to_vec();
            in_a_box(site, Work { number, words, upload: Some(hash.clone()) }, step.force, made).await?;
        }
    }
    Ok(())
}

/// Whether a step needs a root of its box, which builds have none of.
pub(super) fn needs_root(what: &What, user: &str, workdir: &str) -> bool {
    match what {
        What::Run { user: asked, .. } => asked.as_deref().unwrap_or(user) == "root",
        What::Copy { to, user: asked, .. } => {
            asked.as_deref() == Some("root") || !is_home(&ask::from(workdir, to))
        }
        What::Env(_) | What::Workdir(_) | What::User(_) => false,
    }
}

fn is_home(path: &str) -> bool {
    path.strip_prefix(HOME).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What is done in a box.
struct Work {
    number: usize,
    words: Vec<String>,
    upload: Option<String>,
}

async fn in_a_box(site: &Site, work: Work, force: bool, made: &mut Made) -> Result<(), String> {
    let step = work.number.to_string();
    let key = key(site, &work, made);
    if let Some(key) = key.filter(|_| !force) {
        // Nobody sweeps between the moment when it is found and the one when it is known to be needed.
        let _held = site.templates.sweeping.lock().await;
        if let Some(layer) = site.templates.book.layer(&site.tenant, &key)
            && site.is_there(layer.home)
        {
            site.log.say("info", &step, "as before");
            made.home = layer.home;
            site.templates.in_hand.uses(&site.tenant, &site.build, made.home);
            return Ok(());
        }
    }
    // What its home will need is there before anything is done for it.
    super::build::make_room(&site.templates, &site.tenant).await;
    let image = site.image(made.tree).await?;
    let (keeper, tenant) = (site.desk.keeper(), &site.tenant);
    let note = BTreeMap::from([("e2b.template-build".to_owned(), site.build.clone())]);
    let new = NewBox {
        metadata: note,
        life: STEP_TIME * 2,
        idle: STEP_TIME * 2,
        ..NewBox::new(site.policy.clone(), image)
    };
    let card = keeper
        .create(tenant, new)
        .await
        .map_err(|error| format!("there is no box for it: {}", line(&error)))?;
    // Whatever becomes of it, and of whoever waits for it, its box goes.
    let ending = Ending::of(keeper, tenant, &card.id);
    let outcome = inside(site, &card.id, &work, &step, made).await;
    ending.now().await;
    let home = outcome?;
    // Nobody sweeps between the moment when these are there and the one when they are written down.
    let _held = site.templates.sweeping.lock().await;
    let home = match home {
        Some((draft, digest)) => {
            let at = site.templates.place.home(tenant, &digest).map_err(|error| unkept(&error))?;
            draft.keep(at).await.map_err(|error| unkept(&error))?;
            Some(digest)
        }
        None => None,
    };
    made.home = home;
    site.templates.in_hand.uses(tenant, &site.build, home);
    if let Some(key) = key {
        let layer = Layer { tenant: tenant.as_str().to_owned(), key, home };
        site.templates.book.remember(layer).map_err(crate::e2b::no::No::message)?;
    }
    Ok(())
}

/// What a step is made from. The view of the host has no content that could be named, so that nothing is used again there.
fn key(site: &Site, work: &Work, made: &Made) -> Option<Hash> {
    let tree = made.tree?;
    let home = made.home.map_or_else(|| "-".to_owned(), |home| home.to_string());
    let policy = site.policy.digest().to_string();
    let upload = work.upload.clone().unwrap_or_default();
    let mut parts = vec!["e2b", site.tenant.as_str(), &made.workdir, &home, &policy, &upload];
    parts.extend(work.words.iter().map(String::as_str));
    Some(layer_key(&tree, &made.env, &parts))
}

/// A home that a step has made.
type Home = Option<(super::place::Draft, Hash)>;

async fn inside(site: &Site, id: &BoxId, work: &Work, step: &str, made: &Made) -> Result<Home, String> {
    let (keeper, tenant) = (site.desk.keeper(), &site.tenant);
    let live = keeper.live(tenant, id).map_err(|error| line(&error))?;
    if let Some(home) = &made.home {
        let archive = site.templates.place.open_home(tenant, home).map_err(|error| unkept(&error))?;
        unpack_home(&live, archive).await?;
    }
    if let Some(hash) = &work.upload {
        let at = site.templates.place.upload(tenant, hash).map_err(|error| unkept(&error))?;
        let file = File::open(&at).map_err(|_| "its files were not uploaded".to_owned())?;
        unpack(&live, UPLOADED, file, Packed::Perhaps)
            .await
            .map_err(|why| format!("its files cannot be unpacked: {why}"))?;
    }
    // A directory that is there already is as good.
    live.files().make_directory(made.workdir.as_bytes(), 0o755, Parents::Make).await.ok();
    let command = command(work, made);
    let exec =
        keeper.exec_within(tenant, id, command, Some(STEP_TIME)).await.map_err(|error| line(&error))?;
    let mut tape = keeper.tape(tenant, id, exec, None).map_err(|error| line(&error))?.hold_back();
    let mut cutter = Cutter::default();
    let ended = loop {
        match tape.next().await {
            Some((_, TapeEvent::Output { bytes, .. })) => {
                cutter.take(&bytes, |said| site.log.say("info", step, said))
            }
            Some((_, TapeEvent::Ended(ended))) => break ended,
            Some(_) => {}
            None => return Err("its box ended".to_owned()),
        }
    };
    cutter.end(|said| site.log.say("info", step, said));
    match ended {
        ExecEnded::Exited { code: 0 } => {}
        ExecEnded::Exited { code } => {
            return Err(failed(site, &format!("the command ended with code {code}")));
        }
        ExecEnded::FuelSpent { .. } => return Err("the command did more work than it may".to_owned()),
        ExecEnded::Signalled { signal } => return Err(format!("signal {signal} ended the command")),
        ExecEnded::NotStarted { message, .. } => {
            return Err(format!("the command could not be started: {message}"));
        }
        ExecEnded::BoxEnded { message, .. } => return Err(format!("its box ended: {message}")),
    }
    pack_home(site, &live).await
}

/// A command that fails may have wanted something that it cannot have, which its own words seldom say.
fn failed(site: &Site, what: &str) -> String {
    match site.policy.network().mode {
        NetworkMode::Off => {
            format!(
                "{what} (steps have no network here; the operator opens hosts with `allow` under [e2b.builds])"
            )
        }
        NetworkMode::Allow | NetworkMode::Open => what.to_owned(),
    }
}

fn command(work: &Work, made: &Made) -> Command {
    let (name, home) = paths::at_home(User::Payload);
    let usual = [("PATH", USUAL_PATH), ("HOME", home), ("USER", name), ("LOGNAME", name)];
    let mut all: BTreeMap<String, String> =
        usual.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    all.extend(made.env.clone());
    Command {
        arguments: work.words.iter().map(|word| word.clone().into_bytes()).collect(),
        environment: all.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect(),
        directory: made.workdir.clone().into_bytes(),
        io: Io::Pipes,
        user: User::Payload,
    }
}

/// Gives a box the home that a build has made.
pub(super) async fn unpack_home(live: &LiveBox, archive: File) -> Result<(), String> {
    unpack(live, HOME, archive, Packed::No)
        .await
        .map_err(|why| format!("the home of the template cannot be unpacked: {why}"))
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
    std::io::Seek::rewind(&mut file).map_err(|error| unkept(&error))?;
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
            read.await.map_err(|_| "it could not be read".to_owned())?.map_err(|error| unkept(&error))?;
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

async fn pack_home(site: &Site, live: &LiveBox) -> Result<Home, String> {
    let mut draft =
        site.templates.place.draft("homes", &site.tenant).await.map_err(|error| unkept(&error))?;
    let unread = |error| format!("its home cannot be read: {}", blastbox_engine::causes(&error));
    let mut download = live.files().tar_out(HOME.as_bytes()).await.map_err(unread)?;
    let (mut hasher, mut length) = (Sha256::new(), 0_u64);
    while let Some(bytes) = download.next().await.map_err(unread)? {
        length = length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if length > MOST_HOME {
            return Err(format!("its home has more than {MOST_HOME} bytes"));
        }
        hasher.update(&bytes);
        draft = draft.take(&bytes).await.map_err(|error| unkept(&error))?;
    }
    download.summary().await.map_err(unread)?;
    let hex: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let digest = format!("sha256:{hex}").parse().map_err(|_| "a digest is none".to_owned())?;
    // An archive of nothing is its end mark.
    Ok((length > 1_024).then_some((draft, digest)))
}

fn unkept(error: &std::io::Error) -> String {
    format!("files of templates cannot be kept: {error}")
}
