//! The guests: how each kind is begun, kept ready, run once, and how its end is told.

pub(crate) mod js;
mod module;
pub(crate) mod python;
#[cfg(feature = "compiler")]
mod spoiled;

use std::sync::{Arc, Mutex, PoisonError};

use blastbox_wire::agent::Exit;
use wasmtime::{
    Engine, Instance, Linker, Memory, Store, Trap, TypedFunc, UpdateDeadline, WasmParams, WasmResults,
};

use self::python::Image;
use crate::bench::Job;
use crate::budget::Budget;
use crate::chance::Chance;
use crate::clock::Clock;
use crate::engine::{self, Parts};
use crate::files::{Hold, ROOT, Tree, Trouble};
use crate::manifest::Kind;
use crate::ready::Ready;
use crate::shelf::{Code, Loaded, MODULE};
use crate::streams::{Streams, Told};
use crate::tools;
use crate::wasi::{Descriptor, Descriptors, Exited, Guest, Host, Limiter};

/// Python's library, as it is called on the shelf and in the box.
pub(crate) const LIBRARY: &str = "python315.zip";
/// Where Python looks for it.
const LIBRARY_PLACE: &[u8] = b"/usr/local/lib";
/// Directories that every box has.
const PLACES: [&[u8]; 3] = [b"/home/user", b"/tmp", b"/workspace"];
/// Where programs lie that are installed: a guest of the shelf is named there, too, as `/usr/bin/python3` is.
const INSTALLED: [&[u8]; 3] = [b"/bin", b"/usr/bin", b"/usr/local/bin"];
/// Guests that held no more than this are cleared away after their end has been told.
const SMALL: u64 = 64 << 20;
/// Longest program that is given as text.
const MOST_SOURCE: usize = 16 << 20;

/// How a shell tells of a program that is there and cannot be run.
const UNUSABLE: Exit = Exit::Code(126);

const SIGILL: u8 = 4;
const SIGABRT: u8 = 6;
const SIGFPE: u8 = 8;
const SIGKILL: u8 = 9;
const SIGSEGV: u8 = 11;

/// What every guest shares.
pub(crate) struct Room {
    pub(crate) engine: Engine,
    pub(crate) budget: Budget,
    pub(crate) tree: Arc<Mutex<Tree>>,
    pub(crate) open_files: u32,
    pub(crate) deterministic: bool,
    pub(crate) fuel: Option<u64>,
    pub(crate) http: bool,
    pub(crate) ready: Arc<Ready>,
}

/// One guest, begun and not yet run.
pub(crate) struct Seat {
    store: Store<Guest>,
    instance: Instance,
    warm: bool,
    /// What its command may do, where that is counted.
    fuel: Option<u64>,
}

/// What a command took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    /// The most memory that it held.
    pub(crate) peak_bytes: u64,
    /// Its work, where it is counted.
    pub(crate) fuel: Option<u64>,
}

/// How a guest ended when it did not end by itself.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) exit: Exit,
    /// What its standard error says about it.
    why: Option<String>,
}

#[cfg(feature = "compiler")]
impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.exit, self.why.as_deref().unwrap_or("no word of it"))
    }
}

/// What guests of this kind call beside WASI.
pub(crate) fn link(linker: &mut Linker<Guest>, kind: Kind) -> wasmtime::Result<()> {
    match kind {
        Kind::Python | Kind::PythonData => python::link(linker),
        Kind::Js => js::link(linker),
        Kind::Module => module::link(linker),
        // What a component calls is no function of a module's.
        Kind::Component => Ok(()),
    }
}

/// Makes the directories of the box, and shows what its guests need.
pub(crate) fn furnish(tree: &mut Tree, guests: &[Arc<Loaded>]) -> Result<(), Trouble> {
    for place in PLACES {
        tree.make_all(place)?;
        tree.fix(place, Hold::Fixed)?;
    }
    if let Some(library) = guests.iter().find_map(|guest| guest.library.clone()) {
        let at = tree.make_all(LIBRARY_PLACE)?;
        tree.show(at, LIBRARY.as_bytes(), library)?;
        // A guest could put another library there, and whoever runs next would import it.
        tree.fix(LIBRARY_PLACE, Hold::Closed)?;
    }
    Ok(())
}

