//! Network namespaces with wires between them: a host without its real network, a world with one server in it, and one that
//! reaches a relay on that host. Nothing leads out of any.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Child;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::paper::Wrong;
use crate::process::{run, waiting};

/// How long a connection may say nothing at first.
const SILENT: Duration = Duration::from_secs(5);
/// Where the server is.
pub(crate) const SERVER: &str = "10.9.9.9";
pub(crate) const PORT: u16 = 7000;
/// As large as the link of a box: how packets are cut is not what is measured.
pub(crate) const MTU: &str = "65520";
const HOST: &str = "10.9.9.1";
/// The host's way out; not the server, because pasta takes the way out for the host itself.
const ROUTER: &str = "10.9.9.2";
const PATIENCE: Duration = Duration::from_secs(10);

/// Where whoever is behind the relay finds it.
pub(crate) const RELAY: &str = "10.8.8.1";
const BEHIND: &str = "10.8.8.2";

/// Processes that hold the namespaces, and go with this.
#[derive(Debug)]
pub(crate) struct World {
    host: Holder,
    world: Holder,
    /// A namespace with a wire to the host, on which nothing but a relay answers.
    behind: Holder,
}

/// A process that sleeps in a network namespace of its own.
#[derive(Debug)]
pub(crate) struct Holder(Child);

impl Holder {
    /// Starts it, and waits until it is where it shall be.
    pub(crate) fn start() -> Result<Self, Wrong> {
        let holder = Self(waiting(&["/usr/bin/unshare", "--net", "/bin/sleep", "900"])?);
        let begun = Instant::now();
        while !holder.is_there() {
            if begun.elapsed() > PATIENCE {
                return Err("no network namespace could be made".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(holder)
    }

    fn is_there(&self) -> bool {
        let network = |who: String| std::fs::read_link(format!("/proc/{who}/ns/net")).ok();
        let theirs = network(self.0.id().to_string());
        theirs.is_some() && theirs != network("self".to_owned())
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// A command line that does this inside.
    pub(crate) fn inside(&self, words: &[&str]) -> Vec<String> {
        let enter = ["/usr/bin/nsenter", "--target", &self.pid(), "--net"].map(str::to_owned);
        enter.into_iter().chain(words.iter().map(|word| (*word).to_owned())).collect()
    }

    fn ip(&self, words: &str) -> Result<(), Wrong> {
        let words: Vec<&str> = ["/usr/sbin/ip"].into_iter().chain(words.split(' ')).collect();
        run(&self.inside(&words)).map_err(|error| format!("ip {words:?}: {error}"))?;
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It only sleeps; whether it was still there does not matter.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl World {
    /// Builds both, and starts the server.
    pub(crate) fn build() -> Result<Self, Wrong> {
        let (host, world) = (Holder::start()?, Holder::start()?);
        host.ip(&format!("link add wire type veth peer name wire netns {}", world.pid()))?;
        for (holder, address) in [(&host, HOST), (&world, SERVER), (&world, ROUTER)] {
            holder.ip("link set lo up")?;
            // Connections that are over are forgotten at once: tens of thousands of them would use up the ports.
            let forget = "echo 0 > /proc/sys/net/ipv4/tcp_max_tw_buckets";
            run(&holder.inside(&["/bin/sh", "-c", forget]))?;
            holder.ip(&format!("addr add {address}/24 dev wire"))?;
            holder.ip(&format!("link set wire mtu {MTU} up"))?;
        }
        host.ip(&format!("route add default via {ROUTER}"))?;
        serve_in(&world, SERVER, answer)?;
        let behind = Holder::start()?;
        host.ip(&format!("link add fence type veth peer name fence netns {}", behind.pid()))?;
        for (holder, address) in [(&host, RELAY), (&behind, BEHIND)] {
            holder.ip(&format!("addr add {address}/24 dev fence"))?;
            holder.ip(&format!("link set fence mtu {MTU} up"))?;
        }
        serve_in(&host, RELAY, relay)?;
        Ok(Self { host, world, behind })
    }

    /// A command line that does this where nothing is to be reached but the relay.
    pub(crate) fn behind_relay(&self, words: &[&str]) -> Vec<String> {
        self.behind.inside(words)
    }

    /// A command line that does this on the host.
    pub(crate) fn on_host(&self, words: &[&str]) -> Vec<String> {
        self.host.inside(words)
    }

    /// A command line that does this where the server is.
    pub(crate) fn in_world(&self, words: &[&str]) -> Vec<String> {
        self.world.inside(words)
    }
}

/// Serves whoever comes to this address there. It ends with this process: there is one measurement for each.
fn serve_in(
    holder: &Holder,
    address: &'static str,
    each: impl Fn(TcpStream) -> io::Result<()> + Send + 'static,
) -> Result<(), Wrong> {
    let network = File::open(format!("/proc/{}/ns/net", holder.pid()))?;
    let (say, hear) = mpsc::channel();
    thread::spawn(move || {
        let bound = move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(io::Error::from)
            .and_then(|()| TcpListener::bind((address, PORT)));
        let (listener, told) = match bound {
            Ok(listener) => (Some(listener), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // Whoever asked waits for it.
        say.send(told).ok();
        // What it connects to is found from where it stands.
        listener.iter().flat_map(TcpListener::incoming).flatten().for_each(|stream| {
            each(stream).ok();
        });
    });
    hear.recv().map_err(|_| "the server did not start")??;
    Ok(())
}

/// What every gateway does that looks at what it lets through, and no more: a connection of its own, and each byte read and written.
fn relay(near: TcpStream) -> io::Result<()> {
    let far = TcpStream::connect((SERVER, PORT))?;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
    }
    let (from, to) = (near.try_clone()?, far.try_clone()?);
    thread::spawn(move || carry(&from, &to));
    thread::spawn(move || carry(&far, &near));
    Ok(())
}

fn carry(mut from: &TcpStream, mut to: &TcpStream) {
    let mut piece = vec![0; 256 << 10];
    while let Ok(length @ 1..) = from.read(&mut piece)
        && to.write_all(piece.get(..length).unwrap_or_default()).is_ok()
    {}
    // Each side hears that the other has no more to say; one that is gone hears nothing.
    to.shutdown(Shutdown::Write).ok();
}

/// What the first byte asks for: `u`pload, `d`ownload, `e`cho, or one byte and the end of the `c`onnection. The last is answered at once, by
/// nobody new: to start and end a thread takes the longer the more of them wait, and it is not the server that is measured.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENT))?;
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    if &kind == b"c" {
        return stream.write_all(&kind);
    }
    stream.set_read_timeout(None)?;
    thread::spawn(move || serve(stream, kind));
    Ok(())
}

fn serve(mut stream: TcpStream, kind: [u8; 1]) -> io::Result<()> {
    let mut piece = vec![0; 1 << 20];
    match &kind {
        b"u" => {
            while stream.read(&mut piece)? != 0 {}
            stream.write_all(b"u")
        }
        b"d" => loop {
            stream.write_all(&piece)?;
        },
        b"e" => loop {
            let length = stream.read(&mut piece)?;
            if length == 0 {
                return Ok(());
            }
            stream.write_all(piece.get(..length).unwrap_or_default())?;
        },
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
