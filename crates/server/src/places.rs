//! Where a daemon is found and keeps its state, where nobody says otherwise. Pure: whoever has the environment passes
//! it in.

use std::ffi::OsString;
use std::path::PathBuf;

/// The socket: `/run/blastbox` for root, the session's own directory for everybody else.
pub fn socket(uid: u32, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if uid == 0 {
        return Some(PathBuf::from("/run/blastbox/blastbox.sock"));
    }
    absolute(variable("XDG_RUNTIME_DIR")).map(|directory| directory.join("blastbox.sock"))
}

/// The state directory: `/var/lib/blastbox` for root, `$XDG_STATE_HOME/blastbox` for everybody else.
pub fn state(uid: u32, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if uid == 0 {
        return Some(PathBuf::from("/var/lib/blastbox"));
    }
    let home = || absolute(variable("HOME")).map(|home| home.join(".local/state"));
    absolute(variable("XDG_STATE_HOME")).or_else(home).map(|directory| directory.join("blastbox"))
}

/// The standard says that a relative path is to be ignored.
fn absolute(value: Option<OsString>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_fixed_places_and_others_those_of_their_session() {
        let none = |_: &str| None;
        let session = |name: &str| Some(OsString::from(format!("/s/{name}")));
        assert_eq!(socket(0, session), Some("/run/blastbox/blastbox.sock".into()));
        assert_eq!(socket(7, session), Some("/s/XDG_RUNTIME_DIR/blastbox.sock".into()));
        assert_eq!(socket(7, none), None);
        assert_eq!(state(7, session), Some("/s/XDG_STATE_HOME/blastbox".into()));
        let home = |name: &str| (name == "HOME").then(|| OsString::from("/h"));
        assert_eq!(state(7, home), Some("/h/.local/state/blastbox".into()));
        assert_eq!(state(7, |_: &str| Some("relative".into())), None);
    }
}
