//! A box that lies to `blastbox cp`: what it answers, and what must not be made of it on the host.
//!
//! An agent that was taken over says what it likes, and the daemon passes it on. So the liar here stands in the daemon's
//! place, at the nearest to the one who copies: every byte of the answer is the attacker's, whatever the tier.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::archive::Archive;

/// What is told to whoever asks for a directory of a box; [`Reply::ThroughLink`] and [`Reply::ModeOfFile`]: for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the catalogue says what each tries")]
pub enum Reply {
    Absolute,
    DotDot,
    LinkThenFile,
    LinkReplaced,
    HardLink,
    LinkOut,
    LinkThatWasThere,
    LongName,
    GnuLongName,
    Device,
    SetId,
    Pipe,
    Endless,
    ThroughLink,
    ModeOfFile,
}

/// The most that is taken; [`Reply::Endless`] sends four times as much.
pub(crate) const MOST: &str = "1MiB";
const LIMIT: u64 = 1 << 20;
const EVIL: &[u8] = b"written by a box\n";
const PATIENCE: Duration = Duration::from_secs(5);

impl Reply {
    /// The mode of the one file that is told, in octal.
    pub(crate) fn one_file(self) -> Option<&'static str> {
        match self {
            Self::ThroughLink => Some("644"),
            Self::ModeOfFile => Some("4755"),
            _ => None,
        }
    }

    /// The bytes of the answer. `stage`: the directory of the canaries, which lies beside the target.
    fn bytes(self, stage: &Path) -> Vec<u8> {
        let canary = stage.join("canary").display().to_string();
        let archive = Archive::new().file("good", 0o644, b"good\n");
        let archive = match self {
            Self::Absolute => archive.file(&canary, 0o644, EVIL),
            Self::DotDot => archive.file("../stage/canary", 0o644, EVIL),
            Self::LinkThenFile => archive.link("way", "../stage").file("way/canary", 0o644, EVIL),
            Self::LinkReplaced => archive.link("name", &canary).file("name", 0o644, EVIL),
            Self::HardLink => archive.hard_link("name", &canary).file("name", 0o644, EVIL),
            Self::LinkOut => archive.link("look", &stage.join("secret").display().to_string()),
            Self::LinkThatWasThere => archive.file("up/canary", 0o644, EVIL),
            Self::LongName => archive.renamed("../stage/canary").file("harmless", 0o644, EVIL),
            Self::GnuLongName => archive.long_name("../stage/canary").file("harmless", 0o644, EVIL),
            Self::Device => archive.device("null", 1, 3),
            Self::SetId => archive.file("program", 0o6755, EVIL),
            Self::Pipe => archive.pipe("notes.txt"),
            Self::Endless => archive.file("large", 0o644, &vec![b'x'; 4 << 20]),
            Self::ThroughLink | Self::ModeOfFile => return EVIL.to_vec(),
        };
        archive.end()
    }
}

/// Where such a reply goes, and what it is.
#[derive(Debug)]
pub(crate) struct Copying {
    reply: Reply,
    bytes: Vec<u8>,
    /// Beside the stage, so that what belongs there is no sign.
    pub(crate) target: PathBuf,
    pub(crate) file: PathBuf,
    socket: PathBuf,
}

impl Copying {
    /// Prepares the place beside a stage. It goes with the stage's own directory.
    pub(crate) fn new(reply: Reply, stage: &Path) -> io::Result<Self> {
        let outer = stage.parent().unwrap_or(stage);
        let (target, file) = (outer.join("target"), outer.join("reply"));
        fs::DirBuilder::new().mode(0o700).create(&target)?;
        // Links of the caller's own, as a checkout has them.
        symlink("../stage", target.join("up"))?;
        if reply == Reply::ThroughLink {
            symlink("../stage/canary", target.join("file"))?;
        }
        let bytes = reply.bytes(stage);
        fs::write(&file, &bytes)?;
        Ok(Self { reply, bytes, target, file, socket: outer.join("daemon") })
    }

