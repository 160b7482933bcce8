//! Filters: the records that pass, in the dataset's order, and no more of the others read than it takes to know.

use std::{fs, future::IntoFuture, sync::Arc};

use futures::executor::block_on;
use infeed::{
    ErrorKind, Result, Transform,
    dataset::{Dataset, Open, dataset_contract, labels, open, open_source, open_together, write_index},
    source::Source,
};

use object_store::ObjectStoreExt;

use crate::support::{builder, drain, files_below, store::Tracker};

fn opened(open: Open) -> Result<Arc<dyn Dataset>> {
    block_on(open.into_future())
}

fn refused(open: Open) -> (ErrorKind, String) {
    let error = opened(open).expect_err("nothing to open");
    (error.kind(), format!("{error:#}"))
}

fn png(side: u32) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(side, 4).write_to(&mut file, image::ImageFormat::Png).unwrap();
    file.into_inner()
}

/// Two pictures of each animal, and a third cat.
const ANIMALS: [&str; 7] = ["cat/0.png", "cat/1.png", "cat/2.png", "dog/0.png", "dog/1.png", "eel/0.png", "eel/1.png"];

fn folder() -> (Arc<Tracker>, Source) {
    let tracker = Tracker::holding(ANIMALS.map(|name| (name, png(4))));
    let source = tracker.inline_source();
    (tracker, source)
}

fn objects(dataset: &dyn Dataset) -> Vec<String> {
    let last_two =
        |name: String| name.rsplit('/').take(2).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("/");
    (0..dataset.len()).map(|record| last_two(dataset.object(record))).collect()
}

#[test]
fn labels_and_names_of_files_are_known_without_reading_them() {
    for (filters, want) in [
        (&["label=dog,eel"][..], &ANIMALS[3..]),
        (&["label!=dog,eel"], &ANIMALS[..3]),
        (&["object~=/1\\.png$", "label!=dog"], &["cat/1.png", "eel/1.png"]),
    ] {
        let (tracker, source) = folder();
        let filters = filters.iter().map(|filter| filter.parse().unwrap());
        let dataset = opened(filters.fold(open_source(source), Open::filter)).unwrap();
        assert_eq!(objects(&*dataset), want);
        assert_eq!(tracker.requests(), 0, "{:?}", tracker.names());
        block_on(dataset_contract(&*dataset)).unwrap();
    }
    let (_, source) = folder();
    let (kind, text) = refused(open_source(source.clone()).filter("label=cow".parse().unwrap()));
    assert!(kind == ErrorKind::Config && text.contains("names `cow`, which is not a class"), "{text}");
    let (kind, text) = refused(open_source(source).filter("object=x".parse().unwrap()));
    assert!(kind == ErrorKind::Empty && text.contains("no record passes `object=x`"), "{text}");
}

fn pack(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    tar.into_inner().unwrap()
}

/// 100 pictures of 60 KB in two shards, each with a class, a caption and JSON.
fn shards() -> Arc<Tracker> {
    let shard = |first: usize| {
        let files = (first..first + 50).flat_map(|i| {
            let caption = if i % 7 == 0 { "a sunset" } else { "a street" };
            let json = format!(r#"{{"width":{},"license":{{"id":"by-{}"}}}}"#, i * 10, i % 2);
            // Noise, which no codec looks at here.
            let picture = [&png(2)[..], &[7; 60_000]].concat();
            [
                (format!("{i:03}.png"), picture),
                (format!("{i:03}.cls"), (i % 5).to_string().into_bytes()),
                (format!("{i:03}.txt"), caption.as_bytes().to_vec()),
                (format!("{i:03}.json"), json.into_bytes()),
            ]
        });
        pack(&files.collect::<Vec<_>>())
    };
    // With the places of their members.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a-0.tar"), shard(0)).unwrap();
    fs::write(dir.path().join("a-1.tar"), shard(50)).unwrap();
    block_on(write_index(&Source::parse(dir.path().to_str().unwrap()).unwrap())).unwrap();
    let file =
        |path: std::path::PathBuf| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap());
    Tracker::holding(files_below(dir.path()).into_iter().map(file))
}

#[test]
fn of_shards_what_is_asked_for_is_read_alone() {
    for (filter, want) in [
        ("label=2", (0..100).filter(|i| i % 5 == 2).collect::<Vec<i64>>()),
        ("txt*=sunset", (0..100).step_by(7).collect()),
        ("json.width>=900", (90..100).collect()),
        ("json.license.id=by-1", (0..100).filter(|i| i % 2 == 1).collect()),
    ] {
        let tracker = shards();
        // Other fields than those that the loader is to have.
        let open = open_source(tracker.inline_source()).columns(["label", "key"]).filter(filter.parse().unwrap());
        let dataset = opened(open).unwrap();
        let bytes = tracker.bytes();
        assert!(bytes < 400_000, "{filter}: {bytes} bytes of 6 MB");
        assert_eq!(block_on(labels(&*dataset)).unwrap(), want.iter().map(|i| i % 5).collect::<Vec<_>>(), "{filter}");
        let names: Vec<_> = dataset.schema().fields.iter().map(|field| field.name.clone()).collect();
        assert_eq!(names, ["label", "key"]);
        // Shards stay together: of each that has a record.
        assert!(dataset.groups().is_some());
    }
    let (_, text) = refused(open_source(shards().inline_source()).filter("txt.x=1".parse().unwrap()));
    assert!(text.contains("no record passes"), "{text}");
    let (_, text) = refused(open_source(shards().inline_source()).filter("caption=1".parse().unwrap()));
    assert!(text.contains("caption") && text.contains("txt"), "{text}");
}

