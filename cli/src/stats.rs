//! `infeed inspect --stats`: mean and standard deviation of each channel, in the form that `normalize` takes.

use std::sync::Arc;

use futures::{StreamExt, stream};
use infeed::{
    DType, Dataset, Error, ErrorKind,
    codec::{ImageCodec, PixelBuffer, codecs},
    dataset::{FieldKind, ImageInfo, SampleRng, Value},
    internal::kernels::channel_source,
};
use serde::Serialize;

use crate::{failure::Failure, out::Out, report, units};

/// Figures of one image field.
#[derive(Debug, Serialize)]
pub(crate) struct FieldStats {
    field: String,
    /// Sampled records, and those of them that could not be read.
    records: u64,
    unreadable: u64,
    first_error: Option<String>,
    channels: Vec<ChannelStats>,
    /// The step of a transform.
    normalize: Normalize,
}

#[derive(Debug, Serialize)]
struct ChannelStats {
    /// Mean of values in 0..1: u8 / 255, u16 / 65535, f32 unchanged.
    mean: f64,
    /// Standard deviation of the population.
    std: f64,
    /// Of stored values.
    min: f64,
    max: f64,
}

#[derive(Debug, Serialize)]
struct Normalize {
    op: &'static str,
    mean: Vec<f32>,
    std: Vec<f32>,
}

/// Reads `count` records, evenly spread, or all.
///
/// Integers are summed exactly, floats image by image in the order of records. So the figures do not depend on which
/// image is read first.
pub(crate) async fn of(dataset: &Arc<dyn Dataset>, count: Option<u64>) -> Result<Vec<FieldStats>, Failure> {
    let images: Vec<(usize, u32)> = dataset.schema().fields.iter().enumerate().filter_map(images).collect();
    if images.is_empty() {
        return Err(Failure::Failed("--stats: the dataset has no images".into()));
    }
    let all = dataset.len();
    let codecs = codecs();
    let count = count.unwrap_or(all).min(all);
    let spread = |n: u64| (u128::from(n) * u128::from(all) / u128::from(count.max(1))) as u64;
    let mut sums: Vec<Vec<Sums>> = images.iter().map(|(_, n)| vec![Sums::default(); *n as usize]).collect();
    let mut unreadable = 0;
    let mut first_error = None;
    let mut records = stream::iter(0..count).map(|n| read(dataset, spread(n))).buffered(16);
    while let Some((record, read)) = records.next().await {
        let counted = read.and_then(|values| {
            // Count all fields of a record or none.
            let mut of = Vec::with_capacity(images.len());
            for (field, channels) in &images {
                of.push(count_value(&values[*field], *channels, &codecs)?);
            }
            Ok(of)
        });
        match counted {
            Ok(of) => {
                for (sums, of) in sums.iter_mut().flatten().zip(of.iter().flatten()) {
                    sums.merge(of);
                }
            }
            Err(error) => {
                unreadable += 1;
                first_error
                    .get_or_insert_with(|| format!("{:#}", error.at_record(record).at_object(dataset.object(record))));
            }
        }
    }
    let of = |((field, _), sums): (&(usize, u32), &Vec<Sums>)| {
        let channels: Vec<ChannelStats> = sums.iter().map(Sums::stats).collect();
        let list = |pick: fn(&ChannelStats) -> f64| channels.iter().map(|c| pick(c) as f32).collect();
        let normalize = Normalize { op: "normalize", mean: list(|c| c.mean), std: list(|c| c.std) };
        let field = dataset.schema().fields[*field].name.clone();
        FieldStats { field, records: count, unreadable, first_error: first_error.clone(), channels, normalize }
    };
    Ok(images.iter().zip(&sums).map(of).collect())
}

fn images((at, field): (usize, &infeed::dataset::Field)) -> Option<(usize, u32)> {
    match &field.kind {
        // Labels have no mean.
        FieldKind::Image { channels, .. } if !field.mask => Some((at, u32::from(*channels))),
        _ => None,
    }
}

/// All values of one record.
pub(crate) async fn read(dataset: &Arc<dyn Dataset>, record: u64) -> (u64, Result<Vec<Value>, Error>) {
    let read = async {
        let plan = dataset.plan(record, SampleRng::new(0, 0, record))?;
        let mut bytes = Vec::with_capacity(plan.extents.len());
        for extent in &plan.extents {
            bytes.push(extent.read().await?);
        }
        for part in &plan.shared {
            let mut encoded = Vec::with_capacity(part.extents.len());
            for extent in &part.extents {
                encoded.push(extent.read().await?);
            }
            bytes.push(dataset.decode_shared(part.key, &encoded)?);
        }
        Ok(dataset.parse(record, &plan, &bytes)?.values.into_vec())
    };
    (record, read.await)
}

