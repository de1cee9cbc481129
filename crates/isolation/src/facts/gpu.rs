//! A GPU of this host: whether there is one for boxes, whose driver it is, and the driver's libraries.

use std::fs;
use std::path::{Path, PathBuf};

use blastbox_wire::plan::DeviceName;
use rustix::fs::{Access, access};

/// Where distributions and NVIDIA's own installer put the driver's libraries. Not the loader's search path: that is the caller's.
const FOLDERS: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
];

const CUDA: &str = "libcuda.so.1";

/// What programs load of the driver: CUDA itself, what it compiles with, and what `nvidia-smi` asks. They must fit the
/// kernel's half to the last digit, so an image cannot bring its own.
const LIBRARIES: [&str; 4] =
    [CUDA, "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4"];

/// A GPU that boxes can have.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Gpu {
    /// The driver's version, such as 580.159.04.
    pub driver: String,
    /// The driver's libraries that were found, by the names that programs ask for.
    pub libraries: Vec<PathBuf>,
}

impl Gpu {
    /// Whether the one library is there that no program does without.
    pub(crate) fn has_cuda(&self) -> bool {
        self.libraries.iter().any(|path| path.ends_with(CUDA))
    }

    /// Looks at three device files. Everything else is read only where they are there.
    pub(super) fn look() -> Option<Self> {
        let usable = |name: DeviceName| {
            access(format!("/dev/{}", name.as_str()), Access::READ_OK | Access::WRITE_OK).is_ok()
        };
        if !DeviceName::GPU.into_iter().all(usable) {
            return None;
        }
        let version = fs::read_to_string("/sys/module/nvidia/version")
            .or_else(|_| fs::read_to_string("/proc/driver/nvidia/version"));
        Some(Self {
            driver: driver_of(&version.unwrap_or_default()).unwrap_or("of an unknown version").to_owned(),
            libraries: LIBRARIES.iter().filter_map(|name| library(name)).collect(),
        })
    }
}

/// The first word that is a version: the kernel says it bare, or in the middle of a sentence.
fn driver_of(text: &str) -> Option<&str> {
    text.split_whitespace().find(|word| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    })
}

fn library(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_says_its_version_in_two_ways() {
        assert_eq!(driver_of("550.54.15\n"), Some("550.54.15"));
        let sentence = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version:  gcc version 15.3.0";
        assert_eq!(driver_of(sentence), Some("580.159.04"));
        assert_eq!(driver_of("x86_64 ...  .5 nothing"), None);
    }
}
