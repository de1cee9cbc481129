//! The command line, written by the tier: `blastbox-gvisor --runsc PATH --agent PATH … [--place PATH=exec]…`.

use std::ffi::OsString;

/// How gVisor runs the payload's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Platform {
    /// By traps of the system calls: the fast way without virtualisation.
    Systrap,
    /// By `ptrace`: slow, works everywhere.
    Ptrace,
    /// In a virtual machine of its own, by `/dev/kvm`.
    Kvm,
}

impl Platform {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Systrap => "systrap",
            Self::Ptrace => "ptrace",
            Self::Kvm => "kvm",
        }
    }
}

/// Whose network the box has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// gVisor's own, with nothing but a loopback.
    None,
    /// That of the box's network namespace, which ends in its gateway.
    Host,
}

impl Network {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Host => "host",
        }
    }
}

/// A directory that the box may write, and whether programs may be started from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: String,
    pub(crate) exec: bool,
}

/// What the kernel is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// gVisor's program.
    pub(crate) runsc: String,
    /// The program that is to be init inside.
    pub(crate) agent: String,
    pub(crate) platform: Platform,
    pub(crate) network: Network,
    /// Processors that the box sees.
    pub(crate) cpus: u32,
    /// Memory that the box sees.
    pub(crate) memory: u64,
    /// Open files of one process inside.
    pub(crate) open_files: u32,
    /// Largest file.
    pub(crate) file_size: u64,
    pub(crate) places: Vec<Place>,
    /// The version of NVIDIA's driver whose calls gVisor hands on, where the box has a GPU.
    pub(crate) gpu: Option<String>,
}

/// How many places a box has at most.
const PLACES: usize = 8;

/// `None`: not our command line. Each option once, except places.
pub(crate) fn parse(mut words: impl Iterator<Item = OsString>) -> Option<Arguments> {
    let (mut runsc, mut agent, mut platform, mut network) = (None, None, None, None);
    let (mut cpus, mut memory, mut open_files, mut file_size) = (None, None, None, None);
    let (mut places, mut gpu) = (Vec::new(), None);
    while let Some(option) = words.next() {
        let value = words.next()?.into_string().ok()?;
        match option.to_str()? {
            "--runsc" => once(&mut runsc, path(value)?)?,
            "--agent" => once(&mut agent, path(value)?)?,
            "--platform" => once(&mut platform, platform_of(&value)?)?,
            "--network" => once(&mut network, network_of(&value)?)?,
            "--cpus" => once(&mut cpus, value.parse().ok()?)?,
            "--memory" => once(&mut memory, value.parse().ok()?)?,
            "--open-files" => once(&mut open_files, value.parse().ok()?)?,
            "--file-size" => once(&mut file_size, value.parse().ok()?)?,
            "--gpu" => once(&mut gpu, driver(value)?)?,
            "--place" if places.len() < PLACES => places.push(place(&value)?),
            _ => return None,
        }
    }
    Some(Arguments {
        runsc: runsc?,
        agent: agent?,
        platform: platform?,
        network: network?,
        cpus: cpus?,
        memory: memory?,
        open_files: open_files?,
        file_size: file_size?,
        places,
        gpu,
    })
}

fn once<T>(at: &mut Option<T>, value: T) -> Option<()> {
    at.replace(value).is_none().then_some(())
}

fn platform_of(text: &str) -> Option<Platform> {
    [Platform::Systrap, Platform::Ptrace, Platform::Kvm]
        .into_iter()
        .find(|platform| platform.as_str() == text)
}

fn network_of(text: &str) -> Option<Network> {
    [Network::None, Network::Host].into_iter().find(|network| network.as_str() == text)
}

fn place(text: &str) -> Option<Place> {
    let (at, exec) = text.split_once('=')?;
    let exec = match exec {
        "exec" => true,
        "noexec" => false,
        _ => return None,
    };
    Some(Place { at: path(at.to_owned())?, exec })
}

/// A version of a driver: numbers and dots.
fn driver(text: String) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    (!text.is_empty() && text.len() < 32 && text.bytes().all(plain)).then_some(text)
}

/// An absolute path of plain characters: it is written into a text that another program reads.
fn path(text: String) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    (text.starts_with('/') && text.len() < 256 && text.bytes().all(plain)).then_some(text)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const LINE: &str = "--runsc /.blastbox/runsc --agent /.blastbox/agent --platform systrap --network none \
         --cpus 2 --memory 1073741824 --open-files 1024 --file-size 4096 --place /tmp=exec --place /dev/shm=noexec";

    pub(crate) fn parsed(line: &str) -> Option<Arguments> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn what_the_tier_writes_is_read() {
        let arguments = parsed(LINE).unwrap();
        assert_eq!((arguments.platform, arguments.network), (Platform::Systrap, Network::None));
        assert_eq!((arguments.cpus, arguments.memory, arguments.open_files), (2, 1 << 30, 1024));
        assert_eq!(arguments.places.len(), 2);
        assert!(!arguments.places[1].exec);
        assert_eq!(arguments.gpu, None);
        let gpu = parsed(&format!("{LINE} --gpu 550.54.15")).unwrap().gpu;
        assert_eq!(gpu.as_deref(), Some("550.54.15"));
        for other in [Platform::Ptrace, Platform::Kvm] {
            assert_eq!(parsed(&LINE.replace("systrap", other.as_str())).unwrap().platform, other);
        }
    }

    #[test]
    fn anything_else_is_not_our_command_line() {
        assert_eq!(parsed(""), None);
        for (from, to) in [
            ("systrap", "xen"),
            ("none", "sandbox"),
            ("/.blastbox/runsc", "runsc"),
            ("/.blastbox/runsc", "/a\"b"),
            ("/tmp=exec", "/tmp"),
            ("/tmp=exec", "/tmp=suid"),
            ("--cpus 2", "--cpus -1"),
            ("--cpus 2", ""),
            ("--cpus 2", "--cpus 2 --cpus 2"),
            ("--cpus 2", "--cpus"),
            ("--cpus 2", "--cpus 2 --gpu latest"),
            ("--memory 1073741824", "--memory 99999999999999999999"),
        ] {
            assert_eq!(parsed(&LINE.replace(from, to)), None, "{from} → {to}");
        }
        assert_eq!(parsed(&format!("{LINE}{}", " --place /x=exec".repeat(7))), None);
    }
}
