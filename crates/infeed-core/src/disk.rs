//! How much space a file system has, and dropping a file from the page cache. Three lines of `unsafe` over `libc`,
//! which the scheduling of threads needs anyway; `rustix` would have these calls, but would be one more crate for users
//! who build only the library.

use std::path::Path;

/// Space on the file system of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FreeSpace {
    /// Bytes that this process may still write.
    pub free: u64,
    /// The files are in memory (tmpfs, ramfs): writing there takes memory from programs.
    pub in_memory: bool,
}

/// The space on the file system of `path`, which must exist. `None` if the system does not report it.
///
/// ```
/// # #[cfg(target_os = "linux")]
/// assert!(infeed::internal::disk::free_space(std::path::Path::new("/")).is_some());
/// ```
#[must_use]
pub fn free_space(path: &Path) -> Option<FreeSpace> {
    #[cfg(target_os = "linux")]
    {
        use std::{ffi::CString, mem::MaybeUninit, os::unix::ffi::OsStrExt};
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        let mut found = MaybeUninit::<libc::statfs64>::zeroed();
        // SAFETY: the path ends with a zero byte and the kernel writes one `statfs64`; both live until the call
        // returns.
        let failed = unsafe { libc::statfs64(path.as_ptr(), found.as_mut_ptr()) } != 0;
        if failed {
            return None;
        }
        // SAFETY: integers, for which zero bytes are valid values; the call filled them in.
        let found = unsafe { found.assume_init() };
        const TMPFS: u64 = 0x0102_1994;
        const RAMFS: u64 = 0x8584_58f6;
        let kind = found.f_type as u64 & 0xffff_ffff;
        let free = found.f_bavail.saturating_mul(u64::try_from(found.f_bsize).unwrap_or(0));
        Some(FreeSpace { free, in_memory: kind == TMPFS || kind == RAMFS })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        None
    }
}

/// Asks the system to drop a file from the page cache, so that the next read comes from its disk. `false`: the system
/// refused, or is not Linux. Files that exist in memory only (tmpfs) are not affected.
///
/// ```
/// # #[cfg(target_os = "linux")] {
/// let file = std::fs::File::open("/proc/self/exe").unwrap();
/// infeed::internal::disk::forget(&file);
/// # }
/// ```
pub fn forget(file: &std::fs::File) -> bool {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: a call on an open descriptor, which the borrow keeps open; it touches no memory of this process.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        false
    }
}
