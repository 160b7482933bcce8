//! JPEG's lossless process (ITU-T T.81, annex H): differences from neighbours in Huffman codes. Reads what DICOM
//! allows: 2 to 16 bits, one component or several of one size.

use infeed_core::error::{Error, ErrorKind, Result, setting::SKIP};

fn bad(what: &'static str) -> Error {
    Error::corrupt(format!("lossless JPEG {what}"))
}

/// A table of codes of up to 16 bits: for each length the first longer code, and where the values are.
#[derive(Clone, Debug)]
struct Huffman {
    /// Indexed by the next 8 bits: length and value of the code that they begin with; length 0 for a longer code.
    short: [(u8, u8); 256],
    /// Codes of `n` bits, shifted to the top of 16, are below this.
    limit: [u32; 17],
    /// Add this to a code of `n` bits to get its index in `values`.
    offset: [i32; 17],
    values: Vec<u8>,
}

impl Huffman {
    fn new(counts: &[u8; 16], values: &[u8]) -> Result<Self> {
        let mut table = Self { short: [(0, 0); 256], limit: [0; 17], offset: [0; 17], values: values.to_vec() };
        let (mut code, mut place) = (0u32, 0usize);
        for len in 1..=16 {
            let count = u32::from(counts[len - 1]);
            table.offset[len] = place as i32 - code as i32;
            for _ in 0..count {
                if code >> len != 0 {
                    return Err(bad("has too many codes"));
                }
                if len <= 8 {
                    let first = (code << (8 - len)) as usize;
                    table.short[first..first + (1 << (8 - len))].fill((len as u8, values[place]));
                }
                code += 1;
                place += 1;
            }
            table.limit[len] = code << (16 - len);
            code <<= 1;
        }
        Ok(table)
    }
}

/// The bits of a scan, without the zero bytes stuffed after 0xff.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    held: u64,
    count: u32,
    /// Zero bits that were appended after the end.
    made: u32,
}

impl Bits<'_> {
    fn fill(&mut self) {
        while self.count <= 48 {
            let byte = match self.bytes.get(self.at..) {
                Some([0xff, 0, ..]) => {
                    self.at += 2;
                    0xff
                }
                Some([0xff, ..] | []) | None => {
                    self.made += 8;
                    0
                }
                Some([byte, ..]) => {
                    self.at += 1;
                    *byte
                }
            };
            self.held = self.held << 8 | u64::from(byte);
            self.count += 8;
        }
    }

    fn peek(&self, count: u32) -> u32 {
        (self.held >> (self.count - count)) as u32 & ((1 << count) - 1)
    }

    /// Reads a difference: a code for its length, then its bits.
    fn difference(&mut self, table: &Huffman) -> Result<i32> {
        if self.count < 32 {
            self.fill();
        }
        let next = self.peek(16);
        let (mut len, mut value) = table.short[(next >> 8) as usize];
        if len == 0 {
            let long =
                (9..=16).find(|len| next < table.limit[*len]).ok_or_else(|| bad("has a code without a value"))?;
            let place = (next >> (16 - long)) as i32 + table.offset[long];
            let found = usize::try_from(place).ok().and_then(|place| table.values.get(place));
            (len, value) = (long as u8, *found.ok_or_else(|| bad("has a code without a value"))?);
        }
        self.count -= u32::from(len);
        let bits = u32::from(value);
        let difference = match bits {
            0 => 0,
            1..=15 => {
                let read = self.peek(bits) as i32;
                self.count -= bits;
                if read < 1 << (bits - 1) { read - (1 << bits) + 1 } else { read }
            }
            16 => 32768,
            _ => return Err(bad("has a difference of more than 16 bits")),
        };
        if self.count < self.made {
            return Err(bad("ends before its last pixel").with_hint(format!("fetch the object again or set {SKIP}")));
        }
        Ok(difference)
    }

    /// Skips the restart marker at this position.
    fn restart(&mut self) -> Result<()> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        match rest {
            [0xff, 0xd0..=0xd7, ..] => self.at += 2,
            _ => return Err(bad("lacks a restart marker")),
        }
        (self.held, self.count, self.made) = (0, 0, 0);
        Ok(())
    }
}

#[derive(Default)]
struct Frame {
    bits: u32,
    rows: usize,
    columns: usize,
    /// The ids of the components.
    components: Vec<u8>,
}

