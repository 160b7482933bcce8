use std::{collections::BTreeMap, fs, io::Write, sync::Arc};

use bytes::BytesMut;
use futures::{TryStreamExt, executor::block_on};
use infeed_core::error::{ErrorKind, Result};
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};

use super::*;

fn listed(source: &Source) -> Result<BTreeMap<String, u64>> {
    block_on(source.list().map_ok(|o| (o.name, o.size)).try_collect())
}

fn names(source: &Source) -> Vec<String> {
    listed(source).unwrap().into_keys().collect()
}

fn write(dir: &std::path::Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn open(path: &std::path::Path) -> Source {
    Source::parse(path.to_str().unwrap()).unwrap()
}

fn inline(extent: &Extent) -> Result<Vec<u8>> {
    let mut buffer = BytesMut::from(&b"old content"[..]);
    extent.open_inline()?.read_into(&mut buffer)?;
    Ok(buffer.to_vec())
}

#[test]
fn names_with_any_character_are_listed_and_read_back() {
    let odd =
        ["a b.jpg", "100%.jpg", "a%20b.jpg", "x#1.jpg", "ä/ö ü.jpg", "q?[1]{2}^~.jpg", "\\back.jpg", "日本/語.jpg"];
    let dir = tempfile::tempdir().unwrap();
    let store = InMemory::new();
    for name in odd {
        write(dir.path(), name, name.as_bytes());
        block_on(store.put(&Path::parse(format!("some/{name}")).unwrap(), name.to_owned().into())).unwrap();
    }
    let local = open(dir.path());
    let remote = Source::from_store(Arc::new(store), Path::from("some"), "test://some/");
    let mut sorted = odd.map(str::to_owned).to_vec();
    sorted.sort();
    for source in [local, remote] {
        assert_eq!(names(&source), sorted);
        for name in odd {
            let extent = Extent::whole(&source, name, name.len() as u64);
            assert_eq!(block_on(extent.read()).unwrap(), name, "{source:?}");
            assert_eq!(inline(&extent).unwrap(), name.as_bytes(), "{source:?}");
        }
    }
}

#[test]
fn hidden_files_are_left_out_and_empty_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    for name in [".hidden", ".git/config", "a/.DS_Store", "a/.zarray", "a/x", "empty"] {
        write(dir.path(), name, if name == "empty" { b"" } else { b"1" });
    }
    let found = listed(&open(dir.path())).unwrap();
    // Names by which Zarr is recognised are listed.
    let want = [("a/.zarray", 1), ("a/x", 1), ("empty", 0)].map(|(name, size)| (name.to_owned(), size));
    assert_eq!(found, BTreeMap::from(want));
    let empty = Extent::whole(&open(dir.path()), "empty", 0);
    assert_eq!(inline(&empty).unwrap(), b"");
    assert_eq!(block_on(empty.read()).unwrap(), "");
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_loops_are_not() {
    use std::os::unix::fs::symlink;
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(dir.path(), "a/x", b"1");
    write(dir.path(), "b/y", b"1");
    write(other.path(), "z", b"12");
    symlink("../a", dir.path().join("b/to_a")).unwrap();
    symlink("../b", dir.path().join("a/to_b")).unwrap();
    symlink(".", dir.path().join("self")).unwrap();
    symlink("/", dir.path().join("b/root")).unwrap();
    symlink(other.path(), dir.path().join("other")).unwrap();
    symlink(other.path().join("z"), dir.path().join("file")).unwrap();
    let found = names(&open(dir.path()));
    assert_eq!(found, ["a/to_b/y", "a/x", "b/to_a/x", "b/y", "file", "other/z"]);
}

#[test]
fn a_path_to_a_file_shows_only_that_file() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.bin", b"abc");
    write(dir.path(), "b.bin", b"b");
    let path = dir.path().join("a.bin");
    let source = open(&path);
    assert_eq!(names(&source), ["a.bin"]);
    assert_eq!(source.only(), Some("a.bin"));
    assert_eq!(block_on(source.read("a.bin", 1..3)).unwrap(), "bc");
    assert_eq!(source.display_name("a.bin"), path.to_str().unwrap());

    let store = Source::memory("a-path-to-a-file");
    block_on(store.put(&Path::parse("d/a.bin").unwrap(), "abc".into())).unwrap();
    let source = Source::parse("memory://a-path-to-a-file/d/a.bin").unwrap();
    assert_eq!(names(&source), [""; 0]);
    let source = block_on(source.as_object()).unwrap().unwrap();
    assert_eq!(names(&source), ["a.bin"]);
    assert_eq!(source.display_name("a.bin"), "memory://a-path-to-a-file/d/a.bin");
    assert!(block_on(Source::parse("memory://a-path-to-a-file/d").unwrap().as_object()).unwrap().is_none());
}

