//! A module with another memory: its data are those of a guest that has run, everything else stays what it was.

use std::ops::Range;

use wasm_encoder::{ConstExpr, DataCountSection, DataSection, MemorySection, MemoryType, Module, RawSection};
use wasmparser::{DataKind, Operator, Parser, Payload};

/// What is written or left out as a whole.
const PAGE: usize = 4096;
const WASM_PAGE: usize = 65_536;
/// The engine maps an image and copies nothing only where at least half of it is something else than zeros.
const LEAST_DENSE: usize = 2;
const DATA: u8 = 11;

/// Why a module cannot carry another memory.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It is none.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] wasmparser::BinaryReaderError),
    /// It has state outside of its memory.
    #[error("it has {0} globals that change, and only the stack pointer is known to be at rest")]
    Globals(usize),
    /// Its code copies data when it runs.
    #[error("it has data that its code copies itself")]
    PassiveData,
    /// It has not one memory of its own.
    #[error("it has {0} memories")]
    Memories(usize),
    /// The engine would copy the image for every guest.
    #[error("the image has {filled} pages in a span of {span}: too few to be mapped")]
    Sparse {
        /// Pages that are not zeros.
        filled: usize,
        /// Pages from the first to the last of them.
        span: usize,
    },
}

/// Pages, the last of which may be short.
fn pages(memory: &[u8]) -> impl Iterator<Item = &[u8]> {
    memory.chunks(PAGE)
}

/// How many pages of two memories are not the same.
pub(super) fn differing(one: &[u8], other: &[u8]) -> usize {
    let missing = one.len().abs_diff(other.len()).div_ceil(PAGE);
    pages(one).zip(pages(other)).filter(|(one, other)| one != other).count() + missing
}

/// The same module with this memory.
pub(super) fn with_memory(module: &[u8], memory: &[u8]) -> Result<Vec<u8>, Unfit> {
    let runs = filled(memory);
    dense(&runs)?;
    let mut out = Module::new();
    let count = u32::try_from(runs.len()).unwrap_or(u32::MAX);
    // Code that copies data itself needs a module that says how many there are.
    let mut counted = false;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        match &payload {
            Payload::MemorySection(found) => {
                let found: Vec<_> = found.clone().into_iter().collect::<Result<_, _>>()?;
                let [found] = found.as_slice() else { return Err(Unfit::Memories(found.len())) };
                let minimum = u64::try_from(memory.len() / WASM_PAGE).unwrap_or(u64::MAX);
                let mut section = MemorySection::new();
                section.memory(MemoryType {
                    minimum,
                    maximum: found.maximum,
                    memory64: found.memory64,
                    shared: found.shared,
                    page_size_log2: found.page_size_log2,
                });
                out.section(&section);
            }
            Payload::GlobalSection(found) => {
                let changing = |global: &Result<wasmparser::Global<'_>, _>| {
                    global.as_ref().is_ok_and(|global| global.ty.mutable)
                };
                let changing = found.clone().into_iter().filter(changing).count();
                if changing > 1 {
                    return Err(Unfit::Globals(changing));
                }
                copy(&mut out, module, &payload);
            }
            Payload::DataCountSection { .. } => {
                counted = true;
                out.section(&DataCountSection { count });
            }
            Payload::DataSection(found) => {
                for segment in found.clone() {
                    if matches!(segment?.kind, DataKind::Passive) && counted {
                        return Err(Unfit::PassiveData);
                    }
                }
                let mut section = DataSection::new();
                for run in &runs {
                    let at = i32::from_ne_bytes(u32::try_from(run.start).unwrap_or(u32::MAX).to_ne_bytes());
                    let bytes = memory.get(run.clone()).unwrap_or_default().iter().copied();
                    section.active(0, &ConstExpr::i32_const(at), bytes);
                }
                out.section(&section);
            }
            // Names of functions: megabytes that nobody reads.
            Payload::CustomSection(_) => {}
            _ => copy(&mut out, module, &payload),
        }
    }
    Ok(out.finish())
}

