//! How a run ends, and by which name.

use blastbox_tests::{Caller, both_ways};

both_ways!(the_exit_code_of_the_program_is_blastboxs_own);

fn the_exit_code_of_the_program_is_blastboxs_own(caller: &Caller) {
    for code in [0_u8, 1, 42, 124, 125, 255] {
        let boxed = caller.sh(&[], &format!("exit {code}"));
        assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("exited", code));
    }
}