#[test]
fn relative_paths_are_called_what_the_user_called_them() {
    if !std::path::Path::new("src/connect/mod.rs").exists() {
        // Cargo runs tests in the crate's folder, which the GPU kit does not have.
        return;
    }
    let source = Source::parse("src/connect/").unwrap();
    assert!(names(&source).contains(&"mod.rs".to_owned()));
    assert_eq!(source.display_name("mod.rs"), "src/connect/mod.rs");
    let source = Source::parse("Cargo.toml").unwrap();
    assert_eq!(names(&source), ["Cargo.toml"]);
    assert_eq!(source.display_name("Cargo.toml"), "Cargo.toml");
    assert_eq!(Source::parse("/").unwrap().display_name("a"), "/a");
}

#[test]
fn file_urls_are_unescaped_and_plain_paths_are_not() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "my set/x", b"1");
    write(dir.path(), "my%20set/y", b"1");
    let dir = dir.path().to_str().unwrap();
    assert_eq!(names(&Source::parse(&format!("file://{dir}/my%20set")).unwrap()), ["x"]);
    assert_eq!(names(&Source::parse(&format!("{dir}/my%20set/")).unwrap()), ["y"]);
    for (url, says) in
        [("file://data/train", "write file:///data/train"), ("file:///data/a#1", "%23"), ("file:///data/a?b", "%3F")]
    {
        let error = Source::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_missing_path_says_how_much_of_it_exists() {
    let dir = tempfile::tempdir().unwrap();
    let error = Source::parse(dir.path().join("trian/x").to_str().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let text = error.to_string();
    assert!(text.contains("trian/x") && text.contains(&format!("{} exists", dir.path().display())), "{text}");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(Source::parse(file.join("x").to_str().unwrap()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn an_unknown_scheme_names_the_known_ones() {
    for url in ["s4://bucket/x", "S3A://bucket", "ftp://bucket"] {
        let error = Source::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(text.contains(url.split(':').next().unwrap()) && text.contains("s3://"), "{text}");
    }
    assert_eq!(Source::parse("").unwrap_err().kind(), ErrorKind::Config);
    for (url, says) in [
        ("s3:/bucket/x", "write s3://bucket/x"),
        ("s3//bucket/x", "write s3://bucket/x"),
        ("S3:bucket", "write s3://bucket"),
        ("file:/data", "write file:///data"),
    ] {
        let error = Source::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(Source::parse("s3:///x").unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(Source::parse("memory://nobody-made-this").unwrap_err().kind(), ErrorKind::NotFound);
}

#[cfg(not(feature = "s3"))]
#[test]
fn without_its_feature_s3_says_so() {
    let error = Source::parse("s3://bucket/prefix").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("--features s3"), "{error}");
}

#[cfg(feature = "s3")]
#[test]
fn a_bucket_with_a_name_that_can_t_be_is_refused_at_once() {
    for (url, says) in [
        ("s3://Photos/train", "write s3://photos/"),
        ("s3://photos:9000/train", "AWS_ENDPOINT_URL"),
        ("s3://ab/train", "3 to 63"),
        ("s3://photos//train", "single slashes"),
        ("s3://key:secret@photos/train", "cannot contain `@`"),
        ("s3://photos train/x", "cannot contain ` `"),
    ] {
        let error = Source::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[cfg(feature = "s3")]
#[test]
fn a_bucket_opens_without_a_request() {
    let source = Source::parse("s3://bucket/a/b/").unwrap();
    assert!(!source.reads_inline());
    assert_eq!(source.display_name("c.jpg"), "s3://bucket/a/b/c.jpg");
}

#[test]
fn a_file_larger_than_memory_is_an_error_that_names_it() {
    const BYTES: u64 = 8 << 40;
    let dir = tempfile::tempdir().unwrap();
    fs::File::create(dir.path().join("huge")).unwrap().set_len(BYTES).unwrap();
    let source = open(dir.path());
    let extent = Extent::whole(&source, "huge", BYTES);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut buffer = BytesMut::new();
    for error in [
        block_on(extent.read()).unwrap_err(),
        runtime.block_on(extent.read()).unwrap_err(),
        inline(&extent).unwrap_err(),
        OpenFile::open(&extent).unwrap().unwrap().read(&extent, &mut buffer).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        let text = error.to_string();
        assert!(text.contains("no memory to read 879609302220"), "{text}");
        assert!(text.contains("/huge @ 0..8796093022208") && error.hint().is_some(), "{text}");
    }
}

#[test]
fn a_long_range_of_a_file_comes_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..17 << 20).flat_map(|n: u32| n.to_le_bytes()).collect();
    write(dir.path(), "long", &bytes);
    let source = open(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for range in [0..bytes.len(), 5..bytes.len() - 7, 3..(64 << 20) + 3, 7..4 << 20] {
        let extent = Extent::part(&source, "long", range.start as u64..range.end as u64);
        assert!(runtime.block_on(extent.read()).unwrap() == bytes[range.clone()], "{range:?}");
        assert!(block_on(extent.read()).unwrap() == bytes[range.clone()], "{range:?}");
    }
}

#[test]
fn a_file_that_changed_since_it_was_listed_is_a_bad_sample() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", b"12345");
    let source = open(dir.path());
    for (size, says) in [(9, "ends after 5 of 9 bytes; it changed"), (3, "has 5 bytes, 3 when it was listed")] {
        let extent = Extent::whole(&source, "a", size);
        for error in [inline(&extent).unwrap_err(), block_on(extent.read()).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.clone().at_record(1).is_sample());
            let text = error.to_string();
            assert!(text.contains(says) || text.contains("ends after 5 of 9 bytes"), "{text}");
            assert!(text.contains("/a @ 0..") && text.contains("it changed since it was listed"), "{text}");
        }
    }
    let part = Extent::part(&source, "a", 1..3);
    assert_eq!(inline(&part).unwrap(), b"23");
    assert_eq!(block_on(part.read()).unwrap(), "23");
    assert_eq!(inline(&Extent::part(&source, "a", 2..9)).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(inline(&Extent::part(&source, "a", 2..2)).unwrap(), b"");
    #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
    let reversed = Extent::part(&source, "a", 3..2);
    assert_eq!(inline(&reversed).unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", &[7; 100]);
    let read = Extent::whole(&open(dir.path()), "a", 100).open_inline().unwrap();
    fs::File::options().write(true).open(dir.path().join("a")).unwrap().set_len(40).unwrap();
    let error = read.read_into(&mut BytesMut::new()).unwrap_err();
    assert!(error.to_string().contains("ends after 40 of 100 bytes"), "{error}");
}

#[test]
fn an_opened_read_survives_the_removal_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", b"still here");
    let read = Extent::whole(&open(dir.path()), "a", 10).open_inline().unwrap();
    fs::remove_file(dir.path().join("a")).unwrap();
    let mut buffer = BytesMut::new();
    read.read_into(&mut buffer).unwrap();
    assert_eq!(buffer, "still here");
}

#[test]
fn a_missing_object_is_not_found_in_each_kind_of_store() {
    let dir = tempfile::tempdir().unwrap();
    for source in [open(dir.path()), Source::from_store(Arc::new(InMemory::new()), Path::default(), "test://")] {
        for error in [block_on(source.read("x", 0..1)).unwrap_err(), source.open_inline("x", 0..1).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().starts_with("fetch: no such object ("), "{error}");
            assert!(error.to_string().contains("x @ 0..1"), "{error}");
        }
    }
}

#[test]
fn reads_work_inside_tokio_too() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a/b", b"123");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (count, bytes) = runtime.block_on(async {
        let source = open(dir.path());
        let objects: Vec<Object> = source.list().try_collect().await.unwrap();
        (objects.len(), source.read("a/b", 0..3).await.unwrap())
    });
    assert_eq!((count, &bytes[..]), (1, &b"123"[..]));
}

#[test]
fn a_child_reads_names_below_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "train/a/x", b"1");
    write(dir.path(), "val/y", b"1");
    let child = open(dir.path()).child("train").unwrap();
    assert_eq!(names(&child), ["a/x"]);
    assert_eq!(block_on(child.read("a/x", 0..1)).unwrap(), "1");
    assert!(child.display_name("a/x").ends_with("train/a/x"));
    assert!(child.reads_inline());
}

