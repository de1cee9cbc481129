//! Reading a policy from TOML.
//!
//! Trust: operator. Policies come from a file or a flag of whoever starts boxes, never from a box; the text is
//! bounded all the same, and no text makes this code panic.
//!
//! The document is walked by hand instead of being derived, because every complaint carries its line and column
//! and an unknown key or word names the one that was probably meant. A key that is absent keeps the level's
//! default; a key that nobody knows is an error, so a misspelt limit is never silently off.

mod credentials;
mod network;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::error::{Place, Section};
use crate::words::{clip, nearest};
use crate::written::Origin;
use crate::{
    BadAmount, Draft, FileRules, Gap, GuestName, KernelRules, LifetimeRules, PolicyError, ThreatLevel,
    UnknownWord,
};

/// The longest policy text that is read, in bytes.
pub const MAX_POLICY_TEXT: usize = 64 * 1024;

const TOP: &[&str] = &["threat", "accept", "kernel", "files", "network", "credentials", "lifetime"];
const KERNEL: &[&str] = &[
    "tier",
    "cpus",
    "memory",
    "pids",
    "on_denied_syscall",
    "root",
    "gpu",
    "deterministic",
    "fuel",
    "guest",
    "gvisor_platform",
];
const FILES: &[&str] = &["workspace", "disk", "inodes", "file_size", "open_files", "exec", "report_writes"];
const LIFETIME: &[&str] = &["timeout", "output", "survives_daemon"];

type Value<'t> = Spanned<DeValue<'t>>;
type Key<'t> = Spanned<std::borrow::Cow<'t, str>>;

/// Reads a policy. What it does not mention keeps the closed default of its threat level.
pub fn parse(text: &str) -> Result<Draft, PolicyError> {
    if text.len() > MAX_POLICY_TEXT {
        return Err(PolicyError::TooLong { length: text.len(), most: MAX_POLICY_TEXT });
    }
    let source = Source { text, keys: RefCell::default() };
    let document = DeTable::parse(text).map_err(|error| source.syntax(&error))?;
    let document = in_order(document.get_ref());
    // The level is read first, wherever it stands: it decides what absent keys mean.
    let threat = document.iter().find(|(key, _)| key.get_ref() == "threat");
    let level = threat.map_or(Ok(ThreatLevel::default()), |(_, value)| source.word("threat", value))?;
    let mut draft = Draft::at(level);
    for (key, value) in document {
        match key.get_ref().as_ref() {
            "threat" => {}
            "accept" => draft.accepted = source.gaps(value)?,
            "kernel" => source.kernel(value, &mut draft.kernel)?,
            "files" => source.files(value, &mut draft.files)?,
            "network" => source.network(value, &mut draft.network)?,
            "credentials" => source.credentials(value, &mut draft.credentials)?,
            "lifetime" => source.lifetime(value, &mut draft.lifetime)?,
            _ => return Err(source.unknown_key(key, Section::Top, TOP)),
        }
    }
    draft.origin = Origin::of(text, source.keys.into_inner(), &draft);
    Ok(draft)
}

/// The entries as they stand in the text, so that the first problem in the file is the one reported.
fn in_order<'d, 't>(table: &'d DeTable<'t>) -> Vec<(&'d Key<'t>, &'d Value<'t>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// The text that places are counted in, and where the keys stand that were read so far.
struct Source<'t> {
    text: &'t str,
    keys: RefCell<BTreeMap<String, usize>>,
}

