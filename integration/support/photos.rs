//! Photographs in folders of their classes: small, and the same bytes each time.

use std::{fs, path::Path, sync::OnceLock};

use jpeg_encoder::{ColorType, Encoder};
use tempfile::TempDir;

use super::noise;

/// A JPEG of slopes and some grain, another for each number.
pub(crate) fn jpeg(n: usize, height: u16, width: u16) -> Vec<u8> {
    let row = usize::from(width) * 3;
    let value = |(i, grain): (usize, u8)| {
        let (x, y, channel) = (i % row * 80 / row, i / row * 80 / usize::from(height), i % 3);
        (x * (channel + 1) / 3 + y + n % 8 * 5) as u8 + grain / 8
    };
    let pixels: Vec<u8> = noise(n as u64, row * usize::from(height)).into_iter().enumerate().map(value).collect();
    let mut file = Vec::new();
    Encoder::new(&mut file, 90).encode(&pixels, width, height, ColorType::Rgb).unwrap();
    file
}

/// Deals so many to the folders of classes in turn, as ImageNet lies on disks.
pub(crate) fn write(dir: &Path, count: usize, classes: usize) {
    for n in 0..count {
        let class = format!("n{:08}", n % classes);
        fs::create_dir_all(dir.join(&class)).unwrap();
        let file = jpeg(n, 120, 120 + n as u16 % 5 * 16);
        fs::write(dir.join(&class).join(format!("{class}_{n}.JPEG")), file).unwrap();
    }
}

/// As many as [`photos`] has.
pub(crate) const COUNT: usize = 24;

/// Photographs of 4 classes, made once.
pub(crate) fn photos() -> &'static str {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    let make = || {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), COUNT, 4);
        dir
    };
    DIR.get_or_init(make).path().to_str().unwrap()
}
