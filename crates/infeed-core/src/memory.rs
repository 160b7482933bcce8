//! Memory that the allocator holds.

/// Returns to the system what glibc's allocator holds of memory that was freed.
///
/// It keeps the pages of many small texts, such as the names of a listing: 110 MB after a list of 1.28 million files was
/// dropped. Takes about 10 ms for each 100 MB. Does nothing with another allocator.
pub fn return_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: it takes a number, and any thread may call it at any time.
        unsafe { libc::malloc_trim(0) };
    }
}
