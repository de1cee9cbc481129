//! A seal under a report of `blastbox escape`: its digest in a ledger, signed with the ledger's key; and whether one holds.
//!
//! Trust: whoever held the report. Everything that is printed is escaped.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use blastbox_engine::ledger::{Ledger, Options, Trust, records, report_signed_by, verify};
use blastbox_escape::{Count, Report, Seal};
use blastbox_server::{StateDir, StateLock};
use blastbox_wire::event::ledger_text::read_record;
use blastbox_wire::event::{Event, Hash, LedgerId, PublicKey, Signature};
use serde::Deserialize;
use serde_json::Value;

use crate::audit::ledger_in;
use crate::daemon::DaemonProblem;
use crate::output::{self, plain};
use crate::problem::Problem;
use crate::regular::open_regular;

/// No report is longer.
const MOST: u64 = 64 << 20;

/// The ledger that a report will be recorded in. Held from before the first attempt: a campaign of minutes must not end
/// without its seal because somebody else has the ledger.
#[derive(Debug)]
pub(crate) struct Sealer {
    ledger: Ledger,
    _lock: StateLock,
}

impl Sealer {
    /// Opens the ledger of a state directory, as a daemon does.
    pub(crate) fn open(state: &Path) -> Result<Self, Problem> {
        let state = StateDir::open(state).map_err(DaemonProblem::Door)?;
        let lock = state.lock().map_err(DaemonProblem::Door)?;
        let place = Options::new(state.path().join("ledger"), state.path().join("ledger.key"));
        Ok(Self { ledger: Ledger::open(place)?, _lock: lock })
    }

    /// Records the report, and puts the seal under it.
    pub(crate) fn seal(mut self, report: &mut Report) -> Result<(), Problem> {
        report.seal = None;
        let digest = digest(serde_json::to_value(&*report)?);
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let Count { held, escaped, could_not_run, broken, .. } = report.count();
        let head = self.ledger.append(
            None,
            &Event::EscapeReported {
                digest,
                attempts: number(report.rows.len()),
                held: number(held),
                escaped: number(escaped),
                doubtful: number(could_not_run.saturating_add(broken)),
            },
        )?;
        report.seal = Some(Seal {
            digest: digest.to_string(),
            key: self.ledger.public_key().to_string(),
            signature: self.ledger.sign_report(head.seq, &digest).to_string(),
            ledger: self.ledger.id().to_string(),
            record: head.seq,
        });
        self.close()
    }

    /// Lets go of the ledger, whose end then proves that nothing is missing before.
    pub(crate) fn close(self) -> Result<(), Problem> {
        self.ledger.close()?;
        Ok(())
    }
}

/// What a seal says, read back.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    digest: Hash,
    key: PublicKey,
    signature: Signature,
    ledger: LedgerId,
    record: u64,
}

/// The digest of a report: of its text without spaces, keys in order, and no seal.
fn digest(mut report: Value) -> Hash {
    if let Some(seal) = report.get_mut("seal") {
        *seal = Value::Null;
    }
    let mut text = String::new();
    write_ordered(&report, &mut text);
    Hash::of([text.as_bytes()])
}

/// However the map of a build keeps its keys, this is one text.
fn write_ordered(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort_unstable();
            out.push('{');
            for (at, name) in names.into_iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write_ordered(fields.get(name).unwrap_or(&Value::Null), out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_ordered(item, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.push_str(&value.to_string())
        }
    }
}

/// `blastbox audit report`: whether the seal under a report holds.
pub(crate) fn check(
    path: &Path,
    ledger: Option<&Path>,
    key: Option<PublicKey>,
    json: bool,
) -> Result<u8, Problem> {
    let report = read(path)?;
    let sealed: Sealed = match serde_json::from_value(report.get("seal").cloned().unwrap_or_default()) {
        Ok(sealed) => sealed,
        Err(_) => return say(&Err("it has no seal".to_owned()), "", None, json),
    };
    let own = if key.is_some() { "" } else { "   (its own word: pass --key to hold it to yours)" };
    let mut about = format!("digest    {}\nkey       {}{own}\n", sealed.digest, sealed.key);
    about.push_str(&format!("record    {} of ledger {}\n", sealed.record, sealed.ledger));
    let mut verdict = holds(&sealed, digest(report), key);
    if let (Ok(word), Some(ledger)) = (&mut verdict, ledger) {
        match recorded(&sealed, ledger)? {
            Ok(()) => *word = "its seal holds, and the ledger has it",
            Err(why) => verdict = Err(why),
        }
    }
    say(&verdict, &about, Some(&sealed), json)
}

