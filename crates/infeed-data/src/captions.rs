//! The captions of COCO's images.

use std::sync::Arc;

use bytes::Bytes;
use infeed_core::fingerprint::Fingerprinter;

/// The captions of all images, in one text.
#[derive(Debug)]
pub(crate) struct Captions {
    text: Bytes,
    /// Where each caption ends in the text, ordered by image.
    ends: Vec<usize>,
    /// The first caption of each image, and the end.
    firsts: Vec<u32>,
}

impl Captions {
    /// Each caption with the index of its image. Those of one image keep their order.
    pub(crate) fn new(images: usize, mut captions: Vec<(usize, String)>) -> Self {
        captions.sort_by_key(|(image, _)| *image);
        let (mut text, mut ends) = (Vec::new(), Vec::with_capacity(captions.len()));
        let mut firsts = vec![0; images + 1];
        for (image, caption) in captions {
            text.extend_from_slice(caption.as_bytes());
            ends.push(text.len());
            firsts[image + 1] += 1;
        }
        for image in 0..images {
            firsts[image + 1] += firsts[image];
        }
        Self { text: text.into(), ends, firsts }
    }

    /// Where caption `at` begins, or where the one before it ends.
    fn start(&self, at: u32) -> usize {
        (at as usize).checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// The captions of an image.
    pub(crate) fn of(&self, image: usize) -> Arc<[Bytes]> {
        let one = |at| self.text.slice(self.start(at)..self.start(at + 1));
        (self.firsts[image]..self.firsts[image + 1]).map(one).collect()
    }

    /// The most bytes of the captions of an image.
    pub(crate) fn most(&self) -> usize {
        self.firsts.windows(2).map(|of| self.start(of[1]) - self.start(of[0])).max().unwrap_or(0)
    }

    /// Adds the captions to the identity of a dataset.
    pub(crate) fn print(&self, print: Fingerprinter) -> Fingerprinter {
        let ends = self.ends.iter().fold(print.number(self.ends.len() as u64), |print, end| print.number(*end as u64));
        let firsts = self.firsts.iter().fold(ends, |print, first| print.number(u64::from(*first)));
        firsts.bytes(&self.text)
    }

    /// Bytes that they take in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + self.ends.len() * size_of::<usize>() + self.firsts.len() * size_of::<u32>()
    }
}
