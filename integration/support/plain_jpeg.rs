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
    /// Lossless, components that are no whole part of the finest, more than 100 scans, …: not for this decoder.
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
    /// Where its quantisation table is found.
    slot: usize,
    /// The table, from its first scan on.
    quant: Option<[u16; 64]>,
    /// Coefficients in the file's order, in rows of `pitch` blocks.
    blocks: Vec<[i16; 64]>,
    pitch: usize,
    /// Of a progressive file: the bits that the scans so far leave out of each coefficient; `None` before its first scan.
    missing: [Option<u8>; 64],
}

/// Which coefficients a scan of a progressive file tells, down to which bit.
#[derive(Clone, Copy)]
struct Band {
    first: usize,
    last: usize,
    /// Whether it adds a bit to what is known.
    refines: bool,
    /// The bits that it leaves out.
    low: u8,
}

/// What goes from block to block of a scan.
struct State {
    sums: [i32; 4],
    /// Blocks left without a code of their own.
    run: u32,
    tame: bool,
}

impl State {
    fn keep(&mut self, value: i32) -> i16 {
        self.tame &= i16::try_from(value).is_ok();
        value as i16
    }
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

    fn bits(&mut self, count: u32) -> Result<u32> {
        (0..count).try_fold(0, |bits, _| Ok(bits << 1 | self.bit()?))
    }

    fn value(&mut self, size: u32) -> Result<i32> {
        let value = self.bits(size)? as i32;
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
    let (mut tame, mut scans, mut has_codes, mut progressive) = (true, 0, false, false);
    loop {
        let marker = reader.marker()?;
        if matches!(marker, 0x01 | 0xd0..=0xd8) {
            continue;
        }
        if marker == 0xd9 {
            let known = |c: &Component| c.missing[0].is_some();
            if progressive && frame.as_ref().is_some_and(|frame| frame.2.iter().all(known)) {
                break;
            }
            return Err(Damage);
        }
        let body = reader.segment()?;
        match marker {
            0xdb | 0xc4 | 0xdd => {
                has_codes |= marker == 0xc4;
                tables.read(marker, &body)?;
            }
            0xe0 if scans == 0 => jfif |= body.starts_with(b"JFIF\0"),
            0xee if body.starts_with(b"Adobe") && scans == 0 => adobe = body.get(11).copied(),
            0xcc if scans == 0 => return Err(Kind),
            0xc0..=0xcf if scans > 0 => {}
            0xc0..=0xcf if frame.is_some() => return Err(Damage),
            0xc0..=0xc2 => {
                frame = Some(read_frame(&body)?);
                progressive = marker == 0xc2;
            }
            0xc3..=0xcf => return Err(Kind),
            0xda => {
                let (height, width, components) = frame.as_mut().ok_or(Damage)?;
                scans += 1;
                // Motion JPEG does without tables of its own.
                if !progressive && !has_codes || progressive && scans > 100 {
                    return Err(Kind);
                }
                tame &= read_scan(&mut reader, &body, &tables, [*height, *width], components, progressive)?;
                if !progressive && components.iter().all(|c| c.quant.is_some()) {
                    break;
                }
            }
            _ => {}
        }
    }
    let (height, width, components) = frame.ok_or(Damage)?;
    let ids: Vec<u8> = components.iter().map(|c| c.id).collect();
    let rgb = !jfif && (adobe == Some(0) || adobe.is_none() && ids == b"RGB");
    let is_converted = if components.len() == 4 { adobe == Some(2) } else { !rgb };
    let most = most_of(&components);
    let mut planes = Vec::new();
    for c in &components {
        let plane = plane(c, &mut tame);
        planes.push(widened(&plane, c, [height, width], most));
    }
    let channels = if planes.len() == 1 { 1 } else { 3 };
    let pixels = colours(&planes, is_converted);
    Ok(Plain { height, width, channels, pixels, tame, scans })
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
        let (id, slot) = (part[0], part[2].into());
        let missing = [None; 64];
        components.push(Component { id, across, down, slot, quant: None, blocks: Vec::new(), pitch: 0, missing });
    }
    let whole = |most: usize, own: usize| most.is_multiple_of(own) && matches!(most / own, 1..=4);
    let most = most_of(&components);
    if components.iter().any(|c| !whole(most.0, c.across) || !whole(most.1, c.down)) {
        return Err(Kind);
    }
    let units = [height.div_ceil(8 * most.1), width.div_ceil(8 * most.0)];
    for c in &mut components {
        c.pitch = units[1] * c.across;
        c.blocks = vec![[0; 64]; c.pitch * units[0] * c.down];
    }
    Ok((height, width, components))
}

