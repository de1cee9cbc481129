//! What a caller wants built: E2B's words, held against what a build here can do before anything is done.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::name::{self, Named};
use crate::e2b::envd::paths::HOME;
use crate::e2b::no::{No, echo};
use crate::e2b::template;

const MOST_STEPS: usize = 200;
const MOST_COMMAND: usize = 64 * 1024;
const MOST_ENV: usize = 64 * 1024;
pub(super) const MOST_PATH: usize = 1_000;
/// Processors and MiB of memory that a template may ask for.
const CPUS: (u32, u32) = (1, 8);
const MEMORY: (u64, u64) = (128, 8_192);
/// Where the SDKs of E2B begin, when nobody says where.
const BASES: [(&str, &str); 3] = [
    ("e2bdev/base", "base"),
    ("e2bdev/code-interpreter", "code-interpreter-v1"),
    ("code-interpreter-v1", "code-interpreter-v1"),
];

/// `POST /v3/templates`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NewBuild {
    name: Option<String>,
    alias: Option<String>,
    tags: Option<Vec<String>>,
    cpu_count: Option<u32>,
    #[serde(rename = "memoryMB")]
    memory_mb: Option<u64>,
    min_free_disk_mb: Option<u64>,
}

/// The same, understood: how large its sandboxes are, in processors and MiB of memory.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) named: Named,
    pub(super) tags: Vec<String>,
    pub(super) size: (u32, u64),
}

impl NewBuild {
    pub(super) fn check(&self) -> Result<Wanted, No> {
        let name = self.name.as_ref().or(self.alias.as_ref());
        let named = Named::parse(name.ok_or_else(|| No::bad("a template needs a name"))?)?;
        let tags = self.tags.iter().flatten().map(|tag| name::tag(tag)).collect::<Result<Vec<_>, _>>()?;
        if tags.len() > 20 {
            return Err(No::bad("a build gets at most 20 tags"));
        }
        let (cpus, memory) = (self.cpu_count.unwrap_or(CPUS.0), self.memory_mb.unwrap_or(1_024));
        if !(CPUS.0..=CPUS.1).contains(&cpus) {
            return Err(No::bad(format!("cpuCount is {} to {}", CPUS.0, CPUS.1)));
        }
        if !(MEMORY.0..=MEMORY.1).contains(&memory) {
            return Err(No::bad(format!("memoryMB is {} to {}", MEMORY.0, MEMORY.1)));
        }
        let disk = template::disk_mib(memory);
        if self.min_free_disk_mb.is_some_and(|wanted| wanted > disk) {
            return Err(No::bad(format!(
                "minFreeDiskMb: files of a sandbox lie in its memory here, and have {disk} MiB where memoryMB is {memory}"
            )));
        }
        Ok(Wanted { named, tags, size: (cpus, memory) })
    }
}

/// `POST /v2/templates/{id}/builds/{build}`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StartBuild {
    from_image: Option<String>,
    from_template: Option<String>,
    from_image_registry: Option<Value>,
    force: Option<bool>,
    steps: Option<Vec<Step>>,
    start_cmd: Option<String>,
    ready_cmd: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Step {
    #[serde(rename = "type")]
    kind: String,
    args: Option<Vec<String>>,
    files_hash: Option<String>,
    force: Option<bool>,
}

/// Where a build begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum From {
    /// An image of the operator.
    Image(String),
    /// A template of the tenant, or an image of the operator.
    Template(String),
}

/// One step, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Run { command: String, user: Option<String> },
    Copy { from: String, to: String, user: Option<String>, mode: Option<String>, hash: String },
    Env(BTreeMap<String, String>),
    Workdir(String),
    User(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) what: What,
    /// Run, also where its result is there.
    pub(super) force: bool,
    /// As people read it.
    pub(super) text: String,
}

/// A whole build, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) from: From,
    pub(super) steps: Vec<Planned>,
    pub(super) start: Option<String>,
    pub(super) ready: Option<String>,
}

