//! Templates come back as they were, or not at all.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use blastbox_wire::event::Hash;
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals};

use super::template::{Template, blank};
use super::templates::{TEMPLATES, TemplateError, Templates};

const BYTES: u64 = 8 << 20;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("templates-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn templates(&self) -> Templates {
        Templates::of_store(&self.0)
    }

    fn names(&self) -> Vec<PathBuf> {
        fs::read_dir(self.0.join(TEMPLATES)).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn bound(number: u8) -> Hash {
    Hash::from_bytes([number; 32])
}

/// Memory with a page at the beginning, some in the middle across two stretches, and one at the end.
fn template() -> Template {
    let memory = File::from(blank(BYTES).unwrap());
    memory.write_all_at(&[1; 4096], 0).unwrap();
    memory.write_all_at(&[2; 3 * 4096], (1 << 20) - 4096).unwrap();
    memory.write_all_at(&[3; 10], BYTES - 10).unwrap();
    Template::seal(memory.into(), b"the state of devices".to_vec()).unwrap()
}

fn memory(template: &Template) -> Vec<u8> {
    let file = File::from(template.memory().try_clone_to_owned().unwrap());
    let mut bytes = vec![0; usize::try_from(BYTES).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn a_machine_that_touched_all_of_its_memory_is_sealed_without_what_is_empty_and_never_there_twice() {
    let like = memory(&template());
    let full = File::from(blank(BYTES).unwrap());
    full.write_all_at(&like, 0).unwrap();
    let kept = full.try_clone().unwrap();
    let blocks = |file: &File| file.metadata().unwrap().blocks();
    let touched = blocks(&kept);
    let sealed = Template::seal_sparse(full.into(), b"state".to_vec()).unwrap();
    assert_eq!(memory(&sealed), like);
    assert!(blocks(&File::from(sealed.memory().try_clone_to_owned().unwrap())) * 2 < touched);
    assert_eq!(blocks(&kept), 0, "what was copied is given back");
}

#[test]
fn a_template_comes_back_as_it_was_and_takes_no_room_for_empty_memory() {
    let place = Place::new("back");
    assert!(place.templates().find(&bound(1), BYTES).unwrap().is_none());
    let made = template();
    place.templates().keep(&bound(1), &made).unwrap();
    let found = place.templates().find(&bound(1), BYTES).unwrap().unwrap();
    assert_eq!(found.state(), made.state());
    assert!(memory(&found) == memory(&made));
    let names = place.names();
    assert_eq!(names.len(), 1);
    assert!(fs::metadata(&names[0]).unwrap().len() < 64 * 1024);
}

#[test]
fn nobody_can_write_to_the_memory_that_copies_share() {
    let made = template();
    let again = File::from(made.memory().try_clone_to_owned().unwrap());
    assert!(again.write_all_at(b"x", 0).is_err() && again.set_len(0).is_err());
    // The state is read by each copy from its beginning.
    for _ in 0..2 {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut File::from(made.state_file().unwrap()), &mut text).unwrap();
        assert_eq!(text, "the state of devices");
    }
    assert!(Template::seal(blank(BYTES).unwrap(), Vec::new()).is_err());
}

/// Has the kernel hold a page of a file until the pipe that it lies in is closed.
fn hold_a_page(file: &File) -> std::io::Result<std::io::PipeReader> {
    let (reader, writer) = std::io::pipe()?;
    let taken =
        rustix::pipe::splice(file, Some(&mut 0), &writer, None, 4096, rustix::pipe::SpliceFlags::empty())?;
    assert_eq!(taken, 4096);
    Ok(reader)
}

#[test]
fn pages_that_the_kernel_holds_keep_nobody_from_sealing_a_memory() {
    let memory = File::from(blank(BYTES).unwrap());
    memory.write_all_at(&[1; 4096], 0).unwrap();
    let held = hold_a_page(&memory).unwrap();
    let late = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(600));
        drop(held);
    });
    let sealed = Template::seal(memory.into(), b"state".to_vec()).unwrap();
    late.join().unwrap();
    assert!(fcntl_get_seals(sealed.memory()).unwrap().contains(SealFlags::WRITE));

    // What was nobody else's waits for nobody, and is as closed.
    let own = File::from(blank(BYTES).unwrap());
    own.write_all_at(&[1; 4096], 0).unwrap();
    let _held = hold_a_page(&own).unwrap();
    let sealed = Template::seal_own(own.into(), b"state".to_vec()).unwrap();
    let again = File::from(sealed.memory().try_clone_to_owned().unwrap());
    assert!(again.write_all_at(b"x", 0).is_err() && again.set_len(0).is_err());
    assert!(fcntl_add_seals(sealed.memory(), SealFlags::WRITE).is_err(), "nobody changes its seals");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert!(fallocate(sealed.memory(), punch, 0, 4096).is_err());
    sealed.fill().unwrap();
}

