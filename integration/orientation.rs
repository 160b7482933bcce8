//! How images lie: as they are stored unless it is asked for, then as their files say.

use std::{fs, path::Path};

use infeed::{
    DType, LoaderConfig, Transform,
    codec::Orientation,
    dataset::open,
    prepare::{Prepare, Store},
};

use crate::support::{builder, drain};

/// EXIF data of a camera that was held on its side.
const EXIF: &[u8] = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";

/// 16 rows of 32 pixels, of which the left half is white.
fn pixels() -> Vec<u8> {
    (0..16 * 32).flat_map(|n| [if n % 32 < 16 { 255 } else { 0 }; 3]).collect()
}

fn jpeg() -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut file, 95);
    encoder.add_app_segment(1, [b"Exif\0\0", EXIF].concat()).unwrap();
    encoder.encode(&pixels(), 32, 16, jpeg_encoder::ColorType::Rgb).unwrap();
    file
}

fn png() -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 32, 16);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer.write_chunk(png::chunk::ChunkType(*b"eXIf"), EXIF).unwrap();
    writer.write_image_data(&pixels()).unwrap();
    drop(writer);
    file
}

/// Whether the upper and the left half of the middle of each image are white.
fn halves(dir: &Path, orientation: Orientation) -> Vec<[bool; 2]> {
    let dataset = open(dir.to_str().unwrap()).blocking().unwrap();
    let config: LoaderConfig = serde_json::from_value(serde_json::json!({ "orientation": orientation })).unwrap();
    let loader = builder(dataset).config(config).batch_size(2).dtype(DType::U8);
    let loader = loader.transform(Transform::new().center_crop(8)).build_blocking().unwrap();
    assert_eq!(loader.config().orientation, orientation);
    let batch = drain(loader.epoch(0)).unwrap().remove(0);
    let image = batch["image"].to_vec::<u8>().unwrap();
    image
        .chunks(3 * 64)
        .map(|image| [&image[..32], &[image[0], image[8], image[56]]].map(|of| of.iter().all(|v| *v > 240)))
        .collect()
}

#[test]
fn images_are_turned_only_if_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.jpg"), jpeg()).unwrap();
    fs::write(dir.path().join("b.png"), png()).unwrap();
    assert_eq!(LoaderConfig::default().orientation, Orientation::Auto);
    assert_eq!(halves(dir.path(), Orientation::Ignore), [[false, true]; 2]);
    // What was left is above.
    assert_eq!(halves(dir.path(), Orientation::Apply), [[true, false]; 2]);
}

#[test]
fn folders_of_hugging_face_are_turned_by_default() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.jpg"), jpeg()).unwrap();
    fs::write(dir.path().join("b.png"), png()).unwrap();
    assert_eq!(halves(dir.path(), Orientation::Auto), [[false, true]; 2]);
    fs::write(dir.path().join("metadata.csv"), "file_name,text\na.jpg,x\nb.png,y\n").unwrap();
    assert_eq!(halves(dir.path(), Orientation::Auto), [[true, false]; 2]);
    assert_eq!(halves(dir.path(), Orientation::Ignore), [[false, true]; 2]);
}

#[tokio::test]
async fn what_is_encoded_anew_may_be_turned_first() {
    let (dir, shards) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.jpg"), jpeg()).unwrap();
    fs::write(dir.path().join("b.png"), png()).unwrap();
    for (name, orientation, halves_of) in
        [("turned", Orientation::Apply, [[true, false]; 2]), ("lying", Orientation::Ignore, [[false, true]; 2])]
    {
        let out = shards.path().join(name);
        let dataset = open(dir.path().to_str().unwrap()).await.unwrap();
        let prepare = Prepare::new(dataset, out.to_str().unwrap()).store(Store::Jpeg(95)).orientation(orientation);
        prepare.run().await.unwrap();
        // They say it no more.
        for read in [Orientation::Apply, Orientation::Ignore] {
            let out = out.clone();
            let found = tokio::task::spawn_blocking(move || halves(&out, read)).await.unwrap();
            assert_eq!(found, halves_of, "{name} {read:?}");
        }
    }
}

#[test]
fn boxes_of_yolo_are_those_of_the_upright_image() {
    for (name, image) in [("a.jpg", jpeg()), ("a.png", png())] {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["images", "labels"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("images").join(name), image).unwrap();
        fs::write(dir.path().join("labels/a.txt"), "0 0.5 0.25 1 0.5\n").unwrap();
        let dataset = open(dir.path().to_str().unwrap()).blocking().unwrap();
        let first = |orientation| {
            let config: LoaderConfig =
                serde_json::from_value(serde_json::json!({ "orientation": orientation })).unwrap();
            let loader = builder(std::sync::Arc::clone(&dataset)).config(config).batch_size(1).dtype(DType::U8);
            let loader = loader.transform(Transform::new().pad_to(32, 32));
            drain(loader.build_blocking().unwrap().epoch(0)).map(|mut batches| batches.remove(0))
        };
        // The upper half of an image of 32 rows: its white part.
        let batch = first(Orientation::Auto).unwrap();
        let boxes = batch.instances("instances").unwrap().boxes().to_vec();
        assert_eq!(boxes, Some(vec![0.0_f32, 0.0, 16.0, 16.0]), "{name}");
        let error = first(Orientation::Ignore).unwrap_err().to_string();
        assert!(
            error.contains("boxes of an image of 32x16 for one of 16x32") && error.contains("orientation"),
            "{error}"
        );
    }
}
