//! From encoded bytes to finished rows.
//!
//! ```text
//! engine queue ─ Job (some rows of one batch) ─▶ Worker::submit … Worker::poll ─▶ Finished (rows + one outcome each)
//!                                                  │ CPU: ImageCodec (JPEG, PNG, …) → pixels or planes → resample into the row
//!                                                  └ GPU: bitstream or pixels up, decode and resample on one stream
//! ```
//!
//! With several devices in one process there is one decoder for each, combined by `several`.
//!
//! Easy to get wrong:
//!
//! 1. The first bytes of a file decide its kind, never its name: photo collections hold PNGs called `.JPEG`.
//! 2. A codec decodes what the transform reads, not the whole image: only its rows ([`ImageCodec::decode`]), or a
//!    window of rows and columns, at a reduced size, as planes of brightness and colour ([`ImageCodec::window`]).
//! 3. Sizes come from headers, which may be wrong: no memory for pixels is allocated before
//!    [`ImageHeader::peak_bytes`] was compared with `max_image_bytes`.

mod contract;
mod cpu;
#[doc(hidden)]
pub mod decoder;
mod decoder_contract;
mod errors;
mod image_codec;
#[cfg(feature = "jxl")]
mod jxl;
#[cfg(feature = "tiff")]
mod lzw;
mod netpbm;
mod orientation;
mod packed;
#[doc(hidden)]
pub mod reader;
mod renderer;
mod several;

#[cfg(feature = "bmp")]
mod bmp;
#[cfg(feature = "gif")]
mod gif;
#[cfg(feature = "jpeg")]
#[doc(hidden)]
pub mod jpeg;
#[cfg(feature = "png")]
mod png;
#[cfg(any(feature = "gif", feature = "jxl", feature = "png", feature = "webp-rust"))]
mod still;
#[cfg(feature = "tiff")]
mod tiff;
mod volume;
#[cfg(feature = "webp-rust")]
mod webp;

use std::sync::Arc;

pub use self::decoder::KeepPixels;
#[cfg(any(feature = "gif", feature = "jxl", feature = "png", feature = "tiff", feature = "webp-rust"))]
use self::errors::cause;
use self::errors::{corrupt, unsupported};
#[cfg(feature = "jpeg")]
pub use self::jpeg::{DecodeIndex, LearnScratch};
pub use self::netpbm::Netpbm;
pub use self::orientation::Orientation;
pub use self::renderer::Renderer;
pub use self::several::Several;
pub use self::volume::write_volume;
pub use self::{
    contract::codec_contract,
    cpu::Cpu,
    decoder::{Class, ClassSet, Decode, Decoder, Finished, GpuSplit, Item, Job, Outcome, Wait, Worker},
    decoder_contract::decoder_contract,
    image_codec::{ImageCodec, ImageHeader, PixelBuffer, Window},
};

pub use crate::{
    kernels::{Pixels, Plane, Planes, Resampler},
    transform::{Decoded, Drawn, Lowered, RowMaker},
};
pub use infeed_core::{
    random::{Draws, SampleRng},
    rows::Rows,
    types::ImageInfo,
};

#[cfg(feature = "webp-rust")]
pub use self::webp::RustWebp;

/// The list of built-in codecs: for each, its feature, its module, and its type.
macro_rules! codecs {
    ($($feature:literal $module:ident $codec:ident)*) => {
        $(#[cfg(feature = $feature)]
        pub use self::$module::$codec;)*

        /// The built-in codecs: one for each enabled feature, and Netpbm. `webp-rust` adds one only without `webp`.
        ///
        /// ```
        /// # #[cfg(feature = "png")] {
        /// use infeed::codec::codecs;
        ///
        /// let head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        /// let codec = codecs().into_iter().find(|codec| codec.recognises(head)).expect("PNG is built in");
        /// assert_eq!(codec.name(), "png");
        /// # }
        /// ```
        #[must_use]
        pub fn codecs() -> Vec<Arc<dyn ImageCodec>> {
            vec![
                $(
                    #[cfg(feature = $feature)]
                    Arc::new($codec::default()),
                )*
                #[cfg(all(feature = "webp-rust", not(feature = "webp")))]
                Arc::new(RustWebp),
                Arc::new(Netpbm),
            ]
        }
    };
}

codecs! {
    "jpeg" jpeg Jpeg
    "png" png Png
    "webp" webp Webp
    "bmp" bmp Bmp
    "gif" gif Gif
    "tiff" tiff Tiff
    "jxl" jxl Jxl
}
