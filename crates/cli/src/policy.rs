//! `blastbox policy`: check, print and name policies, and read them for the other verbs.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use blastbox_policy::{
    Draft, MAX_POLICY_TEXT, PolicyDigest, PolicyError, Profile, SealedPolicy, ThreatLevel, parse, to_toml,
};
use clap::Subcommand;
use serde::Serialize;

use crate::output;
use crate::problem::Problem;
use crate::reach::{Method, Url, Wanted, would_allow};
use crate::regular::open_regular;

pub(crate) const HELP: &str = "\
Examples:
  blastbox policy show --profile default > policy.toml    every key with its value, to begin with
  blastbox policy check policy.toml
  blastbox policy would-allow policy.toml https://api.github.com/user
  blastbox run --policy policy.toml -- python3 --version

docs/policy.md is the reference of every key.";

const CHECK_HELP: &str = "\
Examples:
  blastbox policy check policy.toml
  echo 'threat = \"high\"' | blastbox policy check -

Exit codes: 0 it can be read and sealed, 125 it cannot: the complaint names line and column.";

/// Standard input, in the place of a file.
const STDIN: &str = "-";

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Say whether a policy can be read and sealed
    #[command(after_help = CHECK_HELP)]
    Check {
        /// The policy; `-` for standard input
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the whole effective policy, every key
    #[command(
        after_help = "Examples:\n  blastbox policy show --profile strict\n  blastbox policy show policy.toml --json"
    )]
    Show {
        /// The policy; `-` for standard input
        #[arg(required_unless_present = "profile")]
        file: Option<PathBuf>,
        /// One that comes with blastbox
        #[arg(long, value_name = "NAME", conflicts_with = "file")]
        profile: Option<Profile>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say whether a box would be let through to a URL, by which rule, or which rule is missing
    #[command(
        after_help = "Examples:\n  blastbox policy would-allow policy.toml https://api.github.com/user\n  blastbox policy would-allow policy.toml https://api.github.com/gists --method POST\n\nExit codes: 0 allowed, 1 denied."
    )]
    WouldAllow {
        /// The policy; `-` for standard input
        file: PathBuf,
        /// Such as https://api.github.com/user, http://HOST/, tcp://HOST:PORT
        url: String,
        /// The method of the request (default: GET), where requests are read
        #[arg(long, value_name = "METHOD")]
        method: Option<Method>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the policy's SHA-256, as it stands in receipts
    #[command(after_help = "Example:\n  blastbox policy digest policy.toml")]
    Digest {
        /// The policy; `-` for standard input
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// What is said of a policy that holds.
#[derive(Serialize)]
struct Good {
    threat: ThreatLevel,
    digest: PolicyDigest,
}

/// Carries out the verb.
pub(crate) fn policy(verb: &PolicyVerb) -> Result<u8, Problem> {
    match verb {
        PolicyVerb::Check { file, json } => {
            let sealed = seal_file(file)?;
            match json {
                true => output::print_json(&good(&sealed))?,
                false => {
                    output::print(&format!("ok: threat level {}, {}\n", sealed.level(), sealed.digest()))?
                }
            }
        }
        PolicyVerb::Show { file, profile, json } => {
            let sealed = match file {
                Some(file) => seal_file(file)?,
                None => profile.unwrap_or_default().draft()?.seal()?,
            };
            match json {
                true => output::print_json(&as_json(&sealed)?)?,
                false => output::print(&to_toml(&sealed))?,
            }
        }
        PolicyVerb::WouldAllow { file, url, method, json } => {
            let url: Url = url.parse().map_err(Problem::BadUrl)?;
            return would_allow(seal_file(file)?.network(), &Wanted::new(url, method.clone())).tell(*json);
        }
        PolicyVerb::Digest { file, json } => {
            let sealed = seal_file(file)?;
            match json {
                true => output::print_json(&good(&sealed))?,
                false => output::print(&format!("{}\n", sealed.digest()))?,
            }
        }
    }
    Ok(0)
}

fn good(sealed: &SealedPolicy) -> Good {
    Good { threat: sealed.level(), digest: sealed.digest() }
}

/// Every key, as in the file.
fn as_json(sealed: &SealedPolicy) -> Result<serde_json::Value, Problem> {
    toml::from_str(&to_toml(sealed)).map_err(|error| Problem::Json(serde::de::Error::custom(error)))
}

fn seal_file(path: &Path) -> Result<SealedPolicy, Problem> {
    read(path)?.seal().map_err(|error| in_file(path, error))
}

fn in_file(path: &Path, error: PolicyError) -> Problem {
    Problem::PolicyFile { path: path.to_owned(), source: Box::new(error) }
}

/// Whether this stands for standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path == Path::new(STDIN)
}

/// Reads a policy file, or standard input for `-`. One that is too long is not read to its end.
pub(crate) fn read(path: &Path) -> Result<Draft, Problem> {
    let failed = |source| Problem::ReadPolicy { path: path.to_owned(), source };
    let most = u64::try_from(MAX_POLICY_TEXT).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = String::new();
    match is_stdin(path) {
        true => io::stdin().lock().take(most).read_to_string(&mut text),
        false => open_regular(path).and_then(|file| file.take(most).read_to_string(&mut text)),
    }
    .map_err(failed)?;
    parse(&text).map_err(|error| in_file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_as_json_is_what_is_shown_as_toml() {
        let sealed = Profile::Default.draft().unwrap().seal().unwrap();
        let json = as_json(&sealed).unwrap();
        assert_eq!((&json["threat"], &json["kernel"]["memory"]), (&"high".into(), &"512MiB".into()));
        assert_eq!(json["network"]["mode"], "off");
        assert!(json["accept"].as_array().unwrap().contains(&"shared-kernel".into()));
    }
}
