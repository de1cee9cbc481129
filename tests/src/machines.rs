//! What tests of virtual machines need: QEMU, a kernel, a store with an image that holds little more than a shell.

mod kept;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use self::kept::{Asked, Kept};
use crate::{Boxed, Caller, Held, Start};

fn text(path: &Path) -> String {
    crate::text(path).to_owned()
}

/// A boot under emulation on a busy machine, and what is done in it.
pub const PATIENCE: Duration = Duration::from_secs(240);
/// Two machines at once are enough for two processors: more would only make each slower than any bound.
pub static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// As much memory as a guest here needs. Machines of all tests have the same, so that they can be copies of the same templates.
pub const SMALL: [&str; 2] = ["--memory", "256MiB"];
const QEMU: &str = "/usr/bin/qemu-system-x86_64";
const TOOLS: [&str; 21] = [
    "sh", "cat", "uname", "id", "echo", "sleep", "ls", "touch", "dd", "mount", "insmod", "mkdir", "yes",
    "wc", "date", "head", "hexdump", "nc", "grep", "mkfifo", "nproc",
];
/// What every test here needs: QEMU, a kernel and a static busybox; a store with both.
#[derive(Debug)]
pub struct Workshop<'a> {
    caller: &'a Caller,
    /// Where images and kernels lie.
    pub store: String,
    busybox: Vec<u8>,
}

/// The number of the machine that an image was made from, which is no box's.
pub const IMAGES_OWN: &str = "00112233445566778899aabbccddeeff";

impl<'a> Workshop<'a> {
    /// A store with an image `tools`; `None`, and reported: something is missing.
    pub fn new(caller: &'a Caller) -> Option<Self> {
        Self::with(caller, |_| {})
    }

    /// The same, whose guests unpack their kernel themselves, as those of users do: its distribution ships it so.
    pub fn as_shipped(caller: &'a Caller) -> Option<Self> {
        Self::at(caller, "root", "store", Packing::Shipped, |_| {})
    }

    /// The same, with more in the image.
    pub fn with(caller: &'a Caller, more: impl FnOnce(&Path)) -> Option<Self> {
        Self::at(caller, "root", "store", Packing::Unpacked, more)
    }

    /// The same beside others of this caller.
    pub fn named(caller: &'a Caller, name: &str, more: impl FnOnce(&Path)) -> Option<Self> {
        Self::at(caller, &format!("root-{name}"), &format!("store-{name}"), Packing::Unpacked, more)
    }

    /// The same, with the store where a daemon has it that is not told of one: with its state, where it keeps the templates that it makes.
    pub fn in_state(caller: &'a Caller, more: impl FnOnce(&Path)) -> Option<Self> {
        Self::at(caller, "root", STATE_STORE, Packing::Unpacked, more)
    }

