//! What one epoch learns of files for the next, kept in a file between runs.

use std::{io, path::Path};

use infeed_core::error::{Error, ErrorKind, Result};
use infeed_jpeg::{Decoder, Index, Scratch};
use infeed_store::io_kind;

use super::words::in_our_words;

/// What earlier epochs learned of JPEG files, so that later ones begin to decode where a crop begins.
///
/// A JPEG can only be read from its first byte on: what lies above and beside a crop is skipped, which takes half the
/// time of decoding it. While a file is decoded, the index notes where in the data each row of blocks begins, and every
/// 8th unit in it: 4 to 6 bytes a point, 700 bytes to 2 KB for a photograph of 500x375 pixels. When the same file comes
/// again, decoding starts at the point before the crop and goes from row to row without what lies between.
///
/// Of images that a crop shrinks to a quarter or an eighth, it also notes how long each block is (a byte a block, about a ninth
/// of a file of quality 90; they may take half of the budget): of each block only the first coefficients are read then,
/// whatever follows them.
///
/// Pixels are the same, bit for bit, with or without it. A file is known by a hash of 128 bits of all its bytes, so
/// one that was replaced is another file, whatever its name, store or record; and one index may serve any number of
/// loaders. Files with restart markers do not need it; crops of progressive files gain less than others (a
/// sixth), because all of their columns are read.
///
/// Memory: at most the budget. When it is used up, points become half as many, of a part of the files at a time, down to one a
/// row (150 to 300 bytes of such a photograph, and 100 for the entry): decoding becomes a little slower, and no file is forgotten.
/// After that nothing is added. What was [saved](Self::save) and [opened](Self::open) again takes hardly any memory: the file is
/// read where it lies, by all processes of a machine, and the system keeps what they read once. Cloning gives another
/// handle.
///
/// ```no_run
/// # async fn example() -> infeed::Result<()> {
/// use infeed::{Loader, codec::DecodeIndex};
///
/// // A later run begins with what this one learned; so does one that `infeed inspect --decode-index` has prepared.
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

    /// The index that was saved at `path`, or an empty one if there is no such file. What is learned beside it takes at most
    /// `budget` bytes of memory.
    ///
    /// Takes no longer for many files than for few: 8 bytes are read for each 64 of them. The file stays open, and two pieces
    /// of it are read for each image. What is damaged in it later is not known any more, as if it had never been.
    ///
    /// # Errors
    /// `Corrupt` when the file is none of an index, one of another version, or was cut short; `Io` or `Denied` when it can't be
    /// read.
    pub fn open(path: impl AsRef<Path>, budget: u64) -> Result<Self> {
        Index::open(&path, budget).map(Self).map_err(|error| broken(error, path.as_ref()))
    }

    /// Leaves all that is known in `path`, whole or not at all: in a file beside it, which then takes its name. What that file
    /// held before stays known, also what others have saved there since it was opened: ranks may share one. Nothing is
    /// written when there is nothing to add.
    ///
    /// Takes the time of writing the file anew.
    ///
    /// # Errors
    /// `Corrupt` when there is a file that is no index, or a damaged one; `Io` or `Denied` when it can't be read or written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.0.save(&path).map_err(|error| broken(error, path.as_ref()))
    }

    /// Looks at all data of a JPEG and decodes none of it, so that every row of it is known. `room` is memory from file to file.
    /// Files that an index can't help are passed over.
    ///
    /// Costs half of decoding the file; of one that is known, nothing.
    ///
    /// # Errors
    /// `Corrupt` and `Unsupported`, as its decoder says.
    pub fn learn(&self, file: &[u8], room: &mut LearnRoom) -> Result<()> {
        Decoder::new().index(self.0.clone()).learn(file, &mut room.0).map_err(in_our_words)
    }

    /// How many files are known. Looks at every one that was learned beside an opened index.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no file is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The decoder's handle of it.
    pub(super) fn shared(self) -> Index {
        self.0
    }
}

/// Memory of [`DecodeIndex::learn`], for file after file.
///
/// ```
/// # let mut file = Vec::new();
/// # let pixels = [120; 3 * 64 * 64];
/// # jpeg_encoder::Encoder::new(&mut file, 80).encode(&pixels, 64, 64, jpeg_encoder::ColorType::Rgb).unwrap();
/// # let files = [file];
/// use infeed::codec::{DecodeIndex, LearnRoom};
///
/// let index = DecodeIndex::new(1 << 20);
/// let mut room = LearnRoom::default();
/// for file in &files {
///     index.learn(file, &mut room)?;
/// }
/// assert_eq!(index.len(), 1);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct LearnRoom(Scratch);

fn broken(error: io::Error, path: &Path) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            let what = format!("{} is no decode index, or a damaged one", path.display());
            Error::new(ErrorKind::Corrupt, what)
                .hint("name another file, or remove this one: the next run makes it anew")
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
        let mut room = LearnRoom::default();
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
