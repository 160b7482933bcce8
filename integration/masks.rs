//! Masks hold labels, whatever the file: indices of palettes, bits, 16 bits; and errors name the mask.

use std::{fs, path::Path, sync::Arc};

use infeed::{
    Batch, DType, Error, ErrorKind, Transform,
    dataset::{FieldKind, Open, open, open_together},
    prepare::Prepare,
};
use png::{BitDepth, ColorType};

use crate::{
    prepare::wait,
    shards::pack,
    support::{builder, drain},
};

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn png(width: u32, colour: ColorType, depth: BitDepth, rows: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let pitch = (width as usize * colour.samples() * depth as usize).div_ceil(8);
    let mut encoder = png::Encoder::new(&mut file, width, (rows.len() / pitch) as u32);
    encoder.set_color(colour);
    encoder.set_depth(depth);
    if colour == ColorType::Indexed {
        encoder.set_palette((0..768u32).map(|n| (255 - n * 7 % 256) as u8).collect::<Vec<u8>>());
    }
    encoder.write_header().unwrap().write_image_data(rows).unwrap();
    file
}

/// An image of two rows of two pixels.
fn image() -> Vec<u8> {
    png(2, ColorType::Rgb, BitDepth::Eight, &[0, 9, 200, 1, 8, 100, 2, 7, 50, 3, 6, 25])
}

/// A TIFF of two rows of two values of a byte.
fn tiff(photometric: u16, samples: u16, pixels: &[u8]) -> Vec<u8> {
    tiff_of(8, photometric, samples, pixels)
}

fn tiff_of(bits: u32, photometric: u16, samples: u16, pixels: &[u8]) -> Vec<u8> {
    let mut file = b"II*\0\x08\0\0\0".to_vec();
    let palette = photometric == 3;
    let mut entries = vec![
        (256, 3, 1, 2),
        (257, 3, 1, 2),
        (258, 3, 1, bits),
        (259, 3, 1, 1),
        (262, 3, 1, photometric.into()),
        (273, 4, 1, 0),
        (277, 3, 1, samples.into()),
        (279, 4, 1, pixels.len() as u32),
    ];
    if palette {
        entries.push((320, 3, 768, 0));
    }
    let end = 8 + 2 + 12 * entries.len() as u32 + 4;
    file.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, count, value) in entries {
        let value = match tag {
            273 => end,
            320 => end + pixels.len() as u32,
            _ => value,
        };
        file.extend([tag as u16, kind].map(u16::to_le_bytes).concat());
        file.extend([count, value].map(u32::to_le_bytes).concat());
    }
    file.extend([0; 4]);
    file.extend(pixels);
    if palette {
        file.extend((0..768u16).flat_map(|n| (65_535 - n * 80).to_le_bytes()));
    }
    file
}

/// The only batch of a folder of images and masks, and the type that the schema declares.
fn load(open: Open, transform: Transform) -> Result<(Batch, Option<DType>), Error> {
    let dataset = open.blocking()?;
    let field = &dataset.schema().fields[1];
    let FieldKind::Image { channels: 1, dtype, .. } = field.kind else { panic!("{field:?}") };
    assert!(field.mask, "{field:?}");
    let loader = builder(Arc::clone(&dataset))
        .batch_size(dataset.len() as usize)
        .dtype(DType::F32)
        .transform(transform)
        .build_blocking()?;
    Ok((drain(loader.epoch(0))?.remove(0), dtype))
}

fn labels(masks: &[(&str, Vec<u8>)]) -> Result<Vec<f32>, Error> {
    labels_said(masks, None)
}

