//! infeed's errors for failed reads and listings of objects.

use std::{error::Error as _, io, ops::Range};

use bytes::{Bytes, BytesMut};
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{IO_CONCURRENCY, MEMORY_BUDGET, PREFETCH, WORKERS},
    },
    machine::memory,
};
use object_store::{ObjectMeta, path::Error as PathError};

use super::answer::{Answer, Phase, our_error};

pub(super) const CHANGED: &str = "it changed since it was listed: open the dataset again";

pub(super) fn not_unicode() -> Error {
    Error::new(ErrorKind::Unsupported, "the name is not Unicode").with_hint("rename it")
}

pub(super) fn read_error(error: io::Error) -> Error {
    if no_files(&error) {
        return files_ran_out().with_source(error);
    }
    match error.kind() {
        io::ErrorKind::IsADirectory => {
            Error::new(ErrorKind::NotFound, "no such object").with_source(error).into_unreadable()
        }
        _ => of_file(Error::new(io_kind(&error), "reading broke off"), &error).with_source(error),
    }
}

/// Marks the error as limited to this file, if the cause is.
fn of_file(error: Error, cause: &io::Error) -> Error {
    if is_of_one_file(cause) { error.into_unreadable() } else { error }
}

/// Whether the error is about one file: it is missing, access is refused, or it has bad blocks (EIO, and the codes of
/// file systems with checksums). A cause in this process (no handles, no memory) or in a whole network would fail any
/// other file too.
fn is_of_one_file(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    // EIO, ELOOP, EBADMSG (XFS: a checksum), EUCLEAN (ext4, XFS: a damaged inode): std has no stable kinds for them.
    const CODES: [i32; 4] = [5, 40, 74, 117];
    matches!(
        error.kind(),
        K::NotFound | K::NotADirectory | K::PermissionDenied | K::IsADirectory | K::StaleNetworkFileHandle
    ) || (cfg!(target_os = "linux") && error.raw_os_error().is_some_and(|code| CODES.contains(&code)))
}

pub(super) fn open_error(error: io::Error) -> Error {
    if no_files(&error) {
        return files_ran_out().with_source(error);
    }
    let kind = io_kind(&error);
    let what = match kind {
        ErrorKind::NotFound => "no such object",
        ErrorKind::Denied => "access is refused",
        _ if is_loop(&error) => "a symbolic link leads back to itself",
        _ => "cannot be read",
    };
    of_file(Error::new(kind, what), &error).with_source(error)
}

pub(super) fn grown(found: u64, expected: u64) -> Error {
    Error::corrupt(format!("the object has {found} bytes, {expected} when it was listed")).with_hint(CHANGED)
}

pub(super) fn check_range(range: &Range<u64>, size: Option<u64>) -> Result<()> {
    if range.start > range.end || size.is_some_and(|size| range.end > size) {
        let of = size.map(|size| format!(" of {size} bytes")).unwrap_or_default();
        let what = format!("no such range{of}");
        return Err(Error::new(ErrorKind::Internal, what).with_hint("the dataset plans a read outside of the object"));
    }
    Ok(())
}

/// Compares an object with its expected size. A difference is a property of the object, not of this request, and
/// reading again would find the same: the sample is bad, and the run may continue.
pub(super) fn check_size(meta: &ObjectMeta, range: &Range<u64>, size: Option<u64>) -> Result<()> {
    match size {
        Some(size) if meta.size > size => Err(grown(meta.size, size)),
        Some(size) if meta.size < size => Err(shrunk(meta.size, size)),
        _ if meta.size < range.end => Err(shrunk(meta.size, range.end)),
        _ => Ok(()),
    }
}

pub(super) fn shrunk(found: u64, expected: u64) -> Error {
    Error::corrupt(format!("the object ends after {found} of {expected} bytes")).with_hint(CHANGED)
}

/// Unlike [`shrunk`], the store claims to have the whole range: a broken connection or proxy, worth another attempt.
pub(super) fn short_answer(got: u64, asked: u64) -> Error {
    Error::new(ErrorKind::Io, format!("the answer holds {got} of the {asked} bytes asked for")).with_hint("try again")
}

pub(super) fn too_large(asked: u64) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("{asked} bytes do not fit this machine's memory"))
}

/// From this size on, memory is requested in a way that can fail without ending the process.
const LARGE: usize = 1 << 20;
/// From this size on, the length is compared with the machine's memory, which takes a few reads of `/proc`.
const HUGE: usize = 1 << 30;

