//! The positions of records: of lines, or of the items of a list.

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

/// The position of each record, then the end of the file. What is between records belongs to the one before, and what
/// is before the first to the first.
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
        scan.feed(position, &bytes).map_err(|e| at(e, position..end))?;
        position = end;
    }
    let starts = scan.finish(object.size).map_err(|e| at(e, 0..object.size))?;
    Ok(Within { starts, packing: None })
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
            return Ok(Within { starts: scan.finish(position)?, packing: Some(packing) });
        }
        scan.feed(position, &piece)?;
        position += piece.len() as u64;
    }
}

/// Finds the records in a file that comes in pieces: lines, or the items of one list.
#[derive(Debug, Default)]
enum Scan {
    /// Nothing but blanks so far.
    #[default]
    Blank,
    Lines(Lines),
    List(List),
}

impl Scan {
    fn feed(&mut self, position: u64, bytes: &[u8]) -> Result<()> {
        if let Self::Blank = self {
            let content = if position == 0 { bytes.strip_prefix(MARK).unwrap_or(bytes) } else { bytes };
            *self = match content.trim_ascii_start() {
                [] => return Ok(()),
                [b'[', ..] => Self::List(List::default()),
                _ => Self::Lines(Lines { line: position, ..Lines::default() }),
            };
        }
        match self {
            Self::Blank => {}
            Self::Lines(lines) => lines.feed(position, bytes),
            Self::List(list) => list.feed(position, bytes)?,
        }
        Ok(())
    }

    fn finish(self, size: u64) -> Result<Vec<u64>> {
        let mut starts = match self {
            Self::Blank => Vec::new(),
            Self::Lines(lines) => lines.starts,
            Self::List(list) if list.has_ended => list.starts,
            Self::List(_) => return Err(Error::corrupt("the list of records has no end")),
        };
        if let Some(first) = starts.first_mut() {
            *first = 0;
        }
        // Without records, the only position is the end.
        starts.push(if starts.is_empty() { 0 } else { size });
        Ok(starts)
    }
}

/// A byte order mark.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The lines with content.
#[derive(Debug, Default)]
struct Lines {
    starts: Vec<u64>,
    /// Where the line begins.
    line: u64,
    /// Whether it has content.
    has_content: bool,
}

impl Lines {
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
}

/// The items of a JSON list. What is in them is not checked.
#[derive(Debug, Default)]
struct List {
    starts: Vec<u64>,
    /// Brackets that are open; 1 between items.
    depth: u64,
    /// Whether an item has begun that has not ended.
    is_in_item: bool,
    is_in_text: bool,
    /// Whether the byte before is a backslash that escapes this one.
    is_escaped: bool,
    has_ended: bool,
}

impl List {
    fn feed(&mut self, position: u64, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while let [byte, after @ ..] = rest {
            let at = position + (bytes.len() - rest.len()) as u64;
            rest = after;
            if self.is_in_text {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.is_in_text = false,
                    _ => {
                        // Most bytes are in texts.
                        let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(rest.len());
                        rest = &rest[end..];
                    }
                }
                continue;
            }
            if self.has_ended {
                match byte.is_ascii_whitespace() {
                    true => continue,
                    false => {
                        return Err(Error::corrupt(format!("byte {at} comes after the end of the list of records")));
                    }
                }
            }
            if self.depth == 1 && !self.is_in_item && !matches!(byte, b',' | b']' | b' ' | b'\t' | b'\r' | b'\n') {
                self.is_in_item = true;
                self.starts.push(at);
            }
            match byte {
                b'"' => self.is_in_text = true,
                b'[' | b'{' => self.depth += 1,
                b']' | b'}' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.has_ended = self.depth == 0;
                }
                b',' if self.depth == 1 => self.is_in_item = false,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_are_those_with_content_whatever_the_pieces(
            lines in prop::collection::vec(prop::sample::select(vec!["", " ", "\t\r", "{}", "{\"a\": [1]}", " x\r"]), 0..30),
            ends in any::<bool>(), piece in 1usize..9,
        ) {
            let mut text = lines.join("\n");
            if ends {
                text.push('\n');
            }
            let mut scan = Scan::default();
            let mut at = 0;
            for part in text.as_bytes().chunks(piece) {
                scan.feed(at, part).unwrap();
                at += part.len() as u64;
            }
            let starts = scan.finish(text.len() as u64).unwrap();
            let found = starts.windows(2).map(|pair| text[pair[0] as usize..pair[1] as usize].trim().to_owned());
            let want = lines.iter().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty());
            prop_assert_eq!(found.collect::<Vec<_>>(), want.collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn items_of_a_list_are_those_that_json_has_whatever_the_pieces(
            items in prop::collection::vec(prop::sample::select(vec![
                "{}", r#"{"a": [1, {"b": "]}"}]}"#, r#"{"\\": "\"[{,"}"#, "[[],[]]", "7", "\"x,]\"", "null",
            ]), 0..20),
            between in prop::sample::select(vec![",", " , ", ",\n"]), mark in any::<bool>(), piece in 1usize..9,
        ) {
            let text = format!("{}[ {}\n]\r\n", if mark { "\u{feff}" } else { "" }, items.join(between));
            let mut scan = Scan::default();
            let mut at = 0;
            // The first piece has the bracket.
            let (first, rest) = text.as_bytes().split_at(5);
            for part in std::iter::once(first).chain(rest.chunks(piece)) {
                scan.feed(at, part).unwrap();
                at += part.len() as u64;
            }
            let starts = scan.finish(text.len() as u64).unwrap();
            let within = |(n, pair): (usize, &[u64])| {
                let text = text[pair[0] as usize..pair[1] as usize].trim_start_matches('\u{feff}').trim();
                let text = if n == 0 { text.trim_start_matches('[').trim() } else { text };
                text.trim_end_matches(['\n', '\r']).trim_end_matches(']').trim().trim_end_matches(',').trim().to_owned()
            };
            let found: Vec<String> = starts.windows(2).enumerate().map(within).collect();
            prop_assert_eq!(found.len(), items.len());
            for (found, item) in found.iter().zip(&items) {
                prop_assert!(item.starts_with(found.as_str()) && !found.is_empty(), "{} {}", found, item);
            }
        }
    }
}
