//! A listener on loopback for what daemons send by themselves.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// Head and body.
pub type Request = (String, Vec<u8>);

/// One who gets what the daemon sends.
#[derive(Debug, Clone)]
pub struct Ear {
    /// Where it listens.
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<Request>>>,
    /// While this is off, everything is answered with 503.
    pub open: Arc<AtomicBool>,
}

impl Ear {
    /// One that takes what it is sent, or not yet.
    pub fn new(open: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen on loopback");
        let address = listener.local_addr().expect("an address");
        let ear = Self { address, heard: Arc::default(), open: Arc::new(AtomicBool::new(open)) };
        let own = ear.clone();
        // Ends with the test's process.
        thread::spawn(move || listener.incoming().flatten().for_each(|line| own.answer(line)));
        ear
    }

    fn answer(&self, mut line: TcpStream) {
        let Some((head, body)) = request(&mut line) else { return };
        let open = self.open.load(Ordering::SeqCst);
        let last =
            head.lines().find_map(|line| line.strip_prefix("x-blastbox-last-seq: ").map(str::to_owned));
        let text = format!("{{\"acked\":{}}}", last.unwrap_or_else(|| "0".to_owned()));
        let status = if open { "200 OK" } else { "503 Closed" };
        if open {
            self.heard.lock().expect("nobody panics with it").push((head, body));
        }
        // Whoever asks may have gone.
        write!(line, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{text}", text.len()).ok();
    }

    /// What it took.
    pub fn heard(&self) -> Vec<Request> {
        self.heard.lock().expect("nobody panics with it").clone()
    }

    /// The records of a ledger that it took.
    pub fn records(&self) -> Vec<Value> {
        let bodies: Vec<u8> = self.heard().into_iter().flat_map(|(_, body)| body).collect();
        let text = String::from_utf8(bodies).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Whether there is one of this kind among them.
    pub fn has(&self, kind: &str) -> bool {
        self.records().iter().any(|record| record.pointer("/event/kind").is_some_and(|found| found == kind))
    }
}

fn request(line: &mut TcpStream) -> Option<Request> {
    let (mut bytes, mut room) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(bytes.get(..at)?).into_owned();
            let body = bytes.get(at + 4..)?.to_vec();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            if length.parse() == Ok(body.len()) {
                return Some((head, body));
            }
        }
        match line.read(&mut room) {
            Ok(count @ 1..) => bytes.extend_from_slice(room.get(..count)?),
            Ok(_) | Err(_) => return None,
        }
    }
}
