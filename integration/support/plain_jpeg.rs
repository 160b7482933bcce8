//! The plainest JPEG decoder that there can be, to hold the real one against: a bit at a time, whole images, one value
//! after the other, as T.81 and libjpeg's sources say. It shares no code and no idea with `infeed-jpeg`.

use std::sync::LazyLock;

/// What came out of a file.
#[derive(Debug)]
pub struct Plain {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
    pub pixels: Vec<u8>,
    /// Whether all coefficients are small enough that 16 bits hold what the transform makes of them. Decoders differ in
    /// what they make of others, which no encoder writes.
    pub tame: bool,
    /// How many scans were read.
    pub scans: usize,
}

/// Why there are no pixels.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// Progressive, ink, colour that is no whole part of brightness, …: not for this decoder.
    Kind,
    /// Damaged or cut off.
    Damage,
}

use Refused::{Damage, Kind};

type Result<T> = std::result::Result<T, Refused>;

#[derive(Clone, Default)]
struct Codes {
    /// For each length, the first code and the symbols.
    lengths: Vec<(u32, Vec<u8>)>,
}

struct Component {
    id: u8,
    across: usize,
    down: usize,
    quant: usize,
    /// Values in rows of `pitch`.
    plane: Vec<u8>,
    pitch: usize,
    seen: bool,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The byte that is read by bits, and how many of them are left.
    byte: u8,
    left: u32,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).ok_or(Damage)?;
        self.at += 1;
        Ok(byte)
    }

    fn marker(&mut self) -> Result<u8> {
        loop {
            if self.next()? != 0xff {
                continue;
            }
            let mut code = self.next()?;
            while code == 0xff {
                code = self.next()?;
            }
            if code != 0 {
                return Ok(code);
            }
        }
    }

    fn segment(&mut self) -> Result<Vec<u8>> {
        let length = usize::from(self.next()?) << 8 | usize::from(self.next()?);
        let body = self.bytes.get(self.at..self.at + length.checked_sub(2).ok_or(Damage)?).ok_or(Damage)?;
        self.at += body.len();
        Ok(body.to_vec())
    }

    fn bit(&mut self) -> Result<u32> {
        if self.left == 0 {
            let start = self.at;
            self.byte = self.next()?;
            if self.byte == 0xff {
                let mut code = self.next()?;
                while code == 0xff {
                    code = self.next()?;
                }
                if code != 0 {
                    self.at = start;
                    return Err(Damage);
                }
            }
            self.left = 8;
        }
        self.left -= 1;
        Ok(u32::from(self.byte >> self.left & 1))
    }

    fn symbol(&mut self, codes: &Codes) -> Result<u8> {
        let mut code = 0;
        for (first, symbols) in &codes.lengths {
            code = code << 1 | self.bit()?;
            if let Some(symbol) = code.checked_sub(*first).and_then(|n| symbols.get(n as usize)) {
                return Ok(*symbol);
            }
        }
        Err(Damage)
    }

    fn value(&mut self, size: u32) -> Result<i32> {
        let mut value = 0;
        for _ in 0..size {
            value = value << 1 | self.bit()? as i32;
        }
        Ok(if size > 0 && value < 1 << (size - 1) { value - (1 << size) + 1 } else { value })
    }
}

#[derive(Default)]
struct Tables {
    quant: [Option<[u16; 64]>; 4],
    codes: [[Option<Codes>; 4]; 2],
    interval: usize,
}

impl Tables {
    fn read(&mut self, marker: u8, mut body: &[u8]) -> Result<()> {
        let take = |body: &mut &[u8], n: usize| -> Result<Vec<u8>> {
            let (head, rest) = body.split_at_checked(n).ok_or(Damage)?;
            *body = rest;
            Ok(head.to_vec())
        };
        if marker == 0xdd {
            let n = take(&mut body, 2)?;
            self.interval = usize::from(n[0]) << 8 | usize::from(n[1]);
            return Ok(());
        }
        while !body.is_empty() {
            let head = take(&mut body, 1)?[0];
            let (class, slot) = (usize::from(head >> 4), usize::from(head & 15));
            if slot > 3 {
                return Err(Damage);
            }
            if marker == 0xdb {
                let values = take(&mut body, if class == 0 { 64 } else { 128 })?;
                let value = |n: usize| match class {
                    0 => values[n].into(),
                    _ => u16::from(values[2 * n]) << 8 | u16::from(values[2 * n + 1]),
                };
                self.quant[slot] = Some(std::array::from_fn(value));
                continue;
            }
            let counts = take(&mut body, 16)?;
            let (mut codes, mut code) = (Codes::default(), 0u32);
            for (length, &count) in (1..).zip(&counts) {
                codes.lengths.push((code, take(&mut body, count.into())?));
                code += u32::from(count);
                if code > 1 << length {
                    return Err(Damage);
                }
                code <<= 1;
            }
            *self.codes.get_mut(class).ok_or(Damage)?.get_mut(slot).ok_or(Damage)? = Some(codes);
        }
        Ok(())
    }
}

