//! What is rare goes to [`zune_jpeg`], whole: progressive files, ink, odd sampling.
//!
//! Two things that a newcomer would get wrong:
//!
//! 1. zune fills up what is missing. A sequential scan is handed over without its end marker but with bits that are no
//!    Huffman code behind it, so that running into the end is an error.
//! 2. Colour is told by several markers that contradict each other; libjpeg's rule decides here, not zune's.

use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::JpegDecoder;

use super::{
    super::{PixelBuffer, cause, corrupt, unsupported},
    header::{
        APP14, Colour, DHT, DQT, DRI, EOI, Frame, Header, MOST_SCANS, Place, SOI, SOS, Scan, Segment, next_marker,
        segment,
    },
};
use crate::error::{ErrorKind, Result};

/// Bits that no Huffman table can hold: a code of ones only is forbidden (T.81, C.2). Twice what zune reads ahead.
const NO_CODE: &[u8; 32] =
    b"\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0";

/// Decodes all of a file to interleaved pixels. `fill`: what is missing or damaged is no error.
pub(super) fn decode(bytes: &[u8], header: &Header<'_>, fill: bool, out: &mut PixelBuffer) -> Result<()> {
    let mut file = std::mem::take(&mut out.scratch);
    file.clear();
    write(header, &mut file);
    let scan = Scan::find(bytes, header.scan);
    let copied = if header.frame.progressive {
        copy_scans(bytes, header.scan, &mut file)
    } else {
        file.extend_from_slice(&bytes[scan.bytes]);
        // Without the end marker: zune would make up whatever lies behind it.
        if !fill {
            file.extend_from_slice(NO_CODE);
        }
        Ok(())
    };
    if let Err(error) = copied
        && !(fill && error.kind() == ErrorKind::Corrupt)
    {
        out.scratch = file;
        return Err(error);
    }
    let space = if header.colour == Colour::Gray { ColorSpace::Luma } else { ColorSpace::RGB };
    let options = DecoderOptions::default()
        .set_strict_mode(!fill)
        .set_max_width(u16::MAX.into())
        .set_max_height(u16::MAX.into())
        .jpeg_set_max_scans(MOST_SCANS)
        .jpeg_set_out_colorspace(space);
    let info = header.info();
    let pixels = out.room(0..info.height, info.len_bytes() as usize);
    // zune may leave rows of a damaged file as they are: never the pixels of another image.
    pixels.fill(if fill { 128 } else { 0 });
    let result = JpegDecoder::new_with_options(ZCursor::new(&*file), options).decode_into(pixels);
    out.scratch = file;
    result.map_err(|words| {
        let what = if scan.ended {
            // zune does not tell where it stopped.
            let place = Place { marker: SOS, at: header.scan - header.scan_header.len() - 2 };
            format!("JPEG is damaged in a scan from the first one on{place}")
        } else {
            format!("JPEG ends after {} bytes, before its image is complete", bytes.len())
        };
        corrupt(what).with_source(cause(words.to_string()))
    })
}

/// Copies the scans of a progressive file and the tables between them, up to the end marker; first scan's data begins at
/// `at`. Nothing else: zune would change its mind about colours halfway. What was found is copied even on an error.
///
/// A file without its end looks complete, only blurred, when its last scans are missing: that is an error here.
fn copy_scans(bytes: &[u8], mut at: usize, to: &mut Vec<u8>) -> Result<()> {
    let (mut scans, mut in_scan) = (1, true);
    loop {
        let next = next_marker(bytes, at);
        if in_scan {
            to.extend_from_slice(&bytes[at..next.map_or(bytes.len(), |(found, _)| found)]);
        }
        let Some((found, marker)) = next else {
            let length = bytes.len();
            return Err(corrupt(format!("JPEG ends after {length} bytes, before its last scan is complete")));
        };
        at = found + 2;
        match marker {
            EOI => {
                to.extend([0xff, EOI]);
                return Ok(());
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
                    let place = Place { marker, at: found };
                    return Err(unsupported(format!("JPEG with more than {MOST_SCANS} scans{place}")));
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
fn write(header: &Header<'_>, to: &mut Vec<u8>) {
    let Frame { progressive, height, width, components } = &header.frame;
    to.extend([0xff, SOI]);
    // EXIF, thumbnails, comments stay behind: zune would copy some and stumble over damaged ones.
    for Segment { marker, bytes, .. } in &header.tables {
        to.extend([0xff, *marker]);
        to.extend_from_slice(bytes);
    }
    let transform = match header.colour {
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
    to.extend_from_slice(header.scan_header);
}
