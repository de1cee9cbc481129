//! One step of a build, in a box of its own: the home that the steps before made goes in, the step is run, the home comes out,
//! and where it was root of the box the image's directories too.
//!
//! Trust: the box is hostile. An archive of it is bounded, and given to nothing but other boxes.

use std::collections::BTreeMap;
use std::time::Duration;

use blastbox_engine::keeper::{ExecEnded, NewBox, TapeEvent};
use blastbox_engine::{Command, USUAL_PATH};
use blastbox_images::store::layer_key;
use blastbox_policy::{NetworkMode, SealedPolicy};
use blastbox_wire::BoxId;
use blastbox_wire::agent::{Io, User};
use blastbox_wire::event::Hash;

use super::archive::{Home, pack_home, unkept, unpack_home, unpack_upload};
use super::ask::{self, Planned, What};
use super::begin;
use super::book::Layer;
use super::build::Site;
use super::log::Cutter;
use super::record::Made;
use super::root::{self, Changed};
use crate::e2b::ending::Ending;
use crate::e2b::envd::paths;
use crate::trouble::line;

/// How long one command may take.
const STEP_TIME: Duration = Duration::from_secs(1_800);
/// Where a COPY finds what was uploaded, in the box.
const UPLOADED: &str = "/tmp/.blastbox-copy";
/// A directory is copied by what is in it; several files, or a place that ends in `/`, make a directory.
const COPY: &str = include_str!("copy.sh");
/// As commands of a sandbox are run, where the image has what that takes.
const SHELL: &str = "if [ -x /bin/bash ]; then exec /bin/bash -l -c \"$0\"; else exec /bin/sh -c \"$0\"; fi";

/// Carries a step out, and changes what the template is made of. An error is a sentence for whoever builds.
pub(super) async fn carry_out(
    site: &Site,
    number: usize,
    step: &Planned,
    made: &mut Made,
) -> Result<(), String> {
    match &step.what {
        What::Env(variables) => made.env.extend(variables.clone()),
        What::Workdir(path) => {
            made.workdir = ask::from(&made.workdir, path);
            let place = made.workdir.clone();
            root::make_place(site, made, &place).await?;
        }
        What::User(user) => made.user = user.clone(),
        What::Run { command, user: _ } => {
            let user = root::who(&step.what, &made.user, &made.workdir);
            let words = ["/bin/sh", "-c", SHELL, command].map(ToOwned::to_owned).to_vec();
            in_a_box(site, Work { number, words, upload: None, user }, step.force, made).await?;
        }
        What::Copy { from, to, user: _, mode, hash } => {
            let user = root::who(&step.what, &made.user, &made.workdir);
            let to = ask::from(&made.workdir, to);
            if !root::is_home(&to) {
                root::make_place(site, made, &root::top(&to)).await?;
            }
            let mode = mode.clone().unwrap_or_default();
            let words = ["/bin/sh", "-c", COPY, "COPY", from, &to, &mode, UPLOADED];
            let words = words.map(ToOwned::to_owned).to_vec();
            in_a_box(site, Work { number, words, upload: Some(hash.clone()), user }, step.force, made)
                .await?;
        }
    }
    Ok(())
}

/// What is done in a box.
struct Work {
    number: usize,
    words: Vec<String>,
    upload: Option<String>,
    user: User,
}

async fn in_a_box(site: &Site, work: Work, force: bool, made: &mut Made) -> Result<(), String> {
    let step = work.number.to_string();
    let policy = site.policy_of(work.user)?;
    let key = key(site, &work, policy, made);
    if let Some(key) = key.filter(|_| !force) {
        // Nobody sweeps between the moment when it is found and the one when it is known to be needed.
        let _held = site.templates.sweeping.lock().await;
        if let Some(layer) = site.templates.book.layer(&site.tenant, &key)
            && site.is_there(&layer).await
        {
            site.log.say("info", &step, "as before");
            (made.home, made.tree) = (layer.home, layer.tree.or(made.tree));
            site.templates.in_hand.uses(&site.tenant, &site.build, made.parts());
            return Ok(());
        }
    }
    // What its home will need is there before anything is done for it.
    super::build::make_room(&site.templates, &site.tenant).await;
    if work.user == User::Root {
        root::has_room(site, made, policy).await?;
    }
    let image = site.image(made.tree).await?;
    let (keeper, tenant) = (site.desk.keeper(), &site.tenant);
    let note = BTreeMap::from([("e2b.template-build".to_owned(), site.build.clone())]);
    let new = NewBox {
        metadata: note,
        life: STEP_TIME * 2,
        idle: STEP_TIME * 2,
        ..NewBox::new(policy.clone(), image)
    };
    let card = keeper
        .create(tenant, new)
        .await
        .map_err(|error| format!("there is no box for it: {}", line(&error)))?;
    // Whatever becomes of it, and of whoever waits for it, its box goes.
    let ending = Ending::of(keeper, tenant, &card.id);
    let outcome = inside(site, &card.id, &work, &step, made).await;
    ending.now().await;
    let (home, changed) = outcome?;
    // On the disk before anybody waits for it.
    let home = match home {
        Some((draft, digest)) => Some((draft.settle().await.map_err(|error| unkept(&error))?, digest)),
        None => None,
    };
    let tree = match changed {
        Some(changed) => Some(root::keep(site, changed, &step).await?),
        None => None,
    };
    // Nobody sweeps between the moment when these are there and the one when they are written down.
    let _held = site.templates.sweeping.lock().await;
    let tree = match tree {
        Some(tree) => {
            root::count(site, tree).await?;
            Some(tree.digest)
        }
        None => None,
    };
    let home = match home {
        Some((draft, digest)) => {
            let at = site.templates.place.home(tenant, &digest).map_err(|error| unkept(&error))?;
            draft.name(&at).map_err(|error| unkept(&error))?;
            Some(digest)
        }
        None => None,
    };
    (made.home, made.tree) = (home, tree.or(made.tree));
    site.templates.in_hand.uses(tenant, &site.build, made.parts());
    if let Some(key) = key {
        let layer = Layer { tenant: tenant.as_str().to_owned(), key, home, tree };
        site.templates.book.remember(layer).map_err(crate::e2b::no::No::message)?;
    }
    Ok(())
}

