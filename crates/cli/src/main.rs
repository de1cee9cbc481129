//! `blastbox`: what is started for every run.

#![cfg_attr(not(test), no_main)]

/// It fetches secrets, and passes them through libraries that know nothing of that.
#[global_allocator]
static MEMORY: blastbox_isolation::ForgetfulInTime = blastbox_isolation::ForgetfulInTime;

blastbox_isolation::program!(blastbox_cli::front);
