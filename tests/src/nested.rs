//! A host with KVM, for machines that have none: QEMU emulates a processor with hardware virtualisation, Linux runs on it with
//! `kvm_amd`, and in that the programs under test. What they start there runs on a real KVM, slowly.
//!
//! ```text
//! this host ─► QEMU, emulated ─► Linux with /dev/kvm ─► blastbox ─► QEMU on KVM ─► the guest of a box
//! ```

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::machines::{Workshop, entry, kernel};
use crate::{Caller, text};

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

/// Leaves the first root, from which no box can be made: nothing can be put in its place.
const LEAVE: &str = "#!/bin/busybox sh
/bin/busybox mount -t tmpfs -o size=1g t /tmp
cd /; /bin/busybox cp -a bin usr lib lib64 etc m b store work /tmp/
cd /tmp; /bin/busybox mkdir -p dev proc sys tmp run root var/tmp
exec /bin/busybox switch_root /tmp /work
";
/// What a distribution does before anybody logs in.
const PREPARE: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/b
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm; for at in /dev/shm /tmp /run; do mount -t tmpfs t $at; done
mount -t cgroup2 c /sys/fs/cgroup
for driver in irqbypass kvm kvm-amd; do insmod /m/$driver.ko; done
exec >/dev/ttyS0 2>&1 </dev/null
";

/// The host, not yet running.
#[derive(Debug)]
pub struct Nested<'a> {
    caller: &'a Caller,
    kernel: PathBuf,
    archive: Vec<u8>,
}

impl<'a> Nested<'a> {
    /// With the programs under test in its search path, and the workshop's store at `/store`. `None`, and reported: something is missing.
    pub fn with(caller: &'a Caller, workshop: &Workshop<'_>) -> Option<Self> {
        let (kernel, modules) = kernel()?;
        if let Some(missing) = DRIVERS.iter().find(|driver| !modules.join(driver).is_file()) {
            caller.skip(&format!("the guests' kernel has no {missing}"));
            return None;
        }
        let mut host = Self { caller, kernel, archive: Vec::new() };
        for place in [
            "bin",
            "lib64",
            "etc",
            "m",
            "b",
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
            host.directory(place);
        }
        entry(&mut host.archive, "lib", 0o120_777, b"usr/lib");
        entry(&mut host.archive, "etc/passwd", 0o100_644, b"root:x:0:0::/:/bin/sh\n");
        host.file("bin/busybox", workshop.busybox());
        for driver in DRIVERS {
            let name = driver.rsplit('/').next().unwrap_or_default();
            host.file(&format!("m/{name}"), &fs::read(modules.join(driver)).expect("read a driver"));
        }
        let programs = caller.blastbox_path();
        for program in
            fs::read_dir(programs.parent().expect("a directory")).expect("list the programs").flatten()
        {
            let name = program.file_name().to_string_lossy().into_owned();
            if name.starts_with("blastbox") && program.path().is_file() {
                host.file(&format!("b/{name}"), &fs::read(program.path()).expect("read a program"));
            }
        }
        host.show_qemu();
        host.tree(Path::new(&workshop.store), "store");
        Some(host)
    }

    /// Runs a script there, as root, and says what it printed. It ends with the script.
    pub fn sh(mut self, script: &str) -> String {
        self.file("init", LEAVE.as_bytes());
        self.file("work", format!("{PREPARE}{script}\npoweroff -f\n").as_bytes());
        entry(&mut self.archive, "TRAILER!!!", 0, &[]);
        let (first, log) =
            (self.caller.file("nested.cpio", &self.archive), self.caller.place().join("nested.log"));
        let serial = format!("file:{}", text(&log));
        let words = [
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
            "-append",
            "quiet panic=-1 console=ttyS0 tsc=reliable no_timer_check lsm=landlock",
            "-serial",
            &serial,
            "-kernel",
            text(&self.kernel),
            "-initrd",
            text(&first),
        ];
        let mut held = self.caller.program(Path::new(QEMU), words).start();
        let begun = Instant::now();
        while !held.is_over() {
            let said = || String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
            assert!(begun.elapsed() < PATIENCE, "it hangs, and has said: {}", said());
            std::thread::sleep(Duration::from_millis(200));
        }
        let ended = held.end();
        let said = fs::read(&log).unwrap_or_default();
        assert_eq!(ended.code, 0, "{}{}", ended.err, String::from_utf8_lossy(&said));
        fs::remove_file(first).ok();
        String::from_utf8_lossy(&said).replace('\r', "")
    }

    fn directory(&mut self, at: &str) {
        entry(&mut self.archive, at, 0o040_755, &[]);
    }

    fn file(&mut self, at: &str, content: &[u8]) {
        entry(&mut self.archive, at, 0o100_755, content);
    }

    /// QEMU with the libraries that it is linked with, where it looks for them.
    fn show_qemu(&mut self) {
        self.file(&QEMU[1..], &fs::read(QEMU).expect("read QEMU"));
        let linked = self.caller.program(Path::new("/usr/bin/ldd"), [QEMU]).end().text();
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
                entry(&mut self.archive, &at, 0o120_777, text(&to).as_bytes());
            } else if kind.is_file() {
                let mode = fs::metadata(&path).expect("look at a file").permissions().mode();
                entry(
                    &mut self.archive,
                    &at,
                    0o100_000 | mode & 0o777,
                    &fs::read(&path).expect("read a file"),
                );
            }
        }
    }
}
