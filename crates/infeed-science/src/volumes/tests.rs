use futures::{FutureExt, executor::block_on};
use infeed_core::{error::Result, random::SampleRng, types::DType};
use infeed_data::{FieldKind, Narrow, concat, dataset_contract, subset};
use infeed_store::Source;
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};

use std::{ops::Range, sync::Arc};

use super::{
    header::{Cover, cover},
    nifti, nrrd,
};
use crate::open_source;

pub(super) fn store(files: &[(&str, Vec<u8>)]) -> Source {
    let store = Arc::new(InMemory::new());
    for (name, bytes) in files {
        // Not `block_on`: some tests call this within `block_on`.
        store.put(&Path::parse(name).unwrap(), bytes.clone().into()).now_or_never().unwrap().unwrap();
    }
    let store: Arc<dyn ObjectStore> = store;
    Source::from_store(store, Path::default(), "test://").inline()
}

/// A raw NRRD file of this type whose voxels count up.
fn nrrd(dtype: &str, sizes: [usize; 3], size: usize, first: u8) -> Vec<u8> {
    let [x, y, z] = sizes;
    let mut file = format!(
        "NRRD0004\ntype: {dtype}\ndimension: 3\nsizes: {x} {y} {z}\nspacings: 1 2 3\nendian: little\nencoding: raw\n\n"
    )
    .into_bytes();
    file.extend((0..x * y * z * size).map(|i| first.wrapping_add(i as u8)));
    file
}

fn patients() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("p1/ct.nrrd", nrrd("int16", [6, 5, 4], 2, 1)),
        ("p1/mask.nrrd", nrrd("uint8", [6, 5, 4], 1, 0)),
        ("p2/ct.nrrd", nrrd("int16", [6, 5, 4], 2, 2)),
        ("p2/mask.nrrd", nrrd("uint8", [6, 5, 4], 1, 3)),
    ]
}

fn refused(files: &[(&str, Vec<u8>)], open: impl FnOnce(infeed_data::Open) -> infeed_data::Open) -> String {
    block_on(async { open(open_source(store(files))).await }).unwrap_err().to_string()
}

/// A window of this many voxels in the middle of each axis.
#[derive(Debug)]
pub(super) struct Middle(pub(super) usize, pub(super) bool);

impl Narrow for Middle {
    fn reads(&self, shape: [usize; 3], _: SampleRng) -> Result<[Range<usize>; 3]> {
        Ok(shape.map(|len| (len - self.0) / 2..(len - self.0) / 2 + self.0))
    }
    fn most(&self) -> u64 {
        (self.0 * self.0 * self.0) as u64
    }
    fn wants_foreground(&self) -> bool {
        self.1
    }
}

#[test]
fn patients_keep_the_contract_whole_and_narrowed() {
    let mut files = patients();
    files.push(("p1/pet.nii", {
        let mut file = nifti::tests::one(&[6, 5, 4], 16, 2.0, 1.0);
        file.extend([0; 480]);
        file
    }));
    files.push(("p2/pet.nii", files.last().unwrap().1.clone()));
    block_on(async {
        let open =
            open_source(store(&files)).samples_per_patient(3).field("image", ["ct", "pet"]).field("mask", ["mask"]);
        let dataset = open.await.unwrap();
        assert_eq!((dataset.len(), &*dataset.groups().unwrap()), (6, &[0, 3][..]));
        let kinds: Vec<_> = dataset.schema().fields.iter().map(|f| (&*f.name, f.kind.clone())).collect();
        let volume = |channels, mask| FieldKind::Volume { channels, size: Some([4, 5, 6]), mask };
        assert_eq!(kinds[0], ("image", volume(2, None)));
        assert_eq!(kinds[1], ("mask", volume(1, Some(DType::U8))));
        assert_eq!(dataset.schema().names_of("patient"), Some(&["p1".to_owned(), "p2".to_owned()][..]));
        dataset_contract(&*dataset).await.unwrap();
        for narrow in [Middle(2, false), Middle(4, false), Middle(2, true)] {
            let dataset = dataset.narrowed(&(Arc::new(narrow) as Arc<dyn Narrow>)).unwrap();
            dataset_contract(&*dataset).await.unwrap();
        }
        let some = subset(Arc::clone(&dataset), 1..5).unwrap();
        dataset_contract(&*some).await.unwrap();
        let both = concat([dataset, some]).unwrap();
        dataset_contract(&*both).await.unwrap();
        dataset_contract(&*both.narrowed(&(Arc::new(Middle(2, false)) as Arc<dyn Narrow>)).unwrap()).await.unwrap();
    });
}

