//! What of a build is done as root of its box, where there is one and the image can be changed.
//!
//! Such a root is nobody outside of its box: no set-id, seven capabilities in a namespace of its own, under the same filter,
//! Landlock and limits as every other command. What it leaves in the directories of the image becomes a tree.

use std::sync::Arc;

use blastbox_engine::LiveBox;
use blastbox_engine::build::{StepMade, pack_trees};
use blastbox_images::tree::Caps;
use blastbox_images::{Image, OURS, StoredImage};
use blastbox_policy::{BoxRoot, PolicyError, SealedPolicy};
use blastbox_wire::agent::User;

use super::Templates;
use super::ask::{self, What};
use super::build::Site;
use super::record::{Build, Made};
use super::trees::NewTree;
use crate::config::{Builds, Roots, Shape};
use crate::e2b::desk::Desk;
use crate::e2b::envd::paths::HOME;
use crate::e2b::no::No;
use crate::e2b::rooted::settle;
use crate::e2b::template;
use crate::trouble::line;

/// Headers of one entry of an archive, counted generously.
const PER_ENTRY: u64 = 2_048;

/// Whether steps of a build can be root of their boxes.
#[derive(Debug)]
pub(super) enum Root {
    /// With this policy.
    Given(Box<SealedPolicy>),
    /// They cannot.
    Without(Why),
}

/// Why steps have no root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The operator does not allow it.
    NotAllowed,
    /// There is no image that could be changed.
    OverTheHost,
    /// Steps of this template are in another tier, or this host can have no root in a jail.
    InNoJail,
}

/// What can be said before it is known what a step's box would be.
fn without(roots: Roots, made: &Made) -> Option<Why> {
    match (roots, made.tree) {
        (Roots::Nowhere, _) => Some(Why::NotAllowed),
        (Roots::InJails | Roots::Ordered, None) => Some(Why::OverTheHost),
        (Roots::InJails | Roots::Ordered, Some(_)) => None,
    }
}

/// The policy of steps that will be root.
fn to_install(builds: &Builds, shape: &Shape, build: &Build) -> Result<SealedPolicy, PolicyError> {
    let memory = build.memory_mib.max(super::build::LEAST_MEMORY);
    template::sized_to_install(&builds.reaches, shape, build.cpus, memory)
}

impl Root {
    /// What holds for a build that begins with this.
    pub(super) async fn of(
        desk: &Desk,
        templates: &Arc<Templates>,
        (builds, shape, build): (&Builds, &Shape, &Build),
        made: &Made,
    ) -> Result<Self, No> {
        if let Some(why) = without(builds.roots, made) {
            return Ok(Self::Without(why));
        }
        let failed = |error: PolicyError| No::new(500, line(&error));
        let plain = to_install(builds, shape, build).map_err(failed)?;
        let image = super::build::image(desk, templates, made.tree).await?;
        let policy = settle(desk.keeper(), builds.roots, plain, &image).await.map_err(failed)?;
        match policy.kernel().root {
            BoxRoot::Allowed => Ok(Self::Given(Box::new(policy))),
            BoxRoot::None => Ok(Self::Without(Why::InNoJail)),
        }
    }

    /// Refuses a step that needs what is not to be had.
    pub(super) fn refuse(&self, number: usize, text: &str) -> Result<(), No> {
        let why = match self {
            Self::Given(_) => return Ok(()),
            Self::Without(Why::NotAllowed) => {
                "which the operator keeps from builds here (`root` in the daemon's configuration)"
            }
            Self::Without(Why::OverTheHost) => {
                "which changes nothing here: this template begins with the host's own programs, and not with an image of \
                 the store (the operator makes one with `blastbox image make base`)"
            }
            Self::Without(Why::InNoJail) => {
                "which there is none of here: that takes a daemon of root, Linux 5.19 and the tier jail"
            }
        };
        Err(No::bad(format!(
            "step {number} ({text}) needs root of its box, {why}: steps run as `user`, and what they leave in {HOME} goes \
             along; what is installed for everybody belongs into an image of the operator (`blastbox image build`)"
        )))
    }
}

