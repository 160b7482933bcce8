//! Generated pixels.

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::{SampleRng, hash64},
    types::{DType, ImageInfo},
};
use smallvec::smallvec;

use super::{
    record::{Dataset, ReadPlan, Sample, Value, no_such_record},
    schema::{Field, FieldKind, Schema},
};

/// Each record's pixels start at most this many places after the beginning of the tile, so there are this many
/// different pictures.
const SHIFTS: usize = 4096;

/// The largest image; a tile of this size is kept in memory.
const MOST_BYTES: u64 = 256 << 20;

/// Any number of noise images with labels, for demonstrations, examples and tests. It needs no files and no time, and
/// is the same on every machine. The label of a record is its number modulo the number of classes.
///
/// All records are windows of one tile of noise. They cost nothing to make, and all together take the memory of one
/// image.
///
/// ```
/// use infeed::dataset::{Dataset, SyntheticDataset};
///
/// let dataset = SyntheticDataset::new(1_000_000, 480, 640, 1000)?;
/// assert_eq!(dataset.len(), 1_000_000);
/// // The same as a url.
/// let parsed = SyntheticDataset::parse("synthetic://?count=1000000&height=480&width=640&classes=1000")?;
/// assert_eq!(parsed.fingerprint(), dataset.fingerprint());
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SyntheticDataset {
    count: u64,
    info: ImageInfo,
    classes: u32,
    seed: u64,
    schema: Schema,
    tile: Bytes,
}

impl SyntheticDataset {
    /// `count` RGB images of `height` × `width` pixels in `classes` classes.
    ///
    /// # Errors
    /// `Config` if a number is 0 or an image has more than 256 MiB.
    pub fn new(count: u64, height: u32, width: u32, classes: u32) -> Result<Self> {
        Self::make(count, height, width, 3, classes, 0)
    }

    /// Reads `synthetic://?count=1000&height=32&width=32&channels=3&classes=10&seed=0`; these are the defaults.
    pub fn parse(url: &str) -> Result<Self> {
        let bad = |what: String| {
            let form = "write synthetic://?count=1000&height=32&width=32&channels=3&classes=10&seed=0";
            Error::config(what).at_object(url).with_hint(form)
        };
        let query = url.strip_prefix("synthetic://").and_then(|rest| match rest.trim_start_matches('/') {
            "" => Some(""),
            rest => rest.strip_prefix('?'),
        });
        let query = query.ok_or_else(|| bad("not a synthetic url".to_owned()))?;
        let mut count = 1000;
        let mut height = 32;
        let mut width = 32;
        let mut channels = 3;
        let mut classes = 10;
        let mut seed = 0;
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let number = |most: u64| match value.replace('_', "").parse::<u64>() {
                Ok(number) if number <= most => Ok(number),
                _ => Err(bad(format!("{key} is `{value}`, not a number up to {most}"))),
            };
            match &*key {
                "count" => count = number(u64::MAX)?,
                "height" => height = number(u32::MAX.into())? as u32,
                "width" => width = number(u32::MAX.into())? as u32,
                "channels" => channels = number(u8::MAX.into())? as u8,
                "classes" => classes = number(u32::MAX.into())? as u32,
                "seed" => seed = number(u64::MAX)?,
                _ => return Err(bad(format!("unknown key `{key}`"))),
            }
        }
        Self::make(count, height, width, channels, classes, seed).map_err(|e| e.at_object(url))
    }

    fn make(count: u64, height: u32, width: u32, channels: u8, classes: u32, seed: u64) -> Result<Self> {
        let info = ImageInfo { channels, ..ImageInfo::interleaved_u8(height, width, 3) };
        let named = [("count", count), ("height", height.into()), ("width", width.into())];
        let named = named.into_iter().chain([("channels", channels.into()), ("classes", classes.into())]);
        for (name, value) in named {
            if value == 0 {
                return Err(Error::config(format!("{name} is 0")).with_hint("use 1 or more"));
            }
        }
        let bytes = info.len_bytes();
        if bytes > MOST_BYTES {
            let what = format!("synthetic images of {height}×{width}×{channels} take {bytes} bytes");
            return Err(Error::new(ErrorKind::Config, what).with_hint(format!("stay below {MOST_BYTES}")));
        }
        let words = (bytes as usize + SHIFTS).div_ceil(8) as u64;
        let tile: Vec<u8> = (0..words).flat_map(|i| hash64(seed ^ hash64(i)).to_le_bytes()).collect();
        let kind = FieldKind::Image { channels, size: Some((height, width)), dtype: Some(DType::U8) };
        let schema = Schema::new(vec![Field::new("image", kind), Field::label()]);
        Ok(Self { count, info, classes, seed, schema, tile: tile.into() })
    }

    fn check(&self, record: u64) -> Result<()> {
        if record < self.count { Ok(()) } else { Err(no_such_record(record, self.count)) }
    }
}

impl Dataset for SyntheticDataset {
    fn len(&self) -> u64 {
        self.count
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "synthetic"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        self.check(record).map(|()| ReadPlan::default())
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, _bytes: &[Bytes]) -> Result<Sample> {
        self.check(record)?;
        let start = hash64(self.seed ^ record) as usize % SHIFTS;
        let data = self.tile.slice(start..start + self.info.len_bytes() as usize);
        let label = (record % u64::from(self.classes)) as i64;
        Ok(Sample { values: smallvec![Value::Pixels { info: self.info, data }, Value::Label(label)] })
    }

    fn object(&self, _record: u64) -> String {
        "synthetic".to_owned()
    }

    fn needs_fetch(&self) -> bool {
        false
    }

    fn largest_read(&self) -> u64 {
        0
    }

    fn resident_bytes(&self) -> u64 {
        self.tile.len() as u64
    }

    fn fingerprint(&self) -> Fingerprint {
        let ImageInfo { height, width, channels, .. } = self.info;
        let print = Fingerprint::of("synthetic").number(self.count).number(height.into()).number(width.into());
        print.number(channels.into()).number(self.classes.into()).number(self.seed).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::dataset_contract;

    #[test]
    fn the_url_says_everything() {
        let dataset =
            SyntheticDataset::parse("synthetic://?count=1_000_000&height=2&width=3&classes=4&channels=1").unwrap();
        assert_eq!((dataset.count, dataset.classes), (1_000_000, 4));
        assert_eq!(dataset.info, ImageInfo::interleaved_u8(2, 3, 1));
        assert_eq!(SyntheticDataset::parse("synthetic://").unwrap().count, 1000);
        for (url, says) in [
            ("synthetic://?cuont=3", "unknown key `cuont`"),
            ("synthetic://?count=x", "count is `x`"),
            ("synthetic://?channels=256", "up to 255"),
            ("synthetic://?classes=0", "classes is 0"),
            ("synthetic://folder", "not a synthetic url"),
            ("synthetic://?height=4294967295&width=4294967295&channels=255", "take"),
        ] {
            let error = SyntheticDataset::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn records_differ_and_come_back_the_same() {
        let dataset = SyntheticDataset::new(100, 8, 8, 7).unwrap();
        let pixels = |record| match &dataset.parse(record, &ReadPlan::default(), &[]).unwrap().values[..] {
            [Value::Pixels { data, .. }, Value::Label(label)] => (data.clone(), *label),
            other => panic!("{other:?}"),
        };
        assert_eq!(pixels(9), pixels(9));
        assert_ne!(pixels(9).0, pixels(10).0);
        assert_eq!(pixels(9).1, 2);
        block_on(dataset_contract(&dataset)).unwrap();
    }
}
