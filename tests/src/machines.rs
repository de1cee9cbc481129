//! What tests of virtual machines need: QEMU, a kernel, a store with an image that holds little more than a shell.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use crate::{Boxed, Caller, Held, Start, programs};

fn text(path: &Path) -> String {
    crate::text(path).to_owned()
}

/// A boot under emulation on a busy machine, and what is done in it.
pub const PATIENCE: Duration = Duration::from_secs(240);
/// Two machines at once are enough for two processors: more would only make each slower than any bound.
pub static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// As much memory as a guest here needs. Machines of all tests have the same, so that they can be copies of the same templates.
pub const SMALL: [&str; 2] = ["--memory", "256MiB"];
const TOOLS: [&str; 20] = [
    "sh", "cat", "uname", "id", "echo", "sleep", "ls", "touch", "dd", "mount", "insmod", "mkdir", "yes",
    "wc", "date", "head", "hexdump", "nc", "grep", "mkfifo",
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

    /// The same, with more in the image.
    pub fn with(caller: &'a Caller, more: impl FnOnce(&Path)) -> Option<Self> {
        Self::at(caller, "root", "store", more)
    }

    /// The same beside others of this caller.
    pub fn named(caller: &'a Caller, name: &str, more: impl FnOnce(&Path)) -> Option<Self> {
        Self::at(caller, &format!("root-{name}"), &format!("store-{name}"), more)
    }

    fn at(caller: &'a Caller, root: &str, store: &str, more: impl FnOnce(&Path)) -> Option<Self> {
        if !Path::new("/usr/bin/qemu-system-x86_64").exists() {
            caller.skip("QEMU is not installed (apt-get install qemu-system-x86)");
            return None;
        }
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].iter().find_map(|path| fs::read(path).ok());
        let is_static = |bytes: &Vec<u8>| !bytes.windows(9).take(8192).any(|part| part == b"ld-linux-");
        let Some(busybox) = busybox.filter(is_static) else {
            caller.skip("there is no static busybox (apt-get install busybox-static)");
            return None;
        };
        let Some((image, modules)) = kernel() else {
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
        let ended = self.caller.blastbox(self.words(&["plan"], &[], &[])).start().end_within(PATIENCE);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let kernels = fs::read_dir(Path::new(&self.store).join("kernels")).expect("list kernels");
        let folder =
            kernels.flatten().map(|entry| entry.path()).find(|path| path.is_dir()).expect("a kernel");
        let first = |path: &PathBuf| path.extension().is_some_and(|end| end == "cpio");
        fs::read_dir(folder).expect("list it").flatten().map(|e| e.path()).find(first).expect("first files")
    }

    /// A template for machines with these options lies in the store: one that an earlier test has made, or a new one, which later tests
    /// find. For tests of what boxes do that begin as copies; those of how a machine boots do without.
    pub fn template(&self, options: &[&str]) {
        let begun = self.with_templates(|| self.sh(&[&["--timeout", "200s"], options].concat(), "true"));
        assert_eq!(begun.receipt.exit_code, 0, "{:?} {}", begun.receipt.reason, begun.stderr);
    }

    /// Does something with the templates that earlier tests have made, and keeps those that it made for later ones.
    pub fn with_templates<T>(&self, something: impl FnOnce() -> T) -> T {
        self.first_files();
        let image = fs::read_dir(Path::new(&self.store).join("disks")).expect("list disks").flatten().next();
        let kept = programs::built().with_file_name("templates").join(image.expect("a disk").file_name());
        let here = Path::new(&self.store).join("templates");
        take_templates(self.caller, &kept, &here);
        let made = something();
        keep_templates(&here, &kept);
        made
    }

    /// The same of machines with this policy, which are asked for by a command that is given, not yet started.
    pub fn template_by<'s>(&self, policy: &[&str], start: impl FnOnce(&[&str]) -> Start<'s>) {
        let words = self.words(&["run"], &[&["--timeout", "200s"], policy].concat(), &["sh", "-c", "true"]);
        let begun = self.with_templates(|| start(&words).start().end_within(PATIENCE));
        assert_eq!(begun.code, 0, "{}", begun.err);
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

/// Templates that are kept of one image, those that were made last: what they are bound to changes with the programs under test.
const KEPT: usize = 6;

fn templates_in(folder: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    list.filter(|path| path.extension().is_some_and(|end| end == "template")).collect()
}

/// Each is bound to everything that a machine of it relies on, and checked by whoever reads it: it may lie in any store.
fn take_templates(caller: &Caller, kept: &Path, store: &Path) {
    if !store.exists() {
        fs::create_dir(store).expect("make a directory");
        caller.own(store);
    }
    for path in templates_in(kept) {
        let to = store.join(path.file_name().expect("a name"));
        // Whoever keeps them may throw one away meanwhile.
        if !to.exists() && fs::hard_link(&path, &to).is_err() && fs::copy(&path, &to).is_ok() {
            caller.own(&to);
        }
    }
}

/// As files of whoever runs the tests that every caller may read: nothing of anybody is in them.
fn keep_templates(store: &Path, kept: &Path) {
    for path in templates_in(store) {
        let (name, number) = (path.file_name().expect("a name"), crate::place::number());
        if kept.join(name).exists() || fs::create_dir_all(kept).is_err() {
            continue;
        }
        let draft = kept.join(format!("{}-{number}.draft", std::process::id()));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        let copied = fs::copy(&path, &draft).and_then(|_| fs::set_permissions(&draft, mode));
        if copied.and_then(|()| fs::rename(&draft, kept.join(name))).is_err() {
            fs::remove_file(draft).ok();
        }
    }
    let made = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).ok();
    let mut all: Vec<_> = templates_in(kept).into_iter().map(|path| (made(&path), path)).collect();
    all.sort();
    for (_, path) in all.iter().take(all.len().saturating_sub(KEPT)) {
        fs::remove_file(path).ok();
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

/// The kernel that `tools/kernel.sh` has fetched, and its modules.
pub fn kernel() -> Option<(PathBuf, PathBuf)> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kernel");
    let at = std::env::var_os("BLASTBOX_KERNEL").map_or_else(usual, PathBuf::from);
    let only = |folder: PathBuf, beginning: &str| {
        let named =
            |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(beginning));
        fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(named)
    };
    Some((only(at.join("boot"), "vmlinuz-")?, only(at.join("lib/modules"), "")?))
}

