//! The messages of both services, as tables: what the binary form needs to become JSON, and back.

/// The fields of a message.
pub(super) type Shape = &'static [Field];

/// One field.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// Its name in JSON.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) count: Count,
}

/// What a field holds.
#[derive(Debug)]
pub(super) enum Kind {
    Text,
    Bytes,
    Bool,
    U32,
    S32,
    I64,
    Enum(Words),
    Time,
    TextMap,
    Message(Shape),
}

/// Names of an enumeration with their numbers.
pub(super) type Words = &'static [(&'static str, u32)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    One,
    Many,
}

const fn one(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, count: Count::One }
}

const fn many(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, count: Count::Many }
}

use Kind::{Bool, Bytes, Enum, I64, Message, S32, Text, TextMap, Time, U32};

const EMPTY: Shape = &[];
const SIGNAL: Words = &[("SIGNAL_UNSPECIFIED", 0), ("SIGNAL_SIGKILL", 9), ("SIGNAL_SIGTERM", 15)];
const SIZE: Shape = &[one(1, "cols", U32), one(2, "rows", U32)];
const PTY: Shape = &[one(1, "size", Message(SIZE))];
const CONFIG: Shape =
    &[one(1, "cmd", Text), many(2, "args", Text), one(3, "envs", TextMap), one(4, "cwd", Text)];
const SELECTOR: Shape = &[one(1, "pid", U32), one(2, "tag", Text)];
const INPUT: Shape = &[one(1, "stdin", Bytes), one(2, "pty", Bytes)];
const INFO: Shape = &[one(1, "config", Message(CONFIG)), one(2, "pid", U32), one(3, "tag", Text)];
const STARTED: Shape = &[one(1, "pid", U32)];
const DATA: Shape = &[one(1, "stdout", Bytes), one(2, "stderr", Bytes), one(3, "pty", Bytes)];
const ENDED: Shape =
    &[one(1, "exitCode", S32), one(2, "exited", Bool), one(3, "status", Text), one(4, "error", Text)];
const EVENT: Shape = &[
    one(1, "start", Message(STARTED)),
    one(2, "data", Message(DATA)),
    one(3, "end", Message(ENDED)),
    one(4, "keepalive", Message(EMPTY)),
];
const EVENT_ANSWER: Shape = &[one(1, "event", Message(EVENT))];
const START: Shape = &[
    one(1, "process", Message(CONFIG)),
    one(2, "pty", Message(PTY)),
    one(3, "tag", Text),
    one(4, "stdin", Bool),
];
const SELECTED: Shape = &[one(1, "process", Message(SELECTOR))];
const UPDATE: Shape = &[one(1, "process", Message(SELECTOR)), one(2, "pty", Message(PTY))];
const SEND_INPUT: Shape = &[one(1, "process", Message(SELECTOR)), one(2, "input", Message(INPUT))];
const SEND_SIGNAL: Shape = &[one(1, "process", Message(SELECTOR)), one(2, "signal", Enum(SIGNAL))];
// The data of a streamed input has number 2, and nothing has number 1.
const STREAM_DATA: Shape = &[one(2, "input", Message(INPUT))];
const STREAM_INPUT: Shape = &[
    one(1, "start", Message(SELECTED)),
    one(2, "data", Message(STREAM_DATA)),
    one(3, "keepalive", Message(EMPTY)),
];
const PROCESSES: Shape = &[many(1, "processes", Message(INFO))];

const FILE_TYPE: Words = &[
    ("FILE_TYPE_UNSPECIFIED", 0),
    ("FILE_TYPE_FILE", 1),
    ("FILE_TYPE_DIRECTORY", 2),
    ("FILE_TYPE_SYMLINK", 3),
];
const EVENT_TYPE: Words = &[
    ("EVENT_TYPE_UNSPECIFIED", 0),
    ("EVENT_TYPE_CREATE", 1),
    ("EVENT_TYPE_WRITE", 2),
    ("EVENT_TYPE_REMOVE", 3),
    ("EVENT_TYPE_RENAME", 4),
    ("EVENT_TYPE_CHMOD", 5),
];
const ENTRY: Shape = &[
    one(1, "name", Text),
    one(2, "type", Enum(FILE_TYPE)),
    one(3, "path", Text),
    one(4, "size", I64),
    one(5, "mode", U32),
    one(6, "permissions", Text),
    one(7, "owner", Text),
    one(8, "group", Text),
    one(9, "modifiedTime", Time),
    one(10, "symlinkTarget", Text),
    one(11, "metadata", TextMap),
    one(12, "isSymlink", Bool),
];
const PATH: Shape = &[one(1, "path", Text)];
const ONE_ENTRY: Shape = &[one(1, "entry", Message(ENTRY))];
const ENTRIES: Shape = &[many(1, "entries", Message(ENTRY))];
const MOVE: Shape = &[one(1, "source", Text), one(2, "destination", Text)];
const LIST: Shape = &[one(1, "path", Text), one(2, "depth", U32)];
const WATCH: Shape = &[
    one(1, "path", Text),
    one(2, "recursive", Bool),
    one(3, "includeEntry", Bool),
    one(4, "allowNetworkMounts", Bool),
];
const CHANGE: Shape =
    &[one(1, "name", Text), one(2, "type", Enum(EVENT_TYPE)), one(3, "entry", Message(ENTRY))];
const WATCHED: Shape = &[
    one(1, "start", Message(EMPTY)),
    one(2, "filesystem", Message(CHANGE)),
    one(3, "keepalive", Message(EMPTY)),
];
const WATCHER: Shape = &[one(1, "watcherId", Text)];
const CHANGES: Shape = &[many(1, "events", Message(CHANGE))];

/// What a procedure takes and gives. `None`: there is none of that name.
pub(super) fn of(service: &str, method: &str) -> Option<(Shape, Shape)> {
    Some(match (service, method) {
        ("process.Process", "List") => (EMPTY, PROCESSES),
        ("process.Process", "Start") => (START, EVENT_ANSWER),
        ("process.Process", "Connect") => (SELECTED, EVENT_ANSWER),
        ("process.Process", "Update") => (UPDATE, EMPTY),
        ("process.Process", "SendInput") => (SEND_INPUT, EMPTY),
        ("process.Process", "StreamInput") => (STREAM_INPUT, EMPTY),
        ("process.Process", "SendSignal") => (SEND_SIGNAL, EMPTY),
        ("process.Process", "CloseStdin") => (SELECTED, EMPTY),
        ("filesystem.Filesystem", "Stat" | "MakeDir") => (PATH, ONE_ENTRY),
        ("filesystem.Filesystem", "Move") => (MOVE, ONE_ENTRY),
        ("filesystem.Filesystem", "ListDir") => (LIST, ENTRIES),
        ("filesystem.Filesystem", "Remove") => (PATH, EMPTY),
        ("filesystem.Filesystem", "WatchDir") => (WATCH, WATCHED),
        ("filesystem.Filesystem", "CreateWatcher") => (WATCH, WATCHER),
        ("filesystem.Filesystem", "GetWatcherEvents") => (WATCHER, CHANGES),
        ("filesystem.Filesystem", "RemoveWatcher") => (WATCHER, EMPTY),
        _ => return None,
    })
}
