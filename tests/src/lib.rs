//! Tests that run the built programs.
