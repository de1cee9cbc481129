//! A host with KVM, for machines that have none: QEMU emulates a processor with hardware virtualisation, Linux runs on it with
//! `kvm_amd`, and in that the programs under test. What they start there runs on a real KVM, slowly.
//!
//! ```text
//! this host ─► QEMU, emulated ─► Linux with /dev/kvm ─► blastbox ─► QEMU on KVM ─► the guest of a box
//! ```
//!
//! It boots once for each kernel, first files and QEMU, waits, and is written to a file (`target/nested`); programs and scripts come by
//! a disk, which it looks at first when it goes on from there.

mod kept;
mod qemu;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::kept::Kept;
use self::qemu::Line;
use crate::machines::{Workshop, entry, kernel};
use crate::{Caller, Held, text};

const QEMU: &str = "/usr/bin/qemu-system-x86_64";
/// Those that make `/dev/kvm`, in this order, beneath the modules of a kernel.
const DRIVERS: [&str; 3] =
    ["kernel/virt/lib/irqbypass.ko", "kernel/arch/x86/kvm/kvm.ko", "kernel/arch/x86/kvm/kvm-amd.ko"];
/// What QEMU reads when it starts a kernel, by Debian's names.
const FIRMWARE: [&str; 6] = [
    "/usr/share/seabios/bios-256k.bin",
    "/usr/share/seabios/bios.bin",
    "/usr/share/qemu/kvmvapic.bin",
    "/usr/share/qemu/linuxboot.bin",
    "/usr/share/qemu/linuxboot_dma.bin",
    "/usr/share/qemu/pvh.bin",
];
/// A boot, and what is done then, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a machine that was kept may take to say something.
const WAKING: Duration = Duration::from_secs(60);

/// The machine, but for what is another file or another socket in each test. What it was kept of has the same words.
const MACHINE: [&str; 14] = [
    "-nodefaults",
    "-no-user-config",
    "-nographic",
    "-no-reboot",
    "-accel",
    "tcg",
    "-cpu",
    "max",
    "-M",
    "q35",
    "-m",
    "3072",
    "-device",
    "virtio-blk-pci,drive=load",
];
const KERNEL_WORDS: &str = "quiet panic=-1 console=ttyS0 tsc=reliable no_timer_check lsm=landlock";
/// Of the disk by which programs and script come in, whatever is on it: the machine that was kept knows it.
const LOAD: u64 = 1 << 30;
const GLANCE: Duration = Duration::from_millis(200);

