//! Decoded pixels that are kept: rows are the same to the bit whatever is kept, and what is kept is neither read nor decoded.

use std::{fs, ops::Range, path::Path, sync::Arc};

use infeed::{
    Dataset, ErrorKind, LastBatch, Loader, LoaderBuilder, OnBadSample, Shard, Transform,
    codec::{ImageCodec, ImageHeader, Jpeg, PixelBuffer},
    dataset::{Instances, MemoryDataset, SampleRng},
    report::{CacheReport, Stage},
    source::CacheSpec,
    transform::View,
};

use crate::support::{Plain, builder, plain, store::Tracker, until};

/// Pixels of 24 by 30 to 60 by 75, of a record.
fn picture(record: u64) -> image::RgbImage {
    let mut draws = SampleRng::new(3, 1, record).op(0);
    let (height, width) = (24 + draws.below(36) as u32, 30 + draws.below(45) as u32);
    let waves: [f64; 6] = std::array::from_fn(|_| draws.between(0.05, 0.6));
    let value =
        |y: u32, x: u32, c: usize| 128.0 + 120.0 * (f64::from(y) * waves[c] + f64::from(x) * waves[c + 3]).sin();
    image::RgbImage::from_fn(width, height, |x, y| image::Rgb([0, 1, 2].map(|c| value(y, x, c) as u8)))
}

/// JPEGs with subsampled colours, and a PNG now and then.
fn file(record: u64) -> Vec<u8> {
    let picture = picture(record);
    let mut file = Vec::new();
    if record % 5 == 3 {
        picture.write_to(&mut std::io::Cursor::new(&mut file), image::ImageFormat::Png).unwrap();
    } else {
        let mut encoder = jpeg_encoder::Encoder::new(&mut file, 85);
        encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2);
        let (width, height) = (picture.width() as u16, picture.height() as u16);
        encoder.encode(picture.as_raw(), width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    }
    file
}

fn name(record: u64) -> String {
    format!("{}/{record:03}.jpg", ["cats", "dogs"][record as usize % 2])
}

/// In class folders of this machine.
fn folder(count: u64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for record in 0..count {
        let path = dir.path().join(name(record));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file(record)).unwrap();
    }
    dir
}

fn open(dir: &Path) -> Arc<dyn Dataset> {
    infeed::open(dir.to_str().unwrap()).blocking().unwrap()
}

fn training(dataset: &Arc<dyn Dataset>) -> LoaderBuilder {
    let transform = Transform::new().random_resized_crop(20).horizontal_flip(0.5).to_float();
    builder(Arc::clone(dataset)).batch_size(8).shuffle(5).workers(2).last_batch(LastBatch::Partial).transform(transform)
}

/// What rows have to be: made of pixels, by a loader that keeps nothing.
fn expected(dataset: &Arc<dyn Dataset>, epochs: Range<u64>) -> Vec<Plain> {
    rows(&training(dataset).codec(Arc::new(Jpeg::new().exact(true))).build_blocking().unwrap(), epochs).0
}

fn rows(loader: &Loader, epochs: Range<u64>) -> (Vec<Plain>, infeed::Report) {
    let mut batches = loader.epochs(epochs).blocking();
    let rows = (&mut batches).map(|batch| plain(&batch.unwrap())).collect();
    (rows, batches.report())
}

fn kept(report: &infeed::Report) -> CacheReport {
    report.decoded_cache.expect("there is a decoded cache")
}

/// Waits for the thread that writes, which ends with its loader.
fn settle(dir: &Path) {
    let Ok(in_use) = fs::File::open(dir.join("infeed-decoded-v1/in-use")) else { return };
    until("the decoded cache is still open", || in_use.try_lock().is_ok());
}

fn entries(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for folder in fs::read_dir(dir.join("infeed-decoded-v1")).into_iter().flatten().flatten() {
        if folder.file_name().len() == 2 {
            files.extend(fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()));
        }
    }
    files.sort();
    files
}

