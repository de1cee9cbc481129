//! Control groups: who counts and limits what a box uses, on the old interface, the unified one, or a mix.
//!
//! Each warden has a directory of its own, which it locks; the groups of its boxes lie in it. One that makes a single box has none: it locks that
//! box's group. The lock goes with the warden, however it ends, so that any later one can tell what is left over and release it by name alone
//! ([`Site::sweep`]).

mod aside;
mod freeze;
mod group;
mod nest;
mod site;
mod sweep;
#[cfg(test)]
mod tests;

pub use group::{Counts, Group, Limits};
pub use site::{Room, Site};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Bytes.
    Memory,
    /// Processes.
    Pids,
    /// Processor time.
    Cpu,
}

/// The old interface's controller that stops processes; the unified interface needs none.
const FREEZER: &str = "freezer";

impl Controller {
    const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }
}

/// Which interface the kernel offers for the controllers that we need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// A hierarchy for each controller.
    V1,
    /// One for all of them.
    V2,
}

/// How the name of a warden's directory begins.
const NEST: &str = "blastbox-warden-";

/// Reads a file of the kernel. Most are shorter than a page, and then it is one call.
fn read_at(dir: impl std::os::fd::AsFd, name: &str) -> std::io::Result<String> {
    use rustix::fs::{Mode, OFlags, openat};
    let file = openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::with_capacity(4096);
    std::io::Read::read_to_string(&mut std::io::Read::take(std::fs::File::from(file), 1 << 20), &mut text)?;
    Ok(text)
}
