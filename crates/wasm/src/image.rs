//! The memory of a Python that has imported its packages, as a module of its own: what the guest `python-data` begins from.
//!
//! The interpreter is run as a worker runs it, from machine code that lies on the shelf, with clocks that count and chance from a
//! fixed seed, so that the same image comes out again. Whoever begins from it must sow its random numbers anew.
//!
//! Trust: the interpreter and its packages are held against a hash by whoever calls; as in a worker, they have no system call.

mod rewrite;

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::budget::Budget;
use crate::engine::{self, Metering, Purpose};
use crate::files::{Caps, Tree};
use crate::guests::{self, Room, Seat, python};
use crate::manifest::Hash;
use crate::shelf::{self, Loaded};
use crate::streams::Streams;
use crate::voice::Voice;

pub use rewrite::Unfit;

/// What is done before the image is taken.
const PREPARATION: &[u8] = include_bytes!("guests/python/data.py");
/// Memory that the interpreter may take for it.
const MEMORY: u64 = 1 << 30;
/// The guest that is asked, and whose module is given.
const FROM: &str = "python";
/// What is told of an interpreter's complaint.
const MOST_SAID: usize = 2000;

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The interpreter on the shelf cannot be run.
    #[error("the guest {FROM} cannot be run: {0}")]
    Guest(String),
    /// It was made of another module than the one that is given.
    #[error("the guest {FROM} on the shelf was not made of this module; run `make wasm`")]
    OtherModule,
    /// What is done before the image is taken failed.
    #[error("Python did not import its packages (code {code}): {said}")]
    Preparation {
        /// What the turn ended with.
        code: u8,
        /// The end of what it said.
        said: String,
    },
    /// The module cannot carry another memory.
    #[error("the module cannot carry an image: {0}")]
    Module(#[from] Unfit),
    /// A guest that begins from the image has another memory.
    #[error("a guest that begins does not have the memory of its image: {0} pages differ")]
    NotTheSame(usize),
}

/// What an image is known by: the module that it was taken from, and what was done in it.
#[must_use]
pub fn origin(module: Hash) -> Hash {
    Hash::of(&[module.to_string().as_bytes(), PREPARATION].concat())
}

/// Takes the image: a module whose memory is that of the interpreter after it has imported its packages.
///
/// # Errors
/// When the interpreter on this shelf is not the one that the module says, or does not do what it is told.
pub fn take(shelf: &Path, module: &[u8], made_of: Hash) -> Result<Vec<u8>, ImageError> {
    if Hash::of(module) != made_of {
        return Err(ImageError::OtherModule);
    }
    let (guest, room) = open(shelf, FROM)?;
    let mut seat = guests::seat(&room, &guest, None).map_err(broken)?;
    do_turn(&mut seat, python::FIRST)?;
    do_turn(&mut seat, PREPARATION)?;
    Ok(rewrite::with_memory(module, seat.bytes().map_err(broken)?)?)
}

/// Holds the guest that was made of an image against it: one that begins has its memory.
///
/// # Errors
/// When it does not.
pub fn prove(shelf: &Path, name: &str, module: &[u8]) -> Result<(), ImageError> {
    let wanted = rewrite::memory(module)?;
    let (guest, room) = open(shelf, name)?;
    let seat = guests::seat(&room, &guest, None).map_err(broken)?;
    match rewrite::differing(seat.bytes().map_err(broken)?, &wanted) {
        0 => Ok(()),
        pages => Err(ImageError::NotTheSame(pages)),
    }
}

/// Holds guests against each other that follow one another in the same places: each begins with the memory that the first began
/// with, whatever the last one wrote. Says how many pages those wrote.
///
/// # Errors
/// When one does not.
pub fn follow(shelf: &Path, name: &str) -> Result<usize, ImageError> {
    let (guest, room) = open(shelf, name)?;
    let begin = || guests::seat(&room, &guest, None).map_err(broken);
    let wanted = begin()?.bytes().map_err(broken)?.to_vec();
    let mut written = 0;
    for _ in 0..2 * engine::SLOTS {
        let seat = begin()?;
        let pages = rewrite::differing(seat.bytes().map_err(broken)?, &wanted);
        if pages > 0 {
            return Err(ImageError::NotTheSame(pages));
        }
        let used = guests::warm_up(seat, &guest).map_err(broken)?;
        written += rewrite::differing(used.bytes().map_err(broken)?, &wanted);
    }
    Ok(written)
}

/// One guest of a shelf, and a room in which everything is the same every time.
fn open(shelf: &Path, name: &str) -> Result<(Arc<Loaded>, Room), ImageError> {
    let unusable = |why: String| ImageError::Guest(why);
    let engine = engine::engine(Purpose::Run, Metering::None).map_err(|error| unusable(error.to_string()))?;
    let names = [(shelf.to_owned(), name.to_owned())];
    let found = shelf::load(&engine, Metering::None, &names).map_err(|error| unusable(error.to_string()))?;
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
        fuel: None,
        http: false,
        ready: Arc::default(),
    };
    Ok((guest, room))
}

/// One turn, which must come to its end.
fn do_turn(seat: &mut Seat, source: &[u8]) -> Result<(), ImageError> {
    let voice = Voice::unheard().map_err(|error| ImageError::Guest(error.to_string()))?;
    // Nobody carries it before the turn is over: what it says must fit.
    let streams = Arc::new(Streams::new(128 * 1024, false, voice));
    seat.hear(Some(Arc::clone(&streams)));
    let code = python::turn(seat, source).map_err(broken)?;
    seat.hear(None);
    if code == 0 {
        return Ok(());
    }
    let said: Vec<u8> = streams.carry().output.into_iter().flat_map(|(_, bytes)| bytes).collect();
    let said = said.get(said.len().saturating_sub(MOST_SAID)..).unwrap_or_default();
    Err(ImageError::Preparation { code, said: String::from_utf8_lossy(said).into_owned() })
}

fn broken(why: guests::Broken) -> ImageError {
    ImageError::Guest(why.to_string())
}
