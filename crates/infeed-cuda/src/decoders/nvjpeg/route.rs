//! Which classes may decode a file, from its header alone.
//!
//! | file | adaptive | fixed |
//! |---|---|---|
//! | sequential, 4:4:4, 4:2:2, 4:2:0, 4:4:0 or gray | engines, CPU | engines or CPU, by record |
//! | the same with more than a million pixels | engines, hybrid, CPU | hybrid |
//! | progressive; other subsampling; CMYK, YCCK | hybrid, CPU | hybrid |
//! | stored as RGB; truncated; another marker in the image data; above `max_image_bytes`; rotated by its orientation; not a JPEG | CPU | CPU |
//! | decoded by a codec that is not [interchangeable](ImageCodec::is_interchangeable) | CPU | CPU |
//!
//! With the adaptive split, GPU cores that decode batches share the files of the engines: whichever is idle takes the
//! next. Without engines and cores, hybrid replaces them; without hybrid too, the CPU. If there are engines or such
//! cores, hybrid gets no ordinary images: its Huffman pass costs as much CPU time as a whole decode by the CPU class.

use std::sync::Arc;

use infeed_core::random::hash64;
use infeed_data::{Sample, Value};
use infeed_jpeg::Colour;
use infeed_pixels::codec::{
    ClassSet, GpuSplit, ImageCodec, ImageHeader, Item,
    jpeg::JpegHeader,
    reader::{codec_of, header_by},
};

use crate::nvjpeg::Chroma;

/// Huffman decoding on the GPU by nvJPEG pays for more pixels than this.
pub(super) const LARGE: u64 = 1_000_000;
/// The number of decode threads that equal one engine: next to 14 threads, the 7 engines of an H200 decoded 59 % of
/// photographs of 500x375 (benches/results/2026-11-27-gpu.md).
const THREADS_OF_AN_ENGINE: f64 = 2.9;

/// The indices of the classes that a decoder has.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    pub(super) cpu: usize,
    pub(super) hardware: Option<usize>,
    pub(super) cores: Option<usize>,
    pub(super) hybrid: Option<usize>,
    /// The codecs that decode files on the CPU, and parse the headers for all classes.
    pub(super) codecs: Arc<[Arc<dyn ImageCodec>]>,
    pub(super) split: GpuSplit,
    /// The share of ordinary images for the engines if the split is fixed, in units of 2^-32.
    pub(super) share: u64,
    /// Files that need more memory on the CPU are routed to the CPU, which refuses them. So whether an image is too
    /// large does not depend on which class was idle.
    pub(super) max_image_bytes: u64,
}

/// The kind of a file, as far as it decides who may decode it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Cpu,
    Ordinary,
    Large,
    Odd,
}

/// The share of images for `engines` next to `threads` CPU threads, in units of 2^-32.
pub(super) fn share(engines: u32, threads: usize) -> u64 {
    let engines = f64::from(engines) * THREADS_OF_AN_ENGINE;
    (engines / (engines + threads as f64) * 4_294_967_296.0) as u64
}

impl Routes {
    /// The classes for an item. `usable`: classes that have not given up. Stores the file's header in the item.
    pub(super) fn route(&self, item: &mut Item, usable: ClassSet) -> ClassSet {
        let record = item.record;
        let file = item.sample.as_ref().ok().and_then(file_of).filter(|file| file.starts_with(&[0xff, 0xd8]));
        // The CPU class finds the same error again and reports it.
        let codec = file.and_then(|file| codec_of(&self.codecs, file).ok());
        let header = file.zip(codec).and_then(|(file, codec)| header_by(codec, file).ok());
        let kind = match (file, &header) {
            // A user's codec may decode JPEGs differently, and only the CPU class calls it.
            (Some(file), Some(header)) if codec.is_some_and(ImageCodec::is_interchangeable) => self.kind(file, header),
            _ => FileKind::Cpu,
        };
        item.header = header;
        let [hardware, cores, hybrid] =
            [self.hardware, self.cores, self.hybrid].map(|class| class.filter(|class| usable.contains(*class)));
        let cpu = ClassSet::only(self.cpu);
        let with = |set: ClassSet, class: Option<usize>| class.map_or(set, |class| ClassSet(set.0 | 1 << class));
        let one = |class: Option<usize>| class.map_or(cpu, ClassSet::only);
        match (kind, self.split) {
            (FileKind::Cpu, _) => cpu,
            (FileKind::Ordinary, GpuSplit::Adaptive) if hardware.or(cores).is_some() => {
                with(with(cpu, hardware), cores)
            }
            (FileKind::Ordinary, GpuSplit::Adaptive) => with(cpu, hybrid),
            (FileKind::Large, GpuSplit::Adaptive) => with(with(with(cpu, hardware), cores), hybrid),
            (FileKind::Odd, GpuSplit::Adaptive) => with(cpu, hybrid),
            (FileKind::Large | FileKind::Odd, GpuSplit::Fixed) => one(hybrid),
            // Hashed, as neighbouring records may be similar.
            (FileKind::Ordinary, GpuSplit::Fixed) if hash64(record) >> 32 < self.share => one(hardware),
            (FileKind::Ordinary, GpuSplit::Fixed) => cpu,
        }
    }

