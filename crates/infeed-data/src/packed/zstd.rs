//! Consecutive zstd frames. Does what the decoder does not: compares the checksum at a frame's end, and skips frames
//! without data.

use std::{
    fmt,
    io::{Error, ErrorKind, Read, Result},
};

use ruzstd::decoding::{DEFAULT_MAX_WINDOW_SIZE, FrameDecoder, StreamingDecoder};

/// Reader of the content of the frames in some bytes.
pub struct Zstd<'a> {
    rest: &'a [u8],
    frame: Option<StreamingDecoder<&'a [u8], FrameDecoder>>,
    window: u64,
}

impl fmt::Debug for Zstd<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zstd({} bytes left)", self.rest.len())
    }
}

impl<'a> Zstd<'a> {
    /// `most` is the number of bytes that are expected. The window of a decoder is limited to it, or to the usual limit
    /// if that is larger.
    pub fn new(bytes: &'a [u8], most: u64) -> Self {
        Self { rest: bytes, frame: None, window: most.max(DEFAULT_MAX_WINDOW_SIZE) }
    }

    /// The bytes after a frame without data, if one is next.
    fn behind_skippable(&self) -> Option<Result<&'a [u8]>> {
        let (head, rest) = self.rest.split_first_chunk::<8>()?;
        let [magic, length] = [0, 4].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        let cut = || Error::new(ErrorKind::UnexpectedEof, "a frame is truncated");
        (magic & !15 == 0x184d_2a50).then(|| rest.get(length as usize..).ok_or_else(cut))
    }
}

impl Read for Zstd<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        while !buffer.is_empty() {
            if let Some(frame) = &mut self.frame {
                let count = frame.read(buffer)?;
                if count > 0 {
                    return Ok(count);
                }
                let told = frame.decoder.get_checksum_from_data();
                if told.is_some() && told != frame.decoder.get_calculated_checksum() {
                    return Err(Error::new(ErrorKind::InvalidData, "the checksum at the end of a frame is wrong"));
                }
                self.rest = frame.get_ref();
                self.frame = None;
            } else if let Some(rest) = self.behind_skippable() {
                self.rest = rest?;
            } else if self.rest.is_empty() {
                return Ok(0);
            } else {
                let frame = StreamingDecoder::new_with_max_window_size(self.rest, self.window);
                self.frame = Some(frame.map_err(Error::other)?);
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One block of bytes as they are, with its sum: `zstd --no-compress` gives the like.
    #[doc(hidden)]
    pub(crate) fn frame(content: &[u8]) -> Vec<u8> {
        assert!(content.len() < 1 << 17, "one block");
        let mut out = vec![0x28, 0xb5, 0x2f, 0xfd];
        // A single segment with a sum, its size in four bytes.
        out.push(0xa4);
        out.extend((content.len() as u32).to_le_bytes());
        out.extend(&((content.len() as u32) << 3 | 1).to_le_bytes()[..3]);
        out.extend(content);
        out.extend((xxhash_rust::xxh64::xxh64(content, 0) as u32).to_le_bytes());
        out
    }

    #[test]
    fn frames_follow_one_another_and_their_sums_are_compared() {
        let skippable = [&[0x57, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"any"].concat();
        let bytes = [&frame(b"one, ")[..], &skippable, &frame(b"two"), &skippable].concat();
        let mut out = Vec::new();
        Zstd::new(&bytes, 100).read_to_end(&mut out).unwrap();
        assert_eq!(out, b"one, two");
        let mut flipped = frame(b"content");
        flipped[13] ^= 1;
        let error = Zstd::new(&flipped, 100).read_to_end(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("sum at the end"), "{error}");
        for end in 1..bytes.len() {
            let _ = Zstd::new(&bytes[..end], 100).read_to_end(&mut Vec::new());
        }
    }
}
