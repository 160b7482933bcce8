//! The files of a folder, in less memory than as objects.

use crate::Object;

/// The files of one folder, without those of its subfolders: 16 bytes plus the name for each.
#[derive(Debug, Default)]
pub(crate) struct FolderFiles {
    /// The folder's name: empty, or ending with `/`.
    pub(super) folder: String,
    /// The names of all files in it.
    text: String,
    files: Vec<File>,
}

#[derive(Clone, Copy, Debug)]
struct File {
    /// Start of the name in the text; the last 16 bits are its length. File systems allow 255 bytes, some 1,023.
    place: u64,
    size: u64,
}

impl File {
    fn name(self, text: &str) -> &str {
        &text[(self.place >> 16) as usize..][..(self.place & 0xffff) as usize]
    }
}

impl FolderFiles {
    pub(super) fn of(folder: &str) -> Self {
        Self { folder: folder.to_owned(), ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// `base` is a name within the folder.
    pub(super) fn add(&mut self, base: &str, size: u64) {
        let len = u16::try_from(base.len()).expect("the system has no names of 64 KiB");
        self.files.push(File { place: (self.text.len() as u64) << 16 | u64::from(len), size });
        self.text.push_str(base);
    }

    /// Names within the folder, and sizes.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.files.iter().map(|file| (file.name(&self.text), file.size))
    }

    /// Adds what another thread found in the same folder.
    pub(super) fn append(&mut self, other: Self) {
        if self.files.is_empty() {
            (self.text, self.files) = (other.text, other.files);
            return;
        }
        let before = (self.text.len() as u64) << 16;
        self.text.push_str(&other.text);
        self.files.extend(other.files.into_iter().map(|file| File { place: file.place + before, ..file }));
    }

    /// Orders the files by name; no more files may be added afterwards.
    pub(super) fn finish(&mut self) {
        self.text.shrink_to_fit();
        self.files.shrink_to_fit();
        self.files.sort_unstable_by(|a, b| a.name(&self.text).cmp(b.name(&self.text)));
    }

    pub(crate) fn into_objects(self) -> impl ExactSizeIterator<Item = Object> + Send {
        let Self { folder, text, files } = self;
        files.into_iter().map(move |file| {
            let base = file.name(&text);
            // Runs a million times: `format!` would take as long as the rest.
            let mut name = String::with_capacity(folder.len() + base.len());
            name.push_str(&folder);
            name.push_str(base);
            Object::new(name, file.size)
        })
    }
}
