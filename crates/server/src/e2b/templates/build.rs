//! A whole build, from the moment it is started: step by step, in the tenant's own quota, few at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blastbox_engine::keeper::Tenant;
use blastbox_images::{Image, StoredImage};
use blastbox_policy::SealedPolicy;
use blastbox_wire::agent::User;
use blastbox_wire::event::Hash;
use tokio::time::timeout;

use super::ask::{self, From, Plan, What};
use super::book::Layer;
use super::log::BuildLog;
use super::record::{Build, Made, Reason, Status};
use super::root::{self, Root};
use super::{Templates, begin, may_do, step};
use crate::config::Shape;
use crate::e2b::control::create::{MOST_ENVS, bounded};
use crate::e2b::control::network::Reaches;
use crate::e2b::desk::Desk;
use crate::e2b::envd::paths::HOME;
use crate::e2b::no::{No, echo};
use crate::e2b::{moment, template};
use crate::trouble::line;

/// How long a build may work, from its turn on.
const LONGEST: Duration = Duration::from_secs(2 * 3_600);
/// MiB of memory that a step has at least.
pub(super) const LEAST_MEMORY: u64 = 1_024;
/// Letters of why a build failed that are written down.
const MOST_REASON: usize = 2_000;

/// Everything that the steps of one build have in common.
pub(super) struct Site {
    pub(super) desk: Arc<Desk>,
    pub(super) templates: Arc<Templates>,
    pub(super) tenant: Tenant,
    pub(super) build: String,
    pub(super) policy: SealedPolicy,
    pub(super) root: Root,
    /// What its sandboxes will have, as long as nobody asks for a network.
    pub(super) of_sandboxes: SealedPolicy,
    pub(super) log: Arc<BuildLog>,
}

/// Starts a build that was asked for. What can be refused is refused now; the rest is told by its status.
pub(super) async fn start(
    desk: &Arc<Desk>,
    templates: &Arc<Templates>,
    tenant: &Tenant,
    (asked, build): (&str, &str),
    plan: Plan,
) -> Result<(), No> {
    let record = templates.book.own(tenant, asked)?;
    let found = record.build(build).cloned().ok_or_else(|| no_build(build))?;
    let made = origin(desk, templates, tenant, &plan.from).await?;
    let builds = may_do(desk.hall())?;
    let shape = made.base.as_deref().and_then(|base| template::shape_of(base, &desk.hall().images));
    let shape = shape.cloned().unwrap_or_default();
    let root = Root::of(desk, templates, (builds, &shape, &found), &made).await?;
    foresee(&plan, &made, &root)?;
    templates.book.has_room(tenant)?;
    let policy = policy(&found, &builds.reaches, &shape, LEAST_MEMORY)?;
    let of_sandboxes = self::policy(&found, &builds.reaches, &shape, 0)?;
    // Nobody sweeps before it is known that this build needs the home that it begins with. From here on nothing waits: whoever
    // goes away meanwhile leaves no build that nobody is at.
    let _held = templates.sweeping.lock().await;
    let log = templates.logs.begin(tenant, build, found.status)?;
    templates.in_hand.uses(tenant, build, made.parts());
    let site = Arc::new(Site {
        desk: Arc::clone(desk),
        templates: Arc::clone(templates),
        tenant: tenant.clone(),
        build: build.to_owned(),
        policy,
        root,
        of_sandboxes,
        log,
    });
    let id = record.id;
    let (at_work, template) = (Arc::clone(&site), id.clone());
    let work = tokio::spawn(async move { whole(&at_work, &template, plan, made).await });
    templates.in_hand.runs(build, work.abort_handle());
    if templates.book.find(tenant, &id).is_none() {
        // It was deleted before anybody could know that this is to be ended with it.
        work.abort();
    }
    tokio::spawn(async move {
        // A defect of ours ends one build, and leaves none that is at work for ever.
        let defect = || Failed { step: "base".to_owned(), why: "blastbox failed at this build".to_owned() };
        let outcome = work.await.unwrap_or_else(|_| Err(defect()));
        finish(&site, &id, outcome);
        site.templates.in_hand.end(&site.build);
        site.sweep().await;
    });
    Ok(())
}

fn no_build(build: &str) -> No {
    No::new(404, format!("there is no build '{}' of this template", echo(build)))
}

fn policy(build: &Build, reaches: &Reaches, shape: &Shape, least: u64) -> Result<SealedPolicy, No> {
    let sized = template::sized(reaches, shape, build.cpus, build.memory_mib.max(least));
    sized.map_err(|error| No::new(500, line(&error)))
}

