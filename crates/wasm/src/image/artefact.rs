//! Machine code with another memory to begin with. The instructions do not change with a module's data, so that a guest whose image
//! was taken is not compiled once more: what the engine wrote is an ELF file, in which the memory is a section of its own, and another
//! one says where it goes and how large the memory is at least.
//!
//! Trust: the file was written by our compiler and held against its hash. Whoever changed it here would hear of it: what was
//! understood must come out again byte for byte before anything is changed, and the guest that is made is held against its image.

use std::ops::Range;

use wasmtime_environ::obj::{ELF_WASM_DATA, ELF_WASMTIME_INFO};
use wasmtime_environ::{CompiledModuleInfo, MemoryInitialization, Module, ModuleStartup};

use crate::elf;

/// What is mapped, or left out, as a whole.
const PAGE: usize = 4096;

/// Why code cannot carry another memory.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It is not what the engine writes.
    #[error("it is no machine code of this engine: {0}")]
    Unreadable(&'static str),
    /// It has state outside of its memory.
    #[error("it has {0} globals that change, and only the stack pointer is known to be at rest")]
    Globals(usize),
    /// Its memory is not an image, or not the only thing that is copied from its data.
    #[error("its memory is not one image that is mapped: {0}")]
    NoImage(&'static str),
    /// The instructions rely on the size of the memory that they were made for.
    #[error("its memory would have {now} pages instead of {before}, and code for more cannot run with less")]
    Smaller {
        /// Pages that it was compiled for.
        before: u64,
        /// Pages of the image.
        now: u64,
    },
    /// The image is none that can be mapped.
    #[error("the image has {0} bytes, which is no memory of a guest")]
    Size(usize),
}

/// How many pages of two memories are not the same.
pub(super) fn differing(one: &[u8], other: &[u8]) -> usize {
    let missing = one.len().abs_diff(other.len()).div_ceil(PAGE);
    one.chunks(PAGE).zip(other.chunks(PAGE)).filter(|(one, other)| one != other).count() + missing
}

/// The same code with this memory.
pub(super) fn with_memory(code: &[u8], memory: &[u8]) -> Result<Vec<u8>, Unfit> {
    let about = elf::section(code, ELF_WASMTIME_INFO).ok_or(Unfit::Unreadable("no word about the module"))?;
    let (mut known, rest) = postcard::take_from_bytes::<CompiledModuleInfo>(about)
        .map_err(|_| Unfit::Unreadable("what it says of its module"))?;
    let written = |known: &CompiledModuleInfo| {
        postcard::to_allocvec(known).map_err(|_| Unfit::Unreadable("what it says of its module"))
    };
    let read = about.len().saturating_sub(rest.len());
    // Fields of a later version that this one does not know would be lost.
    if about.get(..read) != Some(written(&known)?.as_slice()) {
        return Err(Unfit::Unreadable("what it says of its module is not understood"));
    }
    let filled = filled(memory);
    replace(&mut known.module, memory.len(), &filled)?;
    let mut about = written(&known)?;
    about.extend_from_slice(rest);
    let image = memory.get(filled).unwrap_or_default();
    elf::with_sections(code, &[(ELF_WASM_DATA, image), (ELF_WASMTIME_INFO, &about)])
        .ok_or(Unfit::Unreadable("its sections"))
}

/// Says of a module that it begins with so much memory, of which these bytes are not zeros.
fn replace(module: &mut Module, length: usize, filled: &Range<usize>) -> Result<(), Unfit> {
    let changing = module.globals.values().filter(|global| global.mutability).count();
    if changing > 1 {
        return Err(Unfit::Globals(changing));
    }
    // One that always runs code when it begins would run it over the image.
    if matches!(module.startup, ModuleStartup::Always(_)) {
        return Err(Unfit::NoImage("it runs code before it is called"));
    }
    let size = Unfit::Size(length);
    let (memories, data) = (module.memories.values_mut(), module.runtime_data.values_mut());
    let MemoryInitialization::Static { map } = &mut module.memory_initialization else {
        return Err(Unfit::NoImage("it is copied piece by piece"));
    };
    // The image comes first. What else a linker left there has no bytes.
    let ([memory], [Some((offset, image))], [data, others @ ..]) =
        (memories.into_slice(), map.values_mut().into_slice(), data.into_slice())
    else {
        return Err(Unfit::NoImage("there is none, or more than one memory"));
    };
    if image.as_u32() != 0 || !others.iter().all(Range::is_empty) {
        return Err(Unfit::NoImage("it has other data too"));
    }
    let page = 1_u64.checked_shl(memory.page_size_log2.into()).ok_or(Unfit::Unreadable("its pages"))?;
    let bytes = u64::try_from(length).ok().filter(|bytes| bytes % page == 0).ok_or(size)?;
    let (before, now) = (memory.limits.min, bytes / page);
    if now < before {
        return Err(Unfit::Smaller { before, now });
    }
    let end = u32::try_from(filled.len()).map_err(|_| Unfit::Size(length))?;
    memory.limits.min = now;
    *offset = u64::try_from(filled.start).map_err(|_| Unfit::Size(length))?;
    *data = 0..end;
    others.fill(end..end);
    Ok(())
}

/// From the first to the last page that is not zeros.
fn filled(memory: &[u8]) -> Range<usize> {
    let used = |page: &[u8]| page.iter().any(|byte| *byte != 0);
    let first = memory.chunks(PAGE).position(used).unwrap_or(0) * PAGE;
    let last = memory.chunks(PAGE).rposition(used).map_or(first, |page| (page + 1) * PAGE);
    first..last.min(memory.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Metering, Purpose, engine};

    const WASM_PAGE: usize = 65_536;

    /// What the engine makes of a module with so much memory, three bytes in it, and these sections.
    fn code(pages: u8, before: &[u8], after: &[u8]) -> Vec<u8> {
        let engine = engine(Purpose::Compile, Metering::None).unwrap();
        let memory = [5, 3, 1, 0, pages];
        let data = b"\x0b\x09\x01\x00\x41\x10\x0b\x03abc";
        // One function that does nothing, of a type without anything.
        let (kinds, functions, bodies) = ([1, 4, 1, 0x60, 0, 0], [3, 2, 1, 0], [10, 4, 1, 2, 0, 0x0b]);
        let data = if after.is_empty() { data.as_slice() } else { after };
        let parts = [&kinds, &functions[..], &memory, before, &bodies, data].concat();
        let module = [b"\0asm\x01\0\0\0".as_slice(), &parts].concat();
        wasmtime::Module::from_binary(&engine, &module).unwrap().serialize().unwrap()
    }

    fn plain() -> Vec<u8> {
        code(1, &[], &[])
    }

    #[test]
    fn a_guest_of_other_data_begins_with_them_and_nothing_else_changes() {
        let mut wanted = vec![0; 3 * WASM_PAGE];
        (wanted[PAGE + 5], wanted[2 * WASM_PAGE]) = (9, 7);
        let before = plain();
        let after = with_memory(&before, &wanted).unwrap();
        for name in [".text", ".eh_frame", ".wasmtime.traps", ".wasmtime.engine", ".symtab"] {
            assert_eq!(elf::section(&before, name), elf::section(&after, name), "{name}");
        }
        assert_eq!(elf::section(&after, ELF_WASM_DATA), wanted.get(PAGE..2 * WASM_PAGE + PAGE));
        // And back again.
        assert_eq!(with_memory(&after, &wanted).unwrap(), after);
        assert_eq!(filled(&wanted), PAGE..2 * WASM_PAGE + PAGE);
        assert_eq!(filled(&[0; WASM_PAGE]), 0..0);
    }

    #[test]
    fn state_outside_of_the_memory_and_a_memory_that_code_does_not_expect_are_refused() {
        let one = vec![1; WASM_PAGE];
        assert!(with_memory(&plain(), &one).is_ok());
        // Two globals that change; data that nobody puts anywhere; a function that runs at once; two pages.
        let globals = code(1, &[6, 11, 2, 0x7f, 1, 0x41, 1, 0x0b, 0x7f, 1, 0x41, 1, 0x0b], &[]);
        assert!(matches!(with_memory(&globals, &one), Err(Unfit::Globals(2))));
        let passive = code(1, &[], b"\x0b\x0a\x02\x00\x41\x10\x0b\x01a\x01\x01b");
        assert!(matches!(with_memory(&passive, &one), Err(Unfit::NoImage(_))));
        let starts = code(1, &[8, 1, 0], &[]);
        assert!(matches!(with_memory(&starts, &one), Err(Unfit::NoImage(_))));
        let large = code(2, &[], &[]);
        assert!(matches!(with_memory(&large, &one), Err(Unfit::Smaller { before: 2, now: 1 })));
        assert!(matches!(with_memory(&plain(), &one[1..]), Err(Unfit::Size(_))));
        assert!(matches!(with_memory(b"\0asm", &one), Err(Unfit::Unreadable(_))));
    }
}
