//! A daemon for one test, gone afterwards.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use blastbox_engine::Engine;
use blastbox_engine::keeper::{Keeper, KeeperConfig};
use blastbox_isolation::Warden;
use blastbox_server::{Config, Doors, Gallery, Hall, Keys, Log, Patience, Socket, open_port};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::caller::Caller;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// How long a caller may take over its head, in these tests.
pub(crate) const HEAD: Duration = Duration::from_millis(600);
/// Connections at the same time, in these tests.
pub(crate) const CONNECTIONS: usize = 24;
/// Of those, one tenant's.
pub(crate) const PER_TENANT: usize = 12;

/// The one web page that may ask, in these tests.
pub(crate) const ORIGIN: &str = "https://console.example";

pub(crate) struct Daemon {
    directory: PathBuf,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: Option<JoinHandle<()>>,
}

impl Daemon {
    /// A daemon; `None` where this host cannot have one, which is said and counted.
    pub(crate) async fn start(test: &str) -> Option<Self> {
        Self::with(test, KeeperConfig::default()).await
    }

    pub(crate) async fn with(test: &str, config: KeeperConfig) -> Option<Self> {
        let patience = Patience { head: HEAD, connections: CONNECTIONS, per_tenant: PER_TENANT };
        Self::patient(test, config, patience).await
    }

    pub(crate) async fn patient(test: &str, config: KeeperConfig, patience: Patience) -> Option<Self> {
        Self::told(test, config, patience, "").await
    }

    /// One whose operator has written this.
    pub(crate) async fn written(test: &str, text: &str) -> Option<Self> {
        let patience = Patience { head: HEAD, connections: CONNECTIONS, per_tenant: PER_TENANT };
        Self::told(test, KeeperConfig::default(), patience, text).await
    }

    async fn told(test: &str, config: KeeperConfig, patience: Patience, text: &str) -> Option<Self> {
        let engine = match Warden::start_program(&warden()).map(Engine::with_warden) {
            Ok(Ok(engine)) => engine,
            Ok(Err(error)) => return skip(test, &format!("no engine: {error:?}")),
            Err(error) => return skip(test, &format!("no warden: {error:?}")),
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("blastbox-api-{}-{number}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let keys = Keys::in_directory(&directory);
        let listener = open_port("127.0.0.1:0".parse().unwrap(), &keys).await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = Socket::open(&directory.join("api.sock")).unwrap();
        let doors = Doors::new(patience).with_socket(socket).with_tcp(listener);
        let hall = Hall::new(Keeper::start(engine, config), keys, Gallery::default());
        let hall = hall.with_origins(vec![ORIGIN.to_owned()]);
        let said = Config::parse(text).unwrap();
        let hall = hall.with_secrets(&directory.join("secrets"), said.secrets).unwrap();
        let hall = hall.with_templates(&directory.join("e2b"), said.builds);
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(doors.serve(hall, Log::none(), async {
            stopped.await.ok();
        }));
        Some(Self { directory, address, stop: Some(stop), served: Some(served) })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("api.sock")
    }

    pub(crate) fn keys(&self) -> Keys {
        Keys::in_directory(&self.directory)
    }

    /// Whoever sits at the socket.
    pub(crate) fn local(&self) -> Caller {
        Caller::socket(self.socket())
    }

    /// Whoever comes over TCP, with this key.
    pub(crate) fn over_tcp(&self, key: Option<&str>) -> Caller {
        Caller::tcp(self.address, key)
    }

    /// Somebody with a key of their own.
    pub(crate) fn tenant(&self, name: &str) -> Caller {
        let key = self.keys().create(name.parse().unwrap(), None).unwrap();
        self.over_tcp(Some(key.show_once()))
    }

    /// Tells the daemon to end, and waits until it has.
    pub(crate) async fn stop(mut self) -> PathBuf {
        self.stop.take().unwrap().send(()).unwrap();
        self.served.take().unwrap().await.unwrap();
        self.directory.clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

fn warden() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/blastbox");
    let dir = std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(beside, PathBuf::from);
    dir.join("blastbox-warden")
}

/// Says that a test cannot run here, where `cargo xtask test` finds and counts it.
pub(crate) fn skip<T>(name: &str, reason: &str) -> Option<T> {
    blastbox_skips::skip(name, reason);
    None
}
