//! The decode index: what one epoch records about JPEG files for the next. It can be saved between runs.

use std::{io, path::Path};

use infeed_core::error::{Error, ErrorKind, Result};
use infeed_jpeg::{Decoder, Index, Scratch};
use infeed_store::io_kind;

use super::words::in_our_words;

/// An index of JPEG files that earlier epochs have decoded. With it, later epochs start decoding where a crop begins.
///
/// A JPEG can only be decoded from its first byte: skipping what lies above and beside a crop takes half of the decode
/// time. While a file is decoded, the index records where in the data each row of blocks begins, and every 8th unit in
/// the row. A point takes 4 to 6 bytes; a photograph of 500x375 pixels takes 700 bytes to 2 KB. When the same file
/// comes again, decoding starts at the point before the crop and jumps from row to row.
///
/// For images that a crop shrinks to a quarter or an eighth, the index also records the length of each block. Only the
/// first coefficients of each block are then read. The lengths take one byte per block (about a ninth of a file of
/// quality 90), and at most half of the budget.
///
/// Pixels are the same, bit for bit, with and without the index. A file is identified by a 128-bit hash of all its
/// bytes, so its name, store and record do not matter, and a replaced file is a new one. One index may serve any number
/// of loaders. Files with restart markers do not need it. Crops of progressive files gain less (a sixth), because all
/// of their columns are read.
///
/// Memory: at most the budget. When the budget is used up, the index drops every other point of part of the files, down
/// to one point per row (for such a photograph 150 to 300 bytes, plus 100 for its entry). Decoding then becomes a
/// little slower, but no file is forgotten. After that, nothing is added. An index that was [saved](Self::save) and
/// [opened](Self::open) again takes hardly any memory: all processes of a machine read the same file, and the operating
/// system caches what they read once. Cloning returns another handle to the same index.
///
/// ```no_run
/// # async fn example() -> infeed::Result<()> {
/// use infeed::{Loader, codec::DecodeIndex};
///
/// // Starts with what an earlier run has saved, or what `infeed inspect --decode-index` has prepared.
/// let index = DecodeIndex::open("train.index", 1 << 30)?;
/// let dataset = infeed::open("/data/imagenet/train").await?;
/// let loader = Loader::builder(dataset).decode_index(index.clone()).build().await?;
/// // … epochs …
/// index.save("train.index")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DecodeIndex(Index);

impl DecodeIndex {
    /// An empty index that takes at most `budget` bytes of memory.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self(Index::new(budget))
    }

    /// The index that was saved at `path`, or an empty one if there is no such file. What it adds later takes at most
    /// `budget` bytes of memory.
    ///
    /// Opening is fast, however many files the index holds: it reads 8 bytes for each 64 files. The index file stays
    /// open, and each image needs two small reads from it. Entries that are damaged later count as missing.
    ///
    /// # Errors
    /// `Corrupt` if the file is not an index, is of another version, or is truncated; `Io` or `Denied` if it can't be
    /// read.
    pub fn open(path: impl AsRef<Path>, budget: u64) -> Result<Self> {
        Index::open(&path, budget).map(Self).map_err(|error| broken(error, path.as_ref()))
    }

    /// Saves the index at `path`. It writes a temporary file next to it and renames that, so `path` always holds a
    /// whole index. Entries that the file already held are kept, also those that other processes have saved since it
    /// was opened: several ranks may share one file. Writes nothing if there is nothing to add.
    ///
    /// Takes as long as writing the whole file.
    ///
    /// # Errors
    /// `Corrupt` if the file at `path` is not an index or is damaged; `Io` or `Denied` if it can't be read or written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.0.save(&path).map_err(|error| broken(error, path.as_ref()))
    }

    /// Adds every row of a JPEG to the index without decoding pixels. `room` is memory that is reused from file to
    /// file. Files for which an index is of no use are skipped.
    ///
    /// Costs half of decoding the file; a file that is already in the index costs nothing.
    ///
    /// # Errors
    /// `Corrupt` and `Unsupported`, as for decoding the file.
    pub fn learn(&self, file: &[u8], room: &mut LearnScratch) -> Result<()> {
        Decoder::new().index(self.0.clone()).learn(file, &mut room.0).map_err(in_our_words)
    }

    /// Number of files in the index. Visits each file that was added since the index was opened.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the index holds no file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of memory that the index uses.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The handle that the decoder takes.
    pub(super) fn shared(self) -> Index {
        self.0
    }
}

/// Memory that [`DecodeIndex::learn`] and [`Jpeg::to_baseline`](super::Jpeg::to_baseline) reuse from file to file.
///
/// ```
/// # let mut file = Vec::new();
/// # let pixels = [120; 3 * 64 * 64];
/// # jpeg_encoder::Encoder::new(&mut file, 80).encode(&pixels, 64, 64, jpeg_encoder::ColorType::Rgb).unwrap();
/// # let files = [file];
/// use infeed::{codec::DecodeIndex, spi::LearnScratch};
///
/// let index = DecodeIndex::new(1 << 20);
/// let mut room = LearnScratch::default();
/// for file in &files {
///     index.learn(file, &mut room)?;
/// }
/// assert_eq!(index.len(), 1);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct LearnScratch(pub(super) Scratch);

fn broken(error: io::Error, path: &Path) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            let what = format!("{} is not a decode index, or is damaged", path.display());
            Error::new(ErrorKind::Corrupt, what)
                .with_hint("name another file, or remove this one; the next run creates a new index")
        }
        _ => Error::new(io_kind(&error), "the decode index can't be read or written")
            .at_object(path.display().to_string()),
    }
    .with_source(error)
}

#[cfg(test)]
mod tests {
    use jpeg_encoder::{ColorType, Encoder};

    use super::*;

    #[test]
    fn a_saved_index_is_opened_again_and_a_damaged_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let index = DecodeIndex::open(&path, 1 << 20).unwrap();
        assert!(index.is_empty());
        let mut room = LearnScratch::default();
        for n in 0..9 {
            let (height, width) = (40 + n, 300 + n);
            let pixels: Vec<u8> = (0..u64::from(height) * u64::from(width)).map(|i| (i * i % 251) as u8).collect();
            let mut file = Vec::new();
            Encoder::new(&mut file, 80).encode(&pixels, width, height, ColorType::Luma).unwrap();
            index.learn(&file, &mut room).unwrap();
        }
        assert_eq!(index.learn(b"no picture", &mut room).unwrap_err().kind(), ErrorKind::Corrupt);
        index.save(&path).unwrap();
        let again = DecodeIndex::open(&path, 1 << 20).unwrap();
        assert_eq!((again.len(), again.bytes()), (9, 0));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no parts are left");

        let whole = std::fs::read(&path).unwrap();
        for bytes in
            [&whole[1..], &whole[..whole.len() - 1], &whole[..40], b"infeed jpeg ix 2, of an earlier version", b""]
        {
            std::fs::write(&path, bytes).unwrap();
            let error = DecodeIndex::open(&path, 1 << 20).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert_eq!(index.save(&path).unwrap_err().kind(), ErrorKind::Corrupt, "it may be somebody's");
        }
        let error = index.save(folder.path().join("none/index")).unwrap_err().to_string();
        assert!(error.contains("none/index"), "{error}");
    }
}
