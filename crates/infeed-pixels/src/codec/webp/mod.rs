//! WebP: [`Webp`] by libwebp, [`RustWebp`] without C.

#[cfg(feature = "webp")]
mod lib_webp;
mod rust;
#[cfg(all(test, feature = "webp"))]
mod tests;

#[cfg(feature = "webp")]
pub use self::lib_webp::Webp;
pub use self::rust::RustWebp;
