//! The photographs of `imagenet` in tar shards, as WebDataset's recipe packs them.

use super::{files::Files, folder::Folder, plan::Plan};
use crate::failure::Failure;

/// Records in a shard: about 100 MB.
const EACH: usize = 1000;

/// `train-000000.tar`, …: for each picture `KEY.jpg` and `KEY.cls`.
#[derive(Debug)]
pub(super) struct Shards {
    pictures: Folder,
    names: Vec<String>,
}

impl Shards {
    pub(super) fn new(plan: Plan) -> Self {
        let pictures = Folder::new(plan);
        // Synsets are numbered as the sorted names of class folders are.
        let mut names: Vec<String> = (0..pictures.len())
            .map(|i| pictures.path(i))
            .map(|path| path.split('/').next().unwrap_or_default().into())
            .collect();
        names.sort();
        names.dedup();
        Self { pictures, names }
    }
}

impl Files for Shards {
    fn len(&self) -> usize {
        self.pictures.len().div_ceil(EACH)
    }

    fn path(&self, index: usize) -> String {
        format!("train-{index:06}.tar")
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, Failure> {
        let failed = |error: std::io::Error| Failure::Failed(format!("cannot pack a tar: {error}"));
        let mut tar = tar::Builder::new(Vec::new());
        let last = self.pictures.len().min((index + 1) * EACH);
        for picture in index * EACH..last {
            let path = self.pictures.path(picture);
            let class = path.split('/').next().unwrap_or_default();
            let label = self.names.binary_search_by(|name| name.as_str().cmp(class)).unwrap_or_default().to_string();
            let members = [("jpg", self.pictures.bytes(picture)?), ("cls", label.into_bytes())];
            for (extension, bytes) in members {
                let mut header = tar::Header::new_ustar();
                header.set_size(bytes.len() as u64);
                header.set_mode(0o644);
                tar.append_data(&mut header, format!("{picture:09}.{extension}"), &bytes[..]).map_err(failed)?;
            }
        }
        tar.into_inner().map_err(failed)
    }
}
