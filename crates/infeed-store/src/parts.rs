//! Bytes of which parts are read when they are needed, such as an index of which a process needs a few blocks.
//!
//! A file is read by position (`pread`) and not mapped. Its pages stay in the system's page cache, so all processes of
//! a machine share them. A file that another program truncates is an error of one read; with a mapping it would be a
//! `SIGBUS`. It also works on file systems without mapping. Reading a block that is in memory takes about a
//! microsecond.

use std::{borrow::Cow, fs::File, io, ops::Range};

use bytes::Bytes;

use super::read_at::read_at;

/// Where the bytes are.
#[derive(Debug)]
pub enum Parts {
    /// In memory.
    Held(Bytes),
    /// In a local file.
    File {
        /// Stays open: replacing the file at its path does not affect this one.
        file: File,
        /// Its length when it was opened.
        len: u64,
    },
}

impl Parts {
    /// The bytes of an open file.
    ///
    /// # Errors
    /// Those of the system, from requesting the length.
    pub fn of_file(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self::File { file, len })
    }

    /// Number of bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        match self {
            Self::Held(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A range of the bytes. Blocks until the disk has read them.
    ///
    /// # Errors
    /// `UnexpectedEof` beyond the end, also if the file has become shorter; others of the system.
    pub fn read(&self, range: Range<u64>) -> io::Result<Cow<'_, [u8]>> {
        let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "it ends before the requested bytes");
        if range.start > range.end || range.end > self.len() {
            return Err(cut());
        }
        let length = (range.end - range.start) as usize;
        match self {
            Self::Held(bytes) => Ok(Cow::Borrowed(&bytes[range.start as usize..][..length])),
            Self::File { file, .. } => {
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
                bytes.resize(length, 0);
                let mut filled = 0;
                while filled < length {
                    match read_at(file, &mut bytes[filled..], range.start + filled as u64) {
                        Ok(0) => return Err(cut()),
                        Ok(n) => filled += n,
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(e) => return Err(e),
                    }
                }
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// The same, without copying bytes that are in memory.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn bytes(&self, range: Range<u64>) -> io::Result<Bytes> {
        Ok(match (self, self.read(range.clone())?) {
            (Self::Held(bytes), _) => bytes.slice(range.start as usize..range.end as usize),
            (Self::File { .. }, read) => read.into_owned().into(),
        })
    }

    /// All bytes in order, one MiB at a time.
    pub fn pieces(&self) -> impl Iterator<Item = io::Result<Cow<'_, [u8]>>> {
        const PIECE: u64 = 1 << 20;
        (0..self.len().div_ceil(PIECE)).map(|i| self.read(i * PIECE..((i + 1) * PIECE).min(self.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_wherever_the_bytes_are_and_a_file_cut_short_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let content: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = Parts::of_file(File::open(&path).unwrap()).unwrap();
        let held = Parts::Held(content.clone().into());
        for parts in [&file, &held] {
            assert_eq!(parts.len(), 3_000_000);
            for range in [0..0, 5..9, 2_999_999..3_000_000, 0..3_000_000] {
                let want = &content[range.start as usize..range.end as usize];
                assert_eq!(&parts.read(range.clone()).unwrap()[..], want);
                assert_eq!(parts.bytes(range).unwrap(), want);
            }
            assert_eq!(parts.pieces().map(|piece| piece.unwrap().into_owned()).collect::<Vec<_>>().concat(), content);
            for beyond in [3_000_000..3_000_001, u64::MAX - 1..u64::MAX, Range { start: 2, end: 1 }] {
                assert_eq!(parts.read(beyond).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            }
        }
        // Replacing the file has no effect; truncating it does.
        std::fs::rename(dir.path().join("x"), dir.path().join("y")).unwrap();
        std::fs::write(&path, b"other").unwrap();
        assert_eq!(file.read(100..104).unwrap()[..], content[100..104]);
        File::options().write(true).open(dir.path().join("y")).unwrap().set_len(102).unwrap();
        assert_eq!(file.read(100..104).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
