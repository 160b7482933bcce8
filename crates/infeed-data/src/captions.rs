//! The captions of COCO's images.

use std::sync::Arc;

use bytes::Bytes;
use infeed_core::{error::Result, fingerprint::Fingerprinter};
use infeed_store::{Blocks, Rest, number, text};

/// The captions of all images.
///
/// ```text
/// of an image: varint captions, texts (varint length, UTF-8)
/// ```
#[derive(Debug)]
pub(crate) struct Captions {
    /// The most bytes of the captions of an image.
    pub(crate) most: usize,
    pub(crate) records: Blocks,
}

impl Captions {
    /// Each caption with the index of its image. Those of one image keep their order.
    pub(crate) fn new(images: usize, mut captions: Vec<(usize, String)>) -> Self {
        captions.sort_by_key(|(image, _)| *image);
        let (mut most, mut rest) = (0, &captions[..]);
        let records = Blocks::of(0..images, |image, out| {
            let (of, others) = rest.split_at(rest.partition_point(|(at, _)| *at == image));
            rest = others;
            most = most.max(of.iter().map(|(_, caption)| caption.len()).sum());
            number(out, of.len() as u64);
            of.iter().for_each(|(_, caption)| text(out, caption));
        });
        Self { most, records }
    }

    /// The captions of an image.
    pub(crate) fn of(&self, image: usize) -> Result<Arc<[Bytes]>> {
        let bytes = self.records.get(image)?;
        let texts = Rest::of(&bytes).list(1, |rest| rest.text().map(|text| bytes.slice_ref(text.as_bytes())));
        texts.map(Arc::from).ok_or_else(|| self.records.damaged("its content is invalid"))
    }

    /// Adds the captions to the identity of a dataset.
    pub(crate) fn print(&self, print: Fingerprinter) -> Result<Fingerprinter> {
        let (mut all, mut ends, mut firsts) = (Vec::new(), Vec::new(), vec![0]);
        for image in 0..self.records.ends.len() {
            for caption in &*self.of(image)? {
                all.extend_from_slice(caption);
                ends.push(all.len() as u64);
            }
            firsts.push(ends.len() as u64);
        }
        let print = ends.iter().fold(print.number(ends.len() as u64), |print, end| print.number(*end));
        Ok(firsts.into_iter().fold(print, Fingerprinter::number).bytes(&all))
    }
}