impl StartBuild {
    pub(super) fn check(self) -> Result<Plan, No> {
        if self.from_image_registry.is_some_and(|registry| !registry.is_null()) {
            return Err(No::bad(
                "fromImageRegistry: registries are asked by the operator alone (`blastbox image pull`); an image that is in \
                 the store is named by its name there",
            ));
        }
        let from = match (self.from_image, self.from_template) {
            (Some(image), None) => From::Image(of_an_image(&image)),
            (None, Some(template)) => From::Template(template),
            (None, None) | (Some(_), Some(_)) => {
                return Err(No::bad("name one of fromImage and fromTemplate"));
            }
        };
        let steps = self.steps.unwrap_or_default();
        if steps.len() > MOST_STEPS {
            return Err(No::bad(format!("a build has at most {MOST_STEPS} steps")));
        }
        let all = self.force == Some(true);
        let mut plan = Vec::new();
        for (number, step) in (1..).zip(steps) {
            let force =
                all || step.force == Some(true) || plan.last().is_some_and(|last: &Planned| last.force);
            let text = step.text();
            let what = step.understand().map_err(|why| No::bad(format!("step {number}: {why}")))?;
            plan.push(Planned { what, force, text });
        }
        let command = |name: &str, text: Option<String>| match text.filter(|text| !text.trim().is_empty()) {
            Some(text) if text.len() > MOST_COMMAND => {
                Err(No::bad(format!("{name} has more than {MOST_COMMAND} bytes")))
            }
            Some(text) if text.contains('\0') => Err(No::bad(format!("{name} has a NUL"))),
            text => Ok(text),
        };
        let (start, ready) = (command("startCmd", self.start_cmd)?, command("readyCmd", self.ready_cmd)?);
        Ok(Plan { from, steps: plan, start, ready })
    }
}

/// The operator's name for what the SDKs begin with by themselves.
fn of_an_image(image: &str) -> String {
    let plain = image.strip_suffix(":latest").unwrap_or(image);
    let known = BASES.iter().find(|(theirs, _)| *theirs == plain);
    known.map_or_else(|| image.to_owned(), |(_, ours)| (*ours).to_owned())
}

impl Step {
    fn text(&self) -> String {
        let words = self.args.iter().flatten().filter(|word| !word.is_empty()).map(String::as_str);
        let text: Vec<&str> = std::iter::once(self.kind.as_str()).chain(words).collect();
        echo(&text.join(" "))
    }

    fn understand(self) -> Result<What, String> {
        let args = self.args.unwrap_or_default();
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        match (self.kind.to_ascii_uppercase().as_str(), args.as_slice()) {
            ("RUN", [command]) => run(command, None),
            ("RUN", [command, user, ..]) => run(command, given(user)),
            ("COPY", [from, to, more @ ..]) => {
                let user = more.first().and_then(given).map(|user| known_user(&user)).transpose()?;
                let mode = more.get(1).and_then(given);
                let octal = |mode: &String| {
                    (3..=4).contains(&mode.len()) && mode.bytes().all(|b| (b'0'..=b'7').contains(&b))
                };
                if mode.as_ref().is_some_and(|mode| !octal(mode)) {
                    return Err("the mode of a COPY is three or four octal digits".to_owned());
                }
                let hash = self.files_hash.filter(|hash| is_hash(hash)).ok_or("a COPY needs a filesHash")?;
                Ok(What::Copy { from: path(from)?, to: path(to)?, user, mode, hash })
            }
            ("ENV", pairs) if !pairs.is_empty() && pairs.len() % 2 == 0 => variables(pairs),
            ("WORKDIR", [to]) => Ok(What::Workdir(path(to)?)),
            ("USER", [user]) => Ok(What::User(known_user(user)?)),
            (kind @ ("RUN" | "COPY" | "ENV" | "WORKDIR" | "USER"), _) => {
                Err(format!("{kind} has other words than it takes"))
            }
            (kind, _) => Err(format!("'{}' is no step; there is RUN, COPY, ENV, WORKDIR, USER", echo(kind))),
        }
    }
}

/// A hash of files, which is also a name of a file here.
pub(super) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn run(command: &str, user: Option<String>) -> Result<What, String> {
    if command.trim().is_empty() || command.len() > MOST_COMMAND || command.contains('\0') {
        return Err(format!("a command has 1 to {MOST_COMMAND} bytes, none of them NUL"));
    }
    let user = user.map(|user| known_user(&user)).transpose()?;
    Ok(What::Run { command: command.to_owned(), user })
}

/// Boxes have two users.
fn known_user(text: &str) -> Result<String, String> {
    match text.split(':').next().unwrap_or_default() {
        "root" | "0" => Ok("root".to_owned()),
        "user" | "1000" => Ok("user".to_owned()),
        other => Err(format!(
            "there is no user '{}' in a sandbox here; there is user, and root where the operator allows it",
            echo(other)
        )),
    }
}

fn path(text: &str) -> Result<String, String> {
    match text.is_empty() || text.len() > MOST_PATH || text.contains('\0') {
        true => Err(format!("a path has 1 to {MOST_PATH} bytes, none of them NUL")),
        false => Ok(text.to_owned()),
    }
}

