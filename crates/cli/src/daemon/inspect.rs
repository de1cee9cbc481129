//! `blastbox inspect`: everything about a box, or what became of it; without a box, about the daemon itself.

use blastbox_isolation::Walls;
use blastbox_wire::BoxId;
use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::Where;
use super::client::Client;
use super::problem::DaemonProblem;
use super::table::{BoxView, ExecView, moment, table};
use crate::output::{self, plain};
use crate::problem::Problem;

pub(crate) const HELP: &str = "Examples:\n  blastbox inspect BOX\n  blastbox inspect BOX --json | jq .phase\n  \
blastbox inspect                  the daemon itself: which of its own walls hold, as the kernel says\n\n\
Of a box that is gone the receipt is printed, for as long as the daemon remembers it.";

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The box [default: the daemon itself]
    #[arg(value_name = "BOX")]
    id: Option<BoxId>,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct Whole {
    #[serde(flatten)]
    card: BoxView,
    execs: Vec<ExecView>,
}

pub(crate) async fn inspect(args: InspectArgs) -> Result<u8, Problem> {
    let client = args.place.client()?;
    let Some(id) = args.id else { return inspect_daemon(&client, args.json).await };
    let path = format!("/v1/boxes/{}", id.as_str());
    let found: Value = match client.get(&path).await {
        Err(DaemonProblem::No(no)) if no.code == "gone" => {
            let receipt: Value = client.get(&format!("{path}/receipt")).await?;
            output::print_json(&receipt)?;
            return Ok(0);
        }
        other => other?,
    };
    if args.json {
        output::print_json(&found)?;
        return Ok(0);
    }
    let whole: Whole = serde_json::from_value(found).map_err(DaemonProblem::Unreadable)?;
    output::print(&text(&whole))?;
    Ok(0)
}

/// The daemon itself.
#[derive(Debug, Deserialize)]
pub(crate) struct DaemonView {
    version: String,
    pid: u32,
    walls: Walls,
    pub(crate) missing: Vec<String>,
}

impl DaemonView {
    pub(crate) async fn ask(client: &Client) -> Result<Self, DaemonProblem> {
        client.get("/v1/daemon").await
    }

    /// What holds, in one line.
    pub(crate) fn words(&self) -> String {
        let word = |holds, yes: &str, no: &str| if holds { yes.to_owned() } else { no.to_owned() };
        let Walls { threads, open_threads, seccomp, no_new_privs, landlock, dumpable, capabilities } =
            &self.walls;
        [
            word(*seccomp, "a filter of system calls", "NO filter of system calls"),
            match landlock {
                Some(true) => "Landlock".to_owned(),
                Some(false) => "NO Landlock".to_owned(),
                None => "Landlock NOT shown".to_owned(),
            },
            word(*no_new_privs, "no new privileges", "new privileges POSSIBLE"),
            word(!*dumpable, "not dumpable", "DUMPABLE"),
            format!("capabilities {capabilities:#x}"),
            format!(
                "{} of {threads} threads outside ({})",
                open_threads.len(),
                plain(&open_threads.join(", "))
            ),
        ]
        .join(", ")
    }
}

async fn inspect_daemon(client: &Client, json: bool) -> Result<u8, Problem> {
    if json {
        let found: Value = client.get("/v1/daemon").await?;
        output::print_json(&found)?;
        return Ok(0);
    }
    let found = DaemonView::ask(client).await?;
    let lines = [
        ("daemon", format!("process {}, version {}", found.pid, plain(&found.version))),
        ("walls", found.words()),
    ];
    output::print(&lines.into_iter().map(|(name, value)| format!("{name:<9}{value}\n")).collect::<String>())?;
    Ok(0)
}

fn text(Whole { card, execs }: &Whole) -> String {
    let warm = if card.warm { "from a warm pool" } else { "made when it was asked for" };
    let mut lines = vec![
        ("box", plain(&card.id)),
        ("tenant", plain(&card.tenant)),
        ("phase", card.phase()),
        ("tier", plain(&card.tier)),
        ("level", plain(&card.level)),
        ("image", plain(&card.image)),
        ("policy", plain(&card.policy)),
        ("gaps", plain(&card.gaps.join(", "))),
        ("created", format!("{}, {warm}", moment(&card.created_at))),
        ("ends", format!("{}, then {}", moment(&card.ends_at), plain(&card.on_timeout))),
        ("idle", format!("{} s, then {}", card.idle_seconds, plain(&card.on_timeout))),
    ];
    lines.extend(card.metadata.iter().map(|(name, note)| ("label", plain(&format!("{name}={note}")))));
    let mut text: String = lines.into_iter().map(|(name, value)| format!("{name:<9}{value}\n")).collect();
    if !execs.is_empty() {
        let rows: Vec<Vec<String>> = execs.iter().map(row).collect();
        text.push('\n');
        text.push_str(&table(&["EXEC", "STATE", "STARTED", "COMMAND"], &rows));
    }
    text
}

fn row(exec: &ExecView) -> Vec<String> {
    let state = exec.ended.as_ref().map_or_else(|| "runs".to_owned(), |ended| ended.words());
    let command: String = plain(&exec.command.join(" ")).chars().take(80).collect();
    vec![exec.exec.to_string(), state, moment(&exec.started_at), command]
}