#[test]
fn one_that_is_cut_short_altered_or_anothers_is_refused_by_name() {
    let place = Place::new("refused");
    let templates = place.templates();
    templates.keep(&bound(1), &template()).unwrap();
    let path = place.names().remove(0);
    let whole = fs::read(&path).unwrap();
    let outcome = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        templates.find(&bound(1), BYTES).map(drop).unwrap_err()
    };
    for length in [0, 10, 60, 80, whole.len() / 2, whole.len() - 1] {
        assert!(matches!(outcome(&whole[..length]), TemplateError::Truncated { .. }), "{length}");
    }
    assert!(matches!(outcome(&[whole.as_slice(), b"x"].concat()), TemplateError::Truncated { .. }));
    // One bit at a time, all over it.
    for at in (0..whole.len()).step_by(97) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        let refused = outcome(&flipped);
        let named = match at {
            0..52 => matches!(refused, TemplateError::Foreign { .. }),
            52..60 => matches!(refused, TemplateError::Foreign { .. }),
            _ => matches!(refused, TemplateError::Altered { .. } | TemplateError::Truncated { .. }),
        };
        assert!(named, "{at}: {refused}");
    }
    // Of the same name and another machine, or of another size.
    fs::write(&path, &whole).unwrap();
    let other = path.with_file_name(path.file_name().unwrap().to_str().unwrap().replace("01", "02"));
    fs::copy(&path, &other).unwrap();
    assert!(matches!(templates.find(&bound(2), BYTES), Err(TemplateError::Foreign { .. })));
    assert!(matches!(templates.find(&bound(1), BYTES * 2), Err(TemplateError::Foreign { .. })));
    templates.forget(&bound(2));
    assert!(templates.find(&bound(2), BYTES).unwrap().is_none());
    assert!(templates.find(&bound(1), BYTES).unwrap().is_some());
}

#[test]
fn what_cannot_be_written_whole_leaves_nothing_and_the_old_one_stays() {
    let place = Place::new("full");
    let templates = place.templates();
    templates.keep(&bound(1), &template()).unwrap();
    // Half of it is there by then.
    let full = |file: &File| -> std::io::Result<()> {
        file.write_all_at(&[9; 64 * 1024], 0)?;
        Err(std::io::ErrorKind::StorageFull.into())
    };
    let old = fs::read(&place.names()[0]).unwrap();
    let folder = place.0.join(TEMPLATES);
    let name = place.names()[0].file_name().unwrap().to_str().unwrap().to_owned();
    assert!(super::fresh::file(&folder, &name, full).is_err());
    assert_eq!(place.names().len(), 1);
    assert!(fs::read(&place.names()[0]).unwrap() == old);
    assert!(templates.find(&bound(1), BYTES).unwrap().is_some());
}

#[test]
fn two_copies_in_a_row_that_end_without_a_word_are_needed_to_doubt_a_template_whichever_process_has_them() {
    let made = template();
    assert!(!made.copy_died() && !made.is_spoilt());
    assert!(made.copy_spoke() && !made.copy_spoke());
    assert!(!made.copy_died() && !made.is_spoilt(), "one spoke in between");
    assert!(made.copy_died() && made.is_spoilt());

    let place = Place::new("doubted");
    let templates = place.templates();
    let next = || templates.find(&bound(1), BYTES).unwrap().unwrap();
    templates.keep(&bound(1), &template()).unwrap();
    templates.doubt(&bound(1));
    templates.doubt(&bound(2));
    assert_eq!(place.names().len(), 2, "one that is not there is not doubted");
    assert!(next().copy_died(), "the second in a row, in another process");
    assert!(next().copy_spoke());
    templates.trust(&bound(1));
    assert!(!next().copy_died());
    templates.doubt(&bound(1));
    templates.forget(&bound(1));
    assert_eq!(place.names().len(), 0);
    // One that was made anew is another one.
    templates.keep(&bound(1), &template()).unwrap();
    templates.doubt(&bound(1));
    templates.keep(&bound(1), &template()).unwrap();
    assert!(!next().copy_died());
}

#[test]
fn templates_take_no_more_room_than_so_many() {
    let place = Place::new("many");
    let templates = place.templates();
    let made = template();
    for number in 1..=10 {
        templates.keep(&bound(number), &made).unwrap();
        // The first one is used again and again.
        assert!(templates.find(&bound(1), BYTES).unwrap().is_some(), "{number}");
    }
    assert_eq!(place.names().len(), 8);
    templates.clear();
    assert_eq!(place.names().len(), 0);
}
