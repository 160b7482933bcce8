//! Arrays of numpy and safetensors as records; images of several files; masks.

use std::{fs, path::Path, sync::Arc};

use futures::{StreamExt, executor::block_on};
use infeed::{
    Batch, DType, Dataset, ErrorKind, Layout, Loader, OnBadSample, Transform,
    dataset::{FieldKind, Open, dataset_contract},
    open,
};
use tempfile::TempDir;

fn folder(files: &[(&str, Vec<u8>)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    dir
}

fn at(path: &Path) -> Open {
    open(path.to_str().unwrap())
}

/// Opens it and checks its promises.
fn sound(open: Open) -> Arc<dyn Dataset> {
    let dataset = block_on(open.into_future()).unwrap_or_else(|e| panic!("{e:#}"));
    block_on(dataset_contract(&*dataset)).unwrap_or_else(|e| panic!("{e:#}"));
    dataset
}

fn fails(open: Open, kind: ErrorKind, says: &[&str]) {
    let error = block_on(open.into_future()).expect_err("it opens");
    let text = format!("{error:#}");
    assert!(error.kind() == kind && says.iter().all(|words| text.contains(words)), "{text}\nlacks {says:?}");
}

/// All records in one batch.
fn batch(dataset: &Arc<dyn Dataset>, transform: Transform, dtype: DType) -> infeed::Result<Batch> {
    let count = dataset.len() as usize;
    block_on(async {
        let loader = Loader::builder(Arc::clone(dataset))
            .batch_size(count)
            .transform(transform)
            .dtype(dtype)
            .layout(Layout::Nchw)
            .device(infeed::Device::Cpu)
            .build()
            .await?;
        loader.epoch(0).next().await.expect("one batch")
    })
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\0".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn floats(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

#[test]
fn the_first_axis_of_one_npy_is_the_record() {
    let dir = folder(&[("x.npy", npy("<f4", "(4, 2, 3)", &floats((0..24u8).map(f32::from))))]);
    for open in [at(dir.path()), at(&dir.path().join("x.npy"))] {
        let dataset = sound(open);
        assert_eq!((dataset.format(), dataset.len(), dataset.largest_read()), ("arrays", 4, 24));
        let batch = batch(&dataset, Transform::new(), DType::F32).unwrap();
        assert_eq!(batch["x"].shape(), [4, 2, 3]);
        assert_eq!(batch["x"].to_vec::<f32>().unwrap(), (0..24u8).map(f32::from).collect::<Vec<_>>());
    }
    // Turned round, where the file has the other order.
    let big = (0..6i16).flat_map(i16::to_be_bytes).collect::<Vec<_>>();
    let dir = folder(&[("y.npy", npy(">i2", "(6,)", &big))]);
    let batch = batch(&sound(at(dir.path())), Transform::new(), DType::F32).unwrap();
    assert_eq!((batch["y"].shape(), batch["y"].to_vec::<i16>().unwrap()), (&[6][..], (0..6).collect()));
}

#[test]
fn each_of_many_npy_is_a_record_and_class_folders_label_it() {
    let file = |n: u8| npy("|u1", "(2, 2)", &[n; 4]);
    let dir = folder(&[("dog/a.npy", file(1)), ("cat/b.npy", file(2)), ("dog/c.npy", file(3))]);
    let dataset = sound(at(dir.path()));
    let all = batch(&dataset, Transform::new(), DType::F32).unwrap();
    assert_eq!(all["array"].to_vec::<u8>().unwrap(), [[2; 4], [1; 4], [3; 4]].concat());
    assert_eq!(all["label"].to_vec::<i64>().unwrap(), [0, 1, 1]);
    // Labels alone need no file, and a filter asks for no more.
    let labels = sound(at(dir.path()).columns(["label"]));
    assert_eq!(
        (labels.schema().fields.len(), labels.plan(0, infeed::dataset::SampleRng::new(0, 0, 0)).unwrap().extents.len()),
        (1, 0)
    );
    assert_eq!(sound(at(dir.path()).filter("label=dog".parse().unwrap())).len(), 2);
    fails(at(dir.path()).columns(["x"]), ErrorKind::NotFound, &["no field `x`", "there are array, label"]);
    fails(at(dir.path()).split("train"), ErrorKind::NotFound, &["no arrays in a folder `train/`"]);
    fs::write(dir.path().join("dog/c.npy"), npy("|u1", "(4,)", &[3; 4])).unwrap();
    let dataset = block_on(at(dir.path()).into_future()).unwrap();
    let error = batch(&dataset, Transform::new(), DType::F32).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("an array [4] of u8 where the first is [2, 2] of u8") && text.contains("c.npy"), "{text}");
    assert_eq!(error.context().record, Some(2));
}

#[test]
fn files_of_folders_that_name_kinds_are_fields_of_one_record() {
    let file = |n: u8| npy("|u1", "(2, 2)", &[n; 4]);
    let folders = [["images", "masks"], ["X", "y"], ["data/inputs", "data/gt"], ["imagesTr", "labelsTr"]];
    for [images, masks] in folders {
        let files = [(images, "a/1", 1), (masks, "a/1", 2), (images, "b", 3), (masks, "b", 4)];
        let files: Vec<(String, u8)> = files.iter().map(|(top, name, n)| (format!("{top}/{name}.npy"), *n)).collect();
        let dir = folder(&files.iter().map(|(name, n)| (name.as_str(), file(*n))).collect::<Vec<_>>());
        let dataset = sound(at(dir.path()));
        let all = batch(&dataset, Transform::new(), DType::F32).unwrap();
        let name = |path: &str| path.trim_start_matches("data/").trim_end_matches("Tr").to_owned();
        let field = |path: &str| all[&*name(path)].to_vec::<u8>().unwrap();
        assert_eq!([field(images), field(masks)].map(|values| values[4]), [3, 4], "{images}");
        assert_eq!(dataset.len(), 2);
        // Files that no field needs are not read.
        let one = sound(at(dir.path()).columns([name(masks)]));
        assert_eq!(one.plan(0, infeed::dataset::SampleRng::new(0, 0, 0)).unwrap().extents.len(), 1);
        let [first] = &one.schema().fields[..] else { panic!("{:?}", one.schema()) };
        assert_eq!(batch(&one, Transform::new(), DType::F32).unwrap()[&*first.name].to_vec::<u8>().unwrap()[4], 4);
        fs::write(dir.path().join(images).join("c.npy"), file(5)).unwrap();
        fails(at(dir.path()), ErrorKind::Config, &["/c.npy` has no partner `"]);
    }
    let of = |name: &'static str| (name, file(1));
    let dir = folder(&["images/1.npy", "masks/1.npy", "weights/1.npy"].map(of));
    fails(at(dir.path()), ErrorKind::Config, &["`weights/1.npy` is next to the folders images, masks"]);
    let dir = folder(&["x_train/1.npy", "y_train/1.npy", "x_test/2.npy", "y_test/2.npy"].map(of));
    assert_eq!(sound(at(dir.path()).split("test")).schema().fields.len(), 2);
    // Each is a record if the user says so.
    let dir = folder(&["images/1.npy", "masks/2.npy"].map(of));
    fails(at(dir.path()), ErrorKind::Config, &["has no partner", "set format(\"arrays\")"]);
    assert_eq!(sound(at(dir.path()).format("arrays")).len(), 2);
    let splits = ["train/images/1.npy", "train/masks/1.npy", "val/images/2.npy", "val/masks/2.npy"];
    let dir = folder(&splits.map(of));
    fails(at(dir.path()), ErrorKind::Config, &["several splits: train, val"]);
    let val = sound(at(dir.path()).split("val"));
    assert!(val.len() == 1 && val.object(0).ends_with("val/images/2.npy"), "{}", val.object(0));
    // Classes of one split.
    let dir = folder(&["train/cat/1.npy", "train/dog/1.npy", "val/dog/2.npy"].map(of));
    let val = at(dir.path()).split("val").classes(["cat".to_owned(), "dog".to_owned()]);
    assert_eq!(batch(&sound(val), Transform::new(), DType::F32).unwrap()["label"].to_vec::<i64>().unwrap(), [1]);
}

#[test]
fn each_of_many_npz_is_a_record_if_the_format_is_named() {
    let record = |x: u8, y: u8, method| {
        let members = [
            ("x.npy", npy("|u1", "(2, 3)", &[x; 6])),
            ("y.npy", npy("|u1", "()", &[y])),
            ("t.npy", npy("<U1", "(1,)", &[0; 4])),
        ];
        npz(&members, method)
    };
    let tensor = |n: u8| {
        let header = br#"{"x":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]},"y":{"dtype":"U8","shape":[],"data_offsets":[6,7]}}"#;
        [&(header.len() as u64).to_le_bytes()[..], header, &[n; 7]].concat()
    };
    let cases = [
        ("npz", [record(1, 2, 0), record(3, 4, 0)]),
        ("npz", [record(1, 2, 8), record(3, 4, 8)]),
        ("safetensors", [tensor(1), tensor(3)]),
    ];
    for (ending, [one, two]) in cases {
        let names = [format!("cat/1.{ending}"), format!("dog/2.{ending}")];
        let dir = folder(&[(&names[0], one), (&names[1], two.clone())]);
        fails(at(dir.path()), ErrorKind::Config, &["there are 2 files of arrays", "set format(\"arrays\")"]);
        let open = || at(dir.path()).format("arrays");
        let dataset = sound(open());
        let all = batch(&dataset, Transform::new(), DType::F32).unwrap();
        assert_eq!(all["x"].to_vec::<u8>().unwrap(), [[1; 6], [3; 6]].concat());
        assert_eq!(all["y"].shape(), [2]);
        assert_eq!(all["label"].to_vec::<i64>().unwrap(), [0, 1]);
        assert_eq!(sound(open().columns(["y", "label"])).schema().fields.len(), 2);
        fails(open().columns(["z"]), ErrorKind::NotFound, &["no field `z`", "there are x, y, label"]);
        if ending == "npz" {
            fails(open().columns(["t"]), ErrorKind::Unsupported, &["`t` can't be read", "type `<U1`"]);
        }
        // Another split, by the names of files.
        fs::write(dir.path().join(format!("test_3.{ending}")), &two).unwrap();
        assert_eq!(sound(open().split("test")).len(), 1);
        fs::remove_file(dir.path().join(format!("test_3.{ending}"))).unwrap();
        // A record whose file is cut, damaged or lacks an array is a bad sample.
        let lacking = npz(&[("x.npy", npy("|u1", "(2, 3)", &[3; 6]))], 0);
        let mut turned = two.clone();
        let at_values = two.windows(6).position(|bytes| bytes == [3; 6]).unwrap_or(two.len() / 3);
        turned[at_values] ^= 1;
        let mut cases = vec![(lacking, "`y`"), (two[..two.len() - 9].to_vec(), "2.")];
        cases.extend((ending == "npz").then_some((turned, "2.")));
        for (damaged, says) in cases {
            fs::write(dir.path().join(&names[1]), damaged).unwrap();
            let dataset = block_on(open().into_future()).unwrap();
            let error = batch(&dataset, Transform::new(), DType::F32).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(says) && text.contains(&names[1]) || ending == "safetensors", "{text}");
            assert_eq!(error.context().record, Some(1), "{text}");
        }
    }
}

