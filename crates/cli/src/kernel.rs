//! `blastbox kernel`: the kernels that virtual machines start with. None comes with blastbox; none is installed here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use blastbox_images::machine::{Kernel, KernelFacts, MachineError, NewKernel};
use blastbox_images::store::short;
use clap::{Args, Subcommand};

use crate::image::StoreFlag;
use crate::output::{self, plain};
use crate::problem::Problem;

pub(crate) const HELP: &str = "\
Examples:
  blastbox kernel get                                  Debian's cloud kernel, by apt, without installing it
  blastbox kernel add linux-image-6.1.0-cloud.deb      a package that was brought along
  blastbox kernel add vmlinuz --modules /lib/modules/6.1.0-13-amd64
  blastbox kernel ls
  blastbox run --tier microvm --image tools -- uname -a

Guests start with the kernel that was added last. Of its modules only those are kept that a guest needs: virtio for PCI,
serial ports, disks and randomness, and squashfs.";

const PACKAGE: &str = "linux-image-cloud-amd64";
const APT_GET: &str = "/usr/bin/apt-get";
const APT_CACHE: &str = "/usr/bin/apt-cache";
const DPKG: &str = "/usr/bin/dpkg-deb";

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum KernelVerb {
    /// List kernels
    Ls(LsArgs),
    /// Add a kernel: a package of Debian, a bzImage or an ELF file
    Add(AddArgs),
    /// Fetch Debian's kernel for virtual machines with apt, without installing it
    Get(GetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    store: StoreFlag,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// A package (.deb), a bzImage (vmlinuz) or an ELF file (vmlinux)
    file: PathBuf,
    /// Where its modules are, such as /lib/modules/RELEASE
    #[arg(long, value_name = "DIR", conflicts_with = "built_in")]
    modules: Option<PathBuf>,
    /// It has every driver that a guest needs built in
    #[arg(long)]
    built_in: bool,
    #[command(flatten)]
    store: StoreFlag,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    store: StoreFlag,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries out the verb.
pub(crate) fn kernel(verb: &KernelVerb) -> Result<u8, Problem> {
    match verb {
        KernelVerb::Ls(args) => ls(args),
        KernelVerb::Add(args) => {
            let kernel = add(args)?;
            tell(&kernel, args.json)
        }
        KernelVerb::Get(args) => {
            let kernel = get(args)?;
            tell(&kernel, args.json)
        }
    }
}

fn ls(args: &LsArgs) -> Result<u8, Problem> {
    let kernels = args.store.kernels()?;
    let all = kernels.list()?;
    if args.json {
        output::print_json(&all)?;
        return Ok(0);
    }
    if all.is_empty() {
        output::print("no kernel yet; get one with `blastbox kernel get`\n");
        return Ok(0);
    }
    let current = kernels.current()?.map(|kernel| kernel.facts().digest);
    for facts in &all {
        let mark = if Some(facts.digest) == current { "*" } else { " " };
        output::print(&format!("{mark} {}\n", line(facts)));
    }
    Ok(0)
}

fn line(facts: &KernelFacts) -> String {
    format!(
        "{}  {}  {} MiB, {} modules, from {}",
        short(&facts.digest),
        plain(&facts.release),
        facts.bytes.div_ceil(1 << 20),
        facts.modules.len(),
        plain(&facts.source)
    )
}

fn tell(kernel: &Kernel, json: bool) -> Result<u8, Problem> {
    if json {
        output::print_json(kernel.facts())?;
    } else {
        output::print(&format!("{}\n{}\n", kernel.facts().digest, line(kernel.facts())));
    }
    Ok(0)
}

fn add(args: &AddArgs) -> Result<Kernel, Problem> {
    let kernels = args.store.kernels()?;
    let source = args.file.display().to_string();
    if args.file.extension().is_some_and(|end| end == "deb") {
        let workplace = Workplace::new(args.store.open()?.path())?;
        return unpack(&args.file, &workplace, source, |new| kernels.add(new));
    }
    if args.modules.is_none() && !args.built_in {
        return Err(MachineError::NoModules { path: args.file.clone() }.into());
    }
    Ok(kernels.add(&NewKernel { image: &args.file, modules: args.modules.as_deref(), source })?)
}

fn get(args: &GetArgs) -> Result<Kernel, Problem> {
    let kernels = args.store.kernels()?;
    let workplace = Workplace::new(args.store.open()?.path())?;
    let depends = tool(APT_CACHE)?
        .args(["depends", "--no-recommends", "--no-suggests", PACKAGE])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Problem::Fetch { tried: "apt-cache", why: error.to_string() })?;
    let package = package(&String::from_utf8_lossy(&depends.stdout))
        .ok_or_else(|| Problem::Fetch { tried: "apt-cache", why: format!("it knows no {PACKAGE}") })?;
    if !args.json {
        output::say(&format!("blastbox: apt-get downloads {package}\n"));
    }
    let mut fetch = tool(APT_GET)?;
    // To the terminal's other stream: what this prints is one kernel.
    fetch.args(["download", "-q", "-o", "APT::Sandbox::User=root", &package]).current_dir(&workplace.0);
    run(&mut fetch, "apt-get")?;
    let file = fs::read_dir(&workplace.0)
        .ok()
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .ok_or_else(|| Problem::Fetch { tried: "apt-get", why: "there is no package".to_owned() })?;
    let source = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    unpack(&file, &workplace, source, |new| kernels.add(new))
}

/// The package that really holds a kernel, among those that the other one depends on.
fn package(depends: &str) -> Option<String> {
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let plain = |name: &&str| {
        name.starts_with("linux-image-")
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte))
    };
    names.map(str::trim).find(plain).map(str::to_owned)
}

