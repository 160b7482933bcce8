//! Reads of a file at a position, which several threads may do at once.

use std::{fs::File, io};

/// Reads bytes at a position of a file, independent of earlier reads.
#[cfg(unix)]
pub(super) fn read_at(file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, to, at)
}

/// Reads bytes at a position of a file, independent of earlier reads.
#[cfg(windows)]
pub(super) fn read_at(file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, to, at)
}

/// In two calls, so two threads must not do this at once.
#[cfg(not(any(unix, windows)))]
pub(super) fn read_at(mut file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(at))?;
    file.read(to)
}
