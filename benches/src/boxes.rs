//! Boxes to measure, made by the engine in this process.

use std::io;
use std::path::PathBuf;

use blastbox_engine::{BoxSpec, Command, Ended, Engine, ExecEnd, ExecEvent, LiveBox};
use blastbox_images::Image;
use blastbox_isolation::Warden;
use blastbox_policy::{Bytes, Profile, SealedPolicy};
use blastbox_wire::agent::{Exit, Io, User};
use rustix::process::{Resource, Rlimit};
use tokio::runtime::{Builder, Runtime};

use crate::paper::Wrong;

/// An engine, and what its boxes are made from.
#[derive(Debug)]
pub(crate) struct House {
    /// The process id of its warden.
    pub(crate) warden: u32,
    engine: Engine,
    policy: SealedPolicy,
    image: Image,
}

/// The runtime that the command uses as well: one thread.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Where the programs are: those that were installed for this run, or those beside this one.
pub(crate) fn programs() -> Result<PathBuf, Wrong> {
    if let Some(folder) = std::env::var_os("BLASTBOX_BIN_DIR") {
        return Ok(folder.into());
    }
    let own = std::env::current_exe()?;
    Ok(own.parent().ok_or("this program lies nowhere")?.to_owned())
}

impl House {
    /// Starts an engine. Inside a runtime. The profile is the one that a run without options gets.
    pub(crate) fn open() -> Result<Self, Wrong> {
        let policy = Profile::Default.draft()?.output(Bytes::mib(1024)).seal()?;
        let warden = Warden::start_program(&programs()?.join("blastbox-warden"))?;
        Ok(Self { warden: warden.pid(), engine: Engine::with_warden(warden)?, policy, image: Image::host() })
    }

    /// The engine alone.
    pub(crate) fn into_engine(self) -> Engine {
        self.engine
    }

    fn spec(&self) -> BoxSpec<'_> {
        BoxSpec { policy: &self.policy, image: &self.image, workspace: None, volumes: &[], secrets: &[] }
    }

    /// A box whose agent has answered.
    pub(crate) async fn create(&self) -> Result<LiveBox, Wrong> {
        Ok(self.engine.create(self.spec()).await?)
    }

    /// From nothing through a command to nothing. What the engine says about it.
    pub(crate) async fn cycle(&self, arguments: &[&str]) -> Result<Ended, Wrong> {
        let live = self.engine.launch(self.spec()).await?;
        let printed = run(&live, arguments).await;
        let ended = live.end().await;
        printed.map(|_| ended)
    }
}

/// Runs a command, and drops what it prints.
pub(crate) async fn run(live: &LiveBox, arguments: &[&str]) -> Result<u64, Wrong> {
    let command = Command {
        arguments: arguments.iter().map(|word| word.as_bytes().to_vec()).collect(),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
        directory: b"/".to_vec(),
        io: Io::Pipes,
        user: User::Payload,
    };
    let exec = live.exec_last(command, Vec::new()).await;
    let mut printed = 0;
    loop {
        match exec.next().await {
            ExecEvent::Started { .. } | ExecEvent::Called(_) => {}
            ExecEvent::Output { bytes, .. } => printed += u64::try_from(bytes.len())?,
            ExecEvent::Ended(ExecEnd::Exited { exit: Exit::Code(0), .. }) => return Ok(printed),
            ExecEvent::Ended(end) => return Err(format!("{arguments:?} ended badly: {end:?}").into()),
        }
    }
}

/// Every box costs this process a descriptor or two.
pub(crate) fn raise_descriptor_limit() -> io::Result<()> {
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
    Ok(rustix::process::setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })?)
}
