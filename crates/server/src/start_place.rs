//! Where a box's commands start when nobody says where, which is what relative paths of its files begin with too: whoever writes
//! `out.txt` and then runs `cat out.txt` means one file.
//!
//! E2B's API is not asked: its clients know what their paths mean.

use blastbox_engine::LiveBox;
use blastbox_wire::plan::Step;

const WORKSPACE: &str = "/workspace";
pub(crate) const HOME: &str = "/home/user";

/// The directory: the place to work in, where the box has one, and else its user's home.
pub(crate) fn of(live: &LiveBox) -> &'static str {
    let Ok(lowered) = &live.choice().chosen else { return HOME };
    let has_workspace = lowered.plan.own.iter().any(|step| match step {
        Step::ScratchDirectory { at, .. } | Step::Workspace { at, .. } => at.as_str() == WORKSPACE,
        _ => false,
    });
    if has_workspace { WORKSPACE } else { HOME }
}

/// A path from there. An absolute one is what it is; an empty one is none, and stays none.
pub(crate) fn path(live: &LiveBox, path: &[u8]) -> Vec<u8> {
    joined(of(live), path)
}

fn joined(place: &str, path: &[u8]) -> Vec<u8> {
    if path.is_empty() || path.starts_with(b"/") {
        return path.to_vec();
    }
    let mut whole = place.as_bytes().to_vec();
    // `..` stays: what is above a link is the box's business.
    for name in path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
        whole.push(b'/');
        whole.extend_from_slice(name);
    }
    // One that ends so means a directory.
    if path.ends_with(b"/") || path.ends_with(b"/.") {
        whole.push(b'/');
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_relative_path_begins_there() {
        for (path, whole) in [
            ("a", "/workspace/a"),
            ("./a//b/.", "/workspace/a/b/"),
            (".", "/workspace"),
            ("./", "/workspace/"),
            ("../a/", "/workspace/../a/"),
            ("/a/./b", "/a/./b"),
            ("", ""),
        ] {
            assert_eq!(joined(WORKSPACE, path.as_bytes()), whole.as_bytes(), "{path}");
        }
    }
}
