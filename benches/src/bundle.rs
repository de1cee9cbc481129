//! OCI bundles that are hardened as container engines harden them: all namespaces, users of its own, no capability, no new
//! privileges, the allowlist of system calls that engines ship, masked and read-only paths, a read-only root with the
//! host's /usr; one with limits by cgroups, and one without, for a host whose cgroups the peer refuses.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::allowlist;

/// Bundles in a directory of their own, gone at the end.
#[derive(Debug)]
pub(crate) struct Bundles {
    /// Where they lie.
    pub(crate) path: PathBuf,
}

/// Whether a bundle limits memory, processes and processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limits {
    /// It does, as our own default policy.
    ByCgroups,
    /// It does not.
    None,
}

impl Limits {
    fn name(self) -> &'static str {
        match self {
            Self::ByCgroups => "limits",
            Self::None => "no-limits",
        }
    }
}

impl Bundles {
    /// Writes them.
    pub(crate) fn write() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("blastbox-bench-{}", std::process::id()));
        let root = path.join("rootfs");
        for place in ["usr", "etc", "proc", "sys", "dev", "tmp", "home/user", "workspace"] {
            fs::create_dir_all(root.join(place))?;
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            symlink(Path::new("usr").join(name), root.join(name))?;
        }
        for limits in [Limits::ByCgroups, Limits::None] {
            let bundle = path.join(limits.name());
            fs::create_dir_all(&bundle)?;
            fs::write(bundle.join("config.json"), config(&root, limits).to_string())?;
        }
        Ok(Self { path })
    }

    /// The one with, or without, limits.
    pub(crate) fn with(&self, limits: Limits) -> PathBuf {
        self.path.join(limits.name())
    }
}

/// What the bundles have, in words.
pub(crate) fn hardening() -> String {
    format!(
        "all namespaces, own users, no capability, no_new_privs, OCI seccomp allowlist of {} calls, masked and read-only \
         paths; no Landlock",
        allowlist::length()
    )
}

impl Drop for Bundles {
    fn drop(&mut self) {
        // In the directory for temporary files, where the rest is somebody's who cleans up there.
        fs::remove_dir_all(&self.path).ok();
    }
}

fn config(root: &Path, limits: Limits) -> Value {
    let resources = match limits {
        Limits::None => json!({}),
        Limits::ByCgroups => json!({
            "memory": { "limit": 512_u64 << 20 },
            "pids": { "limit": 128 },
            "cpu": { "quota": 100_000, "period": 100_000 }
        }),
    };
    let tmpfs = |at: &str| json!({ "destination": at, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"] });
    let ids = json!([{ "containerID": 0, "hostID": 1_879_048_192, "size": 2000 }]);
    let spaces =
        ["pid", "network", "ipc", "uts", "mount", "cgroup", "user"].map(|kind| json!({ "type": kind }));
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 1000, "gid": 1000 },
            "args": ["/bin/true"],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/home/user",
            "capabilities": { "bounding": [], "effective": [], "permitted": [], "inheritable": [], "ambient": [] },
            "rlimits": [{ "type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024 }],
            "noNewPrivileges": true
        },
        "root": { "path": root, "readonly": true },
        "hostname": "box",
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
              "options": ["nosuid", "strictatime", "mode=755", "size=65536k"] },
            { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
              "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"] },
            { "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro", "nosuid", "nodev"] },
            tmpfs("/dev/shm"), tmpfs("/tmp"), tmpfs("/home/user"), tmpfs("/workspace")
        ],
        "linux": {
            "uidMappings": ids,
            "gidMappings": ids,
            "namespaces": spaces,
            "resources": resources,
            "seccomp": allowlist::seccomp(),
            "maskedPaths": ["/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
                "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
        }
    })
}
