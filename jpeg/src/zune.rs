//! What is rare goes to [`zune_jpeg`], whole: progressive files, ink, odd sampling.
//!
//! Two things that a newcomer would get wrong:
//!
//! 1. zune fills up what is missing. A sequential scan is handed over without its end marker but with bits that are no
//!    Huffman code behind it, so that running into the end is an error.
//! 2. Colour is told by several markers that contradict each other; libjpeg's rule decides here, not zune's.

#![forbid(unsafe_code)]

use std::io;

use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::JpegDecoder;

use crate::{
    error::{Error, ErrorKind, Result},
    header::{
        APP14, Colour, DHT, DQT, DRI, EOI, Frame, Header, Place, Progress, SOI, SOS, Segment, end_of_scan, next_marker,
        no_last_scan, segment,
    },
    huffman::STANDARD,
};

/// Bits that no Huffman table can hold: a code of ones only is forbidden (T.81, C.2). Twice what zune reads ahead.
const NO_CODE: &[u8; 32] =
    b"\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0";

/// Most scans of a file: each costs a pass over all of the image, however few bytes it has. Encoders write about ten.
const MOST_SCANS: usize = 100;

/// Decodes all of a file to interleaved pixels. `fill`: what is missing or damaged is no error. `file` is memory.
pub(crate) fn decode(bytes: &[u8], header: &Header, fill: bool, file: &mut Vec<u8>, pixels: &mut [u8]) -> Result<()> {
    file.clear();
    write(bytes, header, file);
    let end = end_of_scan(bytes, header.scan());
    if header.is_progressive() {
        match copy_scans(bytes, header, file) {
            Err(error) if !(fill && error.kind() == ErrorKind::Damaged) => return Err(error),
            _ => {}
        }
    } else {
        file.extend_from_slice(&bytes[header.scan()..end.unwrap_or(bytes.len())]);
        // Without the end marker: zune would make up whatever lies behind it.
        if !fill {
            file.extend_from_slice(NO_CODE);
        }
    }
    let space = if header.colour() == Colour::Gray { ColorSpace::Luma } else { ColorSpace::RGB };
    let options = DecoderOptions::default()
        .set_strict_mode(!fill)
        .set_max_width(u16::MAX.into())
        .set_max_height(u16::MAX.into())
        .jpeg_set_max_scans(MOST_SCANS)
        .jpeg_set_out_colorspace(space);
    // zune may leave rows of a damaged file as they are: never the pixels of another image.
    pixels.fill(if fill { 128 } else { 0 });
    let result = JpegDecoder::new_with_options(ZCursor::new(&**file), options).decode_into(pixels);
    result.map_err(|words| {
        let damaged = if end.is_some() {
            // zune does not tell where it stopped.
            header.scan_place().damaged("JPEG is damaged in a scan from the first one on")
        } else {
            let length = bytes.len();
            Error::damaged(format!("JPEG ends after {length} bytes, before its image is complete")).at(length)
        };
        damaged.with_source(io::Error::other(words.to_string().trim().to_owned()))
    })
}

/// Copies the scans of a progressive file and the tables between them, up to the end marker; first scan's data begins at
/// `at`. Nothing else: zune would change its mind about colours halfway. What was found is copied even on an error.
///
/// A file without its end looks complete, only blurred, when its last scans are missing: that is an error here, and so are
/// scans that do not add to each other.
fn copy_scans(bytes: &[u8], header: &Header, to: &mut Vec<u8>) -> Result<()> {
    let (mut scans, mut in_scan, mut progress) = (1, true, Progress::default());
    let mut at = header.scan();
    progress.add(&header.frame, header.scan_header(bytes), at)?;
    loop {
        let next = next_marker(bytes, at);
        if in_scan {
            to.extend_from_slice(&bytes[at..next.map_or(bytes.len(), |(found, _)| found)]);
        }
        let Some((found, marker)) = next else { return Err(no_last_scan(bytes)) };
        at = found + 2;
        match marker {
            EOI => {
                to.extend([0xff, EOI]);
                return progress.check_end(&header.frame, Place { marker, at: found });
            }
            0xd0..=0xd7 if in_scan => to.extend([0xff, marker]),
            0x01 | 0xd0..=SOI => {}
            _ => {
                let body = segment(bytes, at)?;
                at += body.len();
                // Bytes behind other segments belong to none.
                in_scan = marker == SOS;
                scans += usize::from(in_scan);
                if scans > MOST_SCANS {
                    let what = format_args!("JPEG with more than {MOST_SCANS} scans");
                    return Err(Place { marker, at: found }.unsupported(what));
                }
                if in_scan {
                    progress.add(&header.frame, body, at)?;
                }
                if matches!(marker, SOS | DHT | DQT | DRI) {
                    to.extend([0xff, marker]);
                    to.extend_from_slice(body);
                }
            }
        }
    }
}

/// Writes what stands before the first scan's data, as zune shall see it.
fn write(bytes: &[u8], header: &Header, to: &mut Vec<u8>) {
    let Frame { progressive, height, width, components } = &header.frame;
    to.extend([0xff, SOI]);
    // EXIF, thumbnails, comments stay behind: zune would copy some and stumble over damaged ones.
    for Segment { marker, bytes, .. } in header.tables(bytes) {
        to.extend([0xff, marker]);
        to.extend_from_slice(bytes);
    }
    if header.standard_codes {
        to.extend([0xff, DHT]);
        to.extend_from_slice(&STANDARD);
    }
    let transform = match header.colour() {
        Colour::Gray | Colour::YCbCr => None,
        Colour::Rgb | Colour::Cmyk => Some(0),
        Colour::Ycck => Some(2),
    };
    if let Some(transform) = transform {
        to.extend([0xff, APP14, 0, 14]);
        to.extend_from_slice(b"Adobe\0\x64\0\0\0\0");
        to.push(transform);
    }
    let marker = if *progressive { 0xc2 } else { 0xc0 };
    to.extend([0xff, marker, 0, 8 + 3 * components.len() as u8, 8]);
    to.extend(height.to_be_bytes());
    to.extend(width.to_be_bytes());
    to.push(components.len() as u8);
    for component in components {
        to.extend([component.id, component.across << 4 | component.down, component.table]);
    }
    to.extend([0xff, SOS]);
    to.extend_from_slice(header.scan_header(bytes));
}
