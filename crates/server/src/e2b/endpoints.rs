//! Every endpoint of this face. What is not here is not answered, whatever is written elsewhere: a table that forgets one closes
//! it. `tests/e2b/wire/answers.txt` says for each what it answers, and a suite of tests has heard every line of that.

use std::collections::BTreeSet;

use super::no::No;

/// A method, and a path whose parts in braces are anything.
pub(super) type Endpoint = (&'static str, &'static str);

/// The control plane.
pub(super) const CONTROL: &[Endpoint] = &[
    ("GET", "/health"),
    ("POST", "/sandboxes"),
    ("GET", "/sandboxes"),
    ("GET", "/sandboxes/metrics"),
    ("GET", "/sandboxes/{id}"),
    ("DELETE", "/sandboxes/{id}"),
    ("POST", "/sandboxes/{id}/timeout"),
    ("POST", "/sandboxes/{id}/refreshes"),
    ("POST", "/sandboxes/{id}/pause"),
    ("POST", "/sandboxes/{id}/resume"),
    ("POST", "/sandboxes/{id}/connect"),
    ("PUT", "/sandboxes/{id}/network"),
    ("GET", "/sandboxes/{id}/metrics"),
    ("GET", "/sandboxes/{id}/logs"),
    ("POST", "/sandboxes/{id}/snapshots"),
    ("POST", "/sandboxes/{id}/fork"),
    ("POST", "/v2/sandboxes"),
    ("GET", "/v2/sandboxes"),
    ("POST", "/v2/sandboxes/{id}/connect"),
    ("GET", "/v2/sandboxes/{id}/logs"),
    ("GET", "/snapshots"),
    ("POST", "/v3/templates"),
    ("GET", "/templates"),
    ("GET", "/v2/templates"),
    ("GET", "/default-templates"),
    ("GET", "/templates/aliases/{alias}"),
    ("POST", "/templates/tags"),
    ("DELETE", "/templates/tags"),
    ("GET", "/templates/{id}"),
    ("DELETE", "/templates/{id}"),
    ("PATCH", "/templates/{id}"),
    ("PATCH", "/v2/templates/{id}"),
    ("GET", "/templates/{id}/files/{hash}"),
    ("PUT", "/templates/{id}/files/{hash}"),
    ("POST", "/v2/templates/{id}/builds/{build}"),
    ("GET", "/templates/{id}/builds/{build}/status"),
    ("GET", "/templates/{id}/builds/{build}/logs"),
    ("GET", "/templates/{id}/tags"),
    ("GET", "/templates/{id}/tags/count"),
    ("GET", "/templates/{id}/tags/exists"),
    ("GET", "/templates/{id}/tags/groups"),
    ("GET", "/templates/{id}/tags/{tag}/assignments"),
    ("POST", "/volumes"),
    ("GET", "/volumes"),
    ("GET", "/volumes/{id}"),
    ("DELETE", "/volumes/{id}"),
    ("GET", "/volumecontent/{id}/path"),
    ("PATCH", "/volumecontent/{id}/path"),
    ("DELETE", "/volumecontent/{id}/path"),
    ("GET", "/volumecontent/{id}/dir"),
    ("POST", "/volumecontent/{id}/dir"),
    ("GET", "/volumecontent/{id}/file"),
    ("PUT", "/volumecontent/{id}/file"),
    ("POST", "/secrets"),
    ("GET", "/secrets"),
    ("GET", "/secrets/{id}"),
    ("POST", "/secrets/{id}"),
    ("DELETE", "/secrets/{id}"),
];

/// What the SDKs take for the daemon inside a sandbox.
pub(super) const ENVD: &[Endpoint] = &[
    ("GET", "/health"),
    ("GET", "/envs"),
    ("GET", "/metrics"),
    ("GET", "/files"),
    ("HEAD", "/files"),
    ("POST", "/files"),
    ("POST", "/files/compose"),
    ("POST", "/process.Process/List"),
    ("POST", "/process.Process/Start"),
    ("POST", "/process.Process/Connect"),
    ("POST", "/process.Process/Update"),
    ("POST", "/process.Process/SendInput"),
    ("POST", "/process.Process/StreamInput"),
    ("POST", "/process.Process/SendSignal"),
    ("POST", "/process.Process/CloseStdin"),
    ("POST", "/filesystem.Filesystem/Stat"),
    ("POST", "/filesystem.Filesystem/MakeDir"),
    ("POST", "/filesystem.Filesystem/Move"),
    ("POST", "/filesystem.Filesystem/ListDir"),
    ("POST", "/filesystem.Filesystem/Remove"),
    ("POST", "/filesystem.Filesystem/WatchDir"),
    ("POST", "/filesystem.Filesystem/CreateWatcher"),
    ("POST", "/filesystem.Filesystem/GetWatcherEvents"),
    ("POST", "/filesystem.Filesystem/RemoveWatcher"),
];

/// What the code interpreter's SDKs take for a server inside a sandbox.
pub(super) const INTERPRETER: &[Endpoint] = &[
    ("GET", "/health"),
    ("POST", "/execute"),
    ("GET", "/contexts"),
    ("POST", "/contexts"),
    ("DELETE", "/contexts/{id}"),
    ("POST", "/contexts/{id}/restart"),
];

