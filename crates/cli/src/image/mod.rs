//! `blastbox image`: the images of the store. One file per group of verbs; none of them needs a daemon.

mod build;
mod debian;
mod import;
mod list;
mod progress;
mod pull;
mod remove;
mod store;

use clap::Subcommand;
use tokio::runtime::Runtime;

pub(crate) use store::StoreFlag;

use crate::problem::Problem;

pub(crate) const HELP: &str = "\
Examples:
  blastbox image import ./rootfs --name tools          a directory, a tar archive (plain or gzip), or an OCI layout
  blastbox image pull registry.example/python:3.12     every byte is held against its digest
  blastbox image make base                             what users of E2B's SDKs expect, from packages of Debian
  blastbox image build ./Dockerfile --name tools       FROM, RUN, COPY, ENV, WORKDIR, USER, CMD
  blastbox image ls
  blastbox run --image tools -- python3 --version      or NAME@sha256:… to have exactly that content
  blastbox image verify tools                          reads every file and holds it against the digest
  blastbox image prune                                 takes away what has no name and is not in use";

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageVerb {
    /// Copy a root file system into the store: a directory, a tar archive, or an OCI layout
    #[command(after_help = import::HELP)]
    Import(import::ImportArgs),
    /// Fetch an image from a registry
    #[command(after_help = pull::HELP)]
    Pull(Box<pull::PullArgs>),
    /// Make an image from packages of Debian
    #[command(after_help = debian::HELP)]
    Debian(debian::DebianArgs),
    /// Make an image from a recipe, each command in a box of its own
    #[command(after_help = build::HELP)]
    Build(Box<build::BuildArgs>),
    /// Make one of the usual images: base, code-interpreter
    #[command(after_help = debian::MAKE_HELP)]
    Make(debian::MakeArgs),
    /// List images
    #[command(after_help = "Example:\n  blastbox image ls --json")]
    Ls(list::LsArgs),
    /// Show everything that is known of an image
    #[command(after_help = "Example:\n  blastbox image inspect tools")]
    Inspect(list::InspectArgs),
    /// Remove images by name; one that a box uses stays
    #[command(after_help = "Example:\n  blastbox image rm tools old-tools")]
    Rm(remove::RmArgs),
    /// Remove images that have no name and are not in use, and downloads
    #[command(after_help = "Example:\n  blastbox image prune --json")]
    Prune(remove::PruneArgs),
    /// Read an image whole and hold it against its digest
    #[command(after_help = "Example:\n  blastbox image verify tools")]
    Verify(remove::VerifyArgs),
}

/// Carries out the verb.
pub(crate) fn image(
    verb: &ImageVerb,
    runtime: impl FnOnce() -> Result<Runtime, Problem>,
) -> Result<u8, Problem> {
    match verb {
        ImageVerb::Import(args) => import::import(args),
        ImageVerb::Pull(args) => runtime()?.block_on(pull::pull(args)),
        ImageVerb::Debian(args) => debian::debian(args),
        ImageVerb::Build(args) => runtime()?.block_on(build::build(args)),
        ImageVerb::Make(args) => debian::make(args),
        ImageVerb::Ls(args) => list::ls(args),
        ImageVerb::Inspect(args) => list::inspect(args),
        ImageVerb::Rm(args) => remove::rm(args),
        ImageVerb::Prune(args) => remove::prune(args),
        ImageVerb::Verify(args) => remove::verify(args),
    }
}
