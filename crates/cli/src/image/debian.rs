//! `blastbox image debian` and `blastbox image make`: images from packages of Debian, by mmdebstrap.
//!
//! Trust: the mirror, whose signatures apt checks. Scripts of packages run on this host, in a chroot as root or in a user
//! namespace without: this is what installing a package means everywhere.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use blastbox_images::ImageName;
use blastbox_images::store::{Source, StoreError, Stream};
use clap::{Args, ValueEnum};

use super::StoreFlag;
use super::import::{Limits, follow, tell};
use super::progress::Bar;
use crate::output;
use crate::problem::Problem;

pub(crate) const HELP: &str = "\
Examples:
  blastbox image debian tools --packages python3,git,curl
  blastbox image debian old --suite bullseye --mirror http://deb.debian.org/debian

Needs mmdebstrap (apt-get install mmdebstrap) and a mirror: that of this host where it is the same release of Debian, else the
one that mmdebstrap knows. Without root it needs user namespaces and a range in /etc/subuid.";

pub(crate) const MAKE_HELP: &str = "\
Examples:
  blastbox image make base                     what users of E2B's SDKs expect, as the image `base`
  blastbox image make code-interpreter         the same with ipykernel, numpy, pandas and matplotlib

Where it cannot be made (no mirror, no mmdebstrap), the template `base` is the view of this host: the host's own programs in
whatever version they have, no pip packages of yours, and the gap `host-image`. In both, `sudo` works where the policy gives
the box a root (`--sudo`), and nowhere else.";

const PROGRAM: &str = "/usr/bin/mmdebstrap";
const SOURCES: [&str; 2] = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];

const BASE: &[&str] = &[
    "bash",
    "ca-certificates",
    "coreutils",
    "curl",
    "git",
    "iproute2",
    "less",
    "nodejs",
    "passwd",
    "procps",
    "python-is-python3",
    "python3",
    "python3-pip",
    "python3-venv",
    "unzip",
    "wget",
];
const INTERPRETER: &[&str] = &["python3-ipykernel", "python3-matplotlib", "python3-numpy", "python3-pandas"];

#[derive(Debug, Args)]
pub(crate) struct DebianArgs {
    /// The name that it shall have
    name: ImageName,
    /// Packages beside the essential ones
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', value_parser = package)]
    packages: Vec<String>,
    #[command(flatten)]
    from: From,
}

#[derive(Debug, Args)]
pub(crate) struct MakeArgs {
    /// Which one
    kind: Kind,
    /// The name that it shall have [default: as it is called]
    #[arg(long)]
    name: Option<ImageName>,
    #[command(flatten)]
    from: From,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Base,
    CodeInterpreter,
}

/// Where packages come from.
#[derive(Debug, Args)]
struct From {
    /// The release [default: that of this host, or stable]
    #[arg(long, value_parser = package)]
    suite: Option<String>,
    /// A mirror, as http:// or https:// address
    #[arg(long, value_name = "URL", value_parser = mirror)]
    mirror: Option<String>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    store: StoreFlag,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What mmdebstrap takes over from this host: addresses of mirrors, which may have a password in them, the resolver and
/// the name of the host. Programs in a box shall know none of it, and none can install packages.
const OF_THIS_HOST: &[&str] = &[
    "etc/apt/auth.conf",
    "etc/apt/auth.conf.d",
    "etc/apt/sources.list",
    "etc/apt/sources.list.d",
    "etc/hostname",
    "etc/machine-id",
    "etc/resolv.conf",
    "var/lib/apt/lists",
    "var/log/apt",
];

/// A word that no program takes for an option or for more than one word.
fn package(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let good =
        text.bytes().all(|b| plain(b) || b"+.-:".contains(&b)) && text.bytes().next().is_some_and(plain);
    if good { Ok(text.to_owned()) } else { Err("expected a-z, 0-9, `+`, `.`, `-` and `:`".to_owned()) }
}

fn mirror(text: &str) -> Result<String, String> {
    if text.contains('@') {
        return Err("a mirror with a name or a password in its address is not used: every user of this host would see it \
                    in the list of processes"
            .to_owned());
    }
    let known = text.starts_with("http://") || text.starts_with("https://");
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\'' && byte != b'"');
    if known && plain {
        Ok(text.to_owned())
    } else {
        Err("expected an http:// or https:// address".to_owned())
    }
}

