//! Writes files from quantised coefficients: valid files that encoders do not write.
//!
//! A scan is first turned into codes and bits; Huffman tables are made when all codes are known.
//!
//! `integration/support` also includes this file. It shares only its random numbers with the decoder.

use std::sync::LazyLock;

use super::Draws;

const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const DQT: u8 = 0xdb;
const DHT: u8 = 0xc4;
const DRI: u8 = 0xdd;
const APP14: u8 = 0xee;

/// The place in natural order of the file's coefficient `at`. Tests also write bands that end after the last one.
fn natural(at: usize) -> usize {
    static PLACES: LazyLock<Vec<usize>> = LazyLock::new(|| {
        let mut places: Vec<usize> = (0..64).collect();
        places.sort_by_key(|at| {
            let (row, column) = (at / 8, at % 8);
            (row + column, if (row + column) % 2 == 1 { row } else { column })
        });
        places
    });
    PLACES[at & 63]
}

/// Sampling factors of components, horizontal and vertical: the usual ones, and odd ones; then those of CMYK.
pub(crate) const FACTORS: [&[u8]; 16] = [
    &[0x11],
    &[0x22],
    &[0x11, 0x11, 0x11],
    &[0x21, 0x11, 0x11],
    &[0x12, 0x11, 0x11],
    &[0x22, 0x11, 0x11],
    &[0x41, 0x11, 0x11],
    &[0x12, 0x21, 0x11],
    &[0x31, 0x11, 0x11],
    &[0x22, 0x21, 0x12],
    &[0x44, 0x22, 0x11],
    &[0x11, 0x22, 0x21],
    &[0x11, 0x11, 0x11, 0x11],
    &[0x22, 0x11, 0x11, 0x22],
    &[0x21, 0x11, 0x12, 0x11],
    &[0x11, 0x13, 0x11, 0x11],
];

/// Coefficients of a block in natural order.
pub(crate) type Block = [i16; 64];

/// The content of a file.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) components: Vec<Component>,
    /// Quantisation tables in natural order.
    pub(crate) quant: Vec<[u16; 64]>,
    /// The colour transform in Adobe's marker, if there is such a marker.
    pub(crate) adobe: Option<u8>,
}

#[derive(Clone, Debug)]
pub(crate) struct Component {
    /// Sampling factors.
    pub(crate) down: usize,
    pub(crate) across: usize,
    /// Quantisation table.
    pub(crate) table: usize,
    /// Blocks per row. Units are whole: blocks beyond the image's edges are only in interleaved scans.
    pub(crate) pitch: usize,
    pub(crate) blocks: Vec<Block>,
}

/// A scan of a progressive file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scan {
    pub(crate) components: Vec<usize>,
    /// First and last coefficient.
    pub(crate) band: [u8; 2],
    /// Number of low bits that were missing before, and that are missing after (Ah and Al of T.81).
    pub(crate) bits: [u8; 2],
    /// Units between restarts, or 0.
    pub(crate) restart: u16,
}

impl Picture {
    /// The largest sampling factors, vertical and horizontal.
    fn most(&self) -> [usize; 2] {
        let most = |of: fn(&Component) -> usize| self.components.iter().map(of).max().unwrap();
        [most(|c| c.down), most(|c| c.across)]
    }

    /// The blocks of a scan, unit by unit: the index of the component in the scan, and of the block in the component.
    fn units(&self, components: &[usize]) -> Vec<Vec<(usize, usize)>> {
        let [down, across] = self.most();
        if let &[n] = components {
            let one = &self.components[n];
            let rows = (self.height * one.down).div_ceil(down).div_ceil(8);
            let cols = (self.width * one.across).div_ceil(across).div_ceil(8);
            return (0..rows * cols).map(|at| vec![(0, at / cols * one.pitch + at % cols)]).collect();
        }
        let [rows, cols] = [self.height.div_ceil(8 * down), self.width.div_ceil(8 * across)];
        let unit = |at: usize| {
            let mut blocks = Vec::new();
            for (part, &n) in components.iter().enumerate() {
                let one = &self.components[n];
                let start = at / cols * one.down * one.pitch + at % cols * one.across;
                let places = (0..one.down).flat_map(|y| (0..one.across).map(move |x| (y, x)));
                blocks.extend(places.map(|(y, x)| (part, start + y * one.pitch + x)));
            }
            blocks
        };
        (0..rows * cols).map(unit).collect()
    }

