//! WebP: [`Webp`] by libwebp, [`RustWebp`] without C.

#[cfg(feature = "webp")]
mod lib_webp;
mod rust;
#[cfg(all(test, feature = "webp"))]
mod tests;

#[cfg(feature = "webp")]
pub use self::lib_webp::Webp;
pub use self::rust::RustWebp;

fn recognises(head: &[u8]) -> bool {
    head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP")
}