/// The same, with a kind that the user gives.
fn labels_said(masks: &[(&str, Vec<u8>)], kind: Option<&str>) -> Result<Vec<f32>, Error> {
    let dir = tempfile::tempdir().unwrap();
    for (name, mask) in masks {
        let stem = name.split('.').next().unwrap();
        write(dir.path(), &format!("images/{stem}.png"), &image());
        write(dir.path(), &format!("masks/{name}"), mask);
    }
    // Normalised and turned: a mask takes the second alone.
    let transform = Transform::new().horizontal_flip(1.0).center_crop(2).normalize([0.5; 3], [0.2; 3]);
    let mut open = open(dir.path().to_str().unwrap());
    if let Some(kind) = kind {
        open = open.field("mask", [kind]);
    }
    let (batch, _) = load(open, transform)?;
    let mask = &batch["mask"];
    assert_eq!(mask.shape()[1..], [1, 2, 2]);
    Ok(match mask.dtype() {
        DType::U8 => mask.to_vec::<u8>().unwrap().into_iter().map(f32::from).collect(),
        _ => mask.to_vec::<f32>().unwrap(),
    })
}

#[test]
fn palettes_give_their_indices() {
    use ColorType::{Grayscale, Indexed, Rgb, Rgba};
    let want = [15.0, 0.0, 255.0, 1.0];
    let mut gif = Vec::new();
    let mut encoder = gif::Encoder::new(&mut gif, 2, 2, &[7; 768]).unwrap();
    let frame = gif::Frame { width: 2, height: 2, buffer: (&[0, 15, 1, 255][..]).into(), ..gif::Frame::default() };
    encoder.write_frame(&frame).unwrap();
    drop(encoder);
    let bmp = {
        let mut file = [&b"BM"[..], &[0; 8], &(54u32 + 1024).to_le_bytes(), &40u32.to_le_bytes()].concat();
        file.extend([2u32, 2].map(u32::to_le_bytes).concat());
        file.extend([1u16, 8].map(u16::to_le_bytes).concat());
        file.extend([0; 24]);
        file.extend((0..1024u32).map(|n| (n * 3 % 256) as u8));
        // From the bottom up, in whole words.
        file.extend([1, 255, 0, 0, 0, 15, 0, 0]);
        file
    };
    for (name, file) in [
        ("a.png", png(2, Indexed, BitDepth::Eight, &[0, 15, 1, 255])),
        ("a.tif", tiff(3, 1, &[0, 15, 1, 255])),
        ("a.tif", tiff(2, 3, &[0, 0, 0, 15, 15, 15, 1, 1, 1, 255, 255, 255])),
        ("a.png", png(2, Rgb, BitDepth::Eight, &[0, 0, 0, 15, 15, 15, 1, 1, 1, 255, 255, 255])),
        ("a.png", png(2, Rgba, BitDepth::Eight, &[0, 0, 0, 255, 15, 15, 15, 255, 1, 1, 1, 255, 255, 255, 255, 255])),
        ("a.bmp", bmp),
        ("a.gif", gif),
        ("a.pgm", b"P5 2 2 255 \x00\x0f\x01\xff".to_vec()),
    ] {
        assert_eq!(labels(&[(name, file)]).unwrap(), want, "{name}");
    }
    // A bit is 0 or 1, and 4 bits of a palette are 0 to 15.
    let bits = |colour| png(2, colour, BitDepth::One, &[0b0100_0000, 0b1100_0000]);
    assert_eq!(
        labels(&[("a.png", bits(Grayscale)), ("b.png", bits(Indexed))]).unwrap(),
        [1.0, 0.0, 1.0, 1.0].repeat(2)
    );
    let four = png(2, Indexed, BitDepth::Four, &[0x0f, 0x91]);
    assert_eq!(labels(&[("a.png", four)]).unwrap(), [15.0, 0.0, 1.0, 9.0]);
}