/// Sets the buffer's length. It then holds old content or zeros, which the caller must overwrite entirely.
///
/// For a large buffer, `BytesMut` itself would end the process if there is no memory.
pub(super) fn make_room(buffer: &mut BytesMut, length: usize) -> Result<()> {
    if buffer.capacity() < length {
        // Growing copies the content, which is not needed.
        buffer.clear();
        if length >= LARGE {
            // Frees the old buffer first, so that both do not exist at once.
            *buffer = BytesMut::new();
            let mut fresh = reserved(length)?;
            fresh.resize(length, 0);
            // The only owner, so the memory is taken over, not copied.
            *buffer = BytesMut::from(Bytes::from(fresh));
            return Ok(());
        }
    }
    // Zeroing is the price of reading into fresh memory in safe code, 3 µs for 100 KB. Only bytes that no read filled
    // before are zeroed.
    buffer.resize(length, 0);
    Ok(())
}

/// An empty buffer with room for `bytes` from a store.
pub(super) fn room(bytes: u64) -> Result<BytesMut> {
    let length = usize::try_from(bytes).ok().filter(|bytes| *bytes <= isize::MAX as usize);
    room_for(length.ok_or_else(|| too_large(bytes))?)
}

/// An empty buffer with room for `length` bytes.
pub(super) fn room_for(length: usize) -> Result<BytesMut> {
    if length < LARGE {
        return Ok(BytesMut::with_capacity(length));
    }
    // With one byte in it: an empty vector would be freed in the conversion.
    let mut fresh = reserved(length)?;
    fresh.push(0);
    let mut buffer = BytesMut::from(Bytes::from(fresh));
    buffer.clear();
    Ok(buffer)
}

fn reserved(length: usize) -> Result<Vec<u8>> {
    // A system that overcommits memory ends the process later, when the memory is used.
    if length >= HUGE
        && let Some(all) = memory().filter(|all| length as u64 > *all)
    {
        let what = format!("no memory to read {length} bytes: the machine has {all}");
        let hint = "a single read must fit into memory: write smaller records, or exclude this one";
        return Err(Error::new(ErrorKind::OutOfMemory, what).with_hint(hint).of_machine());
    }
    let mut fresh = Vec::new();
    fresh.try_reserve_exact(length).map_err(|_| {
        Error::new(ErrorKind::OutOfMemory, format!("no memory to read {length} bytes"))
            .with_hint(format!("free memory of the machine, or lower {WORKERS}, {PREFETCH} or {MEMORY_BUDGET}"))
            .of_machine()
    })?;
    Ok(fresh)
}

/// The kind of error for an I/O error.
pub fn io_kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::Io,
    }
}

/// Not a property of a file or store, so no sample may be skipped for it: a limit of the process is too low.
#[doc(hidden)]
#[must_use]
pub fn files_ran_out() -> Error {
    Error::config("too many files are open")
        .with_hint(format!("raise the limit (`ulimit -n`), or lower {IO_CONCURRENCY} and {WORKERS}"))
}

/// Whether this process (`EMFILE`) or the machine (`ENFILE`) can't open any more files.
#[doc(hidden)]
#[must_use]
pub fn no_files(error: &io::Error) -> bool {
    cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24))
}

/// The same for a store's error.
pub(super) fn too_many_files(error: &object_store::Error) -> bool {
    match Answer::of(error) {
        Some(answer) => matches!(answer, Answer::Broken(broken) if broken.phase == Phase::NoFiles),
        None => std::iter::successors(error.source(), |error| (*error).source())
            .any(|error| error.downcast_ref::<io::Error>().is_some_and(no_files)),
    }
}

/// `ELOOP`: std has no stable kind for it.
pub(super) fn is_loop(error: &io::Error) -> bool {
    cfg!(unix) && error.raw_os_error() == Some(if cfg!(target_os = "linux") { 40 } else { 62 })
}

