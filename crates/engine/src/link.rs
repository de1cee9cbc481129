//! The one line to the warden, shared by every box of this engine.
//!
//! Answers are handed to the box that they name. When the warden dies, each of its boxes is told, a fresh warden is
//! started and asked to release by name whatever the dead one has left, and the boxes are told again.

mod counts;
mod recover;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use blastbox_isolation::{Heard, Warden, WardenError, WardenName};
use blastbox_wire::BoxId;
use blastbox_wire::warden::{Answer, Ask, Spent};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use counts::Counts;
pub(crate) use recover::listen;

/// How long a warden may take to get ready.
pub(crate) const READY: Duration = Duration::from_secs(10);
/// How soon a warden that had no room is tried again.
const AGAIN: Duration = Duration::from_millis(2);

/// What a box hears from the warden.
#[derive(Debug, Clone)]
pub(crate) enum Word {
    Launched,
    Failed {
        tried: String,
        errno: i32,
    },
    Ended(Spent),
    Counted(Spent),
    Paused,
    Resumed,
    NotPaused {
        tried: String,
        errno: i32,
    },
    /// The warden died. `Swept` follows.
    WardenGone,
    /// What the dead warden left was released, as far as that could be done.
    Swept,
}

/// Where a warden comes from when one has died.
pub type Supply = Box<dyn Fn() -> Result<Warden, WardenError> + Send + Sync>;

/// The line.
pub(crate) struct Link {
    supply: Supply,
    warden: Mutex<Option<Arc<Line>>>,
    boxes: Mutex<HashMap<BoxId, mpsc::UnboundedSender<Word>>>,
    swept: Notify,
    /// Which boxes somebody looks at.
    counts: Mutex<Counts>,
    /// Rings when the warden had no room for something that must not be lost.
    late: Notify,
    /// Nothing more will be asked: a warden that ends has done its work.
    dismissed: AtomicBool,
    /// What was asked where there is no warden and a test speaks for it, with the descriptors that came along.
    #[cfg(test)]
    pub(crate) asked: Mutex<Vec<(Ask, Vec<OwnedFd>)>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("warden", &self.warden).finish_non_exhaustive()
    }
}

/// One warden.
#[derive(Debug)]
struct Line {
    /// Its socket once more, only to learn when it can be read. (It carries packets, not a stream; nothing is ever read
    /// through this.) Dropped before the warden, which waits for its process to see the socket close.
    watch: UnixStream,
    warden: Mutex<Warden>,
}

impl Line {
    fn to(warden: Warden) -> io::Result<Arc<Self>> {
        let socket = StdStream::from(warden.as_fd().try_clone_to_owned()?);
        Ok(Arc::new(Self { watch: UnixStream::from_std(socket)?, warden: Mutex::new(warden) }))
    }
}

