//! What the root of every box has, whatever its image: empty places for mounts, and a small /dev.

use blastbox_wire::plan::{DeviceName, GuestPath, Step};

/// The places that the box fills itself, parents first. A directory image never shows its own.
const PLACES: [&str; 9] =
    ["/dev", "/dev/pts", "/dev/shm", "/proc", "/tmp", "/run", "/home", "/home/user", "/workspace"];

/// What programs expect in /dev beside devices.
const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];

/// The names at the top that every box fills itself, and an image does not.
pub const OURS: [&str; 7] = ["dev", "proc", "sys", "tmp", "run", "home", "workspace"];

/// A list of steps that grows. A path that is not plain adds nothing; every path that we write is, and a test says so.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<Step>);

impl Steps {
    /// The places, links and devices of every box.
    pub(crate) fn skeleton() -> Self {
        let mut steps = Self::default();
        for place in PLACES {
            steps.directory(place);
        }
        for (at, to) in LINKS {
            steps.link(at, to);
        }
        steps.0.extend(DeviceName::HARMLESS.map(|name| Step::Device { name }));
        steps
    }

    pub(crate) fn directory(&mut self, at: &str) {
        self.add(at, |at| Step::Directory { at });
    }

    pub(crate) fn link(&mut self, at: &str, to: &str) {
        self.add(at, |at| Step::Link { at, to: to.to_owned() });
    }

    pub(crate) fn file(&mut self, at: &str, text: &str) {
        self.add(at, |at| Step::File { at, text: text.to_owned() });
    }

    pub(crate) fn host_view(&mut self, path: &str) {
        self.add(path, |path| Step::HostView { path });
    }

    pub(crate) fn step(&mut self, step: Step) {
        self.0.push(step);
    }

    pub(crate) fn finish(self) -> Vec<Step> {
        self.0
    }

    fn add(&mut self, at: &str, step: impl FnOnce(GuestPath) -> Step) {
        self.0.extend(at.parse().ok().map(step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_the_skeleton_is_plain() {
        assert_eq!(Steps::skeleton().finish().len(), PLACES.len() + LINKS.len() + DeviceName::HARMLESS.len());
    }

    #[test]
    fn a_path_that_is_not_plain_adds_nothing_and_its_neighbour_does() {
        let mut steps = Steps::default();
        steps.directory("/a/../b");
        steps.directory("/a/..b");
        assert_eq!(steps.finish().len(), 1);
    }

    #[test]
    fn every_place_lies_under_a_name_that_is_ours() {
        for place in PLACES {
            let top = place.split('/').nth(1).unwrap();
            assert!(OURS.contains(&top), "{place}");
        }
    }
}
