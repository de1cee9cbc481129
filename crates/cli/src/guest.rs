//! What `blastbox run` does for the tier `wasm`, which runs no programs of an image: interpreters by name, and modules that the
//! caller brings.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use blastbox_images::{Image, Language, ModuleImage};
use blastbox_isolation::Facts;
use blastbox_isolation::tiers::NoInterpreter;
use blastbox_isolation::tiers::wasm::{Compilers, Compiling, Effort, Metering, compile};
use blastbox_policy::{SealedPolicy, Tier, TierChoice};
use blastbox_wire::limits::MAX_TOOLS;

use crate::image::StoreFlag;
use crate::problem::Problem;
use crate::tool::ToolFlag;

/// Where compiled modules are kept, in the state directory.
const CACHE: &str = "wasm";

fn is_wasm(policy: &SealedPolicy) -> bool {
    policy.kernel().tier == TierChoice::Exactly(Tier::Wasm)
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

/// The image that is meant. One that ends in `.wasm`, where the policy has the tier for it, is a module or component, which is compiled.
pub(crate) fn image(policy: &SealedPolicy, store: &StoreFlag, text: &str) -> Result<Image, Problem> {
    match Path::new(text) {
        path if is_wasm(policy) && ModuleImage::is_meant(path) => module(policy, path),
        _ => store.image(text),
    }
}

/// What a box has whose command names a module: that, where nobody said which image is meant.
pub(crate) fn image_of(
    policy: &SealedPolicy,
    image: Image,
    program: Option<&Vec<u8>>,
) -> Result<Image, Problem> {
    let path = program.map(|program| Path::new(OsStr::from_bytes(program)));
    match (path, image) {
        (Some(path), Image::Host(_)) if is_wasm(policy) && ModuleImage::is_meant(path) => {
            module(policy, path)
        }
        (_, image) => Ok(image),
    }
}

/// Compiles a module or component. Done before anything is started: never in a box's way.
fn module(policy: &SealedPolicy, path: &Path) -> Result<Image, Problem> {
    // Only now: looking at the host takes as long as everything else that is checked here.
    let Some(guests) = Facts::look().wasm else { return Ok(Image::host()) };
    let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let name = &stem.parse().map_err(|_| Problem::ModuleName { path: path.to_owned() })?;
    let uid = rustix::process::geteuid().as_raw();
    let state = blastbox_server::places::state(uid, |name| std::env::var_os(name)).ok_or(Problem::NoStore)?;
    let metering = if policy.kernel().fuel.is_some() { Metering::Fuel } else { Metering::None };
    let cache = &state.join(CACHE);
    let among = &Compilers::default();
    let what = Compiling { module: path, name, metering, effort: Effort::Whole, cache, among };
    Ok(Image::Module(Box::new(compile(&guests, what)?)))
}