    /// The coefficients as they are known after some scans of a progressive file; unknown ones are 0.
    pub(crate) fn known(&self, scans: &[Scan]) -> Self {
        let mut known = self.clone();
        known.components.iter_mut().for_each(|c| c.blocks.fill([0; 64]));
        for scan in scans {
            for (part, at) in self.units(&scan.components).into_iter().flatten() {
                let n = scan.components[part];
                for place in (scan.band[0]..=scan.band[1]).map(|at| natural(at.into())) {
                    let value = self.components[n].blocks[at][place];
                    known.components[n].blocks[at][place] = point(value, scan.bits[1], place == 0) << scan.bits[1];
                }
            }
        }
        known
    }

    /// A sequential file: one scan, or one for each component if a unit had too many blocks. `odd`: see
    /// [`progressive`](Self::progressive).
    pub(crate) fn baseline(&self, restart: u16, odd: Option<&mut Draws>) -> Vec<u8> {
        let factors: Vec<u8> = self.components.iter().map(Component::factors).collect();
        let scan = |components| Scan { components, band: [0, 63], bits: [0, 0], restart };
        let all: Vec<usize> = (0..factors.len()).collect();
        let scans: Vec<Scan> = together(&factors, all).into_iter().map(scan).collect();
        self.write(0xc1, &scans, odd)
    }

    /// A progressive file. `odd`: with Huffman tables, slots and run lengths that no encoder chooses.
    pub(crate) fn progressive(&self, scans: &[Scan], odd: Option<&mut Draws>) -> Vec<u8> {
        self.write(0xc2, scans, odd)
    }

    fn write(&self, frame: u8, scans: &[Scan], mut odd: Option<&mut Draws>) -> Vec<u8> {
        let mut file = vec![0xff, SOI];
        if let Some(transform) = self.adobe {
            segment(&mut file, APP14, &[&b"Adobe\0\x64\0\0\0\0"[..], &[transform]].concat());
        }
        for (slot, table) in self.quant.iter().enumerate() {
            let values = (0..64).map(|at| table[natural(at)]);
            if table.iter().any(|v| *v > 255) {
                let values = values.flat_map(u16::to_be_bytes);
                segment(&mut file, DQT, &std::iter::once(0x10 | slot as u8).chain(values).collect::<Vec<u8>>());
            } else {
                let values = values.map(|v| v as u8);
                segment(&mut file, DQT, &std::iter::once(slot as u8).chain(values).collect::<Vec<u8>>());
            }
        }
        let [h, w] = [self.height, self.width].map(|size| (size as u16).to_be_bytes());
        let mut body = vec![8, h[0], h[1], w[0], w[1], self.components.len() as u8];
        for (n, one) in self.components.iter().enumerate() {
            body.extend([n as u8 + 1, one.factors(), one.table as u8]);
        }
        segment(&mut file, frame, &body);

        let longest = match &mut odd {
            _ if frame != 0xc2 => 1,
            Some(draws) => [1, 2, 3, 7, 100, 0x7fff][draws.below(6) as usize],
            None => 0x7fff,
        };
        let mut coded = Vec::new();
        for scan in scans {
            let mut slots = |n: &usize| match &mut odd {
                Some(draws) => [0; 2].map(|_| draws.below(4) as u8),
                None => [(*n).min(1) as u8; 2],
            };
            let slots: Vec<[u8; 2]> = scan.components.iter().map(&mut slots).collect();
            let tokens = self.tokens(scan, &slots, longest);
            coded.push((scan, slots, tokens));
        }
        let all_before = odd.as_mut().is_some_and(|draws| draws.below(4) == 0);
        let mut tables = Tables::default();
        if all_before {
            tables = Tables::new(coded.iter().flat_map(|(.., tokens)| tokens), &mut odd);
            tables.write(&mut file);
        }
        let mut interval = 0;
        for (scan, slots, tokens) in &coded {
            if !all_before {
                tables = Tables::new(tokens, &mut odd);
                tables.write(&mut file);
            }
            if scan.restart != interval {
                interval = scan.restart;
                segment(&mut file, DRI, &interval.to_be_bytes());
            }
            let mut body = vec![slots.len() as u8];
            for (n, [first, rest]) in scan.components.iter().zip(slots) {
                body.extend([*n as u8 + 1, first << 4 | rest]);
            }
            body.extend([scan.band[0], scan.band[1], scan.bits[0] << 4 | scan.bits[1]]);
            segment(&mut file, SOS, &body);
            tables.write_data(tokens, &mut file);
        }
        file.extend([0xff, EOI]);
        file
    }

