//! `blastbox audit`: verify a ledger, read it, and hand it on. Needs no daemon, no key and no privilege.
//!
//! Trust: whoever held the files. Everything that is printed for people is escaped.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use blastbox_engine::ledger::{Completeness, Report, Trust, records, verify};
use blastbox_wire::BoxId;
use blastbox_wire::event::ledger_text::{Record, read_record};
use blastbox_wire::event::{Hash, PublicKey};
use clap::{Subcommand, ValueEnum};

use crate::output::{self, plain};
use crate::problem::Problem;

pub(crate) const HELP: &str = "\
Examples:
  blastbox audit verify /var/lib/blastbox              a state directory, its ledger, or a copy in one file
  blastbox audit show /var/lib/blastbox --box BOX
  blastbox audit export /var/lib/blastbox --format csv > ledger.csv
  blastbox audit report report.json --ledger /var/lib/blastbox";

const VERIFY_HELP: &str = "\
Examples:
  blastbox audit verify /var/lib/blastbox
  blastbox audit verify ledger.jsonl --key ed25519:… --head sha256:… --json

Exit codes: 0 nothing is wrong, 1 something is (named with file and line), 3 nothing is wrong with what is there but its end is unproven, 125 it could not be read.
An end that was cut off between two records leaves nothing to see. A ledger that was closed in order, that a daemon writes at this moment, or that holds the hash you
pass with --head is no question; any other end is: a daemon was killed, or somebody cut it.";

/// Where a state directory has its ledger, and the first file of one.
const LEDGER: &str = "ledger";
const FIRST_FILE: &str = "ledger-000001.jsonl";

