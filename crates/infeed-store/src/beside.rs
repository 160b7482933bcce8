//! Files beside the data, which are held whole: labels, annotations, indices, lists, settings, states. Whoever wrote them may
//! have written anything, so each is refused by its size before there is memory for it.
//!
//! | bound | of | bytes, unless `INFEED_SIDE_FILE_LIMIT` says how many |
//! |---|---|---|
//! | [`Beside::Table`] | what has a line or an entry for each record or shard; footers of Parquet | 1 GiB |
//! | [`Beside::Note`] | what is of one record, one run or one user | 64 MiB |

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use infeed_core::error::{Error, ErrorKind, Result};

use super::cache::parse_size;

/// How many bytes files beside the data may have, of both kinds: `4GiB`.
const VARIABLE: &str = "INFEED_SIDE_FILE_LIMIT";

/// What a file beside the data is, which says how large it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// It has a line or an entry for each record or shard.
    Table,
    /// It is of one record, one run or one user.
    Note,
}

impl Beside {
    const fn usual(self) -> u64 {
        match self {
            Self::Table => 1 << 30,
            Self::Note => 64 << 20,
        }
    }

    fn most(self, told: Option<&str>) -> Result<u64> {
        let Some(told) = told else { return Ok(self.usual()) };
        parse_size(told).map_err(|wrong| {
            Error::config(format!("{VARIABLE} is {told:?}: {wrong}")).hint(format!("set {VARIABLE}=4GiB, or unset it"))
        })
    }

    fn limit(self) -> Result<u64> {
        self.most(std::env::var_os(VARIABLE).map(|told| told.to_string_lossy().into_owned()).as_deref())
    }

    /// Refuses what is too large.
    ///
    /// # Errors
    /// `Unsupported` with the bound and what raises it.
    pub fn check(self, size: u64) -> Result<()> {
        self.check_part("file", size)
    }

    /// Refuses what is too large of a file, such as its footer.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_part(self, part: &str, size: u64) -> Result<()> {
        let most = self.limit()?;
        if size <= most { Ok(()) } else { Err(too_large(part, &format!("{size} bytes"), size, most)) }
    }

    /// Reads a file of this machine.
    ///
    /// # Errors
    /// Of the system; `FileTooLarge` for one that is too large.
    pub fn read_file(self, path: &Path) -> io::Result<Vec<u8>> {
        self.read_open(&mut File::open(path)?)
    }

    /// Reads a text of this machine.
    ///
    /// # Errors
    /// As [`read_file`](Self::read_file), and `InvalidData` for what is no UTF-8.
    pub fn read_text(self, path: &Path) -> io::Result<String> {
        String::from_utf8(self.read_file(path)?)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8"))
    }

    /// Reads what is left of a file of this machine.
    ///
    /// # Errors
    /// As [`read_file`](Self::read_file).
    pub fn read_open(self, file: &mut File) -> io::Result<Vec<u8>> {
        let refused = |error: Error| io::Error::new(io::ErrorKind::FileTooLarge, error);
        let most = self.limit().map_err(io::Error::other)?;
        // A pipe or a device has no length, so what comes is counted too.
        let size = file.metadata()?.len();
        if size > most {
            return Err(refused(too_large("file", &format!("{size} bytes"), size, most)));
        }
        // Grows as it can, so that too little memory is an error.
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > most {
            true => Err(refused(too_large("file", &format!("more than {most} bytes"), most + 1, most))),
            false => Ok(bytes),
        }
    }
}

fn too_large(part: &str, found: &str, size: u64, most: u64) -> Error {
    let enough = size.div_ceil(1 << 30);
    Error::new(ErrorKind::Unsupported, format!("the {part} has {found}, of its kind {most} are read at most")).hint(
        format!("check that it is the file that is meant; {VARIABLE}={enough}GiB has it read, if memory is enough"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_file_is_refused_before_there_is_memory_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge");
        File::create(&path).unwrap().set_len(6 << 40).unwrap();
        for kind in [Beside::Table, Beside::Note] {
            let error = kind.read_file(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
            let words = error.to_string();
            assert!(
                words.contains("6597069766656 bytes") && words.contains("INFEED_SIDE_FILE_LIMIT=6144GiB"),
                "{words}"
            );
            assert!(words.contains(&kind.usual().to_string()), "{words}");
        }
    }

    /// Its length is told to be 0.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_never_ends_is_refused_too() {
        let error = Beside::Note.read_file(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("more than 67108864 bytes"), "{error}");
    }

    #[test]
    fn one_variable_says_how_much_and_a_wrong_one_is_named() {
        for (told, most) in [(None, 1 << 30), (Some("2KiB"), 2048), (Some("4 GB"), 4_000_000_000)] {
            assert_eq!(Beside::Table.most(told).unwrap(), most);
        }
        assert_eq!(Beside::Note.most(None).unwrap(), 64 << 20);
        let error = Beside::Table.most(Some("lots")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("INFEED_SIDE_FILE_LIMIT is \"lots\""), "{error}");
    }
}
