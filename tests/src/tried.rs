//! What programs of several suites need: tries told by the name of their errno, and text that is found nowhere else.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use crate::Caller;

/// `tried(function, …)`: "ok", or the name of the errno. Public for suites that put programs together themselves.
pub const TRIED: &str = r#"
import errno, json, os, stat, sys
def tried(what, *arguments):
    try: what(*arguments); return "ok"
    except OSError as error: return errno.errorcode[error.errno]
def write(path):
    with open(path, "w") as file: file.write("x")
"#;

/// What a box's Python says of its tries.
pub fn tried(caller: &Caller, options: &[&str], code: &str) -> serde_json::Value {
    caller.python(options, &format!("{TRIED}\n{code}")).fine().json()
}

/// Text that is nowhere else on this machine.
#[must_use]
pub fn canary() -> String {
    let mut random = [0_u8; 16];
    fs::File::open("/dev/urandom")
        .expect("read random bytes")
        .read_exact(&mut random)
        .expect("read random bytes");
    random.iter().fold("canary".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// A path as a word of a command line.
#[must_use]
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}