/// The guest that a program's name stands for, with the names that people use. A file is none but the caller's own, which goes by its
/// last name: whoever says `./js` or `x.wasm` means what lies there, and must not get a guest of the shelf that is called like it.
pub(crate) fn name_of(program: &[u8]) -> &[u8] {
    let (directory, name) = match program.iter().rposition(|byte| *byte == b'/') {
        Some(cut) => {
            let (directory, name) = program.split_at(cut);
            (Some(directory), name.get(1..).unwrap_or_default())
        }
        None => (None, program),
    };
    let is_installed = directory.is_none_or(|directory| INSTALLED.contains(&directory));
    match name {
        name if name.ends_with(MODULE.as_bytes()) => name,
        // With its slashes it is nobody's name.
        _ if !is_installed => program,
        b"python3" => b"python",
        b"node" | b"nodejs" | b"qjs" => b"js",
        name => name,
    }
}

/// Whether the next guest of this kind is begun before it is asked for.
pub(crate) fn is_worth_keeping(kind: Kind) -> bool {
    match kind {
        Kind::Python | Kind::PythonData | Kind::Js => true,
        Kind::Module | Kind::Component => false,
    }
}

/// What a guest begins in, with its limits.
pub(crate) fn store(
    room: &Room,
    guest: &Loaded,
    parts: Parts,
    streams: Option<Arc<Streams>>,
) -> Result<Store<Guest>, Broken> {
    let mut descriptors = Descriptors::new(room.open_files, Arc::clone(&room.tree));
    // The first one is 3, where guests begin to look.
    room.tree.lock().unwrap_or_else(PoisonError::into_inner).hold(ROOT);
    descriptors
        .keep(Descriptor::Directory { ino: ROOT, given: Some(b"/".to_vec()) })
        .map_err(|_| Broken { exit: Exit::Signal(SIGKILL), why: None })?;
    let host = Host {
        arguments: Vec::new(),
        environment: Vec::new(),
        about: String::new(),
        turns: false,
        timed: false,
        metered: room.fuel.is_some(),
        // Offered to a command, and not to code that runs before there is one.
        tools: false,
        http: false,
        descriptors,
        #[cfg(feature = "components")]
        handles: crate::component::Handles::new(room.open_files, Arc::clone(&room.tree)),
        #[cfg(feature = "components")]
        directory: Vec::new(),
        tree: Arc::clone(&room.tree),
        streams: streams.clone(),
        clock: Clock::new(room.deterministic),
        chance: Chance::new(room.deterministic),
    };
    let limiter = Limiter::new(room.budget.clone(), Arc::downgrade(&room.ready), guest.shared, parts);
    let mut store = Store::new(&room.engine, Guest { memory: None, limiter, host });
    store.limiter(|guest| &mut guest.limiter);
    // The epoch moves only when somebody is told to end; whoever was not goes on.
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|context| {
        match context.data().host.streams.as_ref().and_then(|streams| streams.told()) {
            Some(signal) => Err(wasmtime::Error::new(Told(signal))),
            None => Ok(UpdateDeadline::Continue(1)),
        }
    });
    if let Some(fuel) = room.fuel {
        // What an interpreter does before there is a command is nobody's work. A module has a command from its first instruction on.
        let fuel = if matches!(guest.kind, Kind::Module | Kind::Component) { fuel } else { u64::MAX };
        store.set_fuel(fuel).map_err(|error| stuck(&error.to_string()))?;
    }
    // Who was told before the deadline was set hears of no epoch any more; who is told from here on does.
    if let Some(signal) = streams.and_then(|streams| streams.told()) {
        return Err(told(signal));
    }
    Ok(store)
}

