//! What the number of records costs: to open a dataset for the first time and again, and to read on in a full shuffle.
//!
//! `cargo bench --bench scale` takes a minute. Records are tiny, and shards are hard links of one of them, so that a million records
//! take few bytes of the temporary folder; their pages are warm. Nothing is decoded. What opening costs in processor time and memory,
//! beside other loaders, tells `benches/peers/scale.py`.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{BatchSize, BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use futures::StreamExt;
use infeed::{BatchStream, Dataset, Loader, open};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Records of a shard, as of a folder of the tree.
const SHARD: usize = 1000;
/// Records that are read for one figure: enough to pass over the epoch's whole length many times.
const READ: u64 = 10_000;
const BATCH: usize = 250;

/// A dataset in a temporary folder.
struct Data {
    folder: TempDir,
    /// What was there before anybody opened it.
    made: HashSet<OsString>,
    /// Where openings keep what does not lie beside the shards.
    kept: TempDir,
}

impl Data {
    /// `make` writes the first shard, and says how the others are called.
    fn of_shards(records: usize, make: impl FnOnce(&Path, usize) -> Vec<String>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let names = make(folder.path(), records / SHARD);
        for name in &names[1..] {
            fs::hard_link(folder.path().join(&names[0]), folder.path().join(name)).expect("a hard link");
        }
        Self::of(folder)
    }

    fn of(folder: TempDir) -> Self {
        let made = entries(folder.path()).collect();
        Self { folder, made, kept: tempfile::tempdir().expect("a temporary folder") }
    }

    fn url(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn open(&self, runtime: &Runtime) -> Arc<dyn Dataset> {
        // Files as they are: what is read, and not what decoding costs.
        let open = open(self.url()).field("image", ["bytes"]).manifests(self.kept.path());
        runtime.block_on(open.into_future()).expect("it was just made")
    }

    /// Forgets what openings kept.
    fn forget(&self) {
        let beside = entries(self.folder.path()).filter(|name| !self.made.contains(name));
        let elsewhere = entries(self.kept.path()).map(|name| self.kept.path().join(name));
        let kept: Vec<PathBuf> = beside.map(|name| self.folder.path().join(name)).chain(elsewhere).collect();
        kept.iter().for_each(|path| fs::remove_file(path).expect("a file that opening wrote"));
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = OsString> {
    fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name())
}

/// The smallest picture that is still one: some 500 bytes.
fn picture() -> Vec<u8> {
    let mut file = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut file, 90);
    encoder.encode(&[90; 16 * 16 * 3], 16, 16, jpeg_encoder::ColorType::Rgb).expect("a JPEG");
    file
}

fn member(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..124].copy_from_slice(b"0000644\x000000000\x000000000\x00");
    header[124..148].copy_from_slice(format!("{:011o}\0{:011o}\0", bytes.len(), 0).as_bytes());
    header[148..157].copy_from_slice(b"        0");
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    [&header[..], bytes, &vec![0; bytes.len().next_multiple_of(512) - bytes.len()]].concat()
}

fn tar(folder: &Path, shards: usize) -> Vec<String> {
    let picture = picture();
    let record = |n: usize| {
        [member(&format!("{n:09}.jpg"), &picture), member(&format!("{n:09}.cls"), (n % 10).to_string().as_bytes())]
            .concat()
    };
    let mut shard: Vec<u8> = (0..SHARD).flat_map(record).collect();
    shard.resize(shard.len() + 1024, 0);
    fs::write(folder.join("000000.tar"), shard).expect("a shard");
    (0..shards).map(|n| format!("{n:06}.tar")).collect()
}

fn mds(folder: &Path, shards: usize) -> Vec<String> {
    let picture = picture();
    // The size of what has no fixed one, then the columns by their names.
    let sample =
        |n: usize| [&(picture.len() as u32).to_le_bytes()[..], &picture, &(n as u64 % 10).to_le_bytes()].concat();
    let config = b"{\"version\": 2}";
    let (mut shard, mut samples) = ((SHARD as u32).to_le_bytes().to_vec(), Vec::new());
    let start = 8 + 4 * SHARD + config.len();
    for n in 0..SHARD {
        shard.extend(((start + samples.len()) as u32).to_le_bytes());
        samples.extend(sample(n));
    }
    shard.extend(((start + samples.len()) as u32).to_le_bytes());
    shard.extend_from_slice(config);
    shard.extend(samples);
    fs::write(folder.join("shard.00000.mds"), &shard).expect("a shard");
    let names: Vec<String> = (0..shards).map(|n| format!("shard.{n:05}.mds")).collect();
    let told = |name: &String| {
        json!({
            "format": "mds", "version": 2, "samples": SHARD, "compression": null, "zip_data": null,
            "column_names": ["image", "label"], "column_encodings": ["jpeg", "int"], "column_sizes": [null, 8],
            "raw_data": {"basename": name, "bytes": shard.len(), "hashes": {}},
        })
    };
    let index = json!({"version": 2, "shards": names.iter().map(told).collect::<Vec<_>>()});
    fs::write(folder.join("index.json"), index.to_string()).expect("an index");
    names
}

