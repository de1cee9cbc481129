//! A sink that is this host's syslog: one datagram per record, RFC 5424.
//!
//! A datagram is handed over, not kept: syslog may drop it, so it cannot be a sink that must acknowledge.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use blastbox_wire::event::ledger_text;

use super::alert::{Severity, alert};
use super::courier::{Entry, Grade, Sink, SinkError};

/// `log audit`, as RFC 5424 numbers it.
const FACILITY: u8 = 13;
const NOTICE: u8 = 5;
/// A syslog that does not read holds us up for so long and no longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Records as syslog messages of the facility "log audit"; an alert raises the severity.
#[derive(Debug)]
pub struct SyslogSink {
    path: PathBuf,
    socket: Option<UnixDatagram>,
}

impl SyslogSink {
    /// Where syslog listens on most hosts.
    pub const USUAL: &'static str = "/dev/log";

    /// The only name that it has: there is one syslog on a host.
    pub const NAME: &'static str = "syslog";

    /// A sink that will reach the socket when there is something to send.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), socket: None }
    }

    fn socket(&mut self) -> io::Result<&UnixDatagram> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(&self.path)?;
                socket.set_write_timeout(Some(PATIENCE))?;
                socket
            }
        };
        Ok(self.socket.insert(socket))
    }
}

impl Sink for SyslogSink {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn grade(&self) -> Grade {
        Grade::HandedOver
    }

    fn deliver(&mut self, batch: &[Entry]) -> Result<u64, SinkError> {
        let mut last = None;
        for entry in batch {
            let sent = self.socket().and_then(|socket| socket.send(&message(&entry.line)));
            if let Err(error) = sent {
                // A syslog that was started again has another socket under the same name.
                self.socket = None;
                return last.ok_or(SinkError::Unreachable(error));
            }
            last = Some(entry.seq);
        }
        last.ok_or(SinkError::NoProgress)
    }
}

/// `<PRI>1 TIME - blastbox - ledger - {line}`. The line is JSON: it has no control character and no line feed.
fn message(line: &[u8]) -> Vec<u8> {
    let record = ledger_text::read_record(line).ok();
    let severity = match record.as_ref().and_then(|record| alert(&record.event)).map(|alert| alert.severity) {
        Some(Severity::Critical) => 2,
        Some(Severity::High) => 3,
        Some(Severity::Low) => 4,
        None => NOTICE,
    };
    let time = record.map_or_else(|| "-".to_owned(), |record| record.time);
    let mut message = format!("<{}>1 {time} - blastbox - ledger - ", FACILITY * 8 + severity).into_bytes();
    message.extend_from_slice(line);
    message
}
