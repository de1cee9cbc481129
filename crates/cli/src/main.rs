//! `blastbox`: what is started for every run.

#![cfg_attr(not(test), no_main)]

blastbox_isolation::program!(blastbox_cli::front);
