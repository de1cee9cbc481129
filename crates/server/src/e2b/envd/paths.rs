//! Users and paths as E2B means them.

use blastbox_wire::agent::User;
/// A name for what is kept about a path.
pub(crate) use blastbox_wire::plan::plain;

/// The box's ordinary user.
pub(crate) const USER: &str = "user";
/// Where its relative paths begin.
pub(crate) const HOME: &str = "/home/user";

/// Who is meant by a name. Root of the box is somebody only where its policy gives it one.
pub(crate) fn known(name: &str, has_root: bool) -> Option<User> {
    match name {
        USER => Some(User::Payload),
        "root" if has_root => Some(User::Root),
        _ => None,
    }
}

/// The name of a user and its home.
pub(crate) fn at_home(user: User) -> (&'static str, &'static str) {
    match user {
        User::Payload => (USER, HOME),
        User::Root => ("root", "/root"),
    }
}

/// A path that means somebody else's home.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ForeignHome;

/// The absolute path that is meant.
pub(crate) fn resolve(path: &str, user: User) -> Result<String, ForeignHome> {
    let (_, home) = at_home(user);
    match path {
        "" | "~" => Ok(home.to_owned()),
        _ if path.starts_with('/') => Ok(path.to_owned()),
        _ => match path.strip_prefix('~') {
            Some(rest) if rest.starts_with('/') => Ok(format!("{home}{rest}")),
            Some(_) => Err(ForeignHome),
            None => Ok(format!("{home}/{path}")),
        },
    }
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
            assert_eq!(resolve(given, User::Payload).unwrap(), meant, "{given}");
        }
        assert_eq!(resolve("~/x", User::Root).unwrap(), "/root/x");
        assert_eq!(resolve("~root", User::Payload), Err(ForeignHome));
        assert_eq!(resolve("~root/x", User::Payload), Err(ForeignHome));
    }

    #[test]
    fn root_is_somebody_only_where_the_box_has_one() {
        assert_eq!((known("root", false), known("root", true)), (None, Some(User::Root)));
        assert_eq!((known("user", false), known("who", true)), (Some(User::Payload), None));
    }

    #[test]
    fn names_and_plain_paths() {
        assert_eq!(plain("/a/./b//../c/"), "/a/c");
        assert_eq!(plain("/../.."), "/");
        assert_eq!((name("/a/b/"), name("/"), name("x")), ("b", "/", "x"));
    }
}
