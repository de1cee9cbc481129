//! A small internet for one test: two network namespaces with a wire between them. In one of them blastbox runs as if it
//! were on a host, in the other there are a resolver and servers that remember who came. Nothing leads out of either.

mod plain;
mod secure;

pub use secure::{Flaw, Visitor};

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Boxed, Caller, Held, Start, Who, wait_until};

/// The address of the host in the small internet.
pub const HOST: &str = "93.184.216.2";
/// Its resolver, which is also its way out.
pub const RESOLVER: &str = "93.184.216.1";
/// A public server.
pub const PUBLIC: &str = "93.184.216.34";
/// Everything else that is there: a cloud's metadata service, a private network, a carrier's, the same in IPv6.
pub const FORBIDDEN: [&str; 4] = ["169.254.169.254", "10.9.9.9", "100.64.9.9", "fd00:9::9"];

const TOOLS: [&str; 4] = ["/usr/sbin/ip", "/usr/bin/unshare", "/usr/bin/nsenter", "/usr/bin/setpriv"];
/// How often a server looks whether its test is over.
const GLANCE: Duration = Duration::from_millis(50);

/// What the resolver answers for a name. Each question takes the next; the last one stays.
type Answers = HashMap<String, Vec<Vec<IpAddr>>>;

/// A small internet.
#[derive(Debug)]
pub struct Internet {
    host: Held,
    world: Held,
    log: Arc<Log>,
}

