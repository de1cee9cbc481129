//! The frames between host and agent: what is written is read again, and what is not a frame is refused and nothing
//! worse. The seeds of the fuzz targets are replayed here, so that every test run feeds them to both readers.

use std::io;
use std::path::Path;

use blastbox_wire::CodecError;
use blastbox_wire::agent::{
    AgentFrame, BootFacts, ExecSpec, Exit, FrameError, HostFrame, Io, Oddity, OnDenied, Stage, StandingExec,
    Usage, User, parse,
};
use blastbox_wire::limits::{MAX_AGENT_FRAME, MAX_HOST_FRAME, MAX_OUTPUT_CHUNK, MAX_STDIN_CHUNK};
use proptest::collection::vec;
use proptest::prelude::*;

fn stage() -> impl Strategy<Value = Stage> {
    prop::sample::select(vec![
        Stage::Find,
        Stage::Directory,
        Stage::Streams,
        Stage::Fork,
        Stage::Identity,
        Stage::Execute,
        Stage::Admission,
    ])
}

fn exit() -> impl Strategy<Value = Exit> {
    prop_oneof![any::<u8>().prop_map(Exit::Code), any::<u8>().prop_map(Exit::Signal), Just(Exit::FuelSpent)]
}

fn facts() -> impl Strategy<Value = BootFacts> {
    (any::<(u32, u32, u64, bool)>(), "\\PC{0,60}").prop_map(|(numbers, kernel)| {
        let (pid, uid, capabilities, sees_denials) = numbers;
        BootFacts { pid, uid, capabilities, sees_denials, kernel }
    })
}

/// A frame of every kind that borrows nothing.
fn agent_frame() -> impl Strategy<Value = AgentFrame<'static>> {
    prop_oneof![
        (any::<u16>(), facts()).prop_map(|(version, facts)| AgentFrame::Hello { version, facts }),
        any::<(u32, u32)>().prop_map(|(exec, pid)| AgentFrame::Started { exec, pid }),
        (any::<u32>(), stage(), any::<i32>()).prop_map(|(exec, stage, errno)| AgentFrame::NotStarted {
            exec,
            stage,
            errno
        }),
        (any::<u32>(), exit(), any::<([u64; 3], Option<u64>)>()).prop_map(|(exec, exit, (used, fuel))| {
            let [user_micros, system_micros, peak_bytes] = used;
            let usage = Usage { user_micros, system_micros, peak_bytes, fuel };
            AgentFrame::Exited { exec, exit, usage }
        }),
        any::<(u32, u64, u32, [u64; 3])>().prop_map(|(number, count, pid, arguments)| {
            AgentFrame::Denied { number, count, pid, arguments }
        }),
        (odd(), any::<(u32, u64, u32)>(), prop_oneof![Just(&b""[..]), Just(&b"/etc/\xff\n"[..])]).prop_map(
            |(oddity, (number, count, pid), path)| AgentFrame::Wrote { oddity, number, count, pid, path }
        ),
        any::<(u32, u32)>().prop_map(|(exec, bytes)| AgentFrame::StdinTaken { exec, bytes }),
        any::<u64>().prop_map(|token| AgentFrame::Pong { token }),
        any::<[bool; 4]>().prop_map(|met| AgentFrame::Full { met }),
        (any::<[u64; 2]>(), vec(standing(), 0..20))
            .prop_map(|([token, printed], execs)| AgentFrame::Standing { token, printed, execs }),
        any::<i32>().prop_map(|errno| AgentFrame::Asleep { errno }),
    ]
}

fn odd() -> impl Strategy<Value = Oddity> {
    prop_oneof![Just(Oddity::Outside), Just(Oddity::PoisonsTools), Just(Oddity::Unreadable)]
}

fn standing() -> impl Strategy<Value = StandingExec> {
    any::<(u32, u32, bool, u64, u32, bool)>().prop_map(|(exec, pid, ended, printed, unread, takes_input)| {
        StandingExec { exec, pid, ended, printed, unread, takes_input }
    })
}

fn io() -> impl Strategy<Value = Io> {
    prop_oneof![
        Just(Io::Pipes),
        Just(Io::PipesWithStdin),
        any::<(u16, u16)>().prop_map(|(rows, columns)| Io::Terminal { rows, columns }),
    ]
}