/// A zip as numpy.savez (method 0) and savez_compressed (8) write it.
fn npz(members: &[(&str, Vec<u8>)], method: u16) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let at = out.len() as u32;
        let mut fields = Vec::new();
        fields.extend(0u16.to_le_bytes());
        fields.extend(method.to_le_bytes());
        fields.extend([0; 4]);
        let mut crc = flate2::Crc::new();
        crc.update(data);
        fields.extend(crc.sum().to_le_bytes());
        let stored = if method == 8 { deflated(data) } else { data.clone() };
        fields.extend((stored.len() as u32).to_le_bytes());
        fields.extend((data.len() as u32).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        out.extend(b"PK\x03\x04\x14\0");
        out.extend(&fields);
        // Local and central extras differ in length, as numpy's do.
        out.extend(8u16.to_le_bytes());
        out.extend(name.as_bytes());
        out.extend([0; 8]);
        out.extend(stored);
        directory.extend(b"PK\x01\x02\x14\0\x14\0");
        directory.extend(&fields);
        directory.extend([0; 12]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let start = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([(members.len() as u16).to_le_bytes(), (members.len() as u16).to_le_bytes()].concat());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0; 2]);
    out
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn deflated_arrays_are_those_that_were_saved() {
    // More numbers than a first look unpacks.
    let large: Vec<f32> = (0..3000u16).map(|i| f32::from(i % 7)).collect();
    let members = [
        ("x.npy", npy("<f4", "(3, 1000)", &floats(large.iter().copied()))),
        ("y.npy", npy(">i2", "(3,)", &[7i16, -8, 9].map(i16::to_be_bytes).concat())),
    ];
    let dir = folder(&[("d.npz", npz(&members, 8))]);
    let dataset = sound(at(dir.path()));
    assert!(dataset.shared_bytes().all >= 12_000);
    let all = batch(&dataset, Transform::new(), DType::F32).unwrap();
    assert_eq!(all["x"].to_vec::<f32>().unwrap(), large);
    assert_eq!(all["y"].to_vec::<i16>().unwrap(), [7, -8, 9]);
    // Damage is found: the sum, a cut, a length that lies.
    let sound_file = npz(&members, 8);
    for bit in 0..8 {
        for byte in (0..sound_file.len()).step_by(7) {
            let mut file = sound_file.clone();
            file[byte] ^= 1 << bit;
            let dir = folder(&[("d.npz", file)]);
            if let Ok(dataset) = block_on(at(dir.path()).into_future())
                && dataset.schema().fields.iter().any(|field| field.name == "x")
                && let Ok(found) = batch(&dataset, Transform::new(), DType::F32)
                && let Some(values) = found["x"].to_vec::<f32>()
            {
                assert_eq!(values, large, "bit {bit} of byte {byte}");
            }
        }
    }
    let dir = folder(&[("d.npz", npz(&members, 12))]);
    fails(at(dir.path()), ErrorKind::Unsupported, &["`x` is compressed by zip's method 12", "savez_compressed"]);
}