/// The largest factors, across and down.
fn most_of(components: &[Component]) -> (usize, usize) {
    let most = |of: fn(&Component) -> usize| components.iter().map(of).max().unwrap_or(1);
    (most(|c| c.across), most(|c| c.down))
}

/// Reads the data of a scan; gives whether 16 bits hold all of its coefficients.
fn read_scan(
    reader: &mut Reader<'_>,
    body: &[u8],
    tables: &Tables,
    [height, width]: [usize; 2],
    components: &mut [Component],
    progressive: bool,
) -> Result<bool> {
    let (&count, rest) = body.split_first().ok_or(Damage)?;
    let count = usize::from(count);
    if !(1..=components.len()).contains(&count) || rest.len() < 2 * count {
        return Err(Damage);
    }
    // A table that is not there has no codes.
    let none = Codes::default();
    let mut parts: Vec<(usize, &Codes, &Codes)> = Vec::new();
    for pair in rest[..2 * count].chunks(2) {
        let n = components.iter().position(|c| c.id == pair[0]).ok_or(Damage)?;
        if parts.iter().any(|part| part.0 == n) {
            return Err(Damage);
        }
        let codes = |class: usize, slot: u8| tables.codes[class].get(usize::from(slot)).ok_or(Damage);
        let (first, others) = (codes(0, pair[1] >> 4)?, codes(1, pair[1] & 15)?);
        parts.push((n, first.as_ref().unwrap_or(&none), others.as_ref().unwrap_or(&none)));
        let c = &mut components[n];
        if !progressive || c.quant.is_none() {
            c.quant = Some(tables.quant[c.slot].ok_or(Damage)?);
        }
    }
    let band = if progressive { Some(band_of(&rest[2 * count..], &parts, components)?) } else { None };
    let most = most_of(components);
    let units = match &parts[..] {
        [(n, ..)] => {
            let c = &components[*n];
            [(height * c.down).div_ceil(8 * most.1), (width * c.across).div_ceil(8 * most.0)]
        }
        _ => [height.div_ceil(8 * most.1), width.div_ceil(8 * most.0)],
    };
    let mut state = State { sums: [0; 4], run: 0, tame: true };
    reader.left = 0;
    for unit in 0..units[0] * units[1] {
        if tables.interval > 0 && unit > 0 && unit % tables.interval == 0 {
            let wanted = 0xd0 + ((unit / tables.interval - 1) % 8) as u8;
            reader.left = 0;
            if reader.marker()? != wanted {
                return Err(Damage);
            }
            (state.sums, state.run) = ([0; 4], 0);
        }
        let (row, column) = (unit / units[1], unit % units[1]);
        for (n, first, others) in &parts {
            let c = &mut components[*n];
            let (down, across) = if parts.len() == 1 { (1, 1) } else { (c.down, c.across) };
            for (dy, dx) in (0..down).flat_map(|y| (0..across).map(move |x| (y, x))) {
                let block = &mut c.blocks[(row * down + dy) * c.pitch + column * across + dx];
                match band {
                    None => {
                        *block = [0; 64];
                        read_dc(reader, first, &mut state, *n, 0, block)?;
                        read_ac(reader, others, block)?;
                    }
                    Some(Band { first: 0, refines: false, low, .. }) => {
                        read_dc(reader, first, &mut state, *n, low, block)?;
                    }
                    Some(Band { first: 0, low, .. }) => block[0] |= (reader.bit()? as i16) << low,
                    Some(band) if band.refines => read_ac_refine(reader, others, &mut state, band, block)?,
                    Some(band) => read_ac_first(reader, others, &mut state, band, block)?,
                }
            }
        }
    }
    reader.left = 0;
    Ok(state.tame)
}

