//! Points: where units of an image begin, and how the points of a file are packed.

/// The position in a file's data at which a unit of the image begins, and the values that its blocks add to.
///
/// From the highest bit: 28 bits of position (in bits from the scan's first byte, including stuffing), three values of
/// 12 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point(u64);

impl Point {
    /// Whether a point can hold the values of this number of components: not for CMYK and YCCK.
    pub(crate) fn is_for(components: usize) -> bool {
        components <= 3
    }

    /// `None` if a number is out of range: in files of more than 32 MiB, and in damaged files.
    pub(crate) fn new(byte: usize, bit: usize, sums: &[i32; 4]) -> Option<Self> {
        let place = u64::try_from(byte).ok().filter(|byte| *byte < 1 << 25)? << 3 | (bit & 7) as u64;
        let mut point = place;
        for &sum in &sums[..3] {
            if !(-2048..2048).contains(&sum) {
                return None;
            }
            point = point << 12 | (sum & 0xfff) as u64;
        }
        Some(Self(point))
    }

    /// Byte in the scan's data.
    pub(crate) fn byte(self) -> usize {
        (self.0 >> 39) as usize
    }

    pub(crate) fn bit(self) -> usize {
        (self.0 >> 36 & 7) as usize
    }

    pub(crate) fn sums(self) -> [i32; 4] {
        let sum = |n: u32| ((self.0 << (28 + 12 * n)) as i64 >> 52) as i32;
        [sum(0), sum(1), sum(2), 0]
    }

    /// A point with random content, for tests.
    #[cfg(test)]
    pub(crate) fn any(bits: u64) -> Self {
        Self(bits)
    }

    /// Position and values as non-negative numbers; the least and greatest determine their numbers of bits.
    fn parts(self) -> [u64; 4] {
        let [a, b, c, _] = self.sums().map(|sum| (sum + 2048) as u64);
        [self.0 >> 36, a, b, c]
    }

    fn of_parts([place, a, b, c]: [u64; 4]) -> Self {
        let sum = |part: u64| (part & 0xfff) ^ 0x800;
        Self((place & 0x0fff_ffff) << 36 | sum(a) << 24 | sum(b) << 12 | sum(c))
    }
}

/// The largest distance of points, as a power of two: 128 units, one point per row for images up to 1024 or 2048 pixels
/// wide.
pub(super) const COARSEST: u8 = 7;

/// The arrangement of a file's points: one at the first unit of each row, and one at each further multiple of the
/// distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spacing {
    /// Distance of points in units (8 to 32 pixels wide), as a power of two.
    pub(crate) log2: u8,
    /// Points per row of units.
    pub(crate) a_row: u32,
}

impl Spacing {
    /// A point every `1 << log2` units, for rows of `units` units.
    pub(crate) fn new(log2: u8, units: usize) -> Self {
        // A row of an image has at most 8192 units.
        Self { log2, a_row: units.div_ceil(1 << log2) as u32 }
    }

    /// For a progressive file: one point per scan in each row. They are never thinned.
    pub(crate) fn of_scans(scans: usize) -> Self {
        Self::new(COARSEST, scans << COARSEST)
    }

    /// Units per row.
    pub(crate) fn units(self) -> usize {
        (self.a_row as usize) << self.log2
    }

    /// Rows of units that this many points cover, and the number of points; more is better.
    pub(super) fn reach(self, points: usize) -> (usize, usize) {
        (points / self.a_row.max(1) as usize, points)
    }

    /// Distance of points in units.
    pub(crate) fn every(self) -> usize {
        1 << self.log2
    }
}

/// Bytes before the points: the spacing, the number of points, the bits of each part, and the least value of each sum.
const HEAD: usize = 18;

