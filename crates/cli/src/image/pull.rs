//! `blastbox image pull`.

use std::path::PathBuf;

use blastbox_images::ImageName;
use blastbox_server::registry::{Login, Pull, PullProgress, Reference, pull as fetch};
use clap::Args;

use super::StoreFlag;
use super::import::{Limits, follow, tell};
use super::progress::Bar;
use crate::problem::Problem;

pub(crate) const HELP: &str = "\
Examples:
  blastbox image pull registry.example/library/python:3.12 --name python
  blastbox image pull 127.0.0.1:5000/team/app@sha256:…           exactly this manifest
  blastbox image pull registry.example/private/app --username me --password-file token

The registry is always named: none is meant where none is written. Manifest, configuration and layers are held against their
digests while they arrive. Without encryption only this machine itself is asked, unless --insecure is given. A password goes
to the registry and to whoever hands out tokens in the same domain, and to nobody else. What has arrived whole is not asked for
again when a pull is repeated.";

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// HOST[:PORT]/REPOSITORY[:TAG][@sha256:…]
    reference: Reference,
    /// The name that it shall have [default: the last part of the repository, with the tag]
    #[arg(long)]
    name: Option<ImageName>,
    /// Who asks, where the registry wants to know
    #[arg(long, value_name = "USER", requires = "password_file")]
    username: Option<String>,
    /// The file that holds the password or token
    #[arg(long, value_name = "FILE", requires = "username")]
    password_file: Option<PathBuf>,
    /// Certificates to trust instead of this host's
    #[arg(long, value_name = "FILE.pem")]
    ca: Option<PathBuf>,
    /// Ask other machines without encryption where the address begins with http://
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    store: StoreFlag,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn pull(args: &PullArgs) -> Result<u8, Problem> {
    let store = args.store.open()?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => args.reference.usual_name().parse().map_err(|error| {
            Problem::Images(blastbox_images::StoreError::BadRef(blastbox_images::store::BadRef::Name(error)))
        })?,
    };
    let login = match (&args.username, &args.password_file) {
        (Some(user), Some(file)) => {
            Some(Login::new(user, file).map_err(|error| Problem::Registry(Box::new(error.into())))?)
        }
        _ => None,
    };
    let what = Pull {
        reference: &args.reference,
        name: &name,
        platform: args.limits.platform(),
        caps: args.limits.caps(),
        login,
        ca: args.ca.as_deref(),
        insecure: args.insecure,
    };
    let mut bar = Bar::new();
    let mut show = |progress| match progress {
        PullProgress::Downloading { bytes, of } => bar.tell("downloading", bytes, Some(of)),
        PullProgress::Storing(progress) => follow(&mut bar, progress),
    };
    let kept = fetch(&store, &what, &mut show).await.map_err(|error| Problem::Registry(Box::new(error)))?;
    drop(bar);
    tell(&name, &kept, args.json)
}
