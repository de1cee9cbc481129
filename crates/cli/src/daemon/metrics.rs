//! `blastbox metrics`: the daemon's numbers.

use clap::Args;

use super::Where;
use crate::output;
use crate::problem::Problem;

pub(crate) const HELP: &str = "Example:\n  blastbox metrics | grep pool";

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    #[command(flatten)]
    place: Where,
}

pub(crate) async fn metrics(args: MetricsArgs) -> Result<u8, Problem> {
    output::print(&args.place.client()?.text("/metrics").await?);
    Ok(0)
}
