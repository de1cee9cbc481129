//! The host's side of one attempt: canaries, a secret, listeners, and what became of them.
//!
//! Every attempt is held against every sign, whatever it was meant to do. All of it lies in one directory that goes
//! with the scene. Whoever gets there may read and write it, so that nothing but the box stands in the way of an attempt
//! that has its mount or a descriptor of it; only the caller gets there by its path.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, Read as _};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::stage::{Stage, beginning, is_there};
use crate::sweep::{NONCE, SHARED, Whose, release, survivors};

/// How long what an attempt left must live to count: less than it sleeps, more than the kernel takes to end what is killed.
const LEFT: Duration = Duration::from_millis(500);
/// How long blastbox's own processes may take to end, after which they are left as well.
const OWN: Duration = Duration::from_secs(10);

/// One stage.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) directory: PathBuf,
    pub(crate) nonce: String,
    pub(crate) secret: String,
    pub(crate) tcp: Option<TcpListener>,
    pub(crate) tcp6: Option<TcpListener>,
    pub(crate) udp: Option<UdpSocket>,
    doors: Vec<(&'static str, UnixListener)>,
    before: BTreeMap<PathBuf, String>,
    stage: Stage,
}

fn word(bytes: usize) -> io::Result<String> {
    let mut random = vec![0_u8; bytes];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Files of a home and a project, as agents and people have them; those of the home hold the secret.
const HOME: [&str; 6] =
    [".aws/credentials", ".ssh/id_ed25519", ".netrc", ".git-credentials", ".docker/config.json", ".npmrc"];
/// What fixed paths of a host hold, for a box that is shown the host's root: stand-ins beneath the stage.
const FIXED: [&str; 9] = [
    "root/.ssh/id_rsa",
    "root/.bash_history",
    "var/run/secrets/kubernetes.io/serviceaccount/token",
    "run/secrets/password",
    "run/credentials/unit/token",
    "var/lib/cloud/instance/user-data.txt",
    "var/lib/blastbox/ledger.key",
    "etc/shadow",
    "etc/gshadow",
];
const PROJECT: [&str; 3] = ["notes.txt", ".git/config", ".git/HEAD"];

impl Scene {
    /// Sets a stage up that only the caller gets to by its path.
    pub(crate) fn new() -> io::Result<Self> {
        let nonce = format!("{NONCE}{}", word(10)?);
        let stage = Stage::new(&std::env::temp_dir(), &nonce)?;
        Self::on(stage, nonce)
    }

    /// Sets a stage up to which everybody gets who knows its name, so that modes stop nobody whom a box without mounts of its
    /// own should be stopped by something else. Nobody is told the name but that box, and not on a command line.
    pub(crate) fn passable() -> io::Result<Self> {
        let nonce = format!("{NONCE}{}", word(10)?);
        let stage = Stage::passable(&std::env::temp_dir(), &nonce, &word(16)?)?;
        let mut scene = Self::on(stage, nonce)?;
        for name in FIXED {
            scene.stage.put_deep(&format!("fixed/{name}"), &format!("{}\n", scene.secret))?;
        }
        scene.before = picture(&scene.directory);
        Ok(scene)
    }

    fn on(stage: Stage, nonce: String) -> io::Result<Self> {
        let secret = format!("secret-{}", word(16)?);
        // From here on it goes whatever happens.
        let mut scene = Self {
            directory: stage.directory.clone(),
            nonce,
            secret,
            tcp: None,
            tcp6: None,
            udp: None,
            doors: Vec::new(),
            before: BTreeMap::new(),
            stage,
        };
        scene.furnish()?;
        Ok(scene)
    }

    fn furnish(&mut self) -> io::Result<()> {
        let at = |name: &str| self.directory.join(name);
        for place in ["workspace", "workspace/.git", "workspace/.git/hooks", "home"] {
            self.stage.place(place, 0o777)?;
        }
        self.stage.put("canary", &self.nonce)?;
        self.stage.put("secret", &self.secret)?;
        for name in PROJECT {
            self.stage.put(&format!("workspace/{name}"), "as it was\n")?;
        }
        for name in HOME {
            if let Some((parent, _)) = name.split_once('/') {
                self.stage.place(&format!("home/{parent}"), 0o755)?;
            }
            self.stage.put(&format!("home/{name}"), &format!("{}\n", self.secret))?;
        }
        symlink(at("secret"), at("workspace/link"))?;
        symlink("..", at("workspace/up"))?;
        let silent = |listener: io::Result<TcpListener>| {
            listener.and_then(|open| open.set_nonblocking(true).map(|()| open))
        };
        let doors = [
            ("the socket on the stage", UnixListener::bind(at("socket"))?),
            ("the socket in the workspace", UnixListener::bind(at("workspace/socket"))?),
            (
                "the abstract socket",
                UnixListener::bind_addr(&SocketAddr::from_abstract_name(self.nonce.as_bytes())?)?,
            ),
        ];
        for socket in ["socket", "workspace/socket"] {
            // By its path: a socket cannot be opened. Nobody else has been in here yet.
            fs::set_permissions(at(socket), Permissions::from_mode(0o777))?;
        }
        self.stage.open_up()?;
        for (_, door) in &doors {
            door.set_nonblocking(true)?;
        }
        self.tcp = Some(silent(TcpListener::bind("127.0.0.1:0"))?);
        self.tcp6 = silent(TcpListener::bind("[::1]:0")).ok();
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        udp.set_nonblocking(true)?;
        self.udp = Some(udp);
        self.doors = doors.into();
        self.before = picture(&self.directory);
        Ok(())
    }

    /// What attempts are told. The secret is not among it.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let port = |listener: &Option<TcpListener>| {
            let address = listener.as_ref().and_then(|open| open.local_addr().ok());
            address.map_or_else(|| "0".to_owned(), |address| address.port().to_string())
        };
        let udp = self.udp.as_ref().and_then(|open| open.local_addr().ok());
        vec![
            ("ESCAPE_NONCE", self.nonce.clone()),
            ("ESCAPE_STAGE", self.directory.display().to_string()),
            ("ESCAPE_TCP", port(&self.tcp)),
            ("ESCAPE_TCP6", port(&self.tcp6)),
            ("ESCAPE_UDP", udp.map_or_else(|| "0".to_owned(), |address| address.port().to_string())),
        ]
    }

    /// What is in the environment of whoever starts a box, and must not come in.
    pub(crate) fn decoys(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_SECRET_ACCESS_KEY", self.secret.clone()),
            ("GITHUB_TOKEN", self.secret.clone()),
            ("SSH_AUTH_SOCK", self.directory.join("socket").display().to_string()),
        ]
    }

    /// Every sign on the host that something came out. `output`: what the attempt printed.
    pub(crate) fn signs(&self, output: &str, facts: &[String]) -> Vec<String> {
        let mut signs = Vec::new();
        if output.contains(&self.secret) {
            signs.push("the host's secret is in the output".to_owned());
        }
        // Three say as much as all of them.
        signs.extend(facts.iter().filter(|fact| output.contains(*fact)).take(3).map(|fact| {
            let start: String = fact.chars().take(12).collect();
            format!("a fact about the host is in the output: {start}…")
        }));
        let after = picture(&self.directory);
        for (path, was) in &self.before {
            match after.get(path) {
                None => signs.push(format!("{} is gone", self.short(path))),
                Some(is) if is != was => signs.push(format!("{} changed", self.short(path))),
                Some(_) => {}
            }
        }
        let new = after.keys().filter(|path| !self.before.contains_key(*path));
        signs.extend(new.map(|path| format!("{} appeared", self.short(path))));
        for place in SHARED {
            if is_there(&Path::new(place).join(&self.nonce)) {
                signs.push(format!("a file appeared in the host's {place}"));
            }
        }
        signs.extend(self.heard());
        signs.extend(self.living());
        signs
    }

    /// Who lives on. What an attempt leaves has the nonce as a word of its own, is gone when its box is, and would stay for
    /// seconds; blastbox's own processes have it in an option, and on a busy host may take their time to end.
    fn living(&self) -> Vec<String> {
        let told = |whose: Whose, patience: Duration| {
            let until = Instant::now() + patience;
            // By the nonce and not by number: some are always another.
            let mut living = survivors(&self.nonce, whose);
            while !living.is_empty() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
                living = survivors(&self.nonce, whose);
            }
            living
        };
        let left = told(Whose::Attempt, LEFT)
            .into_iter()
            .map(|who| format!("a process of the host survived: {who}"));
        let own = told(Whose::Blastbox, OWN).into_iter().map(|who| format!("blastbox left a process: {who}"));
        left.chain(own).collect()
    }

    fn short(&self, path: &Path) -> String {
        path.strip_prefix(&self.directory).unwrap_or(path).display().to_string()
    }

    /// Who was reached. A stranger who happens to connect does not know the nonce.
    fn heard(&self) -> Vec<String> {
        let mut heard = Vec::new();
        let mut piece = [0_u8; 64];
        let mut knows = |mut stream: Box<dyn io::Read>| {
            let count = stream.read(&mut piece).unwrap_or(0);
            piece.get(..count).is_some_and(|got| String::from_utf8_lossy(got).contains(&self.nonce))
        };
        let patience = Some(Duration::from_millis(200));
        for (name, listener) in [("127.0.0.1", &self.tcp), ("::1", &self.tcp6)] {
            let Some(listener) = listener else { continue };
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(patience)).ok();
                if knows(Box::new(stream)) {
                    heard.push(format!("the listener on {name} was reached"));
                }
            }
        }
        for (name, door) in &self.doors {
            while let Ok((stream, _)) = door.accept() {
                stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(patience)).ok();
                if knows(Box::new(stream)) {
                    heard.push(format!("{name} was reached"));
                }
            }
        }
        if let Some(udp) = &self.udp {
            while let Ok((count, _)) = udp.recv_from(&mut piece) {
                let got = piece.get(..count).unwrap_or_default();
                if String::from_utf8_lossy(got).contains(&self.nonce) {
                    heard.push("the datagram socket on 127.0.0.1 was reached".to_owned());
                }
            }
        }
        heard
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        release(&self.nonce);
    }
}