/// Begins a guest. A module may have code that runs already now: with the streams of its command it can be told to end.
pub(crate) fn seat(room: &Room, guest: &Loaded, streams: Option<Arc<Streams>>) -> Result<Seat, Broken> {
    let mut store = store(room, guest, engine::MODULE, streams)?;
    let begun = match &guest.code {
        Code::Module(ready) => ready.instantiate(&mut store),
        #[cfg(feature = "components")]
        Code::Component(_) => return Err(stuck("a component has no seat")),
    };
    let instance = match begun {
        Ok(instance) => instance,
        Err(error) => return Err(broken(&store, &error)),
    };
    store.data_mut().memory = instance.get_memory(&mut store, "memory");
    if let Some(memory) = store.data().memory {
        // Before anything of it is read.
        guest.writes.own(memory.data_mut(&mut store));
    }
    Ok(Seat { store, instance, warm: false, fuel: None })
}

/// Takes a guest as far as it can go without its command.
pub(crate) fn warm_up(mut seat: Seat, guest: &Loaded) -> Result<Seat, Broken> {
    match guest.kind {
        Kind::Python => python::warm_up(&mut seat, Image::Bare)?,
        Kind::PythonData => python::warm_up(&mut seat, Image::Data)?,
        Kind::Js => js::warm_up(&mut seat)?,
        Kind::Module | Kind::Component => {}
    }
    seat.warm = true;
    Ok(seat)
}

/// Runs a command to its end. Returns how it ended, what it took, and what is left of it: to be dropped when
/// its end has been told, because that takes as long as a small program. What held much is gone before.
pub(crate) fn run(room: &Room, job: Job, ready: Option<Seat>) -> (Exit, Used, Option<Seat>) {
    let Job { spec, guest, streams } = job;
    #[cfg(feature = "components")]
    if let Ok(guest) = &guest
        && let Code::Component(component) = &guest.code
    {
        let (ended, used) = crate::component::run(room, guest, component, spec, Arc::clone(&streams));
        return (tell(ended, &streams), used, None);
    }
    let seated =
        guest.map_err(|why| Broken { exit: UNUSABLE, why: Some(why.to_string()) }).and_then(|guest| {
            let seat = match ready {
                Some(seat) => seat,
                None => seat(room, &guest, Some(Arc::clone(&streams)))?,
            };
            Ok((seat, guest.kind))
        });
    let (ended, used, left) = match seated {
        Ok((mut seat, kind)) => {
            seat.store.data_mut().host.streams = Some(Arc::clone(&streams));
            seat.fuel = room.fuel;
            seat.store.data_mut().host.tools = tools::offered(&spec.environment);
            seat.store.data_mut().host.http = room.http;
            let ended = match kind {
                Kind::Python => python::run(&mut seat, spec, Image::Bare),
                Kind::PythonData => python::run(&mut seat, spec, Image::Data),
                Kind::Js => js::run(&mut seat, spec),
                Kind::Module | Kind::Component => module::run(&mut seat, spec),
            };
            let used = Used { peak_bytes: seat.store.data().limiter.peak(), fuel: seat.burnt() };
            (ended, used, Some(seat).filter(|_| used.peak_bytes <= SMALL))
        }
        // A module may have done all its work before it was there.
        Err(broken) => {
            let fuel = room.fuel.filter(|_| broken.exit == Exit::FuelSpent);
            (Err(broken), Used { peak_bytes: 0, fuel }, None)
        }
    };
    (tell(ended, &streams), used, left)
}

/// How a command ended; why, where it did not end by itself, goes to its standard error.
fn tell(ended: Result<u8, Broken>, streams: &Streams) -> Exit {
    match ended {
        Ok(code) => Exit::Code(code),
        Err(Broken { exit, why }) => {
            if let Some(why) = why {
                // Nobody hears it who was told to end meanwhile.
                streams.write(2, format!("blastbox-wasm: {why}\n").as_bytes()).ok();
            }
            exit
        }
    }
}

