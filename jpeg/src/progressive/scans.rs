//! Lists the scans of a file before any of them is read.

use crate::{
    error::Result,
    grid::Grid,
    header::{DHT, DQT, DRI, Header, Place, Progress, SOS, ScanHeader, Segment, segments_from_scan},
    scan::Options,
    tables::{self, Quantisation},
};

/// Most scans of a file: each costs a pass over the image, however few bytes it has. Encoders write about ten.
const MOST_SCANS: usize = 100;

/// A definition of Huffman codes, by its slot.
type Definitions<'a> = [Option<&'a [u8]>; 4];

/// A scan, and the tables that apply where it begins.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    pub(super) header: ScanHeader,
    pub(super) place: Place,
    /// Byte at which its data begins, and the byte after the marker that ends it at the latest.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Units between restarts.
    pub(super) interval: Option<usize>,
    /// For first coefficients, and for the others.
    definitions: [Definitions<'a>; 2],
}

impl<'a> Scan<'a> {
    /// The definition that component `part` of the scan uses.
    pub(super) fn definition(&self, part: usize) -> Result<&'a [u8]> {
        let class = usize::from(self.header.band[0] > 0);
        let slot = self.header.components[part].tables[class];
        let found = self.definitions[class][usize::from(slot)];
        found.ok_or_else(|| self.place.damaged(format_args!("JPEG lacks Huffman table {slot} of a scan")))
    }

    /// The coefficients of its band: a bit for each, in the file's order.
    pub(super) fn band(&self) -> u64 {
        let [first, last] = self.header.band;
        u64::MAX << first & u64::MAX >> (63 - last)
    }
}

/// The tables between the scans.
#[derive(Debug, Default)]
struct Tables<'a> {
    quant: Quantisation,
    definitions: [Definitions<'a>; 2],
    interval: usize,
}

impl<'a> Tables<'a> {
    fn read(&mut self, segment: &Segment<'a>) -> Result<()> {
        let Segment { marker, at, bytes } = *segment;
        let body = &bytes[2..];
        let read = match marker {
            DQT => tables::quantisation(body, &mut self.quant),
            DHT => tables::definitions(body, |class, slot, text| {
                self.definitions[class][slot] = Some(text);
                Some(())
            }),
            DRI => tables::interval(body).map(|units| self.interval = units),
            _ => Some(()),
        };
        read.ok_or_else(|| tables::damaged(Place { marker, at }))
    }
}

/// The scans of a file, and the quantisation table of each component, as it was where the component's first scan began.
#[derive(Debug, Default)]
pub(super) struct Scans<'a> {
    pub(super) list: Vec<Scan<'a>>,
    pub(super) quant: [Option<[i16; 64]>; 4],
}

/// A file, and the requested part of it.
#[derive(Clone, Copy)]
pub(super) struct File<'a> {
    pub(super) bytes: &'a [u8],
    /// Byte at which the first scan's data begins.
    pub(super) first: usize,
    pub(super) grid: &'a Grid,
    pub(super) options: Options<'a>,
    pub(super) scans: &'a Scans<'a>,
}

/// Lists the scans of a file, up to the first one that does not add to those before it; the error tells why the list
/// ends. A file without an end marker is an error: it would look complete, only blurred, without its last scans.
pub(super) fn scans<'a>(bytes: &'a [u8], header: &Header) -> (Scans<'a>, Result<()>) {
    let mut scans = Scans::default();
    let listed = list(bytes, header, &mut scans);
    (scans, listed)
}

fn list<'a>(bytes: &'a [u8], header: &Header, scans: &mut Scans<'a>) -> Result<()> {
    let mut tables = Tables::default();
    for segment in header.tables(bytes) {
        tables.read(&segment)?;
    }
    let frame = &header.frame;
    let mut progress = Progress::default();
    let file = bytes;
    let end = segments_from_scan(bytes, header, |segment| {
        let Segment { marker, at, bytes } = *segment;
        end_last(&mut scans.list, at);
        if marker != SOS {
            return tables.read(segment);
        }
        let place = Place { marker, at };
        if scans.list.len() == MOST_SCANS {
            return Err(place.unsupported(format_args!("JPEG with more than {MOST_SCANS} scans")));
        }
        let header = progress.add(frame, segment)?;
        for part in &header.components {
            let quant = &mut scans.quant[part.component];
            if quant.is_none() {
                let slot = frame.components[part.component].table;
                let table = tables.quant[usize::from(slot)];
                *quant =
                    Some(table.ok_or_else(|| {
                        place.damaged(format_args!("JPEG lacks quantisation table {slot} of a scan"))
                    })?);
            }
        }
        let Tables { definitions, interval, .. } = tables;
        let start = at + 2 + bytes.len();
        let interval = Some(interval).filter(|units| *units > 0);
        scans.list.push(Scan { header, place, start, end: file.len(), interval, definitions });
        Ok(())
    })?;
    end_last(&mut scans.list, end.at);
    progress.check_end(frame, end)
}

/// The last scan's data ends at the latest at the marker at this byte.
fn end_last(list: &mut [Scan<'_>], marker: usize) {
    if let Some(last) = list.last_mut() {
        last.end = last.end.min(marker + 2);
    }
}
