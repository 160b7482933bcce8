//! Damage of every kind to files of every format of datasets, with fixed seeds: what is read of them is records or an error,
//! never a panic. The coverage-guided form of this is `integration/fuzz`, for which a nightly compiler is needed.

use std::{
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
};

use futures::executor::block_on;
use infeed::{
    Result,
    dataset::{SampleRng, open_source},
    source::Extent,
};

use crate::support::{cases, store::Tracker};

/// Objects of a dataset.
pub(crate) type Files = Vec<(&'static str, Vec<u8>)>;

/// Numbers that tell nothing of one another (splitmix64).
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Flips bits, sets bytes to what breaks headers, cuts, doubles and removes parts.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.below(3) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            let end = bytes.len().min(at + 1 + self.below(8));
            match self.below(9) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at..end].fill(0xff),
                2 => bytes[at..end].fill(0),
                3 => bytes[at] = self.next() as u8,
                4 => bytes[at] = b'0' + self.below(10) as u8,
                5 => bytes.truncate(at),
                6 => drop(bytes.drain(at..end)),
                7 => {
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => {
                    let number = [0, 1, 0x7fff_ffff, 0x8000_0000, u64::MAX, 1 << 62, 255][self.below(7)].to_le_bytes();
                    let width = [1, 2, 4, 8][self.below(4)].min(bytes.len() - at);
                    bytes[at..at + width].copy_from_slice(&number[..width]);
                }
            }
        }
    }
}

/// Opens what is there and reads every record; errors are fine.
fn read_all(files: &Files) -> Result<()> {
    let source = Tracker::holding(files.clone()).inline_source();
    let dataset = block_on(open_source(source).into_future())?;
    for record in 0..dataset.len().min(20) {
        let Ok(plan) = dataset.plan(record, SampleRng::new(0, 0, record)) else { continue };
        let read = |extents: &[Extent]| -> Result<Vec<_>> { extents.iter().map(|e| block_on(e.read())).collect() };
        let Ok(mut bytes) = read(&plan.extents) else { continue };
        for part in &plan.shared {
            let Ok(decoded) = read(&part.extents).and_then(|encoded| dataset.decode_shared(part.key, &encoded)) else {
                break;
            };
            assert!(decoded.len() as u64 <= part.bytes, "a part longer than was said");
            bytes.push(decoded);
        }
        let _ = dataset.parse(record, &plan, &bytes);
    }
    Ok(())
}

/// Damages one of the objects whose names end so, again and again.
fn survives(what: &str, files: &Files, damaged: &[&str], times: u32) {
    read_all(files).unwrap_or_else(|e| panic!("{what} as it is: {e}"));
    let chosen: Vec<usize> =
        (0..files.len()).filter(|i| damaged.iter().any(|end| files[*i].0.ends_with(end))).collect();
    assert!(!chosen.is_empty(), "{what}");
    for seed in 0..u64::from(times) {
        let mut draws = Draws(seed.wrapping_mul(0x1234_5678_9abc_def1) ^ what.len() as u64);
        let mut files = files.clone();
        let at = chosen[draws.below(chosen.len())];
        draws.damage(&mut files[at].1);
        let calm = catch_unwind(AssertUnwindSafe(|| drop(read_all(&files))));
        assert!(calm.is_ok(), "{what} panics with seed {seed}: {:?} is {:02x?}", files[at].0, files[at].1);
    }
}

fn times() -> u32 {
    cases(1500, 50_000)
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0";

#[test]
fn tars_and_their_indices() {
    let mut tar = tar::Builder::new(Vec::new());
    let npy = npy("<f4", "(2, 2)", false, &[0; 16]);
    let long = format!("{}/b.jpg", "folder".repeat(20));
    let members: [(&str, &[u8]); 7] = [
        ("a.png", PNG),
        ("a.cls", b"3"),
        ("a.json", b"{\"x\": 1}"),
        ("a.npy", &npy),
        ("a.depth.ppm", b"P6\n1 1\n255\nabc"),
        ("a.key.txt", b"text"),
        (&long, b"other"),
    ];
    for (name, bytes) in &members[..6] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, *bytes).unwrap();
    }
    let shard = tar.into_inner().unwrap();
    survives("tar", &vec![("x.tar", shard.clone())], &[".tar"], times());
    let mut tar = tar::Builder::new(Vec::new());
    for key in ["a", members[6].0.strip_suffix(".jpg").unwrap()] {
        let mut header = tar::Header::new_gnu();
        header.set_size(9);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("{key}.jpg"), &b"\xff\xd8\xff 6789"[..]).unwrap();
    }
    survives("tar with long names", &vec![("x.tar", tar.into_inner().unwrap())], &[".tar"], times());
    let index = b"v1.2 1\npng 512 33 a.png cls 1536 1 a.cls\n".to_vec();
    survives("index of wds2idx", &vec![("x.idx", index), ("x.tar", shard)], &[".idx", ".tar"], times());
}