#[test]
fn folders_of_kinds_are_read_with_their_channels() {
    // A fourth axis counts channels too, as in the Decathlon's BRATS.
    let many = |channels: i16| {
        let mut file = nifti::tests::one(&[4, 3, 2, channels], 4, 1.0, 0.0);
        file.extend((0..48 * channels).map(|i| i as u8));
        file
    };
    let label = {
        let mut file = nifti::tests::one(&[4, 3, 2], 2, 0.0, 0.0);
        file.extend(0..24);
        file
    };
    let opened = |files: Vec<(&str, Vec<u8>)>, open: fn(infeed_data::Open) -> infeed_data::Open| {
        block_on(async {
            let dataset = open(open_source(store(&files))).await.unwrap();
            dataset_contract(&*dataset).await.unwrap();
            let fields = dataset.schema().fields.iter().take(2).map(|f| (f.name.clone(), f.kind.clone()));
            (dataset.len(), fields.collect::<Vec<_>>())
        })
    };
    let volume = |channels, mask| FieldKind::Volume { channels, size: Some([2, 3, 4]), mask };
    let of =
        |channels| (1, vec![("image".into(), volume(channels, None)), ("label".into(), volume(1, Some(DType::U8)))]);
    let decathlon = vec![("imagesTr/x.nii", many(4)), ("imagesTs/y.nii", many(4)), ("labelsTr/x.nii", label.clone())];
    assert_eq!(opened(decathlon.clone(), |open| open), of(4));
    assert_eq!(opened(decathlon.clone(), |open| open.split("train")), of(4));
    assert_eq!(opened(decathlon, |open| open.split("test").field("image", ["image"])).0, 1);
    let channels = vec![("imagesTr/x_0000.nii", many(1)), ("imagesTr/x_0001.nii", many(1)), ("labelsTr/x.nii", label)];
    assert_eq!(opened(channels.clone(), |open| open), of(2));
    let chosen = opened(channels, |open| open.field("t2", ["image_0001"]).field("label", ["label"]));
    assert_eq!(chosen.1[0], ("t2".into(), volume(1, None)));
}

#[test]
fn a_box_of_a_raw_file_reads_little_more_than_itself() {
    // 3 x 4 x 5 of 40 x 50 x 60: lines. 20 x 20 x 44: planes of 20 lines. All of a plane: one range.
    let header = |sizes: [usize; 3]| nrrd::parse_nrrd(&nrrd("int16", sizes, 0, 0), true).unwrap().unwrap();
    let wide = header([60, 50, 40]);
    for (window, reads) in
        [([1..4, 2..6, 3..8], 12), ([0..20, 10..30, 10..54], 20), ([5..9, 0..50, 0..60], 1), ([5..9, 2..48, 3..58], 1)]
    {
        let Cover { ranges, .. } = cover(&wide, 100, &window, false);
        assert_eq!(ranges.len(), reads, "{window:?}");
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let exact: usize = window.iter().map(Range::len).product::<usize>() * 2;
        assert!(bytes as f64 <= 1.6 * exact as f64, "{bytes} for {exact}");
        assert_eq!(cover(&wide, 100, &window, true).ranges.len(), 1);
    }
    let nothing = [0..0, 0..5, 0..5];
    assert_eq!(cover(&wide, 0, &nothing, true).ranges, []);
}