#[test]
fn rows_are_those_of_whole_pixels_whatever_is_kept() {
    let (files, cache) = (folder(40), tempfile::tempdir().unwrap());
    let dataset = open(files.path());
    let wanted = expected(&dataset, 0..3);
    let all: u64 = (0..40).map(|record| picture(record).as_raw().len() as u64).sum();
    for spec in [
        CacheSpec::ram(1 << 20),
        CacheSpec::ram(all / 2),
        CacheSpec::ram(1),
        CacheSpec::dir(cache.path().join("all"), 1 << 20),
        CacheSpec::dir(cache.path().join("half"), all / 2),
    ] {
        let loader = training(&dataset).decoded_cache(spec.clone()).build_blocking().unwrap();
        let (first, report) = rows(&loader, 0..1);
        let first_report = kept(&report);
        let (later, report) = rows(&loader, 1..3);
        assert!([first, later].concat() == wanted, "{spec}");
        let report = kept(&report);
        assert_eq!((first_report.hits, first_report.misses), (0, 40), "{spec}");
        assert_eq!(report.hits + report.misses, 80, "{spec}: each record once an epoch");
        assert!(report.used <= report.size && report.size == spec.bytes(), "{spec}: {report:?}");
        let (written, room) = (first_report.bytes_written, spec.bytes());
        if room > all + 40 * 200 {
            assert_eq!((report.hits, report.misses, first_report.not_kept), (80, 0, 0), "{spec}: {report:?}");
            // Written by another thread, which may not be done.
            assert!(!spec.is_ram() || (all..all + 40 * 200).contains(&written), "{all}: {first_report:?}");
        } else if room > 1 {
            assert!((25..45).contains(&report.hits), "{spec}: half of the pixels serve half of the reads: {report:?}");
        } else {
            assert_eq!((report.hits, written), (0, 0));
        }
    }
}

#[test]
fn what_is_kept_is_neither_read_nor_decoded() {
    let store = Tracker::holding((0..30).map(|record| (name(record), file(record))));
    let dataset = infeed::dataset::open_source(store.source()).blocking().unwrap();
    let wanted = expected(&dataset, 0..2);
    let cache = tempfile::tempdir().unwrap();
    for spec in [CacheSpec::ram(1 << 20), CacheSpec::dir(cache.path(), 1 << 20)] {
        let loader = training(&dataset).decoded_cache(spec.clone()).build_blocking().unwrap();
        let first = rows(&loader, 0..1).0;
        store.reset();
        let (second, report) = rows(&loader, 1..2);
        assert!([first, second].concat() == wanted, "{spec}");
        assert_eq!(store.requests(), 0, "{spec}");
        assert_eq!((kept(&report).hits, kept(&report).misses), (30, 0), "{spec}");
        let decode = report.stages.iter().find(|stage| stage.stage == Stage::Decode);
        assert!(decode.is_none_or(|decode| decode.busy.is_zero()), "{spec}: {decode:?}");
    }
}

#[test]
fn entries_that_go_or_are_damaged_are_made_anew() {
    let files = folder(24);
    let store = Tracker::holding((0..24).map(|record| (name(record), file(record))));
    let local = open(files.path());
    let remote = infeed::dataset::open_source(store.source()).blocking().unwrap();
    for dataset in [local, remote] {
        let cache = tempfile::tempdir().unwrap();
        let wanted = expected(&dataset, 0..3);
        let spec = CacheSpec::dir(cache.path(), 1 << 20);
        let build = || training(&dataset).decoded_cache(spec.clone()).build_blocking().unwrap();
        let first = rows(&build(), 0..1).0;
        settle(cache.path());
        let all = entries(cache.path());
        assert_eq!(all.len(), 24);

        // A loader that knows of them all finds one gone and two damaged.
        let loader = build();
        fs::remove_file(&all[3]).unwrap();
        let mut bytes = fs::read(&all[7]).unwrap();
        bytes[100] ^= 4;
        fs::write(&all[7], &bytes).unwrap();
        fs::write(&all[11], b"").unwrap();
        let (second, report) = rows(&loader, 1..2);
        let report = kept(&report);
        assert_eq!((report.hits, report.misses, report.damaged), (21, 3, 2), "{report:?}");
        drop(loader);
        settle(cache.path());
        assert_eq!(entries(cache.path()), all, "and they are there again");
        let (third, report) = rows(&build(), 2..3);
        assert_eq!(kept(&report).hits, 24);
        assert!([first, second, third].concat() == wanted);
        settle(cache.path());
    }
}

