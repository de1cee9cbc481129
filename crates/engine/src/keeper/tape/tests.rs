//! Tests of the tape.
