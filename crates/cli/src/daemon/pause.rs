//! `blastbox pause` and `blastbox resume`.

use blastbox_wire::BoxId;
use clap::Args;
use serde_json::Value;

use super::Where;
use super::problem::DaemonProblem;
use super::table::BoxView;
use crate::output::{self, plain};
use crate::problem::Problem;

pub(crate) const HELP: &str = "Examples:
  blastbox pause BOX
  blastbox pause --to-disk BOX
  blastbox resume BOX

A paused box keeps its memory; its life goes on. With --to-disk its machine is written to a file, its memory and processes are given back and
its life stands still; also the next daemon resumes it. Only virtual machines without credentials (--tier microvm).";

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The box
    #[arg(value_name = "BOX")]
    id: BoxId,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PauseMore {
    /// Write it to disk, and give back its memory
    #[arg(long)]
    to_disk: bool,
    #[command(flatten)]
    rest: PauseArgs,
}

pub(crate) async fn pause(PauseMore { to_disk, rest }: PauseMore) -> Result<u8, Problem> {
    change(rest, if to_disk { "pause?to=disk" } else { "pause" }).await
}

pub(crate) async fn resume(args: PauseArgs) -> Result<u8, Problem> {
    change(args, "resume").await
}

async fn change(args: PauseArgs, verb: &str) -> Result<u8, Problem> {
    let client = args.place.client()?;
    let card: Value = client.post(&format!("/v1/boxes/{}/{verb}", args.id.as_str())).await?;
    if args.json {
        output::print_json(&card)?;
        return Ok(0);
    }
    let card: BoxView = serde_json::from_value(card).map_err(DaemonProblem::Unreadable)?;
    output::print(&format!("{} {}\n", plain(&card.id), card.phase()))?;
    Ok(0)
}