/// What a scan of a progressive file tells, if that adds to the scans before it (T.81, G.1.1.1).
fn band_of(rest: &[u8], parts: &[(usize, &Codes, &Codes)], components: &mut [Component]) -> Result<Band> {
    let &[first, last, bits, ..] = rest else { return Err(Damage) };
    let (high, low) = (bits >> 4, bits & 15);
    let is_dc = first == 0 && last == 0;
    let is_ac = 0 < first && first <= last && last < 64 && parts.len() == 1;
    if !is_dc && !is_ac || low > 13 || high > 0 && high != low + 1 {
        return Err(Damage);
    }
    let (first, last) = (usize::from(first), usize::from(last));
    for (n, ..) in parts {
        let c = &mut components[*n];
        if is_ac && c.missing[0].is_none() {
            return Err(Damage);
        }
        for missing in &mut c.missing[first..=last] {
            // Nothing known, or all of it, and it is told from the start; or the next bit.
            if !missing.map_or(high == 0, |missing| high > 0 && high == missing) {
                return Err(Damage);
            }
            *missing = Some(low);
        }
    }
    Ok(Band { first, last, refines: high > 0, low })
}

fn read_dc(
    reader: &mut Reader<'_>,
    first: &Codes,
    state: &mut State,
    component: usize,
    low: u8,
    block: &mut [i16; 64],
) -> Result<()> {
    let size = reader.symbol(first)?;
    if size > 11 {
        return Err(Damage);
    }
    let sum = state.sums[component].wrapping_add(reader.value(size.into())?);
    state.sums[component] = sum;
    // A sum that 32 bits do not hold has left 16 before.
    block[0] = state.keep(sum.wrapping_shl(low.into()));
    Ok(())
}

/// AC coefficients of a sequential file.
fn read_ac(reader: &mut Reader<'_>, others: &Codes, block: &mut [i16; 64]) -> Result<()> {
    let mut at = 1;
    while at < 64 {
        let symbol = reader.symbol(others)?;
        let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        match (zeros, size) {
            (15, 0) => at += 16,
            (_, 0) => return Ok(()),
            (_, 11..) => return Err(Damage),
            _ => {
                at += zeros;
                *block.get_mut(at).ok_or(Damage)? = reader.value(size)? as i16;
                at += 1;
            }
        }
    }
    if at == 64 { Ok(()) } else { Err(Damage) }
}

/// jdphuff.c, `decode_mcu_AC_first`.
fn read_ac_first(
    reader: &mut Reader<'_>,
    others: &Codes,
    state: &mut State,
    band: Band,
    block: &mut [i16; 64],
) -> Result<()> {
    if state.run > 0 {
        state.run -= 1;
        return Ok(());
    }
    let mut at = band.first;
    while at <= band.last {
        let symbol = reader.symbol(others)?;
        let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        match (zeros, size) {
            (15, 0) => at += 16,
            (_, 0) => {
                // This block is the first of them.
                state.run = (1 << zeros) + reader.bits(zeros as u32)? - 1;
                return Ok(());
            }
            (_, 11..) => return Err(Damage),
            _ => {
                at += zeros;
                let value = reader.value(size)?;
                if at > band.last {
                    return Err(Damage);
                }
                block[at] = state.keep(value << band.low);
                at += 1;
            }
        }
    }
    if at == band.last + 1 { Ok(()) } else { Err(Damage) }
}

