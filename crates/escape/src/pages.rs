//! The pages of `docs/attacks/` by class, as they were when this program was built: a report is kept where they may not be.

use crate::attempt::Class;

/// Name and text of a page.
pub type Page = (&'static str, &'static str);

macro_rules! page {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../docs/attacks/", $name)))
    };
}

impl Class {
    /// Its pages beneath `docs/attacks/`: its own first, then those of single techniques.
    #[must_use]
    pub fn pages(self) -> &'static [Page] {
        match self {
            Self::Kernel => &[page!("kernel-surface.md"), page!("terminal.md")],
            Self::Files => &[
                page!("files.md"),
                page!("workspace-content.md"),
                page!("inherited-descriptors.md"),
                page!("mount-races.md"),
                page!("overwriting-pid-1.md"),
            ],
            Self::Network => &[page!("network.md")],
            Self::Credentials => &[page!("secrets.md")],
            Self::Lifecycle => &[page!("surviving-the-end.md")],
            Self::Resources => &[page!("exhaustion.md")],
            Self::Information => &[page!("host-facts.md")],
            Self::Persistence => &[page!("between-boxes.md")],
            Self::ControlPlane => &[page!("lying-agent.md"), page!("policy-from-inside.md")],
        }
    }

    /// Its own page.
    #[must_use]
    pub fn page(self) -> &'static str {
        self.pages().first().map_or("README.md", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_page_is_linked_from_a_class_and_listed() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/attacks");
        let names =
            std::fs::read_dir(&docs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let there: BTreeSet<String> = names.filter(|name| name != "README.md").collect();
        let linked: BTreeSet<String> =
            Class::ALL.iter().flat_map(|class| class.pages()).map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(there, linked);
        let list = std::fs::read_to_string(docs.join("README.md")).unwrap();
        assert!(linked.iter().all(|name| list.contains(&format!("]({name})"))), "docs/attacks/README.md");
    }

    /// A reader of a class finds what its attempts are about.
    #[test]
    fn pages_name_what_their_class_tries() {
        for (class, words) in [
            (Class::Kernel, &["io_uring", "BPF", "userfaultfd", "x32", "TIOCSTI", "namespace"][..]),
            (
                Class::Files,
                &[
                    "core_pattern",
                    "sysrq",
                    "release_agent",
                    "binfmt_misc",
                    "mount API",
                    "rc file",
                    "git hook",
                    "editor",
                    "MCP",
                    "/proc/self/exe",
                    "device node",
                    "Landlock",
                ],
            ),
            (Class::Network, &["169.254.169.254", "DNS", "loopback", "datagram"]),
            (Class::Credentials, &["environment", "SSH", "socket"]),
            (Class::Lifecycle, &["setsid", "cgroup"]),
            (Class::Resources, &["Fork", "memory", "output", "terminals"]),
            (Class::Information, &["boot and machine ids", "mount"]),
            (Class::Persistence, &["/tmp", "System V", "keyring"]),
            (Class::ControlPlane, &["frame", "receipt", "exit", "policy"]),
        ] {
            let text: String = class.pages().iter().map(|(_, text)| *text).collect();
            let missing: Vec<_> = words.iter().filter(|word| !text.contains(**word)).collect();
            assert!(missing.is_empty(), "{class:?}: {missing:?}");
        }
    }
}
