//! The two ends of a box in this process: what its owner holds, and what drives it.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use blastbox_isolation::{Choice, Lowered};
use blastbox_wire::BoxId;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;

use super::House;
use crate::copies::Birth;
use crate::desk::Bells;
use crate::driver::{Driver, Launch, Log, Rest, Vigil};
use crate::link::Word;
use crate::live::LiveBox;
use crate::state::State;

/// Orders that may wait for a driver.
const ORDERS: usize = 32;
/// Longest life of a box that a clock can add.
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);

/// What a box and its driver are made from, once the warden was asked.
pub(crate) struct Seat {
    pub(crate) id: BoxId,
    pub(crate) choice: Choice,
    pub(crate) house: Arc<House>,
    pub(crate) agent: UnixStream,
    pub(crate) words: mpsc::UnboundedReceiver<Word>,
    pub(crate) asked: Instant,
    pub(crate) timeout: Duration,
    pub(crate) output: u64,
    pub(crate) making: Option<OwnedSemaphorePermit>,
    pub(crate) again: Option<Launch>,
    pub(crate) birth: Option<Birth>,
}

/// Both ends.
pub(crate) fn connect(seat: Seat) -> (LiveBox, Driver) {
    let Seat { id, choice, house, agent, words, asked, timeout, output, making, again, birth } = seat;
    let (orders_to, orders) = mpsc::channel(ORDERS);
    let (ready_to, ready) = oneshot::channel();
    let (report_to, report) = oneshot::channel();
    let bells = Arc::new(Bells::default());
    let own_kernel = choice.chosen.as_ref().is_ok_and(Lowered::has_own_kernel);
    let refuses_memory = choice.chosen.as_ref().is_ok_and(Lowered::refuses_memory);
    let has_guests = choice.chosen.as_ref().is_ok_and(Lowered::has_guests);
    let driver = Driver {
        id: id.clone(),
        state: State::Provisioning,
        house: Arc::clone(&house),
        agent,
        words,
        orders,
        bells: Arc::clone(&bells),
        asked,
        deadline: asked + timeout.min(FOR_EVER),
        output_left: output,
        making,
        pausing: None,
        undoing: false,
        ready: Some(ready_to),
        report: Some(report_to),
        again,
        birth,
        retry_at: asked,
        heritable: false,
        mark: None,
        rest: Rest::default(),
        errands: None,
        vigil: if has_guests { Vigil::for_guests() } else { None },
        log: Log { own_kernel, refuses_memory, ..Log::default() },
    };
    let live = LiveBox {
        id,
        choice: Arc::new(choice),
        house,
        orders: orders_to,
        bells,
        ready: Some(ready),
        report: Mutex::new(Some(report)),
        next_exec: AtomicU32::new(1),
        uplink: None,
        variables: Vec::new(),
        tenancy: None,
        lease_news: Mutex::default(),
        image: None,
        monitor: tokio::sync::Mutex::default(),
        begun_from: None,
        stood: Mutex::default(),
    };
    (live, driver)
}
