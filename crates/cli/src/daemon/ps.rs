//! `blastbox ps`: the boxes.

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::Where;
use super::problem::DaemonProblem;
use super::table::{BoxView, moment, table};
use crate::output::{self, plain};
use crate::problem::Problem;

pub(crate) const HELP: &str = "Examples:\n  blastbox ps\n  blastbox ps --json | jq -r '.[].id'";

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct Page {
    boxes: Vec<Value>,
    next: Option<String>,
}

pub(crate) async fn ps(args: PsArgs) -> Result<u8, Problem> {
    let client = args.place.client()?;
    let mut boxes = Vec::new();
    let mut path = "/v1/boxes?limit=1000".to_owned();
    loop {
        let page: Page = client.get(&path).await?;
        boxes.extend(page.boxes);
        let Some(next) = page.next else { break };
        path = format!("/v1/boxes?limit=1000&cursor={next}");
    }
    if args.json {
        output::print_json(&boxes)?;
        return Ok(0);
    }
    let cards = boxes.into_iter().map(serde_json::from_value).collect::<Result<Vec<BoxView>, _>>();
    let rows: Vec<Vec<String>> = cards.map_err(DaemonProblem::Unreadable)?.iter().map(row).collect();
    output::print(&table(&["BOX", "PHASE", "TIER", "LEVEL", "IMAGE", "CREATED", "ENDS"], &rows))?;
    Ok(0)
}

fn row(card: &BoxView) -> Vec<String> {
    let phase = &card.phase();
    let BoxView { id, tier, level, image, created_at, ends_at, .. } = card;
    let mut row: Vec<String> = [id, phase, tier, level, image].into_iter().map(|text| plain(text)).collect();
    row.extend([moment(created_at), moment(ends_at)]);
    row
}