/// A box of which words are expected, and that the warden was not asked for yet: nobody waits for them any more where whoever
/// asked goes away meanwhile.
pub(crate) struct Expected<'a>(pub(crate) &'a Link, pub(crate) &'a BoxId);

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Pulse {
    Alive,
    Gone,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nobody panics while holding one of these; a guest cannot make them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// A line to this warden, which is ready. When it dies, another one comes from `supply`.
    pub(crate) fn new(warden: Warden, supply: Supply) -> io::Result<Arc<Self>> {
        let line = Mutex::new(Some(Line::to(warden)?));
        Ok(Arc::new(Self {
            supply,
            warden: line,
            boxes: Mutex::default(),
            swept: Notify::new(),
            counts: Mutex::default(),
            late: Notify::new(),
            dismissed: AtomicBool::new(false),
            #[cfg(test)]
            asked: Mutex::default(),
        }))
    }

    /// The name of the warden, where one was chosen for it.
    pub(crate) fn warden_name(&self) -> Option<WardenName> {
        lock(&self.line()?.warden).name()
    }

    /// Whether the warden keeps boxes for whoever comes after this process.
    pub(crate) fn is_heritable(&self) -> bool {
        self.line().is_some_and(|line| lock(&line.warden).is_heritable())
    }

    /// A line without a warden: tests speak for it.
    #[cfg(test)]
    pub(crate) fn unmanned() -> Arc<Self> {
        let supply: Supply = Box::new(|| Err(WardenError::Ended { status: None }));
        Arc::new(Self {
            supply,
            warden: Mutex::default(),
            boxes: Mutex::default(),
            swept: Notify::new(),
            counts: Mutex::default(),
            late: Notify::new(),
            dismissed: AtomicBool::new(false),
            asked: Mutex::default(),
        })
    }

    /// What a box hears when its warden dies and is swept up after.
    #[cfg(test)]
    pub(crate) fn orphan_for_test(&self) {
        for to in lock(&self.boxes).values() {
            to.send(Word::WardenGone).ok();
            to.send(Word::Swept).ok();
        }
    }

    fn line(&self) -> Option<Arc<Line>> {
        lock(&self.warden).clone()
    }

    /// The place where a new box hears the warden.
    pub(crate) fn expect(&self, id: BoxId) -> mpsc::UnboundedReceiver<Word> {
        // Not bounded, because the warden says at most four things about a box, and one for each pause and each count that is asked.
        let (to, from) = mpsc::unbounded_channel();
        lock(&self.boxes).insert(id, to);
        from
    }

    /// Nothing more will be heard of this box.
    pub(crate) fn forget(&self, id: &BoxId) {
        lock(&self.boxes).remove(id);
        lock(&self.counts).over(id);
    }

    /// Asks the warden for something, with descriptors. While it is busy others may still say something to it, and no thread waits.
    pub(crate) async fn ask(&self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<(), WardenError> {
        #[cfg(test)]
        if self.line().is_none() {
            let fds = fds.iter().map(|fd| fd.try_clone_to_owned()).collect::<io::Result<_>>();
            lock(&self.asked).push((ask.clone(), fds.map_err(WardenError::Send)?));
            return Ok(());
        }
        let line = self.line().ok_or(WardenError::Ended { status: None })?;
        let deadline = Instant::now() + Warden::BUSY;
        loop {
            if self.try_ask(&line, ask, fds)? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(WardenError::Busy);
            }
            sleep(AGAIN).await;
        }
    }

    fn try_ask(&self, line: &Line, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<bool, WardenError> {
        let mut warden = lock(&line.warden);
        // Its answers are read first: a warden that waits for us to read would not read what we ask.
        self.hear(&mut warden);
        warden.try_ask(ask, fds)
    }

    /// Says something that must not be lost, such as that a box ends. Never waits: what a busy warden has no room for is sent
    /// when it has, as long as it lives. An error means that it is gone, and every box with it.
    pub(crate) fn say(&self, ask: Ask) -> Result<(), WardenError> {
        self.say_with(ask, Vec::new())
    }

    /// The same, with descriptors.
    pub(crate) fn say_with(&self, ask: Ask, fds: Vec<OwnedFd>) -> Result<(), WardenError> {
        #[cfg(test)]
        if self.line().is_none() {
            lock(&self.asked).push((ask, fds));
            return Ok(());
        }
        let line = self.line().ok_or(WardenError::Ended { status: None })?;
        let mut warden = lock(&line.warden);
        self.hear(&mut warden);
        let said = warden.say_with(ask, fds);
        if warden.has_unsent() {
            self.late.notify_one();
        }
        said
    }

    /// Asks what a box has used so far, when it is its turn. Where the warden has no room for that, whoever looks next asks again.
    pub(crate) fn count(&self, id: &BoxId) {
        #[cfg(test)]
        if self.line().is_none() {
            return lock(&self.asked).push((Ask::Count(id.clone()), Vec::new()));
        }
        lock(&self.counts).want(id);
        if let Some(line) = self.line() {
            self.hear(&mut lock(&line.warden));
        }
    }

    /// Asks for those whose turn it is.
    fn ask_counts(&self, warden: &mut Warden) {
        let mut counts = lock(&self.counts);
        while let Some(id) = counts.next(Instant::now()) {
            if !matches!(warden.try_ask(&Ask::Count(id.clone()), &[]), Ok(true)) {
                counts.over(&id);
                return counts.give_up();
            }
        }
    }

    /// Hands out every answer that is there.
    fn hear(&self, warden: &mut Warden) -> Pulse {
        loop {
            match warden.answer() {
                Ok(Heard::Answer(answer)) => self.hand_out(answer),
                Ok(Heard::Waiting) => {
                    self.ask_counts(warden);
                    return Pulse::Alive;
                }
                // A warden that talks nonsense is as good as dead; a fresh one cleans up after it.
                Ok(Heard::Gone) | Err(_) => return Pulse::Gone,
            }
        }
    }

    pub(crate) fn hand_out(&self, answer: Answer) {
        let (id, word) = match answer {
            Answer::Launched { box_id, pid: _ } => (box_id, Word::Launched),
            Answer::Failed { box_id, tried, errno } => (box_id, Word::Failed { tried, errno }),
            Answer::Ended { box_id, spent } => (box_id, Word::Ended(spent)),
            Answer::Counted { box_id, spent } => (box_id, Word::Counted(spent)),
            Answer::Paused { box_id } => (box_id, Word::Paused),
            Answer::Resumed { box_id } => (box_id, Word::Resumed),
            Answer::NotPaused { box_id, tried, errno } => (box_id, Word::NotPaused { tried, errno }),
            Answer::Swept { boxes: _ } => return self.swept.notify_one(),
            // Heard by whoever has inherited.
            Answer::Ready(_) | Answer::Held { .. } => return,
        };
        let last = matches!(word, Word::Ended(_));
        if last || matches!(word, Word::Counted(_)) {
            lock(&self.counts).over(&id);
        }
        let mut boxes = lock(&self.boxes);
        if let Some(to) = boxes.get(&id) {
            // The box was given up without waiting for the warden.
            to.send(word).ok();
        }
        if last {
            boxes.remove(&id);
        }
    }

    /// Nothing more will be asked of the warden, which ends its boxes and then itself.
    pub(crate) fn dismiss(&self) {
        self.dismissed.store(true, Ordering::Relaxed);
        if let Some(line) = self.line() {
            lock(&line.warden).dismiss();
        }
    }

    /// Whether the warden had no box left and nothing more to do when it ended.
    fn is_done(&self) -> bool {
        self.dismissed.load(Ordering::Relaxed) && lock(&self.boxes).is_empty()
    }

    /// Waits for answers until the warden has died.
    async fn hear_until_gone(&self, line: Arc<Line>) {
        loop {
            let unsent = lock(&line.warden).has_unsent();
            tokio::select! {
                ready = line.watch.readable() => if ready.is_err() {
                    return;
                },
                () = self.late.notified() => {}
                () = sleep(AGAIN), if unsent => {}
            }
            // An error means that it is gone, and then there is that to read.
            lock(&line.warden).flush().ok();
            let heard = line.watch.try_io(Interest::READABLE, || match self.hear(&mut lock(&line.warden)) {
                Pulse::Gone => Ok(()),
                Pulse::Alive => Err(io::ErrorKind::WouldBlock.into()),
            });
            if heard.is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
