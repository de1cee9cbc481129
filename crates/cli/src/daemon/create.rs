//! `blastbox create`: a box that stays.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use blastbox_engine::keeper::{OnTimeout, SnapshotId};
use blastbox_policy::{Seconds, to_toml};
use blastbox_server::ask::{NewBox, WorkspaceAsk, WorkspaceUse};
use blastbox_wire::plan::WorkspaceAccess;
use clap::{Args, ValueEnum};
use hyper::Method;
use serde_json::Value;

use super::Where;
use super::client::Client;
use crate::args::{PolicyFlags, SourceFlags, WorkspaceFlag};
use crate::output::{self, plain};
use crate::problem::Problem;

pub(crate) const HELP: &str = "Examples:\n  box=$(blastbox create)\n  blastbox exec $box -- python3 --version\n  \
blastbox create --memory 256MiB --life 10m --on-timeout pause --label job=7\n  \
blastbox create --workspace .:ro --json\n\nThe policy is put together and sealed here, and sent as a whole.";

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    policy: PolicyFlags,
    #[command(flatten)]
    source: SourceFlags,
    #[command(flatten)]
    stay: StayFlags,
    /// Begin with a snapshot, whose policy and image the box then has
    #[arg(long, value_name = "SNAPSHOT", conflicts_with_all = [
        "threat", "profile", "policy", "tier", "accept", "cpus", "memory", "pids", "fuel", "disk", "timeout", "output_limit", "loopback",
        "allow", "sudo", "gpu", "no_exec", "report_writes", "image", "workspace",
    ])]
    snapshot: Option<SnapshotId>,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long a box stays, and what its owner writes on it.
#[derive(Debug, Args)]
pub(super) struct StayFlags {
    /// How long it lives at most [default: 1h]
    #[arg(long, value_name = "TIME")]
    life: Option<Seconds>,
    /// How long it lives without a command and without a request [default: 15m]
    #[arg(long, value_name = "TIME")]
    idle: Option<Seconds>,
    /// What happens when --life or --idle runs out
    #[arg(long, value_name = "destroy|pause", default_value = "destroy")]
    on_timeout: Then,
    /// Attach a label (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Then {
    Destroy,
    Pause,
}

fn label(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) async fn create(args: CreateArgs) -> Result<u8, Problem> {
    let client = args.place.client()?;
    make(&client, &asked(&args)?, args.json).await
}

/// Asks for a box, and says what it is called.
pub(super) async fn make(client: &Client, body: &NewBox, json: bool) -> Result<u8, Problem> {
    let card: Value = client.ask(Method::POST, "/v1/boxes", Some(body)).await?;
    if json {
        output::print_json(&card)?;
    } else {
        let id = card.get("id").and_then(Value::as_str).unwrap_or_default();
        output::print(&format!("{}\n", plain(id)))?;
    }
    Ok(0)
}

fn asked(args: &CreateArgs) -> Result<NewBox, Problem> {
    if let Some(snapshot) = &args.snapshot {
        return Ok(from_snapshot(snapshot, &args.stay));
    }
    let kind = NewBox {
        policy: Some(to_toml(&args.policy.seal(args.source.workspace.as_ref())?)),
        image: Some(image(&args.source.image)?),
        workspace: args.source.workspace.as_ref().map(workspace).transpose()?,
        ..NewBox::default()
    };
    Ok(args.stay.of(kind))
}

/// Of such a box nothing else can be said.
pub(super) fn from_snapshot(snapshot: &SnapshotId, stay: &StayFlags) -> NewBox {
    stay.of(NewBox { snapshot: Some(snapshot.clone()), ..NewBox::default() })
}

impl StayFlags {
    fn of(&self, kind: NewBox) -> NewBox {
        let metadata: BTreeMap<String, String> = self.label.iter().cloned().collect();
        let on_timeout = match self.on_timeout {
            Then::Destroy => OnTimeout::Destroy,
            Then::Pause => OnTimeout::Pause,
        };
        NewBox { metadata, life: self.life, idle: self.idle, on_timeout, ..kind }
    }
}

/// A path is meant from here, not from where the daemon is. A bare word is a name.
fn image(given: &str) -> Result<String, Problem> {
    if given.contains('/') || given == "." || given == ".." {
        return Ok(absolute(Path::new(given))?.display().to_string());
    }
    Ok(given.to_owned())
}

fn workspace(flag: &WorkspaceFlag) -> Result<WorkspaceAsk, Problem> {
    let access = match flag.access {
        WorkspaceAccess::CopyOnWrite => WorkspaceUse::CopyOnWrite,
        WorkspaceAccess::ReadOnly => WorkspaceUse::ReadOnly,
    };
    Ok(WorkspaceAsk { path: absolute(&flag.path)?, access })
}

fn absolute(path: &Path) -> Result<PathBuf, Problem> {
    std::path::absolute(path).map_err(|_| Problem::Gone { path: PathBuf::from(".") })
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};

    use super::*;
    use crate::daemon::snapshot::RestoreArgs;

    #[test]
    fn restore_asks_for_what_create_with_a_snapshot_asks_for_and_for_nothing_of_a_policy() {
        const SNAPSHOT: &str = "sn_c3f7k2m5q6r7s2t3u4v5";
        let more = ["--life", "10m", "--idle", "1m", "--on-timeout", "pause", "--label", "job=7"];
        let restore = || RestoreArgs::augment_args(Command::new("restore"));
        let words = [&["restore", SNAPSHOT][..], &more].concat();
        let found = restore().try_get_matches_from(words).unwrap();
        let restored = RestoreArgs::from_arg_matches(&found).unwrap().asked();
        let words = [&["create", "--snapshot", SNAPSHOT][..], &more].concat();
        let found = CreateArgs::augment_args(Command::new("create")).try_get_matches_from(words).unwrap();
        assert_eq!(restored, asked(&CreateArgs::from_arg_matches(&found).unwrap()).unwrap());
        assert_eq!(restored.snapshot, SNAPSHOT.parse().ok());
        for wrong in [
            &["restore"][..],
            &["restore", "bx_c3f7k2m5q6r7s2t3u4v5"],
            &["restore", SNAPSHOT, "--memory", "1GiB"],
        ] {
            assert!(restore().try_get_matches_from(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn nothing_of_a_policy_can_be_said_beside_a_snapshot() {
        let all = CreateArgs::augment_args(Command::new("create"));
        let snapshot = all.get_arguments().find(|flag| flag.get_id() == "snapshot").expect("the flag");
        let against = all.get_arg_conflicts_with(snapshot);
        for flag in PolicyFlags::augment_args(Command::new("policy")).get_arguments() {
            assert!(against.iter().any(|other| other.get_id() == flag.get_id()), "--{}", flag.get_id());
        }
    }
}