    /// The codes of a scan. `longest`: most blocks that an end-of-band code represents; 1 in sequential files.
    fn tokens(&self, scan: &Scan, slots: &[[u8; 2]], longest: u32) -> Vec<Token> {
        let ([first, last], [high, low]) = (scan.band, scan.bits);
        let mut coder = Coder { tokens: Vec::new(), slot: 0, longest, run: 0, corrections: Vec::new() };
        let mut before = [0; 4];
        for (n, unit) in self.units(&scan.components).into_iter().enumerate() {
            if n > 0 && scan.restart > 0 && n.is_multiple_of(scan.restart.into()) {
                coder.end_run();
                coder.tokens.push(Token::Restart);
                before = [0; 4];
            }
            for (part, at) in unit {
                let block = &self.components[scan.components[part]].blocks[at];
                coder.slot = slots[part][1];
                if first == 0 && high == 0 {
                    let value = i32::from(point(block[0], low, true));
                    let change = value - std::mem::replace(&mut before[part], value);
                    let size = 32 - change.unsigned_abs().leading_zeros();
                    coder.tokens.push(Token::Code { class: 0, slot: slots[part][0], symbol: size as u8 });
                    coder.bits(if change < 0 { change - 1 } else { change } as u32, size);
                } else if first == 0 {
                    coder.bits((block[0] >> low) as u32, 1);
                }
                let band = (first.max(1)..=last).map(|at| block[natural(at.into())]);
                match (last, high) {
                    (0, _) => {}
                    (_, 0) => coder.band(band, low),
                    _ => coder.refine(&band.collect::<Vec<_>>(), low),
                }
            }
        }
        coder.end_run();
        coder.tokens
    }
}

impl Component {
    fn factors(&self) -> u8 {
        (self.across << 4 | self.down) as u8
    }
}

/// A coefficient without its last bits: T.81 rounds first coefficients down, and the others towards zero.
fn point(value: i16, low: u8, first: bool) -> i16 {
    if first { value >> low } else { value.signum() * (value.abs() >> low) }
}

#[derive(Clone, Copy, Debug)]
enum Token {
    /// A symbol of a table for first coefficients (class 0) or for others (1).
    Code {
        class: u8,
        slot: u8,
        symbol: u8,
    },
    /// The last bits of a number.
    Bits {
        value: u32,
        count: u32,
    },
    Restart,
}

/// Codes coefficients other than the first: T.81, F.1.2.2 and G.1.2.
struct Coder {
    tokens: Vec<Token>,
    slot: u8,
    longest: u32,
    /// Blocks without further codes in this band, and their correction bits.
    run: u32,
    corrections: Vec<bool>,
}

impl Coder {
    fn code(&mut self, run: usize, size: u32) {
        self.tokens.push(Token::Code { class: 1, slot: self.slot, symbol: (run << 4) as u8 | size as u8 });
    }

    fn bits(&mut self, value: u32, count: u32) {
        self.tokens.push(Token::Bits { value, count });
    }

