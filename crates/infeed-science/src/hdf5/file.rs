//! The metadata of a file, read by range and cached while the file is opened.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use infeed_core::error::Result;
use infeed_store::{Object, Source};

use super::{checksum::lookup3, cursor::Cursor, damaged, unsupported};

const PAGE: u64 = 4 << 10;
/// Least bytes of a read: related metadata usually follows.
const AHEAD: u64 = 16 * PAGE;
/// Pages with a gap of at most this many pages are read together: reading the gap costs less than another request.
const GAP: u64 = 8;
const AT_A_TIME: usize = 16;
/// The most bytes of metadata that are read of a file. A million chunks have about 50 MB.
const MOST: u64 = 512 << 20;

/// Bytes of a checksum.
pub(super) const SUM: u64 = 4;

const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

/// The bytes without the checksum at their end, which must match.
fn checked(bytes: &Bytes, at: u64) -> Result<Bytes> {
    match bytes.split_last_chunk::<4>() {
        Some((content, sum)) if lookup3(content) == u32::from_le_bytes(*sum) => Ok(bytes.slice(..content.len())),
        _ => Err(damaged(format!("the metadata at {at} has a wrong checksum"))),
    }
}

/// An HDF5 file. All addresses count from its superblock.
#[derive(Debug)]
pub(super) struct File<'a> {
    source: &'a Source,
    object: &'a Object,
    pages: BTreeMap<u64, Bytes>,
    read: u64,
    base: u64,
    /// Bytes of an address.
    pub(super) offsets: usize,
    /// Bytes of a length.
    pub(super) lengths: usize,
    /// Address of the root group's header.
    pub(super) root: u64,
}

impl<'a> File<'a> {
    pub(super) async fn open(source: &'a Source, object: &'a Object) -> Result<Self> {
        let mut file =
            Self { source, object, pages: BTreeMap::new(), read: 0, base: 0, offsets: 8, lengths: 8, root: 0 };
        // The superblock is at 0, or after a user block: at 512, 1024, 2048, …
        let mut at = 0;
        while at + 8 <= object.size {
            if file.read(at, 8).await?[..] == *SIGNATURE {
                file.superblock(at).await?;
                return Ok(file);
            }
            at = if at == 0 { 512 } else { at * 2 };
        }
        Err(damaged("no signature of HDF5 in it")
            .with_hint("if it is classic netCDF or HDF4, convert it (nccopy -k nc4, h4toh5); otherwise fetch it again"))
    }

    async fn superblock(&mut self, at: u64) -> Result<()> {
        let bytes = self.read(at, 128.min(self.object.size - at)).await?;
        let mut cursor = Cursor::new(&bytes, "the superblock");
        cursor.skip(8)?;
        let version = cursor.version(0, 3)?;
        if version < 2 {
            cursor.skip(4)?;
        }
        let (offsets, lengths) = (cursor.u8()?, cursor.u8()?);
        if ![offsets, lengths].iter().all(|size| [2, 4, 8].contains(size)) {
            return Err(cursor.error(&format!("addresses of {offsets} bytes, lengths of {lengths}")));
        }
        (self.offsets, self.lengths) = (offsets.into(), lengths.into());
        let size = self.offsets;
        cursor.skip(if version < 2 { 1 + 2 + 2 + 4 } else { 1 })?;
        if version == 1 {
            cursor.skip(4)?;
        }
        // The stored base address is that of the superblock. It is wrong if a user block was added or removed later, so
        // it is ignored.
        cursor.skip(size)?;
        self.base = at;
        if version < 2 {
            cursor.skip(size * 3)?;
            // The entry of the root group: the address of its name, then that of its header.
            cursor.skip(size)?;
        } else {
            self.read_checked(at, 12 + 4 * size as u64).await?;
            cursor.skip(size * 2)?;
        }
        let root = cursor.address(size)?;
        self.root = root.ok_or_else(|| cursor.error("the file has no root group"))?;
        Ok(())
    }

    /// The name of an object of the file in messages.
    pub(super) fn near(&self, path: &str) -> String {
        format!("{}, /{path}", self.source.display_name(&self.object.name))
    }

    /// Bytes from an address to the end of the file.
    pub(super) fn left(&self, at: u64) -> u64 {
        self.object.size.saturating_sub(self.base).saturating_sub(at)
    }

