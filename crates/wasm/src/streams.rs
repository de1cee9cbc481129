//! The standard streams of one command, between the guest's thread and the thread that speaks with the host.
//!
//! Whatever a guest waits for, it waits for here, on one condition: to be told to end wakes it from everything.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use blastbox_wire::limits::{MAX_OUTPUT_CHUNK, STDIN_WINDOW};

use crate::tools::Answer;
use crate::voice::Voice;

/// Output that waits for the host's thread. Beyond it the guest waits.
const FULL: usize = 4 * MAX_OUTPUT_CHUNK;

/// The guest was told to end by this signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("told to end by signal {0}")]
pub(crate) struct Told(pub(crate) u8);

/// The host has sent more input than its window allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverWindow;

#[derive(Debug, Default)]
struct State {
    input: VecDeque<u8>,
    input_ended: bool,
    /// Bytes of input that were read and that the host has not been told of.
    taken: u32,
    /// Bytes of input that the host has sent and has not been told to be taken.
    owed: usize,
    output: VecDeque<(u8, Vec<u8>)>,
    waiting: usize,
    credit: u64,
    told: Option<u8>,
    /// Calls of functions of the caller so far.
    calls: u32,
    /// The last of them, until the host's thread carries it.
    call: Option<Call>,
    answer: Option<Answer>,
}

/// A call on its way to the host.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) number: u32,
    pub(crate) tool: String,
    pub(crate) input: Vec<u8>,
}

/// The streams of one command.
pub(crate) struct Streams {
    state: Mutex<State>,
    changed: Condvar,
    voice: Arc<Voice>,
}

/// What the thread of the host carries away.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) output: Vec<(u8, Vec<u8>)>,
    pub(crate) taken: u32,
    pub(crate) call: Option<Call>,
}

impl Streams {
    pub(crate) fn new(window: u32, has_input: bool, voice: Arc<Voice>) -> Self {
        let state = State { credit: u64::from(window), input_ended: !has_input, ..State::default() };
        Self { state: Mutex::new(state), changed: Condvar::new(), voice }
    }