/// The points of a file in as few bits as their parts need: 4 to 6 bytes per point.
///
/// ```text
/// u8 log2 of the spacing, [u8; 4] bits of each part, 0, u16 points a row, u32 points, [u16; 3] least of each sum
/// the points, from the lowest bit on: place, three sums
/// ```
pub(super) fn pack(points: &[Point], spacing: Spacing) -> Box<[u8]> {
    let mut ends = [[u64::MAX, 0]; 4];
    for point in points {
        for ([least, most], part) in ends.iter_mut().zip(point.parts()) {
            (*least, *most) = (part.min(*least), part.max(*most));
        }
    }
    // The first position is at or near the scan's beginning.
    ends[0][0] = 0;
    let ends = ends.map(|[least, most]| [least.min(most), most]);
    let widths = ends.map(|[least, most]| u64::BITS - (most - least).leading_zeros());
    let bits = widths.iter().sum::<u32>() as usize;
    let mut out = Vec::with_capacity(HEAD + (bits * points.len()).div_ceil(8));
    out.push(spacing.log2);
    out.extend(widths.map(|width| width as u8));
    out.push(0);
    out.extend((spacing.a_row as u16).to_le_bytes());
    out.extend((points.len() as u32).to_le_bytes());
    out.extend(ends[1..].iter().flat_map(|[least, _]| (*least as u16).to_le_bytes()));
    let (mut held, mut count) = (0_u128, 0);
    for point in points {
        for ((part, [least, _]), width) in point.parts().into_iter().zip(ends).zip(widths) {
            held |= u128::from(part - least) << count;
            count += width;
        }
        let whole = count as usize / 8;
        out.extend_from_slice(&held.to_le_bytes()[..whole]);
        (held, count) = (held >> (8 * whole), count % 8);
    }
    if count > 0 {
        out.push(held as u8);
    }
    out.into()
}

/// The header before packed points.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    spacing: Spacing,
    count: usize,
    /// Bits of each part, and the least value of each sum.
    widths: [u32; 4],
    least: [u64; 4],
}

impl Head {
    /// `None` if the bytes are not packed points.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (head, packed) = bytes.split_first_chunk::<HEAD>()?;
        let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let spacing = Spacing { log2: head[0], a_row: short(6).into() };
        let count = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let widths = [head[1], head[2], head[3], head[4]].map(u32::from);
        let possible = spacing.log2 <= COARSEST && widths[0] <= 28 && widths[1..].iter().all(|width| *width <= 12);
        // Each point of a file has its own position.
        let places = count == 1 || count > 1 && widths[0] > 0;
        let least = [0, short(12), short(14), short(16)].map(u64::from);
        let head = Self { spacing, count, widths, least };
        (possible && places && head.bits().checked_mul(count)?.div_ceil(8) == packed.len()).then_some(head)
    }

    /// Bits per point.
    fn bits(&self) -> usize {
        self.widths.iter().sum::<u32>() as usize
    }

    /// Point number `at` of `packed`.
    #[inline]
    fn point(&self, packed: &[u8], at: usize) -> Point {
        let from = at * self.bits();
        let held = match packed.get(from / 8..).and_then(<[u8]>::first_chunk::<16>) {
            Some(bytes) => u128::from_le_bytes(*bytes),
            None => {
                let mut last = [0; 16];
                let rest = &packed[(from / 8).min(packed.len())..];
                last[..rest.len()].copy_from_slice(rest);
                u128::from_le_bytes(last)
            }
        };
        let mut held = (held >> (from % 8)) as u64;
        let mut parts = self.least;
        for (part, width) in parts.iter_mut().zip(self.widths) {
            *part += held & ((1 << width) - 1);
            held >>= width;
        }
        Point::of_parts(parts)
    }
}

/// Spacing and number of packed points; `None` if the bytes are not packed points.
pub(super) fn head(bytes: &[u8]) -> Option<(Spacing, usize)> {
    Head::read(bytes).map(|head| (head.spacing, head.count))
}

/// Points that [`pack`] packed, unpacked one by one: a crop needs two per row. The memory is reused from file to file.
#[derive(Debug, Default)]
pub(crate) struct Points {
    bytes: Vec<u8>,
    head: Head,
}

impl Points {
    /// Removes all points.
    pub(crate) fn clear(&mut self) {
        self.head = Head::default();
    }

