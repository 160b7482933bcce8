//! Transfer syntaxes: how a file's elements and pixels are written.

use infeed_core::error::{Error, ErrorKind, Result};

use super::element::Form;

/// How the pixels of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pixels {
    /// One frame after another.
    Native,
    /// As `Native`, in a file that is deflated after its first group.
    Deflated,
    /// In pieces, uncompressed (encapsulated).
    Pieces,
    /// In pieces, run-length encoded, one segment per byte of a value.
    Runs,
    /// In pieces, lossy JPEG of 8 bits.
    Jpeg,
    /// In pieces, JPEG's lossless process.
    Lossless,
}

impl Pixels {
    /// Whether frames are in pieces, after a table of where each begins (encapsulated).
    pub(super) const fn in_pieces(self) -> bool {
        !matches!(self, Self::Native | Self::Deflated)
    }

    /// Most values that a byte can encode. No more memory than that is allocated for the size that a header claims.
    pub(super) const fn most_of_a_byte(self) -> u64 {
        match self {
            Self::Native | Self::Pieces => 1,
            // At best 258 bytes in two bits.
            Self::Deflated => 1032,
            // At best 128 bytes in two.
            Self::Runs => 64,
            // At best a block of 64 values in two bits, which subsampling to a quarter makes four times as many.
            Self::Jpeg => 1024,
            // At best a value per bit.
            Self::Lossless => 8,
        }
    }
}

/// The form and the pixels of a transfer syntax.
pub(super) fn syntax(uid: &str) -> Result<(Form, Pixels)> {
    let big = Form { explicit: true, big_endian: true };
    Ok(match uid {
        "1.2.840.10008.1.2" => (Form::IMPLICIT, Pixels::Native),
        "1.2.840.10008.1.2.1" => (Form::EXPLICIT, Pixels::Native),
        "1.2.840.10008.1.2.2" => (big, Pixels::Native),
        "1.2.840.10008.1.2.1.98" => (Form::EXPLICIT, Pixels::Pieces),
        "1.2.840.10008.1.2.1.99" => (Form::EXPLICIT, Pixels::Deflated),
        "1.2.840.10008.1.2.5" => (Form::EXPLICIT, Pixels::Runs),
        "1.2.840.10008.1.2.4.50" | "1.2.840.10008.1.2.4.51" => (Form::EXPLICIT, Pixels::Jpeg),
        "1.2.840.10008.1.2.4.57" | "1.2.840.10008.1.2.4.70" => (Form::EXPLICIT, Pixels::Lossless),
        _ => return Err(refused(uid)),
    })
}

fn refused(uid: &str) -> Error {
    let number = |prefix: &str| uid.strip_prefix(prefix).and_then(|n| n.parse::<u16>().ok());
    let name = match number("1.2.840.10008.1.2.4.") {
        Some(80 | 81) => "JPEG-LS",
        Some(90..=93) => "JPEG 2000",
        Some(100..=108) => "video",
        Some(110..=112) => "JPEG XL",
        Some(201..=203) => "High-Throughput JPEG 2000",
        Some(_) => "a rare kind of JPEG",
        None => "an unknown transfer syntax",
    };
    Error::new(ErrorKind::Unsupported, format!("pixels in {name} ({uid}), which is not read"))
        .with_hint("convert the files, as `gdcmconv --raw` does, or leave the series out")
}
