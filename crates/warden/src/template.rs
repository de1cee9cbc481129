//! What boxes of the same image share: a mount namespace that each of them copies.
//!
//! Everything is put together on descriptors of mounts that are not attached yet, or beneath a directory that is
//! opened without following links, and all of it is finished before any foreign program exists.

use std::os::fd::{AsFd, OwnedFd};

use blastbox_sys::mount::{self, Attributes, Beneath};
use blastbox_sys::namespaces;
use blastbox_wire::Writer;
use blastbox_wire::plan::{DeviceName, GuestPath, Step};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, symlinkat, unlinkat};
use rustix::io::Errno;

use crate::devices::Device;
use crate::gathered::{Entry, directory, gather};
use crate::lifted;
use crate::standing::Standing;
use crate::trouble::{Trouble, Trying};

/// Most templates: each holds the mounts of its image, and a warden lives for months. One that went is made again when it is asked for.
const MOST_MADE: usize = 64;
/// Most keys that were asked for once.
const MOST_ONCE: usize = 256;

/// A finished template.
#[derive(Debug)]
pub(crate) struct Template {
    /// What it was made from; equal keys, equal templates.
    key: Vec<u8>,
    /// Its mount namespace.
    namespace: OwnedFd,
}

/// The templates of this warden, by when they were used: of too many, the first goes.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    /// The last used lies last.
    made: Vec<Template>,
    /// Whether the warden is in the mounts of that one.
    inside: bool,
    /// Keys that were asked for once. A single command has no use for a template: its box builds its own root.
    once: Vec<Vec<u8>>,
}

/// Where the read-only root of a box comes from.
#[derive(Debug)]
pub(crate) enum Root {
    /// The mounts that the warden is in, and that its child copies, are it.
    Template,
    /// The child builds it, from what was gathered where the caller's mounts are in reach.
    Own(Vec<Vec<Entry>>),
}

impl Templates {
    /// Goes into the template for these steps, and makes it first where it is not there yet; for the first box of its kind
    /// to where its root can be built.
    pub(crate) fn enter(
        &mut self,
        standing: &Standing,
        steps: &[Step],
        directories: &[OwnedFd],
    ) -> Result<Root, Trouble> {
        let key = key(steps, directories)?;
        if let Some(index) = self.made.iter().position(|template| template.key == key) {
            if !self.inside || index + 1 < self.made.len() {
                let template = self.made.remove(index);
                namespaces::enter_mounts(template.namespace.as_fd()).tried("enter the template's mounts")?;
                self.made.push(template);
                self.inside = true;
            }
            return Ok(Root::Template);
        }
        self.leave(standing)?;
        let gathered = gather(standing, steps, directories)?;
        let Some(index) = self.once.iter().position(|known| *known == key) else {
            keep(&mut self.once, key, MOST_ONCE);
            return Ok(Root::Own(gathered));
        };
        namespaces::own_mounts().tried("copy the host's mounts")?;
        build(standing, steps, gathered)?;
        self.once.remove(index);
        let namespace =
            namespaces::open(standing.proc.as_fd(), "self", "mnt").tried("open the template's mounts")?;
        keep(&mut self.made, Template { key, namespace }, MOST_MADE);
        self.inside = true;
        Ok(Root::Template)
    }

    /// Goes back to where the caller's directories can be copied.
    pub(crate) fn leave(&mut self, standing: &Standing) -> Result<(), Trouble> {
        if self.inside { self.abandon(standing) } else { Ok(()) }
    }

    /// After a template could not be finished: back to where the next one can be made.
    pub(crate) fn abandon(&mut self, standing: &Standing) -> Result<(), Trouble> {
        self.inside = false;
        namespaces::enter_mounts(standing.base.as_fd()).tried("go back to the host's mounts")
    }
}

/// Keeps one more as the last; of too many the first goes.
fn keep<T>(all: &mut Vec<T>, one: T, most: usize) {
    if all.len() >= most {
        all.remove(0);
    }
    all.push(one);
}