    fn band(&mut self, band: impl Iterator<Item = i16>, low: u8) {
        let mut zeros = 0;
        for value in band.map(|value| point(value, low, false)) {
            if value == 0 {
                zeros += 1;
                continue;
            }
            self.end_run();
            while zeros > 15 {
                self.code(15, 0);
                zeros -= 16;
            }
            let size = 16 - value.unsigned_abs().leading_zeros();
            self.code(zeros, size);
            self.bits(if value < 0 { value - 1 } else { value } as u32, size);
            zeros = 0;
        }
        if zeros > 0 {
            self.lengthen_run();
        }
    }

    /// A code is followed by one bit for each non-zero value that it passes over.
    fn refine(&mut self, band: &[i16], low: u8) {
        let size = |value: i16| value.unsigned_abs() >> low;
        let new = band.iter().rposition(|value| size(*value) == 1);
        let (mut zeros, mut corrections) = (0, Vec::new());
        for (at, &value) in band.iter().enumerate() {
            if size(value) == 0 {
                zeros += 1;
                continue;
            }
            while zeros > 15 && Some(at) <= new {
                self.end_run();
                self.code(15, 0);
                self.correct(corrections.drain(..));
                zeros -= 16;
            }
            if size(value) > 1 {
                corrections.push(size(value) & 1 == 1);
                continue;
            }
            self.end_run();
            self.code(zeros, 1);
            self.bits(u32::from(value > 0), 1);
            self.correct(corrections.drain(..));
            zeros = 0;
        }
        if zeros > 0 || !corrections.is_empty() {
            self.corrections.append(&mut corrections);
            self.lengthen_run();
        }
    }

    fn correct(&mut self, bits: impl Iterator<Item = bool>) {
        self.tokens.extend(bits.map(|bit| Token::Bits { value: bit.into(), count: 1 }));
    }

    fn lengthen_run(&mut self) {
        self.run += 1;
        if self.run == self.longest {
            self.end_run();
        }
    }

    fn end_run(&mut self) {
        if self.run > 0 {
            let size = self.run.ilog2();
            self.code(size as usize, 0);
            self.bits(self.run, size);
            self.run = 0;
            let corrections = std::mem::take(&mut self.corrections);
            self.correct(corrections.into_iter());
        }
    }
}

/// A Huffman table: the number of codes of each length, and their symbols.
#[derive(Clone, Debug)]
struct Table {
    counts: [u8; 16],
    symbols: Vec<u8>,
}

impl Table {
    /// The optimal table (T.81, K.2). An unused symbol takes the code that consists only of ones.
    fn optimal(uses: &[u64; 256]) -> Self {
        let mut lengths = [0; 257];
        let used = (0..256).filter(|n| uses[*n] > 0).map(|n| (uses[n], vec![n]));
        let mut trees: Vec<(u64, Vec<usize>)> = used.chain([(1, vec![256])]).collect();
        while trees.len() > 1 {
            trees.sort_by_key(|tree| std::cmp::Reverse(tree.0));
            let (other, leaves) = trees.pop().unwrap();
            let last = trees.last_mut().unwrap();
            last.0 += other;
            last.1.extend(leaves);
            last.1.iter().for_each(|leaf| lengths[*leaf] += 1);
        }
        let mut counts = [0; 258];
        lengths.iter().filter(|length| **length > 0).for_each(|length| counts[*length] += 1);
        for long in (17..counts.len()).rev() {
            while counts[long] > 0 {
                let short = (1..long - 1).rev().find(|length| counts[*length] > 0).unwrap();
                counts[long] -= 2;
                counts[long - 1] += 1;
                counts[short + 1] += 2;
                counts[short] -= 1;
            }
        }
        *counts.iter_mut().rfind(|count| **count > 0).unwrap() -= 1;
        let mut symbols: Vec<u8> = (0..=255).filter(|n| uses[usize::from(*n)] > 0).collect();
        symbols.sort_by_key(|n| lengths[usize::from(*n)]);
        Self { counts: std::array::from_fn(|n| counts[n + 1]), symbols }
    }

