//! Why a secret cannot be had. Nothing here holds a part of one.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use blastbox_policy::{Host, SecretName};

use crate::error::Blame;

/// Why the operator's file of secrets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadSources {
    /// It cannot be read.
    #[error("cannot read the secrets file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others could say what secrets stand for.
    #[error("the secrets file {path} can be changed by others; chmod go-w it")]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// It is not what it should be. The message has the line.
    #[error("the secrets file is malformed: {0}")]
    Syntax(String),
    /// A name that no policy can write.
    #[error("secrets.{0}: not a name; permitted are 1 to 64 of a-z, 0-9, - and _")]
    Name(String),
    /// Nothing to read it from, or two things.
    #[error("secrets.{0}: give exactly one of file, env, command and vault")]
    OneSource(String),
    /// Nowhere to go.
    #[error("secrets.{0}.hosts: name each host that this secret may ever go to")]
    Hosts(String),
    /// A command without a program, or one that would be searched for.
    #[error(
        "secrets.{0}.command: begin with the absolute path of a program; nothing is searched for, no shell reads it"
    )]
    Program(String),
    /// The process that is to run commands could not be started.
    #[error("cannot start the process that runs the commands of secrets")]
    Clerk(#[source] io::Error),
    /// A path in Vault that is none.
    #[error("secrets.{0}.vault.path: letters, digits and - _ . / only, without a leading slash")]
    VaultPath(String),
    /// Secrets from Vault, and no Vault.
    #[error("secrets.{0} is in Vault, but there is no [vault] section with address and token_file")]
    NoVault(String),
    /// An address that is none.
    #[error("vault.address: write http://HOST:PORT or https://HOST:PORT")]
    VaultAddress,
}

/// The list of leases that are to be revoked cannot be read, so nobody knows what is left.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the list of leases in {path}, so nobody knows what is to be revoked")]
pub struct RegisterError {
    /// The register.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Why a secret cannot be lent. The box is not made.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// The operator has no such secret.
    #[error("secret {0} is not known to this host; the operator names secrets in the secrets file")]
    Unknown(SecretName),
    /// The operator does not let it go there.
    #[error("secret {secret} may not go to {host}: secrets.{secret}.hosts does not name it")]
    HostNotPermitted {
        /// The secret.
        secret: SecretName,
        /// Where the policy binds it.
        host: Host,
    },
    /// A file that cannot be read.
    #[error("cannot read secret {secret} from {path}")]
    File {
        /// The secret.
        secret: SecretName,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file that others can read.
    #[error("secret {secret}: {path} can be read by every user of this host; chmod o-rwx it")]
    Exposed {
        /// The secret.
        secret: SecretName,
        /// The file.
        path: PathBuf,
    },
    /// A variable that is not set.
    #[error("secret {secret}: the daemon has no variable {variable}")]
    Variable {
        /// The secret.
        secret: SecretName,
        /// The variable.
        variable: String,
    },
    /// More than fits into a header, or nothing.
    #[error("secret {0}: its source gave nothing, or more than 8 KiB")]
    Size(SecretName),
    /// A program that cannot be started.
    #[error("secret {secret}: cannot run {program}")]
    Start {
        /// The secret.
        secret: SecretName,
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The process that runs commands for a daemon is gone.
    #[error(
        "secret {secret}: the process that runs the commands of secrets does not answer; start the daemon again"
    )]
    NoClerk {
        /// The secret.
        secret: SecretName,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A program that failed. What it printed may hold anything, so it is not shown.
    #[error("secret {secret}: {program} ended with {status}; run it by hand to see why")]
    Failed {
        /// The secret.
        secret: SecretName,
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: String,
    },
    /// A source that takes too long.
    #[error("secret {secret}: its source took longer than {} seconds", limit.as_secs())]
    TooSlow {
        /// The secret.
        secret: SecretName,
        /// How long it had.
        limit: Duration,
    },
    /// A program or a server that says something else than agreed.
    #[error("secret {secret}: {problem}")]
    Answer {
        /// The secret.
        secret: SecretName,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Vault says no.
    #[error("secret {secret}: Vault answered {status}{}{}", because(reasons), remedy(*status))]
    Vault {
        /// The secret.
        secret: SecretName,
        /// The status.
        status: u16,
        /// Its reasons, in its words.
        reasons: String,
    },
    /// Vault is not there.
    #[error(
        "secret {secret}: cannot reach Vault at {address}; see that it runs there, or correct vault.address in the secrets file"
    )]
    VaultUnreachable {
        /// The secret.
        secret: SecretName,
        /// The address.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// This process is going down, or broke while it asked.
    #[error("secret {0}: nobody is left who reads it; ask again")]
    Interrupted(SecretName),
    /// The lease cannot be remembered, so it could not be revoked after a crash.
    #[error("secret {secret}: cannot write its lease into {path}, so it is not used")]
    Register {
        /// The secret.
        secret: SecretName,
        /// The register.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl MintError {
    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unknown(_) | Self::HostNotPermitted { .. } => Blame::Caller,
            Self::File { .. }
            | Self::Exposed { .. }
            | Self::Variable { .. }
            | Self::Size(_)
            | Self::Start { .. }
            | Self::NoClerk { .. }
            | Self::Failed { .. }
            | Self::TooSlow { .. }
            | Self::Answer { .. }
            | Self::Vault { .. }
            | Self::VaultUnreachable { .. }
            | Self::Register { .. } => Blame::Host,
            Self::Interrupted(_) => Blame::Blastbox,
        }
    }
}

/// What can be done about it, where that is the same for everybody.
fn remedy(status: u16) -> &'static str {
    match status {
        503 => "; unseal it or bring it back",
        404 => "; see that vault.address, vault.namespace and the path in the secrets file are right",
        403 => "; see that the token in vault.token_file is valid and may do this",
        _ => "",
    }
}

fn because(reasons: &str) -> String {
    if reasons.is_empty() { String::new() } else { format!(": {reasons}") }
}