#[test]
fn arrays_in_the_order_of_fortran_have_the_same_records() {
    // numpy.save(…, numpy.asfortranarray(numpy.arange(12).reshape(3, 2, 2))).
    let of = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let fortran = |descr: &str, data: &[u8]| {
        let mut file = npy(descr, "(3, 2, 2)", data);
        let at = file.windows(5).position(|word| word == b"False").unwrap();
        file[at..at + 5].copy_from_slice(b"True ");
        file
    };
    let order = [0, 4, 8, 2, 6, 10, 1, 5, 9, 3, 7, 11];
    let little = fortran("<i4", &of(&order));
    let big = fortran(">i4", &order.iter().flat_map(|v: &i32| v.to_be_bytes()).collect::<Vec<u8>>());
    let want: Vec<i32> = (0..12).collect();
    for (name, file) in [
        ("x.npy", little.clone()),
        ("x.npy", big.clone()),
        ("x.npz", npz(&[("x.npy", little.clone())], 0)),
        ("x.npz", npz(&[("x.npy", big)], 8)),
    ] {
        let dir = folder(&[(name, file)]);
        let dataset = sound(at(dir.path()));
        let all = batch(&dataset, Transform::new(), DType::F32).unwrap();
        assert_eq!((all["x"].shape(), all["x"].to_vec::<i32>().unwrap()), (&[3, 2, 2][..], want.clone()), "{name}");
    }
    // Each file a record.
    let plain = npy("<i4", "(3, 2, 2)", &of(&want));
    let dir = folder(&[("a.npy", little), ("b.npy", plain)]);
    let all = batch(&sound(at(dir.path())), Transform::new(), DType::F32).unwrap();
    assert_eq!(all["array"].to_vec::<i32>().unwrap(), [want.clone(), want].concat());
}

