//! What gVisor is told about the box, in the text form of the Open Container Initiative.

use std::fmt::Write as _;

use rustix::fs::{major, minor};

use crate::arguments::{Arguments, Place};
use crate::fault::{Fault, Trying};

/// What the agent needs to become the payload, to signal it, and to give the rest up.
const CAPABILITIES: &str = r#"["CAP_SETUID","CAP_SETGID","CAP_KILL","CAP_SETPCAP"]"#;

/// The devices of a GPU, as the box's jail has them.
const GPU: [&str; 3] = ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"];

/// The devices that gVisor is to have besides its own: none, or those of the GPU, under the numbers that they have here.
pub(crate) fn devices(arguments: &Arguments) -> Result<Vec<String>, Fault> {
    if arguments.gpu.is_none() {
        return Ok(Vec::new());
    }
    let device = |at: &str| {
        let number = rustix::fs::stat(at).tried("find the GPU's devices")?.st_rdev;
        Ok(format!(
            r#"{{"path":"{at}","type":"c","major":{},"minor":{},"fileMode":438,"uid":0,"gid":0}}"#,
            major(number),
            minor(number)
        ))
    };
    GPU.into_iter().map(device).collect()
}

/// The whole text. Paths and numbers come from a command line that allows nothing else; the host name is the kernel's.
pub(crate) fn write(arguments: &Arguments, devices: &[String], host_name: &str) -> String {
    let devices = devices.join(",");
    let Arguments { agent, open_files, file_size, places, .. } = arguments;
    let host_name: String =
        host_name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(64).collect();
    let mut mounts = String::new();
    for Place { at, exec } in places {
        // Its own mount, so that gVisor itself refuses programs there; the box's jail refuses them once more.
        let programs = if *exec { "exec" } else { "noexec" };
        let comma = if mounts.is_empty() { "" } else { "," };
        // Writing to a text cannot fail.
        write!(
            mounts,
            r#"{comma}{{"destination":"{at}","type":"bind","source":"{at}","options":["rw","nosuid","nodev","{programs}"]}}"#
        )
        .ok();
    }
    format!(
        r#"{{"ociVersion":"1.0.2","hostname":"{host_name}","root":{{"path":"/","readonly":false}},"mounts":[{mounts}],"process":{{"user":{{"uid":0,"gid":0}},"cwd":"/","args":["{agent}","--control","3","--lend"],"env":[],"noNewPrivileges":true,"capabilities":{{"bounding":{CAPABILITIES},"effective":{CAPABILITIES},"permitted":{CAPABILITIES}}},"rlimits":[{{"type":"RLIMIT_NOFILE","soft":{open_files},"hard":{open_files}}},{{"type":"RLIMIT_FSIZE","soft":{file_size},"hard":{file_size}}},{{"type":"RLIMIT_CORE","soft":0,"hard":0}}]}},"linux":{{"devices":[{devices}],"namespaces":[{{"type":"pid"}},{{"type":"mount"}},{{"type":"ipc"}},{{"type":"uts"}}]}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::tests::{LINE, parsed};

    #[test]
    fn every_place_is_a_mount_and_the_agent_is_init() {
        let text = write(&parsed(LINE).unwrap(), &["{}".to_owned(), "{}".to_owned()], "bx\"-7");
        assert!(text.contains(r#""hostname":"bx-7""#), "{text}");
        assert!(text.contains(r#"{"destination":"/tmp","type":"bind","source":"/tmp","options":["rw","nosuid","nodev","exec"]},{"destination":"/dev/shm","#), "{text}");
        assert!(text.contains(r#""args":["/.blastbox/agent","--control","3","--lend"]"#), "{text}");
        assert!(text.contains(r#"{"type":"RLIMIT_NOFILE","soft":1024,"hard":1024}"#), "{text}");
        assert!(text.contains(r#""linux":{"devices":[{},{}],"#), "{text}");
        let (open, close) = (text.matches('{').count(), text.matches('}').count());
        assert_eq!(open, close);
    }
}