/// Decodes an image, which must have the `expected` rows, columns and components, to interleaved values.
pub(super) fn decode(file: &[u8], expected: [usize; 3]) -> Result<Vec<u16>> {
    let mut tables: [Option<Huffman>; 4] = Default::default();
    let mut frame = Frame::default();
    let mut restart = 0;
    let mut values = Vec::new();
    let mut seen = 0u32;
    let mut at = 0;
    if file.get(..2) != Some(&[0xff, 0xd8]) {
        return Err(bad("does not begin as a JPEG"));
    }
    while seen.count_ones() as usize != frame.components.len() || seen == 0 {
        // The next marker: fill bytes may precede it, and a scan ends before one.
        let found =
            file.get(at..).unwrap_or(&[]).windows(2).position(|two| two[0] == 0xff && !matches!(two[1], 0 | 0xff));
        at += found.ok_or_else(|| bad("ends early").with_hint(format!("fetch the object again or set {SKIP}")))? + 2;
        let marker = file[at - 1];
        if matches!(marker, 0xd0..=0xd8 | 0x01) {
            continue;
        }
        let len = file.get(at..at + 2).map_or(0, |len| usize::from(u16::from_be_bytes([len[0], len[1]])));
        let segment = file.get(at + 2..at + len.max(2)).ok_or_else(|| bad("ends within a segment"))?;
        at += len.max(2);
        match marker {
            0xc3 => {
                let [bits, y0, y1, x0, x1, count, rest @ ..] = segment else {
                    return Err(bad("has a cut frame header"));
                };
                let (triples, _) = rest.as_chunks::<3>();
                let big = |a: u8, b: u8| usize::from(u16::from_be_bytes([a, b]));
                frame = Frame {
                    bits: u32::from(*bits),
                    rows: big(*y0, *y1),
                    columns: big(*x0, *x1),
                    components: triples.iter().map(|triple| triple[0]).collect(),
                };
                if !(2..=16).contains(bits) || triples.len() != usize::from(*count) || !values.is_empty() {
                    return Err(bad("has a wrong frame header"));
                }
                if [frame.rows, frame.columns, frame.components.len()] != expected {
                    let [rows, columns, components] = expected;
                    return Err(Error::corrupt(format!(
                        "lossless JPEG of {} x {} pixels, {} values each, where the header says {rows} x {columns}, {components}",
                        frame.rows,
                        frame.columns,
                        frame.components.len(),
                    )));
                }
                if triples.iter().any(|triple| triple[1] != 0x11) {
                    return Err(Error::new(ErrorKind::Unsupported, "lossless JPEG of components of several sizes"));
                }
            }
            0xc4 => {
                let mut rest = segment;
                while let [place, more @ ..] = rest {
                    let counts: &[u8; 16] = more.first_chunk().ok_or_else(|| bad("has a cut Huffman table"))?;
                    let count: usize = counts.iter().map(|n| usize::from(*n)).sum();
                    let values = more.get(16..16 + count).ok_or_else(|| bad("has a cut Huffman table"))?;
                    let table = tables
                        .get_mut(usize::from(*place))
                        .ok_or_else(|| bad("has a Huffman table that is not one of 0 to 3"))?;
                    *table = Some(Huffman::new(counts, values)?);
                    rest = &more[16 + count..];
                }
            }
            0xdd => {
                let [a, b, ..] = segment else { return Err(bad("has a cut restart interval")) };
                restart = usize::from(u16::from_be_bytes([*a, *b]));
            }
            0xda => {
                let [count, rest @ ..] = segment else { return Err(bad("has a cut scan header")) };
                let (named, rest) =
                    rest.split_at_checked(usize::from(*count) * 2).ok_or_else(|| bad("has a cut scan header"))?;
                let [predictor, _, shift, ..] = rest else { return Err(bad("has a cut scan header")) };
                let mut of_scan = Vec::new();
                for [name, table] in named.as_chunks().0 {
                    let place = frame.components.iter().position(|own| own == name);
                    let place = place.ok_or_else(|| bad("has a scan of an unknown component"))?;
                    let table = tables.get(usize::from(table >> 4)).and_then(Option::as_ref);
                    of_scan.push((place, table.ok_or_else(|| bad("has a scan without its Huffman table"))?));
                    if seen & 1 << place != 0 {
                        return Err(bad("has a component twice"));
                    }
                    seen |= 1 << place;
                }
                let shift = u32::from(shift & 15);
                if of_scan.is_empty() || !(1..=7).contains(predictor) || shift >= frame.bits {
                    return Err(bad("has a wrong scan header"));
                }
                values.resize(frame.rows * frame.columns * frame.components.len(), 0);
                let mut bits = Bits { bytes: file, at, held: 0, count: 0, made: 0 };
                scan(&frame, &of_scan, *predictor, shift, restart, &mut bits, &mut values)?;
                at = bits.at;
            }
            0xc0..=0xcf => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("JPEG of process {:02x}, not lossless", marker),
                ));
            }
            0xd9 => return Err(bad("ends early").with_hint(format!("fetch the object again or set {SKIP}"))),
            _ => {}
        }
    }
    Ok(values)
}

fn scan(
    frame: &Frame,
    of_scan: &[(usize, &Huffman)],
    predictor: u8,
    shift: u32,
    restart: usize,
    bits: &mut Bits<'_>,
    values: &mut [u16],
) -> Result<()> {
    let step = frame.components.len();
    let line = frame.columns * step;
    let mut left = restart;
    // The first line after a restart is predicted like the first line of an image.
    let mut first_row = 0;
    for row in 0..frame.rows {
        for column in 0..frame.columns {
            let mut fresh = row == 0 && column == 0;
            if restart > 0 {
                if left == 0 {
                    bits.restart()?;
                    left = restart;
                    first_row = row;
                    fresh = true;
                }
                left -= 1;
            }
            for (component, table) in of_scan {
                let difference = bits.difference(table)?;
                let at = row * line + column * step + component;
                // Stored values lack the low bits that the scan omits.
                let near = |back: usize| i32::from(values[at - back]);
                let predicted = if fresh {
                    1 << (frame.bits - shift - 1)
                } else if row == first_row {
                    // The first value after a restart within a row is `fresh`, so there is always one to the left.
                    near(step)
                } else if column == 0 {
                    near(line)
                } else {
                    let (a, b, c) = (near(step), near(line), near(line + step));
                    match predictor {
                        1 => a,
                        2 => b,
                        3 => c,
                        4 => a + b - c,
                        5 => a + ((b - c) >> 1),
                        6 => b + ((a - c) >> 1),
                        _ => (a + b) >> 1,
                    }
                };
                values[at] = (predicted + difference) as u16;
            }
        }
    }
    if shift > 0 {
        let own = |at: usize| of_scan.iter().any(|(component, _)| at % step == *component);
        values.iter_mut().enumerate().filter(|(at, _)| own(*at)).for_each(|(_, value)| *value <<= shift);
    }
    Ok(())
}
