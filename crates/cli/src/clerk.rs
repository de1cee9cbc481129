//! `blastbox clerk`: the process that runs the commands of secrets for a daemon, which starts it before its walls stand.

use std::os::fd::AsFd as _;

use blastbox_engine::leases::serve_commands;

use crate::problem::Problem;

/// The verb, for the daemon.
pub(crate) const VERB: &str = "clerk";

/// Serves the daemon at standard input until it is gone.
pub(crate) fn clerk() -> Result<u8, Problem> {
    rustix::thread::set_name(c"blastbox-clerk").ok();
    // What the commands print passes through here.
    blastbox_isolation::hold_secrets();
    let own = std::env::current_exe().map_err(Problem::OwnProgram)?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map_err(Problem::Clerk)?;
    let me = std::process::id().to_string();
    let tether = [&own.to_string_lossy(), "tether", "--group", "--parent", &me, "--"].map(str::to_owned);
    serve_commands(&socket, &tether).map_err(Problem::Clerk)?;
    Ok(0)
}