    fn at(
        caller: &'a Caller,
        root: &str,
        store: &str,
        packing: Packing,
        more: impl FnOnce(&Path),
    ) -> Option<Self> {
        if !Path::new(QEMU).exists() {
            caller.skip("QEMU is not installed (apt-get install qemu-system-x86)");
            return None;
        }
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].iter().find_map(|path| fs::read(path).ok());
        let is_static = |bytes: &Vec<u8>| !bytes.windows(9).take(8192).any(|part| part == b"ld-linux-");
        let Some(busybox) = busybox.filter(is_static) else {
            caller.skip("there is no static busybox (apt-get install busybox-static)");
            return None;
        };
        let Some((image, modules)) = kernel_as(packing) else {
            caller.skip("there is no kernel for guests (tools/kernel.sh fetches Debian's)");
            return None;
        };
        let root = caller.directory(root);
        for place in ["bin", "etc"] {
            fs::create_dir(root.join(place)).expect("make a directory");
        }
        fs::write(root.join("bin/busybox"), &busybox).expect("copy busybox");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(root.join("bin/busybox"), mode).expect("make it a program");
        for tool in TOOLS {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(tool)).expect("make a link");
        }
        more(&root);
        let store = text(&caller.place().join(store));
        let workshop = Self { caller, store, busybox };
        workshop.fine(&["image", "import", &text(&root), "--name", "tools"]);
        workshop.fine(&["kernel", "add", &text(&image), "--modules", &text(&modules)]);
        Some(workshop)
    }

    /// The same, with the number of some machine in the image, as images have it that were made from one.
    pub fn with_number(caller: &'a Caller) -> Option<Self> {
        Self::with(caller, |root| {
            fs::create_dir_all(root.join("var/lib/dbus")).expect("make a directory");
            for place in ["etc/machine-id", "var/lib/dbus/machine-id"] {
                fs::write(root.join(place), format!("{IMAGES_OWN}\n")).expect("write a number");
            }
        })
    }

    /// The same, with curl, every library that it is linked with, and a bundle of authorities in the image.
    pub fn with_curl(caller: &'a Caller) -> Option<Self> {
        if !Path::new(CURL).exists() {
            caller.skip("no /usr/bin/curl (apt-get install curl)");
            return None;
        }
        Self::with(caller, |root| add_curl(caller, root))
    }

    /// The same, with as much of this host's Python as draws numbers.
    pub fn with_python(caller: &'a Caller) -> Option<Self> {
        // A link to the one with its version in its name, by which its library is found.
        let Ok(python) = fs::read_link(PYTHON).map(|name| Path::new("/usr/bin").join(name)) else {
            caller.skip("no /usr/bin/python3 with a version (apt-get install python3)");
            return None;
        };
        Self::with(caller, |root| add_python(caller, &python, root))
    }

    /// A command about the store that succeeds.
    #[track_caller]
    pub fn fine(&self, words: &[&str]) -> String {
        let ended = self.caller.blastbox(words.iter().chain(&["--store", &self.store])).end();
        assert_eq!(ended.code, 0, "{words:?}: {}{}", ended.text(), ended.err);
        ended.text()
    }

    /// A static busybox.
    pub(crate) fn busybox(&self) -> &[u8] {
        &self.busybox
    }

    /// The words that ask for a machine. A small one, unless they say otherwise: all of its memory is the host's to give, and to copy.
    pub fn words<'w>(&'w self, verb: &[&'w str], options: &[&'w str], command: &[&'w str]) -> Vec<&'w str> {
        let usual = ["--store", &self.store, "--tier", "microvm", "--accept", "emulated-cpu"];
        let image = if options.contains(&"--image") { &[][..] } else { &["--image", "tools"][..] };
        let sized = options.iter().any(|option| option.starts_with("--memory"));
        let memory = if sized { &[][..] } else { &SMALL[..] };
        let end = if command.is_empty() { &[][..] } else { &["--"][..] };
        [verb, &usual, image, memory, options, end, command].concat()
    }

    /// A script in a machine of its own, started.
    pub fn start(&self, options: &[&str], script: &str) -> Held {
        self.caller.blastbox(self.words(&["run", "--json"], options, &["sh", "-c", script])).start()
    }

    /// The same, to its end.
    pub fn sh(&self, options: &[&str], script: &str) -> Boxed {
        self.start(options, script).end_within(PATIENCE).boxed()
    }

    /// Makes everything that a guest starts from, without starting one. Where its first files are.
    pub fn first_files(&self) -> PathBuf {
        first_files(self.caller, &self.store, &self.words(&[], &[], &[]))
    }

    /// A template for machines with these options lies in the store: one that an earlier test has made, or a new one, which later tests
    /// find. For tests of what boxes do that begin as copies; those of how a machine boots do without.
    pub fn template(&self, options: &[&str]) {
        self.template_for(options, || {
            let begun = self.sh(&[&["--timeout", "200s"], options].concat(), "true");
            assert_eq!(begun.receipt.exit_code, 0, "{:?} {}", begun.receipt.reason, begun.stderr);
        });
    }

    /// The same of machines with this policy, which are asked for by a command that is given, not yet started.
    pub fn template_by<'s>(&self, policy: &[&str], start: impl FnOnce(&[&str]) -> Start<'s>) {
        let words = self.words(&["run"], &[&["--timeout", "200s"], policy].concat(), &["sh", "-c", "true"]);
        self.template_for(policy, || {
            let begun = start(&words).start().end_within(PATIENCE);
            assert_eq!(begun.code, 0, "{}", begun.err);
        });
    }

    /// Has a machine made, unless a note says that what it would begin with is there. Whoever comes meanwhile waits for that one.
    fn template_for(&self, options: &[&str], make: impl FnOnce()) {
        let kept = self.kept();
        // What a policy says, wherever it lies.
        let place = text(self.caller.place().path());
        let said = |word: &&str| fs::read_to_string(word).unwrap_or_else(|_| word.to_string());
        let words: Vec<String> = options.iter().map(said).map(|said| said.replace(&place, "")).collect();
        let asked = Asked::by(self.caller, &words);
        kept.take();
        if kept.knows(&asked) {
            return;
        }
        let _turn = kept.turn();
        kept.take();
        if kept.knows(&asked) {
            return;
        }
        make();
        kept.keep();
        kept.know(&asked);
    }

    /// Does something with the templates that earlier tests have made, and keeps those that it made for later ones.
    pub fn with_templates<T>(&self, something: impl FnOnce() -> T) -> T {
        let kept = self.kept();
        kept.take();
        let made = something();
        kept.keep();
        made
    }

    fn kept(&self) -> Kept<'a> {
        Kept::of(self.caller, Path::new(&self.store), &self.first_files())
    }

    /// The first files of a guest that somebody else has made: its first process is this script.
    pub fn hostile(&self, first: &Path, script: &str) {
        // A box would begin as a copy of what was there before.
        fs::remove_dir_all(Path::new(&self.store).join("templates")).ok();
        let mut archive = Vec::new();
        let script = format!("#!/bin/busybox sh\n{script}");
        let modules = first.parent().expect("a folder").join("modules");
        let mut names: Vec<_> =
            fs::read_dir(modules).expect("list modules").flatten().map(|e| e.path()).collect();
        names.sort();
        let files = [("init", script.into_bytes()), ("bin/busybox", self.busybox.clone())];
        for directory in ["bin", "dev", "proc", "sys", "m"] {
            entry(&mut archive, directory, 0o040_755, &[]);
        }
        for (name, content) in &files {
            entry(&mut archive, name, 0o100_755, content);
        }
        for path in names {
            let name = format!("m/{}", path.file_name().expect("a name").to_string_lossy());
            entry(&mut archive, &name, 0o100_644, &fs::read(&path).expect("read a module"));
        }
        entry(&mut archive, "TRAILER!!!", 0, &[]);
        fs::write(first, archive).expect("replace the first files");
    }
}

