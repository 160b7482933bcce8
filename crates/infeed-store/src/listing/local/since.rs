//! Lists a folder with a manifest, from which unchanged folders are taken one by one.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use infeed_core::error::Result;

use super::{
    kept::{Folders, Listed, Saved, files_of, keep},
    objects::objects,
    pool::{Keeping, Walk},
    stamp::Believed,
};
use crate::{Listing, ObjectTable, Source, manifest::Manifest};

/// All files below a folder. Takes one call for each unchanged folder that is in `manifest`. If folders had to be listed
/// and there are at least `worth` files, the manifest is written again.
///
/// `whole` returns by its name whether a file is read from its beginning to its end, in which case another size is
/// detected on reading. Other files are looked up each time, and so are links.
pub(crate) async fn all_since(
    root: PathBuf,
    source: &Source,
    manifest: &Manifest,
    whole: fn(&str) -> bool,
    worth: usize,
) -> Result<Listing> {
    at(root, source, manifest, whole, worth, now).await.map(|(listing, _)| listing)
}

/// In tests the clock is ahead, so that everything written until now counts as settled.
fn now() -> SystemTime {
    SystemTime::now() + Duration::from_secs(if cfg!(test) { 5 } else { 0 })
}

/// Lists with this clock. Also returns how many folders were not taken from the manifest.
pub(super) async fn at(
    root: PathBuf,
    source: &Source,
    manifest: &Manifest,
    whole: fn(&str) -> bool,
    worth: usize,
    now: fn() -> SystemTime,
) -> Result<(Listing, usize)> {
    let (saved, kept) = match Saved::load(manifest, source.place()) {
        Some(Saved { folders, files, is_ordered }) => (folders, Some((files, is_ordered))),
        None => (Folders::new(), None),
    };
    let count = saved.len();
    let mut folders = walk(root.clone(), source, saved, whole, now).await?;
    // Whether a manifest of these folders has all files.
    let is_whole = folders.iter().all(|listed| listed.kept.as_ref().is_some_and(|kept| kept.again.is_empty()));
    if let Some((files, is_ordered)) = kept {
        let is_same = folders.len() == count && folders.iter().all(|listed| listed.taken.is_some());
        tracing::info!(folders = folders.len(), is_same, file = %manifest.file().display(), "listed with the manifest");
        if is_same && is_whole && is_ordered {
            return Ok((Listing { objects: None, kept: Some(files) }, 0));
        }
        if read_taken(&mut folders, &files.table).is_err() {
            // It was damaged, and is no longer there.
            folders = walk(root, source, Folders::new(), whole, now).await?;
        }
    }
    let listed = folders.iter().filter(|listed| listed.taken.is_none()).count();
    // A folder that can't be trusted later is no reason to write the manifest.
    let news = folders.iter().any(|listed| listed.taken.is_none() && listed.kept.is_some());
    let is_worth = folders.iter().map(|listed| listed.found.len()).sum::<usize>() >= worth;
    let kept = if news && is_worth { keep(&folders, manifest, source.place()) } else { None };
    let kept = kept.filter(|kept| is_whole && kept.is_ordered).map(|kept| kept.files);
    let objects = Some(objects(folders.into_iter().map(|listed| listed.found).collect()));
    Ok((Listing { objects, kept }, listed))
}

/// The folders below `root`, in the order of names.
async fn walk(
    root: PathBuf,
    source: &Source,
    saved: Folders,
    whole: fn(&str) -> bool,
    now: fn() -> SystemTime,
) -> Result<Vec<Listed>> {
    let keeping = Keeping { saved: Mutex::new(saved), believed: Believed::of_this_machine(), whole, now };
    let mut walk = Walk::keeping(root, source, Arc::new(keeping))?;
    let mut folders: Vec<Listed> = Vec::new();
    while let Some(listed) = walk.next().await {
        folders.push(listed?);
    }
    folders.sort_unstable_by(|a, b| a.found.folder.cmp(&b.found.folder));
    Ok(folders)
}