impl Seat {
    /// Takes a guest that was begun when its command was there as far as one that waited, so that the command cannot tell.
    fn warm_unheard(&mut self, warm_up: impl FnOnce(&mut Self) -> Result<(), Broken>) -> Result<(), Broken> {
        if !self.warm {
            let streams = self.store.data_mut().host.streams.take();
            warm_up(self)?;
            self.store.data_mut().host.streams = streams;
        }
        // An epoch that went meanwhile was not heard, nor one that went while this guest waited for a command that was told already. Whoever
        // is told from here on is told before the epoch goes, which is heard.
        let told_meanwhile = self.streams().and_then(|streams| streams.told());
        told_meanwhile.map_or(Ok(()), |signal| Err(told(signal)))
    }

    /// The command begins: from here on it is its work that is counted.
    fn fill(&mut self) -> Result<(), Broken> {
        match self.fuel {
            Some(fuel) => self.store.set_fuel(fuel).map_err(|error| stuck(&error.to_string())),
            None => Ok(()),
        }
    }

    /// What the command has done of it.
    fn burnt(&self) -> Option<u64> {
        // One that never began has more in it than it was given.
        Some(self.fuel?.saturating_sub(self.store.get_fuel().ok()?))
    }

    /// All of its memory.
    #[cfg(feature = "compiler")]
    pub(crate) fn bytes(&self) -> Result<&[u8], Broken> {
        Ok(self.memory()?.data(&self.store))
    }

    /// Who hears it from now on.
    #[cfg(feature = "compiler")]
    pub(crate) fn hear(&mut self, streams: Option<Arc<Streams>>) {
        self.store.data_mut().host.streams = streams;
    }

    fn memory(&self) -> Result<Memory, Broken> {
        self.store.data().memory.ok_or_else(|| stuck("it has no memory"))
    }

    fn streams(&self) -> Option<Arc<Streams>> {
        self.store.data().host.streams.clone()
    }

    fn function<P: WasmParams, R: WasmResults>(&mut self, name: &str) -> Result<TypedFunc<P, R>, Broken> {
        let found = self.instance.get_typed_func(&mut self.store, name);
        found.map_err(|_| stuck(&format!("it has no function {name} of the form that is called")))
    }

    fn call<P: WasmParams, R: WasmResults>(&mut self, name: &str, with: P) -> Result<R, Broken> {
        let function = self.function::<P, R>(name)?;
        match function.call(&mut self.store, with) {
            Ok(result) => Ok(result),
            Err(error) => Err(broken(&self.store, &error)),
        }
    }

    /// Puts bytes where the guest's own allocator says, with a zero behind them.
    fn put(&mut self, allocator: &str, bytes: &[u8]) -> Result<(u32, u32), Broken> {
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length < u32::MAX);
        let length = length.ok_or_else(|| stuck("its program is too long"))?;
        let at: u32 = self.call(allocator, length.saturating_add(1))?;
        if at == 0 {
            return Err(stuck("it has no memory left for its program"));
        }
        let memory = self.memory()?;
        let (start, size) = (usize::try_from(at).unwrap_or(usize::MAX), bytes.len());
        let room = memory.data_mut(&mut self.store).get_mut(start..).and_then(|rest| rest.get_mut(..=size));
        let (end, text) =
            room.and_then(<[u8]>::split_last_mut).ok_or_else(|| stuck("its allocator is broken"))?;
        text.copy_from_slice(bytes);
        *end = 0;
        Ok((at, length))
    }

    /// All of standard input: a program.
    fn read_source(&mut self) -> Result<Vec<u8>, Broken> {
        let Some(streams) = self.streams() else { return Ok(Vec::new()) };
        let mut source = Vec::new();
        let mut piece = [0; 16 * 1024];
        loop {
            let got = streams.read(&mut piece).map_err(|Told(signal)| told(signal))?;
            if got == 0 {
                return Ok(source);
            }
            source.extend_from_slice(piece.get(..got).unwrap_or_default());
            if source.len() > MOST_SOURCE {
                return Err(stuck("its program is longer than 16 MiB"));
            }
        }
    }

    /// The next line of standard input, without its end; `None`: there is none.
    fn read_line(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let Some(streams) = self.streams() else { return Ok(None) };
        let line = streams.read_line(MOST_SOURCE).map_err(|Told(signal)| told(signal))?;
        match line {
            Some(line) if line.len() > MOST_SOURCE => Err(stuck("a line of it is longer than 16 MiB")),
            line => Ok(line),
        }
    }

    /// A program that lies among the files.
    fn read_file(&self, directory: &[u8], path: &[u8]) -> Result<Vec<u8>, Broken> {
        let tree = self.store.data().host.tree();
        let read = || {
            let ino = tree.find(tree.find(ROOT, directory)?, path)?;
            let size = tree.facts(ino)?.size;
            let length =
                usize::try_from(size).ok().filter(|size| *size <= MOST_SOURCE).ok_or(Trouble::TooLarge)?;
            let mut source = vec![0; length];
            let got = tree.read(ino, 0, &mut source)?;
            source.truncate(got);
            Ok(source)
        };
        read().map_err(|trouble: Trouble| Broken {
            exit: Exit::Code(2),
            why: Some(format!("cannot open {:?}: {trouble:?}", String::from_utf8_lossy(path))),
        })
    }
}

