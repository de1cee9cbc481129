//! Starts the two processes of `runsc`, tells the kernel to begin, and waits for the end.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::fs::{MemfdFlags, Mode, OFlags, SeekFrom, memfd_create, open, seek};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions};

use crate::CONTROL;
use crate::arguments::{Arguments, Platform};
use crate::fault::{Fault, Trying};
use crate::spec;

/// The container's name inside this one kernel.
const NAME: &str = "box";
/// Hands a descriptor to the container's first process.
const PASS: &str = "--pass-fd";
/// How much of an answer or of a complaint is read.
const MOST: usize = 4096;

/// Everything that both processes are given.
struct Ends {
    /// One line for each file system: the gofer's end and the kernel's.
    files: Vec<(OwnedFd, OwnedFd)>,
    /// The list of mounts, from the gofer to the kernel.
    mounts: (OwnedFd, OwnedFd),
    /// The kernel says here that it is there.
    ready: (OwnedFd, OwnedFd),
    /// Where the kernel takes orders.
    orders: OwnedFd,
    /// What both complain about.
    complaints: (OwnedFd, OwnedFd),
    /// Where the gofer opens devices for the kernel, where there is a GPU.
    devices: Option<(OwnedFd, OwnedFd)>,
}

/// Is the kernel's keeper until the kernel has ended. Returns the code to leave with.
pub(crate) fn run(arguments: &Arguments, control: &OwnedFd) -> Result<u8, Fault> {
    let ends = Ends::make(arguments)?;
    let devices = spec::devices(arguments)?;
    let text = spec::write(arguments, &devices, &rustix::system::uname().nodename().to_string_lossy());
    let gofer = start_gofer(arguments, &ends, &text)?;
    let kernel = start_kernel(arguments, &ends, &text, control)?;
    let Ends { files, mounts, ready: (heard, told), orders, complaints: (complaints, write_end), devices } =
        ends;
    // Ends that others hold now: a line whose other end is gone must look like that.
    drop((files, mounts, told, write_end, devices));
    let begun = begin(&heard, &orders);
    let mut complaints = std::fs::File::from(complaints);
    if let Err(fault) = begun {
        return Err(collect(fault, kernel, gofer, &mut complaints));
    }
    drop(orders);
    // Whatever they still complain about must not make them wait. Nobody reads it: from here on a hostile program may
    // have written it.
    std::thread::spawn(move || std::io::copy(&mut complaints, &mut std::io::sink()));
    Ok(wait_for_either(&kernel, &gofer))
}

impl Ends {
    fn make(arguments: &Arguments) -> Result<Self, Fault> {
        // The root, and every place that is a mount of its own.
        let line =
            || rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let files = std::iter::repeat_with(line)
            .take(arguments.places.len().saturating_add(1))
            .collect::<Result<_, _>>();
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let orders =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .tried("make a socket for orders")?;
        // A name of the kernel's choice, which only this box can reach.
        rustix::net::bind(&orders, &rustix::net::SocketAddrUnix::new_unnamed())
            .tried("name the socket for orders")?;
        Ok(Self {
            files: files.tried("make lines for files")?,
            mounts: pipe().tried("make a line for mounts")?,
            ready: pipe().tried("make a line for the start")?,
            orders,
            complaints: pipe().tried("make a line for complaints")?,
            devices: arguments.gpu.as_ref().map(|_| line()).transpose().tried("make a line for devices")?,
        })
    }
}

/// What both are told.
fn runsc(arguments: &Arguments, text: &str, ends: &Ends) -> Result<(Command, OwnedFd), Fault> {
    let spec = memfd_create("spec", MemfdFlags::CLOEXEC).tried("make room for the box's description")?;
    rustix::io::write(&spec, text.as_bytes()).tried("write the box's description")?;
    seek(&spec, SeekFrom::Start(0)).tried("wind the box's description back")?;
    #[expect(clippy::disallowed_methods, reason = "this is the program whose business is to start these two")]
    let mut command = Command::new(&arguments.runsc);
    let complaints = ends.complaints.1.try_clone().tried("copy the line for complaints")?;
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
    command
        .args(["--root=/proc/self", "--log=/dev/null", "--ignore-cgroups", "--TESTONLY-unsafe-nonroot"])
        .args(["--directfs=false", "--overlay2=none", "--host-uds=none", "--host-fifo=none"])
        // Nobody else writes what the box can write.
        .args(["--file-access=exclusive", "--file-access-mounts=exclusive"])
        .arg(format!("--platform={}", arguments.platform.as_str()))
        .arg(format!("--network={}", arguments.network.as_str()));
    command.args(arguments.gpu.iter().map(|_| "--nvproxy"));
    Ok((command, spec))
}

fn mount_kinds(ends: &Ends) -> String {
    format!("--gofer-mount-confs={}", vec!["lisafs:none"; ends.files.len()].join(","))
}

fn start_gofer(arguments: &Arguments, ends: &Ends, text: &str) -> Result<Child, Fault> {
    let (mut command, spec) = runsc(arguments, text, ends)?;
    command.args(["gofer", "--bundle=/", "--apply-caps=false", "--setup-root=false"]).arg(mount_kinds(ends));
    let mut given = vec![("--spec-fd", &spec), ("--mounts-fd", &ends.mounts.1)];
    given.extend(ends.files.iter().map(|(gofer, _)| ("--io-fds", gofer)));
    given.extend(ends.devices.iter().map(|(gofer, _)| ("--dev-io-fd", gofer)));
    spawn(command, &given, None, "start gVisor's file server")
}

