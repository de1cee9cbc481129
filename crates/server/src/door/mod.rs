//! The doors: where callers come in, how many, and how long they may take to say what they want.

mod connection;
mod diary;
mod https;
mod log;
mod seats;
mod socket;
mod tcp;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::caller::Peer;
use crate::routes::router;
use crate::{DoorError, Hall};

pub use https::TlsDoor;
pub use log::Log;
pub(crate) use seats::{Seat, Tenants};
pub use socket::Socket;
pub use tcp::{DEFAULT_PORT, TcpAddress};

/// Connections at the same time, through all doors together.
const MOST_CONNECTIONS: usize = 4096;
/// Of those, one tenant's.
const MOST_PER_TENANT: usize = 1024;
/// How long a caller may take to send the head of a request, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(15);
/// How long callers may take to hear the rest of their answers when the daemon stops.
const GOODBYE: Duration = Duration::from_secs(5);
/// After a failed accept (no descriptor left, say): trying at once would only burn a processor.
const BREATH: Duration = Duration::from_millis(50);

/// How patient the doors are.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the head of a request, and between two requests.
    pub head: Duration,
    /// Connections at the same time.
    pub connections: usize,
    /// Of those, one tenant's.
    pub per_tenant: usize,
}

impl Default for Patience {
    fn default() -> Self {
        Self { head: HEAD, connections: MOST_CONNECTIONS, per_tenant: MOST_PER_TENANT }
    }
}

/// Where callers come in.
#[derive(Debug)]
pub struct Doors {
    socket: Option<Socket>,
    tcp: Vec<TcpListener>,
    tls: Option<(TcpListener, TlsDoor)>,
    patience: Patience,
}

impl Doors {
    /// Doors that are still to be built.
    #[must_use]
    pub fn new(patience: Patience) -> Self {
        Self { socket: None, tcp: Vec::new(), tls: None, patience }
    }

    /// With a unix socket.
    #[must_use]
    pub fn with_socket(mut self, socket: Socket) -> Self {
        self.socket = Some(socket);
        self
    }

    /// With a port. Whether there are keys was looked at when the address was opened.
    #[must_use]
    pub fn with_tcp(mut self, listener: TcpListener) -> Self {
        self.tcp.push(listener);
        self
    }

    /// With a port for callers who speak TLS.
    #[must_use]
    pub fn with_tls(mut self, listener: TcpListener, door: TlsDoor) -> Self {
        self.tls = Some((listener, door));
        self
    }

    /// Lets callers in until `stop` is done; then ends every box, lets callers hear the rest, and closes.
    pub async fn serve(self, hall: Hall, log: Log, stop: impl Future<Output = ()>) {
        let Self { socket, tcp, tls, patience } = self;
        let (closing, closed) = watch::channel(false);
        // From the first event on: boxes were taken over and lost before the doors opened.
        let diary = tokio::spawn(diary::keep(hall.keeper.subscribe_after(None, Some(0)), log.clone()));
        let lobby = Lobby {
            router: router(hall.clone()),
            hall: hall.clone(),
            log,
            room: Arc::new(Semaphore::new(patience.connections)),
            tenants: Tenants::new(patience.per_tenant),
            head: patience.head,
            closed,
        };
        let mut doors = JoinSet::new();
        let (unix, held) = socket.map(Socket::into_parts).unzip();
        if let Some(listener) = unix {
            doors.spawn(watch_socket(listener, lobby.clone()));
        }
        for listener in tcp {
            doors.spawn(watch_port(listener, lobby.clone()));
        }
        if let Some((listener, door)) = tls {
            doors.spawn(watch_tls(listener, door, lobby.clone()));
        }
        stop.await;
        // Nobody new; then the boxes, whose ends are the last events of whoever still listens.
        doors.abort_all();
        drop(held);
        if let Some(modules) = &hall.modules {
            modules.stop();
        }
        hall.keeper.stop().await;
        // The last ends of boxes are written too.
        timeout(GOODBYE, diary).await.ok();
        closing.send_replace(true);
        let all = u32::try_from(patience.connections).unwrap_or(u32::MAX);
        // A caller that does not listen is not waited for.
        timeout(GOODBYE, lobby.room.acquire_many(all)).await.ok();
    }
}

/// What every connection gets.
#[derive(Debug, Clone)]
struct Lobby {
    router: Router,
    hall: Hall,
    log: Log,
    room: Arc<Semaphore>,
    tenants: Arc<Tenants>,
    head: Duration,
    closed: watch::Receiver<bool>,
}

async fn watch_socket(listener: UnixListener, lobby: Lobby) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match peer(&stream) {
                Some(peer) => connection::receive(stream, peer, &lobby),
                // Whoever cannot be told apart is not let in.
                None => drop(stream),
            },
            Err(_) => sleep(BREATH).await,
        }
    }
}

fn peer(stream: &UnixStream) -> Option<Peer> {
    stream.peer_cred().ok().map(|peer| Peer::Socket { uid: peer.uid() })
}

async fn watch_port(listener: TcpListener, lobby: Lobby) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small answers wait for nothing; a socket that refuses is only slower.
                stream.set_nodelay(true).ok();
                connection::receive(stream, Peer::Tcp, &lobby);
            }
            Err(_) => sleep(BREATH).await,
        }
    }
}

async fn watch_tls(listener: TcpListener, door: TlsDoor, lobby: Lobby) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                stream.set_nodelay(true).ok();
                connection::receive_tls(stream, &door, &lobby);
            }
            Err(_) => sleep(BREATH).await,
        }
    }
}

/// Opens a port, unless that would let strangers in.
pub async fn open_port(address: TcpAddress, keys: &crate::Keys) -> Result<TcpListener, DoorError> {
    tcp::open(address, keys).await
}
