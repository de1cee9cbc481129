//! A read-only view of the host's programs, so that a fresh machine needs no download.
//!
//! Must not: show anything that is not in `wire::plan::HOST_VIEW`. Files of /etc that tell about the host's users and
//! network are replaced by our own.

use std::fs;
use std::path::Path;

use blastbox_wire::plan::{HOST_VIEW, Step};

use crate::Tree;
use crate::skeleton::Steps;

/// Directories of programs that are links into /usr on most systems.
const PROGRAMS: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Empty places that programs look into.
const EMPTY: [&str; 4] = ["/opt", "/mnt", "/srv", "/var"];

const GROUP: &str = "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n";
const RESOLV: &str = "# There is no name server in this box.\n";
const PROFILE: &str = "export PATH=/usr/local/bin:/usr/bin:/bin\n";

/// What the host has of what a box may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostImage {
    /// Links at the top, with what they say.
    links: Vec<(&'static str, String)>,
    /// Directories and files that are shown.
    shown: Vec<&'static str>,
    shell: &'static str,
    os_release: bool,
}

impl HostImage {
    /// Looks at the host.
    #[must_use]
    pub fn look() -> Self {
        Self::beneath(Path::new("/"))
    }

    fn beneath(root: &Path) -> Self {
        let on_host = |path: &str| root.join(path.trim_start_matches('/'));
        let mut links = Vec::new();
        let mut shown = Vec::new();
        for path in HOST_VIEW {
            let place = on_host(path);
            let Ok(kind) = fs::symlink_metadata(&place).map(|data| data.file_type()) else { continue };
            if !kind.is_symlink() {
                shown.push(path);
            } else if let Some(target) = fs::read_link(&place).ok().and_then(|to| harmless(path, &to)) {
                links.push((path, target));
            }
        }
        let has_bash = ["usr/bin/bash", "bin/bash"].iter().any(|bash| on_host(bash).exists());
        let os_release = on_host("usr/lib/os-release").is_file();
        Self { links, shown, shell: if has_bash { "/bin/bash" } else { "/bin/sh" }, os_release }
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps = Steps::skeleton();
        for place in EMPTY.iter().chain(&["/etc"]) {
            steps.directory(place);
        }
        steps.link("/var/tmp", "../tmp");
        for parent in self.parents() {
            steps.directory(parent);
        }
        for (at, to) in &self.links {
            steps.link(at, to);
        }
        for path in &self.shown {
            steps.host_view(path);
        }
        self.settings(&mut steps);
        steps.finish()
    }

    pub(crate) fn trees(&self) -> Vec<Tree> {
        let top = self.shown.iter().filter(|path| is_at_top(path));
        let names = top.map(|path| path.trim_start_matches('/')).chain(["etc", "opt"]);
        names.filter_map(|name| Tree::named(name, true)).collect()
    }

    /// Whether a real path of the host can be seen in the box.
    pub(crate) fn shows(&self, real: &Path) -> bool {
        self.shown.iter().any(|path| real.starts_with(path))
    }

    /// The directories between /etc and what is shown beneath it, each once, outermost first.
    fn parents(&self) -> Vec<&'static str> {
        let mut parents = Vec::new();
        let beneath =
            self.shown.iter().chain(self.links.iter().map(|(at, _)| at)).filter(|path| !is_at_top(path));
        for path in beneath {
            let ends = path.match_indices('/').map(|(end, _)| end).skip(2);
            for parent in ends.filter_map(|end| path.get(..end)) {
                if !parents.contains(&parent) {
                    parents.push(parent);
                }
            }
        }
        parents
    }

    fn settings(&self, steps: &mut Steps) {
        let shell = self.shell;
        let passwd = format!(
            "root:x:0:0:root:/:/usr/sbin/nologin\n\
             user:x:1000:1000::/home/user:{shell}\n\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        );
        let shells = if shell == "/bin/sh" { "/bin/sh\n" } else { "/bin/sh\n/bin/bash\n" };
        for (at, text) in [
            ("/etc/passwd", passwd.as_str()),
            ("/etc/group", GROUP),
            ("/etc/hosts", HOSTS),
            ("/etc/nsswitch.conf", NSSWITCH),
            ("/etc/resolv.conf", RESOLV),
            ("/etc/shells", shells),
            ("/etc/profile", PROFILE),
        ] {
            steps.file(at, text);
        }
        if self.os_release {
            steps.link("/etc/os-release", "../usr/lib/os-release");
        }
    }
}

fn is_at_top(path: &str) -> bool {
    path.matches('/').count() == 1
}