fn say(
    verdict: &Result<&str, String>,
    about: &str,
    sealed: Option<&Sealed>,
    json: bool,
) -> Result<u8, Problem> {
    let (code, line) = match verdict {
        Ok(word) => (0, format!("✓ {word}")),
        Err(why) => (1, format!("✗ {}", plain(why))),
    };
    if json {
        let why = match verdict {
            Ok(word) => word,
            Err(why) => why.as_str(),
        };
        output::print_json(&serde_json::json!({
            "holds": verdict.is_ok(),
            "why": why,
            "digest": sealed.map(|sealed| sealed.digest.to_string()),
            "key": sealed.map(|sealed| sealed.key.to_string()),
            "ledger": sealed.map(|sealed| sealed.ledger.to_string()),
            "record": sealed.map(|sealed| sealed.record),
        }))?;
        return Ok(code);
    }
    output::print(&format!("{about}verdict   {line}\n"))?;
    Ok(code)
}

fn read(path: &Path) -> Result<Value, Problem> {
    let failed = |source| Problem::ReadReport { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    open_regular(path).and_then(|file| file.take(MOST).read_to_end(&mut bytes)).map_err(failed)?;
    let wrong =
        |why: &dyn std::fmt::Display| failed(io::Error::new(io::ErrorKind::InvalidData, why.to_string()));
    let text = blastbox_escape::data(&String::from_utf8_lossy(&bytes)).map_err(|error| wrong(&error))?;
    serde_json::from_str(&text).map_err(|error| wrong(&error))
}

/// The seal against the report.
fn holds(sealed: &Sealed, found: Hash, key: Option<PublicKey>) -> Result<&'static str, String> {
    let Sealed { digest, key: named, signature, ledger, record } = sealed;
    if *digest != found {
        return Err(format!("it was changed after it was sealed: its digest is {found}"));
    }
    if key.is_some_and(|key| key != *named) {
        return Err("another key has sealed it".to_owned());
    }
    if !report_signed_by(named, ledger, *record, digest, signature) {
        return Err("its signature is not that of its key".to_owned());
    }
    Ok("its seal holds; whether a ledger has it was not asked (--ledger)")
}

/// The seal against the ledger that it names.
fn recorded(sealed: &Sealed, path: &Path) -> Result<Result<(), String>, Problem> {
    let found = verify(path, &Trust { key: Some(sealed.key), head: None })?;
    if let Some(finding) = found.finding {
        return Ok(Err(format!(
            "the ledger is not intact: {}:{}: {}",
            finding.file, finding.line, finding.fault
        )));
    }
    let mut there = false;
    records::<Problem>(path, |_, _, line| {
        if let Ok(record) = read_record(line)
            && record.seq == sealed.record
        {
            there = matches!(record.event, Event::EscapeReported { digest, .. } if digest == sealed.digest);
        }
        Ok(())
    })?;
    let same = found.ledger.as_ref() == Some(&sealed.ledger);
    Ok(if same && there { Ok(()) } else { Err("the ledger does not have it in that record".to_owned()) })
}

/// What [`check`] is asked on the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// The report: what `blastbox escape --json` printed, or the page that `--html` wrote
    report: PathBuf,
    /// The ledger that must have it: its directory, the state directory that it is in, or a copy in one file
    #[arg(long, value_name = "PATH")]
    ledger: Option<PathBuf>,
    /// The key that must have sealed it, as noted when the ledger was made
    #[arg(long, value_name = "ed25519:HEX")]
    key: Option<PublicKey>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ReportArgs {
    pub(crate) fn check(&self) -> Result<u8, Problem> {
        let ledger = self.ledger.as_deref().map(ledger_in);
        check(&self.report, ledger.as_deref(), self.key, self.json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_does_not_depend_on_spaces_order_or_the_seal_and_on_everything_else() {
        let read = |text: &str| digest(serde_json::from_str(text).unwrap());
        let one = read(r#"{"b": [1, {"d": 0.125, "c": "x\u001b"}], "a": null, "seal": {"digest": "y"}}"#);
        assert_eq!(read("{\"a\":null,\"b\":[1,{\"c\":\"x\\u001b\",\"d\":0.125}],\"seal\":null}"), one);
        assert_ne!(read(r#"{"b": [1, {"d": 0.126, "c": "x\u001b"}], "a": null, "seal": null}"#), one);
        assert_ne!(read(r#"{"b": [{"d": 0.125, "c": "x\u001b"}, 1], "a": null, "seal": null}"#), one);
    }
}