/// The identity of a template: its steps, and the identity of each directory that they name.
fn key(steps: &[Step], directories: &[OwnedFd]) -> Result<Vec<u8>, Trouble> {
    let mut key = Writer::default();
    for step in steps {
        step.encode(&mut key);
        if let Step::Image { slot } | Step::Show { slot, .. } = step {
            let stat =
                rustix::fs::fstat(directory(directories, slot.0)?).tried("look at what is to be shown")?;
            key.u64(stat.st_dev);
            key.u64(stat.st_ino);
        }
        // A driver that was loaded anew has other numbers: an old root would show the devices of nobody, or of another.
        if let Step::Device { name } = step
            && DeviceName::GPU.contains(name)
        {
            let path = format!("/dev/{}", name.as_str());
            key.u64(rustix::fs::stat(&path).tried_with(|| format!("look at {path}"))?.st_rdev);
        }
    }
    Ok(key.finish())
}

/// Builds a root in a copy of the host's mounts that is this process's own, and lets go of everything else.
pub(crate) fn build(standing: &Standing, steps: &[Step], gathered: Vec<Vec<Entry>>) -> Result<(), Trouble> {
    mount::keep_to_ourselves().tried("make the mounts private")?;
    let options = [("mode", Some("0755")), ("size", Some("1m")), ("nr_inodes", Some("1024"))];
    let root =
        mount::create("tmpfs", &options, Attributes::PLAIN.no_programs()).tried("make the box's root")?;
    // Host paths are looked up from here on until the root is exchanged, so the new root must not be in the way.
    let mut later = Vec::new();
    let mut covers = Vec::new();
    let mut devices = Vec::new();
    let mut gathered = gathered.into_iter();
    for step in steps {
        match step {
            Step::Directory { at } => make_directory(&root, at)?,
            Step::File { at, text } => write_file(&root, at, text)?,
            Step::Cover { at, text } => covers.push((at, text)),
            Step::Link { at, to } => make_link(&root, at.relative(), to)?,
            Step::HostView { path } => later.push((host_view(&root, path)?, path.relative().to_owned())),
            Step::Device { name } => devices.push(Device::find(&root, *name, standing)?),
            Step::Image { .. } | Step::Show { .. } => {
                show_entries(&root, gathered.next().unwrap_or_default(), &mut later)?;
            }
            Step::Scratch { .. }
            | Step::ScratchDirectory { .. }
            | Step::Processes
            | Step::ProcessesAt { .. }
            | Step::Terminals
            | Step::Trust { .. }
            | Step::Writable { .. }
            | Step::Volume { .. }
            | Step::Workspace { .. } => {
                return Err(Trouble::plain("build a template from a step that belongs to one box"));
            }
        }
    }
    if standing.ids.is_none() {
        // The kernel lets nobody without privilege mount a view of processes where none is visible yet. Each box
        // takes this one away again before its first program starts.
        let visible = mount::copy_path("/proc", Beneath::Included).tried("copy the host's /proc")?;
        later.push((visible, "proc".to_owned()));
    }
    if lifted::MOUNTS {
        let at = "/host".parse().map_err(|_| Trouble::plain("name the place for the host's root"))?;
        make_directory(&root, &at)?;
        let whole = mount::copy_path("/", Beneath::Included).tried("copy the host's root")?;
        later.push((whole, at.relative().to_owned()));
    }
    mount::cover_root(root.as_fd()).tried("put the box's root in place")?;
    for (mounted, at) in later {
        mount::attach(mounted.as_fd(), root.as_fd(), &at).tried_with(|| format!("attach /{at}"))?;
    }
    for (number, (at, text)) in covers.into_iter().enumerate() {
        cover(&root, number, at, text)?;
    }
    for device in devices {
        device.attach(&root)?;
    }
    mount::restrict(root.as_fd(), Attributes::PLAIN.no_programs().read_only(), Beneath::LeftOut)
        .tried("make the box's root read-only")?;
    mount::become_root().tried("exchange the root (pivot_root)")
}

fn make_directory(root: &OwnedFd, at: &GuestPath) -> Result<(), Trouble> {
    let (parent, name) = parent(root, at)?;
    match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error).tried_with(|| format!("make {at}")),
    }
}

pub(crate) fn write_file(root: &OwnedFd, at: &GuestPath, text: &str) -> Result<(), Trouble> {
    let (parent, name) = parent(root, at)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file =
        openat(&parent, name, flags, Mode::from_raw_mode(0o644)).tried_with(|| format!("make {at}"))?;
    std::io::Write::write_all(&mut std::fs::File::from(file), text.as_bytes())
        .tried_with(|| format!("write {at}"))
}

