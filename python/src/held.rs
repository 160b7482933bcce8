//! Memory of Python objects, shared with the engine.

use bytes::Bytes;
use pyo3::{buffer::PyBuffer, prelude::*, types::PyBytes};

/// Keeps an object alive as long as its memory is used. The last use may end in any thread: if that thread is not
/// attached, pyo3 releases the object later, in an attached thread.
pub(crate) struct HeldObject {
    _object: Py<PyAny>,
    start: *const u8,
    len: usize,
}

// SAFETY: the memory is only read, and a `Py` may be dropped in any thread.
unsafe impl Send for HeldObject {}
// SAFETY: as above.
unsafe impl Sync for HeldObject {}

impl AsRef<[u8]> for HeldObject {
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the object's memory has `len` bytes and lives as long as the object.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl HeldObject {
    /// The memory of a `bytes` object, which never changes.
    pub(crate) fn bytes(object: &Bound<'_, PyBytes>) -> Bytes {
        let bytes = object.as_bytes();
        let (start, len) = (bytes.as_ptr(), bytes.len());
        Bytes::from_owner(Self { _object: object.clone().into_any().unbind(), start, len })
    }

    /// The memory of a `memoryview` of bytes, to which its owner must not write (Arrow never does).
    pub(crate) fn view(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
        let view = object.cast::<pyo3::types::PyMemoryView>()?;
        let buffer = PyBuffer::<u8>::get(view)?;
        let (start, len) = (buffer.buf_ptr().cast::<u8>().cast_const(), buffer.len_bytes());
        // The view itself holds the memory from here on.
        Ok(Bytes::from_owner(Self { _object: object.clone().unbind(), start, len }))
    }
}
