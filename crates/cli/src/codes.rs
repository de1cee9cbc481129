//! The stable words of what can be wrong: those who automate key on them, so they are only ever added.

use blastbox_images::ImageError;
use blastbox_wire::receipt::Outcome;

use crate::problem::Problem;

/// What was printed could not be written where it was to go.
pub(crate) const OUTPUT_UNWRITABLE: &str = "output_unwritable";

impl Problem {
    /// The stable word of it, where others act on it.
    pub(crate) fn code(&self) -> Option<&'static str> {
        match self {
            Self::Image(ImageError::Store(error)) => Some(error.code()),
            Self::Images(error) => Some(error.code()),
            Self::Registry(error) => Some(error.code()),
            Self::NoBootstrap | Self::Bootstrap { .. } => Some("image_not_made"),
            Self::ReadRecipe { .. } | Self::Recipe { .. } => Some("recipe_invalid"),
            Self::Step { .. } => Some("recipe_step_failed"),
            Self::Machine(_) | Self::ReadKernel { .. } | Self::NoFetcher { .. } | Self::Fetch { .. } => {
                Some("kernel_unusable")
            }
            Self::NoCommand { .. } => Some("no_command"),
            Self::NoBase { source, .. } => Some(source.code()),
            Self::NothingPiped => Some("image_unusable"),
            Self::ReadPolicy { .. } | Self::PolicyFile { .. } | Self::Policy(_) => Some("policy_invalid"),
            Self::Image(ImageError::NoInterpreter { .. }) | Self::NoShellGuest => Some("no_interpreter"),
            Self::Image(_) => Some("image_unusable"),
            Self::NoStore => Some("no_store"),
            Self::NoTools | Self::ManyTools { .. } => Some("tools_unavailable"),
            Self::Module(_) => Some("module_unusable"),
            Self::Workspace(_) => Some("workspace_unusable"),
            Self::LongArgument { .. } | Self::LongCommand { .. } | Self::ManyArguments { .. } => {
                Some("arguments_too_long")
            }
            Self::MuchForJson { .. } => Some("output_limit_too_large"),
            Self::Snippet { .. } => Some("program_unreadable"),
            Self::Gone { .. } => Some("workspace_unusable"),
            Self::NotATerminal => Some("not_a_terminal"),
            Self::Output(_) => Some(OUTPUT_UNWRITABLE),
            Self::Receipt { .. } => Some("receipt_unwritable"),
            Self::Console { .. } => Some("console_unwritable"),
            Self::Secrets(_) => Some("secrets_invalid"),
            Self::Warden(_) => Some("warden_failed"),
            Self::Engine(_) => Some("engine_failed"),
            _ => None,
        }
    }

    /// Where nothing was run for it: whether blastbox worked and said no, or could not work.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Warden(_)
            | Self::Engine(_)
            | Self::Runtime(_)
            | Self::Terminal(_)
            | Self::Json(_)
            | Self::Output(_) => Outcome::Failed,
            _ => Outcome::Refused,
        }
    }
}
