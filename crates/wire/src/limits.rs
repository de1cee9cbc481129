//! Every bound on what one process may send to another, in one place.
//!
//! A guest can push against each of these; none of them is ever taken from a length that the guest sent.

/// Largest body of a frame that the agent may send. A longer one ends the box.
pub const MAX_AGENT_FRAME: usize = 64 * 1024 + 64;
/// Largest piece of output in one frame.
pub const MAX_OUTPUT_CHUNK: usize = 64 * 1024;
/// Largest body of a frame that the host may send: an argument list of the kernel's own limit fits.
pub const MAX_HOST_FRAME: usize = 4 * 1024 * 1024;
/// Largest piece of standard input in one frame.
pub const MAX_STDIN_CHUNK: usize = 64 * 1024;
/// Bytes of arguments and environment that a host accepts for one command (Linux: a quarter of an 8 MiB stack).
pub const MAX_ARGUMENT_BYTES: usize = 2 * 1024 * 1024;
/// Longest single argument (Linux: `MAX_ARG_STRLEN`, 32 pages).
pub const MAX_ARGUMENT: usize = 128 * 1024;
/// Most arguments or variables in one command.
pub const MAX_ARGUMENTS: usize = 65_536;
/// Most processes and threads of one box: as many as the kernel has numbers for (`PID_MAX_LIMIT`). A cgroup takes no larger limit.
pub const MAX_PIDS: u32 = 4_194_304;
/// Commands that may run in one box at the same time.
pub const MAX_EXECS: usize = 256;
/// Commands that an agent tells another host of: those that run, and as many of those that have ended.
pub const MAX_STANDING: usize = 2 * MAX_EXECS;
/// Output that the agent may send for one command before the host has acknowledged any of it.
pub const OUTPUT_WINDOW: u32 = 1024 * 1024;
/// Standard input that the host may send for one command before the agent has passed any of it on.
pub const STDIN_WINDOW: u32 = 256 * 1024;
/// File operations that may run in one box at the same time.
pub const MAX_FILE_OPS: usize = 64;
/// Largest piece of a file or an archive in one frame, in both directions.
pub const MAX_FILE_CHUNK: usize = 64 * 1024;
/// Most entries or changes in one frame.
pub const MAX_FILE_BATCH: usize = 4096;
/// Bytes that either side may send for one file operation before the other has acknowledged any of them.
pub const FILE_WINDOW: u32 = 512 * 1024;
/// Most entries of one list, whatever the host asks for.
pub const MAX_LISTED: u32 = 1_000_000;
/// Entries that an archive leaves out and are named at its end; all are counted.
pub const MAX_LEFT_OUT: usize = 16;
/// Directories that one box may watch at the same time.
pub const MAX_WATCHES: usize = 8192;
/// Longest text (kernel release, fault) in a frame from the agent.
pub const MAX_AGENT_TEXT: usize = 256;
/// Most of the path of a write that the agent passes on.
pub const MAX_WRITE_PATH: usize = 256;
/// Paths of writes of one box that are told apart for each oddity; the rest of it is counted as one.
pub const MAX_WRITE_PATHS: usize = 64;

/// What a command calls to have an HTTP request made by its box's gateway: no name of a function, so that none hides it. It is given
/// an address (`https://name:port`), a line break and a whole HTTP/1.1 request, and gives back the bytes of the answer.
pub const HTTP_CALL: &str = ":http";
/// Longest name of a function that a caller offers.
pub const MAX_TOOL_NAME: usize = 64;
/// Functions that a caller may offer to one command.
pub const MAX_TOOLS: usize = 64;
/// Longest JSON that a command may say to one of them: with its name it fits in a frame.
pub const MAX_TOOL_INPUT: usize = 60 * 1024;
/// Longest JSON that may come back.
pub const MAX_TOOL_ANSWER: usize = 1024 * 1024;
/// Lists and objects in each other, in both. A reader that stops at 128, as many do, can still read it wrapped in an answer of the API.
pub const MAX_TOOL_DEPTH: usize = 100;
/// Calls that one command may make. Each is a record of the ledger. One waits for its answer before it makes the next.
pub const MAX_TOOL_CALLS: u32 = 4096;

/// Largest message to or from the warden.
pub const MAX_WARDEN_MESSAGE: usize = 128 * 1024;
/// Descriptors that may travel with one message to the warden.
pub const MAX_WARDEN_FDS: usize = 12;
/// Steps in one half of a plan.
pub const MAX_STEPS: usize = 256;
/// Arguments of a monitor in a plan, and variables of its environment.
pub const MAX_MONITOR_TEXTS: usize = 128;
/// Descriptors that a monitor inherits beside the control channel.
pub const MAX_MONITOR_INHERITS: usize = 3;
/// Longest of them.
pub const MAX_MONITOR_TEXT: usize = 4096;
/// Landlock grants in a plan.
pub const MAX_GRANTS: usize = 64;
/// Longest path in a plan.
pub const MAX_PATH: usize = 4096;
/// Longest text of a synthetic file in a plan.
pub const MAX_FILE_TEXT: usize = 32 * 1024;