fn shard_of(samples: &[Vec<u8>]) -> Vec<u8> {
    let mut at = (8 + 4 * samples.len()) as u32;
    let mut bytes = (samples.len() as u32).to_le_bytes().to_vec();
    for sample in samples {
        bytes.extend(at.to_le_bytes());
        at += sample.len() as u32;
    }
    bytes.extend(at.to_le_bytes());
    bytes.extend(samples.concat());
    bytes
}

/// A dataset of three samples in MDS; with `hashes` of the index, its shard is compressed.
pub(crate) fn mds(hashes: Option<&str>) -> Files {
    let pil = [&[1u8, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0][..], b"RGBabc"].concat();
    let sample = |label: i64| {
        let sizes = [PNG.len(), pil.len(), 4].map(|n| (n as u32).to_le_bytes()).concat();
        [&sizes[..], PNG, &pil, &label.to_le_bytes(), b"text"].concat()
    };
    let raw = shard_of(&[sample(1), sample(2), sample(3)]);
    let (length, zip) = (raw.len(), gzip(&raw));
    let (compression, told) = match hashes {
        Some(hashes) => {
            let told = format!(r#"{{"basename": "a.mds.gz", "bytes": {}, "hashes": {hashes}}}"#, zip.len());
            ("\"gz:9\"", told)
        }
        None => ("null", "null".to_owned()),
    };
    let index = format!(
        r#"{{"version": 2, "shards": [{{"column_encodings": ["bytes", "pil", "int", "str"], "column_names": ["image", "pil", "label", "text"],
        "column_sizes": [null, null, 8, null], "compression": {compression}, "format": "mds", "samples": 3, "version": 2,
        "raw_data": {{"basename": "a.mds", "bytes": {length}, "hashes": {{}}}}, "zip_data": {told}}}]}}"#
    );
    let shard = if hashes.is_some() { ("a.mds.gz", zip) } else { ("a.mds", raw) };
    vec![shard, ("index.json", index.into_bytes())]
}

#[test]
fn shards_of_mds_compressed_or_not() {
    survives("mds", &mds(None), &[".mds"], times());
    survives("index.json", &mds(None), &[".json"], times());
    survives("compressed mds", &mds(Some(r#"{"xxh64": "0"}"#)), &[".json", ".gz"], times());
    // Without a hash the samples are reached.
    survives("compressed mds without hashes", &mds(Some("{}")), &[".gz"], times());
}

/// CRC-32C as TFRecord stores it.
fn masked(bytes: &[u8]) -> [u8; 4] {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        (0..8).for_each(|_| crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 });
    }
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

pub(crate) fn record(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), content, &masked(content)].concat()
}

/// A field of a protocol buffer.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut length, mut out) = (bytes.len(), vec![number << 3 | 2]);
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    [&out, bytes].concat()
}

fn feature(name: &[u8], kind: u8, list: &[u8]) -> Vec<u8> {
    field(1, &[field(1, name), field(2, &field(kind, list))].concat())
}

/// An example with these bytes.
pub(crate) fn example(bytes: &[u8]) -> Vec<u8> {
    field(1, &feature(b"blob", 1, &field(1, bytes)))
}

