//! The orientation of images: reading it from their files, and turning images upright.

use std::sync::Arc;

#[cfg(not(feature = "jpeg"))]
use infeed_core::error::Error;
use infeed_core::error::Result;
use serde::{Deserialize, Serialize};

use super::ImageCodec;

/// Whether images are turned and mirrored as their files say: EXIF in JPEG, WebP and PNG, the Orientation tag in TIFF.
/// Cameras store pixels in the order of their sensor, and record how the camera was held.
///
/// `Apply` needs the feature `jpeg`. Images that need turning are decoded whole, on the CPU. A mask is turned as its
/// own file says.
///
/// ```
/// use infeed::codec::Orientation;
///
/// assert_eq!(serde_json::to_string(&Orientation::default())?, "\"auto\"");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Orientation {
    /// As the dataset's own library does: `Apply` for tables and folders of Hugging Face and for YOLO, which are
    /// [`upright`](../dataset/struct.Schema.html#structfield.upright), otherwise `Ignore`.
    #[default]
    Auto,
    /// Pixels as they are stored, as in torchvision's folders and in tifffile.
    Ignore,
    /// Upright, as in Hugging Face's datasets.
    Apply,
}

impl Orientation {
    /// What `Auto` is for a dataset: `Ignore` in a build without the feature `jpeg`.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_dataset(self, upright: bool) -> Self {
        match self {
            Self::Auto if upright && cfg!(feature = "jpeg") => Self::Apply,
            Self::Auto => Self::Ignore,
            set => set,
        }
    }

    /// The built-in codecs with this orientation.
    #[doc(hidden)]
    #[cfg(feature = "jpeg")]
    pub fn of(self, built_in: Vec<Arc<dyn ImageCodec>>) -> Result<Vec<Arc<dyn ImageCodec>>> {
        Ok(match self {
            Self::Auto | Self::Ignore => built_in,
            Self::Apply => built_in.into_iter().map(upright::upright).collect(),
        })
    }

    /// The built-in codecs with this orientation.
    #[doc(hidden)]
    #[cfg(not(feature = "jpeg"))]
    pub fn of(self, built_in: Vec<Arc<dyn ImageCodec>>) -> Result<Vec<Arc<dyn ImageCodec>>> {
        match self {
            Self::Auto | Self::Ignore => Ok(built_in),
            Self::Apply => Err(Error::config("orientation is apply, in a build without the feature `jpeg`")
                .with_hint("build with it, or omit the orientation")),
        }
    }
}

#[cfg(feature = "jpeg")]
mod upright {
    use std::{ops::Range, sync::Arc};

    use infeed_core::{
        error::{Error, ErrorKind, Result},
        types::ImageInfo,
    };
    use infeed_data::{exif::exif_of, tiff::parse_tiff};
    use infeed_jpeg::Orientation as Turn;

    use crate::codec::{ImageCodec, ImageHeader, PixelBuffer, Window, jpeg::Jpeg};

    /// The codec for upright images; the same codec if its files have no orientation.
    pub(super) fn upright(codec: Arc<dyn ImageCodec>) -> Arc<dyn ImageCodec> {
        let says: fn(&[u8]) -> Turn = match codec.name() {
            "jpeg" => return Arc::new(Jpeg::new().orientation(true)),
            "png" | "webp" => |file| exif_of(file).map_or_else(Turn::default, Turn::of_tiff),
            "tiff" => {
                |file| parse_tiff(file).map_or_else(|_| Turn::default(), |tiff| Turn::of_number(tiff.orientation))
            }
            // JPEG XL applies its orientation itself; other formats have none.
            _ => return codec,
        };
        Arc::new(Upright { inner: codec, says })
    }

    /// Turns the images that another codec decodes.
    #[derive(Debug)]
    struct Upright {
        inner: Arc<dyn ImageCodec>,
        /// Reads the orientation of a file.
        says: fn(&[u8]) -> Turn,
    }

    /// The other codec's header, and how to turn its image.
    struct Lying {
        header: ImageHeader,
        turn: Turn,
    }

