//! Measures the JPEG decoder without a loader: decodes all files of a folder from memory to RGB, on this thread.
//!
//! `cargo run --release --example decode -- FOLDER [EPOCHS]` prints a line of JSON: images and megabytes a second, and
//! the sum of all pixels, to compare with other decoders. `benches/peers` runs it with others.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    time::Instant,
};

use infeed::{
    Error, Result,
    codec::{ImageCodec, Jpeg, PixelBuffer},
};
use serde_json::json;

fn main() -> Result<()> {
    let mut args = env::args_os().skip(1);
    let usage = || Error::config("no folder is given").with_hint("run it as decode FOLDER [EPOCHS]");
    let folder = PathBuf::from(args.next().ok_or_else(usage)?);
    let epochs = args.next().and_then(|word| word.to_str()?.parse().ok()).unwrap_or(1);
    let mut files = Vec::new();
    collect(&folder, &mut files)?;

    let codec = Jpeg::new();
    // Its memory, and the tables in it, are reused for all images.
    let mut pixels = PixelBuffer::default();
    let mut decode = |file: &[u8]| -> Result<u64> {
        let header = codec.header(file)?;
        codec.decode(file, &header, 0..header.height, &mut pixels)?;
        Ok(pixels.data[..header.len_bytes() as usize].iter().map(|&value| u64::from(value)).sum())
    };
    let start = Instant::now();
    let first = files.first().map(|file| decode(file)).transpose()?;
    let first_seconds = first.map(|_| start.elapsed().as_secs_f64());
    let mut sum = 0;
    for file in &files {
        sum += decode(file)?;
    }

    let start = Instant::now();
    let mut bytes = 0;
    for _ in 0..epochs {
        for file in &files {
            let header = codec.header(file)?;
            codec.decode(file, &header, 0..header.height, &mut pixels)?;
            bytes += header.len_bytes();
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let images = epochs * files.len();
    println!(
        "{}",
        json!({
            "images": images,
            "seconds": seconds,
            "images_per_second": images as f64 / seconds,
            "megabytes_per_second": bytes as f64 / seconds / 1e6,
            "first_batch_seconds": first_seconds,
            "peak_rss_bytes": peak_rss(),
            "sum": sum,
        })
    );
    Ok(())
}

/// The JPEGs below a folder, in the order of their names.
fn collect(folder: &Path, files: &mut Vec<Vec<u8>>) -> Result<()> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut paths: Vec<_> =
        entries.map_err(|error| unreadable(folder, &error))?.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files)?;
            continue;
        }
        let file = fs::read(&path).map_err(|error| unreadable(&path, &error))?;
        if Jpeg::new().recognises(&file[..file.len().min(64)]) {
            files.push(file);
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::config(format!("{} can't be read: {error}", path.display()))
}

/// Peak memory of this process; only on Linux.
fn peak_rss() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
