//! The files that the examples measure.

use std::{fs, io, path::Path};

use infeed_jpeg::Header;

/// The files below a folder that this decoder supports.
pub(crate) fn files_below(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            let file = fs::read(&path)?;
            if Header::parse(&file).is_ok_and(|header| header.has_planes()) {
                files.push(file);
            }
        }
    }
    Ok(files)
}
