//! The positions of lines.

use std::io::Read as _;

use infeed_core::{
    error::{Error, Result},
    report::Stage,
};
use infeed_data::{
    packed::{Packing, reader},
    passes::Window,
};
use infeed_store::{Object, Source};

use crate::{
    packed::{broken, read_packed},
    records::Within,
};

/// Bytes that are scanned at a time.
const STRIDE: u64 = 1 << 20;

/// The position of each line with content, then the end of the file. Empty lines belong to the one before them, and
/// those at the beginning to the first.
pub(super) async fn index(source: &Source, object: &Object) -> Result<Within> {
    let at = |e: Error, range| e.at_stage(Stage::Open).at_object(source.display_name(&object.name)).at_range(range);
    let mut window = Window::new(source, object)?;
    let mut scan = Scan::default();
    let mut position = 0;
    while position < object.size {
        let end = (position + STRIDE).min(object.size);
        let bytes = window.get(position, end - position).await.map_err(|e| at(e, position..end))?;
        if position == 0
            && let Some(packing) = packing_of(&bytes)
        {
            let whole = |e: Error| at(e, 0..object.size);
            let bytes = read_packed(source, object).await.map_err(whole)?;
            return index_packed(packing, &bytes).map_err(whole);
        }
        scan.feed(position, &bytes);
        position = end;
    }
    Ok(Within { starts: scan.finish(object.size), packing: None })
}

/// The compression of a file with this beginning. A line begins with a brace.
fn packing_of(head: &[u8]) -> Option<Packing> {
    match head {
        [0x1f, 0x8b, ..] => Some(Packing::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
        [b'B', b'Z', b'h', ..] => Some(Packing::Bzip2),
        _ => None,
    }
}

/// The same for a compressed file, while it is decompressed.
fn index_packed(packing: Packing, bytes: &[u8]) -> Result<Within> {
    let mut content = reader(packing, bytes, u64::MAX)?;
    let (mut scan, mut position, mut piece) = (Scan::default(), 0, Vec::new());
    loop {
        piece.clear();
        content.by_ref().take(STRIDE).read_to_end(&mut piece).map_err(|e| broken(packing, e))?;
        if piece.is_empty() {
            return Ok(Within { starts: scan.finish(position), packing: Some(packing) });
        }
        scan.feed(position, &piece);
        position += piece.len() as u64;
    }
}

/// Finds the lines in a file that comes in pieces.
#[derive(Debug, Default)]
struct Scan {
    starts: Vec<u64>,
    /// Where the line begins.
    line: u64,
    /// Whether it has content.
    has_content: bool,
}

impl Scan {
    fn feed(&mut self, position: u64, bytes: &[u8]) {
        let mut at = position;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.has_content && !part.trim_ascii().is_empty() {
                self.has_content = true;
                self.starts.push(self.line);
            }
            at += part.len() as u64;
            if part.ends_with(b"\n") {
                (self.line, self.has_content) = (at, false);
            }
        }
    }

    fn finish(mut self, size: u64) -> Vec<u64> {
        match self.starts.first_mut() {
            Some(first) => *first = 0,
            // No lines.
            None => return vec![0],
        }
        self.starts.push(size);
        self.starts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_are_those_with_content_whatever_the_pieces(
            lines in prop::collection::vec(prop::sample::select(vec!["", " ", "\t\r", "{}", "[1, 2]", " x\r"]), 0..30),
            ends in any::<bool>(), piece in 1usize..9,
        ) {
            let mut text = lines.join("\n");
            if ends {
                text.push('\n');
            }
            let mut scan = Scan::default();
            let mut at = 0;
            for part in text.as_bytes().chunks(piece) {
                scan.feed(at, part);
                at += part.len() as u64;
            }
            let starts = scan.finish(text.len() as u64);
            let found = starts.windows(2).map(|pair| text[pair[0] as usize..pair[1] as usize].trim().to_owned());
            let want = lines.iter().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty());
            prop_assert_eq!(found.collect::<Vec<_>>(), want.collect::<Vec<_>>());
        }
    }
}