fn count_value(value: &Value, channels: u32, codecs: &[Arc<dyn ImageCodec>]) -> Result<Vec<Sums>, Error> {
    match value {
        Value::Encoded(file) => {
            let (info, pixels) = decode(file, codecs)?;
            count_pixels(&info, &pixels, channels)
        }
        Value::Channels(files) => {
            let mut all = Vec::with_capacity(files.len());
            for file in files.iter() {
                let (info, pixels) = decode(file, codecs)?;
                all.extend(count_pixels(&info, &pixels, 1)?);
            }
            Ok(all)
        }
        Value::Pixels { info, data } => count_pixels(info, data, channels),
        _ => Err(Error::new(ErrorKind::Internal, "an image field holds no image")),
    }
}

fn decode(file: &[u8], codecs: &[Arc<dyn ImageCodec>]) -> Result<(ImageInfo, Vec<u8>), Error> {
    let head = &file[..file.len().min(64)];
    let codec = codecs.iter().find(|codec| codec.recognises(head));
    let codec = codec.ok_or_else(|| Error::corrupt("no decoder knows this kind of file"))?;
    if let Some((info, at)) = codec.in_place(file)? {
        return Ok((info, file[at].to_vec()));
    }
    let header = codec.header(file)?;
    let peak = header.peak_bytes;
    if peak > 4 << 30 {
        return Err(Error::new(ErrorKind::OutOfMemory, format!("the image takes {peak} bytes to decode")));
    }
    let mut out = PixelBuffer::default();
    codec.decode(file, &header, 0..header.height, &mut out)?;
    out.data.truncate(header.len_bytes() as usize);
    Ok((header.info, out.data))
}

/// Sums of each of the field's channels in one image.
fn count_pixels(info: &ImageInfo, pixels: &[u8], channels: u32) -> Result<Vec<Sums>, Error> {
    let size = info.dtype.size();
    let area = info.height as usize * info.width as usize;
    let source = |c| channel_source(u32::from(info.channels), channels, c);
    let of = |c: u32| {
        let from = source(c).ok_or_else(|| {
            let what = format!("image of {} channels where the dataset's have {channels}", info.channels);
            Error::new(ErrorKind::Unsupported, what)
        })? as usize;
        let (start, step) = if info.planar { (from * area, 1) } else { (from, usize::from(info.channels)) };
        let values = (0..area).filter_map(|i| pixels.get((start + i * step) * size..)?.get(..size));
        Ok(Sums::of(info.dtype, values))
    };
    (0..channels).map(of).collect()
}

/// Sums of one channel.
#[derive(Clone, Debug)]
struct Sums {
    /// Number of integer values, which are summed on the scale of u16: u8 is multiplied by 257 (255 * 257 = 65535).
    whole: u64,
    sum: u128,
    squares: u128,
    /// Number of floats, their mean, and the sum of squared distances from it.
    floats: u64,
    mean: f64,
    distances: f64,
    min: f64,
    max: f64,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            whole: 0,
            sum: 0,
            squares: 0,
            floats: 0,
            mean: 0.0,
            distances: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        }
    }
}

impl Sums {
    fn of<'a>(dtype: DType, values: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let mut sums = Self::default();
        let mut whole = |value: u64, scale: u64| {
            let scaled = value * scale;
            sums.whole += 1;
            sums.sum += u128::from(scaled);
            sums.squares += u128::from(scaled * scaled);
            sums.min = sums.min.min(value as f64);
            sums.max = sums.max.max(value as f64);
        };
        match dtype {
            DType::U8 => values.for_each(|v| whole(u64::from(v[0]), 257)),
            DType::U16 => values.for_each(|v| whole(u64::from(u16::from_ne_bytes([v[0], v[1]])), 1)),
            _ => {
                let floats = values.map(|v| f64::from(f32::from_ne_bytes([v[0], v[1], v[2], v[3]])));
                let floats = floats.filter(|v| v.is_finite());
                sums.floats = floats.clone().count() as u64;
                sums.mean = floats.clone().sum::<f64>() / (sums.floats.max(1)) as f64;
                sums.distances = floats.clone().map(|v| (v - sums.mean).powi(2)).sum();
                sums.min = floats.clone().fold(sums.min, f64::min);
                sums.max = floats.fold(sums.max, f64::max);
            }
        }
        sums
    }

    fn merge(&mut self, other: &Self) {
        self.whole += other.whole;
        self.sum += other.sum;
        self.squares += other.squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        let floats = self.floats + other.floats;
        if floats > 0 {
            // Chan, Golub and LeVeque 1979.
            let (a, b, n) = (self.floats as f64, other.floats as f64, floats as f64);
            let apart = other.mean - self.mean;
            self.mean += apart * b / n;
            self.distances += other.distances + apart * apart * a * b / n;
            self.floats = floats;
        }
    }

    fn stats(&self) -> ChannelStats {
        const WHITE: f64 = 65_535.0;
        let mut all = Self::default();
        if self.whole > 0 {
            let n = u128::from(self.whole);
            // Exact until the last division: below 2^128 for 10^15 pixels.
            let spread = (n * self.squares).saturating_sub(self.sum * self.sum);
            all.floats = self.whole;
            all.mean = self.sum as f64 / n as f64 / WHITE;
            all.distances = spread as f64 / n as f64 / (WHITE * WHITE);
        }
        // Also correct for a dataset with both integers and floats.
        all.merge(&Self { whole: 0, sum: 0, squares: 0, ..self.clone() });
        let n = all.floats.max(1) as f64;
        ChannelStats { mean: all.mean, std: (all.distances / n).sqrt(), min: self.min, max: self.max }
    }
}

