//! `blastbox kernel`: the kernels that virtual machines start with. None comes with blastbox; none is installed here.

mod fetch;
mod workplace;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use blastbox_images::machine::{Kernel, KernelFacts, MachineError, NewKernel};
use blastbox_images::store::short;
use clap::{Args, Subcommand};

use crate::image::StoreFlag;
use crate::output::{self, plain};
use crate::problem::Problem;
use workplace::Workplace;

pub(crate) const HELP: &str = "\
Examples:
  blastbox kernel get                                  Debian's cloud kernel, by apt, without installing it
  blastbox kernel add linux-image-6.1.0-cloud.deb      a package that was brought along
  blastbox kernel add vmlinuz --modules /lib/modules/6.1.0-13-amd64
  blastbox kernel ls
  blastbox run --tier microvm --image tools -- uname -a

Guests start with the kernel that was added last. Of its modules only those are kept that a guest needs: virtio for PCI,
serial ports, disks, randomness and network, squashfs and overlay.";

const DPKG: &str = "/usr/bin/dpkg-deb";

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum KernelVerb {
    /// List kernels
    #[command(after_help = "Example:\n  blastbox kernel ls --json")]
    Ls(LsArgs),
    /// Add a kernel: a package of Debian, a bzImage or an ELF file
    #[command(
        after_help = "Examples:\n  blastbox kernel add linux-image-6.1.0-cloud.deb\n  blastbox kernel add vmlinuz --modules /lib/modules/6.1.0-13-amd64"
    )]
    Add(AddArgs),
    /// Fetch Debian's kernel for virtual machines with apt, without installing it
    #[command(after_help = "Example:\n  blastbox kernel get")]
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
        output::print("no kernel yet; get one with `blastbox kernel get`\n")?;
        return Ok(0);
    }
    let current = kernels.current()?.map(|kernel| kernel.facts().digest);
    for facts in &all {
        let mark = if Some(facts.digest) == current { "*" } else { " " };
        output::print(&format!("{mark} {}\n", line(facts)))?;
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
        output::print(&format!("{}\n{}\n", kernel.facts().digest, line(kernel.facts())))?;
    }
    Ok(0)
}

fn add(args: &AddArgs) -> Result<Kernel, Problem> {
    let kernels = args.store.kernels()?;
    let unread = |source| Problem::ReadKernel { path: args.file.clone(), source };
    if fs::File::open(&args.file).and_then(|file| file.metadata()).map_err(unread)?.is_dir() {
        return Err(unread(io::ErrorKind::IsADirectory.into()));
    }
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
    let fetched = fetch::fetch(&workplace, args.json)?;
    let source = fetched.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    unpack(&fetched, &workplace, source, |new| kernels.add(new))
}

/// Takes a package apart and hands on the kernel in it.
fn unpack(
    file: &Path,
    workplace: &Workplace,
    source: String,
    add: impl FnOnce(&NewKernel<'_>) -> Result<Kernel, MachineError>,
) -> Result<Kernel, Problem> {
    let folder = workplace.path.join("unpacked");
    run(
        tool(DPKG)?.arg("-x").arg(std::path::absolute(file).unwrap_or(file.into())).arg(&folder),
        "dpkg-deb",
    )?;
    let missing =
        |what: &str| Problem::Fetch { tried: "dpkg-deb", why: format!("the package has no {what}") };
    let image = only(&folder, "boot", "vmlinuz-").ok_or_else(|| missing("boot/vmlinuz-…"))?;
    let modules = ["lib/modules", "usr/lib/modules"].iter().find_map(|at| only(&folder, at, ""));
    let modules = modules.ok_or_else(|| missing("lib/modules/…"))?;
    Ok(add(&NewKernel { image: &image, modules: Some(&modules), source })?)
}

/// What begins so in a directory of an unpacked package. Links are not taken: the package's maker would choose with them
/// what else of this host is read.
fn only(unpacked: &Path, at: &str, beginning: &str) -> Option<PathBuf> {
    let real = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let mut folder = unpacked.to_owned();
    for part in at.split('/') {
        folder.push(part);
        if !real(&folder) {
            return None;
        }
    }
    let wanted = |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with(beginning)
            && entry.file_type().is_ok_and(|kind| !kind.is_symlink())
    };
    fs::read_dir(folder).ok()?.flatten().find(wanted).map(|entry| entry.path())
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

#[cfg(test)]
mod tests {
    use super::workplace::tests::Place;
    use super::*;

    #[test]
    fn links_in_a_package_lead_nowhere() {
        let place = Place::new("links");
        let host = place.0.join("host");
        fs::create_dir_all(host.join("modules/6.1")).unwrap();
        fs::write(host.join("vmlinuz-6.1"), "of the host").unwrap();
        let package = place.0.join("package");
        fs::create_dir_all(package.join("boot")).unwrap();
        std::os::unix::fs::symlink(host.join("vmlinuz-6.1"), package.join("boot/vmlinuz-6.1")).unwrap();
        std::os::unix::fs::symlink(&host, package.join("lib")).unwrap();
        assert_eq!(only(&package, "boot", "vmlinuz-"), None);
        assert_eq!(only(&package, "lib/modules", ""), None);
        fs::write(package.join("boot/vmlinuz-6.2"), "its own").unwrap();
        assert_eq!(only(&package, "boot", "vmlinuz-"), Some(package.join("boot/vmlinuz-6.2")));
    }
}