#[test]
fn arrays_of_an_npz_are_fields() {
    let members = [
        ("x.npy", npy("<f4", "(3, 2)", &floats((0..6u8).map(f32::from)))),
        ("y.npy", npy("<i4", "(3,)", &[7i32, 8, 9].map(i32::to_le_bytes).concat())),
    ];
    let dir = folder(&[("d.npz", npz(&members, 0))]);
    let dataset = sound(at(dir.path()));
    let all = batch(&dataset, Transform::new(), DType::F32).unwrap();
    assert_eq!(all["x"].to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(all["y"].to_vec::<i32>().unwrap(), [7, 8, 9]);

    let uneven = [members[0].clone(), ("y.npy", npy("|u1", "(2,)", &[1, 2]))];
    let dir = folder(&[("d.npz", npz(&uneven, 0))]);
    fails(at(dir.path()), ErrorKind::Config, &["`x` has 3 records, `y` 2"]);
    let whole = npz(&members, 0);
    let dir = folder(&[("d.npz", whole.clone())]);
    let chosen = sound(at(dir.path()).columns(["y", "x"]));
    assert_eq!(chosen.schema().fields.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["y", "x"]);
    assert_eq!(chosen.len(), 3);
    fails(at(dir.path()).columns(["z"]), ErrorKind::NotFound, &["no array `z`", "there are x, y"]);
    fails(at(dir.path()).columns(["x", "x"]), ErrorKind::Config, &["array `x` twice"]);
    for cut in 0..whole.len() {
        let dir = folder(&[("d.npz", whole[..cut].to_vec())]);
        assert!(block_on(at(dir.path()).into_future()).is_err(), "cut after {cut}");
    }
}

#[test]
fn files_that_belong_together_are_no_records() {
    let bytes = npy("<i4", "(2, 2)", &[0; 16]);
    for (names, says) in [
        (&["images.npy", "masks.npy"][..], "`masks.npy` is named like masks or labels of `images.npy`"),
        (&["a0_img.npy", "a0_mask.npy"], "`a0_mask.npy` is named like masks"),
        (&["x.npy", "y.npy"], "`y.npy` is named like masks or labels of `x.npy`"),
        (&["p0/image.npy", "p0/mask.npy"], "`p0/mask.npy` is named like masks"),
        (&["x_train.npy", "x_test.npy"], "arrays of several splits: test, train"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(name), &bytes).unwrap();
        }
        fails(at(dir.path()), ErrorKind::Config, &[says, "if each file is a record, set format(\"arrays\")"]);
        assert_eq!(block_on(at(dir.path()).format("arrays").into_future()).unwrap().len(), 2);
    }
}