    /// Random lengths for random symbols, used and unused.
    fn odd(uses: &[u64; 256], most: u8, draws: &mut Draws) -> Self {
        let others = draws.below(4) * draws.below(4);
        let mut chosen: [bool; 256] = std::array::from_fn(|n| uses[n] > 0);
        (0..others).for_each(|_| chosen[draws.below(u64::from(most) + 1) as usize] = true);
        let mut symbols: Vec<u8> = (0..=255).filter(|n| chosen[usize::from(*n)]).collect();
        (1..symbols.len()).for_each(|n| symbols.swap(n, draws.below(n as u64 + 1) as usize));
        // Leaves of a tree, one of them for the code that consists only of ones. Longer ones are more likely to be
        // split.
        let mut lengths = vec![1, 1];
        let skew = draws.below(5);
        while lengths.len() <= symbols.len() {
            let open: Vec<usize> = (0..lengths.len()).filter(|n| lengths[*n] < 16).collect();
            let any = open[draws.below(open.len() as u64) as usize];
            let longest = *open.iter().max_by_key(|n| lengths[**n]).unwrap();
            let split = if draws.below(4) < skew { longest } else { any };
            lengths[split] += 1;
            lengths.push(lengths[split]);
        }
        lengths.sort_unstable();
        let mut counts = [0; 16];
        lengths[..symbols.len()].iter().for_each(|length| counts[length - 1] += 1);
        Self { counts, symbols }
    }

    /// The code of each symbol, and its length.
    fn codes(&self) -> [(u32, u32); 256] {
        let mut codes = [(0, 0); 256];
        let (mut code, mut at) = (0, 0);
        for (count, length) in self.counts.iter().zip(1..) {
            for _ in 0..*count {
                codes[usize::from(self.symbols[at])] = (code, length);
                (code, at) = (code + 1, at + 1);
            }
            code <<= 1;
        }
        codes
    }
}

/// The tables of a scan, by class and slot.
#[derive(Clone, Debug, Default)]
struct Tables([[Option<Table>; 4]; 2]);

impl Tables {
    /// Tables for all codes that occur.
    fn new<'a>(tokens: impl IntoIterator<Item = &'a Token>, odd: &mut Option<&mut Draws>) -> Self {
        let mut uses = [[[0; 256]; 4]; 2];
        for token in tokens {
            if let Token::Code { class, slot, symbol } = *token {
                uses[usize::from(class)][usize::from(slot)][usize::from(symbol)] += 1;
            }
        }
        let mut tables = Self::default();
        for (class, slot) in (0..2).flat_map(|class| (0..4).map(move |slot| (class, slot))) {
            let uses = &uses[class][slot];
            if uses.iter().any(|n| *n > 0) {
                tables.0[class][slot] = Some(match odd {
                    Some(draws) => Table::odd(uses, [11, 255][class], draws),
                    None => Table::optimal(uses),
                });
            }
        }
        tables
    }

    fn write(&self, file: &mut Vec<u8>) {
        let mut body = Vec::new();
        for (class, tables) in self.0.iter().enumerate() {
            for (slot, table) in tables.iter().enumerate() {
                if let Some(Table { counts, symbols }) = table {
                    body.push((class << 4 | slot) as u8);
                    body.extend(counts.iter().chain(symbols));
                }
            }
        }
        if !body.is_empty() {
            segment(file, DHT, &body);
        }
    }

    fn write_data(&self, tokens: &[Token], file: &mut Vec<u8>) {
        let codes = self.0.each_ref().map(|tables| tables.each_ref().map(|table| table.as_ref().map(Table::codes)));
        let mut bits = Bits { file, held: 0, count: 0 };
        let mut restarts = 0;
        for token in tokens {
            match *token {
                Token::Code { class, slot, symbol } => {
                    let codes = codes[usize::from(class)][usize::from(slot)].as_ref().unwrap();
                    let (code, length) = codes[usize::from(symbol)];
                    bits.put(code, length);
                }
                Token::Bits { value, count } => bits.put(value, count),
                Token::Restart => {
                    bits.fill();
                    bits.file.extend([0xff, 0xd0 + restarts]);
                    restarts = (restarts + 1) % 8;
                }
            }
        }
        bits.fill();
    }
}

struct Bits<'a> {
    file: &'a mut Vec<u8>,
    held: u64,
    /// Bits that are not written yet: fewer than 8.
    count: u32,
}

