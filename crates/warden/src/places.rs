//! What belongs to one box alone: its scratch space, its view of processes, its terminals, its workspace.
//!
//! Runs in the new process, in the box's own copy of the template, before the box's users exist: no mount made here
//! belongs to anything that the payload could ever have power over.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_sys::mount::{self, Attributes, Beneath};
use blastbox_wire::plan::{Exec, GuestPath, Owner, Step, WorkspaceAccess};
use rustix::fs::{AtFlags, Mode, OFlags, chownat, mkdirat, open};
use rustix::process::{Gid, Uid};

use crate::lifted;
use crate::trouble::{Trouble, Trying};

/// Where the scratch space as a whole is attached while the box is made. Nobody sees it there later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attic<'a> {
    /// Where one of its own directories will cover it for good: the payload cannot uncover anything. Taking a mount away
    /// instead makes the kernel wait for every processor, which on a busy host takes longer than all other mounts.
    Covered(&'a GuestPath),
    /// An empty directory of every root, because the layers of a workspace need a name; taken away afterwards.
    Cleared,
}

impl<'a> Attic<'a> {
    fn of(steps: &'a [Step]) -> Self {
        let has_layers =
            steps.iter().any(|step| matches!(step, Step::Workspace { .. } | Step::Writable { .. }));
        let first = steps.iter().find_map(|step| match step {
            Step::ScratchDirectory { at, .. } => Some(at),
            _ => None,
        });
        match first {
            Some(at) if !has_layers => Self::Covered(at),
            _ => Self::Cleared,
        }
    }

    fn place(self) -> &'a str {
        match self {
            Self::Covered(at) => at.relative(),
            Self::Cleared => "run",
        }
    }
}

/// Pseudo-terminals of one box at a time.
const MOST_TERMINALS: &str = "256";
/// Where an image's system looks for the box's resolver.
const RESOLVERS: &str = "etc/resolv.conf";

/// Carries out the steps that belong to one box.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    /// Copies of the mounts of the caller's directories, in the order of the steps about them, with their owners shown as the
    /// payload. Only those of volumes can be written.
    pub(crate) given: &'a [OwnedFd],
    /// The table by which the image's owners become users of the box, where it has a root.
    pub(crate) owners: Option<BorrowedFd<'a>>,
    /// The id behind the root of the box.
    pub(crate) root: u32,
    /// The id behind the payload, as this process's user namespace sees it.
    pub(crate) payload: u32,
    /// Whether a view of processes lies in the template, to be taken away.
    pub(crate) template_shows_processes: bool,
}

