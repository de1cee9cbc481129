//! Requests of a box without a link, each brought to its gateway on a stream of its own.
//!
//! Must not: look into them. Address, request and answer are a guest's and a server's bytes; the gateway reads them, which holds
//! nothing but what the box may use. Here they are counted and waited for.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use blastbox_isolation::Gateway;
use blastbox_wire::egress::MAX_VISIT;
use blastbox_wire::limits::MAX_TOOL_ANSWER;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// How long a request may take, from its first byte to the last one of its answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests of one box at once, from their first byte until the driver has taken the answer: that many answers lie in memory at most.
/// A command has one under way, and a worker runs four; whatever says that more want one has been taken over.
const MOST_AT_ONCE: usize = 16;

/// A request that came to its end.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) exec: u32,
    pub(crate) call: u32,
    /// The bytes of an HTTP answer, or why there is none.
    pub(crate) answer: Result<Vec<u8>, String>,
    /// Its place among those at once, given back with it.
    _place: OwnedSemaphorePermit,
}

/// A request under way. Dropped with its command: nobody waits for it then, and the gateway learns it by the end of the stream.
#[derive(Debug)]
pub(crate) struct Errand(AbortHandle);

impl Drop for Errand {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whom requests are brought to: where to, and the stream that one comes on.
type Door = dyn Fn(&str, BorrowedFd<'_>) -> io::Result<()> + Send + Sync;

/// Who brings the requests of one box to its gateway. Dropped with the box: the gateway ends then.
pub(crate) struct Errands {
    door: Arc<Door>,
    places: Arc<Semaphore>,
    back: mpsc::Sender<Brought>,
    done: mpsc::Receiver<Brought>,
    /// What the warden holds where a box has a link, which is open as long as the box lives; and the far end of a link on which nobody
    /// ever says anything.
    _held: Vec<OwnedFd>,
}

impl fmt::Debug for Errands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Errands").field("places", &self.places).finish_non_exhaustive()
    }
}

impl Errands {
    /// For the box of this gateway, over the line that came with it.
    pub(crate) fn for_box(gateway: &Gateway, line: OwnedFd) -> io::Result<Self> {
        let (link, voice) = (Gateway::lay_wire(&line)?, gateway.voice()?);
        Ok(Self::to(Arc::new(move |to, stream| voice.visit(to, stream)), vec![line, link]))
    }

    fn to(door: Arc<Door>, held: Vec<OwnedFd>) -> Self {
        let (back, done) = mpsc::channel(MOST_AT_ONCE);
        Self { door, places: Arc::new(Semaphore::new(MOST_AT_ONCE)), back, done, _held: held }
    }

    /// Brings one, as long as what comes back is kept. An error is the answer: as many are under way as a box may have.
    pub(crate) fn run(&self, exec: u32, call: u32, input: Vec<u8>) -> Result<Errand, String> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Err(format!(
                "too_many: {MOST_AT_ONCE} requests of this box are under way, the most at once"
            ));
        };
        let (door, back) = (Arc::clone(&self.door), self.back.clone());
        let task = tokio::spawn(async move {
            let answer = match timeout(PATIENCE, bring(&*door, &input)).await {
                Ok(answer) => answer,
                Err(_) => {
                    Err(format!("timeout: the request was not answered within {} s", PATIENCE.as_secs()))
                }
            };
            // The box is gone, and whoever asked with it.
            back.send(Brought { exec, call, answer, _place: place }).await.ok();
        });
        Ok(Errand(task.abort_handle()))
    }
}

/// Waits for the next one that came to its end; for ever where there is nobody to bring any.
pub(crate) async fn next(errands: &mut Option<Errands>) -> Brought {
    match errands {
        // Its own sender is never dropped before it.
        Some(errands) => match errands.done.recv().await {
            Some(brought) => brought,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

async fn bring(door: &Door, input: &[u8]) -> Result<Vec<u8>, String> {
    let broken = |what: &'static str| move |error: io::Error| format!("gateway_lost: cannot {what}: {error}");
    let mut parts = input.splitn(2, |byte| *byte == b'\n');
    let (to, request) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let to = std::str::from_utf8(to).ok().filter(|to| to.len() <= MAX_VISIT);
    let to = to.ok_or("bad-request: the address is too long, or no text")?;
    let (ours, theirs) = StdStream::pair().map_err(broken("open a stream"))?;
    door(to, theirs.as_fd()).map_err(broken("bring the request"))?;
    drop(theirs);
    ours.set_nonblocking(true).map_err(broken("open a stream"))?;
    let mut stream = UnixStream::from_std(ours).map_err(broken("open a stream"))?;
    // Where the gateway refuses it unread, its answer is there all the same.
    stream.write_all(request).await.ok();
    let mut answer = Vec::new();
    let most = u64::try_from(MAX_TOOL_ANSWER).unwrap_or(u64::MAX);
    let read = (&mut stream).take(most.saturating_add(1)).read_to_end(&mut answer).await;
    match read {
        Ok(_) if answer.len() > MAX_TOOL_ANSWER => {
            Err(format!("too_large: the answer has more than {MAX_TOOL_ANSWER} bytes"))
        }
        // It ended in the middle, or was ended.
        Ok(_) | Err(_) if !answer.is_empty() => Ok(answer),
        Ok(_) => Err("gateway_lost: the request was not answered".to_owned()),
        Err(error) => Err(broken("hear the answer")(error)),
    }
}

#[cfg(test)]
mod tests;