/// What a build begins with.
async fn origin(desk: &Arc<Desk>, templates: &Templates, tenant: &Tenant, from: &From) -> Result<Made, No> {
    let name = match from {
        From::Template(name) => match templates.made(tenant, name)? {
            Some((_, made)) => return Ok(Made { start: None, ready: None, ..made }),
            None => name.clone(),
        },
        From::Image(name) => name.clone(),
    };
    let images = Arc::clone(&desk.hall().images);
    let open = move || template::image(&name, &images);
    let (base, image) = tokio::task::spawn_blocking(open).await.unwrap_or_else(|_| Err(No::defect()))?;
    let (tree, env) = match &image {
        Image::Host(_) => (None, BTreeMap::new()),
        Image::Stored(stored) => (Some(stored.digest()), stored.config().env.clone()),
        // The gallery has no modules.
        Image::Module(_) => return Err(No::defect()),
        Image::Directory(_) => {
            return Err(No::bad(
                "this image is a directory of the host, which its owner may change: the operator has to import it into the \
                 store (`blastbox image import`) before templates are built from it",
            ));
        }
    };
    let (workdir, user) = (HOME.to_owned(), "user".to_owned());
    Ok(Made { tree, base: Some(base), home: None, env, workdir, user, start: None, ready: None })
}

/// Goes through a plan without doing anything, and refuses what cannot be. Without a root of the box there is nothing that a
/// step could change but the home; and what steps say together has an end, as what each says has.
fn foresee(plan: &Plan, made: &Made, root: &Root) -> Result<(), No> {
    let (mut user, mut workdir, mut env) = (made.user.clone(), made.workdir.clone(), made.env.clone());
    for (number, planned) in (1..).zip(&plan.steps) {
        if root::is_needed(&planned.what, &user, &workdir) {
            root.refuse(number, &planned.text)?;
        }
        match &planned.what {
            What::User(other) => user = other.clone(),
            What::Workdir(path) => workdir = ask::from(&workdir, path),
            What::Env(variables) => env.extend(variables.clone()),
            What::Run { .. } | What::Copy { .. } => {}
        }
        if workdir.len() > ask::MOST_PATH {
            return Err(No::bad(format!("step {number}: a path has at most {} bytes", ask::MOST_PATH)));
        }
        bounded(&format!("step {number}: the variables so far"), &env, MOST_ENVS)?;
    }
    Ok(())
}

/// Where it failed, and why.
struct Failed {
    step: String,
    why: String,
}

async fn whole(site: &Site, template: &str, plan: Plan, mut made: Made) -> Result<Made, Failed> {
    let at = |step: &str| {
        let step = step.to_owned();
        move |why: String| Failed { step, why }
    };
    let _turn = site.templates.in_hand.turn(&site.tenant).await;
    let begun = site.templates.book.change(&site.tenant, template, |record| {
        let build = record.build_mut(&site.build).ok_or_else(|| no_build(&site.build))?;
        build.status = Status::Building;
        Ok(())
    });
    begun.map_err(|no| at("base")(no.message()))?;
    let work = async {
        let count = plan.steps.len();
        for (number, planned) in (1..).zip(&plan.steps) {
            let step = number.to_string();
            site.log.say("info", &step, &format!("[{number}/{count}] {}", planned.text));
            step::carry_out(site, number, planned, &mut made).await.map_err(at(&step))?;
        }
        made.start = plan.start;
        made.ready = plan.ready;
        if made.start.is_some() || made.ready.is_some() || !root::is_home(&made.workdir) {
            site.log.say("info", "finalize", "starting what sandboxes begin with");
            begin::try_out(site, &made).await.map_err(at("finalize"))?;
        }
        if made.user != "user" {
            let what = "commands of a sandbox are its user's unless they name another: the last USER only counts for steps";
            site.log.say("warn", "finalize", what);
        }
        Ok(made)
    };
    match timeout(LONGEST, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(at("finalize")(format!("a build takes at most {} s", LONGEST.as_secs()))),
    }
}

/// Writes down what became of it.
fn finish(site: &Site, template: &str, outcome: Result<Made, Failed>) {
    let ended = match &outcome {
        Ok(_) => ("info", "finalize", "done".to_owned()),
        Err(failed) => ("error", failed.step.as_str(), failed.why.clone()),
    };
    site.log.say(ended.0, ended.1, &ended.2);
    let written = site.templates.book.change(&site.tenant, template, |record| {
        let build = record.build_mut(&site.build).ok_or_else(|| no_build(&site.build))?;
        build.finished = Some(moment::text(SystemTime::now()));
        let tags = build.tags.clone();
        let outcome = outcome.and_then(|made| match record.tag(&site.build, &tags) {
            Ok(()) => Ok(made),
            Err(no) => Err(Failed { step: "finalize".to_owned(), why: no.message() }),
        });
        let build = record.build_mut(&site.build).ok_or_else(|| no_build(&site.build))?;
        match outcome {
            Ok(made) => (build.status, build.made) = (Status::Ready, Some(made)),
            Err(Failed { step, why }) => {
                let message = why.chars().take(MOST_REASON).collect();
                (build.status, build.reason) = (Status::Error, Some(Reason { message, step }));
            }
        }
        Ok(())
    });
    if let Err(no) = written {
        // Its template was deleted meanwhile, or the disk is full: then at least nobody waits for it.
        site.templates.book.lost(&site.tenant, template, &site.build, &no.message());
    }
    site.templates.logs.end(&site.build);
}

