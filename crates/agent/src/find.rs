//! Which files a command's name may mean.

use std::ffi::CString;

use rustix::io::Errno;

use crate::exec::NotStarted;
use blastbox_wire::agent::Stage;

/// The search path of a command whose environment has none.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Longest name of a file (Linux: `NAME_MAX`).
const LONGEST_NAME: usize = 255;
/// Places that are searched. Nobody has more; what makes a list of 100 000 is not a search path.
const MOST_PLACES: usize = 256;

/// The paths to try for this name, in order. The files themselves are not looked at: that is left to the exec.
pub(crate) fn candidates(name: &[u8], environment: &[Vec<u8>]) -> Result<Vec<CString>, NotStarted> {
    if name.is_empty() {
        return Err(NotStarted(Stage::Find, Errno::NOENT.raw_os_error()));
    }
    if name.contains(&b'/') {
        return Ok(vec![text(name.to_vec())?]);
    }
    if name.len() > LONGEST_NAME {
        return Err(NotStarted(Stage::Find, Errno::NAMETOOLONG.raw_os_error()));
    }
    let path =
        environment.iter().find_map(|variable| variable.strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
    // An empty place is the working directory, as in every shell.
    let join = |place: &[u8]| [if place.is_empty() { b"." } else { place }, b"/", name].concat();
    path.split(|&byte| byte == b':').take(MOST_PLACES).map(|place| text(join(place))).collect()
}

/// A text for the kernel. What has a zero byte in it would be cut there, and become another command than was asked for.
pub(crate) fn text(bytes: Vec<u8>) -> Result<CString, NotStarted> {
    CString::new(bytes).map_err(|_| NotStarted(Stage::Execute, Errno::INVAL.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, path: Option<&str>) -> Vec<String> {
        let environment: Vec<_> = path.iter().map(|path| format!("PATH={path}").into_bytes()).collect();
        let found = candidates(name.as_bytes(), &environment).unwrap();
        found.into_iter().map(|text| text.into_string().unwrap()).collect()
    }

    #[test]
    fn a_name_is_searched_and_a_path_is_not() {
        assert_eq!(found("ls", Some("/a:/b/c")), ["/a/ls", "/b/c/ls"]);
        assert_eq!(found("./ls", Some("/a")), ["./ls"]);
        assert_eq!(found("ls", Some(":/a")), ["./ls", "/a/ls"]);
        assert_eq!(found("ls", None).len(), 6);
    }

    #[test]
    fn a_zero_byte_is_refused_and_not_cut() {
        assert_eq!(candidates(b"ls\0x", &[]), Err(NotStarted(Stage::Execute, 22)));
        assert_eq!(candidates(b"", &[]), Err(NotStarted(Stage::Find, 2)));
    }

    #[test]
    fn a_search_path_cannot_make_the_agent_large() {
        assert_eq!(found("ls", Some(&":".repeat(100_000))).len(), MOST_PLACES);
        assert_eq!(candidates(&[b'x'; 256], &[]), Err(NotStarted(Stage::Find, 36)));
    }
}
