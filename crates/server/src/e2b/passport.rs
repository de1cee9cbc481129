//! What the next daemon has to know of a sandbox whose box outlives this one because it is paused to disk. One file for each sandbox,
//! in `sandboxes` beside the templates that tenants build, for the daemon's user alone: the sandbox's tokens and variables are in it.
//! It is written when the sandbox is made, so that one which the operator pauses to disk by hand is known too.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use blastbox_engine::keeper::Tenant;
use blastbox_wire::BoxId;
use serde::{Deserialize, Serialize};

use super::control::network::Reaches;
use super::copies::Portrait;
use super::ports::Front;
use super::sandbox::{AtTimeout, Envs, Made, OnTraffic, Plans, Sandbox};
use super::template::Size;
use super::token::Token;

/// The longest that is read. Variables and metadata of files are bounded where they are taken.
const MOST: u64 = 8 << 20;
const END: &str = ".json";

/// Where they are.
#[derive(Debug, Clone)]
pub(super) struct Passports(PathBuf);

/// What is written down. Never printed: tokens are in it.
#[derive(Serialize, Deserialize)]
struct Passport<P> {
    tenant: String,
    template: String,
    token: String,
    traffic_token: Option<String>,
    size: Size,
    has_root: bool,
    envs: BTreeMap<String, String>,
    pauses_at_timeout: bool,
    wakes_on_traffic: bool,
    internet: Option<bool>,
    /// Hosts that it reaches; `None`: everything public.
    reaches: Option<Vec<String>>,
    life_seconds: u64,
    workdir: Option<String>,
    #[serde(default)]
    front: Front,
    /// What it was when it was paused to disk.
    portrait: Option<P>,
}

impl Passports {
    /// Those beside these templates.
    pub(super) fn beside(templates: &Path) -> Self {
        Self(templates.join("sandboxes"))
    }

    fn file(&self, sandbox: &str) -> PathBuf {
        self.0.join(format!("{sandbox}{END}"))
    }

    /// Writes down what is known of a sandbox now. Looks at the disk.
    pub(super) fn write(&self, sandbox: &Sandbox) -> io::Result<()> {
        sandbox.documented(|portrait| {
            let text = serde_json::to_vec(&Passport::of(sandbox, portrait))?;
            DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
            let (new, at) = (self.0.join(format!("{}.new", sandbox.id())), self.file(sandbox.id()));
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&text)?;
            // Its machine outlives the host's next start, and is useless to a face that does not know it.
            if portrait.is_some() {
                file.sync_all()?;
            }
            fs::rename(&new, &at)?;
            if portrait.is_some() { File::open(&self.0)?.sync_all() } else { Ok(()) }
        })
    }

    /// It is over.
    pub(super) fn remove(&self, sandbox: &Sandbox) {
        sandbox.undocumented();
        // An error: there was none, or the next start takes it away.
        fs::remove_file(self.file(sandbox.id())).ok();
    }

    /// Those that an earlier daemon wrote. Of what cannot be read, or names no box, nothing is left.
    pub(super) fn take_up(&self, lives: impl Fn(&Tenant, &BoxId) -> bool) -> Vec<Sandbox> {
        let Ok(listed) = fs::read_dir(&self.0) else { return Vec::new() };
        let read = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let id: BoxId = format!("bx_{}", name.strip_suffix(END)?).parse().ok()?;
            let made = read(&entry.path(), id)?;
            lives(&made.tenant, &made.box_id).then_some(made)
        };
        let mut found = Vec::new();
        for entry in listed.filter_map(Result::ok) {
            let path = entry.path();
            match read(entry) {
                Some(sandbox) => found.push(sandbox),
                None => drop(fs::remove_file(path)),
            }
        }
        found
    }
}

fn read(path: &Path, box_id: BoxId) -> Option<Sandbox> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(MOST).read_to_end(&mut text).ok()?;
    let passport: Passport<Portrait> = serde_json::from_slice(&text).ok()?;
    let mut sandbox = Sandbox::new(Made {
        box_id,
        tenant: passport.tenant.parse().ok()?,
        template: passport.template,
        token: Token::kept(passport.token),
        traffic_token: passport.traffic_token.map(Token::kept),
        size: passport.size,
        has_root: passport.has_root,
        envs: Envs(passport.envs),
        plans: Plans {
            on_timeout: if passport.pauses_at_timeout { AtTimeout::Pause } else { AtTimeout::Kill },
            on_traffic: if passport.wakes_on_traffic { OnTraffic::Resume } else { OnTraffic::StayPaused },
            internet: passport.internet,
            // What holds is in its policy; this is shown while it lies on disk.
            reaches: match passport.reaches {
                None => Reaches::Everything,
                Some(hosts) if hosts.is_empty() => Reaches::Nothing,
                Some(hosts) => {
                    Reaches::Named(hosts.iter().map(|host| host.parse()).collect::<Result<_, _>>().ok()?)
                }
            },
        },
        life: Duration::from_secs(passport.life_seconds),
        workdir: passport.workdir,
    });
    sandbox.front = passport.front;
    if let Some(portrait) = passport.portrait {
        sandbox.lies_as(portrait);
    }
    Some(sandbox)
}

