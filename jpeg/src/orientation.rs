//! EXIF orientation: how the camera was held.

#![forbid(unsafe_code)]

/// The tag of the orientation, and the type of its value: a 16-bit number.
const TAG: [u16; 2] = [0x112, 3];

/// How to make an image upright: swap rows with columns, then mirror. The default does neither.
///
/// ```
/// # let mut file = Vec::new();
/// # let mut encoder = jpeg_encoder::Encoder::new(&mut file, 80);
/// # let exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
/// # encoder.add_app_segment(1, exif.to_vec())?;
/// # encoder.encode(&[120; 3 * 32 * 16], 32, 16, jpeg_encoder::ColorType::Rgb)?;
/// // A photograph of 16 rows of 32 pixels, taken with the camera on its side.
/// let orientation = infeed_jpeg::Header::parse(&file)?.orientation();
/// assert!(!orientation.is_upright());
/// assert_eq!(orientation.size([16, 32]), [32, 16]);
/// let image = infeed_jpeg::Decoder::new().decode(&file)?.upright(orientation);
/// assert_eq!((image.height, image.width), (32, 16));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orientation {
    swap: bool,
    /// Whether to mirror vertically, and horizontally.
    mirror: [bool; 2],
}

impl Orientation {
    /// The orientation in the body of an APP1 segment; the default if it is damaged or unknown.
    pub(crate) fn of_exif(body: &[u8]) -> Self {
        body.strip_prefix(b"Exif\0\0").map_or(Self::default(), Self::of_tiff)
    }

    /// The orientation in the EXIF data of a file of any kind: a small TIFF, without the `Exif` prefix. The default if
    /// it is damaged or unknown.
    #[must_use]
    pub fn of_tiff(tiff: &[u8]) -> Self {
        find(tiff).map_or(Self::default(), Self::of_number)
    }

    /// The orientation for a number from 1 to 8 of EXIF or of TIFF's tag 274; the default for other numbers.
    #[must_use]
    pub const fn of_number(number: u16) -> Self {
        let (swap, down, across) = match number {
            2 => (false, false, true),
            3 => (false, true, true),
            4 => (false, true, false),
            5 => (true, false, false),
            6 => (true, false, true),
            7 => (true, true, true),
            8 => (true, true, false),
            _ => (false, false, false),
        };
        Self { swap, mirror: [down, across] }
    }

    /// Whether pixels are already upright as they are stored.
    #[must_use]
    pub fn is_upright(self) -> bool {
        self == Self::default()
    }

    /// Height and width of the upright image, for a stored image of this size.
    #[must_use]
    pub const fn size(self, [height, width]: [u32; 2]) -> [u32; 2] {
        if self.swap { [width, height] } else { [height, width] }
    }

    /// Turns interleaved pixels of `channels` channels. `lying` is the height and width of the stored image.
    ///
    /// # Panics
    /// If a slice is shorter than the image.
    pub fn turn(self, lying: [u32; 2], channels: usize, from: &[u8], to: &mut [u8]) {
        let [height, width] = self.size(lying).map(|side| side as usize);
        let to = &mut to[..height * width * channels];
        if to.is_empty() {
            return;
        }
        for (y, row) in to.chunks_exact_mut(width * channels).enumerate() {
            let y = if self.mirror[0] { height - 1 - y } else { y };
            for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                let x = if self.mirror[1] { width - 1 - x } else { x };
                let (y, x) = if self.swap { (x, y) } else { (y, x) };
                pixel.copy_from_slice(&from[(y * lying[1] as usize + x) * channels..][..channels]);
            }
        }
    }
}

/// The number in the first directory of EXIF data, which are a small TIFF file.
fn find(tiff: &[u8]) -> Option<u16> {
    let big = match tiff.get(..4)? {
        b"MM\0*" => true,
        b"II*\0" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let two = tiff.get(at..)?.first_chunk()?;
        Some(if big { u16::from_be_bytes(*two) } else { u16::from_le_bytes(*two) })
    };
    let four = tiff.get(4..)?.first_chunk()?;
    let folder = if big { u32::from_be_bytes(*four) } else { u32::from_le_bytes(*four) } as usize;
    let entries = (0..usize::from(short(folder)?)).map(|n| folder + 2 + 12 * n);
    let mut found = entries.filter(|&at| [short(at), short(at + 2)] == TAG.map(Some));
    found.next().and_then(|at| short(at + 8))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An EXIF segment with orientation `number` after another tag.
    pub(crate) fn exif(number: u16, big: bool) -> Vec<u8> {
        let short = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let long = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut body = b"Exif\0\0".to_vec();
        body.extend(if big { b"MM\0*" } else { b"II*\0" });
        body.extend(long(8));
        body.extend(short(2));
        for (tag, value) in [(0x10f, 7), (0x112, number)] {
            body.extend([short(tag), short(3)].concat());
            body.extend(long(1));
            body.extend([short(value), short(0)].concat());
        }
        body
    }

    #[test]
    fn the_number_is_found_in_both_orders_and_nowhere_else() {
        for (number, big) in (0..10).flat_map(|n| [(n, true), (n, false)]) {
            let whole = &exif(number, big)[6..];
            assert_eq!(find(whole), Some(number));
            // Truncated anywhere, it has no orientation.
            assert!((0..whole.len() - 3).all(|len| find(&whole[..len]).is_none()));
        }
        assert_eq!(Orientation::of_exif(b"http://ns.adobe.com/xap/1.0/"), Orientation::default());
        assert_eq!(Orientation::of_exif(&exif(9, true)), Orientation::default());
    }

    #[test]
    fn images_stand_upright() {
        // A letter F, stored with each of the orientations.
        let upright = ["###", "#..", "##.", "#.."];
        let lying: [&[&str]; 8] = [
            &["###", "#..", "##.", "#.."],
            &["###", "..#", ".##", "..#"],
            &["..#", ".##", "..#", "###"],
            &["#..", "##.", "#..", "###"],
            &["####", "#.#.", "#..."],
            &["#...", "#.#.", "####"],
            &["...#", ".#.#", "####"],
            &["####", ".#.#", "...#"],
        ];
        for (number, lying) in (1..).zip(lying) {
            let size = [lying.len() as u32, lying[0].len() as u32];
            let mut to = vec![0; 12];
            let orientation = Orientation::of_number(number);
            assert_eq!(orientation.size(size), [4, 3]);
            orientation.turn(size, 1, lying.concat().as_bytes(), &mut to);
            assert_eq!(String::from_utf8(to).unwrap(), upright.concat(), "orientation {number}");
        }
    }
}
