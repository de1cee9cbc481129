//! `blastbox key`: API keys. Works on the state directory, with or without a daemon; a running one looks at
//! them with every request.

use std::path::PathBuf;

use blastbox_engine::keeper::Tenant;
use blastbox_server::{KeyForm, Keys, StateDir};
use clap::{Args, Subcommand};
use serde_json::json;

use super::problem::DaemonProblem;
use super::table::{moment, table};
use crate::output;
use crate::problem::Problem;

pub(crate) const HELP: &str = "Examples:\n  blastbox key create ci                 prints the key, once\n  \
blastbox key create laptop --tenant ci   another key to the same boxes\n  \
blastbox key create agents --e2b       for E2B's SDKs that take no other form\n  blastbox key rm ci";

#[derive(Debug, Subcommand)]
pub(crate) enum KeyVerb {
    /// Make a key and print it, once
    #[command(
        after_help = "Examples:\n  blastbox key create ci\n  blastbox key create agents --e2b --state-dir /srv/blastbox"
    )]
    Create {
        /// Its name: 1 to 32 of a-z, 0-9 and `-`, beginning with a letter
        name: Tenant,
        /// Whose boxes it reaches [default: a tenant of the key's name]
        #[arg(long, value_name = "NAME")]
        tenant: Option<Tenant>,
        /// Write it as E2B writes keys (`e2b_` and hexadecimal digits): some versions of its SDKs send nothing else
        #[arg(long)]
        e2b: bool,
        #[command(flatten)]
        state: State,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List keys, by name
    #[command(after_help = "Example:\n  blastbox key ls --json")]
    Ls {
        #[command(flatten)]
        state: State,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a key: no request that brings it is let in from now on
    #[command(after_help = "Example:\n  blastbox key rm ci")]
    Rm {
        /// Its name
        name: Tenant,
        #[command(flatten)]
        state: State,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct State {
    /// The daemon's state directory [default: $XDG_STATE_HOME/blastbox, or /var/lib/blastbox as root]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl State {
    fn keys(&self) -> Result<Keys, DaemonProblem> {
        let directory = StateDir::open(&super::state(self.state_dir.as_deref())?)?;
        Ok(Keys::in_directory(directory.path()))
    }
}

pub(crate) fn key(verb: KeyVerb) -> Result<u8, Problem> {
    let failed = DaemonProblem::Key;
    match verb {
        KeyVerb::Create { name, tenant, e2b, state, json } => {
            let form = if e2b { KeyForm::E2b } else { KeyForm::Ours };
            let whose = tenant.clone().unwrap_or_else(|| name.clone());
            let key = state.keys()?.create_as(form, name.clone(), tenant).map_err(failed)?;
            if json {
                let made = json!({ "name": name.as_str(), "tenant": whose.as_str(), "key": key.show_once() });
                output::print_json(&made)?;
            } else {
                output::print(&format!("{}\n", key.show_once()))?;
            }
        }
        KeyVerb::Ls { state, json } => {
            let keys = state.keys()?.list().map_err(failed)?;
            let row = |name: &Tenant, tenant: &Tenant, at: &str| {
                vec![name.to_string(), tenant.to_string(), at.to_owned()]
            };
            if json {
                let fields = ["name", "tenant", "created_at"];
                let keys: Vec<serde_json::Map<String, serde_json::Value>> = keys
                    .iter()
                    .map(|key| {
                        let values = row(&key.name, &key.tenant, &key.created_at);
                        fields
                            .iter()
                            .map(|field| (*field).to_owned())
                            .zip(values.into_iter().map(Into::into))
                            .collect()
                    })
                    .collect();
                output::print_json(&keys)?;
            } else {
                let rows: Vec<_> =
                    keys.iter().map(|key| row(&key.name, &key.tenant, &moment(&key.created_at))).collect();
                output::print(&table(&["NAME", "TENANT", "CREATED"], &rows))?;
            }
        }
        KeyVerb::Rm { name, state, json } => {
            state.keys()?.remove(&name).map_err(failed)?;
            if json {
                output::print_json(&json!({ "removed": name.as_str() }))?;
            }
        }
    }
    Ok(0)
}