#[test]
fn a_file_of_several_splits_is_read_by_columns_or_by_a_split() {
    let rows = |n: u8, len: u8| npy("|u1", &format!("({len}, 2)"), &vec![n; usize::from(len) * 2]);
    let labels = |n: u8, len: u8| npy("|u1", &format!("({len},)"), &vec![n; usize::from(len)]);
    for method in [0, 8] {
        let members = [
            ("train_images.npy", rows(1, 5)),
            ("val_images.npy", rows(2, 2)),
            ("train_labels.npy", labels(3, 5)),
            ("val_labels.npy", labels(4, 2)),
        ];
        let dir = folder(&[("d.npz", npz(&members, method))]);
        let says = ["`train_images` has 5 records, `val_images` 2, `train_labels` 5", "train_images\", \"train_labels"];
        fails(at(dir.path()), ErrorKind::Config, &says);
        let fields = |open: Open| {
            let dataset = sound(open);
            let names: Vec<String> = dataset.schema().fields.iter().map(|f| f.name.clone()).collect();
            (dataset.len(), names.join(","))
        };
        let expected = (2, "val_images,val_labels".to_owned());
        assert_eq!(fields(at(dir.path()).columns(["val_images", "val_labels"])), expected);
        assert_eq!(fields(at(dir.path()).split("val")), expected);
        assert_eq!(fields(at(dir.path()).split("val").columns(["val_labels"])), (2, "val_labels".to_owned()));
        fails(at(dir.path()).split("test"), ErrorKind::NotFound, &["the split `test`", "there are train_images"]);
        fails(at(dir.path()).columns(["val_images", "train_labels"]), ErrorKind::Config, &["has 2 records"]);
    }
    // Equal lengths say nothing: the names do.
    let members = [("x_train.npy", rows(1, 2)), ("x_test.npy", rows(2, 2))];
    let dir = folder(&[("d.npz", npz(&members, 0))]);
    fails(at(dir.path()), ErrorKind::Config, &["arrays of several splits, test, train"]);
    assert_eq!(sound(at(dir.path()).columns(["x_train", "x_test"])).len(), 2);
}

