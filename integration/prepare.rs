//! Prepared shards: the same bytes however the work was done, and the pictures of the dataset they were made from.

use std::{collections::BTreeMap, fs, num::NonZeroU64, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use infeed::{
    DType, Dataset, ErrorKind, OnBadSample, Result, Shard, Transform,
    dataset::{MemoryDataset, SampleRng, dataset_contract},
    open,
    prepare::{Prepare, Prepared, Size, Store},
    source::Source,
};
use object_store::ObjectStoreExt;
use tempfile::TempDir;

use crate::support::{
    builder, drain, files_below,
    photos::{self, photos},
};

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn opened(url: &str) -> Arc<dyn Dataset> {
    wait(open(url).into_future()).unwrap()
}

/// Prepares the photographs, small, in shards of a few.
fn prepared(out: &Path, set: impl FnOnce(Prepare<'static>) -> Prepare<'static>) -> Result<Prepared> {
    let prepare = Prepare::new(opened(photos()), out.display().to_string());
    wait(set(prepare.size(Size::Exact(32, 40)).shuffle(5).shard_size(40 << 10)).run())
}

/// All files of a folder, hidden ones too.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
}

fn same(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>) {
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(a), names(b));
    for (name, bytes) in a {
        assert!(b[name] == *bytes, "{name} differs");
    }
}

/// A folder of the photographs that may be written to.
fn copy_of_photos(to: &Path) {
    for path in files_below(Path::new(photos())) {
        let name = to.join(path.strip_prefix(photos()).unwrap());
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        fs::copy(&path, name).unwrap();
    }
}

#[test]
fn workers_and_ranks_change_no_byte() {
    let (one, many, ranks) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let done = prepared(one.path(), |p| p.workers(1)).unwrap();
    assert!(done.complete && done.records == 24 && done.shards > 3, "{done:?}");
    prepared(many.path(), |p| p.workers(4)).unwrap();
    same(&files(one.path()), &files(many.path()));
    for (rank, complete) in [(2, false), (0, false), (1, true)] {
        let done = prepared(ranks.path(), |p| p.shard(Shard::new(rank, 3).unwrap()).workers(2)).unwrap();
        assert_eq!(done.complete, complete, "the last rank writes the manifest");
        assert!(done.own_shards < done.shards);
    }
    same(&files(one.path()), &files(ranks.path()));
    let dataset = opened(one.path().to_str().unwrap());
    wait(dataset_contract(&*dataset)).unwrap();
    assert_eq!(dataset.len(), 24);
    assert_eq!(dataset.schema().classes, opened(photos()).schema().classes, "class names are kept");
}

#[test]
fn work_goes_on_where_it_was_broken_off() {
    let (whole, broken) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let all = prepared(whole.path(), |p| p).unwrap();
    prepared(broken.path(), |p| p).unwrap();
    let at = |name: &str| broken.path().join(name);
    // As kills leave it: a sidecar before its shard, another shard half-written under its hidden name, no manifest.
    for name in ["shards.infeed", "shard-000001.tar", "shard-000002.tar", "shard-000002.infeed"] {
        fs::remove_file(at(name)).unwrap();
    }
    fs::write(at(".shard-000002.tar.part"), b"half").unwrap();
    // And as a bad disk leaves it.
    let mut damaged = fs::read(at("shard-000000.tar")).unwrap();
    let picture = damaged.windows(3).position(|bytes| bytes == [0xff, 0xd8, 0xff]).unwrap();
    damaged[picture + 100] ^= 1;
    fs::write(at("shard-000000.tar"), damaged).unwrap();
    let done = prepared(broken.path(), |p| p.workers(3)).unwrap();
    assert_eq!((done.found, done.complete), (all.shards - 3, true));
    same(&files(whole.path()), &files(broken.path()));
    let again = prepared(broken.path(), |p| p).unwrap();
    assert_eq!((again.found, again.records), (all.shards, 0));
}

/// Writes other bytes to a file, as many as before; another time is the file system's affair, but for a busy one's clock.
fn rewrite(path: &Path) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() - 40;
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
    fs::File::options().append(true).open(path).unwrap().set_modified(before + Duration::from_secs(1)).unwrap();
}

