//! What came of a run.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use blastbox_wire::receipt::Receipt;

/// A program of the host that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; 128 + N where signal N ended it, as a shell says it.
    pub code: i32,
    /// Standard output, as bytes.
    pub out: Vec<u8>,
    /// Standard error, as text.
    pub err: String,
}

impl Ended {
    pub(crate) fn new(status: ExitStatus, out: Vec<u8>, err: &[u8]) -> Self {
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
        Self { code, out, err: String::from_utf8_lossy(err).into_owned() }
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Reads the document of `blastbox run --json`.
    pub fn boxed(self) -> Boxed {
        let read = |why: &str| -> ! { panic!("{why}; exit {}\n{}\n{}", self.code, self.text(), self.err) };
        let Ok(document) = serde_json::from_slice::<serde_json::Value>(&self.out) else {
            read("there is no JSON on standard output")
        };
        let text = |stream: &str| document.pointer(stream).and_then(|text| text.as_str()).map(str::to_owned);
        let (Some(stdout), Some(stderr)) = (text("/stdout/text"), text("/stderr/text")) else {
            read("the output of the box is no text")
        };
        let receipt = document.get("receipt").cloned().unwrap_or_default();
        let Ok(receipt) = serde_json::from_value::<Receipt>(receipt) else { read("there is no receipt") };
        assert_eq!(
            self.code,
            i32::from(receipt.exit_code),
            "the receipt and the exit code differ: {}",
            self.err
        );
        Boxed { receipt, stdout, stderr }
    }
}

/// A run of `blastbox run --json` that has ended.
#[derive(Debug)]
pub struct Boxed {
    /// The receipt.
    pub receipt: Receipt,
    /// What the command printed.
    pub stdout: String,
    /// What it complained.
    pub stderr: String,
}

impl Boxed {
    /// The same, if the command came to its end with exit code 0; a failed test with everything it said otherwise.
    #[track_caller]
    pub fn fine(self) -> Self {
        let Receipt { outcome, exit_code, reason, .. } = &self.receipt;
        assert!(
            outcome.as_str() == "exited" && *exit_code == 0,
            "{outcome} {exit_code} {reason:?}\n{}\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// How it ended, in the word of the receipt.
    pub fn outcome(&self) -> &'static str {
        self.receipt.outcome.as_str()
    }

    /// How often the receipt says that this system call was denied.
    pub fn denied(&self, name: &str) -> u64 {
        let calls = self.receipt.denied.iter();
        calls.filter(|call| call.name.as_deref() == Some(name)).map(|call| call.count).sum()
    }

    /// What the command printed, read as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!("{error}: {:?} {:?}\n{}", self.receipt.reason, self.stdout, self.stderr),
        }
    }
}
