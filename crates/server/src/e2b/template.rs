//! Templates: an image and a policy under a name that E2B's users know.

use std::collections::BTreeMap;
use std::path::Path;

use blastbox_engine::keeper::Preparation;
use blastbox_images::{Image, StoredImage};
use blastbox_policy::{Bytes, Cpus, Draft, Loopback, PolicyError, SealedPolicy, Tier, TierChoice};

use blastbox_wire::event::Hash;
use serde::{Deserialize, Serialize};

use super::control::network::Reaches;
use super::interpreter::pooled;
use super::no::{No, echo};
use crate::config::Shape;
use crate::gallery::Gallery;
use crate::trouble::line;
use crate::warm::{Begins, WarmKernel};

/// What the SDKs ask for where their caller names none.
pub(crate) const BASE: &str = "base";
const INTERPRETER: &str = "code-interpreter";

const MEMORY: Bytes = Bytes::mib(1_024);
/// Files lie in memory, so that they must leave some of it to programs.
const DISK: Bytes = Bytes::mib(512);
const PIDS: u32 = 512;
const OPEN_FILES: u32 = 4_096;
/// A box is ended when it has printed more than this, all commands of its life together: the most that a policy allows.
const OUTPUT: Bytes = Bytes(1 << 40);
const MIB: u64 = 1 << 20;
/// Files that a step may make which installs something.
const INODES: u64 = 500_000;

/// What a sandbox is made of.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) name: String,
    pub(super) policy: SealedPolicy,
    pub(super) image: Image,
}

/// How large a sandbox is, in the numbers that E2B shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Size {
    pub(super) cpus: u64,
    pub(super) memory_mib: u64,
    pub(super) disk_mib: u64,
}

impl Size {
    pub(super) fn of(policy: &SealedPolicy) -> Self {
        Self {
            cpus: u64::from(policy.kernel().cpus.millis()).div_ceil(1_000).max(1),
            memory_mib: policy.kernel().memory.0 / MIB,
            disk_mib: policy.files().disk.0 / MIB,
        }
    }
}

/// MiB of files that a sandbox with so many MiB of memory has.
pub(super) fn disk_mib(memory_mib: u64) -> u64 {
    room_for_files(Bytes(memory_mib.saturating_mul(MIB))).0 / MIB
}

/// The policy of every template: the profile `default` with room for an interpreter or two. The network that its owner
/// asks for; a loopback interface of its own, so that servers and their clients can talk inside.
fn policy(reaches: &Reaches, shape: &Shape) -> Result<SealedPolicy, PolicyError> {
    draft(reaches, shape)?.seal()
}

/// What the operator said of a template, by whichever of its names and tags it is asked for.
pub(super) fn shape_of<'a>(asked: &str, images: &'a Gallery) -> Option<&'a Shape> {
    let name = asked.split([':', '@']).next().unwrap_or_default();
    let same = |(other, _): &(&String, &Shape)| interprets(other) && interprets(name);
    images.shape(name).or_else(|| images.shapes().iter().find(same).map(|(_, shape)| shape))
}

/// Whether a template that the operator describes has a policy.
pub(super) fn seals(shape: &Shape) -> Result<(), PolicyError> {
    policy(&Reaches::Nothing, shape).map(|_| ())
}

/// Whether sandboxes of a template are virtual machines, which can be copied as they are.
fn is_machine(shape: &Shape) -> bool {
    shape.tier == Some(TierChoice::Exactly(Tier::Microvm))
}

/// Templates whose sandboxes can be copied as they are.
pub(super) fn machines(images: &Gallery) -> Vec<&str> {
    let shapes = images.shapes().iter().filter(|(_, shape)| is_machine(shape));
    shapes.map(|(name, _)| name.as_str()).collect()
}

/// The same for a template that says how large its sandboxes are: what the operator said of the one that it was built from holds
/// for it too.
pub(super) fn sized(
    reaches: &Reaches,
    shape: &Shape,
    cpus: u32,
    memory_mib: u64,
) -> Result<SealedPolicy, PolicyError> {
    let memory = Bytes(memory_mib.saturating_mul(MIB));
    with_room(reaches, shape, (cpus, memory), room_for_files(memory))?.seal()
}

/// The same for a step that will be root of its box, where there can be one: what it installs lies in memory too, and is no sandbox's
/// file afterwards.
pub(super) fn sized_to_install(
    reaches: &Reaches,
    shape: &Shape,
    cpus: u32,
    memory_mib: u64,
) -> Result<SealedPolicy, PolicyError> {
    let memory = Bytes(memory_mib.saturating_mul(MIB));
    let draft = with_room(reaches, shape, (cpus, memory), Bytes(memory.0 / 2))?;
    draft.inodes(INODES).seal()
}

