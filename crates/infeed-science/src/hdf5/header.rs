//! The header of an object: its messages.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use infeed_core::error::Result;

use super::{
    cursor::Cursor,
    damaged,
    file::{File, SUM},
    unsupported,
};

pub(super) mod kind {
    pub(crate) const SPACE: u16 = 0x01;
    pub(crate) const LINK_INFO: u16 = 0x02;
    pub(crate) const TYPE: u16 = 0x03;
    pub(crate) const OLD_FILL: u16 = 0x04;
    pub(crate) const FILL: u16 = 0x05;
    pub(crate) const LINK: u16 = 0x06;
    pub(crate) const EXTERNAL: u16 = 0x07;
    pub(crate) const LAYOUT: u16 = 0x08;
    pub(crate) const FILTERS: u16 = 0x0b;
    pub(crate) const ATTRIBUTE: u16 = 0x0c;
    pub(crate) const CONTINUATION: u16 = 0x10;
    pub(crate) const SYMBOLS: u16 = 0x11;
    pub(crate) const ATTRIBUTE_INFO: u16 = 0x15;
}

/// Most blocks of one header. The HDF5 library writes a few.
const MOST_BLOCKS: usize = 4096;
/// Bit of a message's flags: the message is stored elsewhere, and the body is its address.
const SHARED: u8 = 2;

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) kind: u16,
    flags: u8,
    /// Address of the body.
    pub(super) at: u64,
    pub(super) body: Bytes,
}

#[derive(Debug)]
pub(super) struct Header {
    pub(super) messages: Vec<Message>,
}

impl Header {
    pub(super) async fn read(file: &mut File<'_>, at: u64) -> Result<Self> {
        let head = file.read(at, 16.min(file.left(at))).await?;
        let mut cursor = Cursor::new(&head, "the header of an object");
        let mut messages = Vec::new();
        let newer = head.starts_with(b"OHDR");
        let mut ordered = false;
        let (start, len) = if newer {
            cursor.skip(4)?;
            cursor.version(2, 2)?;
            let flags = cursor.u8()?;
            ordered = flags & 4 != 0;
            let times = if flags & 0x20 == 0 { 0 } else { 16 };
            let counts = if flags & 0x10 == 0 { 0 } else { 4 };
            let size = 1 << (flags & 3);
            let before = 6 + times + counts;
            let bytes = file.read(at, before + size).await?;
            let mut cursor = Cursor::new(&bytes, "the header of an object");
            cursor.skip(before as usize)?;
            let len = cursor.uint(size as usize)?;
            file.read_checked(at, (before + size).saturating_add(len)).await?;
            (at + before + size, len)
        } else {
            cursor.version(1, 1)?;
            cursor.skip(7)?;
            let len = cursor.u32()?;
            (at + 16, len.into())
        };
        let mut blocks = VecDeque::from([(start, len, false)]);
        let mut seen = HashSet::new();
        while let Some((at, len, continued)) = blocks.pop_front() {
            if !seen.insert(at) || seen.len() > MOST_BLOCKS {
                return Err(damaged("the header of an object has a loop"));
            }
            let (bytes, mut start) = match continued && newer {
                // The length includes a signature at the start and a checksum at the end.
                true => {
                    let bytes = file.read_checked(at, len.saturating_sub(SUM)).await?;
                    Cursor::new(&bytes, "a part of an object's header").expect(b"OCHK")?;
                    (bytes, 4)
                }
                false => (file.read(at, len).await?, 0),
            };
            let end = bytes.len();
            let head = match (newer, ordered) {
                (false, _) => 8,
                (true, false) => 4,
                (true, true) => 6,
            };
            // Bytes at the end that are too short for a message are a gap.
            while end - start >= head {
                let mut cursor = Cursor::new(&bytes[start..end], "a message of an object's header");
                let kind = if newer { cursor.u8()?.into() } else { cursor.u16()? };
                let size = usize::from(cursor.u16()?);
                let flags = cursor.u8()?;
                start += head;
                if size > end - start {
                    return Err(cursor.error("it ends too early"));
                }
                let message = Message { kind, flags, at: at + start as u64, body: bytes.slice(start..start + size) };
                start += size;
                if kind == kind::CONTINUATION {
                    let mut cursor = Cursor::new(&message.body, "the continuation of an object's header");
                    let next = cursor.address(file.offsets)?;
                    let len = cursor.uint(file.lengths)?;
                    blocks.push_back((next.ok_or_else(|| cursor.error("its address is undefined"))?, len, true));
                } else if kind != 0 {
                    messages.push(message);
                }
            }
        }
        Ok(Self { messages })
    }

    /// The first message of this kind.
    pub(super) fn find(&self, kind: u16) -> Option<&Message> {
        self.messages.iter().find(|message| message.kind == kind)
    }

    pub(super) fn has(&self, kind: u16) -> bool {
        self.find(kind).is_some()
    }

    /// The first message of this kind. If it is shared, it is read from the header of the other object.
    pub(super) async fn follow(&self, file: &mut File<'_>, kind: u16) -> Result<Option<Message>> {
        let Some(message) = self.find(kind) else { return Ok(None) };
        if message.flags & SHARED == 0 {
            return Ok(Some(message.clone()));
        }
        let mut cursor = Cursor::new(&message.body, "a shared message");
        let version = cursor.version(1, 3)?;
        let way = cursor.u8()?;
        match version {
            1 => cursor.skip(6)?,
            3 if way == 1 => {
                return Err(
                    unsupported("messages that the file shares in a heap").with_hint("rewrite the file with h5repack")
                );
            }
            _ => {}
        }
        let at = cursor.address(file.offsets)?.ok_or_else(|| cursor.error("its address is undefined"))?;
        let other = Box::pin(Self::read(file, at)).await?;
        match other.find(kind) {
            Some(message) if message.flags & SHARED == 0 => Ok(Some(message.clone())),
            _ => Err(damaged("a shared message is missing from the header that it names")),
        }
    }
}
