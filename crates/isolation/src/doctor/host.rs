//! The kernel, namespaces and file systems.

use super::{Finding, State};
use crate::tiers::jail::OLDEST_KERNEL;
use crate::{Facts, KernelVersion};

/// From here on the kernel has all that a jail can use.
const FINE: KernelVersion = KernelVersion::new(6, 12);

pub(super) fn kernel_version(facts: &Facts) -> Finding {
    let found =
        |note: &str| Finding::good("kernel_version", "kernel", format!("Linux {}{note}", facts.kernel));
    if facts.version < OLDEST_KERNEL {
        found(" is too old").bad(State::Missing, "boot Linux 5.13 or newer, best 6.12 or newer")
    } else if facts.version < FINE {
        found(" works; Landlock scopes came with 6.12").bad(State::Weaker, "boot Linux 6.12 or newer")
    } else {
        found("")
    }
}

pub(super) fn user_namespaces(facts: &Facts) -> Finding {
    let found = |detail: &str| Finding::good("user_namespaces", "user namespaces", detail);
    let namespaces = &facts.user_namespaces;
    if namespaces.most == Some(0) {
        return found("switched off for everybody (user.max_user_namespaces is 0)")
            .bad(State::Missing, "sudo sysctl -w user.max_user_namespaces=15000");
    }
    if facts.privileged && namespaces.few_ids {
        return found(
            "this is one itself (`unshare -r`, a rootless container), without the user ids that root gives to boxes",
        )
        .bad(State::Missing, "run blastbox outside of that namespace, or as an ordinary user");
    }
    if facts.privileged {
        return found("made by root");
    }
    if namespaces.switched_off {
        return found("switched off for ordinary users (kernel.unprivileged_userns_clone is 0)").bad(
            State::Missing,
            "sudo sysctl -w kernel.unprivileged_userns_clone=1, or run blastbox as root",
        );
    }
    if namespaces.apparmor_restricts {
        let detail = "AppArmor takes their rights from programs that have no profile \
                      (kernel.apparmor_restrict_unprivileged_userns is 1)";
        return found(detail).bad(
            State::Weaker,
            "give blastbox-warden an AppArmor profile with `userns,`, or run blastbox as root, or \
             sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        );
    }
    found("ordinary users may make them")
}

pub(super) fn own_ids(facts: &Facts) -> Finding {
    let found = |detail: &str| Finding::good("own_ids", "user ids for boxes", detail);
    if facts.privileged && facts.user_namespaces.few_ids {
        found("this user namespace has none to give")
            .bad(State::Missing, "run blastbox outside of that namespace, or as an ordinary user")
    } else if facts.privileged {
        found("each box gets a range of its own")
    } else {
        found("boxes run under the caller's user id (gap shared-uid)")
            .bad(State::Weaker, "run blastbox as root")
    }
}

/// A fresh /proc. In a user namespace the kernel refuses one while parts of the old one are covered, as containers do.
pub(super) fn fresh_proc(facts: &Facts, mountinfo: &str) -> Finding {
    let found = |detail: String| Finding::good("fresh_proc", "a /proc of the box's own", detail);
    let places = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    // Nothing lies beneath the one for foreign binaries, so nothing is hidden by it.
    let covered: Vec<&str> =
        places.filter(|at| at.starts_with("/proc/") && *at != "/proc/sys/fs/binfmt_misc").collect();
    if covered.is_empty() || facts.privileged {
        return found("can be mounted".to_owned());
    }
    found(format!(
        "{} places of /proc are covered, the first is {}",
        covered.len(),
        covered.first().unwrap_or(&"")
    ))
    .bad(
        State::Missing,
        "this looks like a container: start it with an uncovered /proc (docker run --security-opt \
             systempaths=unconfined), or run blastbox as root outside of it",
    )
}

pub(super) fn overlay(filesystems: &str) -> Finding {
    let found = |detail: &str| Finding::good("overlayfs", "copy-on-write workspaces", detail);
    if filesystems.lines().any(|line| line.split_whitespace().last() == Some("overlay")) {
        found("overlayfs is there")
    } else {
        found("overlayfs is not loaded").bad(State::Weaker, "sudo modprobe overlay")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UserNamespaces;
    use crate::facts::tests::{good_host, rootless_host};

    #[test]
    fn an_old_kernel_is_missing_and_one_in_between_is_weaker() {
        let at = |major, minor| {
            kernel_version(&Facts { version: KernelVersion::new(major, minor), ..good_host() }).state
        };
        assert_eq!(
            [at(5, 12), at(5, 13), at(6, 11), at(6, 12)],
            [State::Missing, State::Weaker, State::Weaker, State::Good]
        );
    }

    fn namespaces(facts: Facts, change: impl Fn(&mut UserNamespaces)) -> Finding {
        let mut facts = facts;
        change(&mut facts.user_namespaces);
        user_namespaces(&facts)
    }

    #[test]
    fn what_keeps_users_from_namespaces_is_named_with_its_switch() {
        let off = namespaces(rootless_host(), |namespaces| namespaces.switched_off = true);
        assert_eq!(off.state, State::Missing);
        assert!(off.fix.unwrap().contains("kernel.unprivileged_userns_clone=1"));
        let restricted = namespaces(rootless_host(), |namespaces| namespaces.apparmor_restricts = true);
        assert_eq!(restricted.state, State::Weaker);
        assert!(restricted.fix.unwrap().contains("kernel.apparmor_restrict_unprivileged_userns=0"));
        assert_eq!(namespaces(rootless_host(), |_| {}).state, State::Good);
    }

    #[test]
    fn root_is_kept_from_namespaces_only_by_their_number() {
        let none = namespaces(good_host(), |namespaces| namespaces.most = Some(0));
        assert!(none.stops_boxes());
        let few = namespaces(good_host(), |namespaces| namespaces.few_ids = true);
        assert!(few.stops_boxes() && few.detail.contains("unshare -r"), "{few:?}");
        let mut facts = good_host();
        facts.user_namespaces.few_ids = true;
        assert_eq!(own_ids(&facts).state, State::Missing);
        assert_eq!(namespaces(rootless_host(), |namespaces| namespaces.few_ids = true).state, State::Good);
        let both = namespaces(good_host(), |namespaces| {
            namespaces.switched_off = true;
            namespaces.apparmor_restricts = true;
        });
        assert_eq!(both.state, State::Good);
    }

    const CONTAINER: &str = "1 0 0:5 / /proc rw - proc proc rw\n2 1 0:6 / /proc/kcore rw - tmpfs tmpfs rw\n";
    const DESKTOP: &str =
        "1 0 0:5 / /proc rw - proc proc rw\n2 1 0:6 / /proc/sys/fs/binfmt_misc rw - autofs x rw\n";

    #[test]
    fn a_covered_proc_stops_boxes_of_ordinary_users() {
        assert!(fresh_proc(&rootless_host(), CONTAINER).stops_boxes());
        assert_eq!(fresh_proc(&good_host(), CONTAINER).state, State::Good);
        assert_eq!(fresh_proc(&rootless_host(), DESKTOP).state, State::Good);
    }

    #[test]
    fn overlayfs_is_found_by_its_whole_name() {
        assert_eq!(overlay("nodev\toverlay\n").state, State::Good);
        assert_eq!(overlay("nodev\toverlayer\n\text4\n").state, State::Weaker);
    }
}
