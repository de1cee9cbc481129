//! `blastbox image rm`, `prune` and `verify`.

use std::path::PathBuf;

use blastbox_images::store::short;
use blastbox_images::{ImageRef, StoreError};
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::StoreFlag;
use super::progress::{Bar, amount};
use crate::output;
use crate::problem::Problem;

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// NAME, NAME@sha256:… or sha256:…
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
    #[command(flatten)]
    store: StoreFlag,
    /// Where a daemon keeps boxes that are paused to disk, whose images stay [default: beside the store, and the usual place]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Print JSON, one line for each
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    #[command(flatten)]
    store: StoreFlag,
    /// Where a daemon keeps boxes that are paused to disk, whose images stay [default: beside the store, and the usual place]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// NAME, NAME@sha256:… or sha256:…
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
    #[command(flatten)]
    store: StoreFlag,
    /// Print JSON, one line for each
    #[arg(long)]
    json: bool,
}

fn line(value: &serde_json::Value) -> Result<(), Problem> {
    Ok(output::print(&format!("{value}\n"))?)
}

fn meant(text: &str) -> Result<ImageRef, StoreError> {
    Ok(text.parse()?)
}

pub(crate) fn rm(args: &RmArgs) -> Result<u8, Problem> {
    let store = args.store.open()?;
    for text in &args.images {
        let removed =
            store.remove_but(&meant(text)?, || StoreFlag::needed(&store, args.state_dir.as_deref()))?;
        match removed {
            digest if args.json => {
                let digest = digest.map(|digest| digest.to_string());
                line(&json!({ "image": text, "removed": digest.is_some(), "digest": digest }))?;
            }
            Some(digest) => {
                output::print(&format!("{text}: removed, with its files ({})\n", short(&digest)))?
            }
            None => output::print(&format!("{text}: the name is removed; the image has another\n"))?,
        }
    }
    Ok(0)
}

#[derive(Serialize)]
struct Pruned {
    images: Vec<String>,
    in_use: Vec<String>,
    bytes: u64,
}

pub(crate) fn prune(args: &PruneArgs) -> Result<u8, Problem> {
    let store = args.store.open()?;
    let needed = || StoreFlag::needed(&store, args.state_dir.as_deref());
    let pruned = store.prune_but(|| needed().map(|needed| needed.into_keys().collect()))?;
    if args.json {
        let text = |digests: &[blastbox_wire::event::Hash]| digests.iter().map(ToString::to_string).collect();
        let (images, in_use) = (text(&pruned.images), text(&pruned.in_use));
        output::print_json(&Pruned { images, in_use, bytes: pruned.bytes })?;
        return Ok(0);
    }
    let stay = match pruned.in_use.len() {
        0 => String::new(),
        count => format!("; {count} without a name stay, because boxes use them"),
    };
    output::print(&format!("{} images removed, {} free{stay}\n", pruned.images.len(), amount(pruned.bytes)))?;
    Ok(0)
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<u8, Problem> {
    let store = args.store.open()?;
    for text in &args.images {
        let mut bar = Bar::new();
        let facts = store.verify(&meant(text)?, &mut |bytes| bar.tell("checking", bytes, None))?;
        drop(bar);
        if args.json {
            let digest = facts.digest.to_string();
            line(&json!({ "image": text, "entries": facts.entries, "digest": digest, "as_stored": true }))?;
            continue;
        }
        output::print(&format!("{text}: {} entries, {}, as stored\n", facts.entries, facts.digest))?;
    }
    Ok(0)
}