/// What a step is made from. The view of the host has no content that could be named, so that nothing is used again there.
fn key(site: &Site, work: &Work, policy: &SealedPolicy, made: &Made) -> Option<Hash> {
    let tree = made.tree?;
    let home = made.home.map_or_else(|| "-".to_owned(), |home| home.to_string());
    let policy = policy.digest().to_string();
    let upload = work.upload.clone().unwrap_or_default();
    let mut parts = vec!["e2b", site.tenant.as_str(), &made.workdir, &home, &policy, &upload];
    parts.extend(work.words.iter().map(String::as_str));
    Some(layer_key(&tree, &made.env, &parts))
}

async fn inside(
    site: &Site,
    id: &BoxId,
    work: &Work,
    step: &str,
    made: &Made,
) -> Result<(Home, Option<Changed>), String> {
    let (keeper, tenant) = (site.desk.keeper(), &site.tenant);
    let live = keeper.live(tenant, id).map_err(|error| line(&error))?;
    if let Some(home) = &made.home {
        let archive = site.templates.place.open_home(tenant, home).map_err(|error| unkept(&error))?;
        unpack_home(&live, archive).await?;
    }
    if let Some(hash) = &work.upload {
        let at = site.templates.place.upload(tenant, hash).map_err(|error| unkept(&error))?;
        unpack_upload(&live, UPLOADED, &at).await?;
    }
    begin::stand_in(&live, work.user, &made.workdir).await?;
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
            Some((_, TapeEvent::Ended { ended, .. })) => break ended,
            Some(_) => {}
            None => return Err("its box ended".to_owned()),
        }
    };
    cutter.end(|said| site.log.say("info", step, said));
    match ended {
        ExecEnded::Exited { code: 0 } => {}
        ExecEnded::Exited { code } => {
            return Err(failed(site, work.user, &format!("the command ended with code {code}")));
        }
        ExecEnded::FuelSpent { .. } => return Err("the command did more work than it may".to_owned()),
        ExecEnded::Signalled { signal } => return Err(format!("signal {signal} ended the command")),
        ExecEnded::NotStarted { message, .. } => {
            return Err(format!("the command could not be started: {message}"));
        }
        ExecEnded::BoxEnded { message, .. } => return Err(format!("its box ended: {message}")),
    }
    let home = pack_home(site, &live, work.user, step).await?;
    match work.user {
        User::Root => Ok((home, Some(root::pack(site, &live, made, site.policy_of(work.user)?).await?))),
        User::Payload => Ok((home, None)),
    }
}

/// A command that fails may have wanted something that it cannot have, which its own words seldom say.
fn failed(site: &Site, user: User, what: &str) -> String {
    let mut hints = Vec::new();
    if site.policy.network().mode == NetworkMode::Off {
        hints.push(
            "steps have no network here; the operator opens hosts with `allow` under [e2b.builds]".to_owned(),
        );
    }
    if user == User::Root {
        hints.push("root of a box makes no new directory at the top: set_workdir and copy do".to_owned());
    }
    if hints.is_empty() { what.to_owned() } else { format!("{what} ({})", hints.join("; ")) }
}

fn command(work: &Work, made: &Made) -> Command {
    let (name, home) = paths::at_home(work.user);
    let usual = [("PATH", USUAL_PATH), ("HOME", home), ("USER", name), ("LOGNAME", name)];
    let mut all: BTreeMap<String, String> =
        usual.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    all.extend(made.env.clone());
    Command {
        arguments: work.words.iter().map(|word| word.clone().into_bytes()).collect(),
        environment: all.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect(),
        directory: made.workdir.clone().into_bytes(),
        io: Io::Pipes,
        user: work.user,
    }
}
