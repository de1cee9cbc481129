//! `blastbox module`: programs of the tier `wasm` that a daemon compiles and keeps.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use blastbox_policy::GuestName;
use clap::{Args, Subcommand};
use hyper::Method;
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::Where;
use super::client::{Sent, whole};
use super::problem::DaemonProblem;
use super::table::{moment, table};
use crate::output::{self, plain};
use crate::problem::Problem;
use crate::regular::open_regular;

pub(crate) const HELP: &str = "Examples:\n  blastbox module add tool.wasm\n  \
box=$(blastbox create --tier wasm --image module:tool)\n  blastbox exec $box -- tool.wasm arguments\n  blastbox module rm tool\n\n\
A WASI preview-1 module or a WASI 0.2 component. The daemon compiles it once, in a process that can do nothing else.";

#[derive(Debug, Subcommand)]
pub(crate) enum ModuleVerb {
    /// Have the daemon compile and keep a module or component
    #[command(
        after_help = "Examples:\n  blastbox module add tool.wasm\n  blastbox module add build/out.wasm --name tool"
    )]
    Add(AddArgs),
    /// List modules
    #[command(after_help = "Example:\n  blastbox module ls --json")]
    Ls(ListArgs),
    /// Take modules away; boxes that run them go on
    #[command(after_help = "Example:\n  blastbox module rm tool")]
    Rm(RemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The module or component
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,
    /// What it is called; a module of that name is replaced [default: the file's name]
    #[arg(long, value_name = "NAME")]
    name: Option<GuestName>,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Which
    #[arg(value_name = "NAME", required = true)]
    names: Vec<GuestName>,
    #[command(flatten)]
    place: Where,
}

/// A module, as the daemon tells it.
#[derive(Debug, Deserialize)]
struct ModuleView {
    name: String,
    form: String,
    digest: String,
    bytes: u64,
    added_at: String,
}

pub(crate) async fn module(verb: ModuleVerb) -> Result<u8, Problem> {
    match verb {
        ModuleVerb::Add(args) => add(args).await,
        ModuleVerb::Ls(args) => list(args).await,
        ModuleVerb::Rm(args) => remove(args).await,
    }
}

async fn add(args: AddArgs) -> Result<u8, Problem> {
    let AddArgs { file, name, place, json } = args;
    let named = || file.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
    let name = name.or_else(named).ok_or_else(|| Problem::ModuleName { path: file.clone() })?;
    let bytes = read(&file).map_err(|source| DaemonProblem::ReadModule { path: file.clone(), source })?;
    let sent = Sent::Whole(Some(Bytes::from(bytes)));
    let answer = place.client()?.send(Method::PUT, &path(&name), &[], sent).await?;
    let card: Value = serde_json::from_slice(&whole(answer).await?).map_err(DaemonProblem::Unreadable)?;
    if json {
        output::print_json(&card)?;
    } else {
        output::print(&format!("module:{}\n", plain(name.as_str())))?;
    }
    Ok(0)
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(file)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

async fn list(args: ListArgs) -> Result<u8, Problem> {
    let told: Value = args.place.client()?.get("/v1/modules").await?;
    let cards = told.get("modules").cloned().unwrap_or_default();
    if args.json {
        output::print_json(&cards)?;
        return Ok(0);
    }
    let cards: Vec<ModuleView> = serde_json::from_value(cards).map_err(DaemonProblem::Unreadable)?;
    let row = |view: &ModuleView| {
        let ModuleView { name, form, digest, bytes, added_at } = view;
        let short: String = plain(digest).chars().take("sha256:".len() + 12).collect();
        vec![plain(name), plain(form), short, format!("{} KiB", bytes.div_ceil(1024)), moment(added_at)]
    };
    let rows: Vec<Vec<String>> = cards.iter().map(row).collect();
    output::print(&table(&["MODULE", "FORM", "DIGEST", "SIZE", "ADDED"], &rows))?;
    Ok(0)
}

async fn remove(args: RemoveArgs) -> Result<u8, Problem> {
    let client = args.place.client()?;
    for name in &args.names {
        client.ask::<Value>(Method::DELETE, &path(name), None::<&()>).await?;
    }
    Ok(0)
}

fn path(name: &GuestName) -> String {
    format!("/v1/modules/{name}")
}