#[test]
fn what_holds_no_rows_of_numbers_is_left_out() {
    let members = [
        ("x.npy", npy("<f4", "(3, 2)", &floats((0..6u8).map(f32::from)))),
        ("names.npy", npy("<U1", "(3,)", &[0; 12])),
        ("bytes.npy", npy("|S3", "(3,)", &[0; 9])),
        ("objects.npy", npy("|O", "(3,)", b"\x80\x04K\x01.")),
        ("seed.npy", npy("<i8", "()", &[7, 0, 0, 0, 0, 0, 0, 0])),
    ];
    for method in [0, 8] {
        let dir = folder(&[("d.npz", npz(&members, method))]);
        for open in [at(dir.path()), at(dir.path()).columns(["x"])] {
            let dataset = sound(open);
            assert_eq!((dataset.len(), dataset.schema().fields.len(), &*dataset.schema().fields[0].name), (3, 1, "x"));
        }
        let named = |column: &str, why: &str| {
            fails(
                at(dir.path()).columns([column]),
                ErrorKind::Unsupported,
                &[&format!("`{column}` can't be read"), why],
            );
        };
        named("names", "type `<U1`");
        named("objects", "type `|O`");
        named("seed", "one number");
        let dir = folder(&[("d.npz", npz(&members[1..], method))]);
        fails(
            at(dir.path()),
            ErrorKind::Unsupported,
            &["no arrays of numbers: names (an array of numpy's type `<U1`)"],
        );
    }
    let header = br#"{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"step":{"dtype":"U8","shape":[],"data_offsets":[2,3]},"w":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[3,5]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend([1, 2, 3, 4, 5]);
    let dir = folder(&[("m.safetensors", file)]);
    let dataset = sound(at(dir.path()));
    assert_eq!((dataset.len(), dataset.schema().fields.len(), &*dataset.schema().fields[0].name), (2, 1, "x"));
    fails(at(dir.path()).columns(["w"]), ErrorKind::Unsupported, &["a tensor of type F8_E4M3"]);
}

#[test]
fn tensors_of_safetensors_are_fields() {
    let header = br#"{"b":{"dtype":"F64","shape":[2,1],"data_offsets":[2,18]},"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend([1, 0]);
    file.extend([0.5f64, -1.5].map(f64::to_le_bytes).concat());
    let dir = folder(&[("m.safetensors", file.clone())]);
    let dataset = sound(at(dir.path()));
    let names: Vec<&str> = dataset.schema().fields.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let all = batch(&dataset, Transform::new(), DType::F32).unwrap();
    assert_eq!((all["a"].dtype(), all["a"].bytes().unwrap()), (DType::Bool, &[1, 0][..]));
    assert_eq!(all["b"].to_vec::<f64>().unwrap(), [0.5, -1.5]);
    file.pop();
    let dir = folder(&[("m.safetensors", file.clone())]);
    fails(at(dir.path()), ErrorKind::Corrupt, &["`b` is at 2..18 of 17", "m.safetensors"]);
    file[7] = 9;
    let dir = folder(&[("m.safetensors", file)]);
    fails(at(dir.path()), ErrorKind::Corrupt, &["a header of 648518346341351", "m.safetensors"]);
}

#[test]
fn a_header_that_claims_too_much_is_refused() {
    for (shape, says) in
        [("(4000000000, 4000000000)", "too large"), ("(4, 9)", "bytes of numbers where"), ("()", "one number")]
    {
        let dir = folder(&[("x.npy", npy("<f4", shape, &floats((0..24u8).map(f32::from))))]);
        let error = block_on(at(dir.path()).into_future()).unwrap_err();
        assert!(format!("{error:#}").contains(says), "{error:#}");
    }
    let dir = folder(&[("a.npz", vec![]), ("b.npy", npy("|u1", "(1,)", &[1]))]);
    fails(at(dir.path()), ErrorKind::Config, &["2 files of arrays", "`a.npz`"]);
}

