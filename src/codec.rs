//! Kinds of image files, and how they are decoded.
//!
//! Easy to get wrong:
//!
//! 1. The first bytes of a file decide its kind, never its name: photo collections hold PNGs called `.JPEG`.
//! 2. A codec decodes what the transform reads, not the whole image: only its rows ([`ImageCodec::decode`]), or a
//!    window of rows and columns, at a reduced size, as planes of brightness and colour ([`ImageCodec::window`]).
//! 3. Sizes come from headers, which may be wrong: no memory for pixels is allocated before
//!    [`ImageHeader::peak_bytes`] was compared with `max_image_bytes`.

#[doc(inline)]
pub use infeed_core::types::ImageInfo;
#[cfg(feature = "bmp")]
#[doc(inline)]
pub use infeed_pixels::codec::Bmp;
#[cfg(feature = "gif")]
#[doc(inline)]
pub use infeed_pixels::codec::Gif;
#[cfg(feature = "jxl")]
#[doc(inline)]
pub use infeed_pixels::codec::Jxl;
#[cfg(feature = "png")]
#[doc(inline)]
pub use infeed_pixels::codec::Png;
#[cfg(any(feature = "webp", feature = "webp-rust"))]
#[doc(inline)]
pub use infeed_pixels::codec::RustWebp;
#[cfg(feature = "tiff")]
#[doc(inline)]
pub use infeed_pixels::codec::Tiff;
#[cfg(feature = "webp")]
#[doc(inline)]
pub use infeed_pixels::codec::Webp;
#[doc(inline)]
pub use infeed_pixels::codec::{
    Decode, GpuSplit, ImageCodec, ImageHeader, Netpbm, Orientation, PixelBuffer, Window, codec_contract, codecs,
};
#[cfg(feature = "jpeg")]
#[doc(inline)]
pub use infeed_pixels::codec::{DecodeIndex, Jpeg};
