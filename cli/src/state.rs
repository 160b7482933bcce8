//! The file of `--state` and `--resume`: the loader's state, and the checksum of the rows delivered before it.

use std::path::Path;

use infeed::{dataset::Fingerprint, internal::Beside, sampler::LoaderState};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    checksum::{Checksum, ChecksumOf},
    failure::Failure,
    out,
};

/// The contents. The file is replaced atomically, so it is always complete.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateFile {
    pub version: u64,
    pub state: LoaderState,
    /// Checksum of all rows up to the state, on this rank; `None` without `--checksum`.
    pub checksum: Option<Checksum>,
    /// What the checksum covers.
    #[serde(default)]
    pub checksum_of: ChecksumOf,
    /// Rows up to the state, on this rank.
    pub samples: u64,
    pub rank: u32,
}

pub(crate) const VERSION: u64 = 1;

/// The key of the file's own checksum, over all other keys.
const CHECKSUM: &str = "file_checksum";

/// The checksum of the other keys, in any order.
fn sum(value: &Value) -> Value {
    Fingerprint::of("state file").text(&value.to_string()).finish().to_string().into()
}

impl StateFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = Beside::Note.read_text(path).map_err(|error| Failure::file("cannot read", path, error))?;
        let refuse = |what: String| Failure::file("cannot resume from", path, what);
        let mut value: Value =
            serde_json::from_str(&text).map_err(|error| refuse(format!("not written by --state: {error}")))?;
        match value["version"].as_u64() {
            Some(VERSION) => {}
            Some(other) => {
                return Err(refuse(format!("it has version {other}, this infeed reads {VERSION}")));
            }
            None => return Err(refuse("not written by --state: it has no version".into())),
        }
        // First the state by itself, because its errors are more specific.
        LoaderState::from_json(&value["state"].to_string()).map_err(|error| refuse(error.to_string()))?;
        // Older files have no checksum.
        let told = value.as_object_mut().and_then(|parts| parts.remove(CHECKSUM));
        if told.is_some_and(|told| told != sum(&value)) {
            return Err(refuse(
                "its checksum is wrong: it is damaged, or was changed by hand; use an older file".into(),
            ));
        }
        serde_json::from_value(value).map_err(|error| refuse(format!("not written by --state: {error}")))
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let failed = |error| Failure::file("cannot write", path, error);
        let mut text = serde_json::to_string(self).map_err(failed)?;
        // Append it, so that the order of the other keys stays.
        let sum = sum(&serde_json::to_value(self).map_err(failed)?);
        text.truncate(text.len() - 1);
        text += &format!(",\"{CHECKSUM}\":{sum}}}\n");
        out::replace(path, text.as_bytes())
    }

    /// The checksum that a run on `rank` continues from. The file's checksum belongs to the rank that wrote it. Another
    /// rank that resumes from the same file (with a larger world) starts from 0, so that the ranks' sums still add up.
    pub(crate) fn checksum_for(&self, rank: u32, of: ChecksumOf) -> Option<Checksum> {
        if rank != self.rank {
            return Some(Checksum::default());
        }
        self.checksum.filter(|_| self.checksum_of == of)
    }
}
