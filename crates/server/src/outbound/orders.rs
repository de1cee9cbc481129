//! What the operator wants sent, as it stands in the configuration: `[[sinks]]`, `[webhook]`, `[otlp]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use blastbox_engine::keeper::Keeper;
use blastbox_engine::ledger::{FileSink, Need, Severity, Sink, SinkError, SyslogSink};
use blastbox_policy::Seconds;
use serde::Deserialize;

use super::{BadTarget, HttpSink, Otlp, Target, Webhook};

const USUAL_BEAT: Seconds = Seconds(15);

/// What is to be sent, and where.
#[derive(Debug, Default)]
pub struct Orders {
    sinks: Vec<SinkText>,
    webhook: Option<WebhookText>,
    otlp: Option<OtlpText>,
}

/// Why something cannot be sent as it was ordered.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// An address, or what belongs to it.
    #[error("{what}")]
    Target {
        /// Which part of the configuration.
        what: String,
        /// Why not.
        #[source]
        source: BadTarget,
    },
    /// A file that copies should go to.
    #[error("the sink {name} cannot open {path}")]
    Copy {
        /// The sink.
        name: String,
        /// Its file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A sink that cannot be one.
    #[error("the sink {name} cannot be used")]
    Sink {
        /// The sink.
        name: String,
        /// Why not.
        #[source]
        source: SinkError,
    },
}

/// One sink.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum SinkText {
    Http {
        name: String,
        url: String,
        token_file: Option<PathBuf>,
        ca_file: Option<PathBuf>,
        #[serde(default)]
        require_ack: bool,
    },
    File {
        name: String,
        path: PathBuf,
        #[serde(default)]
        require_ack: bool,
    },
    // A datagram is handed over and not acknowledged: it can only be a copy.
    Syslog {
        path: Option<PathBuf>,
    },
}

impl SinkText {
    /// Its name, by which it keeps its place in the ledger.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Http { name, .. } | Self::File { name, .. } => name,
            Self::Syslog { .. } => SyslogSink::NAME,
        }
    }

    /// The file that it writes.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Http { .. } | Self::Syslog { .. } => None,
        }
    }
}

/// Where alerts go.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookText {
    url: String,
    secret_file: PathBuf,
    ca_file: Option<PathBuf>,
    #[serde(default)]
    least: Least,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Least {
    #[default]
    Low,
    High,
    Critical,
}

/// Where numbers go.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OtlpText {
    url: String,
    ca_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    every: Option<Seconds>,
}

fn target(what: &str, url: &str, ca: Option<&Path>, token: Option<&Path>) -> Result<Target, OrderError> {
    let made = Target::parse(url, ca).and_then(|target| match token {
        Some(token) => target.with_token(token),
        None => Ok(target),
    });
    made.map_err(|source| OrderError::Target { what: what.to_owned(), source })
}

impl Orders {
    pub(crate) fn new(sinks: Vec<SinkText>, webhook: Option<WebhookText>, otlp: Option<OtlpText>) -> Self {
        Self { sinks, webhook, otlp }
    }

    /// Files that copies are written to, so that a daemon that confines itself can still reach them.
    #[must_use]
    pub fn written(&self) -> Vec<&Path> {
        self.sinks.iter().filter_map(SinkText::path).collect()
    }

    /// Tokens, secrets and certificates that are read for this.
    #[must_use]
    pub fn read(&self) -> Vec<&Path> {
        let sinks = self.sinks.iter().flat_map(|sink| match sink {
            SinkText::Http { token_file, ca_file, .. } => [token_file.as_deref(), ca_file.as_deref()],
            SinkText::File { .. } | SinkText::Syslog { .. } => [None, None],
        });
        let webhook = self.webhook.iter();
        let webhook = webhook.flat_map(|hook| [Some(hook.secret_file.as_path()), hook.ca_file.as_deref()]);
        let otlp = self.otlp.iter().flat_map(|otlp| [otlp.token_file.as_deref(), otlp.ca_file.as_deref()]);
        sinks.chain(webhook).chain(otlp).flatten().collect()
    }

    /// Whether anything is sent over a network.
    #[must_use]
    pub fn reach_out(&self) -> bool {
        let http = self.sinks.iter().any(|sink| matches!(sink, SinkText::Http { .. }));
        http || self.webhook.is_some() || self.otlp.is_some()
    }

    /// Begins to send. Inside a tokio runtime. What cannot be sent as ordered is said now; what is only down is not.
    pub fn carry_out(self, keeper: &Keeper) -> Result<(), OrderError> {
        for sink in self.sinks {
            let (sink, need) = build(sink)?;
            let name = sink.name().to_owned();
            keeper.ship_to(sink, need).map_err(|source| OrderError::Sink { name, source })?;
        }
        if let Some(WebhookText { url, secret_file, ca_file, least }) = self.webhook {
            let least = match least {
                Least::Low => Severity::Low,
                Least::High => Severity::High,
                Least::Critical => Severity::Critical,
            };
            let to = target("webhook", &url, ca_file.as_deref(), None)?;
            let failed = |source| OrderError::Target { what: "webhook".to_owned(), source };
            let webhook = Webhook::new(to, &secret_file, least).map_err(failed)?;
            tokio::spawn(webhook.run(keeper.clone()));
        }
        if let Some(OtlpText { url, ca_file, token_file, every }) = self.otlp {
            let to = target("otlp", &url, ca_file.as_deref(), token_file.as_deref())?;
            let every = Duration::from_secs(every.unwrap_or(USUAL_BEAT).0.max(1));
            tokio::spawn(Otlp::new(&to, every).run(keeper.clone()));
        }
        Ok(())
    }
}

fn build(sink: SinkText) -> Result<(Box<dyn Sink>, Need), OrderError> {
    let need = |require_ack| if require_ack { Need::MustAcknowledge } else { Need::BestEffort };
    Ok(match sink {
        SinkText::Http { name, url, token_file, ca_file, require_ack } => {
            let to = target(&format!("sinks.{name}"), &url, ca_file.as_deref(), token_file.as_deref())?;
            (Box::new(HttpSink::new(name, to)), need(require_ack))
        }
        SinkText::File { name, path, require_ack } => {
            let opened = FileSink::open(&name, &path);
            let failed = |source| OrderError::Copy { name, path, source };
            (Box::new(opened.map_err(failed)?), need(require_ack))
        }
        SinkText::Syslog { path } => {
            let path = path.unwrap_or_else(|| SyslogSink::USUAL.into());
            (Box::new(SyslogSink::new(&path)), Need::BestEffort)
        }
    })
}