/// Whether something is missing at the end cannot be told.
const UNPROVEN: u8 = 3;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Say whether a ledger is what was written, and name the first line that is not
    #[command(after_help = VERIFY_HELP)]
    Verify {
        /// The ledger's directory, the state directory that it is in, or a copy in one file
        path: PathBuf,
        /// The key that must have signed it, as noted when it was made (without it: the key that it names itself)
        #[arg(long, value_name = "ed25519:HEX")]
        key: Option<PublicKey>,
        /// The hash of a record that must be in it: everything up to there is complete
        #[arg(long, value_name = "sha256:HEX")]
        head: Option<Hash>,
        /// Also fail where records could be missing at the end: neither closed nor ending in the given head
        #[arg(long)]
        complete: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what happened, one line per record
    #[command(after_help = "Example:\n  blastbox audit show /var/lib/blastbox --box BOX --json")]
    Show {
        /// The ledger's directory, the state directory that it is in, or a copy in one file
        path: PathBuf,
        /// Only what is about this box
        #[arg(long = "box", value_name = "ID")]
        only: Option<BoxId>,
        /// Print the records as they are, one JSON document per line
        #[arg(long)]
        json: bool,
    },
    /// Say whether the seal under a report of `blastbox escape` holds, and whether a ledger has it
    #[command(
        after_help = "Example:\n  blastbox audit report report.json --ledger /var/lib/blastbox\n\nExit codes: 0 it holds, 1 it does not, 125 it could not be read."
    )]
    Report(crate::seal::ReportArgs),
    /// Print every record in a form for other programs
    #[command(after_help = "Example:\n  blastbox audit export /var/lib/blastbox --format csv > ledger.csv")]
    Export {
        /// The ledger's directory, the state directory that it is in, or a copy in one file
        path: PathBuf,
        /// The form
        #[arg(long, value_name = "jsonl|csv", default_value = "jsonl")]
        format: Form,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Form {
    /// The lines as they are, all files in one: `audit verify` reads it
    Jsonl,
    /// A table for spreadsheets
    Csv,
}

/// Carries out the verb.
pub(crate) fn audit(verb: &AuditVerb) -> Result<u8, Problem> {
    match verb {
        AuditVerb::Verify { path, key, head, complete, json } => {
            let report = verify(&ledger_in(path), &Trust { key: *key, head: *head })?;
            if *json {
                output::print_json(&report)?;
            } else {
                output::print(&text(&report))?;
            }
            Ok(code(&report, *complete))
        }
        AuditVerb::Show { path, only, json } => print_all(path, "", |line, out| {
            let record = read_record(line).ok();
            let about = record.as_ref().and_then(|record| record.about.as_ref());
            if only.is_some() && about.and_then(|about| about.box_id.as_ref()) != only.as_ref() {
                return;
            }
            match record {
                _ if *json => exact(line, out),
                Some(record) => show(&record, out),
                None => {
                    writeln!(out, "     ?  {}", plain(&String::from_utf8_lossy(line))).unwrap_or_default()
                }
            }
        }),
        AuditVerb::Report(args) => args.check(),
        AuditVerb::Export { path, format: Form::Jsonl } => print_all(path, "", exact),
        AuditVerb::Export { path, format: Form::Csv } => print_all(path, CSV_HEAD, csv),
    }
}

/// Where the ledger lies, where a daemon's state directory is named, which has it in itself.
pub(crate) fn ledger_in(path: &Path) -> PathBuf {
    let inside = path.join(LEDGER);
    let is_ledger = path.join(FIRST_FILE).exists();
    if !is_ledger && inside.is_dir() { inside } else { path.to_owned() }
}

fn code(report: &Report, complete: bool) -> u8 {
    match report.completeness {
        _ if !report.is_intact() => 1,
        Completeness::HeadMatches | Completeness::Closed => 0,
        Completeness::BeingWritten | Completeness::Unproven if complete => 1,
        Completeness::BeingWritten => 0,
        // Complete up to what the caller knows of it.
        Completeness::Unproven if report.expected_at.is_some() => 0,
        Completeness::Unproven => UNPROVEN,
    }
}

/// Prints something for every line. A ledger that is not intact is shown all the same, with a word on standard error.
fn print_all(path: &Path, head: &str, print: impl Fn(&[u8], &mut String)) -> Result<u8, Problem> {
    let path = &ledger_in(path);
    if let Some(finding) = verify(path, &Trust::default())?.finding {
        let (file, line) = (plain(&finding.file), finding.line);
        output::say(&format!("warning: the ledger is not intact: {file}:{line}: {}\n", finding.fault));
    }
    let mut out = head.to_owned();
    records::<Problem>(path, |_, _, line| {
        print(line, &mut out);
        if out.len() > 1 << 16 {
            output::print(&out)?;
            out.clear();
        }
        Ok(())
    })?;
    output::print(&out)?;
    Ok(0)
}

/// For programs: every byte as it is, so that the copy verifies.
fn exact(line: &[u8], out: &mut String) {
    out.push_str(&String::from_utf8_lossy(line));
    out.push('\n');
}

/// The word for an event, and the rest of it.
fn words(record: &Record) -> (String, serde_json::Map<String, serde_json::Value>) {
    let mut fields = match serde_json::to_value(&record.event) {
        Ok(serde_json::Value::Object(fields)) => fields,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    let kind = fields.remove("kind").and_then(|kind| kind.as_str().map(str::to_owned));
    (kind.unwrap_or_default(), fields)
}

fn show(record: &Record, out: &mut String) {
    let (kind, fields) = words(record);
    let about = record.about.as_ref();
    let id = about.and_then(|about| about.box_id.as_ref()).map_or("-", BoxId::as_str);
    let tier = about.and_then(|about| about.tier).map_or("-", |tier| tier.as_str());
    // Writing to a string does not fail.
    write!(out, "{:>6}  {}  {id:<23}  {tier:<7}  {kind}", record.seq, plain(&record.time)).ok();
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        write!(out, " {name}={}", plain(&value.to_string())).ok();
    }
    out.push('\n');
}

const CSV_HEAD: &str = "seq,time,box,tenant,policy,image,image_digest,tier,gaps,event,detail,hash\r\n";

fn csv(line: &[u8], out: &mut String) {
    let cells = match read_record(line) {
        Ok(record) => {
            let (kind, fields) = words(&record);
            let about = record.about.as_ref();
            let gaps = about.map(|about| about.gaps.iter().map(ToString::to_string).collect::<Vec<_>>());
            vec![
                record.seq.to_string(),
                record.time.clone(),
                about.and_then(|about| about.box_id.as_ref()).map(ToString::to_string).unwrap_or_default(),
                about.map(|about| about.tenant.as_str().to_owned()).unwrap_or_default(),
                about.map(|about| about.policy.to_string()).unwrap_or_default(),
                about.map(|about| about.image.label.as_str().to_owned()).unwrap_or_default(),
                about
                    .and_then(|about| about.image.digest.as_ref())
                    .map(ToString::to_string)
                    .unwrap_or_default(),
                about.and_then(|about| about.tier).map(|tier| tier.to_string()).unwrap_or_default(),
                gaps.unwrap_or_default().join(" "),
                kind,
                serde_json::Value::Object(fields).to_string(),
                record.hash.to_string(),
            ]
        }
        // Of a later version, or broken: nothing is left out.
        Err(_) => {
            let mut cells = vec![String::new(); 9];
            cells.extend([
                "unreadable".to_owned(),
                String::from_utf8_lossy(line).into_owned(),
                String::new(),
            ]);
            cells
        }
    };
    let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
    out.push_str(&cells.join(","));
    out.push_str("\r\n");
}

/// One cell. A spreadsheet must not take a tenant's name for a formula.
fn cell(text: &str) -> String {
    let text = plain(text);
    let guard = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    if text.contains([',', '"']) || !guard.is_empty() {
        format!("\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string does not fail.
        writeln!(text, "{name:<9} {}", plain(&value)).ok();
    };
    if let Some(ledger) = &report.ledger {
        line("ledger", ledger.to_string());
    }
    if let Some(key) = &report.key {
        let word = if report.key_known { "" } else { "   (its own word: pass --key to hold it to yours)" };
        line("key", format!("{key}{word}"));
    }
    line("files", report.files.to_string());
    let signed =
        report.signed.map_or_else(|| "none signed".to_owned(), |head| format!("signed up to {}", head.seq));
    line("records", format!("{}, {signed}, {} after the last signature", report.records, report.unsigned));
    if let Some(head) = &report.head {
        line("head", format!("{} {}", head.seq, head.hash));
    }
    let verdict = match (&report.finding, report.completeness) {
        (Some(finding), _) => format!("✗ {}:{}: {}", finding.file, finding.line, finding.fault),
        (None, Completeness::HeadMatches) => "✓ intact, and complete: it ends in the given head".to_owned(),
        (None, Completeness::Closed) => "✓ intact, and complete up to where it was closed".to_owned(),
        (None, Completeness::Unproven) => match report.expected_at {
            Some(seq) => format!(
                "✓ intact, and complete up to record {seq}, the given head; what follows cannot be proven complete"
            ),
            None => "? intact, but its end is unproven: it was not closed and nobody writes it, so that records at the end could be missing"
                .to_owned(),
        },
        (None, Completeness::BeingWritten) => "✓ intact; somebody holds it to write to it, and it has no end yet (--head proves the end)".to_owned(),
    };
    line("verdict", verdict);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spreadsheet_takes_no_cell_for_a_formula_or_for_two() {
        assert_eq!(cell("acme"), "acme");
        assert_eq!(cell("=cmd|' /C calc'!A0"), "\"'=cmd|' /C calc'!A0\"");
        assert_eq!(cell("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(cell("a\nb"), "a\\nb");
    }

    #[test]
    fn an_end_that_nobody_vouches_for_is_not_silent() {
        let report = |completeness, expected_at| Report {
            ledger: None,
            key: None,
            key_known: false,
            files: 1,
            records: 2,
            head: None,
            signed: None,
            unsigned: 2,
            expected_at,
            completeness,
            finding: None,
        };
        let unproven = report(Completeness::Unproven, None);
        assert_eq!((code(&unproven, false), code(&unproven, true)), (UNPROVEN, 1));
        assert!(text(&unproven).contains("end is unproven"));
        for (known, complete) in [
            (report(Completeness::Unproven, Some(1)), 1),
            (report(Completeness::BeingWritten, None), 1),
            (report(Completeness::Closed, None), 0),
            (report(Completeness::HeadMatches, Some(1)), 0),
        ] {
            assert_eq!((code(&known, false), code(&known, true)), (0, complete), "{known:?}");
        }
    }

    #[test]
    fn a_state_directory_stands_for_the_ledger_in_it() {
        let state = std::env::temp_dir().join(format!("blastbox-audit-{}", std::process::id()));
        let ledger = state.join(LEDGER);
        std::fs::create_dir_all(ledger.join(LEDGER)).unwrap();
        assert_eq!(ledger_in(&state), ledger);
        std::fs::write(ledger.join(FIRST_FILE), "").unwrap();
        assert_eq!(ledger_in(&ledger), ledger, "a ledger is itself, whatever lies in it");
        assert_eq!(ledger_in(&ledger.join(FIRST_FILE)), ledger.join(FIRST_FILE));
        std::fs::remove_dir_all(&state).unwrap();
    }

    #[test]
    fn a_record_that_cannot_be_read_is_exported_all_the_same() {
        let mut out = String::new();
        csv(b"{\"seq\":1,\x1b}", &mut out);
        assert_eq!(out, ",,,,,,,,,unreadable,\"{\"\"seq\"\":1,\\u{1b}}\",\r\n");
    }
}