/// Keeps the store's error as the cause, and finds out what the caller can do about it.
pub(super) fn store_error(error: object_store::Error, what: &'static str) -> Error {
    use object_store::Error as E;
    // An error made for a bucket contains more than the kinds below.
    if let Some(ours) = our_error(&error) {
        return ours.clone();
    }
    if let E::InvalidPath { source: PathError::EmptySegment { path } | PathError::BadSegment { path, .. } } = &error {
        // From a store that is listed without infeed's client, which would report more.
        return Error::new(
            ErrorKind::Unsupported,
            format!("{path:?} can't be used as a name: a part is empty, `.` or `..`, or has control characters"),
        )
        .with_hint("rename or remove that object, or open a prefix without it");
    }
    if too_many_files(&error) {
        return because(files_ran_out(), error);
    }
    // The local store wraps the system's error.
    let system = std::iter::successors(error.source(), |error| (*error).source())
        .find_map(|error| error.downcast_ref::<io::Error>());
    let (kind, unreadable) = match &error {
        E::NotFound { .. } => (ErrorKind::NotFound, true),
        E::PermissionDenied { .. } => (ErrorKind::Denied, true),
        // Credentials belong to the run, not to one object.
        E::Unauthenticated { .. } => (ErrorKind::Denied, false),
        E::NotSupported { .. } | E::NotImplemented { .. } => (ErrorKind::Unsupported, false),
        E::UnknownConfigurationKey { .. } => (ErrorKind::Config, false),
        _ => (system.map_or(ErrorKind::Io, io_kind), system.is_some_and(is_of_one_file)),
    };
    let what = match kind {
        ErrorKind::NotFound => "no such object",
        ErrorKind::Denied => "access is refused",
        _ => what,
    };
    let ours = Error::new(kind, what);
    because(if unreadable { ours.into_unreadable() } else { ours }, error)
}

/// Sets the cause of an error: the store's answer if it is known, otherwise `object_store`'s error.
pub(super) fn because(error: Error, cause: object_store::Error) -> Error {
    match Answer::of(&cause) {
        Some(answer) => answer.cause_of(error),
        None => error.with_source(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_what_comes_is_there_or_refused() {
        assert_eq!(room_for(isize::MAX as usize - 4096).unwrap_err().kind(), ErrorKind::OutOfMemory);
        for length in [0, 5, LARGE - 1, LARGE, 3 * LARGE + 7] {
            let mut buffer = room_for(length).unwrap();
            assert!(buffer.is_empty() && buffer.capacity() >= length, "{length}");
            // As in readers of several parts.
            let mut later = buffer.split_off(length / 2);
            buffer.extend_from_slice(&vec![1; length / 2]);
            later.extend_from_slice(&vec![2; length - length / 2]);
            buffer.unsplit(later);
            assert!(
                buffer.len() == length
                    && buffer.iter().enumerate().all(|(n, byte)| *byte == 1 + u8::from(n >= length / 2))
            );
        }
    }

    #[test]
    fn room_that_no_machine_has_is_an_answer() {
        let mut buffer = BytesMut::from(&b"old"[..]);
        let error = make_room(&mut buffer, isize::MAX as usize - 4096).unwrap_err();
        assert_eq!((error.kind(), error.at_record(1).is_sample()), (ErrorKind::OutOfMemory, false));
        for length in [5, 3 << 20, 0, 2 << 20] {
            make_room(&mut buffer, length).unwrap();
            assert_eq!(buffer.len(), length);
            buffer.fill(7);
        }
        // Bytes that were read into are not cleared, and no uninitialised byte is visible.
        make_room(&mut buffer, 1 << 20).unwrap();
        assert!(buffer.iter().all(|byte| *byte == 7));
        make_room(&mut buffer, (1 << 20) + 5).unwrap();
        assert_eq!(buffer[(1 << 20) - 1..], [7, 0, 0, 0, 0, 0]);
        let start = buffer.as_ptr();
        make_room(&mut buffer, 3 << 20).unwrap();
        assert_eq!(buffer.as_ptr(), start, "what was large enough once serves again");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_fails_one_file_is_told_from_what_fails_them_all() {
        // ENOENT, EIO, EACCES, ENOTDIR, EISDIR, ELOOP, EBADMSG, ESTALE, EUCLEAN.
        for code in [2, 5, 13, 20, 21, 40, 74, 116, 117] {
            let error = || io::Error::from_raw_os_error(code);
            assert!(open_error(error()).is_unreadable() && read_error(error()).is_unreadable(), "{}", error());
            assert!(!read_error(error()).is_sample() && read_error(error()).at_record(1).is_sample());
        }
        // ENOMEM, ENODEV, ENFILE, EMFILE, ENOTCONN, ETIMEDOUT, EHOSTDOWN.
        for code in [12, 19, 23, 24, 107, 110, 112] {
            let error = || io::Error::from_raw_os_error(code);
            assert!(!open_error(error()).is_unreadable() && !read_error(error()).is_unreadable(), "{}", error());
        }
    }
}