/// A plain TIFF of one strip.
pub(crate) fn tiff(height: u32, width: u32, pixels: &[u8]) -> Vec<u8> {
    use tiff::encoder::{TiffEncoder, colortype};
    let mut file = std::io::Cursor::new(Vec::new());
    let mut encoder = TiffEncoder::new(&mut file).unwrap();
    match pixels.len() as u32 / (height * width) {
        1 => encoder.write_image::<colortype::Gray8>(width, height, pixels).unwrap(),
        2 => {
            let wide: Vec<u16> = bytemuck::pod_collect_to_vec(pixels);
            encoder.write_image::<colortype::Gray16>(width, height, &wide).unwrap();
        }
        _ => encoder.write_image::<colortype::RGB8>(width, height, pixels).unwrap(),
    }
    file.into_inner()
}

#[test]
fn the_first_tiff_tells_channels_and_type_and_one_that_differs_is_a_bad_sample() {
    let gray = |n: u8| tiff(2, 3, &[n; 6]);
    let dir = folder(&[("a/1.tif", gray(1)), ("a/2.tif", tiff(2, 3, &[9; 12])), ("b/3.tiff", gray(3))]);
    let dataset = sound(at(dir.path()));
    let image = FieldKind::Image { channels: 1, size: Some((2, 3)), dtype: Some(DType::U8) };
    assert_eq!(dataset.schema().fields[0].kind, image);
    let error = batch(&dataset, Transform::new(), DType::U8).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("pixels of u16 where the dataset's are u8") && text.contains("2.tif"), "{text}");
    assert!(error.kind() == ErrorKind::Unsupported && error.context().record == Some(1));
    let skipped = block_on(async {
        let builder = Loader::builder(Arc::clone(&dataset)).batch_size(3).dtype(DType::U8).device(infeed::Device::Cpu);
        let loader = builder.on_bad_sample(OnBadSample::Skip { at_most: 1 }).transform(Transform::new());
        loader.build().await.unwrap().epoch(0).next().await.unwrap().unwrap()
    });
    assert_eq!(
        (skipped.valid(), skipped["image"].to_vec::<u8>().unwrap()[..12].to_vec()),
        (2, [[1; 6], [3; 6]].concat())
    );

    // Sizes may differ, where the transform makes them one; another number of channels may not.
    let dir = folder(&[("1.tif", gray(1)), ("2.tif", tiff(4, 4, &[2; 16])), ("3.tif", tiff(2, 3, &[3; 18]))]);
    let dataset = sound(at(dir.path()));
    assert_eq!(dataset.schema().fields[0].kind, FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U8) });
    let error = batch(&dataset, Transform::new().resize_exact(4, 4), DType::U8).unwrap_err();
    assert!(error.to_string().contains("image of 3 channels where rows have 1"), "{error}");
    // Among other images a TIFF is an image like them.
    let mut png = std::io::Cursor::new(Vec::new());
    image::RgbImage::from_pixel(3, 2, image::Rgb([4, 5, 6])).write_to(&mut png, image::ImageFormat::Png).unwrap();
    let dir = folder(&[("1.tif", gray(1)), ("2.png", png.into_inner())]);
    let all = batch(&sound(at(dir.path())), Transform::new().center_crop(1), DType::U8).unwrap();
    assert_eq!(all["image"].to_vec::<u8>().unwrap(), [1, 1, 1, 4, 5, 6]);
    let dir = folder(&[("1.tif", b"II*\0nothing".to_vec())]);
    fails(at(dir.path()), ErrorKind::Corrupt, &["TIFF", "1.tif"]);
}

