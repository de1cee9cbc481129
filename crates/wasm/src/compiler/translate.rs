//! The process that looks into a stranger's module: `[--brief] [--metered] translate KIND`, the module on standard input, machine code on standard
//! output; and how the other one starts it and takes what it says.
//!
//! Trust: once it has read the module it may be anybody's. It is alone in namespaces without a file or a network, has no capability and, where root can become one, is nobody's user, opens no file, makes no socket,
//! starts nothing (its filter), and what it says is counted, hashed and written down by the process that started it.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use blastbox_sys::identity::{self, Groups, Keep, limit};
use blastbox_sys::landlock::{Tcp, restrict};
use blastbox_sys::seccomp::Filter;
use blastbox_sys::spawn::keep_only;
use blastbox_wasm::engine::{Metering, Purpose, component_engine, engine};
use blastbox_wasm::manifest::{Hash, Hasher, Kind, is_component};
use blastbox_wasm::offered::{self, Unfit};
use rustix::process::{Pid, PidfdFlags, Resource, Signal, pidfd_open, pidfd_send_signal};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::alone::withdraw;
use crate::effort::{Effort, Limits};
use crate::trouble::{MOST_MODULE, Trouble, one_line};

/// First id of those who look into modules for root: below those of gateways, whose ids and boxes' it never has.
const FIRST_ID: u32 = 0x6700_0000;
const IDS: u32 = 1 << 24;
const NAMESPACES: &str = "give the compiler of a stranger's module namespaces of its own, which every box needs too: `blastbox doctor` says what is missing here";
/// What is passed on of its complaint.
const MOST_SAID: u64 = 4096;

/// Is that process.
pub(crate) fn translate(kind: Kind, metering: Metering, effort: Effort) -> Result<Vec<u8>, Trouble> {
    let failed = |what: &'static str| move |source| Trouble::Process { what, source };
    keep_only([]).map_err(failed("close what was inherited"))?;
    match withdraw() {
        // What was reached of it holds, and all else that confines this process.
        Err(_) if effort == Effort::Own => {}
        other => other.map_err(failed(NAMESPACES))?,
    }
    give_up().map_err(failed("give up its power"))?;
    identity::die_with_parent().map_err(failed("be tied to whoever started this"))?;
    let Limits { seconds, memory, .. } = effort.limits();
    for (what, most) in [(Resource::Cpu, seconds), (Resource::As, memory)] {
        limit(what, most).map_err(failed("limit this process"))?;
    }
    let wasm = take(&mut io::stdin().lock(), MOST_MODULE).map_err(failed("read the module"))?;
    let wasm = wasm.ok_or(Trouble::TooLarge)?;
    confine().map_err(failed("confine this process"))?;
    match (kind, is_component(&wasm)) {
        (Kind::Component, true) => translate_component(metering, &wasm),
        (Kind::Component, false) => Err(Trouble::Invalid("it is no component".to_owned())),
        (_, true) => Err(Trouble::Component),
        (_, false) => {
            let engine = engine(Purpose::Compile, metering).map_err(invalid)?;
            let module = wasmtime::Module::from_binary(&engine, &wasm).map_err(invalid)?;
            offered::check(&engine, kind, &module).map_err(unfit)?;
            module.serialize().map_err(invalid)
        }
    }
}

fn translate_component(metering: Metering, wasm: &[u8]) -> Result<Vec<u8>, Trouble> {
    offered::check_preview(wasm).map_err(unfit)?;
    let engine = component_engine(metering).map_err(invalid)?;
    let component = wasmtime::component::Component::from_binary(&engine, wasm).map_err(invalid)?;
    offered::check_component(&engine, &component).map_err(unfit)?;
    component.serialize().map_err(invalid)
}

fn invalid(error: wasmtime::Error) -> Trouble {
    Trouble::Invalid(one_line(&format!("{error:?}")))
}

fn unfit(unfit: Unfit) -> Trouble {
    match unfit {
        Unfit::Imports(what) => Trouble::Imports(one_line(&what)),
        Unfit::NoStart => Trouble::NoStart,
        Unfit::Needs(what) => Trouble::Needs(what),
        Unfit::Newer(what) => Trouble::Newer(one_line(&what)),
        Unfit::NoRun => Trouble::NoRun,
    }
}

