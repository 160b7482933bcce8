//! The photographs: a folder of class folders, or made-up ones of the same sizes.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use infeed::{
    Error, ErrorKind, Result,
    codec::{ImageCodec, ImageHeader, Jpeg},
    internal::nvjpeg::Coded,
};

use super::Scale;

/// Photographs, looked for when they are first needed.
pub(super) struct Photos {
    folder: Option<PathBuf>,
    made: Option<tempfile::TempDir>,
    count: u32,
    files: Option<Arc<[Photo]>>,
}

/// A JPEG in memory.
pub(super) struct Photo {
    pub(super) file: Vec<u8>,
    pub(super) header: ImageHeader,
}

/// Files that are held in memory, at most.
const MOST: usize = 1024;

impl Photos {
    pub(super) fn new(folder: Option<PathBuf>, scale: Scale) -> Self {
        Self { folder, made: None, count: scale.of(512, 256, 40), files: None }
    }

    /// A folder of class folders.
    pub(super) fn folder(&mut self) -> Result<PathBuf> {
        if let Some(folder) = &self.folder {
            return Ok(folder.clone());
        }
        // A RAM disk where there is one.
        let shm = Path::new("/dev/shm");
        let made = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        let made = made.and_then(|made| make(made.path(), self.count).map(|()| made));
        let made = made.map_err(|e| Error::new(ErrorKind::Io, "photographs can't be made").with_source(e))?;
        let folder = made.path().to_path_buf();
        self.made = Some(made);
        self.folder = Some(folder.clone());
        Ok(folder)
    }

    /// Sequential JPEGs of the folder.
    pub(super) fn files(&mut self) -> Result<Arc<[Photo]>> {
        if let Some(files) = &self.files {
            return Ok(Arc::clone(files));
        }
        let folder = self.folder()?;
        let unread = |e| {
            let error = Error::new(ErrorKind::Io, "photographs can't be read");
            error.with_source(e).at_object(folder.display().to_string())
        };
        let mut paths = Vec::new();
        collect(&folder, &mut paths).map_err(unread)?;
        // Evenly spread: those of a class may be alike, and of one size.
        let step = paths.len().div_ceil(MOST).max(1);
        let read = |path: &PathBuf| fs::read(path).map(Photo::new).transpose();
        let files = paths.iter().step_by(step).filter_map(read).collect::<io::Result<Vec<_>>>().map_err(unread)?;
        if files.is_empty() {
            return Err(
                Error::config("no sequential JPEG among the photographs").with_hint("name a folder with --photos")
            );
        }
        let files: Arc<[Photo]> = files.into();
        self.files = Some(Arc::clone(&files));
        Ok(files)
    }
}

impl Photo {
    fn new(file: Vec<u8>) -> Option<Self> {
        Coded::parse(&file)?;
        let header = Jpeg::new().header(&file).ok()?;
        Some(Self { file, header })
    }

    pub(super) fn coded(&self) -> Coded<'_> {
        Coded::parse(&self.file).expect("as when it was read")
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut paths: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn make(folder: &Path, count: u32) -> io::Result<()> {
    for n in 0..count {
        let (w, h) = (480 + (n % 3) * 20, 340 + (n % 5) * 20);
        // Smooth shapes with some grain: about 0.4 bytes a pixel at quality 90, as photographs have.
        let pixels: Vec<u8> = (0..h * w)
            .flat_map(|i| {
                let (x, y) = ((i % w) as f32, (i / w) as f32);
                let grain = (i.wrapping_mul(2_654_435_761).wrapping_add(n) >> 27) as f32;
                let wave = |p: f32| 110.0 + 70.0 * (x / (17.0 + p)).sin() * (y / (23.0 + n as f32 % 7.0)).cos() + grain;
                [wave(0.0) as u8, wave(5.0) as u8, wave(9.0) as u8]
            })
            .collect();
        let class = folder.join(format!("class{:02}", n % 10));
        fs::create_dir_all(&class)?;
        let mut file = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut file, 90);
        encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2);
        encoder.encode(&pixels, w as u16, h as u16, jpeg_encoder::ColorType::Rgb).map_err(io::Error::other)?;
        fs::write(class.join(format!("{n:05}.jpg")), file)?;
    }
    Ok(())
}
