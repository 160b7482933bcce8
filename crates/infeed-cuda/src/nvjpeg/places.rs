//! Finds nvJPEG in places that the system's loader does not search.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// The folder of NVIDIA's own packages, which the loader of some distributions does not search.
const TOOLKIT: &str = "/usr/local/cuda/lib64";

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Sets folders in which nvJPEG is searched in addition to the usual places, in this order. Replaces earlier ones. The
/// library may have its usual names, or those in Python wheels (`libnvjpeg.1b2c3d4e.so.13`).
pub fn look_in(folders: impl IntoIterator<Item = PathBuf>) {
    *FOLDERS.lock().unwrap_or_else(PoisonError::into_inner) = folders.into_iter().collect();
}

/// The candidates, best first: newer versions before older ones. Within a version, first those that the system's loader
/// finds itself, then those in the folders.
pub(super) fn candidates() -> Vec<String> {
    let named = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    among(named.iter().map(PathBuf::as_path).chain([Path::new(TOOLKIT)]))
}

/// The names for the system's loader. Version 13 needs a driver for CUDA 13; older versions also run with newer
/// drivers.
const NAMES: [(&str, Option<u32>); 4] = [
    ("libnvjpeg.so.13", Some(13)),
    ("libnvjpeg.so.12", Some(12)),
    ("libnvjpeg.so.11", Some(11)),
    ("libnvjpeg.so", None),
];

fn among<'a>(folders: impl Iterator<Item = &'a Path>) -> Vec<String> {
    let lying: Vec<(Option<u32>, String)> = folders.flat_map(files).collect();
    let of = |wanted: Option<u32>| lying.iter().filter(move |(version, _)| *version == wanted);
    let each = NAMES
        .iter()
        .flat_map(|&(name, version)| std::iter::once(name.to_owned()).chain(of(version).map(|(_, path)| path.clone())));
    each.collect()
}

/// The nvJPEG libraries in a folder, by name, with their versions. Empty if the folder can't be read: most do not
/// exist.
fn files(folder: &Path) -> Vec<(Option<u32>, String)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = |entry: fs::DirEntry| {
        let version = version(entry.file_name().to_str()?)?;
        // A path that is not UTF-8 could not be named in an error, and is not a usual place for a library.
        Some((version, entry.path().to_str()?.to_owned()))
    };
    let mut found: Vec<_> = entries.filter_map(named).collect();
    // `libnvjpeg.so.13` before `libnvjpeg.so.13.0.0.40`, which is the same file.
    found.sort();
    found
}

/// The version in a library's name: `libnvjpeg.so.13`, `libnvjpeg.so.13.0.0.40`, `libnvjpeg-1b2c3d4e.so.13`,
/// `libnvjpeg.so`. The outer `None`: another library, such as `libnvjpeg2k.so.0`.
fn version(name: &str) -> Option<Option<u32>> {
    let rest = name.strip_prefix("libnvjpeg").filter(|rest| rest.starts_with(['.', '-']))?;
    let (_, behind) = rest.split_once(".so")?;
    match behind.strip_prefix('.') {
        Some(version) => version.split('.').next()?.parse().ok().map(Some),
        None => behind.is_empty().then_some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_the_names_that_wheels_and_toolkits_give() {
        let cases = [
            ("libnvjpeg.so.13", Some(Some(13))),
            ("libnvjpeg.so.12.4.0.76", Some(Some(12))),
            ("libnvjpeg.1b2c3d4e.so.13", Some(Some(13))),
            ("libnvjpeg-1b2c3d4e.so.12.3.1.117", Some(Some(12))),
            ("libnvjpeg.so", Some(None)),
            ("libnvjpeg2k.so.0", None),
            ("libnvjpeg_static.a", None),
            ("libnvjpeg.so.old", None),
            ("libnvjpeg.sonar", None),
            ("libcudart.so.13", None),
        ];
        for (name, expected) in cases {
            assert_eq!(version(name), expected, "{name}");
        }
    }

    #[test]
    fn newer_ones_come_first_and_of_each_the_systems() {
        let root = tempfile::tempdir().unwrap();
        let put = |folder: &str, name: &str| {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), "").unwrap();
            folder
        };
        let old = put("nvidia/nvjpeg/lib", "libnvjpeg.so.12");
        let new = put("torchvision.libs", "libnvjpeg.1b2c3d4e.so.13");
        put("torchvision.libs", "libpng16.so.16");
        let none = root.path().join("nowhere");
        let found = among([old.as_path(), &new, &none].into_iter());
        let path = |folder: &Path, name: &str| folder.join(name).to_str().unwrap().to_owned();
        let expected = [
            "libnvjpeg.so.13".into(),
            path(&new, "libnvjpeg.1b2c3d4e.so.13"),
            "libnvjpeg.so.12".into(),
            path(&old, "libnvjpeg.so.12"),
            "libnvjpeg.so.11".into(),
            "libnvjpeg.so".into(),
        ];
        assert_eq!(found, expected);
    }
}