impl Source<'_> {
    fn kernel(&self, section: &Value<'_>, rules: &mut KernelRules) -> Result<(), PolicyError> {
        for (key, value) in self.section("kernel", section)? {
            match key.get_ref().as_ref() {
                "tier" => rules.tier = self.word("kernel.tier", value)?,
                "cpus" => rules.cpus = self.amount("kernel.cpus", value)?,
                "memory" => rules.memory = self.amount("kernel.memory", value)?,
                "pids" => rules.pids = self.count("kernel.pids", value)?,
                "on_denied_syscall" => {
                    rules.on_denied_syscall = self.word("kernel.on_denied_syscall", value)?
                }
                "root" => rules.root = self.word("kernel.root", value)?,
                "gpu" => rules.gpu = self.word("kernel.gpu", value)?,
                "deterministic" => rules.deterministic = self.truth("kernel.deterministic", value)?,
                "fuel" => rules.fuel = Some(self.count("kernel.fuel", value)?).filter(|fuel| *fuel > 0),
                "guest" => rules.guest = self.guest("kernel.guest", value)?,
                "gvisor_platform" => rules.gvisor_platform = self.word("kernel.gvisor_platform", value)?,
                _ => return Err(self.unknown_key(key, Section::Named("kernel"), KERNEL)),
            }
        }
        Ok(())
    }

    fn files(&self, section: &Value<'_>, rules: &mut FileRules) -> Result<(), PolicyError> {
        for (key, value) in self.section("files", section)? {
            match key.get_ref().as_ref() {
                "workspace" => rules.workspace = self.word("files.workspace", value)?,
                "disk" => rules.disk = self.amount("files.disk", value)?,
                "inodes" => rules.inodes = self.count("files.inodes", value)?,
                "file_size" => rules.file_size = self.amount("files.file_size", value)?,
                "open_files" => rules.open_files = self.count("files.open_files", value)?,
                "exec" => rules.exec = self.word("files.exec", value)?,
                "report_writes" => rules.report_writes = self.truth("files.report_writes", value)?,
                _ => return Err(self.unknown_key(key, Section::Named("files"), FILES)),
            }
        }
        Ok(())
    }

    fn lifetime(&self, section: &Value<'_>, rules: &mut LifetimeRules) -> Result<(), PolicyError> {
        for (key, value) in self.section("lifetime", section)? {
            match key.get_ref().as_ref() {
                "timeout" => rules.timeout = self.amount("lifetime.timeout", value)?,
                "output" => rules.output = self.amount("lifetime.output", value)?,
                "survives_daemon" => rules.survives_daemon = self.word("lifetime.survives_daemon", value)?,
                _ => return Err(self.unknown_key(key, Section::Named("lifetime"), LIFETIME)),
            }
        }
        Ok(())
    }

    fn section<'d, 't>(
        &self,
        name: &'static str,
        value: &'d Value<'t>,
    ) -> Result<Vec<(&'d Key<'t>, &'d Value<'t>)>, PolicyError> {
        match value.get_ref() {
            DeValue::Table(table) => {
                let entries = in_order(table);
                self.note(name.to_owned(), value);
                entries.iter().for_each(|(key, value)| self.note(format!("{name}.{}", key.get_ref()), value));
                Ok(entries)
            }
            _ => Err(self.wrong_kind(name, "a section", value)),
        }
    }

    fn gaps(&self, value: &Value<'_>) -> Result<std::collections::BTreeSet<Gap>, PolicyError> {
        match value.get_ref() {
            DeValue::Array(gaps) => {
                let gap = |value| {
                    let gap: Gap = self.word("accept", value)?;
                    self.note(format!("accept[{gap}]"), value);
                    Ok(gap)
                };
                gaps.iter().map(gap).collect()
            }
            _ => Err(self.wrong_kind("accept", "a list of gaps", value)),
        }
    }

    fn word<T: FromStr<Err = UnknownWord>>(
        &self,
        key: &'static str,
        value: &Value<'_>,
    ) -> Result<T, PolicyError> {
        match value.get_ref() {
            DeValue::String(word) => word.parse().map_err(|problem| PolicyError::UnknownWord {
                at: self.place(value.span().start),
                key,
                problem,
            }),
            _ => Err(self.wrong_kind(key, "a string", value)),
        }
    }

    /// A guest's name; none where it is empty.
    fn guest(&self, key: &'static str, value: &Value<'_>) -> Result<Option<GuestName>, PolicyError> {
        match value.get_ref() {
            DeValue::String(name) if name.is_empty() => Ok(None),
            DeValue::String(name) => name.parse().map(Some).map_err(|problem| PolicyError::BadGuest {
                at: self.place(value.span().start),
                key,
                problem,
            }),
            _ => Err(self.wrong_kind(key, "a string", value)),
        }
    }

    fn truth(&self, key: &'static str, value: &Value<'_>) -> Result<bool, PolicyError> {
        match value.get_ref() {
            DeValue::Boolean(truth) => Ok(*truth),
            _ => Err(self.wrong_kind(key, "true or false", value)),
        }
    }

    /// An amount, as a string with its unit or as a bare number.
    fn amount<T: FromStr<Err = BadAmount>>(
        &self,
        key: &'static str,
        value: &Value<'_>,
    ) -> Result<T, PolicyError> {
        let parsed = match value.get_ref() {
            DeValue::String(text) => text.parse(),
            DeValue::Integer(number) => plain(number).parse(),
            DeValue::Float(number) => number.as_str().parse(),
            _ => return Err(self.wrong_kind(key, "a number, or a string with a unit", value)),
        };
        parsed.map_err(|problem| self.bad_amount(key, value, problem))
    }

    fn count<T: TryFrom<u64>>(&self, key: &'static str, value: &Value<'_>) -> Result<T, PolicyError> {
        let DeValue::Integer(number) = value.get_ref() else {
            return Err(self.wrong_kind(key, "a whole number", value));
        };
        let text = plain(number);
        if !text.bytes().all(|b| b.is_ascii_digit()) {
            let problem = BadAmount::NotANumber {
                what: "a count",
                text: clip(&text),
                example: "a whole number without sign",
            };
            return Err(self.bad_amount(key, value, problem));
        }
        let fitting = text.parse::<u64>().ok().and_then(|n| T::try_from(n).ok());
        fitting.ok_or_else(|| self.bad_amount(key, value, BadAmount::TooLarge { text: clip(&text) }))
    }

    fn bad_amount(&self, key: &'static str, value: &Value<'_>, problem: BadAmount) -> PolicyError {
        PolicyError::BadAmount { at: self.place(value.span().start), key, problem }
    }

    fn wrong_kind(&self, key: &'static str, expected: &'static str, value: &Value<'_>) -> PolicyError {
        let found = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a section",
        };
        PolicyError::WrongKind { at: self.place(value.span().start), key, expected, found }
    }

    fn unknown_key(&self, key: &Key<'_>, section: Section, valid: &[&'static str]) -> PolicyError {
        let word = key.get_ref().as_ref();
        PolicyError::UnknownKey {
            at: self.place(key.span().start),
            key: clip(word),
            section,
            nearest: nearest(word, valid),
            valid: valid.to_vec(),
        }
    }

    fn syntax(&self, error: &toml::de::Error) -> PolicyError {
        let start = error.span().map_or(0, |span| span.start);
        // The parser's message has several lines and may repeat what the file holds.
        let problem = error.message().lines().map(str::trim).collect::<Vec<_>>().join(", ");
        let problem =
            problem.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] });
        PolicyError::Syntax { at: self.place(start), problem: problem.take(300).collect() }
    }

    fn place(&self, offset: usize) -> Place {
        Place::in_text(self.text, offset)
    }

    /// Remembers where a key stands, for what can be judged only when all have been read. The first stays.
    fn note(&self, key: String, value: &Value<'_>) {
        self.keys.borrow_mut().entry(key).or_insert(value.span().start);
    }
}

