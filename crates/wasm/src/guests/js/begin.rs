//! What a QuickJS does before its image is taken.

use super::{ABOUT, CALL, RANDOM, REHEARSAL, TIMED, TURNS, WRITE, evaluate, free, is_exception, rehearse};
use crate::guests::{Broken, Seat, stuck};

/// Console, timers and randomness, written in JavaScript.
const PRELUDE: &[u8] = include_bytes!("prelude.js");
/// Depth of calls; more would be more than the guest's stack holds.
const STACK: u32 = 512 * 1024;
/// All of it.
pub(crate) const DONE: [&[u8]; 3] = [PRELUDE, REHEARSAL, &STACK.to_le_bytes()];

/// Takes one that has not begun to where its image is taken.
pub(crate) fn begin(seat: &mut Seat) -> Result<(), Broken> {
    seat.call::<(), ()>("_initialize", ())?;
    if seat.call::<(), u32>("qjs_init", ())? != 0 {
        return Err(stuck("QuickJS does not start"));
    }
    seat.call::<u32, ()>("qjs_set_max_stack_size", STACK)?;
    let global: u32 = seat.call("qjs_get_global", ())?;
    for name in [WRITE, RANDOM, ABOUT, TURNS, CALL, TIMED] {
        let (at, length) = seat.put("wasm_malloc", name)?;
        let made: u32 = seat.call("qjs_new_host_function", (at, length, 0_u32))?;
        seat.call::<(u32, u32, u32), u32>("qjs_set_prop_string", (global, at, made))?;
        seat.call::<u32, ()>("wasm_free", at)?;
        free(seat, made)?;
    }
    free(seat, global)?;
    let evaluated = evaluate(seat, PRELUDE, b"prelude", 0)?;
    if is_exception(seat, evaluated)? {
        return Err(stuck("its prelude does not run"));
    }
    free(seat, evaluated)?;
    rehearse(seat)
}