#[test]
fn the_buffer_keeps_its_memory_from_file_to_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = fs::File::create(dir.path().join("a")).unwrap();
    file.write_all(&[1; 10_000]).unwrap();
    let extent = Extent::whole(&open(dir.path()), "a", 10_000);
    let mut buffer = BytesMut::new();
    extent.open_inline().unwrap().read_into(&mut buffer).unwrap();
    let start = buffer.as_ptr();
    for _ in 0..3 {
        extent.open_inline().unwrap().read_into(&mut buffer).unwrap();
        assert_eq!(buffer.as_ptr(), start);
    }
}

#[test]
fn tags_that_azure_lists_are_those_that_it_answers() {
    let listed = |store: &str, tag: &str| {
        let source = Source::from_store(Arc::new(InMemory::new()), Path::default(), "x://y").sharing_requests(store);
        let meta = object_store::ObjectMeta {
            location: Path::from("a"),
            last_modified: Default::default(),
            size: 1,
            e_tag: Some(tag.into()),
            version: None,
        };
        source.shown(meta).unwrap().etag.unwrap()
    };
    assert_eq!(listed("az photos", "0x8DA"), "\"0x8DA\"");
    assert_eq!(listed("az photos", "\"0x8DA\""), "\"0x8DA\"");
    assert_eq!(listed("gs photos", "0"), "0");
}