pub(crate) fn debian(args: &DebianArgs) -> Result<u8, Problem> {
    build(&args.name, &args.packages, &[], &args.from)
}

pub(crate) fn make(args: &MakeArgs) -> Result<u8, Problem> {
    let (name, more): (_, &[&str]) = match args.kind {
        Kind::Base => ("base", &[]),
        Kind::CodeInterpreter => ("code-interpreter", INTERPRETER),
    };
    let packages: Vec<String> = BASE.iter().chain(more).map(ToString::to_string).collect();
    let name = match &args.name {
        Some(name) => name.clone(),
        None => name
            .parse()
            .map_err(|error| Problem::Images(blastbox_images::store::BadRef::Name(error).into()))?,
    };
    // The user that every box has, so that programs which ask who they are get an answer.
    let user = "chroot \"$1\" useradd --create-home --uid 1000 --shell /bin/bash user";
    build(&name, &packages, &[user], &args.from)
}

fn build(name: &ImageName, packages: &[String], hooks: &[&str], from: &From) -> Result<u8, Problem> {
    let program = Path::new(PROGRAM);
    if !program.exists() {
        return Err(Problem::NoBootstrap);
    }
    let store = from.store.open()?;
    let (suite, sources) = (
        from.suite.clone().unwrap_or_else(|| host_suite().unwrap_or_else(|| "stable".into())),
        sources(from),
    );
    let mut command = mmdebstrap(program, &suite, packages, hooks, &sources);
    if !from.json {
        output::say(&format!("blastbox: {PROGRAM} makes {name} from {suite}; this takes minutes\n"));
    }
    let mut bar = Bar::new();
    let what = Stream {
        source: Source::Debian { suite, packages: packages.to_vec() },
        name: Some(name),
        caps: from.limits.caps(),
        without: OF_THIS_HOST,
    };
    let stored = made_by(&mut command, |archive| {
        store.import_stream(archive, what, &mut |progress| follow(&mut bar, progress))
    });
    drop(bar);
    tell(name, &stored?, from.json)
}

/// Takes what a program writes. Where that broke off, how the program ended says more than the archive does; where it was
/// refused, the program ends because nobody listens any more, and that is nobody's question.
fn made_by<T>(
    command: &mut Command,
    take: impl FnOnce(&mut dyn Read) -> Result<T, StoreError>,
) -> Result<T, Problem> {
    let failed = |source: std::io::Error| Problem::Bootstrap { why: source.to_string() };
    let mut child = command.spawn().map_err(failed)?;
    let output = child.stdout.take();
    let mut archive = Ended { child: &mut child, output };
    let taken = take(&mut archive);
    let all_said = archive.output.take().is_none();
    let status = child.wait().map_err(failed)?;
    match taken {
        Err(refused) if !all_said => Err(refused.into()),
        _ if !status.success() => Err(Problem::Bootstrap { why: status.to_string() }),
        taken => Ok(taken?),
    }
}

/// The archive that a child writes. Its end is only an end where the child has done all of it.
struct Ended<'a> {
    child: &'a mut Child,
    /// `None`: its end was read.
    output: Option<std::process::ChildStdout>,
}

impl Read for Ended<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let Some(output) = &mut self.output else { return Ok(0) };
        let count = output.read(to)?;
        if count == 0 && !to.is_empty() {
            self.output = None;
            if !self.child.wait()?.success() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(count)
    }
}

fn mmdebstrap(
    program: &Path,
    suite: &str,
    packages: &[String],
    hooks: &[&str],
    sources: &[String],
) -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one tool that makes a system of Debian, by its full path"
    )]
    let mut command = Command::new(program);
    let mode = if rustix::process::geteuid().is_root() { "root" } else { "unshare" };
    command.args(["--variant=minbase", "--format=tar", &format!("--mode={mode}")]);
    command.arg("--aptopt=APT::Install-Recommends \"false\"");
    // Lists and archives of packages are of no use in a root that cannot be written to.
    command.args(["--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*"]);
    if !packages.is_empty() {
        command.arg(format!("--include={}", packages.join(",")));
    }
    for hook in hooks {
        command.arg(format!("--customize-hook={hook}"));
    }
    command.arg(suite).arg("-").args(sources);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// The mirror that was named, or what this host uses where that is the same release.