fn tfrecord(folder: &Path, shards: usize) -> Vec<String> {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = bytes.len() as u8;
        let length = if bytes.len() < 128 { vec![length] } else { vec![length | 128, (bytes.len() >> 7) as u8] };
        [&[number << 3 | 2], &length[..], bytes].concat()
    }
    let entry =
        |name: &str, kind, list: &[u8]| field(1, &[field(1, name.as_bytes()), field(2, &field(kind, list))].concat());
    let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let picture = picture();
    let record = |n: usize| {
        let fields =
            [entry("image/encoded", 1, &field(1, &picture)), entry("image/class/label", 3, &field(1, &[n as u8 % 10]))];
        let example = field(1, &fields.concat());
        let length = (example.len() as u64).to_le_bytes();
        [&length[..], &masked(&length), &example, &masked(&example)].concat()
    };
    let names: Vec<String> = (0..shards).map(|n| format!("train-{n:05}-of-{shards:05}")).collect();
    fs::write(folder.join(&names[0]), (0..SHARD).flat_map(record).collect::<Vec<u8>>()).expect("a shard");
    names
}

/// Class folders, each of the links of one file: file systems bound how many one may have.
fn files(records: usize) -> Data {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let picture = picture();
    for class in 0..records / SHARD {
        let class = folder.path().join(format!("class{class:03}"));
        fs::create_dir(&class).expect("a folder");
        fs::write(class.join("000.jpg"), &picture).expect("a picture");
        (1..SHARD).for_each(|n| {
            fs::hard_link(class.join("000.jpg"), class.join(format!("{n:03}.jpg"))).expect("a hard link")
        });
    }
    Data::of(folder)
}

/// As a trainer takes them: dropped one by one.
async fn take(batches: &mut BatchStream, n: u64) {
    for _ in 0..n {
        batches.next().await.expect("endless").expect("a batch");
    }
}

fn measure(c: &mut Criterion, runtime: &Runtime, name: &str, records: usize, data: &Data) {
    let mut group = c.benchmark_group("scale");
    // Of the first opening of a million records a sample is one alone. Resampling and its charts would take longer than the rest.
    group.sample_size(10).sampling_mode(SamplingMode::Flat).nresamples(2000);
    group.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_secs(1));

    group.throughput(Throughput::Elements(records as u64));
    group.bench_function(BenchmarkId::new(format!("{name}/open first"), records), |b| {
        b.iter_batched(|| data.forget(), |()| data.open(runtime), BatchSize::PerIteration);
    });
    let dataset = data.open(runtime);
    assert_eq!(dataset.len(), records as u64, "{name}");
    group.bench_function(BenchmarkId::new(format!("{name}/open again"), records), |b| b.iter(|| data.open(runtime)));

    let loader = runtime.block_on(Loader::builder(dataset).batch_size(BATCH).shuffle(1).build()).expect("settings fit");
    let mut batches = loader.epochs(0..u64::MAX);
    group.throughput(Throughput::Elements(READ));
    group.bench_function(BenchmarkId::new(format!("{name}/read {READ}"), records), |b| {
        b.iter_custom(|n| {
            runtime.block_on(async {
                // What was read ahead while criterion computed would count as if it took no time.
                let ahead = batches.report().autotune.prefetch.now;
                take(&mut batches, ahead as u64).await;
                let began = Instant::now();
                take(&mut batches, n * READ / BATCH as u64).await;
                began.elapsed()
            })
        });
    });
    group.finish();
}

fn scale(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    for records in [100_000, 1_000_000] {
        measure(c, &runtime, "tar", records, &Data::of_shards(records, tar));
    }
    measure(c, &runtime, "mds", 1_000_000, &Data::of_shards(1_000_000, mds));
    measure(c, &runtime, "tfrecord", 100_000, &Data::of_shards(100_000, tfrecord));
    measure(c, &runtime, "folder", 100_000, &files(100_000));
}

criterion_group!(benches, scale);
criterion_main!(benches);