fn start_kernel(arguments: &Arguments, ends: &Ends, text: &str, control: &OwnedFd) -> Result<Child, Fault> {
    let (mut command, spec) = runsc(arguments, text, ends)?;
    command.args(["boot", "--bundle=/", "--product-name=blastbox"]).arg(mount_kinds(ends));
    command
        .arg(format!("--cpu-num={}", arguments.cpus))
        .arg(format!("--total-memory={}", arguments.memory))
        .arg(format!("--total-host-memory={}", arguments.memory));
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).tried("open /dev/null")?;
    let nulls = [&null, &null, &null].map(OwnedFd::try_clone);
    let nulls = nulls.into_iter().collect::<Result<Vec<_>, _>>().tried("copy /dev/null")?;
    let mut given = vec![
        ("--spec-fd", &spec),
        ("--mounts-fd", &ends.mounts.0),
        ("--controller-fd", &ends.orders),
        ("--start-sync-fd", &ends.ready.1),
    ];
    given.extend(ends.files.iter().map(|(_, kernel)| ("--io-fds", kernel)));
    given.extend(ends.devices.iter().map(|(_, kernel)| ("--dev-io-fd", kernel)));
    command.args(arguments.gpu.iter().map(|driver| format!("--nvidia-driver-version={driver}")));
    given.extend(nulls.iter().map(|null| ("--stdio-fds", null)));
    let machines = match arguments.platform {
        Platform::Systrap | Platform::Ptrace => None,
        Platform::Kvm => {
            Some(open("/dev/kvm", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).tried("open /dev/kvm")?)
        }
    };
    given.extend(machines.iter().map(|machines| ("--device-fd", machines)));
    given.push((PASS, control));
    spawn(command, &given, Some(NAME), "start gVisor's kernel")
}

/// Starts it with these descriptors, which are named to it, and no other.
fn spawn(
    mut command: Command,
    given: &[(&str, &OwnedFd)],
    last: Option<&str>,
    what: &'static str,
) -> Result<Child, Fault> {
    let fds: Vec<&OwnedFd> = given.iter().map(|(_, fd)| *fd).collect();
    command.args(given.iter().map(|(option, fd)| match *option {
        // The number here, and the number inside.
        PASS => format!("{PASS}={}:{CONTROL}", fd.as_raw_fd()),
        option => format!("{option}={}", fd.as_raw_fd()),
    }));
    command.args(last);
    pass(&fds, true)?;
    let spawned = command.spawn().tried(what);
    pass(&fds, false)?;
    spawned
}

/// Lets descriptors pass to the next program, or not.
fn pass(fds: &[&OwnedFd], pass: bool) -> Result<(), Fault> {
    let flags = if pass { FdFlags::empty() } else { FdFlags::CLOEXEC };
    fds.iter().try_for_each(|fd| fcntl_setfd(fd, flags)).tried("mark a descriptor")
}

/// Waits until the kernel is there, and tells it to run the agent.
fn begin(heard: &OwnedFd, orders: &OwnedFd) -> Result<(), Fault> {
    let mut byte = [0_u8; 1];
    if rustix::io::retry_on_intr(|| rustix::io::read(heard, &mut byte)).tried("hear gVisor's kernel")? == 0 {
        return Err(Fault("gVisor's kernel ended before it was ready".into()));
    }
    let at = rustix::net::getsockname(orders).tried("find gVisor's kernel")?;
    let line = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .tried("make a socket")?;
    rustix::net::connect(&line, &at).tried("reach gVisor's kernel")?;
    let order = format!(r#"{{"method":"containerManager.StartRoot","arg":"{NAME}"}}"#);
    rustix::net::send(&line, order.as_bytes(), SendFlags::NOSIGNAL).tried("tell gVisor's kernel to begin")?;
    let mut answer = [0_u8; MOST];
    let (length, _) = rustix::io::retry_on_intr(|| rustix::net::recv(&line, &mut answer, RecvFlags::empty()))
        .tried("hear whether gVisor's kernel begins")?;
    let answer = answer.get(..length).unwrap_or_default();
    if answer.starts_with(br#"{"success":true"#) {
        return Ok(());
    }
    Err(Fault::with("gVisor's kernel did not begin", answer))
}

/// What they complained about, once both are dead.
fn collect(fault: Fault, mut kernel: Child, mut gofer: Child, complaints: &mut std::fs::File) -> Fault {
    for process in [&mut kernel, &mut gofer] {
        process.kill().ok();
        process.wait().ok();
    }
    let mut said = Vec::new();
    rustix::io::ioctl_fionbio(&*complaints, true).ok();
    Read::take(complaints, MOST as u64).read_to_end(&mut said).ok();
    Fault::with(&fault.0, &said)
}

/// The kernel without its files is as good as gone, and the other way round.
fn wait_for_either(kernel: &Child, gofer: &Child) -> u8 {
    let number = |child: &Child| i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (kernel, gofer) = (number(kernel), number(gofer));
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == kernel => {
                return status.exit_status().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
            }
            Ok(Some((pid, _))) if Some(pid) == gofer => return 1,
            // A process that lost its parent.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return 1,
        }
    }
}