#[test]
fn a_changed_file_and_other_settings_do_not_get_old_pixels() {
    let (files, cache) = (folder(10), tempfile::tempdir().unwrap());
    let dataset = open(files.path());
    let spec = CacheSpec::dir(cache.path(), 1 << 20);
    let run = |codec: Jpeg| {
        let loader = training(&dataset).codec(Arc::new(codec)).decoded_cache(spec.clone()).build_blocking().unwrap();
        let (found, report) = rows(&loader, 0..1);
        drop(loader);
        settle(cache.path());
        (found, kept(&report).hits)
    };
    let exact = || Jpeg::new().exact(true);
    let before = run(exact());
    assert_eq!((run(exact()).1, before.1), (10, 0));
    assert_eq!(run(exact().orientation(true)).1, 0, "pixels of a codec with other settings");

    // As many bytes, other pixels: the comment of a JPEG makes up the length.
    let path = files.path().join(name(2));
    let old = fs::read(&path).unwrap();
    let mut new = file(4);
    while new.len() > old.len() {
        new = file(4 + new.len() as u64 * 5);
    }
    let comment = (old.len() - new.len()) as u16;
    if comment >= 4 {
        let segment = [&[0xff, 0xfe][..], &(comment - 2).to_be_bytes(), &vec![b'x'; usize::from(comment) - 4]].concat();
        new.splice(2..2, segment);
        assert_eq!(new.len(), old.len());
    }
    fs::write(&path, &new).unwrap();
    let dataset = open(files.path());
    let wanted = expected(&dataset, 0..1);
    let loader = training(&dataset).decoded_cache(spec.clone()).build_blocking().unwrap();
    let (found, report) = rows(&loader, 0..1);
    assert_eq!((kept(&report).hits, kept(&report).misses), (9, 1));
    assert!(found == wanted && found != before.0);
}

#[test]
fn what_stands_beside_the_files_is_never_an_earlier_runs() {
    let (files, cache) = (folder(12), tempfile::tempdir().unwrap());
    let list = files.path().parent().unwrap().join(format!("{}.csv", files.path().file_name().unwrap().display()));
    let labels = |of: &dyn Fn(u64) -> u64| {
        let lines = (0..12).map(|record| format!("{},{}\n", name(record), of(record)));
        fs::write(&list, lines.collect::<String>()).unwrap();
        infeed::open(files.path().to_str().unwrap()).labels(list.to_str().unwrap()).blocking().unwrap()
    };
    let spec = CacheSpec::dir(cache.path(), 1 << 20);
    let views = || {
        [View::new("a", Transform::new().random_resized_crop(16)), View::new("b", Transform::new().resize_exact(8, 8))]
    };
    let run = |dataset: &Arc<dyn Dataset>, viewed: bool, kept: bool| {
        let builder = match viewed {
            true => builder(Arc::clone(dataset)).batch_size(4).shuffle(1).views(views()),
            false => training(dataset),
        };
        let builder = builder.codec(Arc::new(Jpeg::new().exact(true)));
        let builder = if kept { builder.decoded_cache(spec.clone()) } else { builder };
        let (found, report) = rows(&builder.build_blocking().unwrap(), 0..1);
        settle(cache.path());
        (found, report.decoded_cache.map_or(0, |kept| kept.hits))
    };
    for viewed in [false, true] {
        let before = labels(&|record| record % 3);
        run(&before, viewed, true);
        assert_eq!(run(&before, viewed, true).1, 12);
        let after = labels(&|record| record % 5);
        let (found, hits) = run(&after, viewed, true);
        assert!(found == run(&after, viewed, false).0, "labels of the list that is there now");
        assert_eq!(hits, 12, "and the pixels are no others");
    }
    fs::remove_file(list).unwrap();
}