#[derive(Debug, Default)]
struct Log {
    over: AtomicBool,
    names: Mutex<Answers>,
    aliases: Mutex<HashMap<String, String>>,
    questions: Mutex<Vec<String>>,
    visits: Mutex<Vec<String>>,
    requests: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Internet {
    /// Builds it; reported as skipped where this host cannot.
    pub fn build(caller: &Caller) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            caller.skip("needs root to make network namespaces, and the tests run as an ordinary user");
            return None;
        }
        if let Some(missing) = TOOLS.iter().find(|tool| !Path::new(tool).exists()) {
            caller.skip(&format!("needs {missing}"));
            return None;
        }
        if !Path::new("/dev/net/tun").exists() {
            caller.skip("needs /dev/net/tun");
            return None;
        }
        let root = Caller::root("a small internet")?;
        let resolv = caller.file("resolv.conf", format!("nameserver {RESOLVER}\n"));
        // A device that everybody may open, as most hosts have it; and the resolver of the small internet. Both are seen
        // in the mounts of this namespace only.
        let script = format!(
            "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && \
             mount --bind {} \"$(readlink -f /etc/resolv.conf)\" && exec sleep 600",
            resolv.display()
        );
        let hold = |words: &[&str]| root.program(Path::new("/usr/bin/unshare"), words).start();
        let host = hold(&["--net", "--mount", "--propagation", "private", "/bin/sh", "-c", &script]);
        let world = hold(&["--net", "/bin/sleep", "600"]);
        let (h, w) = (host.id(), world.id());
        let is_sleeping =
            |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(&b'6'));
        assert!(
            wait_until(|| [h, w].iter().all(|pid| is_sleeping(*pid) && own_network(*pid))),
            "namespaces are not made"
        );
        let ip = |pid: u32, words: &str| {
            let enter = format!("--target {pid} --net /usr/sbin/ip {words}");
            let ended = root.program(Path::new("/usr/bin/nsenter"), enter.split(' ')).end();
            assert_eq!(ended.code, 0, "ip {words}: {}", ended.err);
        };
        ip(h, &format!("link add wire type veth peer name wire netns {w}"));
        for (pid, addresses) in [
            (h, vec![HOST, "2a00:9::2"]),
            (w, [vec![RESOLVER, PUBLIC, "2a00:9::1"], FORBIDDEN.to_vec()].concat()),
        ] {
            ip(pid, "link set lo up");
            ip(pid, "link set wire up");
            for address in addresses {
                let (bits, quick) = if address.contains(':') { (64, " nodad") } else { (24, "") };
                ip(pid, &format!("addr add {address}/{bits} dev wire{quick}"));
            }
        }
        ip(h, &format!("route add default via {RESOLVER}"));
        ip(h, "-6 route add default via 2a00:9::1");
        let internet = Self { host, world, log: Arc::default() };
        internet.resolve();
        Some(internet)
    }

    /// From now on a name has these addresses; each question takes the next list, and the last one stays.
    pub fn name(&self, name: &str, answers: &[&[&str]]) {
        let read = |list: &&[&str]| list.iter().map(|text| text.parse().expect("an address")).collect();
        lock(&self.log.names).insert(name.to_owned(), answers.iter().map(read).collect());
    }

    /// From now on a name is an alias of another (a CNAME); the answer has the whole way, as a resolver's has.
    pub fn alias(&self, name: &str, of: &str) {
        lock(&self.log.aliases).insert(name.to_owned(), of.to_owned());
    }

    /// Names that were asked for, in order.
    pub fn questions(&self) -> Vec<String> {
        lock(&self.log.questions).clone()
    }

    /// Who came to the servers, in order: `ADDRESS:PORT`.
    pub fn visits(&self) -> Vec<String> {
        lock(&self.log.visits).clone()
    }

    /// A server on every address of the world that gives back what it gets, and remembers each visit.
    pub fn echo(&self, port: u16) {
        let log = Arc::clone(&self.log);
        self.in_world(move || {
            let listener = TcpListener::bind(("::", port)).expect("a server");
            listener.set_nonblocking(true).expect("a server");
            thread::spawn(move || serve(&listener, &log));
        });
    }

    /// Something that hears datagrams on every address of the world, and remembers each.
    pub fn ear(&self, port: u16) {
        let log = Arc::clone(&self.log);
        self.in_world(move || {
            let socket = UdpSocket::bind(("::", port)).expect("an ear");
            socket.set_read_timeout(Some(GLANCE)).expect("an ear");
            thread::spawn(move || {
                while !log.over.load(Ordering::Relaxed) {
                    if socket.recv_from(&mut [0; 2048]).is_ok() {
                        lock(&log.visits).push(format!("udp {port}"));
                    }
                }
            });
        });
    }

    /// The program `blastbox` on the host of this internet, not yet started.
    pub fn blastbox<'c>(&self, caller: &'c Caller, arguments: &[&str]) -> Start<'c> {
        self.blastbox_under(caller, &[], arguments)
    }

    /// The same, started by other words in front of it.
    pub fn blastbox_under<'c>(&self, caller: &'c Caller, under: &[&str], arguments: &[&str]) -> Start<'c> {
        let pid = self.host.id().to_string();
        let program = caller.blastbox_path();
        let program = program.to_str().expect("a path in UTF-8");
        let mut words: Vec<String> = ["--target", &pid, "--net", "--mount"].map(str::to_owned).to_vec();
        if let Who::User(uid) = caller.who() {
            let uid = uid.to_string();
            words.extend(
                ["/usr/bin/setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups"].map(str::to_owned),
            );
        }
        words.extend(under.iter().map(|word| (*word).to_owned()));
        words.push(program.to_owned());
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        caller.root_program(Path::new("/usr/bin/nsenter"), words)
    }

    /// Words in front of a program that is to run on the host of this internet, as whoever runs the tests.
    pub fn before_programs(&self) -> Vec<String> {
        let pid = self.host.id().to_string();
        ["/usr/bin/nsenter", "--target", &pid, "--net"].map(str::to_owned).to_vec()
    }

    /// A Python program in a box on the host of this internet, to its end.
    pub fn python(&self, caller: &Caller, options: &[&str], code: &str) -> Boxed {
        let words: Vec<&str> = ["run", "--json", "--lang", "python"].iter().chain(options).copied().collect();
        self.blastbox(caller, &words).input(code).end().boxed()
    }

    /// Runs something in the world's network; sockets that are made there stay there.
    fn in_world(&self, make: impl FnOnce() + Send + 'static) {
        let network = File::open(format!("/proc/{}/ns/net", self.world.id())).expect("the world's network");
        let made = thread::spawn(move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("enter the world");
            make();
        });
        made.join().expect("make something in the world");
    }

    fn resolve(&self) {
        let log = Arc::clone(&self.log);
        self.in_world(move || {
            let socket = UdpSocket::bind((RESOLVER, 53)).expect("a resolver");
            socket.set_read_timeout(Some(GLANCE)).expect("a resolver");
            thread::spawn(move || {
                let mut buffer = [0; 2048];
                while !log.over.load(Ordering::Relaxed) {
                    let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                    if let Some(answer) = buffer.get(..length).and_then(|packet| log.answer(packet)) {
                        socket.send_to(&answer, from).ok();
                    }
                }
            });
        });
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        self.log.over.store(true, Ordering::Relaxed);
    }
}

