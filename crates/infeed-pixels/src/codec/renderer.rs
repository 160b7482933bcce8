//! Makes pixels of one image at a time, for higher-level crates.

use std::{sync::Arc, time::Duration};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    random::SampleRng,
};
use infeed_data::Value;

use super::{
    ImageCodec, ImageHeader, corrupt,
    reader::{Drawing, Reader, codec_of, header_of},
};
use crate::transform::{Lowered, RowMaker};

/// Makes pixels of one image at a time, for callers that store them elsewhere than in a batch's rows.
#[derive(Debug)]
pub struct Renderer {
    reader: Reader,
    maker: RowMaker,
}

impl Renderer {
    #[doc(hidden)]
    pub fn new(codecs: &Arc<[Arc<dyn ImageCodec>]>, max_image_bytes: u64) -> Self {
        Self { reader: Reader::new(codecs, max_image_bytes), maker: RowMaker::new() }
    }

    /// The header of an image, before it is decoded.
    pub fn header(&self, value: &Value) -> Result<ImageHeader> {
        match value {
            Value::Pixels { info, .. } => Ok((*info).into()),
            Value::Encoded(file) if file.is_empty() => Err(corrupt("file is empty")),
            Value::Encoded(file) => header_of(self.reader.codecs(), file),
            _ => Err(Error::new(ErrorKind::Internal, "an image field holds no image")),
        }
    }

    /// Name of the codec that reads the file.
    pub fn kind(&self, file: &[u8]) -> Result<&'static str> {
        codec_of(self.reader.codecs(), file).map(ImageCodec::name)
    }

    /// Decodes an image and resamples it into `out`, one row of `lowered`, with the draws of `rng`. `header` is that of
    /// [`header`](Self::header), if the caller has it. Adds the time of decoding to `decode`.
    pub fn render(
        &mut self,
        value: &Value,
        header: Option<&ImageHeader>,
        (lowered, rng): (&Lowered, SampleRng),
        decode: &mut Duration,
        out: &mut [u8],
    ) -> Result<()> {
        let view = [Some(lowered.clone())];
        let draws = Drawing { rng, instances: None };
        let (_, image, drawn) = self.reader.read(value, header, &view, draws, decode, true)?;
        self.maker.run(lowered, &drawn[0], image.decoded(), out)
    }
}