#[test]
fn a_missing_partner_names_patient_and_file() {
    let mut files = patients();
    files.remove(3);
    let error = refused(&files, |open| open);
    assert!(error.contains("patient `p2` has no `mask`: there are only ct (test:/p2)"), "{error}");
    // Fields that all patients have are fine.
    assert_eq!(block_on(async { open_source(store(&files)).field("ct", ["ct"]).await }).unwrap().len(), 2);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let with = |file: (&'static str, Vec<u8>)| {
        let mut files = patients();
        files.retain(|(name, _)| *name != file.0);
        files.push(file);
        files
    };
    let says = |files: &[(&str, Vec<u8>)], what: &str| {
        let error = refused(files, |open| open);
        assert!(error.contains(what), "{error}");
    };
    says(
        &with(("p1/mask.nrrd", nrrd("uint8", [6, 5, 3], 1, 0))),
        "patient `p1` has files of [4, 5, 6] and [3, 5, 6] voxels",
    );
    says(&with(("p1/mask.nrrd", nrrd("float", [6, 5, 4], 4, 0))), "labels are whole numbers");
    says(&with(("p1/mask.nrrd", b"NRRD0004\n".to_vec())), "test:/p1/mask.nrrd");
    says(&with(("p1/mask.nrrd", b"P6".to_vec())), "not an NRRD");
    says(&with(("p1/mask.nrrd", nrrd("uint8", [6, 5, 4], 0, 0))), "the header says 120 bytes of voxels");
    let header = |data: &str| {
        let text = format!("NRRD0004\ntype: uint8\ndimension: 3\nsizes: 6 5 4\nencoding: raw\ndata file: {data}\n");
        with(("p1/mask.nhdr", text.into_bytes()))
            .into_iter()
            .filter(|(name, _)| *name != "p1/mask.nrrd")
            .chain([("p1/voxels.raw", vec![1; 120]), ("voxels.raw", vec![1; 120])])
            .collect::<Vec<_>>()
    };
    for good in ["voxels.raw", "./voxels.raw", "../voxels.raw"] {
        block_on(async { dataset_contract(&*open_source(store(&header(good))).await.unwrap()).await }).unwrap();
    }
    // A compressed NIfTI file whose voxels a detached header describes.
    let mut nii = nifti::tests::one(&[6, 5, 4], 2, 1.0, 0.0);
    nii.extend(0..120);
    let gz = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &nii).unwrap();
        encoder.finish().unwrap()
    };
    let described = |encoding: &str, skip: &str| {
        let text = format!(
            "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 6 5 4\nencoding: {encoding}\nbyte skip: {skip}\ndata file: ct.nii.gz\n"
        );
        vec![("p1/ct.nhdr", text.into_bytes()), ("p1/ct.nii.gz", gz.clone())]
    };
    for skip in ["-1", "352"] {
        block_on(async {
            let dataset = open_source(store(&described("gzip", skip))).await.unwrap();
            dataset_contract(&*dataset).await.unwrap();
            let plan = dataset.plan(0, SampleRng::new(0, 0, 0)).unwrap();
            let bytes = plan.shared[0].extents[0].read().await.unwrap();
            assert_eq!(dataset.decode_shared(plan.shared[0].key, &[bytes]).unwrap()[..], nii[352..], "{skip}");
        });
    }
    says(&described("raw", "-1"), "`ct.nii.gz` is compressed, the header says `encoding: raw`");
    says(&header("none.raw"), "data file `none.raw` is not there");
    says(&header("/etc/passwd"), "is not there");
    says(&header("../../voxels.raw"), "is not there");
    says(&header("mask.nhdr"), "is a header itself");
    says(&header("ct.nrrd"), "is a header itself");
    let config = |open: fn(infeed_data::Open) -> infeed_data::Open, what: &str| {
        let error = refused(&patients(), open);
        assert!(error.contains(what), "{error}");
    };
    config(|open| open.samples_per_patient(0), "0 samples");
    config(|open| open.pattern("{field}"), "the pattern");
    config(|open| open.pattern("{patient}-{field}"), "no volumes of patients");
    config(|open| open.field("a", ["ct", "mask"]), "images and masks");
    config(|open| open.field("spacing", ["ct"]), "can't be called `spacing`");
    config(|open| open.field("a", ["ct"]).field("a", ["ct"]), "can't be called `a`");
    config(|open| open.labels("labels.csv"), "take no labels");
}

#[test]
fn masks_take_the_smallest_type_that_holds_their_labels() {
    for (types, expected) in [
        (["uint8", "uint8"], DType::U8),
        (["uint8", "int16"], DType::I16),
        (["ushort", "uint8"], DType::U16),
        (["ushort", "int8"], DType::I64),
        (["uint8", "int64"], DType::I64),
    ] {
        let size = |t: &str| {
            if t.ends_with("64") {
                8
            } else if t == "ushort" || t.ends_with("16") {
                2
            } else {
                1
            }
        };
        let files = types.map(|t| nrrd(t, [2, 2, 2], size(t), 0));
        let [a, b] = files;
        let dataset =
            block_on(async { open_source(store(&[("p1_mask.nrrd", a), ("p2_mask.nrrd", b)])).await }).unwrap();
        let FieldKind::Volume { mask, .. } = dataset.schema().fields[0].kind else { panic!("{types:?}") };
        assert_eq!(mask, Some(expected), "{types:?}");
    }
}
