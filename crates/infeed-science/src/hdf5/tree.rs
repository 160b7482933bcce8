//! B-trees of versions 1 and 2. All nodes of a level are read at the same time.

use std::collections::HashSet;

use bytes::Bytes;
use infeed_core::error::Result;

use super::{
    cursor::Cursor,
    damaged,
    file::{File, SUM},
    unsupported,
};

/// The deepest tree that is read. Even with two children per node, it has more leaves than any file.
const DEEPEST: usize = 32;

/// Kinds of trees of version 1: of a group's names, and of chunks.
pub(super) const GROUP: u8 = 0;
pub(super) const CHUNKS: u8 = 1;

fn circles() -> infeed_core::error::Error {
    damaged("a tree with a node of two parents")
}

/// The entries in the leaves of a tree of version 1: each a key and an address.
pub(super) async fn first(file: &mut File<'_>, root: u64, kind: u8, key: usize) -> Result<Vec<(Bytes, u64)>> {
    let what = "a tree that finds chunks or names";
    let (head, size) = (8 + 2 * file.offsets as u64, file.offsets);
    let mut entries = Vec::new();
    let mut nodes = vec![root];
    let mut seen = HashSet::new();
    let mut level = None;
    while !nodes.is_empty() {
        if !nodes.iter().all(|at| seen.insert(*at)) {
            return Err(circles());
        }
        let heads: Vec<_> = nodes.iter().map(|at| (*at, head)).collect();
        file.need(&heads).await?;
        let mut counts = Vec::new();
        for at in &nodes {
            let bytes = file.get(*at, head)?;
            let mut cursor = Cursor::new(&bytes, what);
            cursor.expect(b"TREE")?;
            cursor.expect(&[kind])?;
            let found = cursor.u8()?;
            if *level.get_or_insert(found) != found || usize::from(found) > DEEPEST {
                return Err(cursor.error("its nodes have wrong levels"));
            }
            counts.push(u64::from(cursor.u16()?));
        }
        let bodies: Vec<_> = nodes.iter().zip(&counts).map(|(at, n)| (at + head, n * (key + size) as u64)).collect();
        file.need(&bodies).await?;
        let mut below = Vec::new();
        for (at, len) in bodies {
            let bytes = file.get(at, len)?;
            for start in (0..bytes.len()).step_by(key + size) {
                let child = Cursor::new(&bytes[start + key..], what).address(size)?;
                let child = child.ok_or_else(|| damaged("a tree with an undefined child address"))?;
                match level {
                    Some(0) => entries.push((bytes.slice(start..start + key), child)),
                    _ => below.push(child),
                }
            }
        }
        level = level.and_then(|level: u8| level.checked_sub(1));
        nodes = below;
    }
    Ok(entries)
}

/// A tree of version 2: its kind and its records.
#[derive(Debug)]
pub(super) struct Second {
    pub(super) kind: u8,
    pub(super) records: Vec<Bytes>,
}

/// Bytes needed for numbers up to `most`.
pub(super) const fn bytes_for(most: u64) -> usize {
    (64 - most.leading_zeros() as usize).div_ceil(8) + (most == 0) as usize
}

pub(super) async fn second(file: &mut File<'_>, at: u64) -> Result<Second> {
    let (offsets, lengths) = (file.offsets, file.lengths);
    let bytes = file.read_checked(at, 16 + (offsets + 2 + lengths) as u64).await?;
    let mut cursor = Cursor::new(&bytes, "a tree of version 2");
    cursor.expect(b"BTHD")?;
    cursor.version(0, 0)?;
    let kind = cursor.u8()?;
    let node = u64::from(cursor.u32()?);
    let record = usize::from(cursor.u16()?);
    let depth = usize::from(cursor.u16()?);
    cursor.skip(2)?;
    let root = cursor.address(offsets)?;
    let in_root = u64::from(cursor.u16()?);
    let none = Second { kind, records: Vec::new() };
    let Some(root) = root.filter(|_| in_root > 0) else { return Ok(none) };
    // A node has 10 bytes of head and checksum.
    let room = node.checked_sub(10).filter(|_| record > 0 && depth <= DEEPEST);
    let room = room.ok_or_else(|| cursor.error("its nodes have no room for records"))?;

    // For each level, the lowest first: the most records of a node, and of the whole tree below it.
    let lowest = room / record as u64;
    let count_bytes = bytes_for(lowest);
    let mut levels = vec![(lowest, lowest, 0usize)];
    for level in 1..=depth {
        let (_, below, _) = levels[level - 1];
        let pointer = offsets + count_bytes + if level > 1 { bytes_for(below) } else { 0 };
        let most = room.saturating_sub(pointer as u64) / (record + pointer) as u64;
        let all = (most + 1).saturating_mul(below).saturating_add(most);
        levels.push((most, all, pointer));
    }

    let mut records = Vec::new();
    let mut nodes = vec![(root, in_root)];
    let mut seen = HashSet::new();
    for level in (0..=depth).rev() {
        let (most, _, pointer) = levels[level];
        let mut wanted = Vec::new();
        for (at, count) in &nodes {
            if !seen.insert(*at) {
                return Err(circles());
            }
            if *count > most {
                return Err(damaged("a tree with more records than its nodes hold"));
            }
            let pointers = if level > 0 { (count + 1) * pointer as u64 } else { 0 };
            wanted.push((*at, 6 + count * record as u64 + pointers + SUM));
        }
        file.need(&wanted).await?;
        let mut below = Vec::new();
        for ((at, count), (_, len)) in nodes.iter().zip(&wanted) {
            let bytes = file.get_checked(*at, *len - SUM)?;
            let mut cursor = Cursor::new(&bytes, "a node of a tree of version 2");
            cursor.expect(if level > 0 { b"BTIN" } else { b"BTLF" })?;
            cursor.version(0, 0)?;
            cursor.expect(&[kind])?;
            for i in 0..*count as usize {
                cursor.skip(record)?;
                records.push(bytes.slice(6 + i * record..6 + (i + 1) * record));
            }
            while level > 0 && cursor.left() > 0 {
                let child = cursor.address(offsets)?.ok_or_else(|| cursor.error("a child address is undefined"))?;
                below.push((child, cursor.uint(count_bytes)?));
                cursor.skip(pointer - offsets - count_bytes)?;
            }
        }
        nodes = below;
    }
    if records.len() as u64 > super::limits::MOST_CHUNKS {
        return Err(unsupported(format!("a tree of {} records", records.len())));
    }
    Ok(Second { kind, records })
}
