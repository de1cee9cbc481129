//! The frames about files: what is written is read again, and a lie in any field is refused and nothing worse.

use blastbox_wire::CodecError;
use blastbox_wire::agent::{
    AgentFrame, Beyond, Change, ChangeKind, Coverage, Depth, Entry, EntryKind, Extent, Fault, FileAct,
    FileAsk, FileEnd, FileSay, FrameError, HostFrame, Link, Links, MAX_ENTRY, Parents, Target, Writing,
    parse,
};
use blastbox_wire::limits::{MAX_FILE_BATCH, MAX_FILE_CHUNK, MAX_PATH};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn path() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..60)
}

fn kind() -> impl Strategy<Value = EntryKind> {
    select(vec![EntryKind::File, EntryKind::Directory, EntryKind::Link, EntryKind::Other])
}

fn link() -> impl Strategy<Value = Link> {
    let beyond = (kind(), 0..=0o7777_u32, path()).prop_map(|(kind, mode, path)| Beyond { kind, mode, path });
    (path(), prop::option::of(beyond)).prop_map(|(text, beyond)| Link { text, beyond })
}

fn entry() -> impl Strategy<Value = Entry> {
    (path(), kind(), any::<(u64, u32, u32, i64)>(), 0..=0o7777_u32, prop::option::of(link())).prop_map(
        |(path, kind, (size, uid, gid, modified_nanos), mode, link)| Entry {
            path,
            kind,
            size,
            mode,
            uid,
            gid,
            modified_nanos,
            link,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let kinds = vec![
        ChangeKind::Created,
        ChangeKind::Written,
        ChangeKind::Removed,
        ChangeKind::MovedFrom,
        ChangeKind::MovedTo,
        ChangeKind::Attributes,
        ChangeKind::Lost,
        ChangeKind::Unwatched,
        ChangeKind::Ended,
    ];
    (select(kinds), any::<u32>(), path()).prop_map(|(kind, cookie, path)| Change { kind, cookie, path })
}

fn end() -> impl Strategy<Value = FileEnd> {
    let faults = vec![Fault::NotFound, Fault::NotRegular, Fault::BadArchive, Fault::Stopped, Fault::Failed];
    prop_oneof![
        (any::<(u64, u64)>(), select(vec![Coverage::Whole, Coverage::Cut]))
            .prop_map(|((amount, skipped), coverage)| FileEnd::Finished { amount, skipped, coverage }),
        (select(faults), any::<i32>()).prop_map(|(fault, errno)| FileEnd::Failed { fault, errno }),
    ]
}

fn say() -> impl Strategy<Value = FileSay<'static>> {
    prop_oneof![
        entry().prop_map(|entry| FileSay::Begun { entry }),
        Just(FileSay::Chunk { bytes: b"a piece of a file" }),
        any::<u32>().prop_map(|bytes| FileSay::Taken { bytes }),
        vec(entry(), 0..6).prop_map(|entries| FileSay::Entries { entries }),
        vec(change(), 0..6).prop_map(|changes| FileSay::Changes { changes }),
        end().prop_map(|end| FileSay::Done { end }),
    ]
}

fn act() -> impl Strategy<Value = FileAct> {
    let parents = || select(vec![Parents::Make, Parents::Expect]);
    let depth = || select(vec![Depth::One, Depth::All]);
    let writings = vec![Writing::Truncate, Writing::Append, Writing::New, Writing::Replace];
    prop_oneof![
        (path(), any::<(u64, u64)>(), select(vec![Extent::Seen, Extent::Growing]))
            .prop_map(|(path, (offset, most), extent)| FileAct::Read { path, offset, most, extent }),
        (path(), any::<u32>(), select(writings), parents())
            .prop_map(|(path, mode, writing, parents)| FileAct::Write { path, mode, writing, parents }),
        (path(), any::<(u32, u32)>()).prop_map(|(path, (depth, most))| FileAct::List { path, depth, most }),
        (path(), select(vec![Links::Follow, Links::Keep]))
            .prop_map(|(path, links)| FileAct::Stat { path, links }),
        (path(), any::<u32>(), parents()).prop_map(|(path, mode, parents)| FileAct::MakeDirectory {
            path,
            mode,
            parents
        }),
        (path(), path(), select(vec![Target::Replace, Target::Fresh]), parents())
            .prop_map(|(from, to, target, parents)| FileAct::Move { from, to, target, parents }),
        (path(), depth()).prop_map(|(path, depth)| FileAct::Remove { path, depth }),
        (path(), depth()).prop_map(|(path, depth)| FileAct::Watch { path, depth }),
        path().prop_map(|path| FileAct::Pack { path }),
        (path(), parents(), any::<(u64, u64)>()).prop_map(|(path, parents, (most_bytes, most_entries))| {
            FileAct::Unpack { path, parents, most_bytes, most_entries }
        }),
    ]
}

fn ask() -> impl Strategy<Value = FileAsk> {
    prop_oneof![
        (any::<u32>(), act()).prop_map(|(window, act)| FileAsk::Begin { window, act }),
        (any::<u32>(), act()).prop_map(|(window, act)| FileAsk::BeginAsRoot { window, act }),
        vec(any::<u8>(), 0..200).prop_map(|bytes| FileAsk::Data { bytes }),
        Just(FileAsk::DataEnd),
        any::<u32>().prop_map(|bytes| FileAsk::Credit { bytes }),
        Just(FileAsk::Stop),
    ]
}

proptest! {
    #[test]
    fn what_the_agent_says_of_a_file_is_what_the_host_hears(op: u32, say in say(), more: Vec<u8>) {
        let frame = AgentFrame::File { op, say };
        let mut bytes = frame.encode();
        let length = bytes.len();
        bytes.extend(more);
        prop_assert_eq!(parse(&bytes), Ok(Some((frame, length))));
        prop_assert_eq!(parse(&bytes[..length - 1]), Ok(None));
    }

    #[test]
    fn what_the_host_asks_of_a_file_is_what_the_agent_hears(op: u32, ask in ask(), more: Vec<u8>) {
        let frame = HostFrame::File { op, ask };
        let mut bytes = frame.encode();
        let length = bytes.len();
        bytes.extend(more);
        prop_assert_eq!(HostFrame::parse(&bytes), Ok(Some((frame, length))));
        prop_assert_eq!(HostFrame::parse(&bytes[..length - 1]), Ok(None));
    }

    #[test]
    fn a_head_with_the_bytes_behind_it_is_the_same_frame(op: u32, bytes: Vec<u8>) {
        let encoded = AgentFrame::File { op, say: FileSay::Chunk { bytes: &bytes } }.encode();
        prop_assert_eq!([&FileSay::chunk_head(op, bytes.len())[..], &bytes].concat(), encoded);
    }

    #[test]
    fn a_flipped_bit_is_a_frame_or_an_error(say in say(), at: prop::sample::Index, bit in 0..8) {
        let mut bytes = AgentFrame::File { op: 7, say }.encode();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        drop(parse(&bytes));
    }

    /// The window bounds what waits on the host: the cost must not be less than what was sent.
    #[test]
    fn what_arrives_costs_at_least_what_it_takes(say in say()) {
        let costs = say.cost();
        let free = matches!(say, FileSay::Begun { .. } | FileSay::Taken { .. } | FileSay::Done { .. });
        let body = AgentFrame::File { op: 7, say }.encode().len() - 5;
        prop_assert!(free || costs + 8 >= body, "{costs} for {body}");
    }
}

fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes(), body].concat()
}

