//! The read buffers of a decode thread.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Read buffers of one thread. `Bytes` are lent out of a buffer; once they are dropped, its memory serves again.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    idle: Vec<BytesMut>,
    lent: VecDeque<Bytes>,
}

impl Buffers {
    /// An empty buffer, new or reused.
    pub(super) fn take(&mut self) -> BytesMut {
        // A lent buffer without other owners can be written again.
        for _ in 0..self.lent.len() {
            let Some(bytes) = self.lent.pop_front() else { break };
            match bytes.try_into_mut() {
                Ok(buffer) => self.idle.push(buffer),
                Err(bytes) => self.lent.push_back(bytes),
            }
        }
        self.idle.pop().unwrap_or_default()
    }

    /// Lends the bytes that were read into a buffer, until the last of them is dropped.
    pub(super) fn lend(&mut self, buffer: BytesMut) -> Bytes {
        let bytes = buffer.freeze();
        // A decoder that keeps slices (to start work on them) costs a buffer for each; 64 are plenty.
        if self.lent.len() < 64 {
            self.lent.push_back(bytes.clone());
        }
        bytes
    }
}
