//! A program that is a component of WASI 0.2 when it is compiled for wasm32-wasip2: what tests have it do is its first argument.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher as _;
use std::hint::black_box;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        Some("hello") => hello(&words),
        Some("exit") => std::process::exit(words[2].parse().unwrap()),
        Some("fail") => return ExitCode::FAILURE,
        Some("panic") => panic!("on purpose"),
        Some("files") => files(),
        Some("walk") => walk(),
        Some("outside") => outside(),
        Some("full") => full(),
        Some("output") => output(),
        Some("endless") => loop {
            black_box(());
        },
        Some("sleep") => sleep(Duration::MAX),
        Some("memory") => memory(),
        Some("stack") => println!("{}", deeper(1)),
        Some("handles") => handles(),
        Some("chance") => chance(),
        Some("sockets") => sockets(),
        other => panic!("nobody knows {other:?}"),
    }
    ExitCode::SUCCESS
}

fn hello(words: &[String]) {
    let mut input = String::new();
    io::stdin().read_to_string(&mut input).unwrap();
    println!("{:?} {:?} {:?}", &words[2..], std::env::var("A"), input);
    eprintln!("and to the other");
}

fn files() {
    println!("{:?} {:?}", fs::read_to_string("a.txt"), fs::read_to_string("/workspace/sub/b.txt"));
    fs::create_dir("made").unwrap();
    let mut file = File::options().read(true).write(true).create_new(true).open("made/one").unwrap();
    file.write_all(b"0123456789").unwrap();
    file.seek(SeekFrom::Start(2)).unwrap();
    file.write_all(b"xy").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    println!("{text} {}", file.metadata().unwrap().len());
    File::options().append(true).open("made/one").unwrap().write_all(b"!").unwrap();
    file.set_len(4).unwrap();
    println!("{:?}", fs::read_to_string("made/one"));
    fs::rename("made/one", "/tmp/two").unwrap();
    fs::copy("/tmp/two", "made/three").unwrap();
    let kinds = |at: &str| fs::metadata(at).map(|about| (about.is_dir(), about.len())).map_err(|e| e.kind());
    println!("{:?} {:?} {:?}", kinds("made"), kinds("made/three"), kinds("made/one"));
    println!("{:?}", fs::remove_dir("made").map_err(|error| error.raw_os_error()));
    fs::write("kept", vec![b'k'; 200_000]).unwrap();
    println!("{}", fs::read("kept").unwrap().len());
}

/// More entries than come at once, removed while they are read.
fn walk() {
    fs::create_dir_all("/tmp/deep/er").unwrap();
    for number in 0..1000 {
        fs::write(format!("/tmp/deep/f{number}"), "x").unwrap();
    }
    let names = || fs::read_dir("/tmp/deep").unwrap().map(|entry| entry.unwrap().file_name());
    let mut seen: Vec<_> = names().collect();
    seen.sort();
    seen.dedup();
    println!("{}", seen.len());
    for entry in fs::read_dir("/tmp/deep").unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    println!("{:?}", names().collect::<Vec<_>>());
    fs::remove_dir_all("/tmp/deep").unwrap();
    println!("{}", fs::exists("/tmp/deep").unwrap());
}

fn outside() {
    for path in ["/etc/passwd", "../etc/passwd", "../../../../etc/passwd", "/proc/self/status", "/wasm"] {
        println!("{}", fs::read(path).is_err());
    }
    println!("{}", fs::hard_link("a.txt", "b.txt").is_err());
    let mut root: Vec<_> =
        fs::read_dir("/workspace/..").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    root.sort();
    println!("{root:?}");
    println!("{}", fs::remove_dir("/workspace").is_err());
}

/// Writes until there is no room.
fn full() {
    let mut file = File::create("/tmp/full").unwrap();
    let mut written = 0;
    let why = loop {
        match file.write(&[7; 65_536]) {
            Ok(more) => written += more,
            Err(error) => break error,
        }
        assert!(written < 1 << 30);
    };
    println!("{} {:?}", written >> 20, why.raw_os_error());
    drop(file);
    fs::remove_file("/tmp/full").unwrap();
    println!("{:?}", fs::write("/tmp/again", [7; 65_536]));
}

fn output() {
    let line = "x".repeat(1 << 16);
    for _ in 0..16_384 {
        println!("{line}");
    }
}

fn memory() {
    let mut all: Vec<Vec<u8>> = Vec::new();
    loop {
        all.push(black_box(vec![1; 1 << 20]));
        black_box(&all);
    }
}

fn deeper(depth: u64) -> u64 {
    let held = black_box([depth; 64]);
    if held[0] == u64::MAX { 0 } else { black_box(deeper(depth + 1)) + held[1] }
}

fn handles() {
    let mut all = Vec::new();
    let why = loop {
        match File::create("/tmp/one") {
            Ok(file) => all.push(file),
            Err(error) => break error,
        }
        assert!(all.len() < 100_000);
    };
    println!("{} {:?}", all.len(), why.kind());
    drop(all);
    println!("{:?}", fs::write("/tmp/one", "again"));
    // Each makes what is waited for, and lets it go.
    for _ in 0..20_000 {
        sleep(Duration::from_nanos(1));
    }
    println!("slept");
}

fn chance() {
    let (begun, wall) = (Instant::now(), SystemTime::now());
    sleep(Duration::from_millis(10));
    println!("{}", RandomState::new().hash_one("x"));
    println!("{:?} {:?}", begun.elapsed(), wall.duration_since(SystemTime::UNIX_EPOCH));
    fs::write("/tmp/dated", "x").unwrap();
    let modified = fs::metadata("/tmp/dated").unwrap().modified().unwrap();
    println!("{:?}", modified.duration_since(SystemTime::UNIX_EPOCH));
}

fn sockets() {
    println!("{}", TcpStream::connect("127.0.0.1:1").is_err());
    println!("{}", TcpListener::bind("127.0.0.1:0").is_err());
    println!("{}", UdpSocket::bind("127.0.0.1:0").is_err());
    println!("{}", "localhost:80".to_socket_addrs().is_err());
}