fn with_room(
    reaches: &Reaches,
    shape: &Shape,
    (cpus, memory): (u32, Bytes),
    disk: Bytes,
) -> Result<Draft, PolicyError> {
    let cpus = Cpus::from_millis(cpus.saturating_mul(1_000));
    Ok(draft(reaches, shape)?.memory(memory).cpus(cpus).disk(disk).file_size(disk))
}

/// Files lie in memory: no more than half of it.
fn room_for_files(memory: Bytes) -> Bytes {
    Bytes(DISK.0.min(memory.0 / 2))
}

fn draft(reaches: &Reaches, shape: &Shape) -> Result<Draft, PolicyError> {
    let draft = shape.accept.iter().fold(shape.profile.draft()?, |draft, gap| draft.accept(*gap));
    let draft = shape.tier.map_or(draft.clone(), |tier| draft.tier(tier));
    let memory = shape.memory.unwrap_or(MEMORY);
    let disk = room_for_files(memory);
    let draft = draft.memory(memory).disk(disk).file_size(disk).pids(PIDS).open_files(OPEN_FILES);
    let draft = shape.cpus.map_or(draft.clone(), |cpus| draft.cpus(cpus));
    let draft = draft.output(OUTPUT).loopback(Loopback::Own);
    reaches.open(draft).map_err(PolicyError::Network)
}

/// Finds a template: `base`, or an image that the operator named or put into the store. Opens the image, so not on a thread that others wait
/// for. Whether its sandboxes have a root is still to be settled.
pub(super) fn open(asked: &str, images: &Gallery, reaches: &Reaches) -> Result<Template, No> {
    let (name, image) = image(asked, images)?;
    let shape = shape_of(&name, images).cloned().unwrap_or_default();
    // Each host was a rule by itself; what they are together may still be too much.
    let policy = policy(reaches, &shape).map_err(|error| unsealed(&error))?;
    Ok(Template { name, policy, image })
}

/// What an owner hears whose sandbox has no policy.
pub(super) fn unsealed(error: &PolicyError) -> No {
    No::bad(line(error)).coded("sandbox_create_refused")
}

/// Whether a name is one of the operator's, so that no tenant takes it.
pub(super) fn is_the_operators(asked: &str, images: &Gallery) -> bool {
    let name = asked.split(':').next().unwrap_or_default();
    name == BASE
        || interprets(name)
        || shape_of(name, images).is_some()
        || images.names().iter().any(|other| other.split(':').next() == Some(name))
}

/// An image of the store that had a name when a template was built from it. Looks at the disk.
pub(super) fn by_digest(tree: &Hash, images: &Gallery) -> Option<StoredImage> {
    images.store().and_then(|store| store.open_tree(tree).ok())
}

/// The operator's image of this name. Looks at the disk.
pub(super) fn image(asked: &str, images: &Gallery) -> Result<(String, Image), No> {
    // A digest is no name: what the operator said of a template would not hold for it.
    if asked.contains('@') || asked.starts_with("sha256:") {
        return Err(unknown(asked, images));
    }
    let name = untagged(asked);
    let made_of =
        shape_of(name, images).filter(|_| !name.contains(':')).and_then(|shape| shape.image.as_deref());
    if let Some(made_of) = made_of {
        let gone = || {
            No::new(
                500,
                format!(
                    "the image '{made_of}' of this template is not there: the operator's [e2b.templates] names it"
                ),
            )
        };
        let found = images.find(made_of).ok_or_else(|| gone().coded("sandbox_create_failed"))?;
        let image = found.map_err(|error| No::new(500, line(&error)).coded("sandbox_create_failed"))?;
        return Ok((name.to_owned(), image));
    }
    // What the code interpreter's SDK asks for is what `image make code-interpreter` makes.
    let other = name.strip_suffix("-v1").filter(|name| *name == INTERPRETER);
    let found = images.find(asked).or_else(|| images.find(name)).or_else(|| images.find(other?));
    let image = match found {
        Some(found) => found,
        // Where nobody has made an image of that name, the host's own programs serve.
        None if name == BASE => Ok(Image::host()),
        None if interprets(name) && host_interprets() => Ok(Image::host()),
        None => return Err(unknown(asked, images)),
    };
    let image = image.map_err(|error| No::new(500, line(&error)).coded("sandbox_create_failed"))?;
    Ok((name.to_owned(), image))
}

/// What members of the pool begin that wait for this template: what the operator said of it; else the code interpreter's begin
/// their kernel, and others nothing.
pub(super) fn preparation(name: &str, begins: &BTreeMap<String, Begins>) -> Option<Preparation> {
    let said = begins.iter().find(|(other, _)| canonical(other) == canonical(name));
    let Begins { kernel, imports, prewarm } = said.map(|(_, said)| said.clone()).unwrap_or_default();
    let usual = if interprets(name) || !imports.is_empty() { WarmKernel::Python } else { WarmKernel::None };
    let kernel = match kernel.unwrap_or(usual) {
        WarmKernel::Python => Some(pooled::preparation(&imports)),
        WarmKernel::None => None,
    };
    if prewarm.is_empty() { kernel } else { Some(pooled::after(prewarm, kernel.as_ref())) }
}

