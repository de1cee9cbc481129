//! An OCI bundle that is hardened as comparably as crun and runc allow without further help: all namespaces, users of
//! its own, no capability, no new privileges, a read-only root with the host's /usr. No seccomp, as shipped by neither.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;

/// A bundle in a directory of its own, gone at the end.
#[derive(Debug)]
pub(crate) struct Bundle {
    /// Where it lies.
    pub(crate) path: PathBuf,
}

impl Bundle {
    /// Writes it.
    pub(crate) fn write() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("blastbox-bench-{}", std::process::id()));
        let root = path.join("rootfs");
        for place in ["usr", "etc", "proc", "sys", "dev", "tmp", "home/user", "workspace"] {
            fs::create_dir_all(root.join(place))?;
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            symlink(Path::new("usr").join(name), root.join(name))?;
        }
        fs::write(path.join("config.json"), config().to_string())?;
        Ok(Self { path })
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        // In the directory for temporary files, where the rest is somebody's who cleans up there.
        fs::remove_dir_all(&self.path).ok();
    }
}

fn config() -> serde_json::Value {
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
        "root": { "path": "rootfs", "readonly": true },
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
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
        }
    })
}