pub(crate) fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, content: &[u8]) {
    let numbers = [1, mode, 0, 0, 1, 0, u32::try_from(content.len()).expect("a size"), 0, 0, 0, 0];
    archive.extend(b"070701");
    numbers.iter().for_each(|number| archive.extend(format!("{number:08x}").bytes()));
    archive.extend(format!("{:08x}{:08x}{name}\0", name.len() + 1, 0).bytes());
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(content);
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// Who unpacks the kernel of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    /// The guest, as those of users do.
    Shipped,
    /// `tools/kernel.sh`, once, where it can: a third of an emulated boot.
    Unpacked,
}

/// The kernel that `tools/kernel.sh` has fetched, as its distribution ships it, and its modules.
pub fn kernel() -> Option<(PathBuf, PathBuf)> {
    kernel_as(Packing::Shipped)
}

fn kernel_as(packing: Packing) -> Option<(PathBuf, PathBuf)> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kernel");
    let at = std::env::var_os("BLASTBOX_KERNEL").map_or_else(usual, PathBuf::from);
    let only = |folder: PathBuf, beginning: &str| {
        let named =
            |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(beginning));
        fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(named)
    };
    let shipped = only(at.join("boot"), "vmlinuz-")?;
    let unpacked = shipped.with_file_name(shipped.file_name()?.to_str()?.replacen("vmlinuz-", "vmlinux-", 1));
    let image = if packing == Packing::Unpacked && unpacked.is_file() { unpacked } else { shipped };
    Some((image, only(at.join("lib/modules"), "")?))
}

/// Where a daemon has its store that is not told of one, from a caller's place.
const STATE_STORE: &str = "state/images";

