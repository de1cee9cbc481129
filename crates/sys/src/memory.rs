//! How this process's memory is taken and given back.

/// Makes pages this process's own, as if each had been written to what it holds. They begin where a page does. Where the kernel does not do
/// it (before 5.14), they are copied one by one when they are written to.
pub fn own(pages: &mut [u8]) {
    // SAFETY: the pages are the caller's alone, and keep their bytes. An error changes nothing but when they are copied.
    unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), libc::MADV_POPULATE_WRITE) };
}

/// Has every piece of memory from this size on come from the kernel by itself, empty, and go back to it at once. Otherwise the C library cuts it from
/// what it has in stock, clears it as a whole, and learns from the first one that is given back to keep all that follow.
pub fn return_pieces_from(bytes: u32) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    for (setting, value) in [(libc::M_MMAP_THRESHOLD, bytes), (libc::M_TOP_PAD, 0)] {
        // SAFETY: it sets a number of the allocator's, under the allocator's own lock. Where it is not taken, memory is kept, as before.
        unsafe { libc::mallopt(setting, value) };
    }
}