/// Takes a package apart and hands on the kernel in it.
fn unpack(
    file: &Path,
    workplace: &Workplace,
    source: String,
    add: impl FnOnce(&NewKernel<'_>) -> Result<Kernel, MachineError>,
) -> Result<Kernel, Problem> {
    let folder = workplace.0.join("unpacked");
    run(
        tool(DPKG)?.arg("-x").arg(std::path::absolute(file).unwrap_or(file.into())).arg(&folder),
        "dpkg-deb",
    )?;
    let missing =
        |what: &str| Problem::Fetch { tried: "dpkg-deb", why: format!("the package has no {what}") };
    let image = only(&folder.join("boot"), "vmlinuz-").ok_or_else(|| missing("boot/vmlinuz-…"))?;
    let modules = ["lib/modules", "usr/lib/modules"].iter().find_map(|at| only(&folder.join(at), ""));
    let modules = modules.ok_or_else(|| missing("lib/modules/…"))?;
    Ok(add(&NewKernel { image: &image, modules: Some(&modules), source })?)
}

fn only(folder: &Path, beginning: &str) -> Option<PathBuf> {
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(beginning));
    fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(named)
}

#[expect(clippy::disallowed_methods, reason = "apt and dpkg fetch and unpack a kernel, by their full paths")]
fn tool(program: &'static str) -> Result<Command, Problem> {
    if !Path::new(program).exists() {
        return Err(Problem::NoFetcher { missing: program });
    }
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
    for name in ["http_proxy", "https_proxy", "no_proxy"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.stdin(Stdio::null());
    Ok(command)
}

fn run(command: &mut Command, tried: &'static str) -> Result<(), Problem> {
    let ended = command.stdout(Stdio::null()).stderr(Stdio::inherit()).status();
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Problem::Fetch { tried, why: status.to_string() }),
        Err(error) => Err(Problem::Fetch { tried, why: error.to_string() }),
    }
}

/// A directory beside the kernels, gone at the end.
struct Workplace(PathBuf);

impl Workplace {
    fn new(store: &Path) -> Result<Self, Problem> {
        let path = store.join(format!(".kernel-{}", std::process::id()));
        let made = fs::create_dir(&path);
        made.map_err(|source| MachineError::Place { tried: "make", path: path.clone(), source })?;
        Ok(Self(path))
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_with_the_kernel_is_found_and_nothing_else_is_taken_for_one() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-54-cloud-amd64\n";
        assert_eq!(package(text).as_deref(), Some("linux-image-6.1.0-54-cloud-amd64"));
        assert_eq!(package("linux-image-cloud-amd64\n"), None);
        assert_eq!(package("  Depends: --help\n  Depends: linux-image-x;y\n"), None);
    }
}
