//! HDF5: what h5py wrote comes out as h5py reads it, for each layout, index, filter and version of the format; chunks are read
//! once, rows of what lies in one piece by range; what is damaged, told wrongly or not read is an error that says where.

use std::{fs, sync::Arc};

use infeed::{
    Batch, ErrorKind, LastBatch, Loader, LoaderBuilder, Order, Shard,
    dataset::{Dataset, FieldKind, Open, SampleRng, open, open_source},
};

use crate::support::{
    arrays::{numpy, opened, sound, unpacked, values},
    builder, drain, plain,
    s3::S3Server,
    store::Tracker,
};

/// A dataset as the reference reads it.
struct Expected {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// A file of `integration/golden/hdf5.py`.
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) file: Vec<u8>,
    columns: Option<Vec<String>>,
    pub(crate) refused: Option<String>,
    fields: Vec<Expected>,
}

pub(crate) fn golden() -> Vec<Golden> {
    let json: serde_json::Value = serde_json::from_str(include_str!("golden/hdf5.json")).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let field = |field: &serde_json::Value| Expected {
        name: text(&field["name"]),
        dtype: text(&field["dtype"]),
        shape: serde_json::from_value(field["shape"].clone()).unwrap(),
        bytes: unpacked(&field["values"]),
    };
    let case = |case: &serde_json::Value| Golden {
        name: text(&case["name"]),
        file: unpacked(&case["file"]),
        columns: serde_json::from_value(case["columns"].clone()).unwrap(),
        refused: serde_json::from_value(case["refused"].clone()).unwrap(),
        fields: case["fields"].as_array().unwrap().iter().map(field).collect(),
    };
    json["cases"].as_array().unwrap().iter().map(case).collect()
}

fn named(name: &str) -> Golden {
    golden().into_iter().find(|golden| golden.name == name).expect("a case of this name")
}

impl Golden {
    fn store(&self) -> Arc<Tracker> {
        Tracker::holding([("x.h5", self.file.clone())])
    }

    fn told(&self, open: Open) -> Open {
        match &self.columns {
            Some(columns) => open.columns(columns.clone()),
            None => open,
        }
    }
}

fn holding(bytes: Vec<u8>) -> Open {
    open_source(Tracker::holding([("x.h5", bytes)]).inline_source())
}

#[test]
fn rows_are_what_the_reference_reads_of_them() {
    for golden in golden().into_iter().filter(|golden| golden.refused.is_none()) {
        let dataset = sound(golden.told(open_source(golden.store().inline_source())));
        let name = &golden.name;
        let fields = &dataset.schema().fields;
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, golden.fields.iter().map(|field| &field.name).collect::<Vec<_>>(), "{name}");
        assert_eq!(dataset.format(), "hdf5");
        for (field, want) in fields.iter().zip(&golden.fields) {
            let FieldKind::Array { dtype, shape } = &field.kind else { panic!("{name}: {field:?}") };
            assert_eq!((numpy(*dtype), &shape[..]), (&want.dtype[..], &want.shape[1..]), "{name}, {}", field.name);
            assert_eq!(dataset.len(), want.shape[0] as u64, "{name}");
        }
        // Of the long ones, those around what is there, and every 97th.
        let near = |record: u64| [0, 5_000, 70_000, 131_073, 150_000].iter().any(|at| record.abs_diff(*at) < 30);
        let long = dataset.len() > 1000;
        for record in
            (0..dataset.len()).filter(|record| !long || record % 97 == 0 || near(*record) || record % 200 > 198)
        {
            let rows = values(&*dataset, record).unwrap_or_else(|e| panic!("{name}, record {record}: {e:#}"));
            for (want, row) in golden.fields.iter().zip(&rows) {
                let bytes = &want.bytes[record as usize * row.len()..][..row.len()];
                assert!(row == bytes, "{name}, row {record} of {}: {row:?} is not {bytes:?}", want.name);
            }
        }
    }
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    for golden in golden() {
        let Some(refused) = &golden.refused else { continue };
        let error = opened(golden.told(open_source(golden.store().inline_source()))).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(refused) && text.contains("columns"), "{}: {text}", golden.name);
        assert!(text.contains("x.h5"), "{text}");
        assert!([ErrorKind::Config, ErrorKind::Unsupported].contains(&error.kind()), "{text}");
    }
    // Beside numbers, what holds none is left out.
    let fields = |name: &str| {
        let dataset = sound(holding(named(name).file));
        dataset.schema().fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(fields("tables_newest"), ["x"]);
    assert_eq!(fields("groups_oldest"), ["train/grüße", "train/label", "train/pixels/image"]);
    let error = opened(holding(named("groups_newest").file).columns(["train/labels"])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("there are scale, train/grüße, train/label"), "{error}");
    let rooted = opened(holding(named("groups_newest").file).columns(["/train/label"])).unwrap();
    assert_eq!(rooted.schema().fields[0].name, "train/label");
}