/// The number in decimal digits, whatever base it was written in; as written where it does not fit.
fn plain(number: &DeInteger<'_>) -> String {
    match u64::from_str_radix(number.as_str(), number.radix()) {
        Ok(value) => value.to_string(),
        Err(_) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::to_toml;

    /// The keys in the lists above are those that are written, so a new rule cannot be forgotten in either.
    #[test]
    fn every_key_that_is_written_can_be_read_and_no_other() {
        let written = to_toml(&Draft::at(ThreatLevel::High).seal().unwrap());
        let document = DeTable::parse(&written).unwrap();
        let keys = |table: &DeTable<'_>| -> Vec<String> {
            in_order(table).iter().map(|(key, _)| key.get_ref().to_string()).collect()
        };
        assert_eq!(keys(document.get_ref()), TOP);
        for (section, known) in [
            ("kernel", KERNEL),
            ("files", FILES),
            ("network", network::NETWORK),
            ("credentials", credentials::CREDENTIALS),
            ("lifetime", LIFETIME),
        ] {
            let table = document.get_ref().get(section).unwrap().get_ref().as_table().unwrap();
            assert_eq!(keys(table), known, "{section}");
        }
    }

    const REFERENCE: &str = include_str!("../../../docs/policy.md");

    /// The rows of the reference: key, default, example, each without its quotation.
    fn rows() -> Vec<(String, String, String)> {
        let cell = |text: &str| text.trim().trim_matches('`').to_owned();
        let row = |line: &str| {
            let cells: Vec<&str> = line.split(" |").collect();
            let [key, default, _, example, _, _] = cells.as_slice() else { return None };
            key.starts_with("| `").then(|| (cell(&key[1..]), cell(default), cell(example)))
        };
        REFERENCE.lines().filter_map(row).collect()
    }

    #[test]
    fn the_reference_names_every_key_and_no_other() {
        let section = |name: &'static str, keys: &'static [&'static str]| {
            keys.iter().map(move |key| format!("{name}.{key}"))
        };
        let compound = ["network.limits".to_owned()];
        let keys: Vec<String> = ["threat".to_owned(), "accept".to_owned()]
            .into_iter()
            .chain(section("kernel", KERNEL))
            .chain(section("files", FILES))
            .chain(section("network", network::NETWORK))
            .chain(section("network.allow", network::RULE))
            .chain(section("network.dangerously_allow_private", network::OPENING))
            .chain(section("network.limits", network::LIMITS))
            .chain(section("credentials", credentials::CREDENTIALS))
            .chain(section("credentials.bind", credentials::BINDING))
            .chain(section("lifetime", LIFETIME))
            .filter(|key| !compound.contains(key))
            .collect();
        for key in &keys {
            assert!(REFERENCE.contains(&format!("`{key}`")), "docs/policy.md does not name {key}");
        }
        for name in TOP.iter().skip(2) {
            assert!(REFERENCE.contains(&format!("### `[{name}]`")), "docs/policy.md has no section {name}");
        }
        for (key, ..) in rows() {
            assert!(keys.contains(&key), "docs/policy.md names {key}, which is no key");
        }
    }

    #[test]
    fn the_defaults_of_the_reference_are_the_defaults() {
        let written = to_toml(&Draft::at(ThreatLevel::High).seal().unwrap());
        let mut section = String::new();
        let mut defaults = std::collections::BTreeMap::new();
        for line in written.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = format!("{name}.");
            } else if let Some((key, value)) = line.split_once(" = ") {
                defaults.insert(format!("{section}{key}"), value.to_owned());
            }
        }
        let checked = rows().into_iter().filter(|(key, default, _)| match defaults.get(key) {
            Some(real) => {
                assert_eq!(default, real, "{key}");
                true
            }
            None => false,
        });
        assert_eq!(checked.count(), defaults.len(), "every key that is written has a row");
    }

    #[test]
    fn every_example_of_the_reference_is_taken() {
        let mut seen = 0;
        for (key, _, example) in rows() {
            let name = key.rsplit('.').next().unwrap();
            assert!(example.starts_with(&format!("{name} = ")), "{key}: {example}");
            let rule = |more: &str| format!("[network]\nallow = [{{ {more} }}]");
            let text = match key.as_str() {
                // One key of a rule or a binding needs the others that it goes with.
                "network.allow.host" => rule(&example),
                "network.allow.protocol" => {
                    rule(&format!("host = \"a.example.com\", ports = [22], {example}"))
                }
                "network.allow.resolver" => rule(&format!("host = \"dns.google\", {example}")),
                _ if key.starts_with("network.allow.") => {
                    let read = if example.starts_with("tls") { "" } else { "tls = \"inspect\", " };
                    rule(&format!("host = \"a.example.com\", {read}{example}"))
                }
                _ if key.starts_with("credentials.bind.") => {
                    let with = match name {
                        "user" => "as = \"basic\", ",
                        "header" => "as = \"header\", ",
                        "as" => "user = \"me\", ",
                        "env" => "placeholder = \"x_\", ",
                        _ => "",
                    };
                    let secret = if name == "secret" { "" } else { "secret = \"a\", " };
                    let host = if name == "host" { "" } else { "host = \"a.example.com\", " };
                    format!("[credentials]\nbind = [{{ {secret}{host}{with}{example} }}]")
                }
                _ => match key.rsplit_once('.') {
                    Some((section, _)) => format!("[{section}]\n{example}"),
                    None => example.clone(),
                },
            };
            let _taken = parse(&text).unwrap_or_else(|error| panic!("{key}: {text}: {error}"));
            seen += 1;
        }
        assert!(seen > 40, "{seen}");
    }

    #[test]
    fn every_policy_in_the_documents_seals() {
        for (page, text) in [
            ("docs/policy.md", REFERENCE),
            ("docs/secrets.md", include_str!("../../../docs/secrets.md")),
            ("docs/operate.md", include_str!("../../../docs/operate.md")),
        ] {
            let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
            // Files of secrets are TOML too, and no policies.
            let policies: Vec<&str> = blocks.filter(|block| !block.contains("[secrets.")).collect();
            assert!(!policies.is_empty(), "{page}");
            for policy in policies {
                parse(policy)
                    .and_then(Draft::seal)
                    .unwrap_or_else(|error| panic!("{page}: {error}\n{policy}"));
            }
        }
    }

    #[test]
    fn a_policy_of_the_reference_that_says_high_accepts_what_the_jail_lacks() {
        // Whoever pastes one into a file is not refused for the host's kernel and programs.
        for block in REFERENCE.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let policy = parse(block).and_then(Draft::seal).unwrap();
            assert!(policy.accepts(Gap::SharedKernel) && policy.accepts(Gap::HostImage), "{block}");
        }
    }
}
