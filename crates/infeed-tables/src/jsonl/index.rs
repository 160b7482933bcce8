//! The positions of lines.

use infeed_core::{
    error::{Error, Result},
    report::Stage,
};
use infeed_data::passes::Window;
use infeed_store::{Object, Source};

use crate::places::Places;

/// Bytes that are scanned at a time.
const STRIDE: u64 = 1 << 20;

/// Data of a file.
#[derive(Debug)]
pub(super) struct Lines {
    /// The position of each line with content, then the end of the file. Empty lines belong to the one before them, and
    /// those at the beginning to the first.
    pub(super) starts: Vec<u64>,
}

impl Places for Lines {
    async fn index(source: &Source, object: &Object) -> Result<Self> {
        let at = |e: Error, range| e.at_stage(Stage::Open).at_object(source.display_name(&object.name)).at_range(range);
        let mut window = Window::new(source, object)?;
        let mut scan = Scan::default();
        let mut position = 0;
        while position < object.size {
            let end = (position + STRIDE).min(object.size);
            let bytes = window.get(position, end - position).await.map_err(|e| at(e, position..end))?;
            scan.feed(position, &bytes);
            position = end;
        }
        Ok(Self { starts: scan.finish(object.size) })
    }

    fn of(starts: Vec<u64>, form: u64) -> Option<Self> {
        (form == 0).then_some(Self { starts })
    }

    fn starts(&self) -> &[u64] {
        &self.starts
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
            None => return vec![size],
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
