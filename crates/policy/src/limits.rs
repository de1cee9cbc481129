//! The limits that a box can have at all. A number outside is a slip of the pen, and is named as one.

use std::fmt;

use crate::{Bytes, Cpus, FileRules, KernelRules, LifetimeRules, NetworkLimits, PolicyError, Seconds};

const TIB: Bytes = Bytes(1 << 40);
/// The kernel's own ceiling for process ids (`PID_MAX_LIMIT`).
const MOST_PIDS: u32 = 4_194_304;
/// The kernel's usual ceiling for descriptors of one process (`fs.nr_open`).
const MOST_OPEN_FILES: u32 = 1_048_576;
/// Decades of work.
const MOST_FUEL: u64 = 1 << 62;
const THIRTY_DAYS: Seconds = Seconds(30 * 86_400);

/// Checks each limit of the kernel section.
pub(crate) fn check_kernel(rules: &KernelRules) -> Result<(), PolicyError> {
    let KernelRules {
        tier: _,
        cpus,
        memory,
        pids,
        on_denied_syscall: _,
        root: _,
        gpu: _,
        deterministic: _,
        fuel,
        guest: _,
        gvisor_platform: _,
    } = rules;
    // The kernel's smallest quota is one millisecond in each period of 100.
    within("kernel.cpus", *cpus, Cpus::from_millis(10), Cpus::from_millis(1_024_000))?;
    // Below this the agent itself does not start.
    within("kernel.memory", *memory, Bytes::mib(4), TIB)?;
    // The agent and one process of the payload.
    within("kernel.pids", *pids, 2, MOST_PIDS)?;
    // Engines count in 64 bits with a sign, and TOML writes no more.
    within("kernel.fuel", fuel.unwrap_or(0), 0, MOST_FUEL)
}

/// Checks each limit of the files section.
pub(crate) fn check_files(rules: &FileRules) -> Result<(), PolicyError> {
    let FileRules { workspace: _, disk, inodes, file_size, open_files, exec: _, report_writes: _ } = rules;
    // One page each: tmpfs rounds up to it.
    within("files.disk", *disk, Bytes::kib(4), TIB)?;
    within("files.inodes", *inodes, 16, 1 << 32)?;
    within("files.file_size", *file_size, Bytes::kib(4), TIB)?;
    within("files.open_files", *open_files, 16, MOST_OPEN_FILES)
}

/// Checks each limit of the lifetime section.
pub(crate) fn check_lifetime(rules: &LifetimeRules) -> Result<(), PolicyError> {
    let LifetimeRules { timeout, output, survives_daemon: _ } = rules;
    within("lifetime.timeout", *timeout, Seconds(1), THIRTY_DAYS)?;
    // Output is streamed, never kept whole: whoever keeps it has a bound of its own.
    within("lifetime.output", *output, Bytes(1), TIB)
}

/// Checks each limit of the network section.
pub(crate) fn check_network(limits: &NetworkLimits) -> Result<(), PolicyError> {
    let NetworkLimits {
        flows,
        connections_per_second,
        questions_per_second,
        names_per_wildcard,
        bandwidth,
        bytes,
        bytes_per_host,
    } = limits;
    // Each connection costs the gateway buffers and two descriptors: the ceiling is what one process can hold. Whether this host lets it
    // have so many descriptors is for the gateway to see.
    within("network.limits.flows", *flows, 1, 16_384)?;
    within("network.limits.connections_per_second", *connections_per_second, 1, 100_000)?;
    within("network.limits.questions_per_second", *questions_per_second, 1, 100_000)?;
    within("network.limits.names_per_wildcard", *names_per_wildcard, 1, 65_536)?;
    within("network.limits.bandwidth", *bandwidth, Bytes::kib(1), TIB)?;
    within("network.limits.bytes", *bytes, Bytes::kib(1), Bytes(1 << 50))?;
    within("network.limits.bytes_per_host", *bytes_per_host, Bytes::kib(1), Bytes(1 << 50))
}

fn within<T: PartialOrd + fmt::Display>(
    key: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), PolicyError> {
    if least <= value && value <= most {
        return Ok(());
    }
    Err(PolicyError::OutOfRange {
        key,
        value: value.to_string(),
        least: least.to_string(),
        most: most.to_string(),
    })
}
