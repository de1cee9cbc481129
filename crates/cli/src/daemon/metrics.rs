//! `blastbox metrics`: the daemon's numbers.

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;

use super::Where;
use crate::output;
use crate::problem::Problem;

pub(crate) const HELP: &str = "Examples:\n  blastbox metrics | grep pool\n  blastbox metrics --json | jq '.[] | select(.name == \"blastbox_boxes\")'";

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Print JSON: one object with name, labels and value for each number
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

pub(crate) async fn metrics(args: MetricsArgs) -> Result<u8, Problem> {
    let page = args.place.client()?.text("/metrics").await?;
    if args.json {
        output::print_json(&page.lines().filter_map(number).collect::<Vec<_>>())?;
    } else {
        output::print(&page)?;
    }
    Ok(0)
}

/// One number.
#[derive(Debug, PartialEq, Serialize)]
struct Number<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    value: f64,
}

/// `name{label="of",label="of"} value`: the labels are the daemon's own words, without escapes and commas.
fn number(line: &str) -> Option<Number<'_>> {
    let (name, value) = line.split_once('#').is_none().then(|| line.rsplit_once(' '))??;
    let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
    let pairs = labels.strip_suffix('}')?.split(',').filter(|pair| !pair.is_empty());
    let labels = pairs.map(|pair| pair.strip_suffix('"')?.split_once("=\"")).collect::<Option<_>>()?;
    Some(Number { name, labels, value: value.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_and_without_labels_and_talk_is_not() {
        let plain = number("blastbox_execs_total 3").unwrap();
        assert_eq!((plain.name, plain.labels.len(), plain.value), ("blastbox_execs_total", 0, 3.0));
        let both = number("blastbox_boxes{tier=\"jail\",state=\"ready\"} 7").unwrap();
        assert_eq!(
            (both.name, both.labels["tier"], both.labels["state"]),
            ("blastbox_boxes", "jail", "ready")
        );
        for talk in ["# HELP blastbox_boxes Boxes that are there now.", "", "x{y} 1", "x"] {
            assert_eq!(number(talk), None, "{talk}");
        }
    }
}
