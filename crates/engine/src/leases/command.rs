//! A secret that a program prints.
//!
//! The program is the operator's. No shell reads its arguments, nothing is searched for, and it gets none of the
//! daemon's variables but the harmless ones. What it prints is the secret, or `{"secret": …, "ttl": seconds}`; what it
//! says on standard error is thrown away, because nobody knows what stands there.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use blastbox_policy::SecretName;
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use zeroize::{Zeroize, Zeroizing};

use super::clerk::Clerk;
use super::error::MintError;
use super::read::sized;
use super::value::{LONGEST_VALUE, Minted};

/// JSON around a secret of full length.
pub(super) const LONGEST_OUTPUT: usize = 2 * LONGEST_VALUE + 1024;
/// Variables that a program may need to work at all.
pub(super) const KEPT: &[&str] = &["PATH", "HOME", "USER", "LANG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"];

#[derive(Deserialize)]
struct Printed {
    secret: String,
    ttl: Option<u64>,
}

/// Runs it: by the clerk where there is one, here where this process may start programs.
pub(super) async fn run(
    secret: &SecretName,
    argv: &[String],
    clerk: Option<&Clerk>,
) -> Result<Minted, MintError> {
    let program = PathBuf::from(argv.first().map(String::as_str).unwrap_or_default());
    let output = match clerk {
        Some(clerk) => clerk.run(secret, &program).await?,
        None => run_here(secret, program, argv).await?,
    };
    minted(secret, output)
}

async fn run_here(
    secret: &SecretName,
    program: PathBuf,
    argv: &[String],
) -> Result<Zeroizing<Vec<u8>>, MintError> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the operator's own program, named in the operator's own file"
    )]
    let mut command = Command::new(&program);
    command
        .args(argv.iter().skip(1))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    for name in KEPT {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let failed = |source| MintError::Start { secret: secret.clone(), program: program.clone(), source };
    let mut command = tokio::process::Command::from(command);
    // Whoever stops waiting for it ends it.
    let mut child = command.kill_on_drop(true).spawn().map_err(failed)?;
    let mut output = Zeroizing::new(Vec::with_capacity(LONGEST_OUTPUT + 1));
    if let Some(stdout) = child.stdout.take() {
        let most = u64::try_from(LONGEST_OUTPUT + 1).unwrap_or(u64::MAX);
        stdout.take(most).read_to_end(&mut output).await.map_err(failed)?;
    }
    if output.len() > LONGEST_OUTPUT {
        return Err(MintError::Size(secret.clone()));
    }
    let status = child.wait().await.map_err(failed)?;
    if !status.success() {
        return Err(MintError::Failed { secret: secret.clone(), program, status: status.to_string() });
    }
    Ok(output)
}

/// What was printed, read.
fn minted(secret: &SecretName, output: Zeroizing<Vec<u8>>) -> Result<Minted, MintError> {
    if output.trim_ascii_start().first() == Some(&b'{') {
        let problem = "its program printed JSON that is not {\"secret\": …, \"ttl\": seconds}";
        let answer = |_| MintError::Answer { secret: secret.clone(), problem };
        let Printed { secret: mut value, ttl } = serde_json::from_slice(&output).map_err(answer)?;
        let bytes = Zeroizing::new(value.as_bytes().to_vec());
        value.zeroize();
        return Ok(Minted { ttl: ttl.map(Duration::from_secs), ..sized(secret.clone(), bytes)? });
    }
    sized(secret.clone(), output)
}