fn loader(dataset: &Arc<dyn Dataset>, settings: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Loader {
    let order = Order::Blocks { seed: 5, window: 8, lanes: None };
    let base = builder(Arc::clone(dataset)).batch_size(3).order(order).last_batch(LastBatch::Partial);
    settings(base).build_blocking().unwrap()
}

/// The records of these batches, whose `field` is compared with what the reference reads.
fn compared(batches: &[Batch], field: &str, want: &Expected) -> Vec<u64> {
    let row = want.bytes.len() / want.shape[0];
    let mut seen = Vec::new();
    for batch in batches {
        let found = bytemuck::cast_slice::<f32, u8>(batch[field].as_slice::<f32>().unwrap()).chunks_exact(row);
        for (row, record) in found.zip(batch.records()) {
            let at = *record as usize % want.shape[0];
            assert!(row == &want.bytes[at * row.len()..][..row.len()], "record {record}");
            seen.push(*record);
        }
    }
    seen
}

#[test]
fn each_chunk_is_read_once_in_blocks_and_ranks_share_them_out() {
    for name in ["indexes_oldest", "indexes_newest"] {
        let golden = named(name);
        let want = golden.fields.iter().find(|field| field.name == "tree_packed").unwrap();
        let tracker = golden.store();
        let dataset = opened(open_source(tracker.source()).columns(["tree_packed"])).unwrap();
        let opening = tracker.requests();
        assert!(opening <= 6, "{name}: pages of metadata in {opening} requests");
        assert_eq!(&dataset.groups().unwrap()[..], [0, 4, 8, 12, 16, 20]);
        tracker.reset();
        let mut seen = compared(&drain(loader(&dataset, |b| b).epoch(0)).unwrap(), "tree_packed", want);
        seen.sort_unstable();
        assert_eq!(seen, (0..23).collect::<Vec<_>>());
        let requests = tracker.log_of_requests();
        // Those that lie side by side are read together.
        assert!(requests.len() <= 6 * 3, "{requests:?}");
        let mut ranges: Vec<_> = requests.iter().filter_map(|request| request.range.clone()).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
        let mut both = Vec::new();
        for rank in 0..2 {
            let shard = Shard::new(rank, 2).unwrap();
            let all = drain(loader(&dataset, |b| b.shard(shard)).epoch(1)).unwrap();
            both.extend(compared(&all, "tree_packed", want));
        }
        both.sort_unstable();
        assert!((0..23).all(|record| both.contains(&record)), "{both:?}");
    }
}

#[test]
fn rows_of_what_lies_in_one_piece_are_read_by_range() {
    let golden = named("large");
    let tracker = golden.store();
    let dataset = opened(open_source(tracker.source()).columns(["image"])).unwrap();
    assert!(tracker.bytes() < 100_000, "metadata alone: {}", tracker.bytes());
    let (image, row) = (&golden.fields[0], 32 * 32 * 3);
    for order in [Order::Sequential, Order::Random { seed: 3 }] {
        tracker.reset();
        let all = drain(loader(&dataset, |b| b.order(order.clone())).epoch(0)).unwrap();
        assert_eq!(all.iter().map(Batch::len).sum::<usize>(), 400);
        if matches!(order, Order::Sequential) {
            assert_eq!(tracker.bytes(), 400 * row as u64, "no byte twice, and none between");
        }
        for batch in &all {
            let pixels = batch["image"].as_slice::<u8>().unwrap().chunks_exact(row);
            for (pixels, record) in pixels.zip(batch.records()) {
                assert!(pixels == &image.bytes[*record as usize * row..][..row], "image {record}");
            }
        }
    }
}

#[test]
fn files_of_one_layout_follow_one_another_from_folders_and_buckets_and_resume() {
    let golden = named("indexes_newest");
    let columns = ["extensible_packed", "fixed"];
    let dir = tempfile::tempdir().unwrap();
    for name in ["train_000.h5", "train_001.h5", "test_000.h5"] {
        fs::write(dir.path().join(name), &golden.file).unwrap();
    }
    fs::write(dir.path().join("README.md"), "words").unwrap();
    let url = dir.path().display().to_string();
    let error = opened(open(url.clone())).unwrap_err().to_string();
    assert!(error.contains("several splits: test, train"), "{error}");
    let local = sound(open(url).split("train").columns(columns));
    assert_eq!((local.len(), local.format()), (46, "hdf5"));
    assert!(local.object(45).ends_with("train_001.h5"), "{}", local.object(45));

    let server = S3Server::start();
    server.put_folder(dir.path(), "set");
    let remote = opened(open_source(server.source("set")).split("train").columns(columns)).unwrap();
    assert_eq!(remote.fingerprint(), local.fingerprint());
    let want = golden.fields.iter().find(|field| field.name == "extensible_packed").unwrap();
    let all = drain(loader(&remote, |b| b).epoch(0)).unwrap();
    let mut seen = compared(&all, "extensible_packed", want);
    seen.sort_unstable();
    assert_eq!(seen, (0..46).collect::<Vec<_>>());
    let all: Vec<_> = all.iter().map(|batch| (plain(batch), batch.state().clone())).collect();
    let again: Vec<_> = drain(loader(&local, |b| b.workers(3)).epoch(0)).unwrap().iter().map(plain).collect();
    assert!(all.iter().map(|(batch, _)| batch).eq(&again));
    let rest = drain(loader(&remote, |b| b).resume_epoch(&all[5].1).unwrap()).unwrap();
    assert!(rest.iter().map(plain).eq(again[6..].iter().cloned()));

    fs::write(dir.path().join("train_002.h5"), named("filters_newest").file).unwrap();
    let error = opened(open(dir.path().display().to_string()).split("train")).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(text.contains("train_002.h5") && text.contains("it does not fit `train_000.h5`: its fields are"), "{text}");
}

#[test]
fn each_file_is_a_record_if_the_format_is_named() {
    let golden = named("compact_oldest");
    let label = golden.fields.iter().find(|field| field.name == "label").unwrap();
    let at = golden.file.windows(label.bytes.len()).position(|bytes| bytes == label.bytes).unwrap();
    let file = |n: u8| {
        let mut file = golden.file.clone();
        file[at] = n;
        file
    };
    let dir = tempfile::tempdir().unwrap();
    for n in 0..3 {
        fs::write(dir.path().join(format!("case_{n}.h5")), file(n)).unwrap();
    }
    let at_folder = || open(dir.path().display().to_string());
    assert_eq!(sound(at_folder()).len(), 21);
    let dataset = sound(at_folder().format("hdf5-files"));
    assert_eq!((dataset.len(), dataset.format()), (3, "hdf5-files"));
    for record in 0..3 {
        let values = values(&*dataset, record).unwrap();
        for (field, value) in dataset.schema().fields.iter().zip(values) {
            let want = golden.fields.iter().find(|want| want.name == field.name).unwrap();
            assert!(matches!(&field.kind, FieldKind::Array { shape, .. } if *shape == want.shape), "{field:?}");
            let mut bytes = want.bytes.clone();
            if field.name == "label" {
                bytes[0] = record as u8;
            }
            assert_eq!(value, bytes, "{}", field.name);
        }
        assert!(dataset.object(record).ends_with(&format!("case_{record}.h5")), "{}", dataset.object(record));
    }
    let labels = sound(at_folder().format("hdf5-files").columns(["label"]));
    assert_eq!((labels.len(), labels.schema().fields.len()), (3, 1));

    // A single number of each file is a field.
    let one = sound(holding(named("each_group").file).format("hdf5-files").columns(["0/label"]));
    assert!(matches!(&one.schema().fields[0].kind, FieldKind::Array { shape, .. } if shape.is_empty()));

    fs::write(dir.path().join("case_3.h5"), named("types_oldest").file).unwrap();
    let text = opened(at_folder().format("hdf5-files")).unwrap_err().to_string();
    assert!(text.contains("no dataset `compact`") && text.contains("case_3.h5"), "{text}");
    let text = opened(at_folder()).unwrap_err().to_string();
    assert!(text.contains("if each file is a record, set format(\"hdf5-files\")"), "{text}");
}

#[test]
fn what_is_damaged_says_where() {
    let opening = |bytes: Vec<u8>| opened(holding(bytes)).unwrap_err();
    let error = opening(b"nothing of the kind, but long enough".to_vec());
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("no signature of HDF5"), "{error}");

    // Cut: the last chunks are not in it.
    let whole = named("filters_newest").file;
    let error = opening(whole[..whole.len() - 500].to_vec());
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("it is cut") && error.to_string().contains("x.h5"), "{error}");

    // Newer metadata have checksums: nothing is read otherwise than it was written.
    let whole = named("indexes_newest").file;
    for signature in [&b"OHDR"[..], b"FADB", b"EAHD", b"EAIB", b"EADB", b"BTHD", b"BTLF"] {
        let at = whole.windows(4).position(|bytes| bytes == signature).expect("it is in the file");
        let mut damaged = whole.clone();
        damaged[at + 15] ^= 4;
        let error = opening(damaged);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }

    // A sum of a chunk.
    let golden = named("filters_oldest");
    let dataset = opened(holding(golden.file.clone()).columns(["sum"])).unwrap();
    let plan = dataset.plan(8, SampleRng::new(0, 0, 8)).unwrap();
    let range = plan.shared[0].extents[0].range.clone();
    let mut damaged = golden.file.clone();
    damaged[range.start as usize + 9] ^= 1;
    let dataset = opened(holding(damaged).columns(["sum"])).unwrap();
    let error = values(&*dataset, 8).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("fletcher32 is wrong") && text.contains("x.h5, chunk [1, 0] of array sum"), "{text}");
    assert_eq!(error.context().range, Some(range));
    assert!(values(&*dataset, 0).is_ok());
}

#[test]
fn files_of_other_names_are_read_when_the_format_is_named() {
    let file = named("compact_newest").file;
    let source = Tracker::holding([("scan.mat", file)]).inline_source();
    assert!(opened(open_source(source.clone())).is_err());
    assert_eq!(sound(open_source(source).format("hdf5")).len(), 7);
}
