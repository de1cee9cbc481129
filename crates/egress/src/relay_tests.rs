//! What is carried arrives, is counted, and ends when it has to.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// More than everybody's buffers hold, so that each side has to wait for the other.
#[tokio::test]
async fn everything_arrives_in_both_directions_and_each_end_is_passed_on() {
    let ((near, mut one), (mut other, far)) = (duplex(1000), duplex(3000));
    let carried = tokio::spawn(async move { carry(&mut one, &mut other, &KEPT).await });
    let (near, far) = tokio::join!(talk(near, 500_000, 1), talk(far, 500_000, 2));
    assert!(near.0 == far.1 && far.0 == near.1);
    carried.await.unwrap().unwrap();
}

#[tokio::test]
async fn one_side_may_end_long_before_the_other() {
    let ((mut near, mut one), (mut other, mut far)) = (duplex(64), duplex(64));
    let carried = tokio::spawn(async move { carry(&mut one, &mut other, &KEPT).await });
    near.write_all(b"question").await.unwrap();
    near.shutdown().await.unwrap();
    let mut heard = Vec::new();
    far.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"question");
    far.write_all(b"answer").await.unwrap();
    drop(far);
    heard.clear();
    near.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"answer");
    carried.await.unwrap().unwrap();
}

/// 64 bytes in front of the target, as many in hand and as many in front of the carrier: nobody reads any more.
#[tokio::test]
async fn what_has_to_end_does_although_the_target_takes_nothing() {
    let ((mut near, mut one), (mut other, far)) = (duplex(64), duplex(64));
    let stop = std::sync::Arc::new(crate::flow::Stop::default());
    let raised = std::sync::Arc::clone(&stop);
    // Its own count: the others' tests run beside it.
    static KEPT_HERE: AtomicUsize = AtomicUsize::new(0);
    let carried = async move { stop.cut(carry(&mut one, &mut other, &KEPT_HERE)).await.is_none() };
    let carried = tokio::spawn(carried);
    near.write_all(&[7; 192]).await.unwrap();
    assert_eq!(KEPT_HERE.load(Ordering::Relaxed), 64, "what it holds in hand");
    raised.raise();
    assert!(carried.await.unwrap());
    assert_eq!(KEPT_HERE.load(Ordering::Relaxed), 0, "nothing is kept for it");
    assert_eq!(near.write(b"more").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    drop(far);
    assert!(raised.cut(std::future::pending::<()>()).await.is_none(), "whoever comes later ends too");
}

#[tokio::test]
async fn whoever_breaks_off_ends_both_directions() {
    let ((mut near, mut one), (mut other, far)) = (duplex(64), duplex(64));
    let carried = tokio::spawn(async move { carry(&mut one, &mut other, &KEPT).await });
    drop(far);
    near.write_all(b"nobody is there").await.unwrap();
    assert_eq!(carried.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

/// Says so many bytes and hears everything.
async fn talk(stream: impl AsyncRead + AsyncWrite, length: u32, seed: u8) -> (Vec<u8>, Vec<u8>) {
    let (mut from, mut to) = tokio::io::split(stream);
    let sent: Vec<u8> = (0..length).map(|at| (at % 251) as u8 ^ seed).collect();
    let (copy, mut heard) = (sent.clone(), Vec::new());
    let write = async {
        to.write_all(&copy).await?;
        to.shutdown().await
    };
    let (wrote, read) = tokio::join!(write, from.read_to_end(&mut heard));
    wrote.unwrap();
    read.unwrap();
    (sent, heard)
}

/// A connection of the kernel's.
async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

/// Counts what goes past this program.
struct Counted {
    stream: TcpStream,
    piped: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl End for Counted {
    fn socket(&self) -> Option<&TcpStream> {
        Some(&self.stream)
    }

    fn taken(&mut self, _bytes: usize) -> io::Result<()> {
        Ok(())
    }

    /// By a pipe: what was read is written as anybody writes.
    fn given(&mut self, bytes: usize) -> io::Result<()> {
        self.piped.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// Twenty at a time, so that pipes are shared, run short of room and are used again.
#[tokio::test]
async fn between_sockets_bulk_goes_by_pipes_and_is_counted() {
    let piped = Arc::new(AtomicUsize::new(0));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let piped = Arc::clone(&piped);
        all.spawn(async move {
            let ((near, one), (mut other, far)) = (sockets().await, sockets().await);
            let mut one = Counted { stream: one, piped };
            let carried = tokio::spawn(async move { carry(&mut one, &mut other, &KEPT).await });
            let (near, far) = tokio::join!(talk(near, 3_000_000, 1), talk(far, 2_000_000, 2));
            assert!(near.0 == far.1 && far.0 == near.1);
            carried.await.unwrap().unwrap();
        });
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
    assert!(piped.load(Ordering::Relaxed) > 1_000_000, "{piped:?}");
}

/// Bytes that are in a pipe are not lost with its connection's neighbour, and a pipe that is not empty is not used again.
#[tokio::test]
async fn a_socket_that_takes_nothing_keeps_its_pipe_to_itself() {
    let ((mut near, mut one), (mut other, far)) = (sockets().await, sockets().await);
    let stuck = tokio::spawn(async move { carry(&mut one, &mut other, &KEPT).await });
    let full = async {
        loop {
            near.write_all(&[9; 65_536]).await.unwrap();
        }
    };
    tokio::time::timeout(std::time::Duration::from_millis(300), full).await.unwrap_err();
    let ((near, mut one), (mut other, beyond)) = (sockets().await, sockets().await);
    let carried = tokio::spawn(async move { carry(&mut one, &mut other, &KEPT).await });
    let (near, beyond) = tokio::join!(talk(near, 3_000_000, 1), talk(beyond, 10, 2));
    assert!(near.0 == beyond.1 && beyond.0 == near.1);
    carried.await.unwrap().unwrap();
    stuck.abort();
    stuck.await.unwrap_err();
    drop(far);
}

/// A read ends at the mark of urgent data, and a pipe takes nothing there: it says that there is nothing, or even that this was the end.
#[tokio::test]
async fn urgent_data_neither_stalls_nor_cuts_off_what_follows_it() {
    const PIECES: usize = 12;
    const PIECE: usize = 300_000;
    async fn urgent(stream: &TcpStream) {
        // Where there is no room for one more byte, it is said later.
        let send = || Ok(rustix::net::send(stream, b"!", rustix::net::SendFlags::OOB)?);
        stream.async_io(tokio::io::Interest::WRITABLE, send).await.unwrap();
    }
    let ((mut near, mut one), (mut other, mut far)) = (sockets().await, sockets().await);
    rustix::net::sockopt::set_socket_oobinline(&one, true).unwrap();
    near.write_all(b"so").await.unwrap();
    urgent(&near).await;
    let carried = tokio::spawn(async move { carry(&mut one, &mut other, &KEPT).await });
    // Nobody says anything more until it is heard.
    let mut heard = vec![0; 3];
    far.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, b"so!");
    let said = tokio::spawn(async move {
        for _ in 0..PIECES {
            near.write_all(&[1; PIECE]).await.unwrap();
            urgent(&near).await;
        }
        near
    });
    let mut whole = vec![0; (PIECE + 1) * PIECES];
    far.read_exact(&mut whole).await.unwrap();
    assert!(whole == [vec![1; PIECE], vec![b'!']].concat().repeat(PIECES));
    let mut near = said.await.unwrap();
    near.write_all(&[2; PIECE]).await.unwrap();
    urgent(&near).await;
    near.write_all(b"the end").await.unwrap();
    near.shutdown().await.unwrap();
    heard.clear();
    far.read_to_end(&mut heard).await.unwrap();
    assert!(heard == [&[2; PIECE][..], b"!the end"].concat());
    drop(far);
    carried.await.unwrap().unwrap();
}
