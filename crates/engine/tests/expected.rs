//! A caller that asks for equal boxes finds the next one waiting, and cannot tell it from one that was made for it.
//!
//! Runs as whoever runs the tests. `BLASTBOX_BIN_DIR` names the directory of the built programs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail at once")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use blastbox_engine::{BoxSpec, Command, Engine, ExecEnd, ExecEvent, LiveBox};
use blastbox_images::Image;
use blastbox_isolation::Warden;
use blastbox_policy::{Bytes, Profile, SealedPolicy};
use blastbox_wire::agent::{Exit, Io, User};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

struct House {
    warden: u32,
    engine: Engine,
    image: Image,
}

fn open() -> House {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/blastbox");
    let dir = std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(beside, PathBuf::from);
    let warden = Warden::start_program(&dir.join("blastbox-warden")).unwrap();
    House { warden: warden.pid(), engine: Engine::with_warden(warden).unwrap(), image: Image::host() }
}

fn policy(memory: u32) -> SealedPolicy {
    Profile::Default.draft().unwrap().memory(Bytes::mib(memory)).seal().unwrap()
}

impl House {
    /// The processes that the warden has started: the first ones of its boxes.
    fn first_processes(&self) -> Vec<u32> {
        let list = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.warden)).unwrap();
        list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    async fn create(&self, policy: &SealedPolicy) -> LiveBox {
        let spec = BoxSpec { policy, image: &self.image, workspace: None, volumes: &[], secrets: &[] };
        self.engine.create(spec).await.unwrap()
    }

    /// A box that is made, used and ended.
    async fn cycle(&self, policy: &SealedPolicy) {
        let live = self.create(policy).await;
        assert_eq!(said(&live, "uname -n").await, format!("{}\n", live.id().as_host_name()));
        live.end().await;
    }

    /// The one that waits while there is no box.
    async fn waiting(&self) -> u32 {
        eventually("one waits", || self.first_processes().len() == 1).await;
        self.first_processes().pop().unwrap()
    }
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn said(live: &LiveBox, script: &str) -> String {
    let arguments = ["/bin/sh", "-c", script].map(|word| word.as_bytes().to_vec()).to_vec();
    let environment = vec![b"PATH=/usr/bin:/bin".to_vec()];
    let exec = live
        .exec(Command {
            arguments,
            environment,
            directory: b"/tmp".to_vec(),
            io: Io::Pipes,
            user: User::Payload,
        })
        .await;
    let mut text = String::new();
    loop {
        match exec.next().await {
            ExecEvent::Started { .. } | ExecEvent::Called(_) => {}
            ExecEvent::Output { bytes, .. } => text.push_str(&String::from_utf8_lossy(&bytes)),
            ExecEvent::Ended(ExecEnd::Exited { exit: Exit::Code(0), .. }) => return text,
            ExecEvent::Ended(end) => panic!("{script}: {end:?}: {text}"),
        }
    }
}

fn is_harmless(to: &str) -> bool {
    ["/dev/null", "socket:", "anon_inode:"].iter().any(|harmless| to.starts_with(harmless))
}

/// What a process holds open, where we may look.
fn held(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = entries.map(|entry| fs::read_link(entry.unwrap().path()));
    links.filter_map(|link| Some(link.ok()?.to_string_lossy().into_owned())).collect()
}

#[tokio::test]
async fn the_box_that_waited_is_like_any_other_and_belongs_to_one_caller() {
    let (house, policy) = (open(), policy(256));
    house.cycle(&policy).await;
    house.cycle(&policy).await;
    for _ in 0..3 {
        let waited = house.waiting().await;
        eventually("it has put on its last layer", || {
            fs::read_to_string(format!("/proc/{waited}/status")).unwrap().contains("Seccomp:\t2")
        })
        .await;
        // Where we may look.
        eventually("it has let go of what is the warden's", || held(waited).iter().all(|to| is_harmless(to)))
            .await;
        let live = house.create(&policy).await;
        assert!(house.first_processes().contains(&waited));
        let other = house.create(&policy).await;
        let agent = fs::read_to_string(format!("/proc/{waited}/comm")).unwrap();
        assert_eq!(agent.trim(), "blastbox-agent", "the one that waited is the box's first process now");
        assert_eq!(said(&live, "uname -n").await, format!("{}\n", live.id().as_host_name()));
        // Nothing is shared with a neighbour, and nothing of the other's is in sight.
        let spaces = "for kind in cgroup ipc mnt net pid user uts; do readlink /proc/self/ns/$kind; done; ls /proc | grep -c '^[0-9]'";
        let (ours, theirs) = (said(&live, spaces).await, said(&other, spaces).await);
        for (one, another) in ours.lines().zip(theirs.lines()).take(7) {
            assert_ne!(one, another);
        }
        assert_eq!(ours.lines().count(), 8, "{ours}");
        said(&live, "touch /tmp/mine").await;
        assert_eq!(said(&other, "ls /tmp").await, "");
        let (one, two) = tokio::join!(live.end(), other.end());
        assert_eq!((one.ending, two.ending), (None, None));
        assert!(!house.first_processes().contains(&waited));
    }
}

#[tokio::test]
async fn another_plan_does_not_get_it_and_what_nobody_needs_goes() {
    let (house, small, large) = (open(), policy(128), policy(256));
    house.cycle(&small).await;
    house.cycle(&small).await;
    let waited = house.waiting().await;
    let live = house.create(&large).await;
    eventually("it is gone", || !house.first_processes().contains(&waited)).await;
    assert_eq!(house.first_processes().len(), 1);
    live.end().await;
}

#[tokio::test]
async fn it_ends_with_its_warden() {
    let (house, policy) = (open(), policy(128));
    house.cycle(&policy).await;
    house.cycle(&policy).await;
    let waited = house.waiting().await;
    drop(house.engine);
    let there = PathBuf::from(format!("/proc/{waited}"));
    eventually("it is gone", || !there.exists()).await;
}

#[tokio::test]
async fn one_that_is_killed_is_missed_by_nobody() {
    let (house, policy) = (open(), policy(128));
    house.cycle(&policy).await;
    house.cycle(&policy).await;
    let waited = house.waiting().await;
    let pid = rustix::process::Pid::from_raw(waited.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("it is gone", || house.first_processes().is_empty()).await;
    house.cycle(&policy).await;
}