/// A name without the tag that it has where nobody says one.
fn untagged(asked: &str) -> &str {
    asked.strip_suffix(":default").or_else(|| asked.strip_suffix(":latest")).unwrap_or(asked)
}

/// The one name of a template that has several.
fn canonical(asked: &str) -> &str {
    let name = untagged(asked);
    if interprets(name) { INTERPRETER } else { name }
}

/// Whether a template is the code interpreter's, by one of its two names.
fn interprets(name: &str) -> bool {
    name.strip_suffix("-v1").unwrap_or(name) == INTERPRETER
}

/// Whether this host's own Python has what the code interpreter needs: where the packages of Debian and its like put it.
fn host_interprets() -> bool {
    Path::new("/usr/lib/python3/dist-packages/IPython").is_dir()
}

fn unknown(asked: &str, images: &Gallery) -> No {
    let mut known = images.names();
    known.insert(BASE.to_owned());
    known.extend(images.shapes().keys().cloned());
    known.extend(host_interprets().then(|| format!("{INTERPRETER}-v1")));
    let known: Vec<String> = known.into_iter().take(50).collect();
    No::new(404, format!("template '{}' not found; known templates: {}", echo(asked), known.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use blastbox_policy::{Profile, tiers_for};

    use super::*;

    #[test]
    fn what_the_operator_says_of_a_kernel_holds_by_whichever_name_the_template_is_asked_for() {
        let said = |name: &str, kernel| {
            BTreeMap::from([(name.to_owned(), Begins { kernel: Some(kernel), ..Begins::default() })])
        };
        for named in ["tools", "tools:latest", "tools:default"] {
            let kernels = said(named, WarmKernel::Python);
            assert!(preparation("tools", &kernels).is_some(), "{named}");
            assert!(preparation("tool", &kernels).is_none() && preparation("tools:v2", &kernels).is_none());
        }
        for named in ["code-interpreter", "code-interpreter-v1", "code-interpreter-v1:latest"] {
            for asked in ["code-interpreter", "code-interpreter-v1"] {
                assert!(preparation(asked, &said(named, WarmKernel::None)).is_none(), "{named} {asked}");
            }
        }
        assert!(preparation("code-interpreter", &said("tools-v1", WarmKernel::None)).is_some());
    }

    #[test]
    fn what_the_operator_says_of_a_policy_holds_by_whichever_name_the_template_is_asked_for() {
        let machine = |name: &str| {
            let tier = Some(TierChoice::Exactly(Tier::Microvm));
            let shapes = BTreeMap::from([(name.to_owned(), Shape { tier, ..Shape::default() })]);
            Gallery::new(BTreeMap::new(), None).with_templates(shapes)
        };
        for (said, asked) in [
            ("code-interpreter", "code-interpreter-v1"),
            ("code-interpreter-v1", "code-interpreter"),
            ("tools", "tools:latest"),
            ("tools", "tools:v2"),
        ] {
            assert!(shape_of(asked, &machine(said)).is_some_and(is_machine), "{said} {asked}");
        }
        assert!(shape_of("tool", &machine("tools")).is_none());
        for digest in ["base@sha256:", "sha256:"].map(|begin| format!("{begin}{}", "0".repeat(64))) {
            assert_eq!(image(&digest, &machine("base")).unwrap_err().status(), 404, "{digest}");
        }
    }

    #[test]
    fn what_is_built_from_a_template_keeps_its_policy() {
        let tier = Some(TierChoice::Exactly(Tier::Microvm));
        let shape = Shape { profile: Profile::Strict, tier, ..Shape::default() };
        let machine = sized(&Reaches::Nothing, &shape, 1, 1_024).unwrap();
        assert_eq!(tiers_for(&machine), [Tier::Microvm]);
        assert!(machine.accepted().is_empty());
    }

    #[test]
    fn base_is_there_and_an_unknown_name_gets_the_list() {
        let images = BTreeMap::from([("tools".to_owned(), PathBuf::from("/nowhere"))]);
        let images = Gallery::new(images, None);
        let base = open("base", &images, &Reaches::Nothing).unwrap();
        assert_eq!(Size::of(&base.policy), Size { cpus: 1, memory_mib: 1_024, disk_mib: 512 });
        assert!(open("base:default", &images, &Reaches::Nothing).is_ok());
        let interpreter = open("code-interpreter-v1", &images, &Reaches::Nothing);
        assert_eq!(interpreter.is_ok(), host_interprets());
        let no = open("nobody", &images, &Reaches::Nothing).unwrap_err();
        assert_eq!(no.status(), 404);
        let list = format!("{no:?}");
        assert!(list.contains("known templates: base") && list.contains("tools"), "{list}");
        assert_eq!(open("tools", &images, &Reaches::Nothing).unwrap_err().status(), 500);
    }
}
