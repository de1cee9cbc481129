//! How this process's memory is taken and given back.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes pages this process's own, as if each had been written to what it holds. They begin where a page does. Where the kernel does not do
/// it (before 5.14), they are copied one by one when they are written to.
pub fn own(pages: &mut [u8]) {
    // SAFETY: the pages are the caller's alone, and keep their bytes. An error changes nothing but when they are copied.
    unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), libc::MADV_POPULATE_WRITE) };
}

/// An allocator for a program that holds secrets: what is given back to it is zeroes by then, whoever had it, libraries for HTTP and TLS too.
///
/// Large pieces come from the kernel one by one and go back to it at once, which clears them: buffers of connections that are over leave
/// nothing, and of what was never written to nothing is touched. The C library would cut them from what it has in stock.
#[derive(Debug, Clone, Copy)]
pub struct Forgetful;

/// From this size on a piece is the kernel's.
const ALONE: usize = 16 * 1024;
/// Where the kernel's pieces begin, whatever its pages are.
const PAGE: usize = 4096;

impl Forgetful {
    fn is_alone(layout: Layout) -> bool {
        layout.size() >= ALONE && layout.align() <= PAGE
    }
}

// SAFETY: every piece is the kernel's or the C library's alone, which of them depends on its layout, and it goes back where it came from.
unsafe impl GlobalAlloc for Forgetful {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::is_alone(layout) {
            return from_kernel(layout.size());
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Self::is_alone(layout) {
            return from_kernel(layout.size());
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if Self::is_alone(layout) {
            // SAFETY: it was mapped by this allocator, as large as that, and nobody uses it any more.
            if unsafe { libc::munmap(place.cast(), layout.size()) } != 0 {
                // No room in the kernel's tables for the hole: the pages go all the same, and the place is never used again.
                // SAFETY: as above.
                unsafe { libc::madvise(place.cast(), layout.size(), libc::MADV_DONTNEED) };
            }
            return;
        }
        // SAFETY: it is the caller's, as large as that. Unlike a plain write, this one is never left out because nobody reads it.
        unsafe { libc::explicit_bzero(place.cast(), layout.size()) };
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: it is no larger than any layout may be.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if Self::is_alone(layout) && Self::is_alone(new) {
            // SAFETY: it was mapped by this allocator, as large as that, and is known by nobody but the caller, who takes the answer for it.
            let moved = unsafe { libc::mremap(place.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) };
            return if moved == libc::MAP_FAILED { ptr::null_mut() } else { moved.cast() };
        }
        // SAFETY: the caller's promise.
        unsafe { elsewhere(self, place, layout, new) }
    }
}

/// The same for a program that may come to hold secrets: from [`hold_secrets`] on. Every piece is the C library's, because it may be older
/// than that.
#[derive(Debug, Clone, Copy)]
pub struct ForgetfulInTime;

static HOLDS_SECRETS: AtomicBool = AtomicBool::new(false);

/// From now on, what is given back to [`ForgetfulInTime`] is zeroes by then.
pub fn hold_secrets() {
    HOLDS_SECRETS.store(true, Ordering::Relaxed);
}

// SAFETY: every piece is the C library's, and goes back to it.
unsafe impl GlobalAlloc for ForgetfulInTime {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if HOLDS_SECRETS.load(Ordering::Relaxed) {
            // SAFETY: it is the caller's, as large as that.
            unsafe { libc::explicit_bzero(place.cast(), layout.size()) };
        }
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !HOLDS_SECRETS.load(Ordering::Relaxed) {
            // SAFETY: the caller's promise.
            return unsafe { System.realloc(place, layout, size) };
        }
        // SAFETY: the caller's promise: it is no larger than any layout may be.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller's promise.
        unsafe { elsewhere(self, place, layout, new) }
    }
}

/// Moves what a piece holds into a new one, and gives the old one back.
unsafe fn elsewhere(memory: &impl GlobalAlloc, place: *mut u8, old: Layout, new: Layout) -> *mut u8 {
    // SAFETY: the caller's promise.
    let wanted = unsafe { memory.alloc(new) };
    if !wanted.is_null() {
        // SAFETY: two pieces, one of them new, and no more than the smaller one has.
        unsafe { ptr::copy_nonoverlapping(place, wanted, old.size().min(new.size())) };
        // SAFETY: the caller's promise.
        unsafe { memory.dealloc(place, old) };
    }
    wanted
}

/// Empty pages, or null.
fn from_kernel(size: usize) -> *mut u8 {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the kernel's choice touches nobody's memory.
    let place = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, -1, 0) };
    if place == libc::MAP_FAILED { ptr::null_mut() } else { place.cast() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grows and shrinks a piece through these sizes; whatever it held it must still hold.
    fn through(memory: &impl GlobalAlloc, sizes: &[usize]) {
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        let mut size = sizes[0];
        // SAFETY: a layout that is not empty.
        let mut place = unsafe { memory.alloc(layout(size)) };
        // SAFETY: as large as that.
        unsafe { place.write_bytes(7, size) };
        for next in &sizes[1..] {
            // SAFETY: the piece of the last turn.
            place = unsafe { memory.realloc(place, layout(size), *next) };
            // SAFETY: as large as both.
            let kept = unsafe { std::slice::from_raw_parts(place, size.min(*next)) };
            assert!(kept.iter().all(|byte| *byte == 7), "{size} to {next}");
            size = *next;
            // SAFETY: as large as that.
            unsafe { place.write_bytes(7, size) };
        }
        // SAFETY: the piece of the last turn.
        unsafe { memory.dealloc(place, layout(size)) };
    }

    #[test]
    fn a_piece_keeps_what_it_holds_whatever_becomes_of_its_size() {
        let sizes =
            [1, 100, ALONE - 1, ALONE, ALONE + 1, 1 << 20, 3 * ALONE, ALONE, ALONE - 1, 64, 1 << 16, 5];
        through(&Forgetful, &sizes);
        through(&ForgetfulInTime, &sizes);
        hold_secrets();
        through(&ForgetfulInTime, &sizes);
    }

    #[test]
    fn an_empty_piece_is_empty_also_where_another_one_was() {
        for size in [48, 4000, ALONE, 1 << 20] {
            let layout = Layout::from_size_align(size, 8).unwrap();
            for _ in 0..100 {
                // SAFETY: a layout that is not empty.
                let place = unsafe { Forgetful.alloc_zeroed(layout) };
                // SAFETY: as large as that.
                let all = unsafe { std::slice::from_raw_parts_mut(place, size) };
                assert!(all.iter().all(|byte| *byte == 0));
                all.fill(9);
                // SAFETY: the piece above.
                unsafe { Forgetful.dealloc(place, layout) };
            }
        }
    }

    #[test]
    fn what_no_page_is_aligned_for_comes_from_the_library() {
        let layout = Layout::from_size_align(1 << 16, 1 << 16).unwrap();
        // SAFETY: a layout that is not empty.
        let place = unsafe { Forgetful.alloc(layout) };
        assert_eq!(place.addr() % (1 << 16), 0);
        // SAFETY: the piece above.
        unsafe { Forgetful.dealloc(place, layout) };
    }
}
