//! `blastbox policy`: check, print and name policies, and read them for the other verbs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use blastbox_policy::{Draft, MAX_POLICY_TEXT, PolicyError, SealedPolicy, parse, to_toml};

use crate::args::PolicyVerb;
use crate::output;
use crate::problem::Problem;
use crate::reach::{Answer, Url, would_allow};

/// Carries out the verb.
pub(crate) fn policy(verb: &PolicyVerb) -> Result<u8, Problem> {
    match verb {
        PolicyVerb::Check { file } => {
            let sealed = seal_file(file)?;
            output::print(&format!("ok: threat level {}, {}\n", sealed.level(), sealed.digest()));
        }
        PolicyVerb::Show { file: Some(file), .. } => output::print(&to_toml(&seal_file(file)?)),
        PolicyVerb::Show { file: None, profile } => {
            let draft = profile.unwrap_or_default().draft()?;
            output::print(&to_toml(&draft.seal()?));
        }
        PolicyVerb::WouldAllow { file, url } => {
            let url: Url = url.parse().map_err(Problem::BadUrl)?;
            return Ok(match would_allow(seal_file(file)?.network(), &url) {
                Answer::Allowed(how) => {
                    output::print(&format!("allowed: {how}\n"));
                    0
                }
                Answer::Denied(why) => {
                    output::print(&format!("denied: {why}\n"));
                    1
                }
            });
        }
        PolicyVerb::Digest { file } => output::print(&format!("{}\n", seal_file(file)?.digest())),
    }
    Ok(0)
}

fn seal_file(path: &Path) -> Result<SealedPolicy, Problem> {
    read(path)?.seal().map_err(|error| in_file(path, error))
}

fn in_file(path: &Path, error: PolicyError) -> Problem {
    Problem::PolicyFile { path: path.to_owned(), source: Box::new(error) }
}

/// Reads a policy file. One that is too long is not read to its end.
pub(crate) fn read(path: &Path) -> Result<Draft, Problem> {
    let failed = |source| Problem::ReadPolicy { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let most = u64::try_from(MAX_POLICY_TEXT).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = String::new();
    file.take(most).read_to_string(&mut text).map_err(failed)?;
    parse(&text).map_err(|error| in_file(path, error))
}