/// Where the coefficients of a file stand in a block.
static ZIGZAG: LazyLock<[usize; 64]> = LazyLock::new(|| {
    let mut places: Vec<usize> = (0..64).collect();
    places.sort_by_key(|at| {
        let (row, column) = (at / 8, at % 8);
        (row + column, if (row + column) % 2 == 1 { row } else { column })
    });
    places.try_into().expect("64 of them")
});

/// libjpeg's `jidctint`, on one row or column.
fn transform(input: [i64; 8], shift: u32) -> [i64; 8] {
    let fix = |x: f64| (x * 8192.0).round() as i64;
    let [x0, x1, x2, x3, x4, x5, x6, x7] = input;
    // Even part.
    let z1 = (x2 + x6) * fix(0.541_196_100);
    let (t2, t3) = (z1 - x6 * fix(1.847_759_065), z1 + x2 * fix(0.765_366_865));
    let (t0, t1) = ((x0 + x4) << 13, (x0 - x4) << 13);
    let even = [t0 + t3, t1 + t2, t1 - t2, t0 - t3];
    // Odd part.
    let z5 = (x7 + x3 + x5 + x1) * fix(1.175_875_602);
    let (z1, z2) = (-(x7 + x1) * fix(0.899_976_223), -(x5 + x3) * fix(2.562_915_447));
    let z3 = z5 - (x7 + x3) * fix(1.961_570_560);
    let z4 = z5 - (x5 + x1) * fix(0.390_180_644);
    let odd = [
        x1 * fix(1.501_321_110) + z1 + z4,
        x3 * fix(3.072_711_026) + z2 + z3,
        x5 * fix(2.053_119_869) + z2 + z4,
        x7 * fix(0.298_631_336) + z1 + z3,
    ];
    let round = 1 << (shift - 1);
    std::array::from_fn(|n| match n {
        0..4 => (even[n] + odd[n] + round) >> shift,
        _ => (even[7 - n] - odd[7 - n] + round) >> shift,
    })
}

fn samples(block: &[i64; 64]) -> [u8; 64] {
    let mut work = [0; 64];
    for x in 0..8 {
        for (y, v) in transform(std::array::from_fn(|y| block[8 * y + x]), 11).into_iter().enumerate() {
            work[8 * y + x] = v;
        }
    }
    let mut out = [0; 64];
    for y in 0..8 {
        for (x, v) in transform(std::array::from_fn(|x| work[8 * y + x]), 18).into_iter().enumerate() {
            out[8 * y + x] = (v + 128).clamp(0, 255) as u8;
        }
    }
    out
}

/// Decodes a file of up to 65535 x 65535 pixels; whoever calls it has looked at how many there are.
pub fn decode(bytes: &[u8]) -> Result<Plain> {
    let mut reader = Reader { bytes, at: 2, byte: 0, left: 0 };
    if !bytes.starts_with(&[0xff, 0xd8]) {
        return Err(Damage);
    }
    let mut tables = Tables::default();
    let (mut jfif, mut adobe) = (false, None);
    let mut frame: Option<(usize, usize, Vec<Component>)> = None;
    let (mut tame, mut scans, mut has_codes) = (true, 0, false);
    loop {
        let marker = reader.marker()?;
        if matches!(marker, 0x01 | 0xd0..=0xd8) {
            continue;
        }
        if marker == 0xd9 {
            return Err(Damage);
        }
        let body = reader.segment()?;
        match marker {
            0xdb | 0xc4 | 0xdd => {
                has_codes |= marker == 0xc4;
                tables.read(marker, &body)?;
            }
            0xe0 => jfif |= body.starts_with(b"JFIF\0"),
            0xee if body.starts_with(b"Adobe") && scans == 0 => adobe = body.get(11).copied(),
            0xcc if scans == 0 => return Err(Kind),
            0xc0..=0xcf if scans > 0 => {}
            0xc0..=0xcf if frame.is_some() => return Err(Damage),
            0xc0 | 0xc1 => frame = Some(read_frame(&body)?),
            0xc2..=0xcf => return Err(Kind),
            0xda => {
                let (height, width, components) = frame.as_mut().ok_or(Damage)?;
                // Motion JPEG does without tables of its own.
                if components.len() == 4 || !has_codes {
                    return Err(Kind);
                }
                scans += 1;
                tame &= read_scan(&mut reader, &body, &tables, [*height, *width], components)?;
                if components.iter().all(|c| c.seen) {
                    break;
                }
            }
            _ => {}
        }
    }
    let (height, width, components) = frame.ok_or(Damage)?;
    let ids: Vec<u8> = components.iter().map(|c| c.id).collect();
    let rgb = !jfif && (adobe == Some(0) || adobe.is_none() && ids == b"RGB");
    let pixels = colours(height, width, &components, rgb);
    Ok(Plain { height, width, channels: components.len(), pixels, tame, scans })
}

