//! What goes wrong with objects, in words of ours.

use std::{error::Error as _, io, ops::Range};

use object_store::ObjectMeta;

use super::answer::{Answer, our_error};
use crate::error::{Error, ErrorKind, Result};

pub(super) const CHANGED: &str = "it changed since it was listed: open the dataset again";

pub(super) fn not_unicode() -> Error {
    Error::new(ErrorKind::Unsupported, "the name is not Unicode").hint("rename it")
}

pub(super) fn read_error(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::IsADirectory => Error::new(ErrorKind::NotFound, "no such object").with_source(error),
        _ => Error::new(io_kind(&error), "reading broke off").with_source(error),
    }
}

pub(super) fn open_error(error: io::Error) -> Error {
    let kind = io_kind(&error);
    let what = match kind {
        ErrorKind::NotFound => "no such object",
        ErrorKind::Denied => "access is refused",
        _ => "cannot be read",
    };
    Error::new(kind, what).with_source(error)
}

pub(super) fn grown(found: u64, expected: u64) -> Error {
    Error::corrupt(format!("the object has {found} bytes, {expected} when it was listed")).hint(CHANGED)
}

pub(super) fn check_range(range: &Range<u64>, size: Option<u64>) -> Result<()> {
    if range.start > range.end || size.is_some_and(|size| range.end > size) {
        let of = size.map(|size| format!(" of {size} bytes")).unwrap_or_default();
        let what = format!("no such range{of}");
        return Err(Error::new(ErrorKind::Internal, what).hint("the dataset plans reads that can't be"));
    }
    Ok(())
}

/// Compares an object with what is known of it. A property of the object, not of this request: reading again would
/// find the same, so a sample of it is bad and the run may go on.
pub(super) fn check_size(meta: &ObjectMeta, range: &Range<u64>, size: Option<u64>) -> Result<()> {
    match size {
        Some(size) if meta.size > size => Err(grown(meta.size, size)),
        Some(size) if meta.size < size => Err(shrunk(meta.size, size)),
        _ if meta.size < range.end => Err(shrunk(meta.size, range.end)),
        _ => Ok(()),
    }
}

pub(super) fn shrunk(found: u64, expected: u64) -> Error {
    Error::corrupt(format!("the object ends after {found} of {expected} bytes")).hint(CHANGED)
}

/// Unlike [`shrunk`], the store claims to have it all: a broken connection or proxy, worth another try.
pub(super) fn short_answer(got: u64, asked: u64) -> Error {
    Error::new(ErrorKind::Io, format!("the answer holds {got} of the {asked} bytes asked for")).hint("try again")
}

pub(super) fn too_large(asked: u64) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("{asked} bytes do not fit this machine's memory"))
}

/// What kind of error an error of the system is.
pub(crate) fn io_kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::Io,
    }
}

/// Keeps what the store said as the cause and finds out what the caller can do about it.
pub(super) fn store_error(error: object_store::Error, what: &'static str) -> Error {
    use object_store::Error as E;
    // A bucket's own words, which say more than the kinds below.
    if let Some(ours) = our_error(&error) {
        return ours.clone();
    }
    let kind = match &error {
        E::NotFound { .. } => ErrorKind::NotFound,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => ErrorKind::Denied,
        E::NotSupported { .. } | E::NotImplemented { .. } => ErrorKind::Unsupported,
        E::UnknownConfigurationKey { .. } => ErrorKind::Config,
        // The local store wraps what the system said.
        _ => std::iter::successors(error.source(), |error| (*error).source())
            .find_map(|error| error.downcast_ref::<io::Error>())
            .map_or(ErrorKind::Io, io_kind),
    };
    let what = match kind {
        ErrorKind::NotFound => "no such object",
        ErrorKind::Denied => "access is refused",
        _ => what,
    };
    because(Error::new(kind, what), error)
}

/// Gives an error its cause: what the store answered, where that is known, instead of what `object_store` makes of it.
pub(super) fn because(error: Error, cause: object_store::Error) -> Error {
    match Answer::of(&cause) {
        Some(answer) => answer.cause_of(error),
        None => error.with_source(cause),
    }
}