#[test]
fn records_of_tensorflow_and_their_examples() {
    let entries = [
        feature(b"image", 1, &field(1, PNG)),
        feature(b"label", 3, &field(1, &[7])),
        feature(b"box", 2, &field(1, &[0; 8])),
        feature(b"list", 1, &[field(1, b"a"), field(1, b"b")].concat()),
    ];
    let example = field(1, &entries.concat());
    let whole = [record(&example), record(&example)].concat();
    survives("tfrecord", &vec![("x.tfrecord", whole.clone())], &[".tfrecord"], times());
    survives("compressed tfrecord", &vec![("x.tfrecord.gz", gzip(&whole))], &[".gz"], times());
    // Checksums keep most damage from the parser of examples: here they are right.
    for seed in 0..u64::from(times()) {
        let mut draws = Draws(seed);
        let mut damaged = example.clone();
        draws.damage(&mut damaged);
        let file = [record(&example), record(&damaged)].concat();
        let files = vec![("x.tfrecord", if seed % 2 == 0 { file } else { record(&damaged) })];
        let calm = catch_unwind(AssertUnwindSafe(|| drop(read_all(&files))));
        assert!(calm.is_ok(), "an example panics with seed {seed}: {damaged:02x?}");
    }
}

#[test]
fn lines_of_json() {
    let line = r#"{"text": "a \u00e9", "tokens": [1, 2, 3], "box": [[0.5, 1], [2, 3]], "label": 3, "ok": true, "meta": {"a": null}}"#;
    let lines = [line, "", r#"{"text": "b", "tokens": [], "box": [], "label": 0, "ok": false}"#].join("\r\n");
    survives("json lines", &vec![("x.jsonl", lines.clone().into_bytes())], &[".jsonl"], times());
    let zstd = ruzstd::encoding::compress_to_vec(lines.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    let packed = vec![("a.jsonl.gz", gzip(lines.as_bytes())), ("b.jsonl.zst", zstd)];
    survives("compressed json lines", &packed, &[".gz", ".zst"], times());
}

fn npy(descr: &str, shape: &str, fortran: bool, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn npz(name: &str, file: &[u8], method: u16) -> Vec<u8> {
    let mut crc = flate2::Crc::new();
    crc.update(file);
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(file).unwrap();
    let stored = if method == 8 { encoder.finish().unwrap() } else { file.to_vec() };
    let fields = [
        &[0, 0][..],
        &method.to_le_bytes(),
        &[0; 4],
        &crc.sum().to_le_bytes(),
        &(stored.len() as u32).to_le_bytes(),
        &(file.len() as u32).to_le_bytes(),
        &(name.len() as u16).to_le_bytes(),
    ]
    .concat();
    let local = [b"PK\x03\x04\x14\0", &fields[..], &[0; 2], name.as_bytes(), &stored].concat();
    let central = [b"PK\x01\x02\x14\0\x14\0", &fields[..], &[0; 16], name.as_bytes()].concat();
    let sizes = [(central.len() as u32).to_le_bytes(), (local.len() as u32).to_le_bytes()].concat();
    [&local[..], &central, b"PK\x05\x06\0\0\0\0\x01\0\x01\0", &sizes, &[0; 2]].concat()
}

#[test]
fn arrays_of_numpy_and_safetensors() {
    let plain = npy(">i2", "(3, 2)", false, &[0; 12]);
    let fortran = npy("<f4", "(3, 2, 2)", true, &[0; 48]);
    survives("npy", &vec![("x.npy", plain.clone())], &[".npy"], times());
    survives("npy of Fortran", &vec![("x.npy", fortran.clone())], &[".npy"], times());
    survives("files of npy", &vec![("a.npy", fortran.clone()), ("b.npy", fortran.clone())], &["b.npy"], times());
    survives("npz", &vec![("x.npz", npz("x.npy", &plain, 0))], &[".npz"], times());
    survives("deflated npz", &vec![("x.npz", npz("x.npy", &fortran, 8))], &[".npz"], times());
    let header = br#"{"x": {"dtype": "U8", "shape": [4, 6], "data_offsets": [0, 24]}}"#;
    let tensors = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 24]].concat();
    survives("safetensors", &vec![("x.safetensors", tensors)], &[".safetensors"], times());
}

#[test]
fn volumes_of_nrrd_and_nifti() {
    let nrrd = |encoding: &str, rest: &str, data: &[u8]| {
        let head =
            format!("NRRD0004\ntype: int16\ndimension: 3\nsizes: 3 2 2\nendian: big\nencoding: {encoding}\n{rest}\n");
        [head.as_bytes(), data].concat()
    };
    let words = "1 2 3 4 5 6 7 8 9 10 11 12";
    for (encoding, data) in
        [("raw", vec![0; 24]), ("gzip", gzip(&[0; 24])), ("ascii", words.into()), ("hex", b"00".repeat(24))]
    {
        let file = nrrd(encoding, "spacings: 1 1 2.5\nline skip: 0\nkey:=value\n", &data);
        survives(encoding, &vec![("p/ct.nrrd", file)], &[".nrrd"], times());
    }
    let detached = nrrd("gzip", "byte skip: -1\ndata file: ct.bin\n", b"");
    survives("nhdr", &vec![("p/ct.bin", gzip(&[0; 40])), ("p/ct.nhdr", detached)], &[".nhdr", ".bin"], times());
    let mut nii = vec![0; 352 + 24];
    nii[..4].copy_from_slice(&348i32.to_le_bytes());
    for (i, n) in [3i16, 3, 2, 2, 1, 1, 1, 1].iter().enumerate() {
        nii[40 + 2 * i..][..2].copy_from_slice(&n.to_le_bytes());
    }
    nii[70..72].copy_from_slice(&4i16.to_le_bytes());
    nii[108..112].copy_from_slice(&352f32.to_le_bytes());
    nii[344..348].copy_from_slice(b"n+1\0");
    survives("nifti", &vec![("p/ct.nii", nii.clone())], &[".nii"], times());
    survives("compressed nifti", &vec![("p/ct.nii.gz", gzip(&nii))], &[".gz"], times());
}

#[test]
fn what_is_said_of_images() {
    let with = |name: &'static str, text: &[u8]| {
        let mut files = vec![("a.png", PNG.to_vec()), ("b.png", PNG.to_vec()), (name, text.to_vec())];
        files.sort();
        files
    };
    let csv = b"file_name,label,text,n\na.png,cat,\"x, y\",1\nb.png,dog,z,2\n";
    survives("metadata.csv", &with("metadata.csv", csv), &[".csv"], times());
    let lines = b"{\"file_name\": \"a.png\", \"label\": 1, \"t\": [1]}\n{\"file_name\": \"b.png\", \"label\": 2, \"t\": null}\n";
    survives("metadata.jsonl", &with("metadata.jsonl", lines), &[".jsonl"], times());
    for (name, text) in [
        ("labels.csv", &b"file;label\na.png;1\nb.png;2.0\n"[..]),
        ("labels.json", br#"[{"file": "a.png", "label": "cat"}, ["b.png", "7"]]"#),
    ] {
        for seed in 0..u64::from(times()) {
            let mut damaged = text.to_vec();
            Draws(seed).damage(&mut damaged);
            let source = Tracker::holding(with(name, &damaged)).inline_source();
            let calm = catch_unwind(AssertUnwindSafe(|| {
                let _ = block_on(open_source(source).labels(name).into_future());
            }));
            assert!(calm.is_ok(), "{name} panics with seed {seed}: {}", String::from_utf8_lossy(&damaged));
        }
    }
}

#[test]
fn files_of_cifar() {
    let records = vec![("data_batch_1.bin", vec![1; 2 * 3073])];
    survives("cifar", &records, &[".bin"], cases(300, 5000));
}

#[test]
fn tables_of_parquet() {
    for name in ["v1-none-dictionary", "v2-zstd-dictionary", "v2-lz4-deltas", "duckdb-v1-snappy", "fastparquet-gzip"] {
        let path = crate::support::repository().join(format!("integration/golden/parquet/{name}.parquet"));
        survives(name, &vec![("x.parquet", std::fs::read(path).unwrap())], &[".parquet"], cases(1000, 50_000));
    }
}

#[test]
fn files_of_hdf5() {
    for golden in crate::hdf5::golden().into_iter().filter(|golden| golden.refused.is_none() && golden.name != "chosen")
    {
        survives(&golden.name, &vec![("x.h5", golden.file)], &[".h5"], cases(150, 5000));
    }
}

#[test]
fn arrays_of_zarr() {
    for golden in crate::zarr::golden() {
        // Names live as long as the tests.
        let files: Files = golden.objects.into_iter().map(|(name, bytes)| (&*name.leak(), bytes)).collect();
        survives(&golden.name, &files, &[""], cases(150, 5000));
    }
}
