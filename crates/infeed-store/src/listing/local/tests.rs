use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Weak},
};

use futures::{TryStreamExt, executor::block_on};
use infeed_core::error::{ErrorKind, Result};
use proptest::prelude::*;

use super::{
    folder::{Entry, Folder},
    pool::{Pool, all},
};
use crate::{Object, Source};

fn open(dir: &Path) -> Source {
    Source::parse(dir.to_str().unwrap()).unwrap()
}

fn list_all(dir: &Path) -> Result<Vec<Object>> {
    block_on(all(dir.canonicalize().unwrap(), &open(dir)))
}

fn write(dir: &Path, name: &str, size: usize) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, vec![b'x'; size]).unwrap();
}

/// Waits for the threads of a listing; hangs if they do not end.
fn threads_end(pool: &Weak<Pool>) {
    while pool.strong_count() > 0 {
        std::thread::yield_now();
    }
}

/// Checks that exactly these files are listed, with their sizes, ordered by name, as a list and as a stream.
fn assert_lists(dir: &Path, files: &BTreeMap<String, usize>) {
    let want: Vec<Object> = files.iter().map(|(name, size)| Object::new(name.as_str(), *size as u64)).collect();
    assert_eq!(list_all(dir).unwrap(), want);
    let mut streamed: Vec<Object> = block_on(open(dir).list().try_collect()).unwrap();
    streamed.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(streamed, want);
}

#[test]
fn files_among_folders_are_in_the_order_of_whole_names() {
    let dir = tempfile::tempdir().unwrap();
    // `-` and `.` sort before `/`, letters after it.
    let names = ["a-b/1", "a.jpg", "a/1", "a/b-c/2", "a/b/2", "a/b.x", "a/c", "a0", "b/d/e/f/g", "ä/ö"];
    let files: BTreeMap<String, usize> = names.iter().enumerate().map(|(i, n)| ((*n).to_owned(), i)).collect();
    files.iter().for_each(|(name, size)| write(dir.path(), name, *size));
    assert_lists(dir.path(), &files);
    assert_eq!(list_all(tempfile::tempdir().unwrap().path()).unwrap(), []);
}

#[test]
fn a_folder_of_more_files_than_may_wait_is_listed_whole() {
    let dir = tempfile::tempdir().unwrap();
    let files: BTreeMap<String, usize> = (0..20_000).map(|i| (format!("{:05}.jpg", i * 7919 % 20_000), 0)).collect();
    files.keys().for_each(|name| drop(fs::File::create(dir.path().join(name)).unwrap()));
    assert_lists(dir.path(), &files);
}

#[test]
fn who_takes_nothing_more_lets_all_threads_end() {
    let dir = tempfile::tempdir().unwrap();
    // More than the pool keeps ready, so that threads have to wait.
    (0..300).for_each(|i| write(dir.path(), &format!("{i}/x"), 1));
    for taken in [0, 1, 300] {
        let (pool, mut found) = Pool::start(dir.path().canonicalize().unwrap(), &open(dir.path()), None).unwrap();
        for _ in 0..taken {
            assert_eq!(block_on(found.recv()).unwrap().unwrap().found.len(), 1);
        }
        if taken == 300 {
            assert!(block_on(found.recv()).is_none());
        }
        drop(found);
        threads_end(&pool);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_first_error_ends_a_listing_and_its_threads() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    (0..100).for_each(|i| write(dir.path(), &format!("{i}/{i}/x"), 1));
    fs::write(dir.path().join("50/50").join(std::ffi::OsStr::from_bytes(b"\xff.jpg")), "").unwrap();
    fs::write(dir.path().join("70").join(std::ffi::OsStr::from_bytes(b"\xfe.jpg")), "").unwrap();
    let (pool, mut found) = Pool::start(dir.path().canonicalize().unwrap(), &open(dir.path()), None).unwrap();
    let error = loop {
        match block_on(found.recv()).expect("an error comes before the end") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let text = error.to_string();
    assert!((text.contains("/50/50/") || text.contains("/70/")) && text.contains("not Unicode"), "{text}");
    while let Some(more) = block_on(found.recv()) {
        assert!(more.is_ok(), "a second error: {more:?}");
    }
    threads_end(&pool);
}

#[cfg(unix)]
#[test]
fn links_that_lead_nowhere_or_to_themselves_are_left_out() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let files = BTreeMap::from([("a/1".to_owned(), 1), ("b".to_owned(), 2)]);
    files.iter().for_each(|(name, size)| write(dir.path(), name, *size));
    for (name, to) in
        [("a/nowhere", "gone"), ("a/itself", "itself"), ("one", "other"), ("other", "one"), ("above", "a/..")]
    {
        symlink(to, dir.path().join(name)).unwrap();
    }
    assert_lists(dir.path(), &files);
}

#[test]
fn a_file_that_is_gone_before_it_is_looked_up_is_left_out_and_a_folder_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "file", 1);
    write(dir.path(), "folder/x", 1);
    let source = open(dir.path());
    let root = Arc::new(Folder::root(dir.path().canonicalize().unwrap()));
    let entries: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap()).collect();
    fs::remove_file(dir.path().join("file")).unwrap();
    fs::remove_dir_all(dir.path().join("folder")).unwrap();
    let mut found = Vec::new();
    for entry in &entries {
        root.look(entry, &source, |base, entry, _| found.push((base.to_owned(), entry))).unwrap();
    }
    // File systems that report an entry's type without a further call.
    if let Some((name, entry)) = found.pop() {
        assert!(name == "folder" && matches!(&entry, Entry::Folder(folder) if folder.name == "folder/"), "{entry:?}");
    }
    assert!(found.is_empty());
    let error = list_all_of_gone(&dir).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("cannot be listed"), "{error}");
}

fn list_all_of_gone(dir: &tempfile::TempDir) -> Result<Vec<Object>> {
    let source = open(dir.path());
    let real = dir.path().canonicalize().unwrap();
    fs::remove_dir_all(dir.path()).unwrap();
    block_on(all(real, &source))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_tree_is_listed_as_it_is(names in prop::collection::btree_set("([ab.-]/){0,3}[abc.-]{1,2}", 0..60)) {
        let dir = tempfile::tempdir().unwrap();
        let mut files = BTreeMap::new();
        for (size, name) in names.iter().enumerate() {
            let hidden = name.split('/').any(|part| part.starts_with('.'));
            // The name may already be that of a folder.
            if !name.split('/').any(|part| matches!(part, "." | ".."))
                && fs::create_dir_all(dir.path().join(name).parent().unwrap()).is_ok()
                && fs::write(dir.path().join(name), vec![0; size]).is_ok()
                && !hidden
            {
                files.insert(name.clone(), size);
            }
        }
        assert_lists(dir.path(), &files);
    }
}