#[test]
fn shards_of_files_that_were_rewritten_in_their_place_are_made_again() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    copy_of_photos(&at("photos"));
    let prepared = |out: &str, set: fn(Prepare<'static>) -> Prepare<'static>| {
        let prepare = Prepare::new(opened(at("photos").to_str().unwrap()), at(out).display().to_string());
        wait(set(prepare.shuffle(5).shard_size(400 << 10)).run()).unwrap()
    };
    let first = prepared("out", |p| p);
    assert_eq!(prepared("out", |p| p).found, first.shards);
    let some = files_below(&at("photos"));
    for path in [&some[0], &some[13]] {
        rewrite(path);
    }
    // One of two ranks, as if it were the only one to come so far: the manifest is not taken for what is there.
    let ranks = [0, 1].map(|rank| {
        let prepare = Prepare::new(opened(at("photos").to_str().unwrap()), at("out").display().to_string());
        let prepare = prepare.shuffle(5).shard_size(400 << 10).shard(Shard::new(rank, 2).unwrap());
        wait(prepare.run()).unwrap()
    });
    let again = first.shards - ranks[0].found - ranks[1].found;
    assert!((1..=2).contains(&again), "{again} of {} were made again", first.shards);
    assert_eq!(prepared("out", |p| p).found, first.shards);
    prepared("fresh", |p| p);
    same(&files(&at("out")), &files(&at("fresh")));
}

#[test]
fn a_file_that_is_written_to_meanwhile_is_an_error_and_leaves_nothing_half() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    copy_of_photos(&at("photos"));
    let some = files_below(&at("photos"));
    let prepare = Prepare::new(opened(at("photos").to_str().unwrap()), at("out").display().to_string());
    // Told when the first of several shards is finished: the last record is rewritten.
    let last = some.last().unwrap().clone();
    let mut told = false;
    let prepare = prepare.parts(NonZeroU64::new(4).unwrap()).progress(move |done| {
        if done.shards > 0 && !std::mem::replace(&mut told, true) {
            rewrite(&last);
        }
    });
    let error = wait(prepare.run()).unwrap_err();
    assert!(error.to_string().contains("changed while it was prepared"), "{error}");
    assert_eq!(files(&at("out")).keys().filter(|name| name.ends_with(".part")).count(), 0);
    let prepare = Prepare::new(opened(at("photos").to_str().unwrap()), at("out").display().to_string());
    let done = wait(prepare.parts(NonZeroU64::new(4).unwrap()).run()).unwrap();
    assert!(done.complete && done.found >= 1, "{done:?}");
}

