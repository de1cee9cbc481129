//! `blastbox pause` and `blastbox resume`.

use blastbox_wire::BoxId;
use clap::Args;
use serde_json::Value;

use super::Where;
use super::problem::DaemonProblem;
use super::table::BoxView;
use crate::output::{self, plain};
use crate::problem::Problem;

pub(crate) const HELP: &str = "Examples:\n  blastbox pause BOX\n  blastbox resume BOX\n\nA paused box keeps its memory; its life goes on.";

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

pub(crate) async fn pause(args: PauseArgs, verb: &str) -> Result<u8, Problem> {
    let client = args.place.client()?;
    let card: Value = client.post(&format!("/v1/boxes/{}/{verb}", args.id.as_str())).await?;
    if args.json {
        output::print_json(&card)?;
        return Ok(0);
    }
    let card: BoxView = serde_json::from_value(card).map_err(DaemonProblem::Unreadable)?;
    output::print(&format!("{} {}\n", plain(&card.id), plain(&card.phase)));
    Ok(0)
}
