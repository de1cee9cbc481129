//! What a Python does before its image is taken.

use super::{Image, REHEARSAL, REHEARSED, quoted, rehearsal};

/// How the interpreter runs every turn but the first.
const RUN: &[u8] = include_bytes!("run.py");
/// What the first turn does beside.
const FIRST: &[u8] = b"print(end='')\n__import__('os').chdir('/workspace')\n";
/// How often a command is rehearsed: what the interpreter learns of its own code while it runs is in the image, too.
const REHEARSALS: u8 = 64;
/// The last turn: what is there to stay is never looked at again by whoever looks for garbage.
const SETTLE: &[u8] =
    b"__import__('gc').collect(), __import__('gc').freeze(), __import__('sys').modules.pop('gc')";
/// All of it.
pub(crate) const DONE: [&[u8]; 6] = [RUN, FIRST, REHEARSED, REHEARSAL, &[REHEARSALS], SETTLE];
/// What is done in one that begins from this image before the image with packages is taken.
pub(crate) const PACKAGES: &[u8] = include_bytes!("data.py");

/// The turns that the image is taken after.
pub(crate) fn turns() -> Vec<Vec<u8>> {
    // All in one expression: the first turn still makes objects of everything that stands there.
    let run = quoted(&[FIRST, RUN].concat());
    let first =
        format!("exec(compile({run}, '<reactor>', 'exec'), __import__('sys').modules['_reactor'].__dict__)");
    let mut turns = vec![first.into_bytes()];
    turns.extend(std::iter::repeat_n(rehearsal(Image::Bare), REHEARSALS.into()));
    turns.extend([SETTLE.to_vec(), rehearsal(Image::Bare)]);
    turns
}
