//! Reads of a file by place, which several threads may make at a time.

use std::{fs::File, io};

/// Reads some bytes at a place of a file, whatever was read before.
#[cfg(unix)]
pub(super) fn read_at(file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, to, at)
}

/// Reads some bytes at a place of a file, whatever was read before.
#[cfg(windows)]
pub(super) fn read_at(file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, to, at)
}

/// In two calls, so not by two threads at a time.
#[cfg(not(any(unix, windows)))]
pub(super) fn read_at(mut file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(at))?;
    file.read(to)
}