impl<'a> Passport<&'a Portrait> {
    fn of(sandbox: &Sandbox, portrait: Option<&'a Portrait>) -> Self {
        Self {
            tenant: sandbox.tenant.to_string(),
            template: sandbox.template.clone(),
            token: sandbox.token.show_to_owner().to_owned(),
            traffic_token: sandbox.traffic_token.as_ref().map(|token| token.show_to_owner().to_owned()),
            size: sandbox.size,
            has_root: sandbox.has_root,
            envs: sandbox.envs.0.clone(),
            pauses_at_timeout: sandbox.plans.on_timeout == AtTimeout::Pause,
            wakes_on_traffic: sandbox.plans.on_traffic == OnTraffic::Resume,
            internet: sandbox.internet(),
            reaches: match &sandbox.plans.reaches {
                Reaches::Nothing => Some(Vec::new()),
                Reaches::Named(hosts) => Some(hosts.iter().map(ToString::to_string).collect()),
                Reaches::Everything => None,
            },
            life_seconds: sandbox.life().as_secs(),
            workdir: sandbox.workdir.clone(),
            front: sandbox.front.clone(),
            portrait,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::testing::Scratch;

    fn sandbox(byte: u8) -> Sandbox {
        Sandbox::new(Made {
            box_id: BoxId::from_random([byte; 20]),
            tenant: "ann".parse().unwrap(),
            template: "machine".to_owned(),
            token: Token::new().unwrap(),
            traffic_token: Token::new(),
            size: Size { cpus: 2, memory_mib: 384, disk_mib: 192 },
            has_root: true,
            envs: Envs(BTreeMap::from([("KEY".to_owned(), "value".to_owned())])),
            plans: Plans {
                on_timeout: AtTimeout::Pause,
                on_traffic: OnTraffic::Resume,
                internet: Some(false),
                reaches: Reaches::Named(vec!["*.example.com".parse().unwrap(), "8.8.8.8".parse().unwrap()]),
            },
            life: Duration::from_secs(77),
            workdir: Some("/srv".to_owned()),
        })
    }

    #[test]
    fn the_next_daemon_knows_what_this_one_knew_and_nobody_else_can_read_it() {
        let scratch = Scratch::new("passports");
        let passports = Passports::beside(scratch.path());
        assert!(passports.take_up(|_, _| true).is_empty());
        let (mut one, other) = (sandbox(1), sandbox(2));
        one.front = Front::of(Some("localhost:${PORT}"), Some(&[443])).unwrap();
        one.lies_as(Portrait::default());
        passports.write(&one).unwrap();
        passports.write(&other).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&passports.0), mode(&passports.file(one.id()))), (0o700, 0o600));
        let found = passports.take_up(|tenant, id| tenant.as_str() == "ann" && *id == one.box_id);
        assert_eq!(found.len(), 1);
        let again = &found[0];
        assert!(again.token.is(one.token.show_to_owner().as_bytes()));
        assert!(again.traffic_token.is_some() && again.rises().is_some());
        assert_eq!(
            (again.plans.clone(), again.life(), again.size),
            (one.plans.clone(), one.life(), one.size)
        );
        assert_eq!(again.front, one.front);
        assert_eq!((again.envs.0["KEY"].as_str(), again.workdir.as_deref()), ("value", Some("/srv")));
        assert!(!passports.file(other.id()).exists(), "its box is gone, and so is what was known of it");
    }

    #[test]
    fn nobody_waits_for_a_disk_to_say_that_a_sandbox_lies_down_or_rises() {
        let one = sandbox(1);
        one.lies_as(Portrait::default());
        one.documented(|portrait| {
            // On this very thread: whoever held it while it writes would wait for ever.
            assert!(portrait.is_some() && one.rises().is_some() && one.rises().is_none());
            one.lies_as(Portrait::default());
            Ok(())
        })
        .unwrap();
        assert!(one.rises().is_some());
    }

    #[test]
    fn what_is_no_passport_is_taken_away_and_an_ended_sandbox_gets_none_any_more() {
        let scratch = Scratch::new("passports");
        let passports = Passports::beside(scratch.path());
        let one = sandbox(1);
        passports.write(&one).unwrap();
        fs::write(passports.file(one.id()), "{").unwrap();
        fs::write(passports.0.join("strange.json"), "{}").unwrap();
        assert!(passports.take_up(|_, _| true).is_empty());
        assert_eq!(fs::read_dir(&passports.0).unwrap().count(), 0);
        passports.remove(&one);
        passports.write(&one).unwrap();
        assert!(!passports.file(one.id()).exists(), "a write that came late brings nothing back");
    }
}
