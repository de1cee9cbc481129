//! What `blastbox run` does for the tier `wasm`, which runs no programs of an image: interpreters by name, and modules that the
//! caller brings.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use blastbox_engine::Engine;
use blastbox_images::{Image, Language};
use blastbox_isolation::tiers::NoInterpreter;
use blastbox_isolation::tiers::wasm::{Compiled, Metering, compile};
use blastbox_isolation::{Facts, Warden};
use blastbox_policy::{SealedPolicy, Tier, TierChoice};
use blastbox_wire::limits::MAX_TOOLS;

use crate::problem::Problem;
use crate::tool::ToolFlag;

/// Where compiled modules are kept, in the state directory.
const CACHE: &str = "wasm";

fn is_wasm(policy: &SealedPolicy) -> bool {
    policy.kernel().tier == TierChoice::Exactly(Tier::Wasm)
}

/// Whether a program is a module or component of the caller's.
fn is_module(program: &[u8]) -> bool {
    Path::new(OsStr::from_bytes(program)).extension() == Some(OsStr::new("wasm"))
}

/// The command that reads a program in this language from standard input.
pub(crate) fn interpreter(
    policy: &SealedPolicy,
    image: &Image,
    language: Language,
) -> Result<Vec<String>, Problem> {
    let found = blastbox_isolation::tiers::interpreter(policy.kernel().tier, image, language);
    found.map_err(|none| match none {
        NoInterpreter::Image(error) => error.into(),
        NoInterpreter::NoShellGuest => Problem::NoShellGuest,
    })
}

/// Whether functions can be offered to the command: guests of this tier alone can call them.
pub(crate) fn tools(policy: &SealedPolicy, tools: &[ToolFlag]) -> Result<(), Problem> {
    match tools.len() {
        0 => Ok(()),
        _ if !is_wasm(policy) => Err(Problem::NoTools),
        1..=MAX_TOOLS => Ok(()),
        count => Err(Problem::ManyTools { count }),
    }
}

/// Compiles the module or component that a command names, if it names one. Done before anything is started: never in a box's way.
pub(crate) fn module(policy: &SealedPolicy, program: Option<&Vec<u8>>) -> Result<Option<Compiled>, Problem> {
    let Some(path) = program.filter(|name| is_wasm(policy) && is_module(name)) else { return Ok(None) };
    // Only now: looking at the host takes as long as everything else that is checked here.
    let Some(guests) = Facts::look().wasm else { return Ok(None) };
    let path = Path::new(OsStr::from_bytes(path));
    let uid = rustix::process::geteuid().as_raw();
    let state = blastbox_server::places::state(uid, |name| std::env::var_os(name)).ok_or(Problem::NoStore)?;
    let metering = if policy.kernel().fuel.is_some() { Metering::Fuel } else { Metering::None };
    Ok(Some(compile(&guests, metering, path, &state.join(CACHE))?))
}

/// An engine whose boxes have that module.
pub(crate) fn engine(warden: Warden, module: Option<&Compiled>) -> Result<Engine, Problem> {
    let Some(Compiled { directory, name, form }) = module else { return Ok(Engine::with_warden(warden)?) };
    let mut seen = Facts::look();
    seen.wasm = seen.wasm.map(|guests| guests.with_own(directory.clone(), name.clone(), *form));
    let program = warden.program().to_owned();
    Ok(Engine::with_supply(warden, Box::new(move || Warden::start_program(&program)), seen)?)
}