/// The memory that a module begins with.
pub(super) fn memory(module: &[u8]) -> Result<Vec<u8>, Unfit> {
    let mut memory = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::MemorySection(found) => {
                let found: Vec<_> = found.into_iter().collect::<Result<_, _>>()?;
                let [found] = found.as_slice() else { return Err(Unfit::Memories(found.len())) };
                let pages = usize::try_from(found.initial).unwrap_or(usize::MAX);
                memory.resize(pages.saturating_mul(WASM_PAGE).min(4 << 30), 0);
            }
            Payload::DataSection(found) => {
                for segment in found {
                    let segment = segment?;
                    let DataKind::Active { offset_expr, .. } = &segment.kind else {
                        return Err(Unfit::PassiveData);
                    };
                    let Operator::I32Const { value } = offset_expr.get_operators_reader().read()? else {
                        return Err(Unfit::PassiveData);
                    };
                    let at = usize::try_from(u32::from_ne_bytes(value.to_ne_bytes())).unwrap_or(usize::MAX);
                    let place = memory.get_mut(at..).and_then(|rest| rest.get_mut(..segment.data.len()));
                    place.ok_or(Unfit::PassiveData)?.copy_from_slice(segment.data);
                }
            }
            _ => {}
        }
    }
    Ok(memory)
}

/// Runs of pages that are not zeros.
fn filled(memory: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (number, page) in pages(memory).enumerate() {
        if page.iter().all(|byte| *byte == 0) {
            continue;
        }
        let start = number * PAGE;
        let end = start + page.len();
        match runs.last_mut() {
            Some(run) if run.end == start => run.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

/// Whether the engine maps such an image instead of copying it.
fn dense(runs: &[Range<usize>]) -> Result<(), Unfit> {
    let filled = runs.iter().map(|run| run.len() / PAGE).sum::<usize>();
    let (first, last) = (runs.first().map_or(0, |run| run.start), runs.last().map_or(0, |run| run.end));
    let span = last.saturating_sub(first) / PAGE;
    if filled * LEAST_DENSE < span { Err(Unfit::Sparse { filled, span }) } else { Ok(()) }
}

/// A section as it is.
fn copy(out: &mut Module, module: &[u8], payload: &Payload<'_>) {
    if let Some((id, range)) = payload.as_section()
        && id != DATA
    {
        out.section(&RawSection { id, data: module.get(range).unwrap_or_default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with one memory of a page, a global, data, and a name that nobody needs.
    fn module(mutable: bool) -> Vec<u8> {
        let mut out = Module::new();
        let mut memory = MemorySection::new();
        let ty =
            MemoryType { minimum: 1, maximum: Some(9), memory64: false, shared: false, page_size_log2: None };
        memory.memory(ty);
        out.section(&memory);
        let mut globals = wasm_encoder::GlobalSection::new();
        for _ in 0..2 {
            let ty =
                wasm_encoder::GlobalType { val_type: wasm_encoder::ValType::I32, mutable, shared: false };
            globals.global(ty, &ConstExpr::i32_const(7));
        }
        out.section(&globals);
        let mut data = DataSection::new();
        data.active(0, &ConstExpr::i32_const(16), [1, 2, 3]);
        out.section(&data);
        out.section(&wasm_encoder::CustomSection { name: "name".into(), data: vec![0; 100].into() });
        out.finish()
    }

    #[test]
    fn another_memory_comes_out_as_it_went_in_and_nothing_else_changes() {
        let mut wanted = vec![0; 2 * WASM_PAGE];
        wanted[5] = 9;
        wanted[PAGE + 1] = 8;
        wanted[3 * PAGE] = 7;
        let made = with_memory(&module(false), &wanted).unwrap();
        assert_eq!(memory(&made).unwrap(), wanted);
        assert_eq!(memory(&with_memory(&made, &wanted).unwrap()).unwrap(), wanted);
        assert!(made.len() < 4 * PAGE, "{}", made.len());
    }

    #[test]
    fn state_that_is_not_in_the_memory_and_an_image_that_is_never_mapped_are_refused() {
        let mut thin = vec![0; 2 * WASM_PAGE];
        (thin[0], thin[2 * WASM_PAGE - 1]) = (1, 1);
        assert!(matches!(with_memory(&module(false), &thin), Err(Unfit::Sparse { filled: 2, span: 32 })));
        assert!(matches!(with_memory(&module(true), &vec![1; WASM_PAGE]), Err(Unfit::Globals(2))));
        assert!(with_memory(b"\0asm", &[]).is_err());
    }
}
