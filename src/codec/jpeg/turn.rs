//! EXIF orientation: how a camera was held.

use crate::types::ImageInfo;

/// Tag of the orientation, and the type that its value has: one number of 16 bits.
const ORIENTATION: [u16; 2] = [0x112, 3];

/// What makes an image upright: swapping rows with columns, then mirroring. None of them by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    swap: bool,
    /// Mirror down, across.
    mirror: [bool; 2],
}

impl Turn {
    /// What the body of an APP1 segment says, as far as it can be understood: none for what is damaged or unknown.
    pub(super) fn of_exif(body: &[u8]) -> Self {
        find(body).map_or(Self::default(), Self::of_number)
    }

    /// The meaning of the numbers 1 to 8.
    const fn of_number(number: u16) -> Self {
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

    /// The upright image of one that lies.
    pub(super) const fn info(self, lying: ImageInfo) -> ImageInfo {
        let (height, width) = if self.swap { (lying.width, lying.height) } else { (lying.height, lying.width) };
        ImageInfo { height, width, ..lying }
    }

    /// Turns interleaved pixels.
    pub(super) fn run(self, lying: &ImageInfo, from: &[u8], to: &mut [u8]) {
        let (channels, info) = (usize::from(lying.channels), self.info(*lying));
        let (height, width) = (info.height as usize, info.width as usize);
        for (y, row) in to.chunks_exact_mut(width * channels).enumerate() {
            let y = if self.mirror[0] { height - 1 - y } else { y };
            for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                let x = if self.mirror[1] { width - 1 - x } else { x };
                let (y, x) = if self.swap { (x, y) } else { (y, x) };
                pixel.copy_from_slice(&from[(y * lying.width as usize + x) * channels..][..channels]);
            }
        }
    }
}

/// The number in the first folder of an EXIF segment, which is a small TIFF file.
fn find(body: &[u8]) -> Option<u16> {
    let tiff = body.strip_prefix(b"Exif\0\0")?;
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
    let mut found = entries.filter(|&at| [short(at), short(at + 2)] == ORIENTATION.map(Some));
    found.next().and_then(|at| short(at + 8))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An EXIF segment that says `number` behind another tag.
    pub(in super::super) fn exif(number: u16, big: bool) -> Vec<u8> {
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
            assert_eq!(find(&exif(number, big)), Some(number));
            // Cut anywhere, it is none.
            let whole = exif(number, big);
            assert!((0..whole.len() - 3).all(|len| find(&whole[..len]).is_none()));
        }
        assert_eq!(Turn::of_exif(b"http://ns.adobe.com/xap/1.0/"), Turn::default());
        assert_eq!(Turn::of_exif(&exif(9, true)), Turn::default());
    }

    #[test]
    fn images_stand_upright() {
        // A letter F, as each number says that it lies.
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
            let info = ImageInfo::interleaved_u8(lying.len() as u32, lying[0].len() as u32, 1);
            let mut to = vec![0; 12];
            let turn = Turn::of_number(number);
            assert_eq!(turn.info(info), ImageInfo::interleaved_u8(4, 3, 1));
            turn.run(&info, lying.concat().as_bytes(), &mut to);
            assert_eq!(String::from_utf8(to).unwrap(), upright.concat(), "orientation {number}");
        }
    }
}
