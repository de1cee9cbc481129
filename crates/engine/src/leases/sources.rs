//! The operator's file: what each secret stands for, and where it may ever go.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use blastbox_policy::{Binding, Host, SecretName};
use serde::Deserialize;

use super::clerk::Clerk;
use super::error::{BadSources, MintError};
use super::value::{Minted, NotMinted};
use super::vault::{Vault, VaultAccess};
use super::{command, read};

/// Largest secrets file.
const LARGEST_FILE: u64 = 256 * 1024;
/// How long the sources of one box may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// What each secret stands for.
#[derive(Debug, Default)]
pub struct Sources {
    pub(super) vault: Option<Vault>,
    secrets: BTreeMap<SecretName, Entry>,
    /// Who runs commands where this process may not.
    clerk: Option<Clerk>,
}

#[derive(Debug)]
struct Entry {
    hosts: Vec<Host>,
    source: WhichSource,
}

/// Where a secret is read from, each time a box needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichSource {
    /// A file that others cannot read.
    File(PathBuf),
    /// A variable of this process.
    Environment(String),
    /// What a program prints: the secret as text, or `{"secret": …, "ttl": seconds}`. Never read by a shell.
    Command(Vec<String>),
    /// A field of what Vault has at a path: a stored secret (KV version 2) or one that it makes.
    Vault {
        /// The path, below `/v1/`.
        path: String,
        /// The field of its data.
        field: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    vault: Option<VaultAccess>,
    #[serde(default)]
    secrets: BTreeMap<String, EntryText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryText {
    #[serde(default)]
    hosts: Vec<String>,
    file: Option<PathBuf>,
    env: Option<String>,
    command: Option<Vec<String>>,
    vault: Option<VaultText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VaultText {
    path: String,
    field: String,
}

impl Sources {
    /// Reads the operator's file.
    pub fn load(path: &Path) -> Result<Self, BadSources> {
        let failed = |source| BadSources::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & 0o022 != 0 {
            return Err(BadSources::Exposed { path: path.to_owned() });
        }
        let mut text = String::new();
        file.take(LARGEST_FILE).read_to_string(&mut text).map_err(failed)?;
        Self::parse(&text)
    }

    /// Reads its text. It holds no secret, only where they are.
    pub fn parse(text: &str) -> Result<Self, BadSources> {
        let text: Text = toml::from_str(text).map_err(|error| BadSources::Syntax(error.to_string()))?;
        let vault = text.vault.map(Vault::new).transpose()?;
        let mut secrets = BTreeMap::new();
        for (name, entry) in text.secrets {
            let parsed: SecretName = name.parse().map_err(|_| BadSources::Name(name.clone()))?;
            let entry = entry.check(&name, vault.is_some())?;
            secrets.insert(parsed, entry);
        }
        Ok(Self { vault, secrets, clerk: None })
    }

    /// Starts the process that runs commands once this one may not any more: `program` with `words`, which begin
    /// [`serve_commands`](super::serve_commands). Where no secret has a command, nothing.
    pub fn start_clerk(&mut self, program: &Path, words: &[&str]) -> Result<(), BadSources> {
        let commands: Vec<(&SecretName, &[String])> = self
            .secrets
            .iter()
            .filter_map(|(name, entry)| match &entry.source {
                WhichSource::Command(argv) => Some((name, argv.as_slice())),
                WhichSource::File(_) | WhichSource::Environment(_) | WhichSource::Vault { .. } => None,
            })
            .collect();
        if !commands.is_empty() {
            self.clerk = Some(Clerk::start(program, words, commands.into_iter()).map_err(BadSources::Clerk)?);
        }
        Ok(())
    }

    /// Directories that secrets and tokens are read from. Not the files themselves: they are replaced by others of their
    /// name when they are rotated.
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        let files = self.secrets.values().filter_map(|entry| match &entry.source {
            WhichSource::File(path) => Some(path.as_path()),
            WhichSource::Environment(_) | WhichSource::Command(_) | WhichSource::Vault { .. } => None,
        });
        let token = self.vault.as_ref().map(Vault::token_file);
        files.chain(token).filter_map(Path::parent).map(Path::to_owned).collect()
    }

    /// Whether each of these may be used where it is bound. Reads nothing yet.
    pub fn permit(&self, bindings: &[Binding]) -> Result<(), MintError> {
        bindings.iter().try_for_each(|binding| self.entry(binding).map(drop))
    }

    fn entry(&self, binding: &Binding) -> Result<&Entry, MintError> {
        let secret = binding.secret();
        let entry = self.secrets.get(secret).ok_or_else(|| MintError::Unknown(secret.clone()))?;
        if entry.hosts.contains(binding.host()) {
            Ok(entry)
        } else {
            Err(MintError::HostNotPermitted { secret: secret.clone(), host: binding.host().clone() })
        }
    }

    /// Whether reading this secret makes something at its source that has to be revoked.
    pub(super) fn makes_leases(&self, binding: &Binding) -> bool {
        self.entry(binding).is_ok_and(|entry| matches!(entry.source, WhichSource::Vault { .. }))
    }

    /// Reads the secret of a binding from its source.
    pub(super) async fn fetch(&self, binding: &Binding) -> Result<Minted, NotMinted> {
        let name = binding.secret();
        let source = self.entry(binding)?.source.clone();
        Ok(match source {
            WhichSource::File(path) => read::file(name.clone(), path).await?,
            WhichSource::Environment(variable) => read::environment(name, &variable)?,
            WhichSource::Command(argv) => command::run(name, &argv, self.clerk.as_ref()).await?,
            WhichSource::Vault { path, field } => match &self.vault {
                Some(vault) => vault.fetch(name, &path, &field).await?,
                None => return Err(MintError::Unknown(name.clone()).into()),
            },
        })
    }
}

impl EntryText {
    fn check(self, name: &str, has_vault: bool) -> Result<Entry, BadSources> {
        let hosts: Result<Vec<Host>, _> = self.hosts.iter().map(|host| host.parse()).collect();
        let hosts = hosts.ok().filter(|hosts| !hosts.is_empty());
        let hosts = hosts.ok_or_else(|| BadSources::Hosts(name.to_owned()))?;
        let source = match (self.file, self.env, self.command, self.vault) {
            (Some(path), None, None, None) => WhichSource::File(path),
            (None, Some(variable), None, None) => WhichSource::Environment(variable),
            (None, None, Some(argv), None) => {
                let clean = argv.iter().all(|word| !word.contains('\0'));
                if !clean || !argv.first().is_some_and(|program| program.starts_with('/')) {
                    return Err(BadSources::Program(name.to_owned()));
                }
                WhichSource::Command(argv)
            }
            (None, None, None, Some(VaultText { path, field })) => {
                let clean = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
                let odd = path.split('/').any(|part| matches!(part, "" | "." | ".."));
                if !clean || odd {
                    return Err(BadSources::VaultPath(name.to_owned()));
                }
                if !has_vault {
                    return Err(BadSources::NoVault(name.to_owned()));
                }
                WhichSource::Vault { path, field }
            }
            _ => return Err(BadSources::OneSource(name.to_owned())),
        };
        Ok(Entry { hosts, source })
    }
}