fn read_frame(body: &[u8]) -> Result<(usize, usize, Vec<Component>)> {
    let &[precision, h1, h0, w1, w0, count, ref rest @ ..] = body else { return Err(Damage) };
    let (height, width) = (usize::from(h1) << 8 | usize::from(h0), usize::from(w1) << 8 | usize::from(w0));
    if precision != 8 || height == 0 || !matches!(count, 1 | 3 | 4) {
        return Err(Kind);
    }
    if width == 0 || rest.len() != 3 * usize::from(count) {
        return Err(Damage);
    }
    let mut components = Vec::new();
    for part in rest.chunks(3) {
        let (across, down) = (usize::from(part[1] >> 4), usize::from(part[1] & 15));
        if !(1..=4).contains(&across) || !(1..=4).contains(&down) || part[2] > 3 {
            return Err(Damage);
        }
        let (across, down) = if count == 1 { (1, 1) } else { (across, down) };
        let quant = part[2].into();
        components.push(Component { id: part[0], across, down, quant, plane: Vec::new(), pitch: 0, seen: false });
    }
    let whole = |most: usize, own: usize| most.is_multiple_of(own) && matches!(most / own, 1..=4);
    let most = most_of(&components);
    if components.iter().any(|c| !whole(most.0, c.across) || !whole(most.1, c.down)) {
        return Err(Kind);
    }
    let units = [height.div_ceil(8 * most.1), width.div_ceil(8 * most.0)];
    for c in &mut components {
        c.pitch = units[1] * c.across * 8;
        c.plane = vec![0; c.pitch * units[0] * c.down * 8];
    }
    Ok((height, width, components))
}

/// The largest factors, across and down.
fn most_of(components: &[Component]) -> (usize, usize) {
    let most = |of: fn(&Component) -> usize| components.iter().map(of).max().unwrap_or(1);
    (most(|c| c.across), most(|c| c.down))
}

/// Reads the data of a scan; gives whether all blocks are tame.
fn read_scan(
    reader: &mut Reader<'_>,
    body: &[u8],
    tables: &Tables,
    [height, width]: [usize; 2],
    components: &mut [Component],
) -> Result<bool> {
    let (&count, rest) = body.split_first().ok_or(Damage)?;
    let count = usize::from(count);
    if !(1..=components.len()).contains(&count) || rest.len() < 2 * count {
        return Err(Damage);
    }
    let mut parts: Vec<(usize, &Codes, &Codes, [u16; 64])> = Vec::new();
    for pair in rest[..2 * count].chunks(2) {
        let n = components.iter().position(|c| c.id == pair[0]).ok_or(Damage)?;
        if parts.iter().any(|part| part.0 == n) {
            return Err(Damage);
        }
        let codes = |class: usize, slot: u8| tables.codes[class].get(usize::from(slot))?.as_ref();
        let first = codes(0, pair[1] >> 4).ok_or(Damage)?;
        let others = codes(1, pair[1] & 15).ok_or(Damage)?;
        parts.push((n, first, others, tables.quant[components[n].quant].ok_or(Damage)?));
    }
    let most = most_of(components);
    let units = match &parts[..] {
        [(n, ..)] => {
            let c = &components[*n];
            [(height * c.down).div_ceil(8 * most.1), (width * c.across).div_ceil(8 * most.0)]
        }
        _ => [height.div_ceil(8 * most.1), width.div_ceil(8 * most.0)],
    };
    let (mut sums, mut tame) = ([0i32; 4], true);
    reader.left = 0;
    for unit in 0..units[0] * units[1] {
        if tables.interval > 0 && unit > 0 && unit % tables.interval == 0 {
            let wanted = 0xd0 + ((unit / tables.interval - 1) % 8) as u8;
            reader.left = 0;
            if reader.marker()? != wanted {
                return Err(Damage);
            }
            sums = [0; 4];
        }
        let (row, column) = (unit / units[1], unit % units[1]);
        for (n, first, others, quant) in &parts {
            let c = &mut components[*n];
            let (down, across) = if parts.len() == 1 { (1, 1) } else { (c.down, c.across) };
            for (dy, dx) in (0..down).flat_map(|y| (0..across).map(move |x| (y, x))) {
                let block = read_block(reader, first, others, quant, &mut sums[*n])?;
                tame &= (0..8).all(|x| (0..8).map(|y| block[8 * y + x].abs()).sum::<i64>() < 5000);
                let at = (row * down + dy) * 8 * c.pitch + (column * across + dx) * 8;
                for (y, line) in samples(&block).chunks(8).enumerate() {
                    c.plane[at + y * c.pitch..][..8].copy_from_slice(line);
                }
            }
        }
    }
    reader.left = 0;
    parts.iter().for_each(|part| components[part.0].seen = true);
    Ok(tame)
}

