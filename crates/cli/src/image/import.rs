//! `blastbox image import`.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use blastbox_images::ImageName;
use blastbox_images::oci::Platform;
use blastbox_images::store::{Import, Kept, Progress};
use blastbox_images::tree::Caps;
use blastbox_policy::Bytes;
use clap::Args;

use super::StoreFlag;
use super::list::View;
use super::progress::{Bar, amount};
use crate::output::{self, plain};
use crate::problem::Problem;

pub(crate) const HELP: &str = "\
Examples:
  blastbox image import ./rootfs --name tools
  blastbox image import rootfs.tar.gz --name tools
  blastbox image import ./layout --ref 3.12 --name python      an OCI layout, as skopeo and umoci write it
  docker save python:3.12 | blastbox image import - --name python
  docker export CONTAINER | blastbox image import - --name tools

Everything belongs to the owner of the store; set-id and sticky bits, write permission for others and extended attributes
are not taken over; pipes and sockets, and what lies in /dev, /proc, /sys, /run and /tmp, are left out. A path or hard link
that leads out of the image, a device, or more than the limits refuses the whole import.";

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// A directory, a tar archive (plain or gzip), an OCI layout, or what `docker save` wrote; `-`: an archive on standard input
    source: PathBuf,
    /// Its name, which is taken from any other image that has it
    #[arg(long)]
    name: ImageName,
    /// Which image of a layout or of what was saved, by its tag
    #[arg(long = "ref", value_name = "TAG")]
    tag: Option<String>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    store: StoreFlag,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How much an image may be, and for which machine.
#[derive(Debug, Args)]
pub(crate) struct Limits {
    /// For which machine, such as linux/amd64 [default: this one]
    #[arg(long, value_name = "OS/ARCH")]
    platform: Option<Platform>,
    /// Largest size of all its content [default: 16GiB]
    #[arg(long, value_name = "SIZE")]
    max_size: Option<Bytes>,
    /// Most files, directories and links [default: 2000000]
    #[arg(long, value_name = "N")]
    max_entries: Option<u64>,
}

impl Limits {
    pub(super) fn platform(&self) -> Platform {
        self.platform.clone().unwrap_or_else(Platform::here)
    }

    pub(super) fn caps(&self) -> Caps {
        let usual = Caps::default();
        Caps {
            bytes: self.max_size.map_or(usual.bytes, |size| size.0),
            entries: self.max_entries.unwrap_or(usual.entries),
        }
    }
}

pub(crate) fn import(args: &ImportArgs) -> Result<u8, Problem> {
    let store = args.store.open()?;
    let mut bar = Bar::new();
    let what = Import {
        path: &args.source,
        name: Some(&args.name),
        tag: args.tag.as_deref(),
        platform: args.limits.platform(),
        caps: args.limits.caps(),
    };
    let mut follow = |progress| follow(&mut bar, progress);
    let kept = if args.source.as_os_str() == "-" {
        let mut from = std::io::stdin().lock();
        if from.is_terminal() {
            return Err(Problem::NothingPiped);
        }
        store.import_piped(&mut from, "standard input", &what, &mut follow)?
    } else {
        store.import(&what, &mut follow)?
    };
    drop(bar);
    tell(&args.name, &kept, args.json)
}

/// Shows how far an import is.
pub(super) fn follow(bar: &mut Bar, progress: Progress) {
    match progress {
        Progress::Reading { bytes, of } => bar.tell("unpacking", bytes, of),
        Progress::Checking { bytes } => bar.tell("checking", bytes, None),
    }
}

/// Says what has become of it.
pub(super) fn tell(name: &ImageName, kept: &Kept, json: bool) -> Result<u8, Problem> {
    let facts = &kept.facts;
    if json {
        output::print_json(&View::of(facts, std::slice::from_ref(name), None))?;
        return Ok(0);
    }
    let known = if kept.known { ", which the store had already" } else { "" };
    output::print(&format!(
        "{name}@{}\n{} in {} entries, {} left out, from {}{known}\n",
        facts.digest,
        amount(facts.bytes),
        facts.entries,
        facts.left_out,
        plain(&facts.source.words()),
    ))?;
    Ok(0)
}