/// A store with the images of another one, whose files are the same ones, and with all that machines with this one start from; `None`, and
/// reported: something is missing.
#[expect(clippy::disallowed_methods, reason = "a program of the host")]
pub fn with_kernel(caller: &Caller, images: &str, name: &str) -> Option<String> {
    if !Path::new("/usr/bin/qemu-system-x86_64").exists() {
        caller.skip("QEMU is not installed (apt-get install qemu-system-x86)");
        return None;
    }
    let Some((image, modules)) = kernel() else {
        caller.skip("there is no kernel for guests (tools/kernel.sh fetches Debian's)");
        return None;
    };
    let store = text(&caller.place().join("store"));
    let linked = std::process::Command::new("/bin/cp").args(["-al", images, &store]).output();
    if !linked.is_ok_and(|ended| ended.status.success()) {
        caller.skip("the store with images of Debian lies on another file system than the tests");
        return None;
    }
    let (image, modules) = (text(&image), text(&modules));
    let words = ["kernel", "add", &image, "--modules", &modules, "--store", &store];
    let ended = caller.blastbox(words).end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    // By whoever may write there: a daemon reads a store that is not in its state directory.
    let words = ["plan", "--store", &store, "--tier", "microvm", "--accept", "emulated-cpu", "--image", name];
    let ended = caller.blastbox(words).start().end_within(PATIENCE);
    assert_eq!(ended.code, 0, "{}", ended.err);
    Some(store)
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