impl Bits<'_> {
    /// The last bits of a number.
    fn put(&mut self, value: u32, count: u32) {
        self.held = self.held << count | u64::from(value) & ((1 << count) - 1);
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.held >> self.count) as u8;
            self.file.push(byte);
            if byte == 0xff {
                self.file.push(0);
            }
        }
    }

    /// Pads an incomplete byte.
    fn fill(&mut self) {
        self.put(u32::MAX, (8 - self.count) % 8);
    }
}

fn segment(file: &mut Vec<u8>, marker: u8, body: &[u8]) {
    file.extend([0xff, marker]);
    file.extend((body.len() as u16 + 2).to_be_bytes());
    file.extend_from_slice(body);
}

/// Scans of these components: one scan, or one per component if a unit would have more than the ten blocks that T.81
/// allows.
fn together(factors: &[u8], components: Vec<usize>) -> Vec<Vec<usize>> {
    let blocks = |n: &usize| u32::from(factors[*n] >> 4) * u32::from(factors[*n] & 15);
    if components.len() > 1 && components.iter().map(blocks).sum::<u32>() > 10 {
        return components.into_iter().map(|n| vec![n]).collect();
    }
    vec![components]
}

/// Coefficients as in photographs: first ones change slowly, higher ones are rarer, and some rows of blocks have none.
/// `factors`: sampling factors, horizontal and vertical, one digit each.
pub(crate) fn photo_like(draws: &mut Draws, height: usize, width: usize, factors: &[u8]) -> Picture {
    let coarse = [1, 2, 6, 20, 60][draws.below(5) as usize];
    let mut quant = Vec::new();
    for _ in 0..1 + draws.below(factors.len() as u64) {
        quant.push(std::array::from_fn(|n| (1 + coarse * (2 + n % 8 + n / 8) / 4 + draws.below(3) as usize) as u16));
    }
    // Sometimes larger than samples can be.
    let largest = if draws.below(16) == 0 { 32_000 } else { 3_999 };
    let most = |digit: fn(u8) -> u8| factors.iter().map(|f| usize::from(digit(*f))).max().unwrap();
    let [rows, cols] = [height.div_ceil(8 * most(|f| f & 15)), width.div_ceil(8 * most(|f| f >> 4))];
    let mut components = Vec::new();
    for (n, &factors) in factors.iter().enumerate() {
        let [down, across] = [factors & 15, factors >> 4].map(usize::from);
        let table = n % quant.len();
        let density = 1 + draws.below(6);
        let mut flat = false;
        let mut first = 0i64;
        let mut block = |_| {
            let mut block = [0; 64];
            let clamp = |value: i64, at: usize| {
                let most = (largest / i64::from(quant[table][at])).min(1023);
                value.clamp(-most, most) as i16
            };
            if draws.below(6) == 0 {
                flat = !flat;
            }
            let step = if draws.below(12) == 0 { 1500 } else { 1 + 40 / coarse as i64 };
            first = (first + draws.below(2 * step as u64 + 1) as i64 - step).clamp(-1023, 1023);
            block[0] = clamp(first.clamp(-1023 / (1 + coarse as i64 / 2), 1023 / (1 + coarse as i64 / 2)), 0);
            let dense = draws.below(12) == 0;
            for at in (1..64).filter(|_| dense || !flat) {
                let chance = if dense { 900 } else { 150 * density / (1 + at / density) };
                if draws.below(1000) < chance {
                    let size = 1 + draws.below(10) * draws.below(10) * draws.below(10) / 81;
                    let size = if dense || at < 6 { size } else { 1 + size / 3 };
                    let value = 1 + draws.below((1 << size) - 1) as i64;
                    let place = natural(at as usize);
                    block[place] = clamp(if draws.below(2) == 0 { value } else { -value }, place);
                }
            }
            block
        };
        let (pitch, blocks) = (cols * across, rows * down * cols * across);
        let blocks = (0..blocks).map(&mut block).collect();
        components.push(Component { down, across, table, pitch, blocks });
    }
    let transforms = [[None, None, Some(0), Some(1)], [None, None, Some(0), Some(2)]];
    let adobe = transforms[factors.len() / 4][draws.below(4) as usize];
    Picture { height, width, components, quant, adobe }
}

