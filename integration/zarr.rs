//! Zarr: what zarr-python wrote comes out as zarr-python reads it, for both versions, each codec and layout; chunks are read once,
//! in any order that keeps them together; what is damaged, told wrongly or not read is an error that says where.

use std::{collections::BTreeMap, fs, sync::Arc};

use infeed::{
    Batch, ErrorKind, LastBatch, Loader, LoaderBuilder, Order, Result, Shard,
    dataset::{Dataset, FieldKind, SampleRng, Value, open, open_source},
};
use serde_json::json;

use crate::support::{
    arrays::{numpy, opened, sound, unpacked, values},
    builder, drain,
    store::Tracker,
};

/// An array as the reference reads it: type, shape, bytes.
type Expected = (String, Vec<usize>, Vec<u8>);

/// A store of `integration/golden/zarr_arrays.py`.
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) objects: Vec<(String, Vec<u8>)>,
    arrays: BTreeMap<String, Expected>,
}

pub(crate) fn golden() -> Vec<Golden> {
    let json: serde_json::Value = serde_json::from_str(include_str!("golden/zarr.json")).unwrap();
    let cases = json["cases"].as_array().unwrap().iter().map(|case| {
        let objects = case["objects"].as_object().unwrap();
        let array = |(name, array): (&String, &serde_json::Value)| {
            let shape = serde_json::from_value(array["shape"].clone()).unwrap();
            let dtype = array["dtype"].as_str().unwrap().to_owned();
            (name.clone(), (dtype, shape, unpacked(&array["values"])))
        };
        Golden {
            name: case["name"].as_str().unwrap().to_owned(),
            objects: objects.iter().map(|(name, value)| (name.clone(), unpacked(value))).collect(),
            arrays: case["arrays"].as_object().unwrap().iter().map(array).collect(),
        }
    });
    cases.collect()
}

fn named(name: &str) -> Golden {
    golden().into_iter().find(|golden| golden.name == name).expect("a case of this name")
}

impl Golden {
    fn store(&self) -> Arc<Tracker> {
        Tracker::holding(self.objects.iter().map(|(name, bytes)| (name, bytes.clone())))
    }

    /// The same with another object.
    fn with(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.objects.retain(|(other, _)| other != name);
        self.objects.push((name.to_owned(), bytes.into()));
        self
    }

    fn metadata(&self, name: &str) -> serde_json::Value {
        let (_, bytes) = self.objects.iter().find(|(other, _)| other == name).unwrap();
        serde_json::from_slice(bytes).unwrap()
    }

    fn opened(&self) -> Result<Arc<dyn Dataset>> {
        opened(open_source(self.store().inline_source()))
    }
}

#[test]
fn arrays_are_what_the_reference_reads_of_them() {
    for golden in golden() {
        let dataset = sound(open_source(golden.store().inline_source()));
        let name = &golden.name;
        let fields = &dataset.schema().fields;
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, golden.arrays.keys().collect::<Vec<_>>(), "{name}");
        assert_eq!(dataset.format(), "zarr");
        for record in 0..dataset.len() {
            let rows = values(&*dataset, record).unwrap_or_else(|e| panic!("{name}, record {record}: {e:#}"));
            for ((field, row), (dtype, shape, bytes)) in fields.iter().zip(&rows).zip(golden.arrays.values()) {
                let FieldKind::Array { dtype: found, shape: of } = &field.kind else { panic!("{name}: {field:?}") };
                assert_eq!((numpy(*found), &of[..]), (&dtype[..], &shape[1..]), "{name}");
                assert_eq!(dataset.len(), shape[0] as u64, "{name}");
                let want = &bytes[record as usize * row.len()..][..row.len()];
                assert!(row == want, "{name}, row {record} of {}: {row:?} is not {want:?}", field.name);
            }
        }
    }
}