    /// The offset in the object of `len` bytes at an address. An error if they are beyond its end.
    pub(super) fn place(&self, at: u64, len: u64) -> Result<u64> {
        let start =
            at.checked_add(self.base).filter(|start| start.checked_add(len).is_some_and(|end| end <= self.object.size));
        start.ok_or_else(|| {
            let size = self.object.size;
            damaged(format!("{len} bytes at {at} in a file of {size}: it is cut, or its metadata are damaged"))
        })
    }

    /// Reads bytes, and caches some that follow.
    pub(super) async fn read(&mut self, at: u64, len: u64) -> Result<Bytes> {
        if !self.has(at, len)? {
            let len = len.max(AHEAD).min(self.left(at));
            self.need(&[(at, len)]).await?;
        }
        self.get(at, len)
    }

    /// As [`read`](Self::read), for bytes with a checksum after them.
    pub(super) async fn read_checked(&mut self, at: u64, len: u64) -> Result<Bytes> {
        self.read(at, len.saturating_add(SUM)).await.and_then(|bytes| checked(&bytes, at))
    }

    fn has(&self, at: u64, len: u64) -> Result<bool> {
        Ok(self.pages_of(at, len)?.all(|page| self.pages.contains_key(&page)))
    }

    fn pages_of(&self, at: u64, len: u64) -> Result<std::ops::Range<u64>> {
        let start = self.place(at, len)?;
        Ok(start / PAGE..(start + len).div_ceil(PAGE))
    }

    /// Reads these `(address, length)`, unless they are cached, at the same time.
    pub(super) async fn need(&mut self, wanted: &[(u64, u64)]) -> Result<()> {
        let mut missing = BTreeSet::new();
        for (at, len) in wanted {
            missing.extend(self.pages_of(*at, *len)?.filter(|page| !self.pages.contains_key(page)));
        }
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for page in missing {
            match runs.last_mut() {
                Some(run) if page <= run.1 + GAP => run.1 = page + 1,
                _ => runs.push((page, page + 1)),
            }
        }
        let size = self.object.size;
        self.read = runs.iter().fold(self.read, |read, run| read.saturating_add((run.1 - run.0) * PAGE));
        if self.read > MOST {
            return Err(unsupported(format!("more than {MOST} bytes of metadata"))
                .with_hint("write the file with larger chunks, or as several files"));
        }
        let (source, object) = (self.source, self.object);
        let reads: Vec<_> = runs
            .into_iter()
            .map(|(first, end)| {
                let extent = object.extent(source).with_range(first * PAGE..(end * PAGE).min(size));
                async move { extent.read().await.map(|bytes| (first, bytes)) }
            })
            .collect();
        let mut reads = stream::iter(reads).buffer_unordered(AT_A_TIME);
        while let Some((first, bytes)) = reads.try_next().await? {
            let pages = bytes.len().div_ceil(PAGE as usize);
            for page in 0..pages {
                let start = page * PAGE as usize;
                let bytes = bytes.slice(start..bytes.len().min(start + PAGE as usize));
                self.pages.insert(first + page as u64, bytes);
            }
        }
        Ok(())
    }

    /// As [`get`](Self::get), for bytes with a checksum after them.
    pub(super) fn get_checked(&self, at: u64, len: u64) -> Result<Bytes> {
        self.get(at, len.saturating_add(SUM)).and_then(|bytes| checked(&bytes, at))
    }

    /// Returns cached bytes.
    pub(super) fn get(&self, at: u64, len: u64) -> Result<Bytes> {
        let start = self.place(at, len)?;
        let missing = || damaged(format!("{len} bytes at {at} were not read"));
        let mut pages = self.pages_of(at, len)?;
        let skip = (start % PAGE) as usize;
        let Some(first) = pages.next() else { return Ok(Bytes::new()) };
        let first = self.pages.get(&first).ok_or_else(missing)?;
        let len = len as usize;
        if let Some(end) = skip.checked_add(len).filter(|end| *end <= first.len()) {
            return Ok(first.slice(skip..end));
        }
        // Grows with the cached pages, so a false length allocates no memory.
        let mut out = BytesMut::from(first.get(skip..).ok_or_else(missing)?);
        for page in pages {
            let page = self.pages.get(&page).ok_or_else(missing)?;
            out.extend_from_slice(&page[..page.len().min(len - out.len())]);
        }
        if out.len() == len { Ok(out.freeze()) } else { Err(missing()) }
    }
}
