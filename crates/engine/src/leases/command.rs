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

use super::error::MintError;
use super::read::sized;
use super::value::{LONGEST_VALUE, Minted};

/// JSON around a secret of full length.
const LONGEST_OUTPUT: usize = 2 * LONGEST_VALUE + 1024;
/// Variables that a program may need to work at all.
const KEPT: &[&str] = &["PATH", "HOME", "USER", "LANG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"];

#[derive(Deserialize)]
struct Printed {
    secret: String,
    ttl: Option<u64>,
}

pub(super) async fn run(secret: &SecretName, argv: &[String]) -> Result<Minted, MintError> {
    let program = PathBuf::from(argv.first().map(String::as_str).unwrap_or_default());
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
