//! How a program begins that leaves out the runtime of the standard library.
//!
//! Before `main` that runtime finds out where the stack ends, so that its handler can tell an overflow from other faults: it has the C library
//! read the table of mappings and ask for the processors, and makes a stack for the handler. Some 0.1 ms, which a run would pay in each
//! of its programs. Without it an overflow meets the kernel's gap beneath the stack and ends the program all the same. What else the
//! runtime does is done here.

use std::ffi::c_int;
use std::panic::catch_unwind;

/// What the standard library leaves with after a panic.
const PANICKED: u8 = 101;

/// Makes a function the `main` of a program whose crate says `no_main`, but for its unit tests.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        #[cfg(not(test))]
        #[unsafe(no_mangle)]
        extern "C" fn main() -> ::std::ffi::c_int {
            $crate::entry::begin($main)
        }

        #[cfg(test)]
        const _: fn() -> u8 = $main;
    };
}

/// The program from its beginning to its end. The exit code.
#[must_use]
pub fn begin(main: fn() -> u8) -> c_int {
    fill_standard_streams();
    // SAFETY: this disposition runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    // Nothing unwinds into the C library.
    catch_unwind(main).unwrap_or(PANICKED).into()
}

/// A standard stream that the caller has closed would be whatever is opened next.
fn fill_standard_streams() {
    for stream in 0..3 {
        // SAFETY: no memory is passed.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } >= 0 {
            continue;
        }
        // SAFETY: a C string constant. The lowest free number is this one: those below it are open.
        if unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) } != stream {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_leaves_with_its_own_code_or_after_a_panic_with_that_of_one() {
        assert_eq!(begin(|| 7), 7);
        assert_eq!(begin(|| panic!("on purpose")), i32::from(PANICKED));
    }
}