#[test]
fn shards_without_an_index_are_passed_over_once() {
    let tracker = shards();
    block_on(tracker.delete(&"shards.infeed".into())).unwrap();
    let open = open_source(tracker.inline_source()).columns(["label"]).filter("label=2".parse().unwrap());
    assert_eq!(opened(open).unwrap().len(), 20);
    // Labels lie beside the headers.
    assert!(tracker.bytes() < 7_000_000, "{} bytes of 6 MB", tracker.bytes());
}

#[test]
fn captions_beside_images_are_known_without_reading_these() {
    let table = "file_name,caption,score\na.png,a red car,0.5\nb.png,a blue car,2\nc.png,a boat,3\n";
    let images = ["a.png", "b.png", "c.png"].map(|name| (name, png(3)));
    let files = images.into_iter().chain([("metadata.csv", table.as_bytes().to_vec())]);
    let tracker = Tracker::holding(files);
    let open = open_source(tracker.inline_source());
    let dataset = opened(open.filter("caption~=car$".parse().unwrap()).filter("score>1".parse().unwrap())).unwrap();
    assert_eq!((dataset.len(), objects(&*dataset)[0].ends_with("b.png")), (1, true));
    assert!(tracker.names().iter().all(|name| name == "metadata.csv"), "{:?}", tracker.names());
}

#[test]
fn a_list_names_records_and_objects() {
    let dir = tempfile::tempdir().unwrap();
    for name in ANIMALS {
        let path = dir.path().join("data").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, png(4)).unwrap();
    }
    let list = dir.path().join("list.txt");
    let at = || open(dir.path().join("data").to_str().unwrap()).records(list.to_str().unwrap());
    fs::write(&list, "# chosen by hand\n6\ndog/1.png\n\n./cat/0.png\n6\n").unwrap();
    let dataset = opened(at()).unwrap();
    assert_eq!(objects(&*dataset), ["cat/0.png", "dog/1.png", "eel/1.png"]);
    for (text, want) in [
        ("7\n", "line 1 lists record 7, the dataset has 7"),
        ("cat/0.png\ncat/9.png\ncow\n", "2 of 3 names match no object, the first is `cat/9.png` in line 2"),
        ("# none\n", "no record passes the list"),
    ] {
        fs::write(&list, text).unwrap();
        let (_, error) = refused(at());
        assert!(error.contains(want) && error.contains("list.txt"), "{error}");
    }
    let (kind, error) = refused(at().filter("label=cat".parse().unwrap()));
    assert!(kind == ErrorKind::Config && error.contains("a list of records, and filters"), "{error}");
}

#[test]
fn parts_are_filtered_before_they_are_put_together_and_take_the_first_ones_classes() {
    let (_, animals) = folder();
    let dogs = Tracker::holding(["dog/8.png", "dog/9.png"].map(|name| (name, png(4)))).inline_source();
    let together = |filter: &str| {
        let parts = [animals.clone(), dogs.clone()].map(|source| open_source(source).filter(filter.parse().unwrap()));
        block_on(open_together(parts))
    };
    let dataset = together("label!=cat").unwrap_err();
    assert!(dataset.to_string().contains("names `cat`, which is not a class"), "{dataset}");
    let dataset = together("object~=/[18]").unwrap();
    assert_eq!(objects(&*dataset), ["cat/1.png", "dog/1.png", "eel/1.png", "dog/8.png"]);
    assert_eq!(
        (dataset.parts().unwrap().to_vec(), block_on(labels(&*dataset)).unwrap()),
        (vec![0, 3], vec![0, 1, 2, 1])
    );
    let cows = Tracker::holding([("cow/0.png", png(4))]).inline_source();
    let error = block_on(open_together([animals, cows].map(open_source))).unwrap_err();
    assert!(error.to_string().contains("cow"), "{error}");
}

#[test]
fn a_filtered_dataset_streams_and_resumes_and_another_filter_is_another_dataset() {
    let (_, source) = folder();
    let build = |filter: &str| {
        let dataset = opened(open_source(source.clone()).filter(filter.parse().unwrap())).unwrap();
        builder(dataset)
            .transform(Transform::new().resize_exact(3, 3))
            .batch_size(2)
            .shuffle(3)
            .build_blocking()
            .unwrap()
    };
    let loader = build("label!=dog");
    let batches = drain(loader.epoch(0)).unwrap();
    let seen: Vec<i64> = batches.iter().flat_map(|batch| batch["label"].as_slice::<i64>().unwrap().to_vec()).collect();
    assert!(seen.len() == 4 && !seen.contains(&1), "{seen:?}");
    let rest = drain(loader.resume_epoch(batches[0].state()).unwrap()).unwrap();
    assert_eq!(rest[0].records(), batches[1].records());
    // As many records, others.
    let error = build("object~=/[01]\\.png$").resume_epoch(batches[0].state()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State);
}
