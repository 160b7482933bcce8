//! The bytes of a baseline file.

use super::{
    codes::Codes,
    symbols::{Sink, Symbol, pair_of},
};
use crate::{
    error::Result,
    header::{DHT, DQT, DRI, Header, SOI, SOS, next_marker, segment},
    order::natural,
    tables::Quantisation,
};

/// Writes what comes before the scan's data: the notes of the old file (JFIF, EXIF, ICC, Adobe, comments), then tables,
/// frame and scan header.
pub(super) fn header(
    bytes: &[u8],
    header: &Header,
    quant: &Quantisation,
    codes: &Codes,
    interval: Option<u16>,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.extend([0xff, SOI]);
    let mut at = 2;
    while let Some((found, marker)) = next_marker(bytes, at).filter(|(_, marker)| *marker != SOS) {
        at = found + 2;
        if matches!(marker, 0x01 | 0xd0..=SOI) {
            continue;
        }
        let text = segment(bytes, at)?;
        at += text.len();
        if matches!(marker, 0xe0..=0xef | 0xfe) {
            out.extend([0xff, marker]);
            out.extend(text);
        }
    }
    let frame = &header.frame;
    // A slot for each table that differs from those before it.
    let mut tables: Vec<[i16; 64]> = Vec::new();
    let slots: Vec<u8> = (0..frame.components.len())
        .map(|n| {
            // Each component has one: the scans were checked.
            let table = quant[n].unwrap_or([1; 64]);
            let slot = tables.iter().position(|other| *other == table).unwrap_or_else(|| {
                tables.push(table);
                tables.len() - 1
            });
            slot as u8
        })
        .collect();
    let is_wide = |table: &[i16; 64]| table.iter().any(|value| !(0..=255).contains(value));
    for (slot, table) in tables.iter().enumerate() {
        let wide = is_wide(table);
        let mut body = vec![u8::from(wide) << 4 | slot as u8];
        for value in (0..64).map(|at| table[natural(at)].to_be_bytes()) {
            body.extend(&value[usize::from(!wide)..]);
        }
        put(out, DQT, &body);
    }
    // Wide tables are not for baseline, but for the extended frame, which is the same otherwise.
    let marker = if tables.iter().any(is_wide) { 0xc1 } else { 0xc0 };
    let ([h1, h0], [w1, w0]) = (frame.height.to_be_bytes(), frame.width.to_be_bytes());
    let mut body = vec![8, h1, h0, w1, w0, frame.components.len() as u8];
    for (component, slot) in frame.components.iter().zip(&slots) {
        body.extend([component.id, component.across << 4 | component.down, *slot]);
    }
    put(out, marker, &body);
    let pairs = if frame.components.len() > 1 { 2 } else { 1 };
    for (pair, class) in (0..pairs).flat_map(|pair| [(pair, 0), (pair, 1)]) {
        let table = codes.table(pair, class);
        put(out, DHT, &[&[(class << 4 | pair) as u8][..], &table.counts, &table.symbols].concat());
    }
    if let Some(units) = interval {
        put(out, DRI, &units.to_be_bytes());
    }
    let mut body = vec![frame.components.len() as u8];
    for (n, component) in frame.components.iter().enumerate() {
        body.extend([component.id, (pair_of(n) << 4 | pair_of(n)) as u8]);
    }
    body.extend([0, 63, 0]);
    put(out, SOS, &body);
    Ok(())
}

/// A segment. Its body is short.
fn put(out: &mut Vec<u8>, marker: u8, body: &[u8]) {
    out.extend([0xff, marker]);
    out.extend((body.len() as u16 + 2).to_be_bytes());
    out.extend(body);
}

/// Writes codes and values, with stuffing.
pub(super) struct Writer<'a> {
    codes: &'a Codes,
    out: Vec<u8>,
    /// The last bits, less than a byte between calls.
    held: u64,
    count: u32,
    /// Number of restart markers.
    restarts: u8,
}

impl<'a> Writer<'a> {
    pub(super) const fn new(codes: &'a Codes, out: Vec<u8>) -> Self {
        Self { codes, out, held: 0, count: 0, restarts: 0 }
    }

    fn bits(&mut self, bits: u64, count: u32) {
        self.held = self.held << count | bits;
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.held >> self.count) as u8;
            self.out.push(byte);
            if byte == 0xff {
                self.out.push(0);
            }
        }
    }

    /// Fills the last byte with ones.
    fn align(&mut self) {
        let missing = (8 - self.count) % 8;
        self.bits((1 << missing) - 1, missing);
    }

    /// Ends the scan.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.align();
        self.out
    }
}

impl Sink for Writer<'_> {
    fn symbol(&mut self, symbol: Symbol) {
        let (code, length) = self.codes.code(symbol);
        let size = u32::from(symbol.size);
        self.bits(u64::from(code) << size | u64::from(symbol.value), u32::from(length) + size);
    }

    fn restart(&mut self) {
        self.align();
        self.out.extend([0xff, 0xd0 + self.restarts % 8]);
        self.restarts = self.restarts.wrapping_add(1);
    }
}