/// Bytes of the guest's memory, if they are its own.
fn piece(data: &[u8], at: u32, length: u32) -> Option<&[u8]> {
    let (start, length) = (usize::try_from(at).ok()?, usize::try_from(length).ok()?);
    data.get(start..)?.get(..length)
}

fn told(signal: u8) -> Broken {
    Broken { exit: Exit::Signal(signal), why: None }
}

fn stuck(why: &str) -> Broken {
    Broken { exit: Exit::Signal(SIGABRT), why: Some(format!("the guest cannot go on: {why}")) }
}

/// What an error of the engine means. Like a process, a guest that does what it may not ends by a signal.
pub(crate) fn broken(store: &Store<Guest>, error: &wasmtime::Error) -> Broken {
    if let Some(Exited(code)) = error.downcast_ref() {
        let code = u8::try_from(code & 0xff).unwrap_or(u8::MAX);
        return Broken { exit: Exit::Code(code), why: None };
    }
    if let Some(Told(signal)) = error.downcast_ref() {
        return told(*signal);
    }
    let Some(trap) = error.downcast_ref::<Trap>() else {
        let refused = store.data().limiter.refused();
        let why = if refused { "there is not enough memory for it" } else { "it cannot go on" };
        return Broken {
            exit: Exit::Signal(SIGKILL),
            why: Some(format!("the guest was ended: {why}: {error}")),
        };
    };
    if *trap == Trap::OutOfFuel {
        let why = Some("the guest was ended: it has done all the work that it may".to_owned());
        return Broken { exit: Exit::FuelSpent, why };
    }
    let signal = match trap {
        Trap::StackOverflow | Trap::MemoryOutOfBounds | Trap::HeapMisaligned | Trap::TableOutOfBounds => {
            SIGSEGV
        }
        Trap::IntegerOverflow | Trap::IntegerDivisionByZero | Trap::BadConversionToInteger => SIGFPE,
        Trap::UnreachableCodeReached => SIGABRT,
        Trap::Interrupt => SIGKILL,
        _ => SIGILL,
    };
    let memory = if store.data().limiter.refused() { " (it was refused memory before)" } else { "" };
    Broken { exit: Exit::Signal(signal), why: Some(format!("the guest was ended: {trap}{memory}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_of_the_shelf_is_named_as_a_program_is_that_is_installed() {
        for program in ["python", "python3", "/usr/bin/python3", "/bin/python", "/usr/local/bin/python3"] {
            assert_eq!(name_of(program.as_bytes()), b"python", "{program}");
        }
        assert_eq!((name_of(b"node"), name_of(b"x")), (&b"js"[..], &b"x"[..]));
    }

    #[test]
    fn a_file_is_never_taken_for_a_guest_of_the_shelf() {
        for program in ["./js", "./x", "/home/user/python", "bin/js", "/usr/bin/../js", "/js", "/usr/bin/js/"]
        {
            let name = name_of(program.as_bytes());
            assert!(name.is_empty() || name.contains(&b'/'), "{program}");
        }
        // Only what the caller brought has such a name.
        for program in ["js.wasm", "./js.wasm", "/home/user/js.wasm", "/usr/bin/js.wasm"] {
            assert_eq!(name_of(program.as_bytes()), b"js.wasm", "{program}");
        }
    }

    #[cfg(feature = "compiler")]
    mod told_in_time {
        use std::sync::mpsc;
        use std::time::Duration;

        use blastbox_wire::agent::{ExecSpec, Io, User};
        use wasmtime::Module;

        use super::super::*;
        use crate::engine::{Metering, Purpose};
        use crate::files::Caps;
        use crate::pages::Pages;
        use crate::voice::Voice;
        use crate::wasi;

        /// What is called of a Python: one whose allocator always says 1024, and whose turns never end.
        const ENDLESS: &[u8] = b"\0asm\x01\0\0\0\
            \x01\x0c\x02\x60\x01\x7f\x01\x7f\x60\x02\x7f\x7f\x01\x7f\
            \x03\x03\x02\x00\x01\
            \x05\x03\x01\x00\x01\
            \x07\x1e\x03\x06memory\x02\x00\x0ahost_alloc\x00\x00\x04turn\x00\x01\
            \x0a\x10\x02\x05\x00\x41\x80\x08\x0b\x08\x00\x03\x40\x0c\x00\x0b\x00\x0b";

        fn room() -> (Room, Arc<Loaded>) {
            let engine = engine::engine(Purpose::Compile, Metering::None).unwrap();
            let mut linker = Linker::new(&engine);
            wasi::link(&mut linker).unwrap();
            let code = Code::Module(linker.instantiate_pre(&Module::new(&engine, ENDLESS).unwrap()).unwrap());
            let (name, kind, writes) = ("python".to_owned(), Kind::Python, Pages::default());
            let guest = Arc::new(Loaded { name, kind, code, library: None, shared: 0, writes });
            let budget = Budget::new(1 << 24);
            let caps = Caps { bytes: 1000, entries: 8, file: 1000 };
            let tree = Arc::new(Mutex::new(Tree::new(caps, budget.clone())));
            let (deterministic, fuel, http, ready) = (false, None, false, Arc::default());
            (Room { engine, budget, tree, open_files: 8, deterministic, fuel, http, ready }, guest)
        }

        /// A guest that waits for its command.
        fn waiting(room: &Room, guest: &Loaded) -> Seat {
            Seat { warm: true, ..seat(room, guest, None).unwrap() }
        }

        #[test]
        fn a_command_that_was_told_to_end_ends_whenever_its_guest_was_begun() {
            type Begin = fn(&Room, &Loaded, &dyn Fn()) -> Seat;
            let began: [Begin; 3] = [
                // Told while it was queued: the guest hears of no epoch that went before it was.
                |room, guest, tell| {
                    tell();
                    waiting(room, guest)
                },
                // Told while the guest rehearsed, which nobody hears.
                |room, guest, tell| {
                    let mut seat = waiting(room, guest);
                    tell();
                    seat.call::<u32, u32>("host_alloc", 1).unwrap();
                    seat
                },
                // Told when the guest waited.
                |room, guest, tell| {
                    let seat = waiting(room, guest);
                    tell();
                    seat
                },
            ];
            for (number, begin) in began.into_iter().enumerate() {
                let (room, guest) = room();
                let streams = Arc::new(Streams::new(0, false, Voice::unheard().unwrap()));
                let seat = begin(&room, &guest, &|| {
                    streams.tell(15);
                    room.engine.increment_epoch();
                });
                let spec = ExecSpec {
                    exec: 1,
                    arguments: vec![b"python".to_vec(), b"-c".to_vec(), b"1".to_vec()],
                    environment: Vec::new(),
                    directory: b"/".to_vec(),
                    user: User::Payload,
                    io: Io::Pipes,
                    window: 0,
                };
                let job = Job { spec, guest: Ok(guest), streams };
                let (to, ended) = mpsc::channel();
                std::thread::spawn(move || to.send(run(&room, job, Some(seat)).0).unwrap());
                let exit = ended.recv_timeout(Duration::from_secs(20));
                assert_eq!(exit, Ok(Exit::Signal(15)), "{number}");
            }
        }
    }
}