fn broken(kind: u8, source: CodecError) -> Result<Option<(AgentFrame<'static>, usize)>, FrameError> {
    Err(FrameError::Malformed { kind, source })
}

#[test]
fn a_chunk_over_its_bound_is_refused_and_one_at_its_bound_is_not() {
    let (most, over) = (vec![0; MAX_FILE_CHUNK], vec![0; MAX_FILE_CHUNK + 1]);
    let chunk = |bytes| AgentFrame::File { op: 1, say: FileSay::Chunk { bytes } };
    assert!(parse(&chunk(&most).encode()).is_ok_and(|frame| frame.is_some()));
    assert_eq!(parse(&chunk(&over).encode()), broken(12, CodecError::TooLong(MAX_FILE_CHUNK + 1)));
    let data = |length| HostFrame::File { op: 1, ask: FileAsk::Data { bytes: vec![0; length] } };
    assert!(HostFrame::parse(&data(MAX_FILE_CHUNK).encode()).is_ok_and(|frame| frame.is_some()));
    assert!(HostFrame::parse(&data(MAX_FILE_CHUNK + 1).encode()).is_err());
}

#[test]
fn a_batch_that_lies_about_its_length_is_cut_off_and_not_believed() {
    let body =
        |count: usize| [&7_u32.to_be_bytes()[..], &u32::try_from(count).unwrap().to_be_bytes()].concat();
    for kind in [14, 15] {
        assert_eq!(parse(&framed(kind, &body(MAX_FILE_BATCH))), broken(kind, CodecError::Short));
        let over = MAX_FILE_BATCH + 1;
        assert_eq!(parse(&framed(kind, &body(over))), broken(kind, CodecError::TooLong(over)));
    }
}

