//! The threads that run guests, and the guests that are kept ready for them. Those that have nothing to do listen to the host; while all
//! of them have, the worker's first thread does.
//!
//! A guest that has run is never run again: its memory goes back to the kernel, and the next one begins from the image.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blastbox_wire::agent::{ExecSpec, Exit, Usage};
use rustix::event::epoll::EventFlags;
use rustix::time::{ClockId, clock_gettime};
use wasmtime::Engine;

use crate::Arguments;
use crate::budget::Budget;
use crate::ear::{Ear, Heard};
use crate::engine::{GUEST_STACK, Metering};
use crate::files::Tree;
use crate::guests::{self, Room, Seat, Used};
use crate::session::{End, Session};
use crate::shelf::{Loaded, Shelf, ShelfError};
use crate::streams::Streams;
use crate::voice::Voice;

/// Stack of a guest's thread: the guest's own, and what our functions need beneath it.
const THREAD_STACK: usize = GUEST_STACK + (4 << 20);

/// When nobody has asked for anything for so long, the first guests are made ready: whoever asks at once shall not wait for them.
const IDLE: Duration = Duration::from_millis(10);

/// A command to run.
pub(crate) struct Job {
    pub(crate) spec: ExecSpec,
    pub(crate) guest: Found,
    pub(crate) streams: Arc<Streams>,
}

/// The guest that a command names, or why it cannot be run.
pub(crate) type Found = Result<Arc<Loaded>, Arc<str>>;

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) exec: u32,
    pub(crate) exit: Exit,
    pub(crate) usage: Usage,
}

struct State {
    jobs: VecDeque<Job>,
    /// Whether there is somebody to talk with.
    begun: bool,
    /// Why the worker ends.
    end: Option<End>,
    /// Whether it does.
    over: bool,
    /// Guests to be made ready.
    wanted: Vec<Arc<Loaded>>,
    /// What is made ready when nobody has asked for anything for a while.
    later: Vec<Arc<Loaded>>,
    /// Threads that have nothing to do, and listen.
    waiting: usize,
    /// Threads that could not lock themselves in, or 0 when all could.
    unlocked: usize,
    locked: usize,
}

struct Shared {
    state: Mutex<State>,
    /// Threads are locked in, or may begin.
    changed: Condvar,
    /// The first thread has something to do.
    over: Condvar,
    ear: Ear,
    /// Held while the host is heard, and before the state.
    session: Mutex<Option<Session>>,
    voice: Arc<Voice>,
    room: Room,
}

impl Shared {
    /// A thread that panicked aborts the worker, so no lock is ever poisoned.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens to the host once, and puts what is to be done where everybody finds it.
    fn listen<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        patience: Option<Duration>,
    ) -> (MutexGuard<'a, State>, Heard) {
        drop(state);
        let heard = self.ear.wait(patience);
        if let Ok(Heard::Nothing) = heard {
            return (self.lock(), Heard::Nothing);
        }
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = heard
            .map_err(End::Failed)
            .and_then(|heard| session.as_mut().map_or(Ok(Vec::new()), |session| session.turn(heard)));
        let mut state = self.lock();
        match turn {
            Ok(jobs) => state.jobs.extend(jobs),
            Err(end) => {
                state.over = true;
                state.end.get_or_insert(end);
                // Nothing that it still says is heard.
                *session = None;
                self.over.notify_one();
                // Whoever listens shall see it, and one that cannot be woken has nothing to lose: the process ends.
                self.ear.toll(self.voice.bell()).ok();
                self.voice.ring();
            }
        }
        (state, Heard::Something)
    }
}

impl State {
    /// Finds somebody for what is left when a thread has taken its share: each that is woken takes one, and wakes the next. While all
    /// have something to do, the first thread listens.
    fn hand_on(&self, shared: &Shared) {
        if self.waiting == 0 {
            shared.over.notify_one();
        } else if !self.jobs.is_empty() {
            shared.voice.ring();
        }
    }
}

/// The threads.
#[derive(Clone)]
pub(crate) struct Bench {
    shared: Arc<Shared>,
    shelf: Arc<Shelf>,
    metering: Metering,
    places: usize,
}