#[test]
fn sixteen_bits_stay_sixteen_bits() {
    let wide = || png(2, ColorType::Grayscale, BitDepth::Sixteen, &[0, 7, 1, 0, 2, 1, 255, 255]);
    let narrow = || png(2, ColorType::Grayscale, BitDepth::Eight, &[7, 0, 1, 255]);
    let want = [256.0, 7.0, 65_535.0, 513.0];
    assert_eq!(labels(&[("a.png", wide())]).unwrap(), want);
    assert_eq!(labels(&[("a.pgm", b"P5 2 2 65535 \x00\x07\x01\x00\x02\x01\xff\xff".to_vec())]).unwrap(), want);
    // Beside those of 8 bits.
    assert_eq!(labels(&[("a.png", narrow()), ("b.png", wide())]).unwrap(), [[0.0, 7.0, 255.0, 1.0], want].concat());
    // Of many masks only some are looked at when the dataset is opened: the others say it themselves.
    let mut masks: Vec<_> = ["a", "b", "c", "d", "e"].map(|name| (format!("{name}.png"), narrow())).into();
    masks[1].1 = wide();
    let masks: Vec<_> = masks.iter().map(|(name, file)| (&**name, file.clone())).collect();
    let error = labels(&masks).unwrap_err().to_string();
    assert!(error.contains("a mask of u16 where rows hold u8 (record 1, field mask, "), "{error}");
    assert!(error.contains("masks/b.png") && error.contains(r#"set field("mask", ["mask16"])"#), "{error}");
    assert_eq!(labels_said(&masks, Some("mask16")).unwrap()[4..8], want);
    assert!(labels_said(&masks, Some("mask")).unwrap_err().to_string().contains("mask16"));
    // The kind `mask` takes the type that opening finds, and `mask16` is more than what it finds in TIFFs.
    assert_eq!(labels_said(&[("a.png", wide())], Some("mask")).unwrap(), want);
    let mut tiffs: Vec<_> =
        ["a.tif", "b.tif", "c.tif", "d.tif", "e.tif"].map(|name| (name, tiff(1, 1, &[7, 0, 1, 255]))).into();
    tiffs[1].1 = tiff_of(16, 1, 1, &[7, 256, 513, 65_535u16].map(u16::to_le_bytes).concat());
    assert!(labels(&tiffs).unwrap_err().to_string().contains("a mask of u16 where rows hold u8"));
    assert_eq!(
        labels_said(&tiffs, Some("mask16")).unwrap()[..8],
        [[0.0, 7.0, 255.0, 1.0], [256.0, 7.0, 65_535.0, 513.0]].concat()
    );
}

#[test]
fn sixteen_bits_stay_in_tars() {
    let dir = tempfile::tempdir().unwrap();
    let wide = png(2, ColorType::Grayscale, BitDepth::Sixteen, &[0, 7, 1, 0, 2, 1, 255, 255]);
    let narrow = png(2, ColorType::Grayscale, BitDepth::Eight, &[7, 0, 1, 255]);
    let narrow_file = narrow.clone();
    let files = |mask: &str, first: &[u8], second: &[u8]| {
        [("0", first), ("1", second)]
            .into_iter()
            .flat_map(|(key, file)| [(format!("{key}.{mask}.png"), file.to_vec()), (format!("{key}.png"), image())])
            .collect::<Vec<_>>()
    };
    write(dir.path(), "named.tar", &pack(&files("seg", &wide, &narrow)));
    write(dir.path(), "said.tar", &pack(&files("gt", &wide, &narrow)));
    write(dir.path(), "late.tar", &pack(&files("seg", &narrow, &wide)));
    let values = |tar: &str, said: Option<(&str, &str)>| {
        let mut open = open(dir.path().join(tar).to_str().unwrap().to_owned());
        if let Some((name, kind)) = said {
            open = open.field(name, [kind]);
        }
        let dataset = open.blocking()?;
        let name = dataset.schema().fields[1].name.clone();
        let loader = builder(dataset).batch_size(2).transform(Transform::new().center_crop(2)).build_blocking()?;
        let batch = drain(loader.epoch(0))?.remove(0);
        Ok::<_, Error>(batch[&*name].to_vec::<f32>().unwrap())
    };
    let [wide, narrow] = [[7.0, 256.0, 513.0, 65_535.0], [7.0, 0.0, 1.0, 255.0]];
    assert_eq!(values("named.tar", None).unwrap(), [wide, narrow].concat());
    for kind in ["mask", "mask16"] {
        assert_eq!(values("said.tar", Some(("gt", kind))).unwrap(), [wide, narrow].concat());
    }
    // Shards that are made of them keep the files.
    let dataset = open(dir.path().join("named.tar").to_str().unwrap()).blocking().unwrap();
    wait(Prepare::new(dataset, dir.path().join("shards").display().to_string()).run()).unwrap();
    assert_eq!(values("shards", None).unwrap(), [wide, narrow].concat());
    // Also of several datasets, in any order.
    write(dir.path(), "narrow.tar", &pack(&files("seg", &narrow_file, &narrow_file)));
    let of = |tars: [&str; 2]| open_together(tars.map(|tar| open(dir.path().join(tar).to_str().unwrap().to_owned())));
    for tars in [["narrow.tar", "named.tar"], ["named.tar", "narrow.tar"]] {
        let dataset = wait(of(tars)).unwrap();
        let transform = Transform::new().center_crop(2);
        let loader = builder(dataset).batch_size(4).transform(transform).build_blocking().unwrap();
        let mut all = drain(loader.epoch(0)).unwrap().remove(0)["seg"].to_vec::<f32>().unwrap();
        all.rotate_left(if tars[0] == "narrow.tar" { 8 } else { 0 });
        assert_eq!(all, [wide, narrow, narrow, narrow].concat());
    }
    // The first sample is examined.
    let error = values("late.tar", None).unwrap_err().to_string();
    assert!(error.contains("(record 1, field seg, ") && error.contains(r#"set field("seg", ["mask16"])"#), "{error}");
    assert_eq!(values("late.tar", Some(("seg", "mask16"))).unwrap(), [narrow, wide].concat());
}

#[test]
fn an_error_about_a_mask_names_the_mask() {
    let coloured = png(2, ColorType::Rgb, BitDepth::Eight, &[0, 0, 0, 15, 15, 15, 1, 1, 1, 255, 0, 9]);
    let error = labels(&[("a.png", coloured.clone())]).unwrap_err();
    assert_eq!((error.kind(), error.context().field.as_deref()), (ErrorKind::Unsupported, Some("mask")));
    let text = error.to_string();
    assert!(text.contains("a mask that is coloured: its pixel in row 1, column 1 is [255.0, 0.0, 9.0]"), "{text}");
    assert!(text.contains("(record 0, field mask, ") && text.contains("masks/a.png)"), "{text}");
    let text = labels(&[("a.tif", tiff(2, 3, &[0, 0, 0, 15, 15, 15, 1, 1, 1, 255, 0, 9]))]).unwrap_err().to_string();
    assert!(text.contains("coloured") && text.contains("masks/a.tif)"), "{text}");
    let text = labels(&[("a.png", b"P5 x".to_vec())]).unwrap_err().to_string();
    assert!(text.contains("(record 0, field mask, ") && text.contains("masks/a.png)"), "{text}");

    // In any dataset that is made of the folder, and an image is called by its own name.
    let dir = tempfile::tempdir().unwrap();
    for (name, bad) in [("a", &coloured), ("b", &b"no image".to_vec())] {
        write(dir.path(), &format!("{name}/images/x.png"), if name == "a" { &coloured } else { bad });
        write(dir.path(), &format!("{name}/masks/x.png"), bad);
    }
    let at = |name: &str| open(dir.path().join(name).to_str().unwrap().to_owned());
    let both = open_together([at("a"), at("b")]);
    let both = futures::executor::block_on(both).unwrap();
    assert!(
        both.object_of(1, "mask").ends_with("b/masks/x.png") && both.object_of(1, "image").ends_with("b/images/x.png")
    );
    let loader = builder(both).batch_size(1).transform(Transform::new().center_crop(2)).build_blocking().unwrap();
    let text = drain(loader.epoch(0)).unwrap_err().to_string();
    assert!(text.contains("a/masks/x.png)"), "{text}");
}