#[test]
fn what_a_rank_has_not_finished_is_an_error_that_names_the_shards() {
    let out = TempDir::new().unwrap();
    let url = out.path().to_str().unwrap();
    let part = |rank: u32| prepared(out.path(), |p| p.shard(Shard::new(rank, 3).unwrap())).unwrap();
    let shards = part(0).shards;
    let before = files(out.path());
    let refused = wait(open(url).into_future()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    let text = refused.to_string();
    let missing = shards - shards.div_ceil(3);
    for says in [&format!("{missing} of {shards} shards"), "shard-000001.tar, shard-000002.tar", "allow_incomplete"] {
        assert!(text.contains(says), "{text}");
    }
    assert!(!text.contains("shard-000000"), "{text}");
    same(&before, &files(out.path()));
    // Who wants what is there says so, or names it.
    let some = wait(open(url).allow_incomplete(true).into_future()).unwrap();
    assert!((1..24).contains(&some.len()));
    assert!(opened(&format!("{url}/shard-000000.tar")).len() < some.len());
    assert_eq!(
        opened(&format!("{url}/shard-{{000000..000000}}.tar")).len(),
        opened(&format!("{url}/shard-000000.tar")).len()
    );
    // The others finish: what was opened meanwhile does not stand in the way.
    part(1);
    assert!(wait(open(url).into_future()).is_err());
    assert!(part(2).complete);
    assert_eq!(opened(url).len(), 24);
    // A copy that was broken off has the manifest and not all shards.
    let last = format!("shard-{:06}.tar", shards - 1);
    fs::remove_file(out.path().join(&last)).unwrap();
    let text = wait(open(url).into_future()).unwrap_err().to_string();
    assert!(text.contains(&format!("1 of {shards} shards")) && text.contains(&last), "{text}");
}

#[test]
fn shards_kept_as_they_are_hold_the_files_of_the_folder() {
    let out = TempDir::new().unwrap();
    let prepare = Prepare::new(opened(photos()), out.path().display().to_string()).parts(NonZeroU64::new(3).unwrap());
    wait(prepare.run()).unwrap();
    let rows = |url: &str| {
        let transform = Transform::new().resize_exact(24, 24);
        let loader = builder(opened(url)).batch_size(24).transform(transform).build_blocking().unwrap();
        let batch = drain(loader.epoch(0)).unwrap().remove(0);
        (batch["image"].bytes().unwrap().to_vec(), batch["label"].to_vec::<i64>().unwrap())
    };
    assert!(rows(photos()) == rows(out.path().to_str().unwrap()));
}

#[test]
fn progressive_files_become_baseline_with_the_same_pixels_and_the_others_stay() {
    let (folder, out, kept) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let class = folder.path().join("a");
    fs::create_dir(&class).unwrap();
    for n in 0..12 {
        let mut file = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut file, 85);
        encoder.set_progressive(n % 3 > 0);
        encoder.add_app_segment(2, b"ICC_PROFILE\0".to_vec()).unwrap();
        let pixels: Vec<u8> = (0..40 * 56 * 3).map(|i| (i * (n + 3) / 7 % 251) as u8).collect();
        encoder.encode(&pixels, 56, 40, jpeg_encoder::ColorType::Rgb).unwrap();
        fs::write(class.join(format!("{n:02}.jpg")), file).unwrap();
    }
    fs::write(class.join("12.png"), png()).unwrap();
    let at = |dir: &TempDir| dir.path().display().to_string();
    let prepare = |out: &TempDir, store| Prepare::new(opened(&at(&folder)), at(out)).store(store);
    wait(prepare(&kept, Store::Keep).run()).unwrap();
    let done = wait(prepare(&out, Store::Baseline).restart_markers(true).run()).unwrap();
    assert_eq!(done.records, 13);
    let rows = |url: String| {
        let transform = Transform::new().resize_exact(24, 24);
        let loader = builder(opened(&url)).batch_size(13).transform(transform).build_blocking().unwrap();
        drain(loader.epoch(0)).unwrap()[0]["image"].bytes().unwrap().to_vec()
    };
    let want = rows(at(&folder));
    assert!(rows(at(&out)) == want && rows(at(&kept)) == want);
    let [kept, out] = [&kept, &out].map(|dir| fs::read(dir.path().join("shard-000000.tar")).unwrap());
    let count = |tar: &[u8], marker: u8| tar.windows(4).filter(|four| four[..3] == [0xff, marker, 0]).count();
    // Frames: progressive ones, and baseline ones.
    assert_eq!([count(&kept, 0xc2), count(&out, 0xc2), count(&out, 0xc0)], [8, 0, 12]);
    // Those that were baseline before have no restart markers: they stay byte for byte.
    assert_eq!([count(&kept, 0xdd), count(&out, 0xdd)], [0, 8]);
    assert_eq!(out.windows(12).filter(|text| *text == b"ICC_PROFILE\0").count(), 12);
}

fn png() -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    image::RgbImage::from_pixel(56, 40, image::Rgb([1, 2, 3])).write_to(&mut file, image::ImageFormat::Png).unwrap();
    file.into_inner()
}