/// How many parts of a path may be anything, where it fits.
fn fit(path: &str, parts: &[&str]) -> Option<usize> {
    let words: Vec<&str> = path.split('/').skip(1).collect();
    let free = |word: &str| word.starts_with('{');
    let fits =
        words.len() == parts.len() && words.iter().zip(parts).all(|(word, part)| free(word) || word == part);
    fits.then(|| words.iter().filter(|word| free(word)).count())
}

/// Whether these endpoints have this one. A path that is written out goes before one with something in braces.
pub(super) fn check(known: &[Endpoint], method: &str, parts: &[&str]) -> Result<(), No> {
    let best = known.iter().filter_map(|(_, path)| fit(path, parts)).min();
    let best = best.ok_or_else(|| No::new(404, "there is no such route"))?;
    let mut found = known.iter().filter(|(_, path)| fit(path, parts) == Some(best));
    if found.any(|(taken, _)| *taken == method) {
        return Ok(());
    }
    Err(No::new(405, "this route takes other methods"))
}

/// Every word in these paths, which the log may repeat.
pub(crate) fn words() -> BTreeSet<&'static str> {
    let all = [CONTROL, ENVD, INTERPRETER].into_iter().flatten();
    all.flat_map(|(_, path)| path.split('/'))
        .filter(|word| !word.is_empty() && !word.starts_with('{'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of them is said to answer: a suite of tests hears every line from a real daemon.
    const ANSWERS: &str = include_str!("../../../../tests/e2b/wire/answers.txt");
    /// What is documented of each.
    const DOCUMENTED: &str = include_str!("../../../../tests/e2b/wire/documented.txt");

    #[test]
    fn a_path_that_is_written_out_goes_before_one_that_may_be_anything() {
        let said = |method, parts: &[&str]| check(CONTROL, method, parts).map_err(|no| no.status());
        assert_eq!(said("GET", &["sandboxes", "metrics"]), Ok(()));
        assert_eq!(said("DELETE", &["sandboxes", "metrics"]), Err(405));
        assert_eq!(said("DELETE", &["sandboxes", "abc"]), Ok(()));
        assert_eq!(said("GET", &["templates", "tags"]), Err(405));
        assert_eq!(said("GET", &["templates", "tags", "more"]), Err(404));
        assert_eq!(said("GET", &["sandboxes", ""]), Ok(()));
        assert_eq!(said("GET", &["sandboxes", "abc", ""]), Err(404));
    }

    const PARTS: [(&str, &[Endpoint]); 3] =
        [("control", CONTROL), ("envd", ENVD), ("interpreter", INTERPRETER)];

    /// Lines of a list, without what nobody is told by.
    fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
        text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'))
    }

    /// Part, method, path and answer of each line that a suite hears.
    fn heard() -> BTreeSet<(&'static str, &'static str, &'static str, &'static str)> {
        let part = |heading: &str| match heading {
            "[envd]" | "[process]" | "[filesystem]" | "[crowded]" => PARTS[1],
            "[interpreter]" => PARTS[2],
            "[sandboxes]" | "[full]" | "[trouble]" | "[copies]" | "[packed]" | "[templates]"
            | "[volumes]" | "[secrets]" => PARTS[0],
            // Each heading is a module of the suite: beneath another one nobody would hear a line.
            _ => panic!("there is no suite {heading}"),
        };
        let (mut of, mut heard) = (PARTS[0], BTreeSet::new());
        for line in lines(ANSWERS) {
            if line.starts_with('[') {
                of = part(line);
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [method, path, answer, ..] = words.as_slice() else { panic!("half a line: {line}") };
            assert!(of.1.contains(&(method, path)), "there is no such endpoint: {line}");
            heard.insert((of.0, *method, *path, *answer));
        }
        heard
    }

    #[test]
    fn every_endpoint_has_an_answer_that_a_test_hears() {
        let heard = heard();
        for (name, known) in PARTS {
            for (method, path) in known {
                let good = |answer: &str| answer.starts_with('2') || answer == "ok";
                let found = heard
                    .iter()
                    .any(|(part, by, at, answer)| (part, by, at) == (&name, method, path) && good(answer));
                assert!(found, "nothing says what {method} {path} answers");
            }
        }
    }

    #[test]
    fn every_documented_answer_is_heard_or_it_says_why_not() {
        let (heard, mut part, mut endpoint) = (heard(), "", ("", ""));
        let (mut documented, mut unheard, mut known) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for line in lines(DOCUMENTED) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [heading] => part = heading.trim_matches(['[', ']']),
                [answer, _, _, ..] if line.starts_with("  ") => {
                    assert!(unheard.insert((part, endpoint.0, endpoint.1, *answer)), "twice: {line}");
                }
                [method, path, answers @ ..] => {
                    endpoint = (method, path);
                    assert!(known.insert((part, *method, *path)), "twice: {line}");
                    documented.extend(answers.iter().map(|answer| (part, *method, *path, *answer)));
                }
                [] => {}
            }
        }
        let of = |(name, known): (&'static str, &'static [Endpoint])| {
            known.iter().map(move |(method, path)| (name, *method, *path))
        };
        assert_eq!(known, PARTS.into_iter().flat_map(of).collect(), "the endpoints of the daemon");
        assert!(unheard.is_subset(&documented), "why is said of what nobody documents");
        for answer in documented {
            let why =
                if unheard.contains(&answer) { "is heard, and is said not to be" } else { "is not heard" };
            assert_ne!(heard.contains(&answer), unheard.contains(&answer), "{answer:?} {why}");
        }
    }
}