    fn kind(&self, file: &[u8], header: &ImageHeader) -> FileKind {
        let Ok(JpegHeader { file: header, turn }) = header.own() else { return FileKind::Cpu };
        // RGB is rare, and decoders differ in how they treat it.
        if header.colour() == Colour::Rgb
            || !turn.is_upright()
            || header.peak_bytes() > self.max_image_bytes
            || !header.is_whole(file)
        {
            return FileKind::Cpu;
        }
        let ink = matches!(header.colour(), Colour::Cmyk | Colour::Ycck);
        if ink || header.is_progressive() || Chroma::of(header) == Chroma::Other {
            return FileKind::Odd;
        }
        if u64::from(header.height()) * u64::from(header.width()) > LARGE {
            FileKind::Large
        } else {
            FileKind::Ordinary
        }
    }
}

/// The file, if it is the sample's only image. Several views of it share the same bytes in memory.
pub(super) fn file_of(sample: &Sample) -> Option<&[u8]> {
    let is_image = |value: &&Value| matches!(value, Value::Encoded(_) | Value::Channels(_) | Value::Pixels { .. });
    let mut images = sample.values.iter().filter(is_image);
    let Some(Value::Encoded(file)) = images.next() else { return None };
    let is_same = |value: &Value| matches!(value, Value::Encoded(other) if (other.as_ptr(), other.len()) == (file.as_ptr(), file.len()));
    images.all(is_same).then_some(file)
}

#[cfg(test)]
mod tests {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    use std::ops::Range;

    use super::*;
    use infeed_core::{error::Result, random::SampleRng};
    use infeed_pixels::codec::{Jpeg, PixelBuffer};

    const CPU: u32 = 1;
    const HARDWARE: u32 = 2;
    const HYBRID: u32 = 4;

    fn routes(split: GpuSplit) -> Routes {
        let (hardware, hybrid) = (Some(1), Some(2));
        let codecs: Arc<[Arc<dyn ImageCodec>]> = vec![Arc::new(Jpeg::new()) as Arc<dyn ImageCodec>].into();
        Routes { cpu: 0, hardware, cores: None, hybrid, codecs, split, share: share(7, 16), max_image_bytes: 64 << 20 }
    }

    fn item(record: u64, file: &[u8]) -> Item {
        let values = [Value::Label(1), Value::Encoded(file.to_vec().into())];
        Item::new(record, SampleRng::new(0, 0, record), Ok(Sample { values: values.into_iter().collect() }))
    }

    struct Made {
        size: (u16, u16),
        colour: ColorType,
        sampling: SamplingFactor,
        progressive: bool,
    }

    const PLAIN: Made =
        Made { size: (40, 30), colour: ColorType::Rgb, sampling: SamplingFactor::F_2_2, progressive: false };