    pub(crate) fn one_file(&self) -> &'static str {
        self.reply.one_file().unwrap_or_default()
    }

    /// What `blastbox` is asked.
    pub(crate) fn question(&self) -> Vec<std::ffi::OsString> {
        let (from, to) = match self.reply.one_file() {
            Some(_) => ("bx_aaaaaaaaaaaaaaaaaaaa:/tmp/file", self.target.join("file")),
            None => ("bx_aaaaaaaaaaaaaaaaaaaa:/tmp/t/.", self.target.clone()),
        };
        let mut words: Vec<std::ffi::OsString> = vec!["cp".into(), "--limit".into(), MOST.into()];
        words.extend(["--socket".into(), self.socket.clone().into(), from.into(), to.into()]);
        words
    }

    /// What lies in the target and must not: whoever works there next would meet it.
    pub(crate) fn signs(&self) -> Vec<String> {
        let (mut signs, mut bytes) = (Vec::new(), 0_u64);
        let mut todo = vec![self.target.clone()];
        while let Some(path) = todo.pop() {
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            let name = path.strip_prefix(&self.target).unwrap_or(&path).display().to_string();
            let kind = about.file_type();
            if about.is_dir() {
                todo.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
            } else if kind.is_symlink() {
                let to = fs::read_link(&path).unwrap_or_default();
                let was_there = name == "up" || name == "file";
                if !was_there && (to.is_absolute() || to.starts_with("..")) {
                    signs.push(format!("{name} is a link that leads out of what was copied"));
                }
            } else if !about.is_file() {
                let device = kind.is_char_device() || kind.is_block_device();
                signs.push(format!("{name} is {}", if device { "a device" } else { "a pipe or a socket" }));
            } else {
                bytes = bytes.saturating_add(about.len());
                if about.mode() & 0o6000 != 0 {
                    signs.push(format!("{name} is set-id"));
                }
            }
        }
        if bytes > LIMIT {
            signs.push(format!("{bytes} bytes came where {LIMIT} were allowed"));
        }
        signs
    }

    /// Begins to lie.
    pub(crate) fn lie(&self) -> io::Result<Liar> {
        let listener = UnixListener::bind(&self.socket)?;
        listener.set_nonblocking(true)?;
        let (over, told) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (kind, mode) = match self.reply.one_file() {
            Some(mode) => ("file", mode),
            None => ("directory", "755"),
        };
        let stat = format!("{{\"kind\":\"{kind}\",\"mode\":\"{mode}\",\"size\":0}}");
        let (bytes, end, count) = (self.bytes.clone(), Arc::clone(&over), Arc::clone(&told));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                match listener.accept() {
                    // One who hangs up early has heard enough.
                    Ok((line, _)) => drop(answer(line, stat.as_bytes(), &bytes, &count)),
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        Ok(Liar { over, told, thread: Some(thread) })
    }
}

fn answer(mut line: UnixStream, stat: &[u8], bytes: &[u8], told: &AtomicUsize) -> io::Result<()> {
    line.set_nonblocking(false)?;
    line.set_read_timeout(Some(PATIENCE))?;
    line.set_write_timeout(Some(PATIENCE))?;
    let (mut head, mut piece) = (Vec::new(), [0_u8; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < 16 * 1024 {
        let count = line.read(&mut piece)?;
        if count == 0 {
            return Ok(());
        }
        head.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    let asks_about = head.windows(6).any(|word| word == b"/stat?");
    let body = if asks_about { stat } else { bytes };
    if !asks_about {
        told.fetch_add(1, Ordering::Relaxed);
    }
    let length = body.len();
    write!(line, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n")?;
    line.write_all(body)
}

/// Somebody who answers in a daemon's place as long as this lives.
#[derive(Debug)]
pub(crate) struct Liar {
    over: Arc<AtomicBool>,
    told: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Liar {
    /// Whether anybody has asked for the lie itself.
    pub(crate) fn was_asked(&self) -> bool {
        self.told.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}