impl Bench {
    /// Starts the threads and waits until each of them has locked itself in.
    pub(crate) fn open(
        engine: Engine,
        shelf: Shelf,
        budget: Budget,
        tree: Arc<Mutex<Tree>>,
        voice: Arc<Voice>,
        arguments: &Arguments,
    ) -> io::Result<Self> {
        let keeps = |guest: &&Arc<Loaded>| guests::is_worth_keeping(guest.kind);
        let later = shelf.guests.iter().filter(keeps).cloned().collect();
        let (jobs, wanted) = (VecDeque::new(), Vec::new());
        let places = usize::try_from(arguments.threads).unwrap_or(1);
        let (begun, over) = (false, false);
        let state = State { jobs, begun, end: None, over, wanted, later, waiting: 0, unlocked: 0, locked: 0 };
        let ear = Ear::at(&voice.mouth().control, voice.bell())?;
        let room = Room {
            engine,
            budget,
            tree,
            open_files: arguments.open_files,
            deterministic: arguments.deterministic,
            fuel: arguments.fuel,
            http: arguments.http,
            ready: Arc::default(),
        };
        let (changed, over) = (Condvar::new(), Condvar::new());
        let (state, session) = (Mutex::new(state), Mutex::new(None));
        let shared = Arc::new(Shared { state, changed, over, ear, session, voice, room });
        for _ in 0..places {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().stack_size(THREAD_STACK).spawn(move || work(&shared))?;
        }
        let mut state = shared.lock();
        while state.locked.saturating_add(state.unlocked) < places {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.unlocked > 0 {
            return Err(io::Error::other("a thread could not give up its system calls"));
        }
        drop(state);
        Ok(Self { shared, shelf: Arc::new(shelf), metering: arguments.metering(), places })
    }

    /// Guests that may run at the same time.
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// The guest that a command names.
    pub(crate) fn find(&self, program: &[u8]) -> Option<Found> {
        let name = guests::name_of(program);
        let usable = self.shelf.guests.iter().find(|guest| guest.name.as_bytes() == name);
        let unusable = || self.shelf.unusable.iter().find(|(other, _)| other.as_bytes() == name);
        let unmade = || ShelfError::unmade(name, self.metering).map(|why| Err(why.to_string().into()));
        let unusable = || unusable().map(|(_, why)| Err(Arc::clone(why)));
        usable.cloned().map(Ok).or_else(unusable).or_else(unmade)
    }

    /// What of the host is worth hearing of.
    pub(crate) fn expect(&self, host: impl AsFd, interest: EventFlags) -> io::Result<()> {
        self.shared.ear.expect(host, interest)
    }

    /// Has the threads listen to the host, until the end.
    pub(crate) fn preside(&self, session: Session) -> End {
        *self.shared.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
        let mut state = self.shared.lock();
        state.begun = true;
        self.shared.changed.notify_all();
        loop {
            if let Some(end) = state.end.take() {
                return end;
            }
            state = if state.waiting > 0 {
                self.shared.over.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.shared.listen(state, None).0
            };
            // This thread has not the stack for a guest: what it hears another one has to be woken for.
            if state.waiting > 0 {
                state.hand_on(&self.shared);
            }
        }
    }

    /// Makes every running guest look whether it is to end.
    pub(crate) fn interrupt(&self) {
        self.shared.room.engine.increment_epoch();
    }
}

/// What a thread does for ever.
fn work(shared: &Shared) {
    let locked = crate::lock::lock();
    {
        let mut state = shared.lock();
        if locked.is_ok() {
            state.locked += 1
        } else {
            state.unlocked += 1
        }
        shared.changed.notify_all();
    }
    if locked.is_err() {
        return;
    }
    let ready = &shared.room.ready;
    let mut state = shared.lock();
    while !state.begun {
        state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    while !state.over {
        if let Some(job) = state.jobs.pop_front() {
            state.later.clear();
            state.hand_on(shared);
            drop(state);
            let guest = job.guest.clone().ok();
            let seat = guest.as_ref().and_then(|guest| ready.take(&guest.name));
            let (done, left) = run(shared, job, seat);
            shared.voice.end(done);
            drop(left);
            state = shared.lock();
            state.wanted.extend(guest.filter(|guest| guests::is_worth_keeping(guest.kind)));
        } else if let Some(guest) = state.wanted.pop() {
            state.hand_on(shared);
            drop(state);
            let made = make_ready(shared, &guest);
            state = shared.lock();
            state.wanted.extend(made.then_some(guest));
        } else {
            let patience = (!state.later.is_empty()).then_some(IDLE);
            state.waiting += 1;
            let (back, heard) = shared.listen(state, patience);
            state = back;
            state.waiting -= 1;
            if heard == Heard::Nothing {
                let later = std::mem::take(&mut state.later);
                state.wanted.extend(later);
            }
        }
    }
}

/// Begins the next guest of a name. `false`: there are enough of them, or it cannot be done; then it is begun when it is needed, and
/// fails then.
fn make_ready(shared: &Shared, guest: &Loaded) -> bool {
    let Shared { room, .. } = shared;
    if !room.ready.has_room(&guest.name) || !room.budget.is_ample() {
        return false;
    }
    let Ok(seat) = guests::seat(room, guest, None).and_then(|seat| guests::warm_up(seat, guest)) else {
        return false;
    };
    room.ready.add(&guest.name, seat)
}

fn run(shared: &Shared, job: Job, seat: Option<Seat>) -> (Done, Option<Seat>) {
    let exec = job.spec.exec;
    let before = cpu_micros();
    let (exit, used, left) = guests::run(&shared.room, job, seat);
    let user_micros = cpu_micros().saturating_sub(before);
    let Used { peak_bytes, fuel } = used;
    (Done { exec, exit, usage: Usage { user_micros, system_micros: 0, peak_bytes, fuel } }, left)
}

/// Processor time of this thread. What the kernel did for the guest is in it.
fn cpu_micros() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000).saturating_add(nanos.unwrap_or(0) / 1000)
}