fn sources(from: &From) -> Vec<String> {
    if let Some(mirror) = &from.mirror {
        return vec![mirror.clone()];
    }
    let same = host_suite().is_some_and(|host| from.suite.as_ref().is_none_or(|suite| *suite == host));
    let filled = |path: &&&str| std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
    let known = SOURCES.iter().filter(filled).map(ToString::to_string);
    if same { known.collect() } else { Vec::new() }
}

/// The release of this host, where it is Debian.
fn host_suite() -> Option<String> {
    let text = std::fs::read_to_string(PathBuf::from("/etc/os-release")).ok()?;
    suite_of(&text)
}

fn suite_of(os_release: &str) -> Option<String> {
    let field = |name: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    field("ID=").filter(|id| id == "debian")?;
    field("VERSION_CODENAME=").filter(|suite| package(suite).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_this_hosts_only_where_it_is_debian() {
        let text = "PRETTY_NAME=\"Debian\"\nID=debian\nVERSION_CODENAME=bookworm\n";
        assert_eq!(suite_of(text).as_deref(), Some("bookworm"));
        assert_eq!(suite_of(&text.replace("ID=debian", "ID=ubuntu")), None);
        assert_eq!(suite_of("ID=debian\n"), None);
        assert_eq!(suite_of("ID=debian\nVERSION_CODENAME=--help\n"), None);
    }

    #[test]
    fn nothing_that_is_given_reads_as_an_option_or_a_command() {
        for good in ["python3", "g++", "libc6:amd64", "gcc-12"] {
            assert!(package(good).is_ok(), "{good}");
        }
        for bad in ["", "-x", "--hook-dir=/x", "a b", "a;b", "a\n", "A", "$(x)"] {
            assert!(package(bad).is_err(), "{bad}");
        }
        assert!(mirror("http://deb.example/debian").is_ok());
        for bad in [
            "http://me:word@deb.example/debian",
            "https://me@deb.example",
            "deb http://x",
            "--help",
            "/etc/passwd",
            "http://x y",
            "file:///x",
        ] {
            assert!(mirror(bad).is_err(), "{bad}");
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a program that writes what a test wants")]
    fn shell(text: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    #[test]
    fn the_first_thing_that_went_wrong_is_told() {
        let refused = || StoreError::NotAnImage { why: "a test says so" };
        let some = |archive: &mut dyn Read| archive.read(&mut [0; 8]).map_err(|_| refused());
        let all =
            |archive: &mut dyn Read| std::io::copy(archive, &mut std::io::sink()).map_err(|_| refused());
        assert_eq!(made_by(&mut shell("echo x"), all).unwrap(), 2);
        // The archive was refused while its maker was at it, which then ends by a signal.
        let told = made_by(&mut shell("while echo x; do :; done"), |archive| {
            some(archive).and(Err::<(), _>(refused()))
        });
        assert!(matches!(told, Err(Problem::Images(StoreError::NotAnImage { .. }))), "{told:?}");
        // It broke off because its maker did.
        let told = made_by(&mut shell("echo x; exit 3"), all);
        assert!(matches!(&told, Err(Problem::Bootstrap { why }) if why.contains('3')), "{told:?}");
    }

    #[test]
    fn the_command_line_says_all_of_it() {
        let command =
            mmdebstrap(Path::new(PROGRAM), "bookworm", &["git".into(), "curl".into()], &["x"], &["m".into()]);
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap().to_owned()).collect();
        assert!(
            words.contains(&"--include=git,curl".to_owned())
                && words.contains(&"--customize-hook=x".to_owned())
        );
        assert_eq!(words[words.len() - 3..], ["bookworm", "-", "m"]);
        let inherited = command.get_envs().filter(|(_, value)| value.is_none()).count();
        assert_eq!(inherited, 0);
    }
}