/// The target of a link of the host that may be repeated in the box: one into /usr, or from the one place of
/// certificates to the other. Any other would tell where something lies on the host and lead nowhere.
fn harmless(path: &str, target: &Path) -> Option<String> {
    let target = target.to_str()?;
    let plain = target.split('/').all(|part| !matches!(part, "" | "." | ".."));
    let into_usr = PROGRAMS.contains(&path) && plain && target.starts_with("usr/");
    let certificates = path == "/etc/ssl/certs" && target == "../pki/tls/certs";
    (into_usr || certificates).then(|| target.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use blastbox_wire::plan::Slot;

    use super::*;
    use crate::Image;

    /// A host of this test's own, gone at the end.
    struct Host(PathBuf);

    impl Host {
        fn new(name: &str, directories: &[&str], links: &[(&str, &str)]) -> Self {
            let path = std::env::temp_dir().join(format!("host-{name}-{}", std::process::id()));
            for directory in directories {
                fs::create_dir_all(path.join(directory)).unwrap();
            }
            for (at, to) in links {
                symlink(to, path.join(at)).unwrap();
            }
            Self(path)
        }
        fn image(&self) -> HostImage {
            HostImage::beneath(&self.0)
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn links(steps: &[Step]) -> Vec<(&str, &str)> {
        let link = steps.iter().filter_map(|step| match step {
            Step::Link { at, to } => Some((at.as_str(), to.as_str())),
            _ => None,
        });
        link.collect()
    }

    fn shown(steps: &[Step]) -> Vec<&str> {
        let view = steps.iter().filter_map(|step| match step {
            Step::HostView { path } => Some(path.as_str()),
            _ => None,
        });
        view.collect()
    }

    #[test]
    fn links_into_usr_are_repeated_and_real_directories_are_shown() {
        let host = Host::new("merged", &["usr/bin", "lib64", "etc/ssl/certs"], &[("bin", "usr/bin")]);
        let steps = host.image().steps();
        assert!(links(&steps).contains(&("/bin", "usr/bin")));
        assert_eq!(shown(&steps), ["/usr", "/lib64", "/etc/ssl/certs"]);
    }

    #[test]
    fn links_that_leave_usr_are_not_repeated() {
        let bad = [
            ("bin", "/srv/bin"),
            ("lib", "usr/../srv/lib"),
            ("sbin", "../usr/sbin"),
            ("lib64", "usr//lib64"),
        ];
        let host = Host::new("astray", &["usr/lib32"], &[&bad[..], &[("lib32", "usr/lib32")]].concat());
        let steps = host.image().steps();
        let at_top: Vec<_> = links(&steps).into_iter().filter(|(at, _)| PROGRAMS.contains(at)).collect();
        assert_eq!(at_top, [("/lib32", "usr/lib32")]);
    }

    #[test]
    fn a_linked_file_of_etc_is_left_out_but_the_certificates_of_another_family_are_found() {
        let link = [("etc/ld.so.cache", "/srv/cache"), ("etc/ssl/certs", "../pki/tls/certs")];
        let host = Host::new("pki", &["usr", "etc/ssl", "etc/pki/tls/certs"], &link);
        let steps = host.image().steps();
        assert_eq!(shown(&steps), ["/usr", "/etc/pki/tls/certs"]);
        assert!(links(&steps).contains(&("/etc/ssl/certs", "../pki/tls/certs")));
    }

    #[test]
    fn every_place_has_its_parents_before_it() {
        let mut made: Vec<String> = Vec::new();
        for step in Image::host().template_steps(Slot(1)) {
            let (Step::Directory { at }
            | Step::File { at, .. }
            | Step::Link { at, .. }
            | Step::HostView { path: at }) = &step
            else {
                continue;
            };
            let (parent, _) = at.as_str().rsplit_once('/').unwrap();
            assert!(parent.is_empty() || made.iter().any(|made| made == parent), "{at}");
            assert!(!made.contains(&at.to_string()), "{at} twice");
            made.push(at.to_string());
        }
    }

    #[test]
    fn nothing_of_the_hosts_users_or_network_is_shown() {
        for path in shown(&HostImage::look().steps()) {
            assert!(HOST_VIEW.contains(&path), "{path}");
        }
        for private in ["/etc/passwd", "/etc/shadow", "/etc/hosts", "/etc", "/home", "/root", "/var"] {
            assert!(!HOST_VIEW.contains(&private));
        }
    }

    #[test]
    fn the_user_has_a_shell_that_exists() {
        let without = Host::new("sh", &["usr/bin"], &[]);
        let text = format!("{:?}", without.image().steps());
        assert!(text.contains("/home/user:/bin/sh") && !text.contains("/bin/bash"));
        let with = Host::new("bash", &["usr/bin/bash"], &[]);
        assert!(format!("{:?}", with.image().steps()).contains("/home/user:/bin/bash"));
    }
}
