//! Patches of CT and PET with their mask, half of them centred on the lesion: data for a segmentation network.
//!
//! `cargo run --release --example segmentation [FOLDER]`, where `FOLDER/PATIENT/` holds `ct.nrrd`, `pet.nrrd` and
//! `mask.nrrd` (or `.nii.gz`). Without a folder it makes up four small patients.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{fs, path::Path, sync::Arc};

use futures::StreamExt;
use infeed::{
    DType, Loader, Order, open,
    transform::{Axis, Transform},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (made, given) = (tempfile::tempdir()?, std::env::args().nth(1));
    let (folder, patch) = match &given {
        Some(folder) => (Path::new(folder), 96),
        None => {
            (0..4).try_for_each(|patient| make_patient(&made.path().join(format!("patient{patient}"))))?;
            (made.path(), 24)
        }
    };

    // `image` has two channels. Six samples of each patient, each a different patch.
    let dataset = open(folder.to_string_lossy())
        .field("image", ["ct", "pet"])
        .field("mask", ["mask"])
        .samples_per_patient(6)
        .await?;
    let transform = Transform::new()
        .patch([patch; 3], 0.5)
        .flip_axis(Axis::Z, 0.5)
        .rot90([Axis::Y, Axis::X], 0.5)
        .window(-1000.0, 1000.0);
    // Keep a patient's samples close together in the order, so that few volumes are in memory at a time.
    let loader = Loader::builder(Arc::clone(&dataset))
        .batch_size(4)
        .order(Order::Blocks { seed: 42, window: 12, lanes: None })
        .transform(transform)
        .dtype(DType::F32)
        .build()
        .await?;

    let patients = dataset.schema().names_of("patient").unwrap_or_default();
    let mut batches = loader.epoch(0);
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        // [4, 2, Z, Y, X] f32 and [4, 1, Z, Y, X] u8, with the same patch and flips.
        let (image, mask) = (batch["image"].to_host()?, batch["mask"].to_host()?);
        let (image, mask) = (image.as_slice::<f32>().expect("f32"), mask.as_slice::<u8>().expect("masks are u8"));
        let who = batch["patient"].to_host()?;
        let who: Vec<&str> =
            who.as_slice::<i64>().expect("indices").iter().map(|p| patients[*p as usize].as_str()).collect();
        let lesion = mask.iter().filter(|v| **v > 0).count() as f64 / mask.len() as f64;
        let mean = image.iter().map(|v| f64::from(*v)).sum::<f64>() / image.len() as f64;
        println!("{:?} {who:?}: mean {mean:.3}, lesion {:.1} %", batch["image"].shape(), 100.0 * lesion);
    }
    println!("{:?}", batches.report().data_wait);
    Ok(())
}

/// A bright ball in noise, 40 voxels along each side, as plain NRRD files.
fn make_patient(folder: &Path) -> std::io::Result<()> {
    const SIDE: i32 = 40;
    fs::create_dir_all(folder)?;
    let inside = |v: i32| {
        let at = [v / (SIDE * SIDE), v / SIDE % SIDE, v % SIDE];
        at.iter().map(|a| (a - 25).pow(2)).sum::<i32>() < 60
    };
    let write = |name: &str, dtype: &str, voxels: Vec<u8>| {
        let header = format!(
            "NRRD0004\ntype: {dtype}\ndimension: 3\nsizes: {SIDE} {SIDE} {SIDE}\nspacings: 1 1 2\n\
             endian: little\nencoding: raw\n\n"
        );
        fs::write(folder.join(name), [header.as_bytes(), &voxels].concat())
    };
    let voxels = 0..SIDE * SIDE * SIDE;
    let noise = |v: i32| (v.wrapping_mul(1_103_515_245) >> 16) % 50;
    let ct = voxels.clone().flat_map(|v| ((if inside(v) { 60 } else { -800 } + noise(v)) as i16).to_le_bytes());
    write("ct.nrrd", "int16", ct.collect())?;
    let pet = voxels.clone().flat_map(|v| (if inside(v) { 9.0 } else { 0.5 } + noise(v) as f32 / 100.0).to_le_bytes());
    write("pet.nrrd", "float", pet.collect())?;
    write("mask.nrrd", "uint8", voxels.map(|v| u8::from(inside(v))).collect())
}
