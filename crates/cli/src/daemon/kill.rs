//! `blastbox kill`: end boxes.

use blastbox_wire::BoxId;
use blastbox_wire::receipt::Receipt;
use clap::Args;
use hyper::Method;

use super::Where;
use crate::output;
use crate::problem::Problem;
use crate::summary;

pub(crate) const HELP: &str =
    "Examples:\n  blastbox kill BOX\n  blastbox ps --json | jq -r '.[].id' | xargs blastbox kill";

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// The boxes
    #[arg(value_name = "BOX", required = true)]
    ids: Vec<BoxId>,
    #[command(flatten)]
    place: Where,
    /// Print the receipts as JSON, one per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn kill(args: KillArgs) -> Result<u8, Problem> {
    let client = args.place.client()?;
    let mut worst = Ok(0);
    for id in &args.ids {
        let path = format!("/v1/boxes/{}", id.as_str());
        match client.ask::<Receipt>(Method::DELETE, &path, None::<&()>).await {
            Ok(receipt) => {
                let line = match args.json {
                    true => format!("{}\n", serde_json::to_string(&receipt)?),
                    false => format!("{id}: {}", summary::text(&receipt, false)),
                };
                // What cannot be told is ended all the same, and so are the others.
                if let Err(error) = output::print(&line) {
                    worst = Err(error.into());
                }
            }
            // The others are ended all the same; the last no is what the verb ends with.
            Err(error) => {
                if args.ids.len() > 1 {
                    output::say(&format!("{id}: {}\n", output::plain(&error.to_string())));
                }
                worst = Err(error.into());
            }
        }
    }
    worst
}
