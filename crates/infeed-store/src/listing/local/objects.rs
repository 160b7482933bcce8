//! Turns the files found in all folders into objects.

use super::found::FolderFiles;
use crate::Object;

/// Ordered by name.
pub(super) fn objects(mut folders: Vec<FolderFiles>) -> Vec<Object> {
    // Folder names end with `/`, as within the names of their files.
    folders.sort_unstable_by(|a, b| a.folder.cmp(&b.folder));
    let mut objects = Vec::with_capacity(folders.iter().map(FolderFiles::len).sum());
    folders.into_iter().for_each(|found| objects.extend(found.into_objects()));
    // They are in order unless a folder has both files and folders. The stable sort makes use of that order.
    if !objects.is_sorted_by(|a, b| a.name < b.name) {
        objects.sort_by(|a, b| a.name.cmp(&b.name));
    }
    objects
}
