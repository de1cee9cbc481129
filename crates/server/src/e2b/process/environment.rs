//! The environment of a command, built from nothing: what every process has, then the sandbox, then the request.

use std::collections::BTreeMap;

use blastbox_engine::USUAL_PATH;
use blastbox_wire::agent::User;

use crate::e2b::envd::paths;
use crate::e2b::rpc::error::{Code, RpcError};
use crate::e2b::sandbox::Sandbox;

/// The variables that a sandbox gives to everything in it.
pub(crate) fn of_sandbox(sandbox: &Sandbox) -> BTreeMap<String, String> {
    let own = [
        ("E2B_SANDBOX", "true"),
        ("E2B_SANDBOX_ID", sandbox.id()),
        ("E2B_TEMPLATE_ID", sandbox.template.as_str()),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    own.into_iter().chain(sandbox.envs.0.clone()).collect()
}

/// That of a command in a box that is nobody's yet.
pub(in crate::e2b) fn of_nobody() -> Vec<Vec<u8>> {
    let line = |(name, value): (&str, &str)| format!("{name}={value}").into_bytes();
    usual(User::Payload).map(line).into()
}

/// What every process has.
fn usual(user: User) -> [(&'static str, &'static str); 4] {
    let (name, home) = paths::at_home(user);
    [("PATH", USUAL_PATH), ("HOME", home), ("USER", name), ("LOGNAME", name)]
}

/// The whole environment of one command, as `NAME=value`.
pub(in crate::e2b) fn of_command(
    sandbox: &Sandbox,
    user: User,
    asked: &BTreeMap<String, String>,
) -> Result<Vec<Vec<u8>>, RpcError> {
    let bad = |name: &str, value: &str| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
    if asked.iter().any(|(name, value)| bad(name, value)) {
        let what = "a variable has a name that is empty or has `=` in it, or a NUL";
        return Err(RpcError::new(Code::InvalidArgument, what));
    }
    let usual = usual(user).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut all = BTreeMap::from(usual);
    all.extend(of_sandbox(sandbox));
    all.extend(asked.clone());
    Ok(all.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect())
}