    /// Loads points with `read`, which fills the bytes. Empty if the file has another number of units per row, or the
    /// bytes are not packed points.
    pub(super) fn read(&mut self, units: usize, read: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<Spacing> {
        self.clear();
        self.bytes.clear();
        let head = read(&mut self.bytes).and_then(|()| Head::read(&self.bytes));
        self.head = head.filter(|head| head.spacing == Spacing::new(head.spacing.log2, units))?;
        Some(self.head.spacing)
    }

    pub(crate) fn len(&self) -> usize {
        self.head.count
    }

    pub(crate) fn get(&self, at: usize) -> Option<Point> {
        (at < self.head.count).then(|| self.head.point(&self.bytes[HEAD..], at))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Point> {
        (0..self.head.count).map(|at| self.head.point(&self.bytes[HEAD..], at))
    }
}

/// Unpacks all points of [`pack`]. Other bytes give meaningless points, or `None`.
pub(super) fn unpack(bytes: &[u8], points: &mut Vec<Point>) -> Option<Spacing> {
    let head = Head::read(bytes)?;
    points.clear();
    points.extend((0..head.count).map(|at| head.point(&bytes[HEAD..], at)));
    Some(head.spacing)
}

/// Keeps every second point of each row, if rows have more than one.
pub(super) fn thin(points: &mut Vec<Point>, spacing: Spacing) -> Spacing {
    let mut at = 0;
    points.retain(|_| {
        let kept = at % 2 == 0;
        at = if at + 1 >= spacing.a_row { 0 } else { at + 1 };
        kept
    });
    Spacing { log2: spacing.log2 + 1, a_row: spacing.a_row.div_ceil(2) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    #[test]
    fn a_point_is_what_was_put_into_it() {
        for sums in [[0, 0, 0, 0], [-2048, 2047, -1, 0], [5, -6, 7, 0]] {
            let point = Point::new(33_554_431, 7, &sums).unwrap();
            assert_eq!((point.byte(), point.bit(), point.sums()), (33_554_431, 7, sums));
            assert_eq!(Point::of_parts(point.parts()), point);
        }
        assert!(Point::new(1 << 25, 0, &[0; 4]).is_none());
        assert!(Point::new(0, 0, &[0, 2048, 0, 0]).is_none());
        assert!(Point::new(0, 0, &[0, 0, -2049, 0]).is_none());
    }

    #[test]
    fn packed_points_come_back_as_they_were() {
        let mut draws = Draws::new([7, 0, 0]);
        for count in [1, 2, 3, 17, 200] {
            for (most, wide) in [(1, 1), (100, 1), (1 << 25, 4096), (90_000, 700)] {
                let mut draw = |most: u64| draws.below(most) as i32;
                let mut points: Vec<Point> = (0..count)
                    .map(|_| {
                        let sums = [0; 4].map(|_: i32| draw(wide) - wide as i32 / 2);
                        Point::new(draw(most) as usize, draw(8) as usize, &sums).unwrap()
                    })
                    .collect();
                points[0] = Point::new(1, 1, &[-1, 1, 0, 0]).unwrap();
                let spacing = Spacing::new(4, 100);
                let packed = pack(&points, spacing);
                let mut again = Vec::new();
                assert_eq!(unpack(&packed, &mut again), Some(spacing));
                assert_eq!(again, points);
                for cut in 0..packed.len() {
                    assert_eq!(unpack(&packed[..cut], &mut Vec::new()), None, "{cut} of {}", packed.len());
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_points_or_none() {
        let mut draws = Draws::new([1, 0, 0]);
        for n in 0..20_000 {
            let mut bytes: Vec<u8> = (0..draws.below(80)).map(|_| draws.below(256) as u8).collect();
            // Almost valid headers.
            if let Some(head) = bytes.first_chunk_mut::<HEAD>().filter(|_| n % 2 == 0) {
                head[0] = 4;
                head[1..5].fill(draws.below(9) as u8);
                head[8..12].fill(0);
                head[8] = draws.below(20) as u8;
            }
            let mut points = Vec::new();
            if unpack(&bytes, &mut points).is_some() {
                assert!(!points.is_empty());
            }
        }
    }

    #[test]
    fn thinner_points_are_those_of_a_wider_spacing() {
        for units in [1, 7, 8, 9, 31, 32, 33, 63] {
            // A point for each unit that has one; its position is its number.
            let at = |log2: u8, known: usize| -> Vec<Point> {
                let noted = (0..5 * units).filter(|unit| unit % units % (1 << log2) == 0).chain([5 * units]);
                noted.filter(|unit| *unit <= known).map(|unit| Point::new(unit, 0, &[0; 4]).unwrap()).collect()
            };
            for known in 0..=5 * units {
                let (mut points, mut spacing) = (at(3, known), Spacing::new(3, units));
                for log2 in 4..=COARSEST {
                    spacing = thin(&mut points, spacing);
                    assert_eq!((&points, spacing), (&at(log2, known), Spacing::new(log2, units)), "{units} {known}");
                }
            }
        }
    }
}