/// Adds the files of unchanged folders.
fn read_taken(folders: &mut [Listed], table: &ObjectTable) -> Result<()> {
    for Listed { found, taken, .. } in folders {
        if let Some(blocks) = taken {
            let mut all = files_of(table, &found.folder, blocks.clone())?;
            all.append(std::mem::take(found));
            all.finish();
            *found = all;
        }
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path, sync::LazyLock};

    use futures::executor::block_on;
    use proptest::prelude::*;

    use super::super::all;
    use super::{now as later, *};
    use crate::Object;
    use infeed_core::fingerprint::Fingerprint;

    /// A tree of files, and its manifest.
    struct Tree {
        dir: tempfile::TempDir,
        manifest: Manifest,
    }

    /// A second after its first call, forever: later writes do not count as settled, however long the test takes.
    fn soon() -> SystemTime {
        static FIRST: LazyLock<SystemTime> = LazyLock::new(SystemTime::now);
        *FIRST + Duration::from_secs(1)
    }

    impl Tree {
        fn new(names: &[&str]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let tree = Self { manifest: Manifest::new(&dir.path().join("kept"), Fingerprint(1), "folder"), dir };
            fs::create_dir(tree.root()).unwrap();
            names.iter().for_each(|name| tree.write(name, name.len()));
            tree
        }

        fn root(&self) -> std::path::PathBuf {
            self.dir.path().canonicalize().unwrap().join("tree")
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.root().join(name)
        }

        fn write(&self, name: &str, size: usize) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), vec![0; size]).unwrap();
        }

        /// Waits until a new change gets another time than the last one.
        fn tick(&self) {
            let probe = || {
                let file = tempfile::NamedTempFile::new_in(self.dir.path()).unwrap();
                file.as_file().metadata().unwrap().modified().unwrap()
            };
            let before = probe();
            while probe() == before {
                std::thread::sleep(Duration::from_millis(1));
            }
        }

        fn source(&self) -> Source {
            Source::parse(self.root().to_str().unwrap()).unwrap()
        }

        fn listing(&self, worth: usize, now: fn() -> SystemTime) -> (Listing, usize) {
            self.tick();
            let whole = |name: &str| name.ends_with(".jpg");
            block_on(at(self.root(), &self.source(), &self.manifest, whole, worth, now)).unwrap()
        }

        /// The objects, and how many folders were not taken from the manifest.
        fn at(&self, worth: usize, now: fn() -> SystemTime) -> (Vec<Object>, usize) {
            let (listing, listed) = self.listing(worth, now);
            let Ok(objects) = listing.into_objects() else { return self.at(worth, now) };
            (objects, listed)
        }

        /// Lists with the manifest, and checks that the result equals a listing without. Also returns how many folders
        /// were not taken from it.
        fn listed(&self, now: fn() -> SystemTime) -> (Vec<Object>, usize) {
            let (objects, listed) = self.at(0, now);
            assert_eq!(objects, block_on(all(self.root(), &self.source())).unwrap());
            (objects, listed)
        }

        fn kept(&self) -> Option<Vec<u8>> {
            fs::read(self.manifest.file()).ok()
        }
    }

    #[test]
    fn folders_that_changed_are_listed_and_the_others_taken() {
        let tree = Tree::new(&["a/1.jpg", "a/2.jpg", "a/deep/er/3.jpg", "b/1.jpg", "c/1.jpg", "top.jpg"]);
        fs::create_dir(tree.path("empty")).unwrap();
        let folders = 7;
        assert_eq!(tree.listed(later).1, folders);
        for _ in 0..2 {
            let kept = tree.kept();
            assert_eq!(tree.listed(later).1, 0);
            assert_eq!(tree.kept(), kept, "nothing is written without news");
        }
        type Change = fn(&Tree);
        let changes: [(&str, Change, usize); 9] = [
            ("added", |tree| tree.write("a/new.jpg", 5), 1),
            ("added deep", |tree| tree.write("a/deep/er/new.jpg", 5), 1),
            ("added to what was empty", |tree| tree.write("empty/new.jpg", 5), 1),
            ("removed", |tree| fs::remove_file(tree.path("a/1.jpg")).unwrap(), 1),
            ("renamed", |tree| fs::rename(tree.path("a/2.jpg"), tree.path("a/0.jpg")).unwrap(), 1),
            (
                "replaced",
                |tree| {
                    tree.write("b/.aside", 99);
                    fs::rename(tree.path("b/.aside"), tree.path("b/1.jpg")).unwrap();
                },
                1,
            ),
            ("moved", |tree| fs::rename(tree.path("c/1.jpg"), tree.path("b/c.jpg")).unwrap(), 2),
            // Its parent, the folder itself (its time changes on most file systems), and its renamed subfolders.
            ("renamed folder", |tree| fs::rename(tree.path("a"), tree.path("z")).unwrap(), 4),
            ("removed folder", |tree| fs::remove_dir_all(tree.path("z")).unwrap(), 1),
        ];
        for (what, change, listed) in changes {
            change(&tree);
            assert_eq!(tree.listed(later).1, listed, "{what}");
            assert_eq!(tree.listed(later).1, 0, "{what}, again");
        }
    }

    #[test]
    fn what_has_just_changed_is_listed_until_its_time_is_told_from_the_next() {
        soon();
        let tree = Tree::new(&["a/1.jpg", "b/1.jpg"]);
        // Without the root, which holds no files.
        assert_eq!(tree.listed(soon).1, 2);
        assert!(tree.kept().is_none(), "nothing that could be kept");
        assert_eq!(tree.listed(soon).1, 2);
        assert_eq!((tree.listed(later).1, tree.listed(later).1), (3, 0));
        tree.write("a/2.jpg", 1);
        let kept = tree.kept();
        for _ in 0..2 {
            assert_eq!(tree.listed(soon).1, 1, "the others are still taken");
            assert_eq!(tree.kept(), kept, "what can't be believed later is no reason to write");
        }
        assert_eq!((tree.listed(later).1, tree.listed(later).1), (1, 0));
    }

    #[test]
    fn a_folder_that_was_given_its_old_time_back_is_listed() {
        let tree = Tree::new(&["a/1.jpg"]);
        tree.listed(later);
        let modified = fs::metadata(tree.path("a")).unwrap().modified().unwrap();
        tree.write("a/2.jpg", 1);
        fs::File::open(tree.path("a")).unwrap().set_modified(modified).unwrap();
        assert_eq!(fs::metadata(tree.path("a")).unwrap().modified().unwrap(), modified);
        assert_eq!(tree.listed(later).1, 1);
    }

    #[test]
    fn links_lead_where_they_lead_now() {
        let tree = Tree::new(&["a/1.jpg", "b/x.jpg"]);
        let out = |name: &str| tree.dir.path().join(name);
        for name in ["one", "two"] {
            fs::create_dir(out(name)).unwrap();
            fs::write(out(name).join(format!("{name}.jpg")), name).unwrap();
        }
        fs::write(out("file"), "12345").unwrap();
        symlink(out("one"), out("current")).unwrap();
        symlink(out("current"), tree.path("a/folder")).unwrap();
        symlink(out("file"), tree.path("a/file.jpg")).unwrap();
        symlink("..", tree.path("b/loop")).unwrap();
        let names = |objects: &[Object]| objects.iter().map(|object| object.name.clone()).collect::<Vec<_>>().join(" ");
        let (objects, listed) = tree.listed(later);
        assert_eq!((names(&objects).as_str(), listed), ("a/1.jpg a/file.jpg a/folder/one.jpg b/x.jpg", 4));
        assert_eq!(tree.listed(later).1, 0);
        // None of these changes a folder of the tree.
        fs::write(out("file"), "1").unwrap();
        fs::remove_file(out("current")).unwrap();
        symlink(out("two"), out("current")).unwrap();
        let (objects, listed) = tree.listed(later);
        assert_eq!((names(&objects).as_str(), listed), ("a/1.jpg a/file.jpg a/folder/two.jpg b/x.jpg", 1));
        fs::write(out("two/more.jpg"), "").unwrap();
        assert_eq!((tree.listed(later).1, tree.listed(later).1), (1, 0));
        fs::remove_file(out("current")).unwrap();
        symlink(out("file"), out("current")).unwrap();
        let (objects, listed) = tree.listed(later);
        assert_eq!((names(&objects).as_str(), listed), ("a/1.jpg a/file.jpg a/folder b/x.jpg", 0), "a file by now");
        fs::remove_file(out("current")).unwrap();
        symlink(tree.path("a"), out("current")).unwrap();
        assert_eq!(names(&tree.listed(later).0), "a/1.jpg a/file.jpg b/x.jpg", "a loop by now");
        fs::remove_file(out("file")).unwrap();
        assert_eq!(names(&tree.listed(later).0), "a/1.jpg b/x.jpg", "nowhere by now");
        fs::write(out("file"), "12").unwrap();
        assert_eq!(names(&tree.listed(later).0), "a/1.jpg a/file.jpg b/x.jpg", "a file once more");
    }

    #[test]
    fn files_that_may_be_read_in_parts_are_looked_up_and_a_folder_of_many_is_listed() {
        let tree = Tree::new(&["a/1.jpg", "a/labels.csv", "b/1.jpg"]);
        (0..65).for_each(|i| tree.write(&format!("c/{i}.npy"), 1));
        assert_eq!(tree.listed(later).1, 4);
        tree.write("a/labels.csv", 100);
        tree.write("c/7.npy", 100);
        let kept = tree.kept();
        assert_eq!(tree.listed(later).1, 1, "the one of many");
        assert_eq!(tree.kept(), kept, "which is no reason to write");
        // The documented limit: the size is the kept one.
        tree.write("a/1.jpg", 100);
        let size = |objects: &[Object]| objects.iter().find(|object| object.name == "a/1.jpg").unwrap().size;
        let (objects, _) = tree.at(0, later);
        assert_eq!((size(&objects), size(&block_on(all(tree.root(), &tree.source())).unwrap())), (7, 100));
    }

    #[test]
    fn a_damaged_or_foreign_manifest_is_made_anew() {
        let tree = Tree::new(&["a/1.jpg", "b/1.jpg"]);
        tree.listed(later);
        let sound = tree.kept().unwrap();
        let other = Tree::new(&["a/2.jpg"]);
        other.listed(later);
        let mut flipped = sound.clone();
        flipped[sound.len() / 2] ^= 1;
        for bytes in [&sound[..sound.len() - 1], &flipped, b"", b"infeed folder 1\n", &other.kept().unwrap()] {
            fs::write(tree.manifest.file(), bytes).unwrap();
            assert_eq!(tree.listed(later).1, 3);
            assert_eq!(tree.kept().unwrap().len(), sound.len());
            assert_eq!(tree.listed(later).1, 0);
        }
        let few = Tree::new(&["a/1.jpg"]);
        few.at(2, later);
        assert!(few.kept().is_none(), "too few to keep");
        few.at(1, later);
        assert!(few.kept().is_some());
    }

    #[test]
    fn files_of_an_unchanged_tree_are_read_one_by_one() {
        let tree = Tree::new(&["a/1.jpg", "a/2.jpg", "a-b/1.jpg", "c/deep/1.jpg"]);
        (0..40).for_each(|i| tree.write(&format!("many/{i:02}.jpg"), i));
        let kept = || tree.listing(0, later).0.kept().cloned();
        let first = kept().unwrap();
        for _ in 0..2 {
            let (listing, listed) = tree.listing(0, later);
            let kept = listing.kept().cloned().unwrap();
            assert_eq!((kept.identity, listed), (first.identity, 0));
            let objects = listing.into_objects().unwrap();
            assert_eq!(objects, block_on(all(tree.root(), &tree.source())).unwrap());
            let files: Vec<Object> = (0..kept.table.len()).map(|at| kept.table.get(at).unwrap()).collect();
            assert_eq!(files, objects);
            // Two numbers for each block of at most 16 files.
            assert_eq!(kept.table.resident_bytes(), (3 + 3) * 16);
        }
        // Another tree is another listing; the files of the one before can still be read.
        tree.write("a/3.jpg", 5);
        let second = kept().unwrap();
        assert_ne!(second.identity, first.identity);
        assert_eq!((first.table.len(), first.table.get(43).unwrap().size), (44, 39));
        // A damaged block is an error of its files, and the manifest is made again.
        let mut bytes = tree.kept().unwrap();
        bytes[20] ^= 1;
        fs::write(tree.manifest.file(), bytes).unwrap();
        let damaged = kept().unwrap();
        assert!(damaged.table.get(44).is_ok());
        assert!(damaged.table.get(0).unwrap_err().to_string().contains("a checksum is wrong"));
        assert!(tree.kept().is_none());
        assert_eq!(tree.listed(later).0.len(), 45);
        // Names that are looked up each time, and files between folders of the same beginning, need the list.
        for other in ["a/x.csv", "b.jpg"] {
            tree.write(other, 1);
            let (listing, _) = tree.listing(0, later);
            assert_eq!((listing.kept().is_some(), kept().is_some()), (false, false), "{other}");
            fs::remove_file(tree.path(other)).unwrap();
            assert!(kept().is_some());
        }
    }

    #[test]
    fn two_at_once_leave_one_that_is_whole() {
        let tree = Tree::new(&["a/1.jpg", "b/1.jpg"]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..20 {
                        assert_eq!(tree.at(0, later).0.len(), 2);
                        let _ = (i % 5 == 0).then(|| fs::remove_file(tree.manifest.file()));
                    }
                });
            }
        });
        tree.listed(later);
        assert_eq!(tree.listed(later).1, 0);
        assert_eq!(
            fs::read_dir(tree.manifest.file().parent().unwrap()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }

    /// One of a few names, in one of a few folders.
    fn name() -> impl Strategy<Value = String> {
        "([ab]/){0,3}[abc]\\.(jpg|csv)"
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn whatever_is_done_to_a_tree_its_listing_is_the_same(steps in prop::collection::vec((0..5, name(), name()), 1..25)) {
            let tree = Tree::new(&[]);
            for (size, (what, one, other)) in steps.into_iter().enumerate() {
                let (one, other) = (tree.path(&one), tree.path(&other));
                let parent = |path: &Path| path.parent().unwrap().to_owned();
                // Impossible changes have no effect.
                let _ = match what {
                    // Not in place, which is the documented limit.
                    0 => fs::create_dir_all(parent(&one)).and_then(|()| fs::remove_file(&one).or(Ok(()))).and_then(|()| fs::write(&one, vec![0; size])),
                    1 => fs::remove_file(&one),
                    2 => fs::rename(&one, &other),
                    3 => fs::rename(parent(&one), parent(&other)),
                    _ => symlink(parent(&one), parent(&other).join("link")),
                };
                let same = block_on(all(tree.root(), &tree.source())).unwrap();
                prop_assert_eq!(tree.at(0, later).0, same);
            }
        }
    }

    /// `INFEED_TREE=DIR cargo test --release -p infeed-store what_a_kept_listing -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement that checks no promise: CONTRIBUTING, Measure, says how to run it"]
    fn what_a_kept_listing_saves() {
        use std::io::Write as _;
        let root = fs::canonicalize(std::env::var("INFEED_TREE").expect("INFEED_TREE names a folder")).unwrap();
        let source = Source::parse(root.to_str().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let manifest = Manifest::new(dir.path(), source.place(), "folder");
        let whole: fn(&str) -> bool = |name| name.to_ascii_lowercase().ends_with(".jpeg");
        let first = std::time::Instant::now();
        block_on(all_since(root.clone(), &source, &manifest, whole, 0)).unwrap();
        let first = first.elapsed();
        let bytes = fs::metadata(manifest.file()).unwrap().len();
        writeln!(std::io::stderr(), "first, which writes {bytes} bytes: {first:.3?}").unwrap();
        for _ in 0..7 {
            let start = std::time::Instant::now();
            let without = block_on(all(root.clone(), &source)).unwrap();
            let took = start.elapsed();
            let start = std::time::Instant::now();
            let with = block_on(all_since(root.clone(), &source, &manifest, whole, 0)).unwrap();
            let with = with.into_objects().unwrap();
            let kept = start.elapsed();
            assert_eq!(with, without);
            writeln!(std::io::stderr(), "{} files: without {took:.3?}, with {kept:.3?}", with.len()).unwrap();
        }
    }
}