/// Whether a step needs root of its box: it says so, or writes where nobody else can.
pub(super) fn is_needed(what: &What, user: &str, workdir: &str) -> bool {
    match what {
        What::Run { user: asked, .. } => asked.as_deref().unwrap_or(user) == "root",
        What::Copy { to, user: asked, .. } => {
            asked.as_deref() == Some("root") || !is_home(&ask::from(workdir, to))
        }
        // A directory that is there needs nobody; one that is not is looked for when the build is over.
        What::Env(_) | What::Workdir(_) | What::User(_) => false,
    }
}

/// Who does it.
pub(super) fn who(what: &What, user: &str, workdir: &str) -> User {
    if is_needed(what, user, workdir) { User::Root } else { User::Payload }
}

/// Whether a path is in the home, which goes along by itself.
pub(super) fn is_home(path: &str) -> bool {
    path.strip_prefix(HOME).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Makes a directory in the image where it has none. In a box nobody can make one at the top of the root.
pub(super) async fn make_place(site: &Site, made: &mut Made, path: &str) -> Result<(), String> {
    let top = path.split('/').find(|part| !part.is_empty());
    let (Root::Given(_), Some(_), Some(top)) = (&site.root, made.tree, top) else { return Ok(()) };
    if OURS.contains(&top) {
        return Ok(());
    }
    let image = site.stored(made).await?;
    let place = path.trim_end_matches('/').to_owned();
    if image.has_directory(&place).map_err(|error| line(&error))? {
        return Ok(());
    }
    let tree = site.templates.trees.with_directory(&site.build, image, place).await?;
    // Nobody sweeps between the moment when it is counted and the one when it is known to be needed.
    let _held = site.templates.sweeping.lock().await;
    count(site, tree).await?;
    made.tree = Some(tree.digest);
    site.templates.in_hand.uses(&site.tenant, &site.build, made.parts());
    Ok(())
}

/// The directory at the top of the root that a path lies in.
pub(super) fn top(path: &str) -> String {
    format!("/{}", path.split('/').find(|part| !part.is_empty()).unwrap_or_default())
}

/// How large the image may become: as large as it is, and what the box has room for.
fn caps(image: &StoredImage, policy: &SealedPolicy) -> Caps {
    let (now, files) = (image.measure(), policy.files());
    Caps { bytes: now.bytes.saturating_add(files.disk.0), entries: now.entries.saturating_add(files.inodes) }
}

/// What root of a box has made of its image.
pub(super) struct Changed {
    image: Box<StoredImage>,
    made: StepMade,
    caps: Caps,
}

/// Refuses a step for whose result there is no room, before anything is done for it: it is an archive first, and then files.
pub(super) async fn has_room(site: &Site, made: &Made, policy: &SealedPolicy) -> Result<(), String> {
    let caps = caps(&site.stored(made).await?, policy);
    match site.templates.place.has_free(caps.bytes.saturating_mul(2)) {
        Ok(true) => Ok(()),
        Ok(false) => Err("the disk of the host has no room for an image that is changed".to_owned()),
        Err(error) => Err(format!("the disk of the host cannot be looked at: {error}")),
    }
}

/// Reads what has become of the image's directories.
pub(super) async fn pack(
    site: &Site,
    live: &LiveBox,
    made: &Made,
    policy: &SealedPolicy,
) -> Result<Changed, String> {
    let image = site.stored(made).await?;
    let caps = caps(&image, policy);
    let most = caps.bytes.saturating_add(caps.entries.saturating_mul(PER_ENTRY));
    let image = Image::Stored(Box::new(image));
    let packed = pack_trees(live, &image, site.templates.trees.spool(), most).await;
    let packed = packed.map_err(|error| blastbox_engine::causes(&error))?;
    let Image::Stored(image) = image else { return Err("there is no image".to_owned()) };
    Ok(Changed { image, made: packed, caps })
}

/// Makes a tree of that, which is still to be counted.
pub(super) async fn keep(site: &Site, changed: Changed, step: &str) -> Result<NewTree, String> {
    let Changed { image, made, caps } = changed;
    if made.left_out > 0 {
        let what = format!("{} entries are left out: pipes, sockets, what cannot be read", made.left_out);
        site.log.say("warn", step, &what);
    }
    site.templates.trees.after(&site.build, *image, made, caps).await
}

/// Counts it among what the tenant has. Sweeps are held off by whoever calls this.
pub(super) async fn count(site: &Site, tree: NewTree) -> Result<(), String> {
    let counted = site.templates.place.count_tree(&site.tenant, tree).await;
    counted.map_err(|error| format!("what it made of the image cannot be kept: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use blastbox_policy::NetworkMode;
    use blastbox_wire::event::Hash;

    use super::*;
    use crate::e2b::templates::record::Status;

    #[test]
    fn a_root_is_given_only_where_the_operator_allows_it_and_an_image_can_be_changed() {
        let build = Build {
            id: "b".to_owned(),
            status: Status::Waiting,
            created: String::new(),
            finished: None,
            cpus: 1,
            memory_mib: 2_048,
            tags: Vec::new(),
            made: None,
            reason: None,
        };
        let made = |tree| Made {
            base: None,
            tree,
            home: None,
            env: BTreeMap::new(),
            workdir: HOME.to_owned(),
            user: "user".to_owned(),
            start: None,
            ready: None,
        };
        let (image, host) = (made(Some(Hash::of([b"x".as_slice()]))), made(None));
        for (roots, made, why) in [
            (Roots::Nowhere, &image, "the operator keeps"),
            (Roots::Nowhere, &host, "the operator keeps"),
            (Roots::InJails, &host, "host's own"),
            (Roots::Ordered, &host, "host's own"),
        ] {
            let no = Root::Without(without(roots, made).unwrap()).refuse(3, "RUN x").unwrap_err();
            let said = no.message();
            assert!(said.starts_with("step 3 (RUN x) needs root of its box") && said.contains(why), "{said}");
        }
        assert_eq!([Roots::InJails, Roots::Ordered].map(|roots| without(roots, &image)), [None, None]);
        let policy = to_install(&Builds::default(), &Shape::default(), &build).unwrap();
        assert_eq!((policy.kernel().root, policy.network().mode), (BoxRoot::None, NetworkMode::Off));
        assert_eq!(policy.files().disk.0, 1 << 30, "half of its memory");
    }

    #[test]
    fn who_does_a_step_follows_from_what_it_says_and_where_it_writes() {
        let run =
            |user: Option<&str>| What::Run { command: "true".to_owned(), user: user.map(ToOwned::to_owned) };
        let copy = |to: &str| What::Copy {
            from: "a".to_owned(),
            to: to.to_owned(),
            user: None,
            mode: None,
            hash: String::new(),
        };
        for (what, user, workdir, root) in [
            (run(None), "user", HOME, false),
            (run(None), "root", HOME, true),
            (run(Some("user")), "root", HOME, false),
            (run(Some("root")), "user", HOME, true),
            (copy("x"), "root", HOME, false),
            (copy("x"), "user", "/app", true),
            (copy("../x"), "user", HOME, true),
            (copy("/home/user2"), "user", HOME, true),
            (What::Workdir("/app".to_owned()), "user", HOME, false),
        ] {
            assert_eq!(is_needed(&what, user, workdir), root, "{what:?} {user} {workdir}");
        }
        assert_eq!((top("/app/deep/x"), top("x")), ("/app".to_owned(), "/x".to_owned()));
    }
}
