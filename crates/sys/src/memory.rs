//! How this process's memory is given back.

/// Has every piece of memory from this size on come from the kernel by itself, empty, and go back to it at once. Otherwise the C library cuts it from
/// what it has in stock, clears it as a whole, and learns from the first one that is given back to keep all that follow.
pub fn return_pieces_from(bytes: u32) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    for (setting, value) in [(libc::M_MMAP_THRESHOLD, bytes), (libc::M_TOP_PAD, 0)] {
        // SAFETY: it sets a number of the allocator's, under the allocator's own lock. Where it is not taken, memory is kept, as before.
        unsafe { libc::mallopt(setting, value) };
    }
}
