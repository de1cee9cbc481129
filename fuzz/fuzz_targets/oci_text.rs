//! Index, manifest and configuration of an OCI image.
#![no_main]

use blastbox_images::oci::Platform;
use blastbox_images::oci::choose;
use blastbox_images::oci::oci_text::{Document, config, document, saved};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Document::Index(all)) = document(bytes) {
        choose(&all, &Platform::here()).ok();
    }
    saved(bytes).ok();
    if let Ok(config) = config(bytes) {
        assert!(config.run.env.keys().all(|name| !name.is_empty() && !name.contains(['=', '\0'])));
        assert!(config.run.workdir.iter().all(|path| path.starts_with('/')));
    }
});