    fn encode(made: &Made) -> Vec<u8> {
        let (width, height) = made.size;
        let channels = match made.colour {
            ColorType::Luma => 1,
            ColorType::Rgb => 3,
            _ => 4,
        };
        let pixels: Vec<u8> =
            (0..usize::from(width) * usize::from(height) * channels).map(|n| (n * 7 % 251) as u8).collect();
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 80);
        encoder.set_sampling_factor(made.sampling);
        encoder.set_progressive(made.progressive);
        encoder.encode(&pixels, width, height, made.colour).unwrap();
        file
    }

    fn route(routes: &Routes, record: u64, file: &[u8]) -> u32 {
        routes.route(&mut item(record, file), ClassSet::ALL).0
    }

    #[test]
    fn files_go_where_the_table_says() {
        let (adaptive, fixed) = (routes(GpuSplit::Adaptive), routes(GpuSplit::Fixed));
        let ordinary = (CPU | HARDWARE, None);
        let odd = (CPU | HYBRID, Some(HYBRID));
        let cases = [
            ("4:2:0", PLAIN, ordinary),
            ("4:4:4", Made { sampling: SamplingFactor::F_1_1, ..PLAIN }, ordinary),
            ("4:2:2", Made { sampling: SamplingFactor::F_2_1, ..PLAIN }, ordinary),
            ("4:4:0", Made { sampling: SamplingFactor::F_1_2, ..PLAIN }, ordinary),
            ("gray", Made { colour: ColorType::Luma, ..PLAIN }, ordinary),
            ("progressive", Made { progressive: true, ..PLAIN }, odd),
            ("4:1:1", Made { sampling: SamplingFactor::F_4_1, progressive: true, ..PLAIN }, odd),
            ("ink", Made { colour: ColorType::Cmyk, sampling: SamplingFactor::F_1_1, ..PLAIN }, odd),
            ("ink as YCCK", Made { colour: ColorType::CmykAsYcck, sampling: SamplingFactor::F_1_1, ..PLAIN }, odd),
            ("large", Made { size: (1200, 900), ..PLAIN }, (CPU | HARDWARE | HYBRID, Some(HYBRID))),
        ];
        for (name, made, (expected, one)) in cases {
            let file = encode(&made);
            assert_eq!(route(&adaptive, 7, &file), expected, "{name}");
            match one {
                Some(one) => assert_eq!(route(&fixed, 7, &file), one, "{name}, fixed"),
                None => {
                    let engines = (0..4000).filter(|n| route(&fixed, *n, &file) == HARDWARE).count();
                    let cpu = (0..4000).filter(|n| route(&fixed, *n, &file) == CPU).count();
                    // 7 engines, each worth 2.9 threads, next to 16 threads: 56 %.
                    assert!(engines + cpu == 4000 && (2100..2380).contains(&engines), "{name}: {engines}");
                }
            }
        }
    }

    #[test]
    fn what_only_the_cpu_may_see_stays_there() {
        let file = encode(&PLAIN);
        let scan = file.windows(2).position(|w| w == [0xff, 0xda]).unwrap();
        let mut foreign = file.clone();
        let len = foreign.len();
        foreign[len - 40..len - 38].copy_from_slice(&[0xff, 0xe3]);
        let mut named = file.clone();
        // Without JFIF, three components with the ids R, G and B are RGB.
        let jfif = 4 + usize::from(u16::from_be_bytes([file[4], file[5]]));
        named.drain(2..jfif);
        let frame = named.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
        (0..3).for_each(|n| named[frame + 10 + 3 * n] = b"RGB"[n]);
        let progressive = encode(&Made { progressive: true, ..PLAIN });
        let cases: [(&str, &[u8]); 9] = [
            ("no end marker", &file[..len - 2]),
            ("half", &file[..len / 2]),
            ("header only", &file[..scan]),
            ("another marker in the scan", &foreign),
            ("RGB", &named),
            ("progressive, cut", &progressive[..progressive.len() - 20]),
            ("empty", b""),
            ("a PNG", b"\x89PNG\r\n\x1a\n"),
            ("SOI only", &[0xff, 0xd8]),
        ];
        for split in [GpuSplit::Adaptive, GpuSplit::Fixed] {
            for (name, file) in cases {
                assert_eq!(route(&routes(split), 1, file), CPU, "{name}");
            }
        }
        let small = Routes { max_image_bytes: 1000, ..routes(GpuSplit::Adaptive) };
        assert_eq!(route(&small, 1, &file), CPU, "too large for max_image_bytes");
        let image = || Value::Encoded(file.clone().into());
        let of = |values: Vec<Value>| {
            let mut item = item(1, &file);
            item.sample = Ok(Sample { values: values.into() });
            item
        };
        let mut two = of(vec![image(), image()]);
        assert_eq!(routes(GpuSplit::Adaptive).route(&mut two, ClassSet::ALL).0, CPU, "two images");
        assert!(two.header.is_none(), "of which image?");
        let mut views = of(vec![image(); 3]);
        assert_eq!(routes(GpuSplit::Adaptive).route(&mut views, ClassSet::ALL).0, CPU | HARDWARE, "three views of one");
        assert!(views.header.is_some());
    }

    #[test]
    fn images_that_are_turned_or_read_by_a_codec_of_ones_own_stay_on_the_cpu() {
        /// A user's codec for JPEGs.
        #[derive(Debug)]
        struct Own;
        impl ImageCodec for Own {
            fn name(&self) -> &'static str {
                "own"
            }
            fn recognises(&self, head: &[u8]) -> bool {
                Jpeg::new().recognises(head)
            }
            fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
                Jpeg::new().header(bytes)
            }
            fn decode(&self, _: &[u8], _: &ImageHeader, _: Range<u32>, _: &mut PixelBuffer) -> Result<()> {
                Ok(())
            }
        }
        let mut turned = encode(&PLAIN);
        // An EXIF segment: the image is upside down.
        let exif = b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0\0\0";
        turned.splice(2..2, exif.iter().copied());
        let with = |codec: Arc<dyn ImageCodec>| Routes { codecs: vec![codec].into(), ..routes(GpuSplit::Adaptive) };
        assert_eq!(route(&with(Arc::new(Jpeg::new())), 1, &turned), CPU | HARDWARE);
        assert_eq!(route(&with(Arc::new(Jpeg::new().orientation(true))), 1, &turned), CPU);
        // It returns our header, but its pixels may differ.
        assert_eq!(route(&with(Arc::new(Own)), 1, &turned), CPU);
        assert_eq!(route(&with(Arc::new(Own)), 1, &encode(&PLAIN)), CPU);
        assert_eq!(route(&with(Arc::new(Jpeg::new().fill(true))), 1, &encode(&PLAIN)), CPU);
    }

    #[test]
    fn the_header_that_was_read_travels_with_the_item() {
        for file in [encode(&PLAIN), encode(&Made { progressive: true, ..PLAIN })] {
            let mut item = item(3, &file);
            routes(GpuSplit::Adaptive).route(&mut item, ClassSet::ALL);
            let header = item.header.expect("it is a JPEG");
            assert_eq!((header.width, header.height), (40, 30));
            assert!(header.own::<JpegHeader>().is_ok());
        }
    }

    #[test]
    fn missing_classes_and_those_that_gave_up_are_left_out() {
        let (file, odd) = (encode(&PLAIN), encode(&Made { progressive: true, ..PLAIN }));
        let none = Routes { hardware: None, hybrid: None, ..routes(GpuSplit::Adaptive) };
        assert_eq!((route(&none, 1, &file), route(&none, 1, &odd)), (CPU, CPU));
        let cores = Routes { cores: Some(3), ..routes(GpuSplit::Adaptive) };
        assert_eq!((route(&cores, 1, &file), route(&cores, 1, &odd)), (CPU | HARDWARE | 8, CPU | HYBRID));
        let cores = Routes { hardware: None, cores: Some(1), ..routes(GpuSplit::Adaptive) };
        assert_eq!((route(&cores, 1, &file), route(&cores, 1, &odd)), (CPU | 2, CPU | HYBRID));
        let hybrid = Routes { hardware: None, hybrid: Some(1), ..routes(GpuSplit::Adaptive) };
        assert_eq!((route(&hybrid, 1, &file), route(&hybrid, 1, &odd)), (CPU | 2, CPU | 2));
        for split in [GpuSplit::Adaptive, GpuSplit::Fixed] {
            let route = |file| routes(split).route(&mut item(1, file), ClassSet::ALL.without(1).without(2)).0;
            assert_eq!((route(&file), route(&odd)), (CPU, CPU));
        }
    }
}
