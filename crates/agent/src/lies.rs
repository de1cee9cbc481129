//! An agent that was taken over: it says whatever the command's environment names. Only in a test build (`make lifted`), to show that
//! the host reads every byte of a box as if an attacker had written it (`blastbox escape --lifted`). No release has it.

use std::os::fd::OwnedFd;

use blastbox_wire::agent::{AgentFrame, BootFacts, ExecSpec, Exit, HostFrame, Usage, VERSION};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read, retry_on_intr, write};

/// The variable that names the lie.
const NAME: &[u8] = b"ESCAPE_LIE=";
const USAGE: Usage = Usage { user_micros: 0, system_micros: 0, peak_bytes: 0, fuel: None };

/// Greets as an honest agent does, waits for a command, lies, and waits for the host to hang up.
pub(crate) fn tell(control: &OwnedFd) -> Option<u8> {
    let facts = BootFacts { pid: 1, uid: 0, capabilities: 0, sees_denials: false, kernel: "6".to_owned() };
    send(control, &AgentFrame::Hello { version: VERSION, facts }.encode())?;
    let spec = asked(control)?;
    let lie = spec.environment.iter().find_map(|one| one.strip_prefix(NAME)).unwrap_or_default();
    for piece in bytes(lie, spec.exec) {
        send(control, &piece)?;
    }
    if lie == b"cut" {
        return Some(0);
    }
    let mut rest = [0; 4096];
    while receive(control, &mut rest)? > 0 {}
    Some(0)
}

/// The first command.
fn asked(control: &OwnedFd) -> Option<ExecSpec> {
    let (mut input, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match HostFrame::parse(&input) {
            Ok(Some((HostFrame::Exec(spec), _))) => return Some(spec),
            Ok(Some((_, taken))) => drop(input.drain(..taken)),
            Ok(None) => match receive(control, &mut piece)? {
                0 => return None,
                count => input.extend_from_slice(piece.get(..count)?),
            },
            Err(_) => return None,
        }
    }
}

/// What is said for a lie, in pieces.
fn bytes(lie: &[u8], exec: u32) -> Vec<Vec<u8>> {
    let started = AgentFrame::Started { exec, pid: 2 }.encode();
    let exited = |exec, code| AgentFrame::Exited { exec, exit: Exit::Code(code), usage: USAGE }.encode();
    let output = |exec, stream, bytes| AgentFrame::Output { exec, stream, bytes }.encode();
    // First its own name: what did not begin with that was never told.
    let name = [lie, b"\n"].concat();
    let mut told = vec![started.clone(), output(exec, 1, &name)];
    match lie {
        b"unknown-kind" => told.push(vec![0xEE, 0, 0, 0, 0]),
        b"lying-length" => told.push(vec![started.first().copied().unwrap_or(2), 0xFF, 0xFF, 0xFF, 0xFF]),
        b"short-body" => told.push(vec![started.first().copied().unwrap_or(2), 0, 0, 0, 1, 0]),
        b"cut" => told.push(started.get(..6).unwrap_or_default().to_vec()),
        b"host-frame" => told.push(HostFrame::Shutdown.encode()),
        b"foreign-exit" => told.push(exited(exec.wrapping_add(7), 0)),
        b"foreign-output" => told.push(output(exec.wrapping_add(7), 1, b"x")),
        b"third-stream" => told.push(output(exec, 3, b"x")),
        b"start-twice" => told.push(started),
        b"hello-twice" => {
            let facts =
                BootFacts { pid: 1, uid: 0, capabilities: 0, sees_denials: false, kernel: String::new() };
            told.push(AgentFrame::Hello { version: VERSION, facts }.encode());
        }
        b"beyond-window" => told.extend((0..256).map(|_| output(exec, 1, &[b'x'; 32 * 1024]))),
        b"denied-flood" => told.extend((0..100_000).map(|number| {
            AgentFrame::Denied { number, count: u64::MAX, pid: 2, arguments: [u64::MAX; 3] }.encode()
        })),
        b"input-never-sent" => told.push(AgentFrame::StdinTaken { exec, bytes: u32::MAX }.encode()),
        // The one who says nothing more at all.
        b"silence" => {}
        // A lie of a campaign that is newer than this build is not told, and not named.
        _ => return vec![started],
    }
    told
}

fn ready(control: &OwnedFd, for_what: PollFlags) -> Option<()> {
    retry_on_intr(|| poll(&mut [PollFd::new(control, for_what)], None)).ok().map(drop)
}

fn receive(control: &OwnedFd, piece: &mut [u8]) -> Option<usize> {
    loop {
        match read(control, &mut *piece) {
            Ok(count) => return Some(count),
            Err(Errno::AGAIN | Errno::INTR) => ready(control, PollFlags::IN)?,
            Err(_) => return None,
        }
    }
}

fn send(control: &OwnedFd, mut piece: &[u8]) -> Option<()> {
    while !piece.is_empty() {
        match write(control, piece) {
            Ok(count) => piece = piece.get(count..)?,
            Err(Errno::AGAIN | Errno::INTR) => ready(control, PollFlags::OUT)?,
            Err(_) => return None,
        }
    }
    Some(())
}
