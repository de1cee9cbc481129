//! How a box is asked for, and what comes back.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use blastbox_policy::{Gap, Tier};
use blastbox_wire::receipt::Receipt;

use crate::frames::Liar;
use crate::layer::Layer;
use crate::process::{Ended, Input, Kind, Running, Start, start};
use crate::stop::Stop;

/// No box takes longer, whatever is tried in it; the limit of the box itself is shorter.
const BOX: Duration = Duration::from_secs(60);
const BOX_LIFE: &str = "20s";
/// The same where a box begins with the boot of a kernel, which an emulated processor takes seconds for.
const MACHINE: Duration = Duration::from_secs(120);
const MACHINE_LIFE: &str = "90s";
/// No control takes longer.
const CONTROL: Duration = Duration::from_secs(15);

/// How boxes are asked for.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) program: PathBuf,
    pub(crate) tier: Tier,
    /// Options of `blastbox run` that make the column.
    pub(crate) options: Vec<OsString>,
    pub(crate) lifted: Option<Layer>,
    /// The `blastbox` of a test build whose agent lies.
    pub(crate) liar: Liar,
    /// What is weaker here than it could be, accepted by name.
    pub(crate) gaps: Vec<Gap>,
    /// Boxes are slow to begin here: only a few attempts are tried.
    pub(crate) few: bool,
    /// The `blastbox` through which everything is started, so that it ends with us.
    pub(crate) tether: PathBuf,
    pub(crate) stop: Stop,
}

impl Ask {
    /// Who answers system calls of the payload, if it is not the host's kernel.
    pub(crate) fn kernel(&self) -> Option<&'static str> {
        match self.tier {
            Tier::Jail => None,
            Tier::Gvisor => Some("gVisor's own kernel"),
            Tier::Microvm => Some("the machine's own kernel"),
            Tier::Wasm => Some("the Wasm worker"),
        }
    }

    pub(crate) fn life(&self) -> &'static str {
        if self.tier == Tier::Microvm { MACHINE_LIFE } else { BOX_LIFE }
    }

    /// How long anything may take.
    pub(crate) fn limit(&self, kind: Kind) -> Duration {
        match kind {
            Kind::Blastbox if self.tier == Tier::Microvm => MACHINE,
            Kind::Blastbox => BOX,
            Kind::Control => CONTROL,
        }
    }

    pub(crate) fn start(
        &self,
        (kind, program): (Kind, &Path),
        arguments: Vec<OsString>,
        variables: Vec<(&'static str, String)>,
        input: Input<'_>,
    ) -> io::Result<Running> {
        let limit = self.limit(kind);
        let (tether, stop) = (self.tether.as_path(), &self.stop);
        start(Start { tether, kind, program, arguments, variables, input, stop }, limit)
    }
}

/// A box that ended.
#[derive(Debug)]
pub(crate) struct Boxed {
    pub(crate) receipt: Option<Receipt>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn read(ended: Ended) -> Boxed {
    let document: Option<serde_json::Value> = serde_json::from_str(&ended.stdout).ok();
    // Bytes and not text: what an attempt prints need not be any.
    let part = |at: &str| {
        let coded = document.as_ref().and_then(|document| document.pointer(at)?.as_str());
        let bytes = coded.and_then(|coded| BASE64_STANDARD.decode(coded).ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let receipt = document.as_ref().and_then(|document| document.get("receipt").cloned());
    Boxed {
        receipt: receipt.and_then(|receipt| serde_json::from_value(receipt).ok()),
        stdout: part("/stdout/base64"),
        stderr: format!("{}{}", ended.stderr, part("/stderr/base64")),
    }
}

pub(crate) fn words<'a>(list: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = OsString> {
    list.into_iter().map(OsString::from)
}

/// Runs something small in a box: whether there are such boxes here, and under which rules.
pub(crate) fn probe(ask: &Ask) -> io::Result<Boxed> {
    let mut arguments: Vec<OsString> = words(["run", "--json", "--quiet"]).collect();
    arguments.extend(ask.options.iter().cloned());
    arguments.extend(words(["--timeout", ask.life()]));
    // A machine whose image has no Python, and a worker that has nothing else, are asked for what attempts need.
    match ask.tier {
        Tier::Jail | Tier::Gvisor => arguments.extend(words(["--", "/bin/true"])),
        Tier::Wasm | Tier::Microvm => arguments.extend(words(["--lang", "python"])),
    }
    ask.start((Kind::Blastbox, &ask.program), arguments, Vec::new(), Input::Text("pass\n"))?.end().map(read)
}
