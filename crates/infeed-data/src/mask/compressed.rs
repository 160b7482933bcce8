//! Runs as COCO's strings: each run is written as the difference to the previous run of its kind, in characters of six
//! bits.
//!
//! ```text
//! character - '0':  1 0 0 1 1 1
//!                   │ └───────┴─ five bits, the lowest come first; the highest of the last is the sign
//!                   └─ another follows
//! ```

use infeed_core::error::{Error, Result};

use super::rle::Rle;

/// This many characters hold the difference of any two counts: 33 bits with the sign.
const LONGEST: u32 = 7;

impl Rle {
    /// Reads the `counts` string that pycocotools writes for a mask of this height and width.
    ///
    /// # Errors
    /// `Corrupt` if the text has other characters, if a run is negative or does not fit into a `u32`, or if the runs do
    /// not add up to the number of pixels.
    ///
    /// ```
    /// use infeed::dataset::Rle;
    /// let mask = Rle::parse_compressed([3, 4], "525")?;
    /// assert_eq!(mask.counts(), [5, 2, 5]);
    /// assert!(Rle::parse_compressed([3, 5], "525").is_err());
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn parse_compressed(size: [u32; 2], text: &str) -> Result<Self> {
        let mut counts: Vec<u32> = Vec::new();
        let (mut value, mut bits) = (0_i64, 0);
        for (at, byte) in text.bytes().enumerate() {
            let Some(six) = byte.checked_sub(b'0').filter(|six| *six < 64) else {
                let hint = "they go from '0' to 'o'; lists of numbers are for Rle::new";
                return Err(damaged(format!("byte {byte} at {at} is none of its characters")).with_hint(hint));
            };
            value |= i64::from(six & 31) << bits;
            bits += 5;
            if six & 32 != 0 {
                if bits == 5 * LONGEST {
                    return Err(damaged(format!("a number of more than {LONGEST} characters at {at}")));
                }
                continue;
            }
            if six & 16 != 0 {
                value -= 1 << bits;
            }
            // The first three are written in full: the only earlier run of their kind is the first, which is often 0.
            let before = if counts.len() > 2 { counts[counts.len() - 2] } else { 0 };
            let count = value + i64::from(before);
            let wrong = |_| damaged(format!("run {} is {count} pixels long", counts.len()));
            let count = u32::try_from(count).map_err(wrong)?;
            counts.push(count);
            (value, bits) = (0, 0);
        }
        if bits > 0 {
            return Err(damaged(format!("it breaks off in a number after {} bytes", text.len())));
        }
        Self::new(size, counts)
    }

    /// The string that pycocotools writes for these runs.
    #[must_use]
    pub fn to_compressed(&self) -> String {
        let counts = self.counts();
        let mut text = String::with_capacity(counts.len() * 2);
        for (i, count) in counts.iter().enumerate() {
            let before = if i > 2 { counts[i - 2] } else { 0 };
            let mut value = i64::from(*count) - i64::from(before);
            loop {
                let five = (value & 31) as u8;
                value >>= 5;
                // Only the sign is left, and the highest written bit gives it.
                let done = value == if five & 16 == 0 { 0 } else { -1 };
                text.push(char::from(b'0' + five + if done { 0 } else { 32 }));
                if done {
                    break;
                }
            }
        }
        text
    }
}

fn damaged(what: String) -> Error {
    Error::corrupt(format!("runs of a mask, as text: {what}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;
    use infeed_core::error::ErrorKind;

    /// Written by pycocotools; `integration/golden/detection.py`.
    #[derive(Deserialize)]
    struct Golden {
        compressed: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        size: [u32; 2],
        counts: Vec<u32>,
        text: String,
    }

    #[test]
    fn texts_are_pycocotools() {
        let golden: Golden =
            serde_json::from_str(include_str!("../../../../integration/golden/detection.json")).unwrap();
        assert!(golden.compressed.len() > 10);
        for Case { size, counts, text } in golden.compressed {
            let rle = Rle::new(size, counts).unwrap();
            assert_eq!(rle.to_compressed(), text);
            assert_eq!(Rle::parse_compressed(size, &text).unwrap(), rle);
        }
    }

    #[test]
    fn damaged_texts_are_told_apart() {
        for (text, words) in [
            ("5 2", "byte 32 at 1"),
            ("5p", "byte 112 at 1"),
            ("5é", "byte 195 at 1"),
            ("5R", "breaks off in a number after 2 bytes"),
            ("ooooooo", "more than 7 characters at 6"),
            ("5O", "run 1 is -1 pixels"),
            ("555A", "run 3 is -10 pixels"),
            ("PPPPPP?", "run 0 is 16106127360 pixels"),
            ("52", "runs of 7 pixels for a mask of 3x4"),
            ("", "runs of 0 pixels for a mask of 3x4"),
        ] {
            let error = Rle::parse_compressed([3, 4], text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
        assert_eq!(Rle::parse_compressed([0, 4], "").unwrap().to_compressed(), "");
    }

    proptest! {
        #[test]
        fn texts_give_the_runs_back(counts in prop::collection::vec(prop_oneof![0_u32..70, any::<u32>()], 0..40)) {
            // The picture is as long as its runs: one row cannot be, so the last run fills it up.
            let covered = counts.iter().map(|n| u64::from(*n)).sum::<u64>();
            let height = (covered / u64::from(u32::MAX) + 1) as u32;
            let width = covered.div_ceil(u64::from(height)) as u32;
            let rest = (u64::from(height) * u64::from(width) - covered) as u32;
            let rle = Rle::new([height, width], counts.into_iter().chain([rest]).collect()).unwrap();
            prop_assert_eq!(Rle::parse_compressed(rle.size(), &rle.to_compressed()).unwrap(), rle);
        }

        #[test]
        fn any_text_is_an_error_or_runs_of_its_size(
            height in 0_u32..9, width in 0_u32..9,
            text in prop_oneof!["[0-o]{0,12}", "[0-9]{0,6}", "\\PC{0,12}"],
        ) {
            if let Ok(rle) = Rle::parse_compressed([height, width], &text) {
                prop_assert_eq!(rle.counts().iter().sum::<u32>(), height * width);
                prop_assert!(rle.area() <= u64::from(height * width));
                prop_assert_eq!(rle.to_dense().len(), (height * width) as usize);
            }
        }

        #[test]
        fn texts_with_a_byte_changed_never_panic(
            counts in prop::collection::vec(0_u32..2000, 1..30), at: prop::sample::Index, byte in 0_u8..128,
        ) {
            let size = [1, counts.iter().sum()];
            let mut text = Rle::new(size, counts).unwrap().to_compressed().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            if let Ok(rle) = Rle::parse_compressed(size, std::str::from_utf8(&text).unwrap()) {
                prop_assert_eq!(rle.counts().iter().sum::<u32>(), size[1]);
            }
        }
    }
}
