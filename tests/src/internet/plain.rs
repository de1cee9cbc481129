//! A server of the small internet that speaks no TLS and does with each visitor what its test wants.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::Internet;

impl Internet {
    /// A server on every address of the world: each visitor has a thread of its own.
    pub fn server(&self, port: u16, with: impl Fn(TcpStream) + Send + Sync + 'static) {
        let (log, with) = (Arc::clone(&self.log), Arc::new(with));
        self.in_world(move || {
            let listener = TcpListener::bind(("::", port)).expect("a server");
            listener.set_nonblocking(true).expect("a server");
            thread::spawn(move || {
                while !log.over.load(Ordering::Relaxed) {
                    let Ok((stream, _)) = listener.accept() else {
                        thread::sleep(Duration::from_millis(2));
                        continue;
                    };
                    stream.set_nonblocking(false).expect("a visit");
                    let with = Arc::clone(&with);
                    thread::spawn(move || with(stream));
                }
            });
        });
    }
}