/// The scans that libjpeg writes (`jpeg_simple_progression`).
pub(crate) fn usual_script(factors: &[u8]) -> Vec<Scan> {
    let all: Vec<usize> = (0..factors.len()).collect();
    let scan = |components, band, bits| Scan { components, band, bits, restart: 0 };
    let firsts =
        |bits| together(factors, all.clone()).into_iter().map(move |components| scan(components, [0, 0], bits));
    let each = |band, bits| all.iter().map(move |n| scan(vec![*n], band, bits));
    let mut script: Vec<Scan> = firsts([0, 1]).collect();
    if let [_, _, _] = *factors {
        script.extend([scan(vec![0], [1, 5], [0, 2]), scan(vec![2], [1, 63], [0, 1]), scan(vec![1], [1, 63], [0, 1])]);
        script.extend([scan(vec![0], [6, 63], [0, 2]), scan(vec![0], [1, 63], [2, 1])]);
        script.extend(firsts([1, 0]));
        script.extend([2, 1, 0].map(|n| scan(vec![n], [1, 63], [1, 0])));
        return script;
    }
    script.extend(each([1, 5], [0, 2]).chain(each([6, 63], [0, 2])).chain(each([1, 63], [2, 1])));
    script.extend(firsts([1, 0]).chain(each([1, 63], [1, 0])));
    script
}

/// Scans with all bits of an image, of random bands, in a random order that T.81 allows.
pub(crate) fn any_script(draws: &mut Draws, factors: &[u8]) -> Vec<Scan> {
    loop {
        let script = draw_script(draws, factors);
        // More scans are refused.
        if script.len() <= 100 {
            return script;
        }
    }
}

fn draw_script(draws: &mut Draws, factors: &[u8]) -> Vec<Scan> {
    // For each coefficient, the number of low bits that are still missing.
    let mut left = vec![[None; 64]; factors.len()];
    let mut script = Vec::new();
    let most = draws.below(6);
    let cuts = draws.below(4);
    loop {
        let open: Vec<usize> = (0..left.len()).filter(|n| left[*n].iter().any(|bits| *bits != Some(0))).collect();
        if open.is_empty() {
            return script;
        }
        let n = open[draws.below(open.len() as u64) as usize];
        let first = left[n][0].is_none() || left[n][0] != Some(0) && draws.below(4) == 0;
        let places: Vec<usize> = (1..64).filter(|at| left[n][*at] != Some(0)).collect();
        let (mut components, mut band) = (vec![n], [0, 0]);
        let bits = if first || places.is_empty() {
            let mut same: Vec<usize> = (0..left.len()).filter(|other| left[*other][0] == left[n][0]).collect();
            same.retain(|other| *other == n || draws.below(3) > 0);
            if let [together] = &mut together(factors, same)[..] {
                components = std::mem::take(together);
            }
            left[n][0]
        } else {
            let at = places[draws.below(places.len() as u64) as usize];
            let bits = left[n][at];
            let alike = |at: &usize| left[n][*at] == bits;
            band = [(1..=at).rev().take_while(alike).last().unwrap(), (at..64).take_while(alike).last().unwrap()];
            if draws.below(4) < cuts {
                band[0] += draws.below((at - band[0]) as u64 + 1) as usize;
            }
            if draws.below(4) < cuts {
                band[1] -= draws.below((band[1] - at) as u64 + 1) as usize;
            }
            bits
        };
        let low = bits.map_or_else(|| draws.below(most + 1) as u8, |bits: u8| bits - 1);
        for n in &components {
            left[*n][band[0]..=band[1]].fill(Some(low));
        }
        let restart = if draws.below(3) == 0 { 1 + draws.below(20) as u16 } else { 0 };
        let bits = [bits.unwrap_or(0), low];
        script.push(Scan { components, band: band.map(|at| at as u8), bits, restart });
    }
}