    /// A guest's thread that panicked aborts the worker, so no lock is ever poisoned.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        self.voice.ring();
    }

    // The guest's side.

    /// Writes everything, as fast as the host takes it.
    pub(crate) fn write(&self, stream: u8, mut bytes: &[u8]) -> Result<(), Told> {
        while !bytes.is_empty() {
            bytes = self.queue(stream, bytes)?;
            self.voice.speak();
        }
        Ok(())
    }

    /// Queues what may go now, or waits until something may. Returns the rest.
    fn queue<'a>(&self, stream: u8, bytes: &'a [u8]) -> Result<&'a [u8], Told> {
        let mut state = self.lock();
        loop {
            if let Some(signal) = state.told {
                return Err(Told(signal));
            }
            let most = usize::try_from(state.credit).unwrap_or(usize::MAX).min(MAX_OUTPUT_CHUNK);
            if most == 0 || state.waiting >= FULL {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (now, later) = bytes.split_at(most.min(bytes.len()));
            state.credit = state.credit.saturating_sub(count(now.len()));
            state.waiting = state.waiting.saturating_add(now.len());
            match state.output.back_mut() {
                Some((last, held)) if *last == stream && held.len() + now.len() <= MAX_OUTPUT_CHUNK => {
                    held.extend_from_slice(now);
                }
                _ => state.output.push_back((stream, now.to_vec())),
            }
            return Ok(later);
        }
    }

    /// Reads what is there, or waits for something. 0: there will be no more.
    pub(crate) fn read(&self, into: &mut [u8]) -> Result<usize, Told> {
        let mut state = self.lock();
        loop {
            if let Some(signal) = state.told {
                return Err(Told(signal));
            }
            if into.is_empty() || !state.input.is_empty() || state.input_ended {
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let length = into.len().min(state.input.len());
        for (place, byte) in into.iter_mut().zip(state.input.drain(..length)) {
            *place = byte;
        }
        if length > 0 {
            state.taken = state.taken.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
            self.ring();
        }
        Ok(length)
    }

    /// Reads up to the end of a line, or a little more than `most` bytes of one that is too long. `None`: there will be no more.
    pub(crate) fn read_line(&self, most: usize) -> Result<Option<Vec<u8>>, Told> {
        let mut line = Vec::new();
        let mut state = self.lock();
        loop {
            if let Some(signal) = state.told {
                return Err(Told(signal));
            }
            let end = state.input.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(state.input.len(), |at| at.saturating_add(1));
            if length > 0 {
                line.extend(state.input.drain(..length));
                state.taken = state.taken.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
                self.ring();
            }
            if end.is_some() {
                line.pop();
                return Ok(Some(line));
            }
            if line.len() > most || state.input_ended {
                return Ok((!line.is_empty()).then_some(line));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Bytes that a read would bring at once; `None`: it would wait.
    pub(crate) fn readable(&self) -> Option<u64> {
        let state = self.lock();
        (!state.input.is_empty() || state.input_ended).then(|| count(state.input.len()))
    }

    /// Sleeps until this moment, or until there is input if that is waited for.
    pub(crate) fn sleep(&self, until: Option<Instant>, for_input: bool) -> Result<(), Told> {
        let mut state = self.lock();
        loop {
            if let Some(signal) = state.told {
                return Err(Told(signal));
            }
            if for_input && (!state.input.is_empty() || state.input_ended) {
                return Ok(());
            }
            let left = match until {
                Some(moment) => moment.saturating_duration_since(Instant::now()),
                None => Duration::MAX,
            };
            if left.is_zero() {
                return Ok(());
            }
            let patience = left.min(Duration::from_secs(3600));
            let (back, _) =
                self.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner);
            state = back;
        }
    }

    /// Calls a function of the caller and waits for what it gives. `None`: there were as many calls as there may be.
    pub(crate) fn call(&self, tool: &str, input: &[u8], most: u32) -> Result<Option<Answer>, Told> {
        let mut state = self.lock();
        if let Some(signal) = state.told {
            return Err(Told(signal));
        }
        if state.calls >= most {
            return Ok(None);
        }
        state.calls = state.calls.saturating_add(1);
        state.call = Some(Call { number: state.calls, tool: tool.to_owned(), input: input.to_vec() });
        state.answer = None;
        self.ring();
        loop {
            if let Some(signal) = state.told {
                return Err(Told(signal));
            }
            if let Some(answer) = state.answer.take() {
                return Ok(Some(answer));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the guest was told to end.
    pub(crate) fn told(&self) -> Option<u8> {
        self.lock().told
    }

    // The host's side.

    /// Input from the host.
    pub(crate) fn push(&self, bytes: &[u8]) -> Result<(), OverWindow> {
        let mut state = self.lock();
        let owed = state.owed.saturating_add(bytes.len());
        if u32::try_from(owed).map_or(true, |owed| owed > STDIN_WINDOW) {
            return Err(OverWindow);
        }
        state.owed = owed;
        if state.input_ended {
            // Nobody reads it: taken and dropped.
            state.taken = state.taken.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            self.ring();
        } else {
            state.input.extend(bytes);
        }
        self.changed.notify_all();
        Ok(())
    }

    /// No more input.
    pub(crate) fn end_input(&self) {
        self.lock().input_ended = true;
        self.changed.notify_all();
    }

    /// More output may follow.
    pub(crate) fn credit(&self, bytes: u32) {
        let mut state = self.lock();
        state.credit = state.credit.saturating_add(u64::from(bytes));
        self.changed.notify_all();
    }

    /// A function of the caller gave something, or nothing. What is not waited for any more is dropped.
    pub(crate) fn answer(&self, call: u32, answer: Answer) {
        let mut state = self.lock();
        if state.calls == call {
            state.answer = Some(answer);
            self.changed.notify_all();
        }
    }

    /// Tells the guest to end. The first signal stays.
    pub(crate) fn tell(&self, signal: u8) {
        self.lock().told.get_or_insert(signal);
        self.changed.notify_all();
    }

    /// Takes what is to be sent.
    pub(crate) fn carry(&self) -> Carried {
        let mut state = self.lock();
        let taken = std::mem::take(&mut state.taken);
        state.owed = state.owed.saturating_sub(usize::try_from(taken).unwrap_or(usize::MAX));
        state.waiting = 0;
        let output = state.output.drain(..).collect();
        self.changed.notify_all();
        let call = state.call.take();
        Carried { output, taken, call }
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(window: u32, has_input: bool) -> Arc<Streams> {
        Arc::new(Streams::new(window, has_input, Voice::unheard().unwrap()))
    }

    #[test]
    fn no_more_is_sent_than_the_host_has_given_credit_for() {
        let streams = streams(10, false);
        let writer = {
            let streams = Arc::clone(&streams);
            std::thread::spawn(move || streams.write(1, &[7; 25]))
        };
        let mut heard = 0;
        while heard < 10 {
            heard += streams.carry().output.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        }
        assert_eq!(heard, 10);
        streams.credit(15);
        assert_eq!(writer.join().unwrap(), Ok(()));
        assert_eq!(streams.carry().output.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(), 15);
    }

    #[test]
    fn whoever_waits_hears_that_it_is_to_end() {
        for wait in [0, 1, 2] {
            let streams = streams(0, true);
            let guest = {
                let streams = Arc::clone(&streams);
                std::thread::spawn(move || match wait {
                    0 => streams.write(1, b"x"),
                    1 => streams.read(&mut [0]).map(|_| ()),
                    _ => streams.sleep(None, true),
                })
            };
            streams.tell(9);
            streams.tell(15);
            assert_eq!(guest.join().unwrap(), Err(Told(9)));
        }
    }

    #[test]
    fn a_call_waits_for_its_own_answer_and_hears_that_it_is_to_end() {
        let streams = streams(0, false);
        let call = || {
            let streams = Arc::clone(&streams);
            std::thread::spawn(move || streams.call("add", b"1", 2))
        };
        let carried = |number| {
            let call = loop {
                if let Some(call) = streams.carry().call {
                    break call;
                }
                std::thread::yield_now();
            };
            assert_eq!((call.number, call.tool.as_str(), call.input.as_slice()), (number, "add", &b"1"[..]));
        };
        let answer = |text: &[u8]| Answer { good: true, bytes: text.to_vec() };
        let guest = call();
        carried(1);
        streams.answer(7, answer(b"0"));
        streams.answer(1, answer(b"5"));
        assert_eq!(guest.join().unwrap(), Ok(Some(answer(b"5"))));
        let guest = call();
        carried(2);
        // Of the one before.
        streams.answer(1, answer(b"0"));
        streams.tell(9);
        assert_eq!(guest.join().unwrap(), Err(Told(9)));
    }

    #[test]
    fn input_comes_in_order_and_ends() {
        let streams = streams(0, true);
        streams.push(b"abc").unwrap();
        streams.end_input();
        let mut into = [0; 2];
        assert_eq!(streams.read(&mut into), Ok(2));
        assert_eq!(streams.read(&mut into), Ok(1));
        assert_eq!(streams.read(&mut into), Ok(0));
        assert_eq!(streams.carry().taken, 3);
    }

    #[test]
    fn input_over_the_window_is_refused_until_it_was_taken() {
        let streams = streams(0, true);
        let window = usize::try_from(STDIN_WINDOW).unwrap();
        streams.push(&vec![0; window]).unwrap();
        assert_eq!(streams.push(&[0]), Err(OverWindow));
        streams.read(&mut [0; 5]).unwrap();
        streams.carry();
        assert_eq!(streams.push(&[0; 6]), Err(OverWindow));
        assert_eq!(streams.push(&[0; 5]), Ok(()));
    }
}
