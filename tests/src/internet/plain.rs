//! Servers of the small internet that speak no TLS: one that does with each visitor what its test wants, one for crowds.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::{GLANCE, Internet, Log, lock};

/// The listener among what is waited for; visitors count from 1.
const LISTENER: u64 = 0;

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

    /// A server on every address of the world that gives back the few bytes at a time that it gets, to any number of visitors with one
    /// thread, and remembers each visit.
    pub fn crowded_echo(&self, port: u16) {
        let log = Arc::clone(&self.log);
        self.in_world(move || {
            let listener = TcpListener::bind(("::", port)).expect("a server");
            thread::spawn(move || crowded(&listener, &log));
        });
    }
}

fn crowded(listener: &TcpListener, log: &Log) {
    let waits = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a server");
    let watch = |what: &dyn std::os::fd::AsFd, number| {
        epoll::add(&waits, what.as_fd(), epoll::EventData::new_u64(number), epoll::EventFlags::IN)
            .expect("watch a visitor");
    };
    watch(listener, LISTENER);
    let (mut visitors, mut number) = (HashMap::new(), LISTENER);
    let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
    let glance = Timespec { tv_sec: 0, tv_nsec: i64::from(GLANCE.subsec_nanos()) };
    while !log.over.load(Ordering::Relaxed) {
        events.clear();
        epoll::wait(&waits, spare_capacity(&mut events), Some(&glance)).ok();
        for event in &events {
            let who = event.data.u64();
            if who == LISTENER {
                let (stream, _) = listener.accept().expect("take a visitor");
                let at = stream.local_addr().expect("where it came to");
                lock(&log.visits).push(SocketAddr::new(at.ip().to_canonical(), at.port()).to_string());
                number += 1;
                watch(&stream, number);
                visitors.insert(number, stream);
                continue;
            }
            let mut buffer = [0; 64];
            let stays = visitors.get_mut(&who).is_some_and(|visitor: &mut TcpStream| {
                let length = visitor.read(&mut buffer).unwrap_or_default();
                length > 0 && visitor.write_all(buffer.get(..length).unwrap_or_default()).is_ok()
            });
            if !stays {
                visitors.remove(&who);
            }
        }
    }
}
