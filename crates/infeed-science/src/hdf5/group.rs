//! The objects that a group links to.

use infeed_core::error::Result;

use super::{
    cursor::Cursor,
    damaged,
    file::File,
    header::{Header, kind},
    heap::{self, Fractal},
    tree, unsupported,
};

/// Most objects of a file. A file with more has a dataset per record, which this reader is not made for.
pub(super) const MOST_OBJECTS: usize = 16 << 10;

/// Whether a header belongs to a group.
pub(super) fn is_group(header: &Header) -> bool {
    [kind::SYMBOLS, kind::LINK_INFO, kind::LINK].into_iter().any(|kind| header.has(kind))
}

/// Names of the linked objects, with the addresses of their headers. Soft links and links to other files are ignored.
pub(super) async fn links(file: &mut File<'_>, header: &Header) -> Result<Vec<(String, u64)>> {
    let mut links = Vec::new();
    if let Some(message) = header.find(kind::SYMBOLS) {
        let mut cursor = Cursor::new(&message.body, "a table of names");
        let tree = cursor.address(file.offsets)?;
        let names = cursor.address(file.offsets)?;
        if let (Some(tree), Some(names)) = (tree, names) {
            symbols(file, tree, names, &mut links).await?;
        }
    }
    for message in header.messages.iter().filter(|message| message.kind == kind::LINK) {
        links.extend(link(&message.body, file.offsets)?);
    }
    if let Some(message) = header.find(kind::LINK_INFO) {
        let mut cursor = Cursor::new(&message.body, "the link info of a group");
        cursor.version(0, 0)?;
        if cursor.u8()? & 1 != 0 {
            cursor.skip(8)?;
        }
        let heap = cursor.address(file.offsets)?;
        let names = cursor.address(file.offsets)?;
        if let (Some(heap), Some(names)) = (heap, names) {
            let heap = Fractal::read(file, heap).await?;
            let tree = tree::second(file, names).await?;
            most(tree.records.len())?;
            // The id follows the hash of the name, 4 bytes.
            for record in tree.records {
                let id = record.get(4..).ok_or_else(|| damaged("a link without a name"))?;
                let body = heap.object(file, id).await?;
                links.extend(link(&body, file.offsets)?);
            }
        }
    }
    most(links.len())?;
    Ok(links)
}

pub(super) fn most(objects: usize) -> Result<()> {
    if objects <= MOST_OBJECTS {
        return Ok(());
    }
    Err(unsupported(format!("more than {MOST_OBJECTS} objects in one file"))
        .with_hint("a record is a row of datasets: write one dataset of many rows, not a dataset for each record"))
}

async fn symbols(file: &mut File<'_>, root: u64, names: u64, links: &mut Vec<(String, u64)>) -> Result<()> {
    let names = heap::local(file, names).await?;
    let lengths = file.lengths;
    let leaves = tree::first(file, root, tree::GROUP, lengths).await?;
    let heads: Vec<_> = leaves.iter().map(|(_, at)| (*at, 8)).collect();
    file.need(&heads).await?;
    let entry = 2 * file.offsets + 24;
    let mut bodies = Vec::new();
    for (at, len) in heads {
        let bytes = file.get(at, len)?;
        let mut cursor = Cursor::new(&bytes, "a table of names");
        cursor.expect(b"SNOD")?;
        cursor.version(1, 1)?;
        cursor.skip(1)?;
        bodies.push((at + len, u64::from(cursor.u16()?) * entry as u64));
    }
    file.need(&bodies).await?;
    for (at, len) in bodies {
        let bytes = file.get(at, len)?;
        most(links.len() + bytes.len() / entry)?;
        for entry in bytes.chunks_exact(entry) {
            let mut cursor = Cursor::new(entry, "a table of names");
            let name = cursor.uint(file.offsets)?;
            let header = cursor.address(file.offsets)?;
            let soft = cursor.u32()? == 2;
            if let Some(header) = header.filter(|_| !soft) {
                links.push((heap::text(&names, name)?, header));
            }
        }
    }
    Ok(())
}

/// Parses a link; `None` for a soft link or one to another file.
fn link(body: &[u8], offsets: usize) -> Result<Option<(String, u64)>> {
    let mut cursor = Cursor::new(body, "a link");
    cursor.version(1, 1)?;
    let flags = cursor.u8()?;
    let kind = if flags & 8 == 0 { 0 } else { cursor.u8()? };
    if flags & 4 != 0 {
        cursor.skip(8)?;
    }
    if flags & 16 != 0 {
        cursor.skip(1)?;
    }
    let len = cursor.uint(1 << (flags & 3))?;
    let name = heap::name(cursor.take(usize::try_from(len).unwrap_or(usize::MAX))?)?;
    if kind != 0 {
        return Ok(None);
    }
    Ok(cursor.address(offsets)?.map(|at| (name, at)))
}
