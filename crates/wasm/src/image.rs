//! The memory of an interpreter that has begun, as what its guests begin with: whatever it does only the first time is done.
//!
//! The interpreter is run as a worker runs it, from machine code that was just made, with clocks that count and chance from a fixed
//! seed, so that the same image comes out again. Whoever begins from it must sow its random numbers anew.
//!
//! Trust: the interpreter and its packages are held against a hash by whoever calls; as in a worker, they have no system call.

mod artefact;
mod written;

use std::path::Path;
use std::sync::{Arc, Mutex};

use blastbox_wire::agent::{ExecSpec, Exit, Io, User};

use crate::bench::Job;
use crate::budget::Budget;
use crate::engine::{self, Metering, Purpose};
use crate::files::{Caps, Tree};
use crate::guests::{self, Room, Seat, js, python};
use crate::manifest::{Begins, Hash, Kind};
use crate::pages::Pages;
use crate::shelf::{self, Loaded, Placed, Whose};
use crate::streams::Streams;
use crate::voice::Voice;

pub use artefact::Unfit;

/// Memory that an interpreter may take until then.
const MEMORY: u64 = 1 << 30;
/// What it may say until then: it must fit.
const WINDOW: u32 = 128 * 1024;
/// What is told of an interpreter's complaint.
const MOST_SAID: usize = 2000;

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The interpreter cannot be run.
    #[error("the guest cannot be run: {0}")]
    Guest(String),
    /// What is done before the image is taken failed.
    #[error("what an image is taken after did not come to its end (code {code}): {said}")]
    Preparation {
        /// What the turn ended with.
        code: u8,
        /// The end of what it said.
        said: String,
    },
    /// The code cannot carry another memory.
    #[error("the machine code cannot carry an image: {0}")]
    Code(#[from] Unfit),
    /// A guest that begins from the image has another memory.
    #[error("a guest that begins does not have the memory of its image: {0} pages differ")]
    NotTheSame(usize),
    /// A guest that begins has another table than the one before.
    #[error("a guest that begins has another table than the one before it")]
    OtherTable,
}

/// What an image is known by: what it was taken from, a module or another image, and all that was done in it.
#[must_use]
pub fn origin(kind: Kind, from: Hash) -> Hash {
    let done: &[&[u8]] = match kind {
        Kind::Python => &python::begin::DONE,
        Kind::PythonData => &[python::begin::PACKAGES],
        Kind::Js => &js::begin::DONE,
        Kind::Module | Kind::Component => &[],
    };
    let done = done.iter().map(|text| Hash::of(text).to_string()).collect::<String>();
    Hash::of(format!("{from} {done}").as_bytes())
}

/// Takes the image of a guest of this kind: of one that lies there bare, or, of a Python with packages, of a Python with an image.
///
/// # Errors
/// When it cannot be run, or does not do what it is told.
pub fn take(shelf: &Path, name: &str, kind: Kind, metering: Metering) -> Result<Vec<u8>, ImageError> {
    let (guest, room) = open(shelf, name, metering)?;
    let mut seat = guests::seat(&room, &guest, None).map_err(broken)?;
    match kind {
        Kind::Python => python::begin::turns().iter().try_for_each(|turn| do_turn(&mut seat, turn))?,
        Kind::PythonData => do_turn(&mut seat, python::begin::PACKAGES)?,
        Kind::Js => js::begin::begin(&mut seat).map_err(broken)?,
        Kind::Module | Kind::Component => {}
    }
    Ok(seat.bytes().map_err(broken)?.to_vec())
}

/// The same machine code with this memory to begin with.
///
/// # Errors
/// When it cannot carry another one.
pub fn put(code: &[u8], image: &[u8]) -> Result<Vec<u8>, ImageError> {
    Ok(artefact::with_memory(code, image)?)
}

/// Holds the guest that was made of an image against it: one that begins has its memory.
///
/// # Errors
/// When it does not.
pub fn prove(shelf: &Path, name: &str, metering: Metering, image: &[u8]) -> Result<(), ImageError> {
    let (guest, room) = open(shelf, name, metering)?;
    let seat = guests::seat(&room, &guest, None).map_err(broken)?;
    match artefact::differing(seat.bytes().map_err(broken)?, image) {
        0 => Ok(()),
        pages => Err(ImageError::NotTheSame(pages)),
    }
}

