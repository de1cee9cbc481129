//! Where the daemon works, for the walls that it puts around itself.

use std::path::{Path, PathBuf};

use blastbox_isolation::{Confined, Workplace};
use blastbox_server::{Config, StateDir};

use super::problem::DaemonProblem;
use super::serve::ServeArgs;

/// Names of hosts, and whom to trust: only for a daemon that sends something by itself. Not the whole of `/etc/ssl` and
/// `/etc/pki`: private keys of the host lie there, and as root the daemon's permissions would not keep it out.
const FOR_NAMES: [&str; 9] = [
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs",
    // What the links in there lead to.
    "/etc/pki/ca-trust/extracted",
];
/// What is looked at of the host, and what a resolver's link leads to; and randomness, which libraries in a static program
/// read from these files (the names of MCP sessions are made of it).
const ALWAYS: [&str; 6] =
    ["/proc", "/sys", "/etc/resolv.conf", "/run/systemd/resolve", "/dev/urandom", "/dev/random"];

/// Where the daemon works, with every directory made that it will need.
pub(super) fn workplace(
    args: &ServeArgs,
    config: &Config,
    socket: &Path,
    state: &StateDir,
) -> Result<Workplace, DaemonProblem> {
    let mut kept = vec![state.path().to_owned()];
    let beside =
        |path: &Path| path.parent().filter(|above| !above.as_os_str().is_empty()).map(Path::to_owned);
    let socket_place = beside(socket).unwrap_or_else(|| PathBuf::from("."));
    blastbox_server::Socket::prepare(socket).map_err(DaemonProblem::Door)?;
    kept.push(socket_place);
    // The file may still have to be made.
    kept.extend(config.orders.written().into_iter().filter_map(beside).filter(|above| above.is_dir()));
    let mut read: Vec<PathBuf> = ALWAYS.map(PathBuf::from).to_vec();
    read.extend(args.config.clone());
    read.extend(config.orders.read().into_iter().map(Path::to_owned));
    if config.orders.reach_out() {
        read.extend(FOR_NAMES.map(PathBuf::from));
    }
    Ok(Workplace { kept, read })
}

/// What is said about the walls.
pub(super) fn walls(confined: Confined) -> String {
    match confined.landlock {
        Some(abi) => format!(
            "blastbox: confined: filter of system calls, Landlock {abi}, no new privileges, not dumpable\n"
        ),
        None => {
            "blastbox: confined: filter of system calls, no new privileges, not dumpable; this kernel has no \
            Landlock, so files are only kept by their permissions\n"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_private_key_of_the_host_lies_where_the_daemon_reads() {
        let read = || FOR_NAMES.iter().chain(&ALWAYS);
        for secret in [
            "/etc/ssl/private/host.key",
            "/etc/pki/tls/private/localhost.key",
            "/etc/pki/ca-trust/source/x",
            "/etc/pki/nssdb/key4.db",
            "/etc/shadow",
            "/root/.ssh/id_ed25519",
        ] {
            assert!(!read().any(|place| Path::new(secret).starts_with(place)), "{secret}");
        }
        for certificates in [
            "/etc/ssl/certs/ca-certificates.crt",
            "/etc/pki/tls/certs/ca-bundle.crt",
            "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
            "/etc/ssl/cert.pem",
        ] {
            assert!(read().any(|place| Path::new(certificates).starts_with(place)), "{certificates}");
        }
    }
}