fn read_block(
    reader: &mut Reader<'_>,
    first: &Codes,
    others: &Codes,
    quant: &[u16; 64],
    sum: &mut i32,
) -> Result<[i64; 64]> {
    let mut block = [0; 64];
    let size = reader.symbol(first)?;
    if size > 11 {
        return Err(Damage);
    }
    *sum = sum.wrapping_add(reader.value(size.into())?);
    block[0] = i64::from(*sum) * i64::from(quant[0]);
    let mut at = 1;
    while at < 64 {
        let symbol = reader.symbol(others)?;
        let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        match (run, size) {
            (15, 0) => at += 16,
            (_, 0) => return Ok(block),
            (_, 11..) => return Err(Damage),
            _ => {
                at += run;
                let value = reader.value(size)?;
                let place = *ZIGZAG.get(at).ok_or(Damage)?;
                block[place] = i64::from(value) * i64::from(quant[at]);
                at += 1;
            }
        }
    }
    if at == 64 { Ok(block) } else { Err(Damage) }
}

/// All of a component at full size, as libjpeg does it (jdsample.c): between two values there are three quarters of the
/// nearer one and a quarter of the other where one value stands for two pixels; otherwise values are repeated.
fn widened(c: &Component, [height, width]: [usize; 2], most: (usize, usize)) -> Vec<u8> {
    let (across, down) = (most.0 / c.across, most.1 / c.down);
    let (rows, columns) = (height.div_ceil(down), width.div_ceil(across));
    let at = |y: usize, x: usize| i32::from(c.plane[y * c.pitch + x]);
    let fancy = (across, down) == (1, 2) || across == 2 && down <= 2 && columns > 2;
    let mut out = Vec::with_capacity(height * width);
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        let (near_y, near_x) = (y / down, x / across);
        let beside = |n: usize, near: usize, count: usize| {
            if n.is_multiple_of(2) { near.saturating_sub(1) } else { (near + 1).min(count - 1) }
        };
        let (far_y, far_x) = (beside(y, near_y, rows), beside(x, near_x, columns));
        let tall = |x: usize| 3 * at(near_y, x) + at(far_y, x);
        let odd = |n: usize| (n % 2) as i32;
        out.push(match (fancy, across, down) {
            (false, ..) | (true, 1, 1) => at(near_y, near_x),
            (true, 1, 2) => (tall(near_x) + 1 + odd(y)) >> 2,
            // The outermost values are as they are.
            (true, 2, 1) if near_x == far_x => at(near_y, near_x),
            (true, 2, 1) => (3 * at(near_y, near_x) + at(near_y, far_x) + 1 + odd(x)) >> 2,
            _ => (3 * tall(near_x) + tall(far_x) + 8 - odd(x)) >> 4,
        } as u8);
    }
    out
}

fn colours(height: usize, width: usize, components: &[Component], rgb: bool) -> Vec<u8> {
    let most = most_of(components);
    let planes: Vec<Vec<u8>> = components.iter().map(|c| widened(c, [height, width], most)).collect();
    let [y, b, r] = &planes[..] else { return planes.into_iter().next().unwrap_or_default() };
    let mut out = Vec::with_capacity(3 * height * width);
    for ((&y, &b), &r) in y.iter().zip(b).zip(r) {
        if rgb {
            out.extend([y, b, r]);
            continue;
        }
        // jdcolor.c, with 16 bits of fraction.
        let [y, b, r] = [i32::from(y), i32::from(b) - 128, i32::from(r) - 128];
        let fix = |x: f64| (x * 65536.0).round() as i32;
        let red = (fix(1.402) * r + 32768) >> 16;
        let green = (-fix(0.34414) * b - fix(0.71414) * r + 32768) >> 16;
        let blue = (fix(1.772) * b + 32768) >> 16;
        out.extend([red, green, blue].map(|v| (y + v).clamp(0, 255) as u8));
    }
    out
}