#[test]
fn rows_of_a_shared_part_are_told_apart_whatever_they_are_numbered() {
    let store = Tracker::holding([("rows.parquet", crate::parquet::pictures(24))]);
    let source = infeed::dataset::open_source(store.inline_source());
    let dataset = source.columns(["image", "label"]).blocking().unwrap();
    let turned =
        infeed::dataset::subset(Arc::clone(&dataset), (0..12).rev().chain((12..24).rev()).collect::<Vec<u64>>())
            .unwrap();
    let cache = tempfile::tempdir().unwrap();
    for dataset in [dataset, turned] {
        let wanted = expected(&dataset, 0..2);
        let loader = training(&dataset).decoded_cache(CacheSpec::dir(cache.path(), 1 << 20)).build_blocking().unwrap();
        let (found, report) = rows(&loader, 0..2);
        assert!(found == wanted);
        assert!(kept(&report).hits >= 20, "{:?}", kept(&report));
        drop(loader);
        settle(cache.path());
    }
}

#[test]
fn ranks_that_share_a_folder_use_each_others_pixels() {
    let (files, cache) = (folder(40), tempfile::tempdir().unwrap());
    let dataset = open(files.path());
    let spec = CacheSpec::dir(cache.path(), 1 << 20);
    let rank = |rank: u32| {
        let shard = Shard::new(rank, 2).unwrap().with_local(rank, 2).unwrap();
        training(&dataset).shard(shard).decoded_cache(spec.clone()).build_blocking().unwrap()
    };
    let loaders = [rank(0), rank(1)];
    for loader in &loaders {
        rows(loader, 0..1);
    }
    until("not all are written", || entries(cache.path()).len() == 40);
    for loader in &loaders {
        // What the other has written is seen when an epoch begins, beside its first reads.
        let mut epochs = 1..;
        until("the other's are not seen", || {
            let epoch = epochs.next().unwrap();
            kept(&rows(loader, epoch..epoch + 1).1).hits == 20
        });
    }
}

#[test]
fn views_masks_boxes_and_bad_samples_go_with_it() {
    // Views and masks: images and masks of one name.
    let dir = tempfile::tempdir().unwrap();
    for record in 0..12_u64 {
        for (part, gray) in [("images", false), ("masks", true)] {
            let path = dir.path().join(part).join(format!("{record}.png"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let picture = picture(record);
            match gray {
                true => image::DynamicImage::from(picture).to_luma8().save(path).unwrap(),
                false => picture.save(path).unwrap(),
            }
        }
    }
    let dataset = open(dir.path());
    let cache = tempfile::tempdir().unwrap();
    let crop = |side: u32| Transform::new().random_resized_crop(side).horizontal_flip(0.5);
    let segmentation = |dataset: &Arc<dyn Dataset>| {
        builder(Arc::clone(dataset)).batch_size(4).shuffle(1).workers(2).transform(crop(16))
    };
    let wanted = rows(&segmentation(&dataset).build_blocking().unwrap(), 0..2).0;
    for spec in [CacheSpec::ram(1 << 20), CacheSpec::dir(cache.path(), 1 << 20)] {
        let (found, report) = rows(&segmentation(&dataset).decoded_cache(spec).build_blocking().unwrap(), 0..2);
        assert!(found == wanted);
        assert!(kept(&report).hits > 0, "{report:?}");
    }

    // Views of one image: kept once.
    let files = folder(12);
    let dataset = open(files.path());
    let views = |spec: Option<CacheSpec>| {
        let views = [View::new("a", crop(16)), View::new("b", crop(8))];
        let codec = Arc::new(Jpeg::new().exact(true));
        let builder = builder(Arc::clone(&dataset)).batch_size(4).shuffle(1).views(views).codec(codec);
        let builder = spec.into_iter().fold(builder, LoaderBuilder::decoded_cache);
        rows(&builder.build_blocking().unwrap(), 0..2)
    };
    let wanted = views(None).0;
    let pixels: u64 = (0..12).map(|record| picture(record).as_raw().len() as u64).sum();
    for spec in [CacheSpec::ram(1 << 20), CacheSpec::dir(cache.path(), 1 << 20)] {
        let (found, report) = views(Some(spec));
        assert!(found == wanted);
        assert!(kept(&report).bytes_written < pixels + 12 * 400, "{:?}", kept(&report));
    }

    // A file that is cut is bad in each epoch, and costs its neighbours nothing.
    let path = files.path().join(name(4));
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 3]).unwrap();
    let dataset = open(files.path());
    let skipping = |spec: Option<CacheSpec>| {
        let builder = training(&dataset).codec(Arc::new(Jpeg::new().exact(true)));
        let builder = builder.on_bad_sample(OnBadSample::Skip { at_most: 100 });
        let loader = spec.into_iter().fold(builder, LoaderBuilder::decoded_cache).build_blocking().unwrap();
        // Apart: a stream of all epochs runs ahead, and may decode a record of the next before that of the first is kept.
        (rows(&loader, 0..1), rows(&loader, 1..3))
    };
    let ((first, bad_first), (later, bad_later)) = skipping(None);
    let ((found_first, report_first), (found_later, report_later)) = skipping(Some(CacheSpec::ram(1 << 20)));
    assert!(found_first == first && found_later == later);
    assert!(bad_first.bad_sample_count == report_first.bad_sample_count);
    assert!(bad_later.bad_sample_count == report_later.bad_sample_count);
    assert!((kept(&report_first).hits, kept(&report_first).misses) == (0, 12), "{report_first:?}");
    assert!(
        (kept(&report_later).hits, kept(&report_later).misses) == (22, 2),
        "11 good ones are kept: {report_later:?}"
    );
}

