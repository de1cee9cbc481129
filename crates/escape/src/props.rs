//! What the host prepares around one performance of an attempt, and what became of it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::ask::{Ask, words};
use crate::attempt::{Attempt, Prop, Script};
use crate::layer::Layer;
use crate::process::{Input, Kind, Running};
use crate::reply::Copying;
use crate::scene::Scene;

/// A process of the host that holds a secret and must not be reached. It waits for a word that never comes.
#[derive(Debug)]
struct Decoy(Running);

impl Decoy {
    fn start(ask: &Ask, scene: &Scene) -> io::Result<Self> {
        let arguments = words(["-c", "read word; :", &scene.secret]).collect();
        let variables = vec![("DECOY_TOKEN", scene.secret.clone())];
        ask.start((Kind::Control, Path::new("/bin/sh")), arguments, variables, Input::Open).map(Self)
    }

    fn sign(&mut self) -> Option<String> {
        self.0.has_ended().then(|| "a process of the host was ended".to_owned())
    }
}

/// Everything around one performance; goes with it.
#[derive(Debug)]
pub(crate) struct Props {
    pub(crate) scene: Scene,
    decoy: Option<Decoy>,
    leaked: Option<OwnedFd>,
    /// What boxes must not learn besides the secret.
    facts: Vec<String>,
    pub(crate) copying: Option<Copying>,
}

impl Props {
    pub(crate) fn for_attempt(attempt: &Attempt, ask: &Ask) -> io::Result<Self> {
        let scene = if ask.lifted == Some(Layer::Mounts) { Scene::passable()? } else { Scene::new()? };
        let decoy = if attempt.has(Prop::Decoy) { Some(Decoy::start(ask, &scene)?) } else { None };
        let leaked = if attempt.has(Prop::LeakedDescriptor) {
            let open = OwnedFd::from(File::open(&scene.directory)?);
            let high = rustix::io::fcntl_dupfd_cloexec(&open, 60)?;
            rustix::io::fcntl_setfd(&high, rustix::io::FdFlags::empty())?;
            Some(high)
        } else {
            None
        };
        let copying = match attempt.script {
            Script::Reply(reply) => Some(Copying::new(reply, &scene.directory)?),
            Script::Line(_) | Script::Python(_) | Script::Shell(_) | Script::Frames(..) => None,
        };
        let facts = attempt.props.iter().flat_map(|prop| facts(*prop)).collect();
        Ok(Self { scene, decoy, leaked, facts, copying })
    }

    /// Whether something that an attempt reads can be told from what the host has: a secret that lies there, or facts.
    pub(crate) fn can_compare(&self) -> bool {
        self.decoy.is_some() || !self.facts.is_empty()
    }

    /// What attempts are told.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = self.scene.variables();
        if let Some(decoy) = &self.decoy {
            variables.push(("ESCAPE_DECOY", decoy.0.id().to_string()));
        }
        if let Some(leaked) = &self.leaked {
            variables.push(("ESCAPE_FD", leaked.as_raw_fd().to_string()));
        }
        if let Some(copying) = &self.copying {
            variables.push(("ESCAPE_REPLY", copying.file.display().to_string()));
            variables.push(("ESCAPE_TARGET", copying.target.display().to_string()));
            variables.push(("ESCAPE_ONE_FILE", copying.one_file().to_owned()));
        }
        variables
    }

    /// What the host sees on its own side.
    pub(crate) fn signs(&mut self, output: &str) -> Vec<String> {
        let mut signs = self.scene.signs(output, &self.facts);
        signs.extend(self.decoy.as_mut().and_then(Decoy::sign));
        signs.extend(self.copying.iter().flat_map(Copying::signs));
        signs
    }
}

fn one(path: &str) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(64 * 1024).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

/// Facts about the host that boxes must not learn.
fn facts(prop: Prop) -> Vec<String> {
    let mut facts: Vec<String> = match prop {
        Prop::HostFacts => {
            let cards = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
            let cards = cards.filter_map(|card| one(card.path().join("address").to_str()?));
            ["/proc/sys/kernel/random/boot_id", "/etc/machine-id"]
                .into_iter()
                .filter_map(one)
                .chain(cards)
                .collect()
        }
        Prop::HostFile(path) => one(path).into_iter().collect(),
        Prop::HostLog => log(),
        Prop::Workspace | Prop::LeakedDescriptor | Prop::Decoy | Prop::TwoBoxes | Prop::Neighbours => {
            Vec::new()
        }
    };
    // Shorter ones, and the address of a loopback, say nothing about this host.
    facts.retain(|fact| fact.len() > 5 && fact != "00:00:00:00:00:00");
    if prop == Prop::HostFacts {
        // With the word that the attempt puts before it: the name of a host may be a word that stands anywhere.
        facts.extend(one("/proc/sys/kernel/hostname").map(|name| format!("nodename={name}\n")));
    }
    facts
}

/// What the host's kernel has said lately, where the caller may read it: whole lines, long enough that no other kernel says
/// the same.
fn log() -> Vec<String> {
    let mut said = Vec::new();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(device) = open("/dev/kmsg", flags, Mode::empty()) else { return said };
    let mut record = vec![0_u8; 8192];
    // One record for each read, until there are no more.
    for _ in 0..20_000 {
        let Ok(count) = rustix::io::read(&device, record.as_mut_slice()) else { break };
        let text = String::from_utf8_lossy(record.get(..count).unwrap_or_default()).into_owned();
        let message = text.split_once(';').map_or("", |(_, rest)| rest.lines().next().unwrap_or_default());
        if message.len() >= 40 && message.is_ascii() && !message.contains('\\') {
            said.push(message.to_owned());
        }
    }
    let old = said.len().saturating_sub(50);
    said.split_off(old)
}
