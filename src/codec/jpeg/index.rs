//! What one epoch learns of files for the next, kept in a file between runs.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter},
    path::Path,
};

use infeed_jpeg::Index;

use crate::{
    error::{Error, ErrorKind, Result},
    source::io_kind,
};

/// What earlier epochs learned of JPEG files, so that later ones begin to decode where a crop begins.
///
/// A JPEG can only be read from its first byte on: what lies above and beside a crop is skipped, which takes half the
/// time of decoding it. While a file is decoded, the index notes where in the data each row of blocks begins (and every
/// 16th unit in it): 8 bytes a point, about 800 bytes for a photograph of 500x375 pixels. When the same file comes
/// again, decoding starts at the point before the crop and goes from row to row without what lies between.
///
/// Of images that a crop shrinks to a quarter or an eighth, it also notes how long each block is (a byte a block, about a ninth
/// of a file of quality 90; they may take half of the budget): of each block only the first coefficients are read then,
/// whatever follows them.
///
/// Pixels are the same, bit for bit, with or without it. A file is known by a hash of 128 bits of all its bytes, so
/// one that was replaced is another file, whatever its name, store or record; and one index may serve any number of
/// loaders. Files with restart markers do not need it, progressive ones can't use it.
///
/// Memory: at most the budget, taken as files come; when it is used up, what is there stays and nothing is added.
/// Cloning gives another handle.
///
/// ```no_run
/// # async fn example() -> infeed::Result<()> {
/// use infeed::{Loader, codec::DecodeIndex};
///
/// // A later run begins with what this one learned.
/// let index = DecodeIndex::open("train.index", 256 << 20)?;
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
    /// An empty index that takes at most `budget` bytes.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self(Index::new(budget))
    }

    /// The index that was saved at `path`, or an empty one if there is no such file. Entries beyond the budget are left
    /// out.
    ///
    /// # Errors
    /// `Corrupt` when the file is none of an index or was damaged, `Io` or `Denied` when it can't be read.
    pub fn open(path: impl AsRef<Path>, budget: u64) -> Result<Self> {
        let path = path.as_ref();
        let index = Self::new(budget);
        match File::open(path).and_then(|file| index.0.read(&mut BufReader::new(file))) {
            Ok(()) => Ok(index),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::new(budget)),
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                let what = format!("{} is no decode index, or a damaged one", path.display());
                Err(Error::new(ErrorKind::Corrupt, what)
                    .hint("remove it: the next run makes it anew")
                    .with_source(error))
            }
            Err(error) => Err(broken(&error, path).with_source(error)),
        }
    }

    /// Writes the index to `path`, whole or not at all: to a file beside it, which then takes its name.
    ///
    /// # Errors
    /// `Io` or `Denied` when it can't be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}.part", std::process::id()));
        let write = || {
            let mut to = BufWriter::new(File::create(&beside)?);
            self.0.write(&mut to)?;
            to.into_inner()?.sync_all()?;
            std::fs::rename(&beside, path)
        };
        write().map_err(|error| {
            let _ = std::fs::remove_file(&beside);
            broken(&error, path).with_source(error)
        })
    }

    /// How many files are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no file is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes in use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The decoder's handle of it.
    pub(super) fn shared(self) -> Index {
        self.0
    }
}

fn broken(error: &io::Error, path: &Path) -> Error {
    Error::new(io_kind(error), "the decode index can't be read or written").at_object(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use infeed_jpeg::{Decoder, Header, Scratch, Window};
    use jpeg_encoder::{ColorType, Encoder};

    use super::*;

    /// An index that knows some files.
    fn learned(path: &Path) -> DecodeIndex {
        let index = DecodeIndex::open(path, 1 << 20).unwrap();
        assert!(index.is_empty());
        let decoder = Decoder::new().index(index.clone().shared());
        for n in 0..9 {
            let (height, width) = (40 + n, 300 + n);
            let pixels: Vec<u8> = (0..u64::from(height) * u64::from(width)).map(|i| (i * i % 251) as u8).collect();
            let mut file = Vec::new();
            Encoder::new(&mut file, 80).encode(&pixels, width, height, ColorType::Luma).unwrap();
            let header = Header::parse(&file).unwrap();
            // A window at an eighth has the lengths of blocks noted, too.
            let window = Window::of_rows(&header, 0..40).at_scale([1, 8][usize::from(n) % 2]);
            decoder.planes(&file, &header, &window, &mut Scratch::default(), &mut Vec::new()).unwrap();
        }
        index
    }

    #[test]
    fn a_saved_index_is_opened_again_and_a_damaged_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let index = learned(&path);
        index.save(&path).unwrap();
        let again = DecodeIndex::open(&path, 1 << 20).unwrap();
        assert_eq!((again.len(), again.bytes()), (9, index.bytes()));
        assert!(DecodeIndex::open(&path, 2000).unwrap().bytes() <= 2000);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no parts are left");

        let whole = std::fs::read(&path).unwrap();
        for (at, cut) in
            [(0, false), (40, false), (whole.len() - 1, false), (whole.len() - 1, true), (90, true), (0, true)]
        {
            let mut bytes = whole.clone();
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1;
            }
            std::fs::write(&path, bytes).unwrap();
            let error = DecodeIndex::open(&path, 1 << 20).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
        let error = index.save(folder.path().join("none/index")).unwrap_err().to_string();
        assert!(error.contains("none/index"), "{error}");
    }
}