fn loader(dataset: &Arc<dyn Dataset>, settings: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Loader {
    let order = Order::Blocks { seed: 5, window: 8, lanes: None };
    let base = builder(Arc::clone(dataset)).batch_size(3).order(order).last_batch(LastBatch::Partial);
    settings(base).build_blocking().unwrap()
}

/// Each record's label, which is its number times three, modulo 7, and the sum of its image.
fn told(batches: &[Batch], golden: &Golden) -> Vec<u64> {
    let image = &golden.arrays["image"].2;
    let row = image.len() / 20;
    let mut seen = Vec::new();
    for batch in batches {
        let (labels, images) = (batch["label"].as_slice::<i64>().unwrap(), batch["image"].as_slice::<u8>().unwrap());
        for (at, record) in batch.records().iter().enumerate() {
            assert_eq!(labels[at], *record as i64 * 3 % 7);
            assert!(images[at * row..][..row] == image[*record as usize * row..][..row], "image {record}");
            seen.push(*record);
        }
    }
    seen
}

#[test]
fn each_chunk_is_read_once_in_order_and_in_blocks_and_ranks_share_them_out() {
    for (name, chunks) in [("v2 group", 5 + 2 + 20), ("v3 group", 5 + 2 + 20)] {
        let golden = named(name);
        let tracker = golden.store();
        let dataset = opened(open_source(tracker.source())).unwrap();
        // Those of `image`, whose rows are the longest of what shares chunks.
        assert_eq!(&dataset.groups().unwrap()[..], [0, 4, 8, 12, 16]);
        for order in [Order::Sequential, Order::Blocks { seed: 3, window: 8, lanes: None }] {
            tracker.reset();
            let all = drain(loader(&dataset, |b| b.order(order)).epoch(0)).unwrap();
            let mut seen = told(&all, &golden);
            seen.sort_unstable();
            assert_eq!(seen, (0..20).collect::<Vec<_>>());
            let mut read = tracker.names();
            assert_eq!(read.len(), chunks, "{name}: {read:?}");
            read.sort();
            read.dedup();
            assert_eq!(read.len(), chunks, "{name}: each once");
        }
        let mut both = Vec::new();
        for rank in 0..2 {
            let shard = Shard::new(rank, 2).unwrap();
            let all = drain(loader(&dataset, |b| b.shard(shard)).epoch(1)).unwrap();
            both.extend(told(&all, &golden));
        }
        both.sort_unstable();
        assert_eq!(both, (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn epochs_repeat_and_resume_with_any_workers_and_the_least_memory() {
    let golden = named("v3 group");
    let dataset = sound(open_source(golden.store().inline_source()).columns(["image", "label"]));
    let first = loader(&dataset, |b| b.workers(1));
    let want: Vec<_> = drain(first.epochs(0..2)).unwrap().iter().map(crate::support::plain).collect();
    let least = builder(Arc::clone(&dataset)).batch_size(3).workers(3).memory_budget(1).build_blocking().unwrap_err();
    let words = least.to_string();
    assert!(words.contains("chunk"), "{words}");
    let mut words = words.split("the least that works is ").nth(1).unwrap().split(' ');
    let (number, unit) = (words.next().unwrap().parse::<u64>().unwrap(), words.next().unwrap());
    let budget = number << if unit.starts_with("MiB") { 20 } else { 10 };
    for workers in [1, 3] {
        let again = loader(&dataset, |b| b.workers(workers).memory_budget(budget));
        let again: Vec<_> = drain(again.epochs(0..2)).unwrap().iter().map(crate::support::plain).collect();
        assert!(again == want, "{workers} workers");
    }
    let all = drain(first.epoch(0)).unwrap();
    let rest: Vec<_> =
        drain(first.resume_epoch(all[2].state()).unwrap()).unwrap().iter().map(crate::support::plain).collect();
    assert!(rest == want[3..all.len()], "after a state: {} batches", rest.len());
}

#[test]
fn of_shards_the_index_is_read_once_and_then_only_chunks() {
    for location in ["start", "end"] {
        let golden = named(&format!("v3 shards of zstd, index at the {location}"));
        let tracker = golden.store();
        let dataset = opened(open_source(tracker.source())).unwrap();
        // 7 x 10 x 9 in chunks of 2 x 5 x 3, shards of twice that: 2 x 1 x 2 shards.
        let requests = tracker.log_of_requests();
        let (metadata, indexes): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.name == "zarr.json");
        assert_eq!((metadata.len(), indexes.len()), (1, 4), "{requests:?}");
        assert!(
            indexes.iter().all(|index| index.range.as_ref().is_some_and(|range| range.end - range.start == 8 * 16 + 4))
        );
        tracker.reset();
        let all = drain(loader(&dataset, |b| b).epoch(0)).unwrap();
        assert_eq!(all.iter().map(Batch::len).sum::<usize>(), 7);
        let requests = tracker.log_of_requests();
        // 4 x 2 x 3 chunks; those that lie near one another are read together.
        assert!((4..=24).contains(&requests.len()), "{requests:?}");
        assert!(requests.iter().all(|request| request.range.is_some()));
    }
}

/// An array of version 2 without a compressor.
fn plain(shape: [u64; 2], chunk: [u64; 2], dtype: &str) -> serde_json::Value {
    json!({"zarr_format": 2, "shape": shape, "chunks": chunk, "dtype": dtype, "compressor": null, "fill_value": 0,
        "order": "C", "filters": null})
}

#[test]
fn of_large_chunks_without_a_compressor_rows_are_read_by_range() {
    let width = 300_000u64;
    let chunk: Vec<u8> = (0..8 * width).map(|i| (i / width * 31 + i % 251) as u8).collect();
    let meta = plain([7, width], [8, width], "|u1").to_string();
    let tracker = Tracker::holding([(".zarray", meta.into_bytes()), ("0.0", chunk.clone())]);
    let dataset = opened(open_source(tracker.source())).unwrap();
    tracker.reset();
    let plan = dataset.plan(5, SampleRng::new(0, 0, 5)).unwrap();
    assert!(plan.shared.is_empty() && dataset.groups().is_none() && dataset.shared_bytes().all == 0);
    assert_eq!(plan.extents[0].range, 5 * width..6 * width);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bytes = [runtime.block_on(plan.extents[0].read()).unwrap()];
    let sample = dataset.parse(5, &plan, &bytes).unwrap();
    assert!(matches!(&sample.values[0], Value::Array(row) if row[..] == chunk[5 * width as usize..][..width as usize]));
    // One that is cut is told of when its end is needed.
    let meta = plain([8, width], [8, width], "|u1").to_string();
    let cut = Tracker::holding([(".zarray", meta.into_bytes()), ("0.0", chunk[..chunk.len() - 1].to_vec())]);
    let dataset = opened(open_source(cut.inline_source())).unwrap();
    values(&*dataset, 6).unwrap();
    let error = values(&*dataset, 7).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("chunk [0, 0] of array array"), "{error}");
}

fn fails(golden: &Golden, kind: ErrorKind, says: &[&str]) {
    let error = match golden.opened() {
        Err(error) => error,
        Ok(dataset) => {
            (0..dataset.len()).find_map(|record| values(&*dataset, record).err()).expect("something is wrong")
        }
    };
    let text = format!("{error:#}");
    assert!(error.kind() == kind && says.iter().all(|words| text.contains(words)), "{text}\nlacks {says:?}");
}

#[test]
fn what_is_wrong_is_told_with_object_array_and_chunk() {
    let zstd = || named("v2 compressor zstd");
    let chunk = zstd().objects.into_iter().find(|(name, _)| name == "1.0.0").unwrap().1;
    let cut = &chunk[..chunk.len() / 2];
    fails(&zstd().with("1.0.0", cut), ErrorKind::Corrupt, &["1.0.0, chunk [1, 0, 0] of array array", "damaged zstd"]);
    fails(&zstd().with(".zarray", "{"), ErrorKind::Corrupt, &[".zarray", "not JSON"]);
    let with = |key: &str, value: serde_json::Value| {
        let mut meta = zstd().metadata(".zarray");
        meta[key] = value;
        zstd().with(".zarray", meta.to_string())
    };
    fails(&with("dtype", json!("<c8")), ErrorKind::Unsupported, &[".zarray", "`<c8`", "columns"]);
    fails(&with("shape", json!([7, 5, 1u64 << 61])), ErrorKind::Corrupt, &["fits into memory"]);
    fails(&with("shape", json!([7, 0, 6])), ErrorKind::Config, &["records of `array` have no values"]);
    // Chunks of twice the length.
    fails(&with("dtype", json!("<f8")), ErrorKind::Corrupt, &["only 360 bytes unpacked, but 720 are expected"]);
    let blosc = named("v2 blosc lz4, shuffle 1, 2 bytes, blocks of 0");
    let mut meta = blosc.metadata(".zarray");
    meta["dtype"] = json!("<i4");
    fails(&blosc.with(".zarray", meta.to_string()), ErrorKind::Corrupt, &["Blosc of 1680 bytes, but 3360 are"]);
    let summed = named("v3 crc32c");
    let mut chunk = summed.objects.iter().find(|(name, _)| name == "c/0/0/0").unwrap().1.clone();
    chunk[3] ^= 1;
    fails(&summed.with("c/0/0/0", chunk), ErrorKind::Corrupt, &["c/0/0/0", "its crc32c is wrong"]);
    let shards = named("v3 shards of zstd, index at the end");
    let mut shard = shards.objects.iter().find(|(name, _)| name == "c/0/0/0").unwrap().1.clone();
    let at = shard.len() - 10;
    shard[at] ^= 1;
    fails(&shards.with("c/0/0/0", shard), ErrorKind::Corrupt, &["c/0/0/0", "the shard's index is wrong"]);
}

#[test]
fn arrays_of_a_group_are_chosen_by_their_names() {
    let golden = named("v3 group");
    let open = || open_source(golden.store().inline_source());
    let dataset = sound(open().columns(["label", "extra/weight"]));
    let names: Vec<_> = dataset.schema().fields.iter().map(|field| &field.name[..]).collect();
    assert_eq!(names, ["label", "extra/weight"]);
    assert_ne!(dataset.fingerprint(), sound(open()).fingerprint());
    let error = opened(open().columns(["mask"])).unwrap_err().to_string();
    assert!(error.contains("no array `mask`") && error.contains("extra/weight, image, label"), "{error}");
    // A coordinate beside the records.
    let meta = json!({"zarr_format": 3, "node_type": "array", "shape": [8], "data_type": "float64", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]});
    let more = named("v3 group").with("height/zarr.json", meta.to_string());
    fails(&more, ErrorKind::Config, &["`extra/weight` has 20 records, `height` 8", "columns"]);
    sound(open_source(more.store().inline_source()).columns(["image"]));
}

#[test]
fn folders_are_opened_at_the_array_the_group_or_above_them() {
    for name in ["v2 group", "v3 group"] {
        let golden = named(name);
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in &golden.objects {
            let path = dir.path().join("x.zarr").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let fields = |folder: &str| {
            let dataset = sound(open(dir.path().join(folder).display().to_string()));
            assert_eq!(dataset.format(), "zarr");
            dataset.schema().fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>()
        };
        for folder in ["", "x.zarr"] {
            assert_eq!(fields(folder), ["extra/weight", "image", "label"], "{name}");
        }
        assert_eq!(fields("x.zarr/extra"), ["weight"], "{name}");
        assert_eq!(fields("x.zarr/image"), ["array"], "{name}");
        fs::remove_dir_all(dir.path().join("x.zarr/extra")).unwrap();
        fs::remove_dir_all(dir.path().join("x.zarr/label")).unwrap();
        for root in [".zgroup", "zarr.json"] {
            let _ = fs::remove_file(dir.path().join("x.zarr").join(root));
        }
        assert_eq!(fields(""), ["image"], "{name}");
    }
}