/// Root becomes a user that nobody is, and whoever has capabilities has none afterwards. No core of it goes to a program of the host, and
/// nobody of its user looks into it: the last of all, because a change of ids undoes it.
fn give_up() -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let mut random = [0_u8; 4];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let id = FIRST_ID + u32::from_ne_bytes(random) % IDS;
        match identity::become_user(id, id, Groups::Clear) {
            // A root that has no other users to become (of a user namespace with few of them) is none of the host, and has no power either.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::PermissionDenied) => {}
            other => other?,
        }
    }
    identity::no_new_privileges()?;
    // An ordinary user has none to give up, and may not even say so.
    if !rustix::thread::capabilities(None)?.permitted.is_empty() {
        identity::reduce_capabilities(Keep::Nothing)?;
    }
    identity::hide()
}

/// From here on nothing can be opened, reached or started: what is compiled is a stranger's. The filter holds by itself, Landlock
/// a second time where the kernel has it.
fn confine() -> io::Result<()> {
    restrict(&[], Tcp::DenyAll, 0).map(drop)?;
    Filter::for_wasm_compiling().install().map(drop)
}

/// All that comes, if it is no more than this.
pub(crate) fn take(from: &mut impl io::Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(u64::try_from(bytes.len()).is_ok_and(|length| length <= most).then_some(bytes))
}

/// Has a module compiled into a file that is open. Returns hash and size of the code.
#[expect(clippy::disallowed_methods, reason = "the compiler starts itself once more, without any power")]
pub(crate) fn have_translated(
    (kind, metering, effort): (Kind, Metering, Effort),
    wasm: &[u8],
    into: &mut File,
) -> Result<(Hash, u64), Trouble> {
    let failed = |what: &'static str| move |source| Trouble::Process { what, source };
    let mut child = Command::new("/proc/self/exe")
        .args(match effort {
            Effort::Brief => Some("--brief"),
            Effort::Own => Some("--own"),
            Effort::Whole => None,
        })
        .args((metering == Metering::Fuel).then_some("--metered"))
        .args(["translate", kind.as_str()])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed("start the compiler"))?;
    let Limits { patience, code, .. } = effort.limits();
    let heard = watch(&child, patience).and_then(|()| listen(&mut child, (wasm, code), into));
    if !matches!(heard, Ok(Heard { code: Some(_), .. })) {
        // Whatever it still does is of no use.
        child.kill().ok();
    }
    let status = child.wait().map_err(failed("wait for the compiler"))?;
    let Heard { code, said } = heard.map_err(failed("hear the compiler"))?;
    match (code, status.code()) {
        (None, _) => Err(Trouble::TooLarge),
        (Some(code), Some(0)) => Ok(code),
        (Some(_), Some(code)) => {
            let said = one_line(&String::from_utf8_lossy(&said));
            Err(Trouble::Said { code: u8::try_from(code).unwrap_or(1), said })
        }
        (Some(_), None) => Err(Trouble::Ended),
    }
}

/// Ends it when patience does: every wait for it ends then. The thread goes with this process.
fn watch(child: &Child, patience: Duration) -> io::Result<()> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let end = move || {
        std::thread::sleep(patience);
        pidfd_send_signal(&process, Signal::KILL).ok();
    };
    std::thread::Builder::new().spawn(end).map(drop)
}

/// What came from the other process.
struct Heard {
    /// Hash and size of the code; `None`: there was too much of it.
    code: Option<(Hash, u64)>,
    said: Vec<u8>,
}

fn listen(child: &mut Child, (wasm, most): (&[u8], u64), into: &mut File) -> io::Result<Heard> {
    if let Some(mut stdin) = child.stdin.take() {
        // One that ended before it has read everything says why in its last words.
        stdin.write_all(wasm).ok();
    }
    let (mut hasher, mut size) = (Hasher::default(), 0_u64);
    let mut piece = vec![0; 256 * 1024];
    while let Some(stdout) = &mut child.stdout {
        let got = stdout.read(&mut piece)?;
        let bytes = piece.get(..got).unwrap_or_default();
        if bytes.is_empty() {
            break;
        }
        size = size.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
        if size > most {
            return Ok(Heard { code: None, said: Vec::new() });
        }
        hasher.add(bytes);
        into.write_all(bytes)?;
    }
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        stderr.take(MOST_SAID).read_to_end(&mut said)?;
    }
    Ok(Heard { code: Some((hasher.finish(), size)), said })
}