/// Everything in a directory: kind, mode, owner, content.
fn picture(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(path) = todo.pop() {
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        let mut line = format!("{:o} {} {}", about.mode(), about.uid(), about.nlink());
        if about.is_dir() {
            // How often a directory is linked tells of directories in it, which are told of themselves.
            line = format!("{:o} {}", about.mode(), about.uid());
            todo.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if about.is_symlink() {
            line.push_str(&fs::read_link(&path).map(|to| to.display().to_string()).unwrap_or_default());
        } else if about.is_file() {
            line.push_str(&format!("{} {:?}", about.len(), beginning(&path)));
        }
        seen.insert(path, line);
    }
    seen
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn an_untouched_stage_has_no_sign() {
        assert_eq!(Scene::new().unwrap().signs("nothing", &[]), Vec::<String>::new());
    }

    #[test]
    fn every_kind_of_sign_is_seen() {
        let scene = Scene::new().unwrap();
        fs::write(scene.directory.join("canary"), "other").unwrap();
        fs::write(scene.directory.join("workspace/.git/hooks/post-checkout"), "#!").unwrap();
        fs::remove_file(scene.directory.join("home/.npmrc")).unwrap();
        let mut stream = TcpStream::connect(scene.tcp.as_ref().unwrap().local_addr().unwrap()).unwrap();
        stream.write_all(scene.nonce.as_bytes()).unwrap();
        let signs = scene.signs(&format!("a {} b fact-1234", scene.secret), &["fact-1234".to_owned()]);
        for part in
            ["secret", "fact", "canary changed", "post-checkout appeared", ".npmrc is gone", "127.0.0.1"]
        {
            assert!(signs.iter().any(|sign| sign.contains(part)), "{part}: {signs:?}");
        }
    }

    #[test]
    fn a_stranger_at_the_door_is_no_sign() {
        let scene = Scene::new().unwrap();
        let mut stream = TcpStream::connect(scene.tcp.as_ref().unwrap().local_addr().unwrap()).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        assert_eq!(scene.signs("", &[]), Vec::<String>::new());
    }
}