#[test]
fn a_kept_listing_of_a_folder_is_believed_until_a_read_finds_another_size() {
    let dir = tempfile::tempdir().unwrap();
    let (images, kept) = (dir.path().join("images"), dir.path().join("kept"));
    for class in 0..20 {
        (0..10).for_each(|i| write(&images, &format!("{class}/{i}.jpg"), &b"0123456789"[..i % 7]));
    }
    let listed = |kept: Option<&std::path::Path>| {
        let source = open(&images);
        let objects = block_on(source.objects(kept, kept.map(|_| (|_: &str| true) as fn(&str) -> bool))).unwrap();
        (objects, source)
    };
    let (with, without) = (|| listed(Some(&kept)), || listed(None).0);
    let files = || fs::read_dir(&kept).map_or(0, Iterator::count);
    let read = |(objects, source): &(Vec<Object>, Source), name: &str| {
        inline(&objects.iter().find(|object| object.name == name).unwrap().extent(source)).map(|bytes| bytes.len())
    };
    assert_eq!((with().0, files()), (without(), 1));
    let file = fs::read_dir(&kept).unwrap().next().unwrap().unwrap().path();
    let written = fs::metadata(&file).unwrap().modified().unwrap();
    assert_eq!(with().0, without());
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), written, "taken, not made anew");
    for (size, says) in [(9, "the object has 9 bytes, 5 when it was listed"), (2, "the object ends after 2 of 5 bytes")]
    {
        write(&images, "7/5.jpg", &b"0123456789"[..size]);
        let stale = with();
        assert_ne!(stale.0, without(), "what is documented");
        assert_eq!((read(&stale, "7/6.jpg").unwrap(), files()), (6, 1));
        let text = format!("{:#}", read(&stale, "7/5.jpg").unwrap_err());
        assert!(
            text.contains(says) && text.contains("/images/7/5.jpg") && text.contains("open the dataset again"),
            "{text}"
        );
        assert_eq!(files(), 0, "forgotten");
        let again = with();
        assert_eq!((&again.0, read(&again, "7/5.jpg").unwrap(), files()), (&without(), size, 1));
        write(&images, "7/5.jpg", b"01234");
        fs::remove_file(&file).unwrap();
        with();
    }
}
