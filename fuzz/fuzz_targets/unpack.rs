//! An archive of an image, as one layer and as a whole: whatever it says, nothing is made outside its directory.
#![no_main]

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::LazyLock;

use blastbox_images::tree::{Caps, Form, TreeWriter, unpack};
use libfuzzer_sys::fuzz_target;

static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let place = std::env::temp_dir().join(format!("blastbox-fuzz-unpack-{}", std::process::id()));
    fs::create_dir_all(&place).expect("make a place");
    place
});

fuzz_target!(|bytes: &[u8]| {
    let tree = PLACE.join("tree");
    for form in [Form::Layer, Form::Whole] {
        fs::create_dir(&tree).expect("make a tree");
        fs::write(PLACE.join("outside"), "untouched").expect("write beside it");
        let root = File::open(&tree).expect("open the tree").into();
        let mut writer = TreeWriter::new(root, Caps { bytes: 1 << 20, entries: 200 });
        unpack(&mut writer, bytes, form, &mut |_| {}).ok();
        assert!(writer.made().entries <= 201);
        assert_eq!(fs::read(PLACE.join("outside")).expect("read beside it"), b"untouched");
        assert_eq!(fs::read_dir(&*PLACE).expect("list").count(), 2);
        fs::remove_dir_all(&tree).expect("remove the tree");
    }
});