fn own_network(pid: u32) -> bool {
    let network = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/net")).ok();
    let theirs = network(&pid.to_string());
    theirs.is_some() && theirs != network("self")
}

fn serve(listener: &TcpListener, log: &Arc<Log>) {
    while !log.over.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        let at = stream.local_addr().expect("where it came to");
        let at = SocketAddr::new(at.ip().to_canonical(), at.port());
        lock(&log.visits).push(at.to_string());
        let log = Arc::clone(log);
        thread::spawn(move || {
            stream.set_nonblocking(false).expect("a visit");
            stream.set_read_timeout(Some(GLANCE)).expect("a visit");
            let mut buffer = [0; 16_384];
            while !log.over.load(Ordering::Relaxed) {
                match stream.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(length) => {
                        if stream.write_all(buffer.get(..length).unwrap_or_default()).is_err() {
                            return;
                        }
                    }
                    Err(error)
                        if matches!(
                            error.kind(),
                            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                        ) => {}
                    Err(_) => return,
                }
            }
        });
    }
}

impl Log {
    /// An answer with every address of the wanted kind. Names that nobody gave do not exist.
    fn answer(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let (mut at, mut name) = (12, Vec::new());
        loop {
            let length = usize::from(*packet.get(at)?);
            if length == 0 {
                break;
            }
            name.push(String::from_utf8_lossy(packet.get(at + 1..at + 1 + length)?).to_lowercase());
            at += 1 + length;
        }
        let name = name.join(".");
        let question = packet.get(12..at + 5)?;
        let wants_v6 = packet.get(at + 2) == Some(&28);
        lock(&self.questions).push(name.clone());
        let way: Vec<String> = {
            let aliases = lock(&self.aliases);
            std::iter::successors(aliases.get(&name), |next| aliases.get(*next)).cloned().collect()
        };
        let mut names = lock(&self.names);
        let list = names.get_mut(way.last().unwrap_or(&name));
        let found = list.as_ref().map(|list| list.first().cloned().unwrap_or_default());
        // A and AAAA are asked together, in whatever order; the next list is for whoever asks for an A after that.
        if let Some(list) = list.filter(|list| list.len() > 1 && !wants_v6) {
            list.remove(0);
        }
        drop(names);
        let addresses: Vec<IpAddr> =
            found.iter().flatten().copied().filter(|address| address.is_ipv6() == wants_v6).collect();
        let code = if found.is_some() { 0 } else { 3 };
        let count = u8::try_from(way.len() + addresses.len()).ok()?;
        let mut answer = packet.get(..2)?.to_vec();
        answer.extend([0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
        answer.extend(question);
        // By pointer to the question; a time to live of 0, so that every connection asks again.
        let mut owner = vec![0xc0, 12];
        for alias in way {
            let target = wire_name(&alias)?;
            answer.extend(&owner);
            answer.extend([0, 5, 0, 1, 0, 0, 0, 0, 0, u8::try_from(target.len()).ok()?]);
            answer.extend(&target);
            owner = target;
        }
        for address in addresses {
            answer.extend(&owner);
            answer.extend([0, if wants_v6 { 28 } else { 1 }, 0, 1, 0, 0, 0, 0]);
            match address {
                IpAddr::V4(v4) => answer.extend([0, 4].into_iter().chain(v4.octets())),
                IpAddr::V6(v6) => answer.extend([0, 16].into_iter().chain(v6.octets())),
            }
        }
        Some(answer)
    }
}

/// A name as DNS writes it.
fn wire_name(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).ok()?);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    Some(bytes)
}