fn exec_spec() -> impl Strategy<Value = ExecSpec> {
    let texts = || vec(vec(any::<u8>(), 0..40), 0..8);
    (any::<u32>(), texts(), texts(), vec(any::<u8>(), 0..40), io(), any::<u32>()).prop_map(
        |(exec, arguments, environment, directory, io, window)| ExecSpec {
            exec,
            arguments,
            environment,
            directory,
            user: User::Payload,
            io,
            window,
        },
    )
}

fn host_frame() -> impl Strategy<Value = HostFrame> {
    let reaction = || prop::sample::select(vec![OnDenied::Record, OnDenied::Kill]);
    prop_oneof![
        (any::<u16>(), reaction(), any::<bool>())
            .prop_map(|(version, on_denied, heritable)| HostFrame::Begin { version, on_denied, heritable }),
        exec_spec().prop_map(HostFrame::Exec),
        (any::<u32>(), vec(any::<u8>(), 0..300)).prop_map(|(exec, bytes)| HostFrame::Stdin { exec, bytes }),
        any::<u32>().prop_map(|exec| HostFrame::StdinEnd { exec }),
        any::<(u32, u16, u16)>().prop_map(|(exec, rows, columns)| HostFrame::Resize { exec, rows, columns }),
        any::<(u32, u8)>().prop_map(|(exec, signal)| HostFrame::Signal { exec, signal }),
        any::<(u32, u32)>().prop_map(|(exec, bytes)| HostFrame::Credit { exec, bytes }),
        any::<u64>().prop_map(|token| HostFrame::Ping { token }),
        Just(HostFrame::Shutdown),
        Just(HostFrame::Farewell),
        any::<u64>().prop_map(|token| HostFrame::Resync { token }),
        Just(HostFrame::Sleep),
        any::<(u32, u32, bool, Vec<u8>)>().prop_map(|(exec, call, good, bytes)| HostFrame::Answer {
            exec,
            call,
            good,
            bytes
        }),
    ]
}

proptest! {
    #[test]
    fn what_the_agent_says_is_what_the_host_hears(frame in agent_frame(), more: Vec<u8>) {
        let mut bytes = frame.encode();
        let length = bytes.len();
        bytes.extend(more);
        prop_assert_eq!(parse(&bytes), Ok(Some((frame, length))));
        prop_assert_eq!(parse(&bytes[..length - 1]), Ok(None));
    }

    #[test]
    fn output_is_heard_as_it_was_written(exec: u32, stream in 1..=2_u8, bytes: Vec<u8>) {
        let frame = AgentFrame::Output { exec, stream, bytes: &bytes };
        let encoded = frame.encode();
        prop_assert_eq!(parse(&encoded), Ok(Some((frame, encoded.len()))));
        // A head with the output right behind it is the same frame.
        let head = AgentFrame::output_head(exec, stream, bytes.len());
        prop_assert_eq!([&head[..], &bytes].concat(), encoded);
    }

    #[test]
    fn a_call_is_heard_as_it_was_said(exec: u32, call: u32, tool in "\\PC{0,16}", input: Vec<u8>) {
        let frame = AgentFrame::Call { exec, call, tool: &tool, input: &input };
        let encoded = frame.encode();
        prop_assert_eq!(parse(&encoded), Ok(Some((frame, encoded.len()))));
    }

    #[test]
    fn a_fault_is_heard_as_it_was_said(text in "\\PC{0,60}") {
        let encoded = AgentFrame::Fault { text: &text }.encode();
        prop_assert_eq!(parse(&encoded), Ok(Some((AgentFrame::Fault { text: &text }, encoded.len()))));
    }

    #[test]
    fn what_the_host_says_is_what_the_agent_hears(frame in host_frame(), more: Vec<u8>) {
        let mut bytes = frame.encode();
        let length = bytes.len();
        bytes.extend(more);
        prop_assert_eq!(HostFrame::parse(&bytes), Ok(Some((frame, length))));
        prop_assert_eq!(HostFrame::parse(&bytes[..length - 1]), Ok(None));
    }

    #[test]
    fn no_bytes_are_too_strange(bytes: Vec<u8>) {
        drop(parse(&bytes));
        drop(HostFrame::parse(&bytes));
    }

    /// Reaches the bodies, which bytes without any sense seldom do.
    #[test]
    fn no_body_is_too_strange(kind: u8, body: Vec<u8>) {
        let mut bytes = vec![kind];
        bytes.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        bytes.extend(&body);
        for taken in [parse(&bytes).map(|frame| frame.map(|(_, taken)| taken)),
            HostFrame::parse(&bytes).map(|frame| frame.map(|(_, taken)| taken))]
        {
            prop_assert!(taken.is_err() || taken == Ok(Some(bytes.len())));
        }
    }

    #[test]
    fn a_flipped_bit_is_a_frame_or_an_error(frame in agent_frame(), at: prop::sample::Index, bit in 0..8) {
        let mut bytes = frame.encode();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        drop(parse(&bytes));
    }
}

