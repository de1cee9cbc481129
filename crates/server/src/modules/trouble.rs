//! Why there is no such module, or none can be brought.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use axum::http::StatusCode;
use blastbox_engine::keeper::KeepError;
use blastbox_isolation::tiers::wasm::CompileError;
use blastbox_policy::BadGuest;

use crate::trouble::line;

/// Why there is no such module, or none can be brought.
#[derive(Debug, thiserror::Error)]
pub enum ModuleTrouble {
    /// The operator wants none.
    #[error("modules are off here")]
    Off,
    /// Nobody here runs one.
    #[error("the tier wasm is not installed beside this daemon")]
    NotInstalled,
    /// Nobody here runs a component.
    #[error("this is a component, and blastbox-wasm-component is not installed beside blastbox-wasm")]
    NoComponentWorker,
    /// No guest can be called so.
    #[error(transparent)]
    BadName(BadGuest),
    /// There is none of this name.
    #[error("there is no module {name:?} of this tenant{}", besides(.known))]
    Unknown {
        /// What it should be called.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// Its file is not what was brought.
    #[error("the module {name:?} was changed on the disk, or is not whole there")]
    Damaged {
        /// What it is called.
        name: String,
    },
    /// The compiler refused it, with a code in front.
    #[error("{0}")]
    Unfit(String),
    /// The compiler was ended by its limits.
    #[error("the compiler was ended while it compiled this: over its limit of time or memory")]
    TooMuch,
    /// It is larger than any that may be brought.
    #[error("a module has at most {most} bytes here")]
    TooLarge {
        /// How many.
        most: u64,
    },
    /// The tenant has as many as it may.
    #[error("this tenant has {most} modules, the most that it may")]
    Many {
        /// How many.
        most: usize,
    },
    /// The tenant's modules take as much of the disk as they may.
    #[error("the modules of this tenant, with their machine code, would have more than {most} bytes")]
    Full {
        /// How much.
        most: u64,
    },
    /// What must stay free on the disk would not.
    #[error("the disk of this daemon has no room for it: what must stay free there would not")]
    DiskFull,
    /// Another one of this tenant is on its way.
    #[error("another module of this tenant is being brought or compiled")]
    Underway,
    /// Others are being compiled, and went before it for too long.
    #[error("modules of other tenants are being compiled")]
    Busy,
    /// The ledger does not take it.
    #[error("it cannot be recorded, and so is not done")]
    Unrecorded(KeepError),
    /// The daemon is ending.
    #[error("blastbox is stopping")]
    Stopping,
    /// The place where they are kept.
    #[error("modules cannot be kept: {0}")]
    Place(io::Error),
    /// The compiler could not do its work. Why is the operator's to know: it says where things lie on this host.
    #[error("the compiler could not do its work; the daemon's log says why")]
    Compiler(CompileError),
    /// A defect of ours.
    #[error("blastbox failed at this module; the daemon goes on")]
    Defect,
}

impl From<io::Error> for ModuleTrouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull,
            _ => Self::Place(error),
        }
    }
}

impl From<CompileError> for ModuleTrouble {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Refused(said) if said.starts_with("wasm_") => Self::Unfit(said),
            CompileError::NoComponentWorker(_) => Self::NoComponentWorker,
            CompileError::Ended(_) => Self::TooMuch,
            CompileError::Stopped => Self::Stopping,
            broken @ (CompileError::Refused(_)
            | CompileError::Start { .. }
            | CompileError::Cache { .. }
            | CompileError::Unclear { .. }) => Self::Compiler(broken),
        }
    }
}

fn besides(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; it has {}", names.join(", ")) }
}

impl ModuleTrouble {
    /// The stable code; that of the compiler, where it has said one.
    pub(crate) fn code(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Off => "modules_off",
            Self::NotInstalled => "wasm_not_installed",
            Self::NoComponentWorker => "wasm_no_component_worker",
            Self::BadName(_) => "bad_field",
            Self::Unknown { .. } => "module_unknown",
            Self::Damaged { .. } => "module_damaged",
            Self::Unfit(said) => return said.split(':').next().unwrap_or_default().to_owned().into(),
            Self::TooMuch => "wasm_compile_limit",
            Self::TooLarge { .. } => "wasm_too_large",
            Self::Many { .. } | Self::Full { .. } => "modules_full",
            Self::DiskFull => "modules_disk_full",
            Self::Underway => "module_underway",
            Self::Busy => "compiler_busy",
            Self::Unrecorded(error) => error.code(),
            Self::Stopping => "stopping",
            Self::Place(_) => "modules_unusable",
            Self::Compiler(_) => "compiler_failed",
            Self::Defect => "internal",
        })
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Off => StatusCode::FORBIDDEN,
            Self::BadName(_)
            | Self::Unknown { .. }
            | Self::Unfit(_)
            | Self::TooMuch
            | Self::NotInstalled
            | Self::NoComponentWorker => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Many { .. } | Self::Full { .. } | Self::Underway => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy | Self::Stopping | Self::Unrecorded(_) | Self::Place(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            Self::Damaged { .. } | Self::Compiler(_) | Self::Defect => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(crate) fn fix(&self) -> Option<&'static str> {
        Some(match self {
            Self::Off => "have the operator allow them: [modules] in the daemon's configuration",
            Self::NotInstalled | Self::NoComponentWorker => {
                "have the operator install it: `make wasm` builds it, `blastbox doctor` says what is missing"
            }
            Self::BadName(_) => "write letters, digits, - and _",
            Self::Unknown { .. } => "bring it: `blastbox module add FILE.wasm`, or PUT /v1/modules/NAME",
            Self::Damaged { .. } => {
                "bring it again: `blastbox module add FILE.wasm`, or PUT /v1/modules/NAME"
            }
            Self::Unfit(_) | Self::TooMuch => {
                "bring a module of WASI preview 1 with a function `_start` (Rust: --target wasm32-wasip1), or a component of WASI 0.2 with \
                 `wasi:cli/run` (--target wasm32-wasip2)"
            }
            Self::TooLarge { .. } => "bring a smaller one, or have the operator raise modules.largest",
            Self::Many { .. } => {
                "take one away with `blastbox module rm NAME`, or have the operator raise modules.count"
            }
            Self::Full { .. } => {
                "take one away with `blastbox module rm NAME`, or have the operator raise modules.disk"
            }
            Self::DiskFull => {
                "take modules away with `blastbox module rm NAME`, or have the operator make room on the disk of the state directory"
            }
            Self::Underway => "wait for that one, and send it again",
            Self::Busy => "send it again in a minute",
            Self::Unrecorded(_) => {
                "have the operator look at the ledger (`blastbox audit verify`) and at the disk, and start the daemon again"
            }
            Self::Stopping => "try again",
            Self::Place(_) | Self::Compiler(_) | Self::Defect => return None,
        })
    }

    /// What the operator is told of it, and nobody else.
    pub(crate) fn cause(&self) -> Option<String> {
        match self {
            Self::Compiler(error) => Some(line(error)),
            _ => None,
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Underway => Some(Duration::from_secs(1)),
            Self::Busy => Some(Duration::from_secs(30)),
            Self::Stopping => Some(Duration::from_secs(5)),
            _ => None,
        }
    }
}
