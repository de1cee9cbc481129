//! Which machine an image is for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A platform, such as `linux/amd64` or `linux/arm64/v8`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// The operating system.
    pub os: String,
    /// The processor, in Go's words.
    pub architecture: String,
    /// Which of a family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            other => other,
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: None }
    }

    /// Whether an image for `other` runs here. Who names no variant takes any.
    #[must_use]
    pub fn takes(&self, other: &Self) -> bool {
        self.os == other.os
            && self.architecture == other.architecture
            && (self.variant.is_none() || self.variant == other.variant)
    }
}

/// The text is no platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a platform: expected OS/ARCHITECTURE[/VARIANT], such as linux/amd64")]
pub struct BadPlatform;

impl FromStr for Platform {
    type Err = BadPlatform;
    fn from_str(text: &str) -> Result<Self, BadPlatform> {
        let mut parts = text.split('/').map(str::to_owned);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(os), Some(architecture), variant, None) if !os.is_empty() && !architecture.is_empty() => {
                Ok(Self { os, architecture, variant })
            }
            _ => Err(BadPlatform),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}