/// A frame whose head announces this length, with nothing behind it.
fn announced(kind: u8, length: usize) -> Vec<u8> {
    [&[kind][..], &u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()].concat()
}

#[test]
fn a_lying_length_is_refused_before_its_bytes_have_come() {
    assert_eq!(parse(&announced(4, MAX_AGENT_FRAME)), Ok(None));
    assert_eq!(parse(&announced(4, MAX_AGENT_FRAME + 1)), Err(FrameError::TooLong(MAX_AGENT_FRAME + 1)));
    assert_eq!(HostFrame::parse(&announced(130, MAX_HOST_FRAME)), Ok(None));
    let over = MAX_HOST_FRAME + 1;
    assert_eq!(HostFrame::parse(&announced(130, over)), Err(FrameError::TooLong(over)));
}

#[test]
fn a_chunk_over_its_bound_is_refused_and_one_at_its_bound_is_not() {
    let (most, over) = (vec![0; MAX_OUTPUT_CHUNK], vec![0; MAX_OUTPUT_CHUNK + 1]);
    let output = |bytes| AgentFrame::Output { exec: 1, stream: 1, bytes };
    assert!(parse(&output(&most).encode()).is_ok_and(|frame| frame.is_some()));
    let source = CodecError::TooLong(MAX_OUTPUT_CHUNK + 1);
    assert_eq!(parse(&output(&over).encode()), Err(FrameError::Malformed { kind: 4, source }));
    let input = |length| HostFrame::Stdin { exec: 1, bytes: vec![0; length] };
    assert!(HostFrame::parse(&input(MAX_STDIN_CHUNK).encode()).is_ok_and(|frame| frame.is_some()));
    assert!(HostFrame::parse(&input(MAX_STDIN_CHUNK + 1).encode()).is_err());
}

#[test]
fn a_list_that_lies_about_its_length_is_cut_off_and_not_believed() {
    // An exec with 65 536 arguments announced and none sent.
    let body = [&1_u32.to_be_bytes()[..], &65_536_u32.to_be_bytes()].concat();
    let bytes = [&announced(130, body.len())[..], &body].concat();
    let short = FrameError::Malformed { kind: 130, source: CodecError::Short };
    assert_eq!(HostFrame::parse(&bytes), Err(short));
}

#[test]
fn neither_side_understands_its_own_frames() {
    assert_eq!(parse(&HostFrame::Shutdown.encode()), Err(FrameError::UnknownKind(138)));
    assert_eq!(HostFrame::parse(&AgentFrame::Pong { token: 1 }.encode()), Err(FrameError::UnknownKind(9)));
}

/// Every seed of the fuzz targets, with its path.
fn seeds() -> io::Result<Vec<(String, Vec<u8>)>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut seeds = Vec::new();
    for target in ["from_agent", "from_host"] {
        for file in std::fs::read_dir(corpus.join(target))? {
            let path = file?.path();
            seeds.push((path.display().to_string(), std::fs::read(&path)?));
        }
    }
    Ok(seeds)
}

#[test]
fn every_seed_is_read_without_a_panic() {
    let seeds = seeds().unwrap();
    assert!(seeds.len() >= 20, "only {} seeds", seeds.len());
    for (_, bytes) in &seeds {
        drop(parse(bytes));
        drop(HostFrame::parse(bytes));
    }
}

#[test]
fn a_seed_is_what_its_name_says() {
    for (name, bytes) in seeds().unwrap() {
        let stem = name.rsplit('/').next().unwrap();
        if stem.len() == 40 && stem.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            continue; // found by the fuzzer on this machine, and not committed
        }
        let heard = if name.contains("from_agent") {
            parse(&bytes).map(|frame| frame.map(drop))
        } else {
            HostFrame::parse(&bytes).map(|frame| frame.map(drop))
        };
        match stem.split_once('-').map_or(stem, |(first, _)| first) {
            "broken" => assert!(heard.is_err(), "{name}"),
            "partial" => assert_eq!(heard, Ok(None), "{name}"),
            _ => assert_eq!(heard, Ok(Some(())), "{name}"),
        }
    }
}
