//! The line to the engine of a machine (who plays it) while its box sleeps: orders out, answers in.
//!
//! Trust: a guest that has taken its engine over speaks here. What it says is bounded in length and number, and moves nothing but the
//! snapshot that was asked for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use blastbox_isolation::{MachineEngine, MonitorAnswer, MonitorOrder};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::sleep;

/// More than the state of the devices of a machine is.
const MOST_STATE: u64 = 16 << 20;
/// More than is answered to any order of ours.
const LONGEST: u64 = 64 << 10;
/// Everything that it may say between two orders: what it has told unasked since the last snapshot lies on the line as well.
const MOST: u64 = 8 << 20;
const PAUSE: Duration = Duration::from_millis(10);

/// The line.
#[derive(Debug)]
pub(crate) struct Monitor {
    engine: MachineEngine,
    said: BufReader<UnixStream>,
    orders: StdStream,
    number: u32,
}

impl Monitor {
    pub(crate) fn new(engine: MachineEngine, orders: StdStream) -> io::Result<Self> {
        orders.set_nonblocking(true)?;
        let said = BufReader::new(UnixStream::from_std(orders.try_clone()?)?);
        Ok(Self { engine, said, orders, number: 0 })
    }

    /// Says an order and waits for its answer.
    async fn ask(
        &mut self,
        order: MonitorOrder,
        with: Option<BorrowedFd<'_>>,
    ) -> Result<MonitorAnswer, String> {
        let title = self.engine.title();
        let failed = |error: io::Error| format!("{title} cannot be spoken to: {error}");
        self.number = self.number.wrapping_add(1);
        self.engine.say(&self.orders, self.number, order, with).map_err(failed)?;
        let mut left = MOST;
        loop {
            let mut line = Vec::new();
            let read = (&mut self.said).take(LONGEST).read_until(b'\n', &mut line).await.map_err(failed)?;
            left = left.saturating_sub(read as u64);
            if read == 0 || left == 0 || line.last() != Some(&b'\n') {
                return Err(format!("{title} ended, or says what nobody asked for"));
            }
            // What is no text is no answer.
            let text = std::str::from_utf8(&line).ok();
            let heard = text.and_then(|line| self.engine.hear(line, self.number));
            if let Some(heard) = heard {
                return Ok(heard);
            }
        }
    }

    /// Has an order carried out.
    pub(crate) async fn order(
        &mut self,
        order: MonitorOrder,
        with: Option<BorrowedFd<'_>>,
    ) -> Result<(), String> {
        match self.ask(order, with).await? {
            MonitorAnswer::Failed(why) => {
                Err(format!("{} could not do it ({order:?}): {why}", self.engine.title()))
            }
            MonitorAnswer::Done | MonitorAnswer::Whole | MonitorAnswer::NotYet => Ok(()),
        }
    }

    /// Stops the machine and takes the state of its devices, whole: its memory is in our hands.
    pub(crate) async fn take_state(&mut self) -> Result<Vec<u8>, String> {
        let failed = |error: io::Error| format!("could not take the state of its devices: {error}");
        let (from, theirs) = pair().map_err(failed)?;
        self.order(MonitorOrder::WithoutMemory, None).await?;
        self.order(MonitorOrder::Take, Some(theirs.as_fd())).await?;
        self.order(MonitorOrder::Write, None).await?;
        drop(theirs);
        let mut state = Vec::new();
        from.take(MOST_STATE + 1).read_to_end(&mut state).await.map_err(failed)?;
        if state.len() as u64 > MOST_STATE {
            return Err("the state of its devices is too large".to_owned());
        }
        self.whole().await?;
        Ok(state)
    }

    /// Waits until the state is written, or read.
    pub(crate) async fn whole(&mut self) -> Result<(), String> {
        loop {
            match self.ask(MonitorOrder::Ask, None).await? {
                MonitorAnswer::Whole => return Ok(()),
                MonitorAnswer::Failed(why) => return Err(why),
                MonitorAnswer::Done | MonitorAnswer::NotYet => sleep(PAUSE).await,
            }
        }
    }
}

/// Both ends of a line of bytes, the first one ours.
pub(crate) fn pair() -> io::Result<(UnixStream, StdStream)> {
    let (ours, theirs) = StdStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[tokio::test]
    async fn what_was_said_unasked_is_passed_over_and_a_flood_is_not_listened_to() {
        let (ours, mut qemu) = StdStream::pair().unwrap();
        let mut line = Monitor::new(MachineEngine::Qemu, ours).unwrap();
        qemu.write_all(b"{\"QMP\": {}}\n{\"return\": {}}\n\xff\n{\"event\": \"STOP\"}\n").unwrap();
        qemu.write_all(b"{\"return\": {}, \"id\": 1}\n").unwrap();
        line.order(MonitorOrder::GoOn, None).await.unwrap();
        let mut said = [0; 64];
        let count = qemu.read(&mut said).unwrap();
        assert!(String::from_utf8_lossy(&said[..count]).contains("cont"));
        let flood = std::thread::spawn(move || while qemu.write_all(&[b'x'; 4096]).is_ok() {});
        assert!(line.order(MonitorOrder::GoOn, None).await.is_err());
        drop(line);
        flood.join().unwrap();
    }
}
