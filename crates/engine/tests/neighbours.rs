//! Two boxes of one warden, which is what a daemon has: neither reaches the other. (`blastbox run` has a warden a box.)
//!
//! Runs as whoever runs the tests. `BLASTBOX_BIN_DIR` names the directory of the built programs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

use std::path::{Path, PathBuf};

use blastbox_engine::{BoxSpec, Command, Engine, Exec, ExecEvent, LiveBox};
use blastbox_images::Image;
use blastbox_isolation::Warden;
use blastbox_policy::Profile;
use blastbox_wire::agent::{Io, User};

/// Everything that can listen in a box without a network. Then says so, and whom it heard when a while has passed.
const LISTEN: &str = r#"
import select, socket
ears = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
for ear, at in zip(ears, ("\0canary", "\0canary-datagrams", ("0.0.0.0", 7007))): ear.bind(at)
ears[0].listen()
print("listening", flush=True)
print("heard", len(select.select(ears, [], [], 1)[0]), flush=True)
"#;

/// The beginning of what the other box does.
const TRIED: &str = r#"
import errno, socket
def tried(what, *arguments):
    try: what(*arguments); return "ok"
    except OSError as error: return errno.errorcode[error.errno]
"#;

const KNOCK: &str = r#"
print(tried(socket.socket(socket.AF_UNIX).connect, "\0canary"),
    tried(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto, b"x", "\0canary-datagrams"),
    tried(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto, b"x", ("127.0.0.1", 7007)),
    tried(socket.socket(socket.AF_INET).connect, ("127.0.0.1", 7007)))
for number in range(8): tried(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto, b"x", ("0.0.0.0", 7007))
print("end", flush=True)
"#;

const LOOK: &str = r#"
print("canary" in open("/proc/self/net/unix").read(), ":1B5F" in open("/proc/self/net/udp").read(),
    tried(socket.socket(socket.AF_UNIX).bind, "\0canary"), tried(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind, ("0.0.0.0", 7007)))
print("end", flush=True)
"#;

fn warden() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/blastbox");
    let dir = std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(beside, PathBuf::from);
    dir.join("blastbox-warden")
}

async fn python(live: &LiveBox, code: &str) -> Exec {
    let words = ["/usr/bin/python3", "-c", code];
    let arguments = words.map(|word| word.as_bytes().to_vec()).to_vec();
    live.exec(Command {
        arguments,
        environment: Vec::new(),
        directory: b"/tmp".to_vec(),
        io: Io::Pipes,
        user: User::Payload,
    })
    .await
}

/// What a command prints up to and with the line that begins with this word.
async fn until(exec: &Exec, word: &str) -> String {
    let mut text = String::new();
    loop {
        match exec.next().await {
            ExecEvent::Started { .. } | ExecEvent::Called(_) => {}
            ExecEvent::Output { bytes, .. } => text.push_str(&String::from_utf8_lossy(&bytes)),
            ExecEvent::Ended(end) => text.push_str(&format!("\n{end:?}\n")),
        }
        if text.lines().any(|line| line.starts_with(word)) || text.contains("Exited") {
            return text;
        }
    }
}

/// What the one box printed while the other one listened, and what that one had heard in the end.
async fn meet(code: &str) -> (String, String) {
    let engine = Engine::with_warden(Warden::start_program(&warden()).unwrap()).unwrap();
    let policy = Profile::Default.draft().unwrap().seal().unwrap();
    let image = Image::host();
    let spec = || BoxSpec { policy: &policy, image: &image, workspace: None, volumes: &[], secrets: &[] };
    let (one, other) = (engine.launch(spec()).await.unwrap(), engine.launch(spec()).await.unwrap());
    let listening = python(&one, LISTEN).await;
    let begun = until(&listening, "listening").await;
    assert!(begun.contains("listening"), "{begun}");
    let knocked = until(&python(&other, &format!("{TRIED}\n{code}")).await, "end").await;
    let heard = until(&listening, "heard").await;
    one.end().await;
    other.end().await;
    (knocked, heard)
}

#[tokio::test]
async fn a_box_cannot_speak_to_its_neighbour() {
    let (knocked, heard) = meet(KNOCK).await;
    // The names are not even there: each box has a network of its own.
    assert_eq!(knocked, "ECONNREFUSED ECONNREFUSED ENETUNREACH EACCES\nend\n", "abstract sockets, UDP, TCP");
    assert!(heard.contains("heard 0"), "{heard}");
}

#[tokio::test]
async fn a_box_does_not_see_the_names_of_its_neighbours_sockets() {
    let (seen, _) = meet(LOOK).await;
    assert_eq!(seen, "False False ok ok\nend\n", "listed in unix, listed in udp, same name, same port");
}