#[test]
fn files_of_channels_make_one_image() {
    let plane = |n: u8| tiff(2, 3, &[n, n + 1, n + 2, n + 3, n + 4, n + 5]);
    let files = [
        ("x/s1_gfp.tif", plane(10)),
        ("x/s1_dapi.tif", plane(0)),
        ("y/s1_gfp.tif", plane(30)),
        ("y/s1_dapi.tif", plane(20)),
    ];
    let dir = folder(&files);
    let dataset = sound(at(dir.path()).channels("{name}_{channel}.tif"));
    assert_eq!(
        (dataset.len(), &dataset.schema().classes.as_ref().unwrap()[..]),
        (2, &["x".to_owned(), "y".to_owned()][..])
    );
    let all = batch(&dataset, Transform::new(), DType::U8).unwrap();
    assert_eq!((all["image"].shape(), all["label"].to_vec::<i64>().unwrap()), (&[2, 2, 2, 3][..], vec![0, 1]));
    assert!(all["image"].to_vec::<u8>().unwrap().into_iter().eq((0..6).chain(10..16).chain(20..26).chain(30..36)));
    // The order asked for; and only the rows that a crop reads.
    let dataset = sound(at(dir.path()).channels("{name}_{channel:gfp,dapi}.tif"));
    let all = batch(&dataset, Transform::new().center_crop(1), DType::U8).unwrap();
    assert_eq!(all["image"].to_vec::<u8>().unwrap(), [11, 1, 31, 21]);

    fs::write(dir.path().join("y/s1_gfp.tif"), tiff(3, 2, &[0; 6])).unwrap();
    let dataset = sound(at(dir.path()).channels("{name}_{channel}.tif"));
    let error = batch(&dataset, Transform::new().resize_exact(2, 2), DType::U8).unwrap_err().to_string();
    assert!(error.contains("channel 1 is of 2x3 pixels") && error.contains("channel 0 of 3x2"), "{error}");
    fs::remove_file(dir.path().join("y/s1_gfp.tif")).unwrap();
    let missing = ["`y/s1` has no file of channel gfp", "`y/s1_gfp.tif`"];
    fails(at(dir.path()).channels("{name}_{channel}.tif"), ErrorKind::NotFound, &missing);
}

#[test]
fn masks_take_the_geometry_of_their_images_and_keep_their_values() {
    // Images whose pixels are 10 times the mask's.
    let pixels = |n: u8| (0..64u8).map(move |i| n + (i / 8 + i % 8) % 5).collect::<Vec<u8>>();
    let times = |pixels: Vec<u8>| pixels.into_iter().map(|p| p * 10).collect::<Vec<u8>>();
    let files: Vec<(String, Vec<u8>)> = (0..12u8)
        .flat_map(|n| {
            let (mask, image) = (pixels(n), times(pixels(n)));
            [(format!("masks/{n:02}.tif"), tiff(8, 8, &mask)), (format!("images/{n:02}.tif"), tiff(8, 8, &image))]
        })
        .collect();
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(name, file)| (&**name, file.clone())).collect();
    let dir = folder(&files);
    let dataset = sound(at(dir.path()));
    assert_eq!(dataset.len(), 12);
    assert!(!dataset.schema().fields[0].mask && dataset.schema().fields[1].mask);

    let moved = Transform::new().random_crop(6, 1).horizontal_flip(0.5).vertical_flip(0.5);
    let all = batch(&dataset, moved, DType::U8).unwrap();
    let (image, mask) = (all["image"].to_vec::<u8>().unwrap(), all["mask"].to_vec::<u8>().unwrap());
    assert_eq!((all["mask"].shape(), all["mask"].dtype()), (&[12, 1, 6, 6][..], DType::U8));
    assert!(image.iter().zip(&mask).all(|(image, mask)| *image == mask * 10), "the same draws");

    // Resized, normalised, blanked: the mask has values that it had.
    let blended = Transform::new().random_resized_crop(20).normalize([0.5], [0.2]).cutout(9);
    let all = batch(&dataset, blended, DType::F32).unwrap();
    let mask = all["mask"].to_vec::<u8>().unwrap();
    for (n, row) in mask.chunks(400).enumerate() {
        let n = n as u8;
        assert!(row.iter().all(|v| (n..n + 5).contains(v)), "no value is made up in mask {n}");
    }
    assert_eq!(all["image"].dtype(), DType::F32);

    fs::write(dir.path().join("masks/03.tif"), tiff(4, 8, &[0; 32])).unwrap();
    let dataset = block_on(at(dir.path()).into_future()).unwrap();
    let error = batch(&dataset, Transform::new().resize_exact(4, 4), DType::U8).unwrap_err().to_string();
    assert!(error.contains("a mask of 8x4 pixels for an image of 8x8"), "{error}");
    fs::remove_file(dir.path().join("masks/03.tif")).unwrap();
    fails(at(dir.path()), ErrorKind::NotFound, &["`images/03.tif` has no mask", "`masks/00.tif`"]);
}