/// jdphuff.c, `decode_mcu_AC_refine`.
fn read_ac_refine(
    reader: &mut Reader<'_>,
    others: &Codes,
    state: &mut State,
    band: Band,
    block: &mut [i16; 64],
) -> Result<()> {
    let mut at = band.first;
    while at <= band.last && state.run == 0 {
        let symbol = reader.symbol(others)?;
        let (mut zeros, size) = (symbol >> 4, symbol & 15);
        let new = match (zeros, size) {
            (15, 0) => 0,
            (_, 0) => {
                state.run = (1 << zeros) + reader.bits(zeros.into())?;
                break;
            }
            (_, 1) if reader.bit()? == 1 => 1,
            (_, 1) => -1,
            _ => return Err(Damage),
        };
        // Past so many coefficients that are zero so far, to the next such; each that is not has a bit.
        loop {
            if at > band.last {
                return Err(Damage);
            }
            if block[at] != 0 {
                refine(reader, state, band.low, &mut block[at])?;
            } else if zeros == 0 {
                break;
            } else {
                zeros -= 1;
            }
            at += 1;
        }
        block[at] = new << band.low;
        at += 1;
    }
    if state.run > 0 {
        state.run -= 1;
        for known in block[at..=band.last].iter_mut().filter(|known| **known != 0) {
            refine(reader, state, band.low, known)?;
        }
    }
    Ok(())
}

fn refine(reader: &mut Reader<'_>, state: &mut State, low: u8, known: &mut i16) -> Result<()> {
    // A bit that is there already is not added again.
    if reader.bit()? == 1 && *known & 1 << low == 0 {
        *known = state.keep(i32::from(*known) + (i32::from(known.signum()) << low));
    }
    Ok(())
}

/// The values of a component, in rows of 8 times its `pitch`.
fn plane(c: &Component, tame: &mut bool) -> Vec<u8> {
    let mut plane = vec![0; 64 * c.blocks.len()];
    let quant = c.quant.unwrap_or([0; 64]);
    for (n, coefficients) in c.blocks.iter().enumerate() {
        let mut block = [0; 64];
        for at in 0..64 {
            block[ZIGZAG[at]] = i64::from(coefficients[at]) * i64::from(quant[at]);
        }
        *tame &= (0..8).all(|x| (0..8).map(|y| block[8 * y + x].abs()).sum::<i64>() < 5000);
        let at = n / c.pitch * 64 * c.pitch + n % c.pitch * 8;
        for (y, line) in samples(&block).chunks(8).enumerate() {
            plane[at + y * 8 * c.pitch..][..8].copy_from_slice(line);
        }
    }
    plane
}

/// All of a component at full size, as libjpeg does it (jdsample.c): between two values there are three quarters of the
/// nearer one and a quarter of the other where one value stands for two pixels; otherwise values are repeated.
fn widened(plane: &[u8], c: &Component, [height, width]: [usize; 2], most: (usize, usize)) -> Vec<u8> {
    let (across, down) = (most.0 / c.across, most.1 / c.down);
    let (rows, columns) = (height.div_ceil(down), width.div_ceil(across));
    let at = |y: usize, x: usize| i32::from(plane[y * 8 * c.pitch + x]);
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

/// `is_converted`: whether the first three are YCbCr.
fn colours(planes: &[Vec<u8>], is_converted: bool) -> Vec<u8> {
    let [y, b, r, ink @ ..] = planes else { return planes[0].clone() };
    let mut out = Vec::with_capacity(3 * y.len());
    for (n, ((&y, &b), &r)) in y.iter().zip(b).zip(r).enumerate() {
        let mut pixel = [y, b, r];
        if is_converted {
            // jdcolor.c, with 16 bits of fraction.
            let [y, b, r] = [i32::from(y), i32::from(b) - 128, i32::from(r) - 128];
            let fix = |x: f64| (x * 65536.0).round() as i32;
            let red = (fix(1.402) * r + 32768) >> 16;
            let green = (-fix(0.34414) * b - fix(0.71414) * r + 32768) >> 16;
            let blue = (fix(1.772) * b + 32768) >> 16;
            pixel = [red, green, blue].map(|v| (y + v).clamp(0, 255) as u8);
        }
        if let [black] = ink {
            // Ink is stored inverted, and YCCK holds 255 less what is stored of CMYK (jdcolor.c, `ycck_cmyk_convert`).
            for v in &mut pixel {
                let stored = if is_converted { 255 - *v } else { *v };
                let t = u32::from(stored) * u32::from(black[n]) + 128;
                *v = ((t + (t >> 8)) >> 8) as u8;
            }
        }
        out.extend(pixel);
    }
    out
}