const NOT_THERE: [Option<Errno>; 3] = [Some(Errno::NOENT), Some(Errno::NOTDIR), Some(Errno::LOOP)];

/// Puts a file of ours over one of the image's. The image's own is not touched, and one that it has not is not made.
fn cover(root: &OwnedFd, number: usize, at: &GuestPath, text: &str) -> Result<(), Trouble> {
    let name = format!(".cover-{number}");
    let place = format!("/{name}").parse().map_err(|_| Trouble::plain("name a file of ours"))?;
    write_file(root, &place, text)?;
    let file = mount::copy(root, &name, Beneath::LeftOut).tried_with(|| format!("copy what covers {at}"))?;
    mount::restrict(file.as_fd(), Attributes::PLAIN.no_programs().read_only(), Beneath::LeftOut)
        .tried_with(|| format!("make what covers {at} read-only"))?;
    let covered = mount::attach(file.as_fd(), root.as_fd(), at.relative());
    // Afterwards: kernels as old as 6.1 attach nothing whose name is gone, and say that there is no such file.
    unlinkat(root, name.as_str(), AtFlags::empty())
        .tried_with(|| format!("take away the name of what covers {at}"))?;
    match covered {
        // No such file, or a link to somewhere: then there is nothing to cover.
        Err(error) if NOT_THERE.contains(&Errno::from_io_error(&error)) => Ok(()),
        attached => attached.tried_with(|| format!("cover {at}")),
    }
}

fn make_link(root: &OwnedFd, at: &str, to: &str) -> Result<(), Trouble> {
    symlinkat(to, root, at).tried_with(|| format!("link /{at}"))
}

/// Opens the directory in which something is to be made, without following links.
fn parent<'a>(root: &OwnedFd, at: &'a GuestPath) -> Result<(OwnedFd, &'a str), Trouble> {
    match at.relative().rsplit_once('/') {
        Some((parent, name)) => Ok((
            mount::open_point(root.as_fd(), parent).tried_with(|| format!("open the parent of {at}"))?,
            name,
        )),
        None => Ok((root.try_clone().tried("copy a descriptor")?, at.relative())),
    }
}

/// A file or directory of the host, read-only, and an empty one of the same kind to attach it to.
fn host_view(root: &OwnedFd, path: &GuestPath) -> Result<OwnedFd, Trouble> {
    let tree = mount::copy_path(path.as_str(), Beneath::Included)
        .tried_with(|| format!("copy the host's {path}"))?;
    show(root, &tree, path)?;
    Ok(tree)
}

fn show(root: &OwnedFd, tree: &OwnedFd, at: &GuestPath) -> Result<(), Trouble> {
    mount::restrict(tree.as_fd(), Attributes::PLAIN.read_only(), Beneath::Included)
        .tried_with(|| format!("make {at} read-only"))?;
    let stat = rustix::fs::fstat(tree).tried_with(|| format!("look at {at}"))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => make_directory(root, at),
        FileType::RegularFile => write_file(root, at, ""),
        _ => Err(Trouble::plain(format!("show {at}: it is neither a file nor a directory"))),
    }
}

fn show_entries(
    root: &OwnedFd,
    entries: Vec<Entry>,
    later: &mut Vec<(OwnedFd, String)>,
) -> Result<(), Trouble> {
    for entry in entries {
        match entry {
            Entry::Tree { at, tree } => {
                show(root, &tree, &at)?;
                later.push((tree, at.relative().to_owned()));
            }
            Entry::Link { at, to } => {
                symlinkat(to.as_c_str(), root, at.relative()).tried_with(|| format!("link {at}"))?
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_the_first_goes_however_long_it_lives() {
        let mut all = Vec::new();
        for number in 0..100_000_u32 {
            keep(&mut all, number, MOST_ONCE);
        }
        assert_eq!((all.len(), all.first(), all.last()), (MOST_ONCE, Some(&99_744), Some(&99_999)));
        assert!(all.capacity() <= 2 * MOST_ONCE);
    }
}
