//! Errors: what is wrong with a file, and at which byte.

#![forbid(unsafe_code)]

use std::{borrow::Cow, error::Error as StdError, fmt};

/// A `Result` with this crate's [`Error`].
///
/// ```
/// fn pixels(file: &[u8]) -> infeed_jpeg::Result<u64> {
///     let header = infeed_jpeg::Header::parse(file)?;
///     Ok(u64::from(header.height()) * u64::from(header.width()))
/// }
/// assert!(pixels(b"no picture").is_err());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a file can't be decoded. Cheap to clone.
///
/// The text names the marker and the byte; the byte is also in [`offset`](Self::offset).
///
/// ```
/// let error = infeed_jpeg::Header::parse(&[0xff, 0xd8, 0xff, 0xd9]).unwrap_err();
/// assert_eq!(error.to_string(), "JPEG has no image: its end marker comes before its first scan (FF D9 at byte 2)");
/// assert_eq!((error.kind(), error.offset()), (infeed_jpeg::ErrorKind::Damaged, Some(2)));
/// ```
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    what: Cow<'static, str>,
    offset: Option<usize>,
}

/// The kind of an error: one for each way in which a caller may react.
///
/// ```
/// # let mut file = Vec::new();
/// # jpeg_encoder::Encoder::new(&mut file, 80).encode(&[120; 3 * 32 * 16], 32, 16, jpeg_encoder::ColorType::Rgb)?;
/// use infeed_jpeg::{Decoder, ErrorKind};
///
/// // A download that was interrupted.
/// let error = Decoder::new().decode(&file[..file.len() - 9]).unwrap_err();
/// match error.kind() {
///     ErrorKind::Damaged => println!("to be fetched again: {error}"),
///     ErrorKind::Unsupported => println!("for another decoder: {error}"),
///     _ => return Err(error.into()),
/// }
/// # assert_eq!(error.kind(), ErrorKind::Damaged);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file is truncated or contradicts itself.
    Damaged,
    /// The file is whole, but of a kind that this decoder does not support.
    Unsupported,
    /// The arguments are invalid: the header of another file, a scale of 3, a slice of another length.
    Misuse,
    /// The system has no memory for the pixels.
    OutOfMemory,
}

impl Error {
    pub(crate) fn damaged(what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: ErrorKind::Damaged, what: what.into(), offset: None }
    }

    pub(crate) fn out_of_memory(len: usize) -> Self {
        Self { kind: ErrorKind::OutOfMemory, ..Self::damaged(format!("no memory for the {len} bytes of a JPEG")) }
    }

    pub(crate) fn unsupported(what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: ErrorKind::Unsupported, ..Self::damaged(what) }
    }

    pub(crate) fn misuse(what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: ErrorKind::Misuse, ..Self::damaged(what) }
    }

    /// Adds the byte.
    pub(crate) fn at(self, offset: usize) -> Self {
        Self { offset: Some(offset), ..self }
    }

    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The byte of the file at which the problem was found: the byte of a marker, or the file's length if it ends too
    /// early.
    #[must_use]
    pub const fn offset(&self) -> Option<usize> {
        self.offset
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl StdError for Error {}
