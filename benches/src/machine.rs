//! What the numbers were measured on.

use std::fmt;
use std::fs;

/// What the numbers were measured on.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Machine {
    kernel: String,
    processor: String,
    cores: usize,
    virtual_machine: bool,
    cgroups: &'static str,
    root: bool,
    load: String,
}

/// Looks at it.
pub(crate) fn look() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim())
    };
    Machine {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        processor: field("model name").to_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        virtual_machine: field("flags").split(' ').any(|flag| flag == "hypervisor"),
        cgroups: cgroups(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()),
        root: rustix::process::geteuid().is_root(),
        load: fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned(),
    }
}

fn cgroups(mounts: &str) -> &'static str {
    let has = |kind: &str| mounts.lines().any(|line| line.contains(&format!(" - {kind} ")));
    match (has("cgroup"), has("cgroup2")) {
        (true, true) => "hybrid",
        (true, false) => "v1",
        (false, true) => "v2",
        (false, false) => "none",
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, processor, cores, virtual_machine, cgroups, root, load } = self;
        let kind = if *virtual_machine { ", virtual machine" } else { "" };
        let user = if *root { "root" } else { "ordinary user" };
        write!(
            f,
            "Linux {kernel}, {cores} cores of {processor}{kind}, cgroups {cgroups}, as {user}, load {load}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flavour_of_cgroups_is_read_from_the_mounts() {
        let (old, new) =
            ("1 2 0:3 / /a rw - cgroup cgroup rw,cpu\n", "1 2 0:3 / /b rw - cgroup2 cgroup2 rw\n");
        assert_eq!(cgroups(old), "v1");
        assert_eq!(cgroups(new), "v2");
        assert_eq!(cgroups(&[old, new].concat()), "hybrid");
    }
}
