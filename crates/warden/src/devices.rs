//! The devices of a root.
//!
//! A device that everybody on the host may open is shown as the host's own file. One that only root and a group may open, as
//! distributions keep `/dev/kvm`, is closed to the users of root's boxes: a box that is to have it gets a file of its own for the
//! same device. The host's stays as closed as it is, and the box's lies where nobody outside the box can reach it.

use std::os::fd::{AsFd, OwnedFd};

use blastbox_sys::mount::{self, Attributes, Beneath};
use blastbox_wire::plan::DeviceName;
use rustix::fs::{AtFlags, Dev, FileType, Mode, chmodat, fstat, mkdirat, mknodat, unlinkat};

use crate::standing::Standing;
use crate::template::write_file;
use crate::trouble::{Trouble, Trying};

/// Where a file system with one device in it lies for a moment. A device is copied out of it, which no kernel before 6.15 does with a
/// file system that lies nowhere.
const MOMENT: &str = ".device";
/// Whoever may open everything that a device can do.
const EVERYBODY: u32 = 0o666;

/// A device that a box is to have.
#[derive(Debug)]
pub(crate) enum Device {
    /// The host's file, to be attached here.
    Shown(OwnedFd, String),
    /// A device of this number, for which the box gets a file here.
    Closed(Dev, String),
}

impl Device {
    /// Looks at the host's, and makes the place that the box's will have.
    pub(crate) fn find(root: &OwnedFd, name: DeviceName, standing: &Standing) -> Result<Self, Trouble> {
        let path = format!("/dev/{}", name.as_str());
        let tree =
            mount::copy_path(&path, Beneath::LeftOut).tried_with(|| format!("copy the host's {path}"))?;
        let stat = fstat(&tree).tried_with(|| format!("look at {path}"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice {
            return Err(Trouble::plain(format!("show {path}: it is no device")));
        }
        let at = path.parse().map_err(|_| Trouble::plain("name a device"))?;
        write_file(root, &at, "")?;
        let place = at.relative().to_owned();
        // Without ids to hand out the users of boxes are the caller, whom the host has let in or not.
        if standing.ids.is_some() && stat.st_mode & EVERYBODY != EVERYBODY {
            return Ok(Self::Closed(stat.st_rdev, place));
        }
        mount::restrict(tree.as_fd(), Attributes::DEVICE, Beneath::LeftOut)
            .tried_with(|| format!("restrict {path}"))?;
        Ok(Self::Shown(tree, place))
    }

    /// Puts it into a root that is in place.
    pub(crate) fn attach(self, root: &OwnedFd) -> Result<(), Trouble> {
        match self {
            Self::Shown(tree, at) => attach(&tree, root, &at),
            Self::Closed(number, at) => make(number, root, &at),
        }
    }
}

fn attach(tree: &OwnedFd, root: &OwnedFd, at: &str) -> Result<(), Trouble> {
    mount::attach(tree.as_fd(), root.as_fd(), at).tried_with(|| format!("attach /{at}"))
}

fn make(number: Dev, root: &OwnedFd, at: &str) -> Result<(), Trouble> {
    let options = [("mode", Some("0700")), ("size", Some("4k")), ("nr_inodes", Some("2"))];
    let alone = mount::create("tmpfs", &options, Attributes::DEVICE)
        .tried_with(|| format!("make a file system for /{at}"))?;
    let mode = Mode::from_raw_mode(EVERYBODY);
    mknodat(&alone, "it", FileType::CharacterDevice, mode, number).tried_with(|| {
        format!("make a file for the device /{at}, which the host keeps closed to the users of boxes")
    })?;
    // Whatever mask the caller has left.
    chmodat(&alone, "it", mode, AtFlags::empty()).tried_with(|| format!("open /{at} to the box"))?;
    mkdirat(root, MOMENT, Mode::from_raw_mode(0o700)).tried_with(|| format!("make /{MOMENT}"))?;
    attach(&alone, root, MOMENT)?;
    let tree = mount::copy(root, &format!("{MOMENT}/it"), Beneath::LeftOut)
        .tried_with(|| format!("copy the file for /{at}"))?;
    attach(&tree, root, at)?;
    // The root is the current directory.
    mount::detach(MOMENT).tried_with(|| format!("take /{MOMENT} away"))?;
    unlinkat(root, MOMENT, AtFlags::REMOVEDIR).tried_with(|| format!("remove /{MOMENT}"))
}