impl Places<'_> {
    /// Walks the list.
    pub(crate) fn make(&self, steps: &[Step]) -> Result<(), Trouble> {
        let root = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .tried("open the box's root")?;
        // Modes are meant as they are written here; the agent sets its own mask.
        rustix::process::umask(Mode::empty());
        let attic = Attic::of(steps);
        let (mut scratch, mut run, mut trusted) = (None, None, None);
        let mut given = self.given.iter().map(AsFd::as_fd);
        let mut next = || given.next().ok_or_else(|| Trouble::plain("find the caller's directory"));
        for (nth, step) in steps.iter().enumerate() {
            match step {
                Step::Scratch { bytes, inodes } => {
                    scratch = Some(make_scratch(&root, attic, *bytes, *inodes)?);
                }
                Step::ScratchDirectory { at, owner, exec } => {
                    let late = self.scratch_directory(&root, needed(&scratch)?, at, *owner, *exec)?;
                    run = late.or(run);
                }
                Step::Processes => self.processes(&root, "proc")?,
                Step::ProcessesAt { at } => self.processes(&root, at.relative())?,
                Step::Terminals => self.terminals(&root)?,
                Step::Writable { at } => self.writable(&root, needed(&scratch)?, at, nth)?,
                // Last: the attic may lie where its file goes.
                Step::Trust { authority } => trusted = Some(authority),
                Step::Workspace { slot: _, at, access, exec } => {
                    self.workspace(next()?, &root, needed(&scratch)?, at, *access, *exec)?;
                }
                // Nothing is in the way: a checked plan has it in a directory that was made a moment ago, and no program has run.
                Step::Volume { slot: _, at, exec: _ } => {
                    mkdirat(&root, at.relative(), Mode::from_raw_mode(0o755))
                        .tried_with(|| format!("make {at}"))?;
                    mount::attach(next()?, root.as_fd(), at.relative())
                        .tried_with(|| format!("attach {at}"))?;
                }
                Step::Directory { .. }
                | Step::File { .. }
                | Step::Cover { .. }
                | Step::Link { .. }
                | Step::HostView { .. }
                | Step::Image { .. }
                | Step::Show { .. }
                | Step::Device { .. } => {
                    return Err(Trouble::plain("make a box from a step that belongs to its template"));
                }
            }
        }
        match (scratch, attic) {
            (None, _) => {}
            (Some(_), Attic::Cleared) => {
                mount::detach("/run").tried("clear the attic")?;
                if let Some(run) = run {
                    mount::attach(run.as_fd(), root.as_fd(), "run").tried("attach /run")?;
                }
            }
            // Should anything ever reach it, there is nothing to be had that way.
            (Some(scratch), Attic::Covered(_)) => {
                let nothing = Attributes::PLAIN.no_programs().read_only();
                mount::restrict(scratch.as_fd(), nothing, Beneath::LeftOut).tried("close the attic")?;
            }
        }
        trusted
            .map_or(Ok(()), |authority| blastbox_agent::believe(&root, authority))
            .tried("have the box believe its gateway")
    }

    fn scratch_directory(
        &self,
        root: &OwnedFd,
        scratch: &OwnedFd,
        at: &GuestPath,
        owner: Owner,
        exec: Exec,
    ) -> Result<Option<OwnedFd>, Trouble> {
        let name = at.relative().replace('/', "-");
        match owner {
            Owner::Payload => make_owned(scratch, &name, self.payload),
            Owner::Root => make_owned(scratch, &name, self.root),
            Owner::Everybody => mkdirat(scratch, &*name, Mode::from_raw_mode(0o1777)),
        }
        .tried_with(|| format!("make {at}"))?;
        let tree = mount::copy(scratch, &name, Beneath::LeftOut).tried_with(|| format!("copy {at}"))?;
        if exec == Exec::Denied {
            mount::restrict(tree.as_fd(), Attributes::PLAIN.no_programs(), Beneath::LeftOut)
                .tried_with(|| format!("forbid programs in {at}"))?;
        }
        // Where what is above it can be written by the box's root, it is not there yet.
        mkdirat(root, at.relative(), Mode::from_raw_mode(0o755)).ok();
        if at.relative() == "run" {
            // Attached when the attic has left that place.
            return Ok(Some(tree));
        }
        mount::attach(tree.as_fd(), root.as_fd(), at.relative()).tried_with(|| format!("attach {at}"))?;
        Ok(None)
    }

    fn processes(&self, root: &OwnedFd, at: &str) -> Result<(), Trouble> {
        let options = [("hidepid", Some("ptraceable")), ("subset", Some("pid"))];
        let attributes = Attributes::PLAIN.no_programs();
        let view =
            mount::create("proc", &options, attributes).tried("make the box's view of its processes")?;
        if self.template_shows_processes {
            mount::detach("/proc").tried("take the host's /proc away")?;
        }
        mount::attach(view.as_fd(), root.as_fd(), at).tried_with(|| format!("attach /{at}"))
    }

    /// The box's own pseudo-terminals, which belong to the payload: it opens its own terminal again by name.
    fn terminals(&self, root: &OwnedFd) -> Result<(), Trouble> {
        let id = self.payload.to_string();
        let options = [
            ("ptmxmode", Some("0666")),
            ("mode", Some("0620")),
            ("uid", Some(id.as_str())),
            ("gid", Some(id.as_str())),
            // The kernel counts terminals for the whole host: without this one box takes those of its neighbours.
            ("max", Some(MOST_TERMINALS)),
        ];
        let pts = mount::create("devpts", &options, Attributes::DEVICE).tried("make the box's terminals")?;
        mount::attach(pts.as_fd(), root.as_fd(), "dev/pts").tried("attach /dev/pts")
    }

    /// A directory of the image behind an overlay whose changes go to the scratch space. Every file keeps its owner's number
    /// within the box: what is root's there is changed by the box's root alone.
    fn writable(&self, root: &OwnedFd, scratch: &OwnedFd, at: &GuestPath, nth: usize) -> Result<(), Trouble> {
        let owners = self.owners.ok_or_else(|| Trouble::plain("find the table of the image's owners"))?;
        // Never the image's own name for it: `x:y` is two layers to the kernel, and `space` would be somebody else's place.
        let [lower, upper, work] = ["lower", "upper", "work"].map(|part| format!("{part}{nth}"));
        for name in [&lower, &upper, &work] {
            make_owned(scratch, name, self.root).tried_with(|| format!("make room for changes of {at}"))?;
        }
        let tree = mount::copy(root, at.relative(), Beneath::LeftOut).tried_with(|| format!("copy {at}"))?;
        mount::map_owners(tree.as_fd(), owners).tried_with(|| {
            format!(
                "show the owners of {at} as users of the box (a file system that maps owners, Linux 5.19)"
            )
        })?;
        mount::attach(tree.as_fd(), scratch.as_fd(), &lower).tried_with(|| format!("attach {at}"))?;
        let [lower, upper, work] = [lower, upper, work].map(|name| format!("/run/{name}"));
        let options = [
            ("lowerdir", Some(lower.as_str())),
            ("upperdir", Some(upper.as_str())),
            ("workdir", Some(work.as_str())),
        ];
        // What lies over a file of it, and would be hidden.
        let names =
            (at.as_str() == "/etc").then(|| mount::copy(root, RESOLVERS, Beneath::LeftOut).ok()).flatten();
        let merged = mount::create("overlay", &options, Attributes::PLAIN)
            .tried_with(|| format!("lay an overlay over {at}"))?;
        mount::attach(merged.as_fd(), root.as_fd(), at.relative()).tried_with(|| format!("attach {at}"))?;
        names
            .map_or(Ok(()), |names| mount::attach(names.as_fd(), root.as_fd(), RESOLVERS))
            .tried("cover it again")
    }

    /// The caller's directory, always behind an overlay: the box never touches an inode of the host, so that a socket
    /// or a pipe that lies there leads nowhere, and what is written goes to the scratch space.
    fn workspace(
        &self,
        lower: BorrowedFd<'_>,
        root: &OwnedFd,
        scratch: &OwnedFd,
        at: &GuestPath,
        access: WorkspaceAccess,
        exec: Exec,
    ) -> Result<(), Trouble> {
        if lifted::OVERLAY {
            return mount::attach(lower, root.as_fd(), at.relative()).tried("attach the workspace");
        }
        for name in ["lower", "upper", "work", "nothing"] {
            make_owned(scratch, name, self.payload).tried("make room for the workspace")?;
        }
        mount::attach(lower, scratch.as_fd(), "lower").tried("attach the workspace in the attic")?;
        let mut options = match access {
            WorkspaceAccess::ReadOnly => vec![("lowerdir", Some("/run/lower:/run/nothing"))],
            WorkspaceAccess::CopyOnWrite => vec![
                ("lowerdir", Some("/run/lower")),
                ("upperdir", Some("/run/upper")),
                ("workdir", Some("/run/work")),
            ],
        };
        if self.template_shows_processes {
            // Without privilege the layer's own marks must be ones that an ordinary user may write.
            options.push(("userxattr", None));
        }
        let mut attributes = Attributes::PLAIN;
        if access == WorkspaceAccess::ReadOnly {
            attributes = attributes.read_only();
        }
        if exec == Exec::Denied {
            attributes = attributes.no_programs();
        }
        let merged =
            mount::create("overlay", &options, attributes).tried("lay an overlay over the workspace")?;
        mount::attach(merged.as_fd(), root.as_fd(), at.relative()).tried_with(|| format!("attach {at}"))
    }
}

/// A directory of the scratch space that is somebody's.
fn make_owned(scratch: &OwnedFd, name: &str, owner: u32) -> rustix::io::Result<()> {
    mkdirat(scratch, name, Mode::from_raw_mode(0o755))?;
    let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
    chownat(scratch, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

fn make_scratch(root: &OwnedFd, attic: Attic<'_>, bytes: u64, inodes: u64) -> Result<OwnedFd, Trouble> {
    // A tmpfs takes 0 as no limit.
    let (bytes, inodes) = if lifted::SCRATCH { (0, 0) } else { (bytes, inodes) };
    let (size, inodes) = (bytes.to_string(), inodes.to_string());
    let options =
        [("mode", Some("0755")), ("size", Some(size.as_str())), ("nr_inodes", Some(inodes.as_str()))];
    let scratch = mount::create("tmpfs", &options, Attributes::PLAIN).tried("make the scratch space")?;
    mount::attach(scratch.as_fd(), root.as_fd(), attic.place()).tried("attach the scratch space")?;
    Ok(scratch)
}

fn needed(scratch: &Option<OwnedFd>) -> Result<&OwnedFd, Trouble> {
    scratch.as_ref().ok_or_else(|| Trouble::plain("use the scratch space before it is made"))
}