#[test]
fn the_longest_entry_fits_its_bound() {
    let long = || vec![b'x'; MAX_PATH];
    let beyond = Beyond { kind: EntryKind::File, mode: 0o7777, path: long() };
    let entry = Entry {
        path: long(),
        kind: EntryKind::Link,
        size: u64::MAX,
        mode: 0o7777,
        uid: u32::MAX,
        gid: u32::MAX,
        modified_nanos: i64::MIN,
        link: Some(Link { text: long(), beyond: Some(beyond) }),
    };
    assert!(entry.cost() <= MAX_ENTRY);
    let frame = AgentFrame::File { op: 1, say: FileSay::Entries { entries: vec![entry.clone()] } };
    assert!(parse(&frame.encode()).is_ok_and(|frame| frame.is_some()));
    let longer = Entry { path: vec![b'x'; MAX_PATH + 1], ..entry };
    let frame = AgentFrame::File { op: 1, say: FileSay::Begun { entry: longer } };
    assert_eq!(parse(&frame.encode()), broken(11, CodecError::TooLong(MAX_PATH + 1)));
}

#[test]
fn modes_that_are_no_permission_bits_are_refused() {
    let entry = Entry {
        path: Vec::new(),
        kind: EntryKind::File,
        size: 0,
        mode: 0o10000,
        uid: 0,
        gid: 0,
        modified_nanos: 0,
        link: None,
    };
    let frame = AgentFrame::File { op: 1, say: FileSay::Begun { entry } };
    assert_eq!(parse(&frame.encode()), broken(11, CodecError::Invalid("set of permission bits")));
}

#[test]
fn a_number_that_is_no_choice_is_refused() {
    let with = |tail: &[u8]| [&7_u32.to_be_bytes()[..], tail].concat();
    assert_eq!(parse(&framed(16, &with(&[3]))), broken(16, CodecError::Unknown(3, "end of an operation")));
    assert_eq!(parse(&framed(16, &with(&[2, 19, 0, 0, 0, 0]))), broken(16, CodecError::Unknown(19, "fault")));
    let ask = with(&[0, 0, 0, 1, 10, 0, 0, 0, 0]);
    let source = CodecError::Unknown(10, "file operation");
    assert_eq!(HostFrame::parse(&framed(139, &ask)), Err(FrameError::Malformed { kind: 139, source }));
}