impl FieldStats {
    pub(crate) fn print(&self, out: &Out) -> Result<(), Failure> {
        let Self { field, records, unreadable, first_error, channels, normalize } = self;
        out.line(format_args!("\n{field}: {} records", units::count(*records)))?;
        if let Some(error) = first_error {
            out.words(format_args!("{unreadable} of them could not be read; first: {error}"))?;
        }
        let mut table = report::table();
        table.set_header(["channel", "mean", "std", "min", "max"]);
        for (c, ChannelStats { mean, std, min, max }) in channels.iter().enumerate() {
            table.add_row([c.to_string(), format!("{mean:.6}"), format!("{std:.6}"), min.to_string(), max.to_string()]);
        }
        out.line(table.trim_fmt())?;
        let list = |values: &[f32]| values.iter().map(|v| format!("{v:.6}")).collect::<Vec<_>>().join(", ");
        let (mean, std) = (list(&normalize.mean), list(&normalize.std));
        out.line(format_args!("{{\"op\": \"normalize\", \"mean\": [{mean}], \"std\": [{std}]}}"))?;
        out.line(format_args!(".normalize([{mean}], [{std}])"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_whatever_the_order_and_the_type() {
        let bytes: Vec<u8> = (0..=255).collect();
        let whole = Sums::of(DType::U8, bytes.chunks(1));
        let stats = whole.stats();
        assert_eq!((stats.mean, stats.min, stats.max), (0.5, 0.0, 255.0));
        // Of 0..=n-1 evenly: (n^2 - 1) / 12.
        assert!((stats.std - ((65_536.0f64 - 1.0) / 12.0).sqrt() / 255.0).abs() < 1e-15);
        let (a, b) = (Sums::of(DType::U8, bytes[..100].chunks(1)), Sums::of(DType::U8, bytes[100..].chunks(1)));
        let merge = |first: &Sums, second: &Sums| {
            let mut all = Sums::default();
            all.merge(first);
            all.merge(second);
            (all.stats().mean.to_bits(), all.stats().std.to_bits())
        };
        assert_eq!(merge(&a, &b), merge(&b, &a));
        assert_eq!(merge(&a, &b), (stats.mean.to_bits(), stats.std.to_bits()));

        let floats: Vec<u8> = bytes.iter().flat_map(|v| (f32::from(*v) / 255.0).to_ne_bytes()).collect();
        let mut all = Sums::of(DType::F32, floats[..400].chunks(4));
        all.merge(&Sums::of(DType::F32, floats[400..].chunks(4)));
        assert!((all.stats().mean - 0.5).abs() < 1e-7 && (all.stats().std - stats.std).abs() < 1e-7);
        let wide: Vec<u8> = bytes.iter().flat_map(|v| (u16::from(*v) * 257).to_ne_bytes()).collect();
        let wide = Sums::of(DType::U16, wide.chunks(2)).stats();
        assert_eq!((wide.mean, wide.std, wide.max), (stats.mean, stats.std, 65_535.0));
    }

    #[test]
    fn channels_are_told_apart_and_gray_counts_for_all() {
        let info = ImageInfo::interleaved_u8(1, 2, 2);
        let sums = count_pixels(&info, &[0, 255, 0, 255], 2).unwrap();
        assert_eq!(sums.iter().map(|s| s.stats().mean).collect::<Vec<_>>(), [0.0, 1.0]);
        let planar = ImageInfo { planar: true, ..info };
        let sums = count_pixels(&planar, &[0, 255, 0, 255], 2).unwrap();
        assert_eq!(sums.iter().map(|s| s.stats().mean).collect::<Vec<_>>(), [0.5, 0.5]);
        let gray = count_pixels(&ImageInfo::interleaved_u8(1, 1, 1), &[51], 3).unwrap();
        assert_eq!(gray.iter().map(|s| s.stats().mean).collect::<Vec<_>>(), [0.2; 3]);
        assert!(count_pixels(&info, &[0; 4], 3).unwrap().len() == 3, "gray with alpha is gray");
        assert!(count_pixels(&info, &[0; 4], 5).is_err());
    }
}