/// Does something with a store where a daemon has it that is not told of one: with the images of another store, whose files are the same
/// ones, all that machines with this one start from, and the templates that earlier tests have made. Those that come to be there are kept
/// for later ones. `None`, and reported: something is missing.
#[expect(clippy::disallowed_methods, reason = "a program of the host")]
pub fn with_kernel<T>(caller: &Caller, images: &str, name: &str, something: impl FnOnce() -> T) -> Option<T> {
    if !Path::new(QEMU).exists() {
        caller.skip("QEMU is not installed (apt-get install qemu-system-x86)");
        return None;
    }
    let Some((image, modules)) = kernel_as(Packing::Unpacked) else {
        caller.skip("there is no kernel for guests (tools/kernel.sh fetches Debian's)");
        return None;
    };
    caller.directory("state");
    let store = text(&caller.place().join(STATE_STORE));
    let linked = std::process::Command::new("/bin/cp").args(["-al", images, &store]).output();
    if !linked.is_ok_and(|ended| ended.status.success()) {
        caller.skip("the store with images of Debian lies on another file system than the tests");
        return None;
    }
    let (image, modules) = (text(&image), text(&modules));
    let words = ["kernel", "add", &image, "--modules", &modules, "--store", &store];
    let ended = caller.blastbox(words).end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let words = ["--store", &store, "--tier", "microvm", "--accept", "emulated-cpu", "--image", name];
    let kept = Kept::of(caller, Path::new(&store), &first_files(caller, &store, &words));
    kept.take();
    let made = something();
    kept.keep();
    Some(made)
}

/// Makes everything that guests of this store start from who are asked for with these words, without starting one. Where their first files
/// are.
fn first_files(caller: &Caller, store: &str, words: &[&str]) -> PathBuf {
    let ended = caller.blastbox(["plan"].iter().chain(words)).start().end_within(PATIENCE);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let kernels = fs::read_dir(Path::new(store).join("kernels")).expect("list kernels");
    let folder = kernels.flatten().map(|entry| entry.path()).find(|path| path.is_dir()).expect("a kernel");
    let first = |path: &PathBuf| path.extension().is_some_and(|end| end == "cpio");
    fs::read_dir(folder).expect("list it").flatten().map(|e| e.path()).find(first).expect("first files")
}

/// A program of the host that images are given.
const PYTHON: &str = "/usr/bin/python3";
const CURL: &str = "/usr/bin/curl";

/// A program of this host, and every library that it is linked with.
fn add_program(caller: &Caller, program: &str, root: &Path) {
    let ended = caller.program(Path::new("/usr/bin/ldd"), [program]).end();
    let libraries = ended.text();
    let files = libraries.split_whitespace().filter(|word| word.starts_with('/')).chain([program]);
    for file in files {
        let to = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(to.parent().expect("a directory")).expect("make a directory");
        fs::copy(file, to).expect("copy a library");
    }
}

/// Modules that lie beside each other, encodings, and what its distribution has not built in; no packages.
fn add_python(caller: &Caller, python: &Path, root: &Path) {
    add_program(caller, &text(python), root);
    fs::rename(root.join(text(python).trim_start_matches('/')), root.join("bin/python3")).expect("name it");
    let version = python.file_name().expect("a name").to_owned();
    let library = Path::new("/usr/lib").join(version);
    for place in ["", "encodings", "lib-dynload"] {
        let to = root.join(text(&library).trim_start_matches('/')).join(place);
        fs::create_dir_all(&to).expect("make a directory");
        let entries = fs::read_dir(library.join(place)).into_iter().flatten().flatten();
        for file in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())) {
            fs::copy(file.path(), to.join(file.file_name())).expect("copy a module");
        }
    }
}

fn add_curl(caller: &Caller, root: &Path) {
    add_program(caller, CURL, root);
    fs::create_dir_all(root.join("etc/ssl/certs")).expect("make a directory");
    fs::write(root.join("etc/ssl/certs/ca-certificates.crt"), "").expect("write a bundle");
    fs::write(root.join("etc/resolv.conf"), "nameserver 192.0.2.1\n").expect("name a resolver");
}