/// Leaves the first root, from which no box can be made: nothing can be put in its place.
const LEAVE: &str = "#!/bin/busybox sh
/bin/busybox mount -t tmpfs -o size=1g t /tmp
cd /; /bin/busybox cp -a bin usr lib lib64 etc m v work /tmp/
cd /tmp; /bin/busybox mkdir -p dev proc sys tmp run root var/tmp
exec /bin/busybox switch_root /tmp /work
";
/// What a distribution does before anybody logs in. There it waits to be kept; whoever goes on from there has another disk.
const PREPARE: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/b
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm; for at in /dev/shm /tmp /run; do mount -t tmpfs t $at; done
mount -t cgroup2 c /sys/fs/cgroup
for driver in irqbypass kvm kvm-amd; do insmod /m/$driver.ko; done
exec >/dev/ttyS0 2>&1 </dev/null
exec 8< /dev/ttyS1
echo waits
until read word <&8 && [ \"$word\" = go ]; do :; done
echo goes
exec 8<&-
for turn in 1 2 3 4; do for driver in /v/*; do insmod $driver; done; done 2>/dev/null
until [ -e /dev/vda ]; do sleep 1; done
cd / && cpio -idm < /dev/vda 2>/dev/null
exec sh /script
";

/// The host, not yet running.
#[derive(Debug)]
pub struct Nested<'a> {
    caller: &'a Caller,
    kernel: PathBuf,
    /// What it boots with.
    base: Vec<u8>,
    /// What comes to it when it has booted.
    load: Vec<u8>,
    runs: usize,
    boots: usize,
    /// Where it was kept, once somebody has seen that it is whole.
    whole: Option<PathBuf>,
}

impl<'a> Nested<'a> {
    /// With the programs under test in its search path, and the workshop's store at `/store`. `None`, and reported: something is missing.
    pub fn with(caller: &'a Caller, workshop: &Workshop<'_>) -> Option<Self> {
        let (kernel, modules) = kernel()?;
        if let Some(missing) = DRIVERS.iter().find(|driver| !modules.join(driver).is_file()) {
            caller.skip(&format!("the guests' kernel has no {missing}"));
            return None;
        }
        let mut base = Archive::default();
        for place in [
            "bin",
            "lib64",
            "etc",
            "m",
            "v",
            "dev",
            "proc",
            "sys",
            "tmp",
            "run",
            "usr",
            "usr/bin",
            "usr/lib",
            "usr/share",
        ] {
            base.directory(place);
        }
        entry(&mut base.0, "lib", 0o120_777, b"usr/lib");
        entry(&mut base.0, "etc/passwd", 0o100_644, b"root:x:0:0::/:/bin/sh\n");
        base.file("bin/busybox", workshop.busybox());
        for driver in DRIVERS {
            let name = driver.rsplit('/').next().unwrap_or_default();
            base.file(&format!("m/{name}"), &fs::read(modules.join(driver)).expect("read a driver"));
        }
        // Those of a guest, for the disk.
        base.tree(&workshop.first_files().with_file_name("modules"), "v");
        base.show_qemu(caller);
        base.file("init", LEAVE.as_bytes());
        base.file("work", PREPARE.as_bytes());

        let mut load = Archive::default();
        load.directory("b");
        let programs = caller.blastbox_path();
        for program in
            fs::read_dir(programs.parent().expect("a directory")).expect("list the programs").flatten()
        {
            let name = program.file_name().to_string_lossy().into_owned();
            // Machines without network, and no other tier: what is not started need not come.
            let is_left = ["blastbox-egress", "blastbox-gvisor"].contains(&name.as_str());
            if name.starts_with("blastbox") && !is_left && program.path().is_file() {
                load.file(&format!("b/{name}"), &fs::read(program.path()).expect("read a program"));
            }
        }
        load.tree(Path::new(&workshop.store), "store");
        Some(Self { caller, kernel, base: base.end(), load: load.0, runs: 0, boots: 0, whole: None })
    }

    /// How often it had to boot: it does where no machine of the same making was kept, or what was kept is not whole.
    pub fn boots(&self) -> usize {
        self.boots
    }

    /// Runs a script there, as root, and says what it printed. It ends with the script.
    pub fn sh(&mut self, script: &str) -> String {
        let first = self.caller.file("nested.cpio", &self.base);
        let version = self.caller.program(Path::new(QEMU), ["--version"]).end().text();
        let place = crate::programs::built().with_file_name("nested");
        let words = [&MACHINE[..], &[KERNEL_WORDS, &version]].concat().join("\n");
        let kept = Kept::of(&place, &[&self.kernel, &first], &words);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
        let script = format!("date -s @{} > /dev/null\n{script}\npoweroff -f\n", now.as_secs());
        let mut load = Archive(self.load.clone());
        load.file("script", script.as_bytes());
        let load = load.end();
        for last in [false, true] {
            let whole = self.whole.take().or_else(|| kept.find().map(Path::to_owned));
            let state = whole.unwrap_or_else(|| self.boot(&kept, &first).to_owned());
            let from = format!("exec:cat '{}'", state.display());
            let mut run = Run::start(self.caller, self.runs, &load, &["-incoming", &from]);
            self.runs += 1;
            if run.wakes() {
                self.whole = Some(state);
                return run.end();
            }
            assert!(!last, "a machine that has just been kept does not go on: {}", run.said());
            kept.forget();
        }
        unreachable!("it has gone on, or not")
    }

    /// Boots it, and keeps it as it is then.
    fn boot<'k>(&mut self, kept: &'k Kept, first: &Path) -> &'k Path {
        let words = ["-kernel", text(&self.kernel), "-initrd", text(first), "-append", KERNEL_WORDS];
        let mut run = Run::start(self.caller, self.runs, &[], &words);
        (self.runs, self.boots) = (self.runs + 1, self.boots + 1);
        assert!(run.hears("waits", PATIENCE), "{}", run.said());
        Line::open(&run.orders).expect("QEMU listens").write_to(&kept.draft());
        run.end();
        kept.keep()
    }
}

/// The machine, running.
struct Run {
    held: Held,
    log: PathBuf,
    orders: PathBuf,
    go: PathBuf,
    load: PathBuf,
}

impl Run {
    fn start(caller: &Caller, number: usize, load: &[u8], more: &[&str]) -> Self {
        let at = |name: &str| caller.place().join(format!("{name}{number}"));
        let (log, orders, go) = (at("nested.log"), at("orders"), at("go"));
        let load = caller.file(&format!("load{number}"), load);
        File::options().write(true).open(&load).and_then(|file| file.set_len(LOAD)).expect("a disk");
        let (serial, disk) = (
            format!("file:{}", text(&log)),
            format!("driver=file,node-name=load,filename={},read-only=on", text(&load)),
        );
        let (socket, told) = (
            format!("unix:{},server=on,wait=off", text(&orders)),
            format!("unix:{},server=on,wait=off", text(&go)),
        );
        let own = ["-serial", &serial, "-serial", &told, "-qmp", &socket, "-blockdev", &disk];
        let held = caller.program(Path::new(QEMU), MACHINE.iter().chain(&own).chain(more)).start();
        Self { held, log, orders, go, load }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).replace('\r', "")
    }

    /// Whether it says this line before it ends and in this time.
    fn hears(&mut self, line: &str, patience: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < patience && !self.held.is_over() {
            // What comes before it may be the firmware's, without an end.
            if self.said().lines().any(|said| said.ends_with(line)) {
                return true;
            }
            std::thread::sleep(GLANCE);
        }
        false
    }

    /// Tells one that was kept to go on, until it does. `false`: it never did.
    fn wakes(&mut self) -> bool {
        let (begun, mut line) = (Instant::now(), None);
        while line.is_none() && begun.elapsed() < WAKING && !self.held.is_over() {
            std::thread::sleep(GLANCE);
            line = Line::open(&self.orders);
        }
        if !line.is_some_and(|mut line| line.go_on()) {
            return false;
        }
        while begun.elapsed() < WAKING && !self.held.is_over() {
            if let Ok(mut line) = UnixStream::connect(&self.go) {
                line.write_all(b"go\n").ok();
                if self.hears("goes", 5 * GLANCE) {
                    return true;
                }
            }
            std::thread::sleep(GLANCE);
        }
        false
    }

    /// Waits for its end. What it said.
    fn end(mut self) -> String {
        let begun = Instant::now();
        while !self.held.is_over() {
            assert!(begun.elapsed() < PATIENCE, "it hangs, and has said: {}", self.said());
            std::thread::sleep(GLANCE);
        }
        let said = self.said();
        let ended = self.held.end();
        assert_eq!(ended.code, 0, "{}{said}", ended.err);
        fs::remove_file(self.load).ok();
        said
    }
}

/// Files for a kernel to unpack.
#[derive(Debug, Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn end(mut self) -> Vec<u8> {
        entry(&mut self.0, "TRAILER!!!", 0, &[]);
        self.0
    }

    fn directory(&mut self, at: &str) {
        entry(&mut self.0, at, 0o040_755, &[]);
    }

    fn file(&mut self, at: &str, content: &[u8]) {
        entry(&mut self.0, at, 0o100_755, content);
    }

    /// QEMU with the libraries that it is linked with, where it looks for them.
    fn show_qemu(&mut self, caller: &Caller) {
        self.file(&QEMU[1..], &fs::read(QEMU).expect("read QEMU"));
        let linked = caller.program(Path::new("/usr/bin/ldd"), [QEMU]).end().text();
        let libraries = linked.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
        let firmware = FIRMWARE.iter().map(Path::new).filter(|path| path.is_file());
        let mut made = vec![PathBuf::from("/usr/lib"), PathBuf::from("/lib64"), PathBuf::from("/usr/share")];
        for from in libraries.chain(firmware) {
            // As on a host whose /lib is a link into /usr.
            let at = match from.strip_prefix("/lib") {
                Ok(rest) => Path::new("/usr/lib").join(rest),
                Err(_) => from.to_owned(),
            };
            let folder = at.parent().expect("a directory").to_owned();
            if !made.contains(&folder) {
                self.directory(text(&folder).trim_start_matches('/'));
                made.push(folder);
            }
            self.file(text(&at).trim_start_matches('/'), &fs::read(from).expect("read a library"));
        }
    }

    /// Everything beneath a directory of this host.
    fn tree(&mut self, from: &Path, at: &str) {
        self.directory(at);
        let mut names: Vec<_> = fs::read_dir(from).expect("list a directory").flatten().collect();
        names.sort_by_key(fs::DirEntry::file_name);
        for found in names {
            let (path, kind) = (found.path(), found.file_type().expect("a kind"));
            let at = format!("{at}/{}", found.file_name().to_string_lossy());
            if kind.is_dir() {
                self.tree(&path, &at);
            } else if kind.is_symlink() {
                let to = fs::read_link(&path).expect("read a link");
                entry(&mut self.0, &at, 0o120_777, text(&to).as_bytes());
            } else if kind.is_file() {
                let mode = fs::metadata(&path).expect("look at a file").permissions().mode();
                entry(&mut self.0, &at, 0o100_000 | mode & 0o777, &fs::read(&path).expect("read a file"));
            }
        }
    }
}