    impl Upright {
        fn turned(&self, bytes: &[u8], header: ImageHeader) -> ImageHeader {
            let turn = (self.says)(bytes);
            let lying = header.info;
            let [height, width] = turn.size([lying.height, lying.width]);
            let info = ImageInfo { height, width, ..lying };
            let beside = if turn.is_upright() { 0 } else { info.len_bytes() };
            let peak = header.peak_bytes.saturating_add(beside);
            ImageHeader::from(info).with_peak_bytes(peak).with_own(Lying { header, turn })
        }
    }

    impl ImageCodec for Upright {
        fn name(&self) -> &'static str {
            self.inner.name()
        }

        fn recognises(&self, head: &[u8]) -> bool {
            self.inner.recognises(head)
        }

        fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
            self.inner.header(bytes).map(|header| self.turned(bytes, header))
        }

        fn mask_header(&self, bytes: &[u8]) -> Result<ImageHeader> {
            self.inner.mask_header(bytes).map(|header| self.turned(bytes, header))
        }

        fn is_interchangeable(&self) -> bool {
            self.inner.is_interchangeable()
        }

        fn identity(&self) -> Option<String> {
            self.inner.identity().map(|own| format!("{own}, upright"))
        }

        fn in_place(&self, bytes: &[u8]) -> Result<Option<(ImageInfo, Range<usize>)>> {
            let found = self.inner.in_place(bytes)?;
            Ok(found.filter(|_| (self.says)(bytes).is_upright()))
        }

        fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
            let Lying { header: lying, turn } = header.own()?;
            if turn.is_upright() {
                return self.inner.decode(bytes, lying, rows, out);
            }
            self.inner.decode(bytes, lying, 0..lying.height, out)?;
            let len = usize::try_from(header.len_bytes()).unwrap_or(usize::MAX);
            if out.rows != (0..lying.height) || out.planes(&lying.info).is_some() || out.data.len() < len {
                let what = format!("the {} codec did not give the whole image", self.name());
                return Err(Error::new(ErrorKind::Internal, what));
            }
            let from = std::mem::take(&mut out.data);
            let to = out.hold(0..header.height, len)?;
            let size = header.dtype.size();
            let (planes, pixel) = match header.planar {
                true => (usize::from(header.channels), size),
                false => (1, usize::from(header.channels) * size),
            };
            let plane = len / planes.max(1);
            for (from, to) in from.chunks_exact(plane.max(1)).zip(to.chunks_exact_mut(plane.max(1))) {
                turn.turn([lying.height, lying.width], pixel, from, to);
            }
            Ok(())
        }

        fn window(&self, bytes: &[u8], header: &ImageHeader, window: &Window, out: &mut PixelBuffer) -> Result<()> {
            let Lying { header: lying, turn } = header.own()?;
            match turn.is_upright() {
                true => self.inner.window(bytes, lying, window, out),
                false => self.decode(bytes, header, window.rows.clone(), out),
            }
        }
    }

    #[cfg(all(test, feature = "png", feature = "tiff", feature = "webp"))]
    mod tests {
        use super::*;
        use crate::codec::{Orientation, codec_contract, codecs};

        /// EXIF data with orientation `number`.
        fn exif(number: u8) -> Vec<u8> {
            [&b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"[..], &[number, 0, 0, 0, 0, 0, 0, 0]].concat()
        }

        fn image() -> image::RgbImage {
            image::RgbImage::from_fn(5, 3, |x, y| image::Rgb([x as u8, y as u8, 9]))
        }

        fn png(number: u8, behind: bool) -> Vec<u8> {
            let mut file = std::io::Cursor::new(Vec::new());
            image().write_to(&mut file, image::ImageFormat::Png).unwrap();
            let mut file = file.into_inner();
            // After the header, or after the pixels.
            let end = if behind { file.len() - 12 } else { 33 };
            let exif = exif(number);
            let mut hash = flate2::Crc::new();
            hash.update(&[b"eXIf", &exif[..]].concat());
            let chunk = [&(exif.len() as u32).to_be_bytes()[..], b"eXIf", &exif, &hash.sum().to_be_bytes()].concat();
            file.splice(end..end, chunk);
            file
        }

        fn webp(number: u8, prefix: &[u8]) -> Vec<u8> {
            let mut file = std::io::Cursor::new(Vec::new());
            image().write_to(&mut file, image::ImageFormat::WebP).unwrap();
            let simple = file.into_inner();
            let exif = [prefix, &exif(number)].concat();
            let mut body = b"WEBPVP8X\x0a\0\0\0\x08\0\0\0\x04\0\0\x02\0\0".to_vec();
            body.extend(&simple[12..]);
            body.extend([&b"EXIF"[..], &(exif.len() as u32).to_le_bytes(), &exif].concat());
            [&b"RIFF"[..], &(body.len() as u32).to_le_bytes(), &body].concat()
        }

        /// Planes of 16-bit values, one page each.
        fn tiff(number: u8) -> Vec<u8> {
            let mut file = b"MM\0*\0\0\0\x08".to_vec();
            for page in 0..2u32 {
                let at = file.len() as u32;
                let pixels = at + 2 + 9 * 12 + 4;
                file.extend(9u16.to_be_bytes());
                for (tag, value) in [
                    (256u16, 5),
                    (257, 3),
                    (258, 16),
                    (259, 1),
                    (262, 1),
                    (273, pixels),
                    (274, number.into()),
                    (277, 1),
                    (279, 30),
                ] {
                    file.extend([tag.to_be_bytes(), 4u16.to_be_bytes()].concat());
                    file.extend([1, value].map(u32::to_be_bytes).concat());
                }
                file.extend(if page == 0 { pixels + 30 } else { 0 }.to_be_bytes());
                file.extend((0..15u16).flat_map(|n| (n / 5 * 256 + n % 5 + 1000 * page as u16).to_be_bytes()));
            }
            file
        }

        fn decoded(orientation: Orientation, file: &[u8]) -> (ImageInfo, Vec<u8>) {
            let all = orientation.of(codecs()).unwrap();
            let codec = all.iter().find(|codec| codec.recognises(&file[..file.len().min(64)])).unwrap();
            let header = codec.header(file).unwrap();
            let mut out = PixelBuffer::default();
            codec.decode(file, &header, 0..header.height, &mut out).unwrap();
            (header.info, out.data[..header.len_bytes() as usize].to_vec())
        }

        #[test]
        fn images_stand_upright_whatever_their_kind() {
            type File<'a> = &'a dyn Fn(u8) -> Vec<u8>;
            let kinds: [(&str, File<'_>); 5] = [
                ("png", &|number| png(number, false)),
                ("png, said behind its pixels", &|number| png(number, true)),
                ("webp", &|number| webp(number, b"")),
                ("webp of a JPEG's", &|number| webp(number, b"Exif\0\0")),
                ("tiff", &tiff),
            ];
            for (name, file) in kinds {
                let (info, lying) = decoded(Orientation::Ignore, &file(6));
                assert_eq!([info.height, info.width], [3, 5], "{name}");
                assert_eq!(decoded(Orientation::Apply, &file(1)), (info, lying.clone()), "{name}");
                assert_eq!(decoded(Orientation::Apply, &file(77)), (info, lying.clone()), "{name}");
                for number in 2..=8 {
                    let (turned, pixels) = decoded(Orientation::Apply, &file(number));
                    let turn = Turn::of_number(number.into());
                    assert_eq!([turned.height, turned.width], turn.size([3, 5]), "{name} {number}");
                    let planes = if info.planar { usize::from(info.channels) } else { 1 };
                    let plane = lying.len() / planes;
                    let mut want = vec![0; lying.len()];
                    for (from, to) in lying.chunks(plane).zip(want.chunks_mut(plane)) {
                        turn.turn([3, 5], plane / 15, from, to);
                    }
                    assert_eq!(pixels, want, "{name} {number}");
                }
            }
            assert_eq!(codecs().len(), Orientation::Apply.of(codecs()).unwrap().len());
        }

        #[test]
        fn codecs_that_turn_keep_the_contract() {
            for codec in Orientation::Apply.of(codecs()).unwrap() {
                match codec.name() {
                    "png" => codec_contract(&*codec, &[("lying", &png(6, false)), ("upright", &png(1, false))]),
                    "tiff" => codec_contract(&*codec, &[("lying", &tiff(8))]),
                    _ => {}
                }
            }
        }
    }
}