#[derive(Debug)]
struct Foreign;

impl ImageCodec for Foreign {
    fn name(&self) -> &'static str {
        "foreign"
    }
    fn recognises(&self, _head: &[u8]) -> bool {
        false
    }
    fn header(&self, _bytes: &[u8]) -> infeed::Result<ImageHeader> {
        Err(infeed::Error::new(ErrorKind::Unsupported, "none"))
    }
    fn decode(&self, _: &[u8], _: &ImageHeader, _: Range<u32>, _: &mut PixelBuffer) -> infeed::Result<()> {
        Err(infeed::Error::new(ErrorKind::Unsupported, "none"))
    }
}

#[test]
fn what_it_cannot_keep_is_refused_by_name() {
    let (files, cache) = (folder(4), tempfile::tempdir().unwrap());
    let dataset = open(files.path());
    let in_folder = || CacheSpec::dir(cache.path(), 1 << 20);
    let refused = |builder: LoaderBuilder, words: &str| {
        let error = builder.build_blocking().expect_err(words);
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    refused(
        training(&dataset).codec(Arc::new(Foreign)).decoded_cache(in_folder()),
        "the codec `foreign` has no identity",
    );
    training(&dataset).codec(Arc::new(Foreign)).decoded_cache(CacheSpec::ram(1 << 20)).build_blocking().unwrap();

    let marked = (0..4).map(|_| Instances::new([24, 30])).collect();
    let pixels = vec![7; 4 * 24 * 30 * 3];
    let boxes = MemoryDataset::builder().images_u8(pixels, 4, 24, 30, 3, false).instances(marked).build().unwrap();
    let boxes: Arc<dyn Dataset> = Arc::new(boxes);
    refused(training(&boxes).decoded_cache(in_folder()), "can't write instances to files");

    let decoder = infeed::spi::Cpu::new(std::num::NonZeroUsize::MIN, infeed::codec::codecs(), 1 << 20);
    refused(training(&dataset).decoder(Arc::new(decoder)).decoded_cache(in_folder()), "decoded elsewhere");

    let config = r#"{"decoded_cache": "ram:1MiB"}"#;
    let config: infeed::LoaderConfig = serde_json::from_str(config).unwrap();
    assert_eq!(config.decoded_cache, Some(CacheSpec::ram(1 << 20)));
    let (records, _) = crate::support::records::Records::tagged(10);
    refused(builder(records).batch_size(5).decoded_cache(CacheSpec::ram(1 << 20)), "hold no images");
}