fn variables(pairs: &[String]) -> Result<What, String> {
    let mut all = BTreeMap::new();
    for pair in pairs.chunks_exact(2) {
        let [name, value] = pair else { continue };
        let good = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
        let digit = name.bytes().next().is_none_or(|first| first.is_ascii_digit());
        if digit || !name.bytes().all(good) || value.contains('\0') || name.len() + value.len() > MOST_ENV {
            return Err(format!("ENV: '{}' cannot be a variable", echo(name)));
        }
        all.insert(name.clone(), value.clone());
    }
    Ok(What::Env(all))
}

/// A directory that a step names, seen from where the steps before work.
pub(super) fn from(workdir: &str, path: &str) -> String {
    let whole = match path {
        "~" => HOME.to_owned(),
        _ if path.starts_with('/') => path.to_owned(),
        _ => match path.strip_prefix("~/") {
            Some(rest) => format!("{HOME}/{rest}"),
            None => format!("{}/{path}", workdir.trim_end_matches('/')),
        },
    };
    let folder = path.ends_with('/') || path == "." || path.ends_with("/.");
    let mut plain = blastbox_wire::plan::plain(&whole);
    if folder && !plain.ends_with('/') {
        plain.push('/');
    }
    plain
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(body: Value) -> Result<Plan, No> {
        serde_json::from_value::<StartBuild>(body).unwrap().check()
    }

    #[test]
    fn steps_of_the_sdks_are_understood_and_what_follows_a_forced_one_is_forced() {
        let hash = "ab".repeat(32);
        let plan = plan(json!({
            "fromImage": "e2bdev/base:latest", "startCmd": "server", "readyCmd": "true",
            "steps": [
                { "type": "ENV", "args": ["A", "1", "B", "2"] },
                { "type": "COPY", "args": ["app", "/app/", "", "0755"], "filesHash": hash, "force": true },
                { "type": "RUN", "args": ["make", "root"] },
                { "type": "WORKDIR", "args": ["/app"] }, { "type": "USER", "args": ["user"] },
            ],
        }))
        .unwrap();
        assert_eq!(plan.from, From::Image("base".to_owned()));
        assert_eq!(
            plan.steps.iter().map(|step| step.force).collect::<Vec<_>>(),
            [false, true, true, true, true]
        );
        assert_eq!(
            plan.steps[2].what,
            What::Run { command: "make".to_owned(), user: Some("root".to_owned()) }
        );
    }

    #[test]
    fn what_a_build_cannot_do_is_refused_by_step_and_name() {
        let step = |step: Value| plan(json!({ "fromImage": "base", "steps": [step] })).unwrap_err();
        for bad in [
            json!({ "type": "RUN", "args": [] }),
            json!({ "type": "RUN", "args": ["true", "postgres"] }),
            json!({ "type": "COPY", "args": ["a", "b"] }),
            json!({ "type": "COPY", "args": ["a", "b", "", "rwx"], "filesHash": "ab".repeat(32) }),
            json!({ "type": "COPY", "args": ["a", "b", "", ""], "filesHash": "../../etc/passwd" }),
            json!({ "type": "ENV", "args": ["A"] }),
            json!({ "type": "ENV", "args": ["A=B", "c"] }),
            json!({ "type": "VOLUME", "args": ["/x"] }),
        ] {
            let no = step(bad.clone());
            assert!(no.status() == 400 && no.message().starts_with("step 1: "), "{bad}");
        }
        for bad in [
            json!({}),
            json!({ "fromImage": "a", "fromTemplate": "b" }),
            json!({ "fromImage": "a", "fromImageRegistry": { "type": "registry", "username": "u", "password": "p" } }),
            json!({ "fromImage": "a", "startCmd": "a\u{0}b" }),
            json!({ "fromImage": "a", "readyCmd": "a\u{0}b" }),
            json!({ "fromImage": "a", "steps": vec![json!({ "type": "USER", "args": ["user"] }); MOST_STEPS + 1] }),
        ] {
            assert_eq!(plan(bad.clone()).unwrap_err().status(), 400, "{bad}");
        }
    }

    #[test]
    fn paths_are_seen_from_where_the_steps_work() {
        assert_eq!(from("/app", "x/../y"), "/app/y");
        assert_eq!(from("/app", "."), "/app/");
        assert_eq!(from("/", "~/z/"), "/home/user/z/");
        assert_eq!(from("/app", "/../etc"), "/etc");
    }
}
