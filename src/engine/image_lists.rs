//! Lists of images: the thread that reads a record makes them, in host memory, whichever decoder makes other images.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use infeed_core::{error::Result, random::SampleRng};
use infeed_data::Value;
use infeed_pixels::{
    codec::{ImageCodec, Renderer},
    transform::Lowered,
};

/// What a decode thread needs for lists of images.
#[derive(Clone, Debug)]
pub(crate) struct ImageLists {
    pub(crate) codecs: Arc<[Arc<dyn ImageCodec>]>,
    pub(crate) max_image_bytes: u64,
}

/// Makes the images of lists on one thread.
#[derive(Debug)]
pub(super) struct ListMaker {
    renderer: Renderer,
    made: ListTimes,
}

/// Time spent on lists of images.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListTimes {
    pub(super) images: u64,
    /// Bytes of their rows.
    pub(super) bytes: usize,
    pub(super) decode: Duration,
    /// Decoding and all steps.
    pub(super) all: Duration,
}

impl ListMaker {
    pub(super) fn new(lists: &ImageLists) -> Self {
        Self { renderer: Renderer::new(&lists.codecs, lists.max_image_bytes), made: ListTimes::default() }
    }

    /// The rows of all images, one after another; each has `row_bytes` bytes and draws of its own.
    pub(super) fn make(
        &mut self,
        images: &[Value],
        (name, lowered): (&str, &Lowered),
        row_bytes: usize,
        rng: SampleRng,
    ) -> Result<Bytes> {
        let began = Instant::now();
        let mut rows = vec![0; images.len() * row_bytes];
        let places = images.iter().zip(rows.chunks_exact_mut(row_bytes)).enumerate();
        let made = places.into_iter().try_for_each(|(n, (image, row))| {
            let own = (lowered, rng.image(n as u64));
            let made = self.renderer.render(image, None, own, &mut self.made.decode, row);
            made.map_err(|error| error.at_field(format!("{name}[{n}]")))
        });
        self.made.images += images.len() as u64;
        self.made.bytes += images.len() * row_bytes;
        self.made.all += began.elapsed();
        made.map(|()| rows.into())
    }

    /// The time since the last call.
    pub(super) fn take(&mut self) -> ListTimes {
        std::mem::take(&mut self.made)
    }
}
