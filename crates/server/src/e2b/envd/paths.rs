//! Users and paths as E2B means them.

/// The box's only user, whatever a request says.
pub(crate) const USER: &str = "user";
/// Where relative paths begin.
pub(crate) const HOME: &str = "/home/user";

/// Whether a box can do something as this user. Root of the box is not among them: payloads have no capability.
pub(crate) fn is_known(user: &str) -> bool {
    user == USER
}

/// A path that means somebody else's home.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ForeignHome;

/// The absolute path that is meant.
pub(crate) fn resolve(path: &str) -> Result<String, ForeignHome> {
    match path {
        "" | "~" => Ok(HOME.to_owned()),
        _ if path.starts_with('/') => Ok(path.to_owned()),
        _ => match path.strip_prefix('~') {
            Some(rest) if rest.starts_with('/') => Ok(format!("{HOME}{rest}")),
            Some(_) => Err(ForeignHome),
            None => Ok(format!("{HOME}/{path}")),
        },
    }
}

/// The same without empty parts, `.` and `..`, as text alone says it: a name for what is kept about a path.
pub(crate) fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The last name of a path.
pub(crate) fn name(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    match trimmed.rsplit('/').next() {
        Some("") | None => "/",
        Some(name) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_means_what_e2b_says_it_means() {
        for (given, meant) in [
            ("/etc/hosts", "/etc/hosts"),
            ("a/b", "/home/user/a/b"),
            ("", "/home/user"),
            ("~", "/home/user"),
            ("~/x", "/home/user/x"),
            ("../x", "/home/user/../x"),
        ] {
            assert_eq!(resolve(given).unwrap(), meant, "{given}");
        }
        assert_eq!(resolve("~root"), Err(ForeignHome));
        assert_eq!(resolve("~root/x"), Err(ForeignHome));
    }

    #[test]
    fn names_and_plain_paths() {
        assert_eq!(plain("/a/./b//../c/"), "/a/c");
        assert_eq!(plain("/../.."), "/");
        assert_eq!((name("/a/b/"), name("/"), name("x")), ("b", "/", "x"));
    }
}