#[test]
fn raw_pixels_are_those_of_the_resized_picture() {
    let (raw, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    prepared(raw.path(), |p| p.store(Store::Raw)).unwrap();
    let pixels = |url: &str, transform: Transform| {
        let loader = builder(opened(url)).batch_size(24).transform(transform).dtype(infeed::DType::U8);
        let batch = drain(loader.build_blocking().unwrap().epoch(0)).unwrap().remove(0);
        let image = &batch["image"];
        // By key: the shards are in another order.
        let keys: Vec<usize> = match batch.bytes("key") {
            Some(keys) => keys.iter().map(|key| str::from_utf8(key).unwrap().parse().unwrap()).collect(),
            None => (0..24).collect(),
        };
        let rows = image.bytes().unwrap().chunks(image.row_bytes()).map(<[u8]>::to_vec);
        keys.into_iter().zip(rows).collect::<BTreeMap<_, _>>()
    };
    let size = || Transform::new().resize_exact(32, 40);
    let expected = pixels(photos(), size());
    assert!(pixels(raw.path().to_str().unwrap(), size()) == expected);
    // Encoded ones are close to them.
    prepared(out.path(), |p| p.quality(95).restart_markers(true)).unwrap();
    let shard = fs::read(out.path().join("shard-000000.tar")).unwrap();
    // 32 rows are four rows of blocks, with three markers between them.
    let marked = [0xd0, 0xd1, 0xd2].map(|marker| shard.windows(2).any(|w| w == [0xff, marker]));
    assert_eq!(marked, [true; 3]);
    let encoded = pixels(out.path().to_str().unwrap(), size());
    let mut squares = 0.0;
    for (key, row) in &expected {
        squares += row.iter().zip(&encoded[key]).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum::<f64>();
    }
    let psnr = 10.0 * (255.0f64.powi(2) * (24 * 32 * 40 * 3) as f64 / squares).log10();
    assert!(psnr > 32.0, "{psnr} dB");
}

#[test]
fn what_cannot_be_prepared_is_refused() {
    let out = TempDir::new().unwrap();
    for set in [
        (|p: Prepare<'static>| p.quality(0)) as fn(Prepare<'static>) -> Prepare<'static>,
        |p| p.size(Size::Exact(0, 3)),
        |p| p.size(Size::Shorter(100_000)),
        |p| p.shard_size(0),
        |p| p.name("a/b"),
        |p| p.workers(0),
    ] {
        assert_eq!(prepared(out.path(), set).unwrap_err().kind(), ErrorKind::Config);
    }
    prepared(out.path(), |p| p).unwrap();
    let error = prepared(out.path(), |p| p.quality(50)).unwrap_err();
    assert!(error.to_string().contains("shards of another dataset, or of other settings"), "{error}");
    // Sidecars may be removed where a manifest is.
    for entry in fs::read_dir(out.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "infeed") && !path.ends_with("shards.infeed") {
            fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(prepared(out.path(), |p| p).unwrap().records, 0);

    // Somebody's shards of the same names, the ones that are to be read among them.
    let own = TempDir::new().unwrap();
    let url = own.path().display().to_string();
    fs::copy(out.path().join("shard-000000.tar"), own.path().join("shard-000000.tar")).unwrap();
    let before = fs::read(own.path().join("shard-000000.tar")).unwrap();
    for dataset in [opened(photos()), opened(&url)] {
        let error = wait(Prepare::new(dataset, &*url).run()).unwrap_err();
        assert!(error.to_string().contains("shards of another dataset"), "{error}");
        let _ = fs::remove_file(own.path().join("shards.infeed"));
        assert!(fs::read(own.path().join("shard-000000.tar")).unwrap() == before);
    }
}

#[test]
fn a_store_gets_the_bytes_of_a_folder() {
    let out = TempDir::new().unwrap();
    let store = Source::memory("prepare-test");
    // Above 16 MiB an object is sent in parts.
    let dataset = opened("synthetic://?count=250&height=160&width=160&classes=3");
    let prepare = |url: String| wait(Prepare::new(Arc::clone(&dataset), url).parts(NonZeroU64::new(1).unwrap()).run());
    let local = prepare(out.path().display().to_string()).unwrap();
    let remote = prepare("memory://prepare-test/x/y".into()).unwrap();
    assert_eq!(local, remote);
    assert!(local.bytes_written > 17 << 20, "{local:?}");
    for (name, bytes) in files(out.path()) {
        let path = object_store::path::Path::from(format!("x/y/{name}"));
        let stored = wait(async { store.get(&path).await.unwrap().bytes().await.unwrap() });
        assert!(stored == bytes, "{name} differs");
    }
    assert_eq!(prepare("memory://prepare-test/x/y".into()).unwrap().found, 1, "it is not made again");
    let dataset = opened("memory://prepare-test/x/y");
    wait(dataset_contract(&*dataset)).unwrap();
    assert_eq!(dataset.len(), 250);
}

#[test]
fn fields_of_all_kinds_come_back_as_they_were() {
    let (n, out) = (5usize, TempDir::new().unwrap());
    let pixels: Vec<u16> = (0..n * 2 * 3 * 3).map(|i| i as u16 * 700).collect();
    let numbers: Vec<u8> = (0..n as u32 * 4).flat_map(|i| (i as f32 / 3.0).to_ne_bytes()).collect();
    let texts = |word: &'static str| (0..n).map(move |i| Bytes::from(format!("{word} {i}"))).collect::<Vec<_>>();
    let dataset: Arc<dyn Dataset> = Arc::new(
        MemoryDataset::builder()
            .images_u16(pixels, n, 2, 3, 3, false)
            .labels((0..n as i64).collect())
            .array("box", DType::F32, vec![2, 2], numbers)
            .bytes("image/File.Name", texts("name"))
            .bytes("json", texts("json"))
            .bytes("blob", (0..n).map(|i| vec![0xff; i].into()).collect())
            .texts("caption", (0..n).map(|i| format!("a pïcture {i}")))
            .lists("tokens", (0..n).map(|i| vec![i as i32; n - i]).collect())
            .list_bytes("points", DType::F64, vec![2], (0..n).map(|i| vec![i as u8; i * 16].into()).collect())
            .build()
            .unwrap(),
    );
    let url = out.path().display().to_string();
    wait(Prepare::new(Arc::clone(&dataset), &*url).run()).unwrap();
    let shards = opened(&url);
    let names: Vec<_> = shards.schema().fields.iter().map(|field| field.name.as_str()).collect();
    let in_order = ["image", "label", "blob", "box", "caption", "image_file_name", "json", "points", "tokens", "key"];
    assert_eq!(names, in_order);
    let kinds = |dataset: &Arc<dyn Dataset>| -> BTreeMap<String, &'static str> {
        let fields = dataset.schema().fields.iter();
        fields.map(|field| (field.name.replace("image/File.Name", "image_file_name"), field.kind.name())).collect()
    };
    let (mut before, after) = (kinds(&dataset), kinds(&shards));
    // The names of members are text, and so is JSON.
    before.extend([("key".to_owned(), "text"), ("json".to_owned(), "text")]);
    assert_eq!(before, after);
    let values = |dataset: &Arc<dyn Dataset>, record| {
        let plan = dataset.plan(record, SampleRng::new(0, 0, record)).unwrap();
        let read: Vec<Bytes> = plan.extents.iter().map(|e| wait(e.read()).unwrap()).collect();
        dataset.parse(record, &plan, &read).unwrap().values.into_vec()
    };
    for record in 0..n as u64 {
        let (before, after) = (values(&dataset, record), values(&shards, record));
        // All but the key, which is new.
        assert_eq!(after.len(), before.len() + 1);
        let position = |name: &str| names.iter().position(|other| *other == name).unwrap();
        for (field, before) in dataset.schema().fields.iter().zip(&before) {
            let name = field.name.replace("image/File.Name", "image_file_name");
            assert_eq!(format!("{before:?}"), format!("{:?}", after[position(&name)]), "{name}");
        }
    }
}

#[test]
fn what_shards_cannot_hold_is_refused() {
    let refused = |dataset: infeed::dataset::MemoryBuilder, set: fn(Prepare<'static>) -> Prepare<'static>| {
        let out = TempDir::new().unwrap();
        let dataset: Arc<dyn Dataset> = Arc::new(dataset.build().unwrap());
        let error = wait(set(Prepare::new(dataset, out.path().display().to_string())).run()).unwrap_err();
        assert!(files(out.path()).is_empty(), "nothing is begun");
        error.to_string()
    };
    let gray = MemoryDataset::builder().images_u8(vec![0; 8], 2, 2, 2, 1, false);
    assert!(refused(gray, |p| p).contains("`image` has 1 channels"));
    let deep = MemoryDataset::builder().images_u16(vec![0; 24], 2, 2, 2, 3, false);
    assert!(refused(deep, |p| p.quality(90)).contains("`image` is of u16"));
    let numbers = MemoryDataset::builder().array("image", DType::U8, vec![2, 2], vec![0; 8]);
    assert!(refused(numbers, |p| p).contains("would be read as pixels"));
    let texts = || vec![Bytes::new()];
    let twice = MemoryDataset::builder().bytes("a.b", texts()).bytes("a/b", texts());
    assert!(refused(twice, |p| p).contains("both called `a_b`"));
}

#[test]
fn work_that_a_bad_image_ended_goes_on_without_it() {
    let source = TempDir::new().unwrap();
    let url = source.path().to_str().unwrap();
    photos::write(source.path(), 12, 1);
    let class = fs::read_dir(source.path()).unwrap().next().unwrap().unwrap().path();
    let names = files(&class).into_keys().collect::<Vec<_>>();
    let bad = class.join(&names[11]);
    let length = fs::metadata(&bad).unwrap().len();
    fs::write(&bad, [&[0xff, 0xd8, 0xff][..], &vec![0; length as usize - 3]].concat()).unwrap();
    let dataset = opened(url);
    let out = TempDir::new().unwrap();
    let prepare = |policy| {
        let prepare = Prepare::new(Arc::clone(&dataset), out.path().display().to_string());
        wait(prepare.size(Size::Exact(32, 32)).parts(6.try_into().unwrap()).workers(1).on_bad_sample(policy).run())
    };
    assert!(prepare(OnBadSample::Stop).unwrap_err().is_sample());
    let finished = files(out.path()).keys().filter(|name| name.ends_with(".tar")).count() as u64;
    let done = prepare(OnBadSample::Skip { at_most: 1 }).unwrap();
    assert_eq!((done.shards, done.found, done.bad_samples.len(), done.complete), (6, finished, 1, true));
    // In any order it has its number in the dataset.
    let other = TempDir::new().unwrap();
    let shuffled = Prepare::new(Arc::clone(&dataset), other.path().display().to_string()).shuffle(1);
    let shuffled = shuffled.on_bad_sample(OnBadSample::Skip { at_most: 1 });
    let left_out = wait(shuffled.run()).unwrap().bad_samples.remove(0);
    assert!(left_out.position < 11 && left_out.record == 11, "{left_out:?}");
    assert!(left_out.error.contains("record 11"), "{left_out:?}");
    assert_eq!(opened(out.path().to_str().unwrap()).len(), 11);
}

#[test]
fn a_file_that_cannot_be_read_is_left_out_like_one_that_cannot_be_decoded() {
    let source = TempDir::new().unwrap();
    let url = source.path().to_str().unwrap();
    photos::write(source.path(), 12, 1);
    let class = fs::read_dir(source.path()).unwrap().next().unwrap().unwrap().path();
    let names = files(&class).into_keys().collect::<Vec<_>>();
    // One is gone after it was listed, one is cut off.
    let dataset = opened(url);
    fs::remove_file(class.join(&names[2])).unwrap();
    fs::write(class.join(&names[7]), [0xff, 0xd8, 0xff]).unwrap();
    let prepare = |set: fn(Prepare<'static>) -> Prepare<'static>| {
        let out = TempDir::new().unwrap();
        let prepare = Prepare::new(Arc::clone(&dataset), out.path().display().to_string()).size(Size::Exact(32, 32));
        (wait(set(prepare).run()), out)
    };
    let error = prepare(|p| p).0.unwrap_err();
    assert!(error.is_sample() && error.to_string().contains(&names[2]), "{error}");
    let (done, out) = prepare(|p| p.on_bad_sample(OnBadSample::Skip { at_most: 2 }));
    let done = done.unwrap();
    let told: Vec<_> = done.bad_samples.iter().map(|bad| bad.unreadable).collect();
    assert_eq!((done.records, told), (10, vec![true, false]));
    assert_eq!(opened(out.path().to_str().unwrap()).len(), 10);
    // Allowing more of them is no other job.
    let more = Prepare::new(Arc::clone(&dataset), out.path().display().to_string()).size(Size::Exact(32, 32));
    assert_eq!(wait(more.on_bad_sample(OnBadSample::Skip { at_most: 3 }).run()).unwrap().found, done.shards);
    // To end at a bad record is no other job either, but those that were left out are told.
    let stop = Prepare::new(Arc::clone(&dataset), out.path().display().to_string()).size(Size::Exact(32, 32));
    let error = wait(stop.run()).unwrap_err().to_string();
    assert!(error.contains("a finished shard lacks 2 records") && error.contains("shard-000000.tar"), "{error}");
    let error = prepare(|p| p.on_bad_sample(OnBadSample::Skip { at_most: 1 })).0.unwrap_err();
    assert!(error.is_sample(), "{error}");
    let error = prepare(|p| p.on_bad_sample(OnBadSample::Skip { at_most: 2 }).max_unreadable(0)).0.unwrap_err();
    assert!(error.to_string().contains("max_unreadable"), "{error}");
}
