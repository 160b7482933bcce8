//! Size and encoding of prepared images.

/// How the size of images changes.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let out = folder.path().display().to_string();
/// # let pixels = vec![120; 6 * 32 * 48 * 3];
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(pixels, 6, 32, 48, 3, false);
/// # let dataset = std::sync::Arc::new(images.labels(vec![0, 1, 2, 0, 1, 2]).build()?);
/// use infeed::{
///     codec::{ImageCodec, Jpeg},
///     dataset::{Value, filter_with},
///     prepare::{Prepare, Size},
/// };
///
/// // Images of 32 rows of 48 pixels.
/// Prepare::new(dataset, &out).size(Size::Shorter(16)).quality(90).run().await?;
/// let right = filter_with(infeed::open(out).await?, |_record, sample| {
///     let files = sample.values.iter().filter_map(|value| match value {
///         Value::Encoded(file) => Some(Jpeg::new().info(file)),
///         _ => None,
///     });
///     let infos = files.collect::<infeed::Result<Vec<_>>>()?;
///     Ok(infos.iter().any(|info| (info.height, info.width) == (16, 24)))
/// });
/// assert_eq!(right.await?.len(), 6);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// The size stays.
    #[default]
    Keep,
    /// Shorter side in pixels; the longer side keeps the proportion, rounded down. Images whose shorter side is not
    /// longer than this keep their size.
    Shorter(u32),
    /// Height and width in pixels; the proportion may change.
    Exact(u32, u32),
}

/// How images are stored.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let out = folder.path().display().to_string();
/// # let pixels = vec![120; 6 * 32 * 48 * 3];
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(pixels, 6, 32, 48, 3, false);
/// # let dataset = std::sync::Arc::new(images.labels(vec![0, 1, 2, 0, 1, 2]).build()?);
/// use infeed::prepare::{Prepare, Store};
///
/// // As pixels: lossless, and later runs need not decode.
/// let done = Prepare::new(dataset, out).store(Store::Raw).run().await?;
/// assert!(done.bytes_written > 6 * 32 * 48 * 3);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// Files stay as they are, byte for byte. Resized files become JPEGs of quality 90. Images that the dataset has as
    /// pixels stay pixels (`.image.npy`), resized or not.
    #[default]
    Keep,
    /// As [`Keep`](Self::Keep), but progressive JPEGs are written anew as baseline JPEGs: the same pixels and notes, bit
    /// for bit, in about 4 % more bytes. Crops of them decode faster, and the engines of GPUs take them. Images above 44
    /// million pixels stay as they are: two passes over them could take minutes.
    Baseline,
    /// JPEG of this quality, 1 to 100; chroma is 4:4:4 from quality 90 on, otherwise 4:2:0.
    Jpeg(u8),
    /// Pixels (`.image.npy`): ten times the space, no decoding.
    Raw,
}
