//! `sudo` inside a box: this program under that name asks the agent to run a command as another user of the box.
//!
//! It has no privilege and gains none: no set-id bit, no password. The agent starts the command with this program's standard
//! streams; this program passes signals on, waits, and ends as the command did. Where the box has no root it says so.

mod options;
mod people;

use std::ffi::{OsStr, OsString};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use blastbox_sys::spawn;
use blastbox_wire::agent::{SUDO_NAME, SudoAnswer, SudoRequest};
use blastbox_wire::egress::BUNDLE_VARIABLES;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, send, sendmsg, socket_with,
};

use self::options::{Ask, Environment, Wanted};
use self::people::Person;

/// Whether the program was called by this name.
pub(crate) fn is_called(name: Option<&OsStr>) -> bool {
    name.and_then(|name| Path::new(name).file_name()).is_some_and(|name| name == "sudo")
}

/// The search path of a command, unless its environment is kept.
const SEARCH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What is kept of the environment in any case.
const KEPT: &[&str] = &["TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ", "DISPLAY", "DEBIAN_FRONTEND"];

/// Why nothing was started.
struct No(u8, String);

/// Asks, waits, and gives the code to leave with.
pub(crate) fn run(words: Vec<OsString>) -> u8 {
    match attempt(words) {
        Ok(code) => code,
        Err(No(code, text)) => {
            // Nobody is left to hear that it could not be written.
            writeln!(std::io::stderr(), "sudo: {text}").ok();
            code
        }
    }
}

fn attempt(words: Vec<OsString>) -> Result<u8, No> {
    let ask = match options::parse(words).map_err(|text| No(1, text))? {
        Wanted::Nothing => return Ok(0),
        Wanted::Text(text) => {
            writeln!(std::io::stdout(), "{text}").ok();
            return Ok(0);
        }
        Wanted::Command(ask) => ask,
    };
    let people = people::read();
    let person = people::find(&people, &ask.user)
        .ok_or_else(|| No(1, format!("unknown user {}", people::quoted(&ask.user))))?;
    let caller = people::caller(&people);
    let request = SudoRequest {
        uid: person.uid,
        gid: person.gid,
        environment: environment(&ask, &person, &caller),
        directory: directory(&ask, &person),
        arguments: arguments(ask, &person),
    };
    let command = String::from_utf8_lossy(request.arguments.first().map_or(b"", Vec::as_slice)).into_owned();
    let line = ask_agent(&request)?;
    match wait(&line)? {
        SudoAnswer::Code(code) => Ok(code),
        SudoAnswer::Signal(signal) => Ok(128_u8.saturating_add(signal)),
        SudoAnswer::NoDirectory(errno) => {
            Err(No(1, format!("cannot enter the working directory: {}", said(errno))))
        }
        SudoAnswer::NotStarted(2) => Err(No(127, format!("{command}: command not found"))),
        SudoAnswer::NotStarted(errno) => Err(No(126, format!("{command}: {}", said(errno)))),
    }
}

fn said(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}

fn arguments(ask: Ask, person: &Person) -> Vec<Vec<u8>> {
    let shell = |flag: &str| vec![person.shell.clone(), flag.as_bytes().to_vec()];
    match (ask.command.is_empty(), ask.login) {
        (false, false) => ask.command,
        (true, login) => shell(if login { "-l" } else { "-i" }),
        (false, true) => {
            let mut words = vec![person.shell.clone(), b"-lc".to_vec(), b"exec \"$@\"".to_vec()];
            words.push(person.shell.clone());
            words.extend(ask.command);
            words
        }
    }
}

fn directory(ask: &Ask, person: &Person) -> Vec<u8> {
    if ask.login {
        return person.home.clone();
    }
    std::env::current_dir().map_or_else(|_| b"/".to_vec(), |at| at.as_os_str().as_bytes().to_vec())
}

/// A fresh one, but for what makes programs of the box find its gateway and its words; or the caller's.
fn environment(ask: &Ask, person: &Person, caller: &Person) -> Vec<Vec<u8>> {
    let stays = |name: &[u8]| match &ask.environment {
        Environment::Whole => true,
        Environment::Named(names) => names.iter().any(|kept| kept.as_slice() == name) || is_usual(name),
    };
    let mut lines: Vec<(Vec<u8>, Vec<u8>)> = std::env::vars_os()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .filter(|(name, _)| stays(name))
        .collect();
    let mut set = |name: &str, value: &[u8]| {
        lines.retain(|(known, _)| known != name.as_bytes());
        lines.push((name.as_bytes().to_vec(), value.to_vec()));
    };
    if ask.environment != Environment::Whole {
        set("PATH", SEARCH.as_bytes());
    }
    set("HOME", &person.home);
    set("USER", &person.name);
    set("LOGNAME", &person.name);
    set("SHELL", &person.shell);
    set("SUDO_USER", &caller.name);
    set("SUDO_UID", caller.uid.to_string().as_bytes());
    set("SUDO_GID", caller.gid.to_string().as_bytes());
    for (name, value) in &ask.variables {
        lines.retain(|(known, _)| known != name);
        lines.push((name.clone(), value.clone()));
    }
    lines.into_iter().map(|(name, value)| [name.as_slice(), b"=", &value].concat()).collect()
}

fn is_usual(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    KEPT.contains(&name)
        || name.starts_with("LC_")
        || BUNDLE_VARIABLES.contains(&name)
        || name.to_ascii_lowercase().ends_with("_proxy")
}

fn ask_agent(request: &SudoRequest) -> Result<OwnedFd, No> {
    let bytes = request.encode().ok_or_else(|| No(1, "the command and its variables are too long".into()))?;
    let none = |errno: Errno| match errno {
        Errno::CONNREFUSED => No(1, "this box has no root; its policy says kernel.root = \"none\"".into()),
        other => No(1, format!("cannot reach the agent of this box: {other}")),
    };
    let line =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(none)?;
    let address = SocketAddrUnix::new_abstract_name(SUDO_NAME).map_err(none)?;
    connect(&line, &address).map_err(none)?;
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&streams));
    let mut sent =
        sendmsg(&line, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).map_err(none)?;
    while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
        sent = sent.saturating_add(send(&line, rest, SendFlags::NOSIGNAL).map_err(none)?);
    }
    Ok(line)
}

/// Passes signals on until the agent has answered.
fn wait(line: &OwnedFd) -> Result<SudoAnswer, No> {
    let lost = || No(1, "the agent sent this request away: too many at a time, or a closed stream".into());
    let signals = spawn::hold_signals().map_err(|error| No(1, format!("cannot hear signals: {error}")))?;
    loop {
        let mut ready = [
            PollFd::from_borrowed_fd(line.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(lost()),
        }
        let [answered, signalled] = ready.map(|one| !one.revents().is_empty());
        if signalled {
            let mut heard = [0_u8; 128];
            if rustix::io::read(&signals, &mut heard).is_ok() {
                // The number is the first word of what the kernel says of a signal; all numbers fit its first byte.
                let [number, ..] = heard;
                send(line, &[number], SendFlags::NOSIGNAL).ok();
            }
        }
        if answered {
            let mut bytes = [0_u8; 5];
            let (got, _) = recv(line, &mut bytes, RecvFlags::WAITALL).map_err(|_| lost())?;
            return SudoAnswer::parse(bytes).filter(|_| got == bytes.len()).ok_or_else(lost);
        }
    }
}