/// Finds out which pages the first command of a guest writes to, its rehearsal included.
///
/// # Errors
/// When it cannot be run.
pub fn writes(shelf: &Path, name: &str, metering: Metering) -> Result<Pages, ImageError> {
    let (guest, room) = open(shelf, name, metering)?;
    let seat = guests::seat(&room, &guest, None).map_err(broken)?;
    let seat = guests::warm_up(seat, &guest).map_err(broken)?;
    let (flag, code) = match guest.kind {
        Kind::Python | Kind::PythonData => ("-c", "print(1)"),
        Kind::Js => ("-e", "console.log(1)"),
        Kind::Module | Kind::Component => return Ok(Pages::default()),
    };
    let spec = ExecSpec {
        exec: 0,
        arguments: [name, flag, code].map(|word| word.as_bytes().to_vec()).to_vec(),
        environment: vec![b"HOME=/home/user".to_vec()],
        directory: b"/workspace".to_vec(),
        user: User::Payload,
        io: Io::Pipes,
        window: WINDOW,
    };
    let streams = unheard()?;
    let job = Job { spec, guest: Ok(Arc::clone(&guest)), streams: Arc::clone(&streams) };
    match guests::run(&room, job, Some(seat)) {
        (Exit::Code(0), _, Some(seat)) => Ok(Pages::of(&written::written(seat.bytes().map_err(broken)?))),
        (Exit::Code(code), ..) => Err(ImageError::Preparation { code, said: said(&streams) }),
        (exit, ..) => Err(ImageError::Guest(format!("{exit:?}: {}", said(&streams)))),
    }
}

/// What was found in the places that guests follow one another in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Followed {
    /// Pages that guests changed.
    pub written: usize,
    /// Pages that became a guest's own only when it wrote to them.
    pub late: usize,
}

/// Holds guests against each other that follow one another in the same places: each begins with the memory that the first began
/// with, and its table, whatever the last one wrote: each has filled its memory, which it had grown, and emptied its table.
///
/// # Errors
/// When one does not.
pub fn follow(shelf: &Path, name: &str, metering: Metering) -> Result<Followed, ImageError> {
    let (guest, room) = open(shelf, name, metering)?;
    let begin = || guests::seat(&room, &guest, None).map_err(broken);
    let mut first = begin()?;
    let entries = first.empty_entries();
    let wanted = first.bytes().map_err(broken)?.to_vec();
    drop(first);
    let own = |seat: &Seat| Ok::<_, ImageError>(written::written(seat.bytes().map_err(broken)?).len());
    let mut found = Followed::default();
    for _ in 0..2 * engine::SLOTS {
        let mut seat = begin()?;
        if seat.empty_entries() != entries {
            return Err(ImageError::OtherTable);
        }
        let pages = artefact::differing(seat.bytes().map_err(broken)?, &wanted);
        if pages > 0 {
            return Err(ImageError::NotTheSame(pages));
        }
        let before = own(&seat)?;
        let mut used = guests::warm_up(seat, &guest).map_err(broken)?;
        found.written += artefact::differing(used.bytes().map_err(broken)?, &wanted);
        found.late += own(&used)?.saturating_sub(before);
        used.spoil().map_err(broken)?;
    }
    Ok(found)
}

/// One guest of a shelf, and a room in which everything is the same every time.
fn open(shelf: &Path, name: &str, metering: Metering) -> Result<(Arc<Loaded>, Room), ImageError> {
    let unusable = |why: String| ImageError::Guest(why);
    let engine = engine::engine(Purpose::Run, metering).map_err(|error| unusable(error.to_string()))?;
    let names = [Placed { directory: shelf.to_owned(), name: name.to_owned(), whose: Whose::Shelf }];
    let found = shelf::load_all((&engine, metering), &names, |_, _: Begins| true)
        .map_err(|error| unusable(error.to_string()))?;
    if let Some((_, why)) = found.unusable.first() {
        return Err(unusable(why.to_string()));
    }
    let guest = found.guests.first().cloned().ok_or_else(|| unusable("it is not there".to_owned()))?;
    let budget = Budget::new(MEMORY);
    let mut tree = Tree::new(Caps { bytes: MEMORY, entries: 4096, file: MEMORY }, budget.clone());
    tree.stop_time(crate::clock::BEGINNING);
    guests::furnish(&mut tree, &found.guests)
        .map_err(|trouble| unusable(format!("no files: {trouble:?}")))?;
    let tree = Arc::new(Mutex::new(tree));
    let room = Room {
        engine,
        budget,
        tree,
        open_files: 64,
        deterministic: true,
        fuel: (metering == Metering::Fuel).then_some(u64::MAX),
        http: false,
        ready: Arc::default(),
    };
    Ok((guest, room))
}

/// One turn, which must come to its end.
fn do_turn(seat: &mut Seat, source: &[u8]) -> Result<(), ImageError> {
    let streams = unheard()?;
    seat.hear(Some(Arc::clone(&streams)));
    let code = python::turn(seat, source).map_err(broken)?;
    seat.hear(None);
    if code == 0 {
        return Ok(());
    }
    Err(ImageError::Preparation { code, said: said(&streams) })
}

/// Streams that nobody carries before all is over.
fn unheard() -> Result<Arc<Streams>, ImageError> {
    let voice = Voice::unheard().map_err(|error| ImageError::Guest(error.to_string()))?;
    Ok(Arc::new(Streams::new(WINDOW, false, voice)))
}

/// The end of what was said.
fn said(streams: &Streams) -> String {
    let said: Vec<u8> = streams.carry().output.into_iter().flat_map(|(_, bytes)| bytes).collect();
    let said = said.get(said.len().saturating_sub(MOST_SAID)..).unwrap_or_default();
    String::from_utf8_lossy(said).into_owned()
}

fn broken(why: guests::Broken) -> ImageError {
    ImageError::Guest(why.to_string())
}
