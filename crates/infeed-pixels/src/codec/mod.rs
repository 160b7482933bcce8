//! From encoded bytes to finished rows.
//!
//! ```text
//! engine queue ─ Job (some rows of one batch) ─▶ Worker::submit … Worker::poll ─▶ Finished (rows + one outcome each)
//!                                                  │ CPU: ImageCodec (JPEG, PNG, …) → pixels or planes → resample into the row
//!                                                  └ GPU: bitstream or pixels up, decode and resample on one stream
//! ```
//!
//! Several devices in one process: a decoder for each, put together by `several`.
//!
//! What a newcomer would get wrong:
//!
//! 1. A file's kind is told by its first bytes, never by its name: photo collections hold PNGs called `.JPEG`.
//! 2. A codec decodes what the transform will read, not the whole image: rows at least ([`ImageCodec::decode`]), or a
//!    window with its columns, at a size, as planes of brightness and colour ([`ImageCodec::window`]).
//! 3. Sizes come from headers, which may lie: nothing is allocated for pixels before [`ImageHeader::peak_bytes`] was
//!    compared with `max_image_bytes`.

mod contract;
mod cpu;
#[doc(hidden)]
pub mod decoder;
mod decoder_contract;
mod errors;
mod image_codec;
#[cfg(feature = "jxl")]
mod jxl;
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
#[cfg(any(feature = "gif", feature = "jxl", feature = "png", feature = "webp"))]
mod still;
#[cfg(feature = "tiff")]
mod tiff;
mod volume;
#[cfg(feature = "webp")]
mod webp;

use std::sync::Arc;

pub use self::decoder::KeepPixels;
#[cfg(any(feature = "gif", feature = "jxl", feature = "png", feature = "tiff", feature = "webp"))]
use self::errors::cause;
use self::errors::{corrupt, unsupported};
#[cfg(feature = "jpeg")]
pub use self::jpeg::{DecodeIndex, LearnRoom};
pub use self::netpbm::Netpbm;
pub use self::orientation::Orientation;
pub use self::renderer::Renderer;
pub use self::several::Several;
pub use self::volume::write_volume;
pub use self::{
    contract::codec_contract,
    cpu::Cpu,
    decoder::{Class, ClassSet, Decode, Decoder, Finished, Item, Job, Outcome, Split, Wait, Worker},
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

/// The list of built-in codecs: a feature, and the type in the file of that name.
macro_rules! codecs {
    ($($feature:literal $module:ident $codec:ident)*) => {
        $(#[cfg(feature = $feature)]
        pub use self::$module::$codec;)*

        /// The codecs that are built in: one for each feature that is on, and Netpbm's.
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
