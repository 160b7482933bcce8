//! What was found in all folders, as objects.

use super::found::Found;
use crate::Object;

/// In the order of names.
pub(super) fn objects(mut folders: Vec<Found>) -> Vec<Object> {
    // Their names end with `/`, as they stand in those of their files.
    folders.sort_unstable_by(|a, b| a.folder.cmp(&b.folder));
    let mut objects = Vec::with_capacity(folders.iter().map(Found::len).sum());
    folders.into_iter().for_each(|found| objects.extend(found.into_objects()));
    // In order already, unless a folder has files and folders. Then a sort that makes use of what is.
    if !objects.is_sorted_by(|a, b| a.name < b.name) {
        objects.sort_by(|a, b| a.name.cmp(&b.name));
    }
    objects
}