/// The image with this tree. Looks at the disk, on a thread of its own.
pub(super) async fn image(desk: &Desk, templates: &Arc<Templates>, tree: Option<Hash>) -> Result<Image, No> {
    let (images, templates) = (Arc::clone(&desk.hall().images), Arc::clone(templates));
    let done = tokio::task::spawn_blocking(move || templates.image(tree, &images));
    done.await.unwrap_or_else(|_| Err(No::defect()))
}

impl Site {
    /// The image with this tree.
    pub(super) async fn image(&self, tree: Option<Hash>) -> Result<Image, String> {
        image(&self.desk, &self.templates, tree).await.map_err(No::message)
    }

    /// The same, where it is one of a store.
    pub(super) async fn stored(&self, made: &Made) -> Result<StoredImage, String> {
        match self.image(made.tree).await? {
            Image::Stored(image) => Ok(*image),
            Image::Host(_) | Image::Directory(_) | Image::Module(_) => {
                Err("there is no image that could be changed".to_owned())
            }
        }
    }

    /// What a step may do.
    pub(super) fn policy_of(&self, user: User) -> Result<&SealedPolicy, String> {
        match (user, &self.root) {
            (User::Payload, _) => Ok(&self.policy),
            (User::Root, Root::Given(policy)) => Ok(policy),
            // Refused before anything was done.
            (User::Root, Root::Without(_)) => Err("steps have no root here".to_owned()),
        }
    }

    /// Whether what was made before is still there.
    pub(super) async fn is_there(&self, layer: &Layer) -> bool {
        let home = layer.home.is_none_or(|home| {
            self.templates.place.home(&self.tenant, &home).is_ok_and(|path| path.is_file())
        });
        home && (layer.tree.is_none() || self.image(layer.tree).await.is_ok())
    }

    pub(super) async fn sweep(&self) {
        sweep(&self.templates).await;
    }
}

/// Where a tenant's files leave no room for more, what is only remembered so that steps need not be run again goes.
pub(super) async fn make_room(templates: &Arc<Templates>, tenant: &Tenant) {
    if !templates.place.is_tight(tenant).await {
        return;
    }
    // What cannot be written down now is tried with the next step.
    if templates.book.forget_layers(tenant).is_ok_and(|forgot| forgot) {
        sweep(templates).await;
    }
}

/// Takes away trees and homes that no template means any more.
pub(super) async fn sweep(templates: &Arc<Templates>) {
    let _held = templates.sweeping.lock().await;
    let templates = Arc::clone(templates);
    // What cannot be taken away now is taken away the next time.
    let work = move || {
        let mut needed = templates.book.needed();
        needed.extend(templates.in_hand.needed());
        needed.extend(templates.lying.parts());
        templates.place.sweep(&needed).is_ok()
            && templates.trees.sweep(&needed, &templates.lying, |build| templates.in_hand.has(build)).is_ok()
    };
    tokio::task::spawn_blocking(work).await.ok();
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NONE: &Root = &Root::Without(root::Why::NotAllowed);

    fn plan(steps: &Value) -> Plan {
        let body = json!({ "fromImage": "base", "steps": steps });
        serde_json::from_value::<ask::StartBuild>(body).unwrap().check().unwrap()
    }

    fn made() -> Made {
        let (workdir, user) = (HOME.to_owned(), "user".to_owned());
        let env = BTreeMap::new();
        Made { tree: None, base: None, home: None, env, workdir, user, start: None, ready: None }
    }

    #[test]
    fn what_steps_say_together_has_an_end_and_is_refused_before_anything_is_done() {
        let env = |name: &str, bytes: usize| json!({ "type": "ENV", "args": [name, "x".repeat(bytes)] });
        let four = json!([env("A", 60_000), env("B", 60_000), env("C", 60_000), env("D", 60_000)]);
        assert!(foresee(&plan(&four), &made(), NONE).is_ok());
        let before = Made { env: BTreeMap::from([("E".to_owned(), "x".repeat(60_000))]), ..made() };
        assert_eq!(foresee(&plan(&four), &before, NONE).unwrap_err().status(), 400);
        let again =
            json!([env("A", 60_000), env("A", 60_000), env("A", 60_000), env("A", 60_000), env("A", 60_000)]);
        assert!(
            foresee(&plan(&again), &made(), NONE).is_ok(),
            "what is said anew takes the place of what was said"
        );
        let deep = json!([{ "type": "WORKDIR", "args": ["x/".repeat(300)] }, { "type": "WORKDIR", "args": ["y/".repeat(300)] }]);
        let no = foresee(&plan(&deep), &made(), NONE).unwrap_err();
        assert!(no.status() == 400 && no.message().starts_with("step 2: "));
    }
}
