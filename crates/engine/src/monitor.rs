//! The line to a machine's QEMU while its box sleeps: orders out, answers in.
//!
//! Trust: a guest that has taken its QEMU over speaks here. What it says is bounded in length and number, and moves nothing but the
//! snapshot that was asked for.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use blastbox_isolation::{MonitorAnswer, MonitorOrder, hear_answer, say_order};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::sleep;

/// More than QEMU answers to any order of ours.
const LONGEST: u64 = 64 << 10;
/// Everything that it may say between two orders: what it has told unasked since the last snapshot lies on the line as well.
const MOST: u64 = 8 << 20;
const PAUSE: Duration = Duration::from_millis(10);

/// The line.
#[derive(Debug)]
pub(crate) struct Monitor {
    said: BufReader<UnixStream>,
    orders: StdStream,
    number: u32,
}

impl Monitor {
    pub(crate) fn new(orders: StdStream) -> io::Result<Self> {
        orders.set_nonblocking(true)?;
        let said = BufReader::new(UnixStream::from_std(orders.try_clone()?)?);
        Ok(Self { said, orders, number: 0 })
    }

    /// Says an order and waits for its answer.
    async fn ask(
        &mut self,
        order: MonitorOrder,
        with: Option<BorrowedFd<'_>>,
    ) -> Result<MonitorAnswer, String> {
        let failed = |error: io::Error| format!("QEMU cannot be spoken to: {error}");
        self.number = self.number.wrapping_add(1);
        say_order(&self.orders, self.number, order, with).map_err(failed)?;
        let mut left = MOST;
        loop {
            let mut line = Vec::new();
            let read = (&mut self.said).take(LONGEST).read_until(b'\n', &mut line).await.map_err(failed)?;
            left = left.saturating_sub(read as u64);
            if read == 0 || left == 0 || line.last() != Some(&b'\n') {
                return Err("QEMU ended, or says what nobody asked for".to_owned());
            }
            // What is no text is no answer.
            let heard = std::str::from_utf8(&line).ok().and_then(|line| hear_answer(line, self.number));
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
            MonitorAnswer::Failed(why) => Err(format!("QEMU could not do it ({order:?}): {why}")),
            MonitorAnswer::Done | MonitorAnswer::Whole | MonitorAnswer::NotYet => Ok(()),
        }
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[tokio::test]
    async fn what_was_said_unasked_is_passed_over_and_a_flood_is_not_listened_to() {
        let (ours, mut qemu) = StdStream::pair().unwrap();
        let mut line = Monitor::new(ours).unwrap();
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
