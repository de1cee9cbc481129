//! `blastbox` is entered before the C library starts: see `first` in `blastbox-sys`.
//!
//! Only where it is optimized as it is shipped: unoptimized code calls even the smallest function through a table that is filled in later. Other
//! builds begin the usual way.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("OPT_LEVEL").is_ok_and(|level| level == "3") {
        println!("cargo::rustc-link-arg-bin=blastbox=-Wl,--entry=blastbox_first");
    }
}
