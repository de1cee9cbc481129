//! `blastbox image ls` and `blastbox image inspect`.

use std::time::Duration;

use blastbox_images::store::{Facts, Listed, short};
use blastbox_images::{ImageName, ImageRef};
use blastbox_wire::receipt::rfc3339;
use clap::Args;
use serde::Serialize;

use super::StoreFlag;
use super::progress::amount;
use crate::daemon::{moment, table};
use crate::output::{self, plain};
use crate::problem::Problem;

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    store: StoreFlag,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// NAME, NAME@sha256:… or sha256:…
    image: String,
    #[command(flatten)]
    store: StoreFlag,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// An image as it is printed in JSON.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    names: Vec<&'a str>,
    #[serde(flatten)]
    facts: &'a Facts,
    made: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use: Option<bool>,
}

impl<'a> View<'a> {
    pub(super) fn of(facts: &'a Facts, names: &'a [ImageName], in_use: Option<bool>) -> Self {
        let names = names.iter().map(ImageName::as_str).collect();
        Self { names, facts, made: made(facts), in_use }
    }
}

fn made(facts: &Facts) -> String {
    rfc3339(Duration::from_secs(facts.made_at))
}

pub(crate) fn ls(args: &LsArgs) -> Result<u8, Problem> {
    let all = args.store.open()?.list()?;
    if args.json {
        let views: Vec<_> =
            all.iter().map(|Listed { facts, names, in_use }| View::of(facts, names, Some(*in_use))).collect();
        output::print_json(&views)?;
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = all.iter().flat_map(rows).collect();
    output::print(&table(&["NAME", "DIGEST", "SIZE", "ENTRIES", "MADE", "IN USE", "SOURCE"], &rows))?;
    Ok(0)
}

/// One line for each name; one for an image that has none.
fn rows(image: &Listed) -> Vec<Vec<String>> {
    let Listed { facts, names, in_use } = image;
    let names =
        if names.is_empty() { vec!["-".to_owned()] } else { names.iter().map(ToString::to_string).collect() };
    let row = |name: String| {
        vec![
            name,
            short(&facts.digest),
            amount(facts.bytes),
            facts.entries.to_string(),
            moment(&made(facts)),
            if *in_use { "yes" } else { "no" }.to_owned(),
            plain(&facts.source.words()),
        ]
    };
    names.into_iter().map(row).collect()
}

pub(crate) fn inspect(args: &InspectArgs) -> Result<u8, Problem> {
    let store = args.store.open()?;
    let image: ImageRef = args.image.parse().map_err(blastbox_images::StoreError::from)?;
    let meant = store.meant(&image)?;
    let found = store.list()?.into_iter().find(|Listed { facts, names, .. }| match &image.name {
        Some(name) => names.contains(name),
        None => facts.digest == meant.digest,
    });
    let Some(Listed { facts, names, in_use }) = found else {
        // Somebody took it away meanwhile, or there never was one: the store says which ones there are.
        drop(store.find(&image)?);
        return Ok(0);
    };
    if args.json {
        output::print_json(&View::of(&facts, &names, Some(in_use)))?;
        return Ok(0);
    }
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let config = &facts.config;
    let mut lines = vec![
        ("names", names.join(", ")),
        ("digest", facts.digest.to_string()),
        ("size", amount(facts.bytes)),
        ("entries", format!("{} ({} left out)", facts.entries, facts.left_out)),
        ("made", moment(&made(&facts))),
        ("source", plain(&facts.source.words())),
        ("in use", if in_use { "yes" } else { "no" }.to_owned()),
    ];
    lines.extend(config.env.iter().map(|(name, value)| ("env", plain(&format!("{name}={value}")))));
    lines.extend(config.workdir.iter().map(|path| ("workdir", plain(path))));
    lines.extend(config.user.iter().map(|user| ("user", format!("{} (a box has its own)", plain(user)))));
    if !config.command.is_empty() {
        lines.push(("command", plain(&config.command.join(" "))));
    }
    let text: String = lines.iter().map(|(name, value)| format!("{name:<8} {value}\n")).collect();
    output::print(&text)?;
    Ok(0)
}
