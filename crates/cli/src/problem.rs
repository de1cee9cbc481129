//! What can be wrong with what was asked, each with what to do about it. All of it exits with 125.

use std::io;
use std::path::PathBuf;

use blastbox_engine::leases::{BadSources, RegisterError};
use blastbox_engine::ledger::LedgerError;
use blastbox_engine::store::StoreError as BoxStoreError;
use blastbox_engine::{CreateError, EngineError, WorkspaceError, causes};
use blastbox_images::machine::MachineError;
use blastbox_images::recipe::RecipeError;
use blastbox_images::{ImageError, StoreError};
use blastbox_isolation::tiers::wasm::CompileError;
use blastbox_isolation::{GatewayError, WardenError};
use blastbox_policy::{Bytes, PolicyError};
use blastbox_server::registry::RegistryError;
use blastbox_wire::limits::{MAX_ARGUMENT, MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_TOOLS};

use crate::capture::MOST_IN_JSON;
use crate::daemon::DaemonProblem;
use crate::output::OutputError;
use crate::reach::BadUrl;

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("there is no command to run")]
    NoCommand { usual: Option<String> },
    #[error("cannot read the policy {path}")]
    ReadPolicy { path: PathBuf, source: io::Error },
    #[error("the policy {path} is not valid")]
    PolicyFile { path: PathBuf, source: Box<PolicyError> },
    #[error(transparent)]
    Policy(Box<PolicyError>),
    #[error(transparent)]
    BadUrl(BadUrl),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Images(#[from] StoreError),
    #[error(transparent)]
    Registry(Box<RegistryError>),
    #[error("the image {from} that the recipe begins with (FROM) cannot be used")]
    NoBase { from: String, source: Box<StoreError> },
    #[error("cannot read the kernel {path}")]
    ReadKernel { path: PathBuf, source: io::Error },
    #[error("an archive is wanted on standard input, and that is a terminal")]
    NothingPiped,
    #[error("cannot read the recipe {path}")]
    ReadRecipe { path: PathBuf, source: io::Error },
    #[error("the recipe {path} is not one")]
    Recipe { path: PathBuf, source: Box<RecipeError> },
    #[error("line {line}: {step}: {why}")]
    Step { line: usize, step: String, why: String },
    #[error("images of Debian are made by mmdebstrap, which is not installed")]
    NoBootstrap,
    #[error("mmdebstrap has not made it: {why}")]
    Bootstrap { why: String },
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error("kernels are fetched by apt and unpacked by dpkg, and {missing} is not installed")]
    NoFetcher { missing: &'static str },
    #[error("{tried} has not brought a kernel: {why}")]
    Fetch { tried: &'static str, why: String },
    #[error("there is no place for images: neither a home nor a state directory is known")]
    NoStore,
    #[error(
        "whether boxes that are paused to disk need an image cannot be seen: {} cannot be read: {error}",
        place.display()
    )]
    PausedUnread { place: PathBuf, error: std::io::Error },
    #[error("no guest of the tier wasm is a shell")]
    NoShellGuest,
    #[error(
        "--tool offers a function to the program in the box, and only programs of the tier wasm can call one"
    )]
    NoTools,
    #[error("{count} functions are offered by --tool; at most {MAX_TOOLS} can be")]
    ManyTools { count: usize },
    #[error("{} has no name that a guest can have: letters, digits, - and _, at most 80", path.display())]
    ModuleName { path: PathBuf },
    #[error(transparent)]
    Module(#[from] CompileError),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error("argument {number} has {length} bytes; the kernel takes at most {MAX_ARGUMENT}")]
    LongArgument { number: usize, length: usize },
    #[error("arguments and environment have {bytes} bytes; the kernel takes at most {MAX_ARGUMENT_BYTES}")]
    LongCommand { bytes: usize },
    #[error("there are {count} arguments or variables; at most {MAX_ARGUMENTS} can be passed")]
    ManyArguments { count: usize },
    #[error(
        "--json holds the whole output in one document, and {limit} are more than the {MOST_IN_JSON} it may hold"
    )]
    MuchForJson { limit: Bytes },
    #[error("cannot read the program {path}")]
    Snippet { path: PathBuf, source: io::Error },
    #[error("the directory {} is gone: somebody has removed it", path.display())]
    Gone { path: PathBuf },
    #[error("--tty needs a terminal, and standard input is none")]
    NotATerminal,
    #[error("cannot set up the terminal")]
    Terminal(#[source] io::Error),
    #[error("cannot write the receipt to {path}")]
    Receipt { path: PathBuf, source: io::Error },
    #[error("cannot write what the kernel of the box says to {path}")]
    Console { path: PathBuf, source: io::Error },
    #[error("cannot write pages into {path}")]
    Papers { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Escape(#[from] blastbox_escape::EscapeError),
    #[error("cannot read the report {path}")]
    ReadReport { path: PathBuf, source: io::Error },
    #[error("cannot become {program}")]
    Tether { program: PathBuf, source: io::Error },
    #[error("process {parent}, whose end was to be this one's, is not its parent")]
    Untethered { parent: u32 },
    #[error("only `run` is known to this program, and {program}, which knows the rest, cannot be used")]
    HandOver { program: &'static str, source: io::Error },
    #[error("cannot find the program that this is")]
    OwnProgram(#[source] io::Error),
    #[error("cannot hear the daemon whose commands of secrets this process runs")]
    Clerk(#[source] io::Error),
    #[error("cannot write the report to {path}")]
    Page { path: PathBuf, source: io::Error },
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("cannot set up the event loop")]
    Runtime(#[source] io::Error),
    #[error("cannot go on serving the MCP client")]
    Mcp(#[source] io::Error),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Store(#[from] BoxStoreError),
    #[error(transparent)]
    Daemon(#[from] DaemonProblem),
    #[error(transparent)]
    Warden(#[from] WardenError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Secrets(#[from] BadSources),
    #[error("cannot keep the list of leases in {path}")]
    Leases { path: PathBuf, source: io::Error },
    #[error(transparent)]
    LeasesUnread(RegisterError),
    #[error(transparent)]
    Create(#[from] CreateError),
}

impl From<PolicyError> for Problem {
    fn from(error: PolicyError) -> Self {
        Self::Policy(Box::new(error))
    }
}

impl Problem {
    /// What to do about it, where something can be done.
    pub(crate) fn fix(&self) -> Option<String> {
        let fix = match self {
            Self::NoCommand { usual: Some(usual) } => {
                return Some(format!(
                    "commands of images are not followed; what this one says of itself is: blastbox run … -- {usual}"
                ));
            }
            Self::NoBase { from, source }
                if source.code() == "image_unknown" || source.code() == "image_name" =>
            {
                return Some(format!(
                    "a recipe begins with an image of the store, see `blastbox image ls`; bring it there with \
                     `blastbox image pull REGISTRY/{from} --name NAME` or `docker save {from} | blastbox image import - --name NAME`"
                ));
            }
            Self::NoBase { source, .. } => images(source),
            Self::ReadKernel { .. } => {
                "name a package (.deb), a vmlinuz or a vmlinux that you may read, or get one with `blastbox kernel get`"
            }
            Self::NothingPiped => "pipe one in: docker save IMAGE | blastbox image import - --name NAME",
            Self::NoCommand { usual: None } => {
                "write `blastbox run -- COMMAND`, or pipe a program into `blastbox run --lang python`"
            }
            Self::ReadPolicy { .. } => {
                "name a TOML file, or `-` for standard input, or use --profile with one that comes with blastbox"
            }
            Self::PolicyFile { .. } | Self::Policy(_) => {
                "docs/policy.md explains every key; `blastbox policy show --profile default` prints them with their values"
            }
            Self::NoTools => "add --tier wasm, or leave --tool away",
            Self::ManyTools { .. } => "offer fewer, or one that does several things",
            Self::NoShellGuest => "use --lang python or --lang js, or the jail: --tier jail",
            Self::ModuleName { .. } => "give the file such a name, with .wasm behind it",
            Self::Module(CompileError::Cache { .. }) => {
                "take it away from others (chmod go-w) or remove it, or set XDG_STATE_HOME to a directory that is yours"
            }
            Self::Module(CompileError::NoComponentWorker(_)) => {
                "`make wasm` builds it; or bring a module of WASI preview 1 (Rust: --target wasm32-wasip1)"
            }
            Self::Module(_) => {
                "bring a module of WASI preview 1 with a function `_start`, such as `clang --target=wasm32-wasi` makes, or a component of \
                 WASI 0.2 with `wasi:cli/run`, such as `rustc --target wasm32-wasip2` makes"
            }
            Self::Image(ImageError::NoInterpreter { .. }) => return None,
            Self::Image(ImageError::Store(error)) => images(error),
            Self::Images(error) => images(error),
            Self::Image(_) => "use --image host, or a directory that holds a whole root file system",
            Self::Registry(error) => registry(error),
            Self::ReadRecipe { .. } => "name a file with FROM, RUN, COPY, ENV, WORKDIR, USER, CMD",
            Self::Recipe { .. } => "docs/images.md says what a recipe may hold",
            Self::Step { .. } => "see what it says above; steps before it are kept and not run again",
            Self::NoBootstrap => {
                "apt-get install mmdebstrap, or use --image host: this host's own programs, with the gap host-image"
            }
            Self::Bootstrap { .. } => {
                "see what it says above; without root it needs a range in /etc/subuid; a mirror is named with --mirror"
            }
            Self::Machine(MachineError::NoAgent { .. }) => {
                "build all of blastbox's programs with `make build`, and keep them in one directory"
            }
            Self::Machine(_) => {
                "bring a kernel for virtual machines: `blastbox kernel add FILE.deb`, or `blastbox kernel add FILE --modules DIR`"
            }
            Self::NoFetcher { .. } => {
                "download the package linux-image-cloud-amd64 of Debian elsewhere and `blastbox kernel add FILE.deb`; without dpkg, `blastbox kernel add FILE --modules DIR`"
            }
            Self::Fetch { .. } => {
                "see what it says above; try `apt-get update`, or bring a kernel of your own: `blastbox kernel add FILE`"
            }
            Self::PausedUnread { .. } => {
                "name the state directory of the daemon as it is, and do it as its user; nothing was taken away"
            }
            Self::NoStore => "name one with --store DIR, or set HOME",
            Self::Workspace(_) => "name an existing directory that you may read: --workspace DIR[:cow|:ro]",
            Self::LongArgument { .. } | Self::LongCommand { .. } | Self::ManyArguments { .. } => {
                "pass the data through standard input (-i) or a file of the workspace"
            }
            Self::MuchForJson { .. } => "lower --output-limit, or leave out --json and use --receipt FILE",
            Self::Snippet { .. } => "name a file that you may read, or pipe the program in",
            Self::Gone { .. } => "change into a directory that is there (cd), or name one: --workspace DIR",
            Self::NotATerminal => "leave out -t, or use -i to pass standard input on",
            Self::Papers { .. } => "name a directory that is there and that you may write to",
            Self::Receipt { .. } | Self::Console { .. } => "name a file in a directory that you may write to",
            Self::Warden(WardenError::NotInstalled { .. }) => {
                "build the programs with `make build`, and keep them in one directory"
            }
            Self::Ledger(_) => {
                "name the directory of a ledger, which holds ledger-000001.jsonl, or a copy in one file"
            }
            Self::Daemon(problem) => return problem.fix(),
            Self::Warden(_) | Self::Engine(_) => "see what the host lacks with `blastbox doctor`",
            Self::Secrets(_) => {
                "say what each secret stands for in the file that --secrets names; docs/secrets.md has examples"
            }
            Self::Create(CreateError::Secret(_)) => {
                "name the secret, its source and its hosts in the file of --secrets"
            }
            Self::Leases { .. } | Self::LeasesUnread(_) => {
                "name a state directory that blastbox may write to"
            }
            Self::Create(CreateError::Refused { refusal, .. }) => return Some(refusal.fix()),
            Self::Create(CreateError::Gateway(GatewayError::NotInstalled { .. })) => {
                "build all programs with `make build`, and keep them in one directory"
            }
            Self::Escape(_) => {
                "see what the host lacks with `blastbox doctor`, and what there is with `blastbox escape --list`"
            }
            Self::ReadReport { .. } => "name a file that `blastbox escape --json` has printed",
            Self::HandOver { .. } => "install all programs of blastbox side by side",
            Self::Page { .. } => "name a file in a directory that you may write to",
            Self::Output(OutputError::Write { source, .. }) => return output_fix(source),
            Self::BadUrl(_)
            | Self::Output(OutputError::Json(_))
            | Self::OwnProgram(_)
            | Self::Clerk(_)
            | Self::Tether { .. }
            | Self::Untethered { .. }
            | Self::Create(_)
            | Self::Terminal(_)
            | Self::Json(_)
            | Self::Mcp(_)
            | Self::Runtime(_) => {
                return None;
            }
            // It says what to do itself.
            Self::Store(_) => return None,
        };
        Some(fix.to_owned())
    }

    /// The whole chain of causes in one line.
    pub(crate) fn line(&self) -> String {
        causes(self)
    }
}

/// What to do where output cannot be written. Also for the receipt of a run whose output was lost.
pub(crate) fn output_fix(error: &io::Error) -> Option<String> {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    full.contains(&error.kind()).then(|| "make room where the output goes, or send it elsewhere".to_owned())
}

/// What to do about trouble with a registry.
fn registry(error: &RegistryError) -> &'static str {
    match error.code() {
        "registry_insecure" => "use https, or --insecure if you trust every machine on the way",
        "registry_auth" => "name who asks with --username and --password-file",
        "registry_not_found" => "see whether the repository and the tag are there",
        "registry_unreachable" => {
            "see whether the address is right and this host reaches it; what came whole is kept"
        }
        "registry_tls" => "name the certificates to trust with --ca FILE.pem",
        "image_digest_mismatch" => "do not use this registry, or what stands between it and you",
        _ => "docs/images.md says what is asked of a registry",
    }
}

/// What to do about trouble with an image of the store.
fn images(error: &StoreError) -> &'static str {
    match error.code() {
        _ if matches!(error, StoreError::Unread { .. }) => {
            "name a directory, an archive or an OCI layout of this host that you may read, or `-` for standard input; \
             what lies in a registry is fetched with `blastbox image pull`"
        }
        "image_unknown" => "see `blastbox image ls`, and `blastbox image import --help` for how to add one",
        "image_in_use" => {
            "end the boxes that use it (a warm pool and boxes paused to disk count), or leave it to `blastbox image prune` later"
        }
        "image_digest_mismatch" => {
            "take it anew from a source that you trust; what was stored under a name stays as it is"
        }
        "image_too_large" | "image_too_many_entries" => {
            "raise --max-size or --max-entries, if you trust the source"
        }
        "image_disk_full" => {
            "make room, or keep images elsewhere with --store DIR; `blastbox image prune` frees some"
        }
        "image_no_platform" => "choose one with --platform, or an image for this machine",
        "image_compression" => "unpack it first, or compress it with gzip",
        _ => "docs/images.md says what an image may hold and how it is refused",
    }
}
