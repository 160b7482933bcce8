//! Types that every crate uses: element types, layouts, devices, the shape of a decoded image; printing names, and
//! suggestions for mistyped ones.

mod dtype;
mod element;
pub mod printable;
pub mod similar;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

pub use self::{dtype::DType, element::Element};

/// Order of the axes of an image batch.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{Layout, Loader};
///
/// # let dataset = Arc::new(infeed::dataset::SyntheticDataset::new(4, 8, 10, 2)?);
/// let loader = Loader::builder(dataset).batch_size(4).layout(Layout::Nhwc).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// assert_eq!(batch["image"].shape(), [4, 8, 10, 3]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// `[batch, channels, height, width]`: planes, as most convolution libraries expect.
    #[default]
    Nchw,
    /// `[batch, height, width, channels]`: interleaved pixels.
    Nhwc,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nchw => "nchw",
            Self::Nhwc => "nhwc",
        })
    }
}

/// Where a tensor's memory is. Written `cpu`, `cuda:0`, `cuda:1`, …; `cuda` without a number is `cuda:0`.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{Device, Loader};
///
/// # let dataset = Arc::new(infeed::dataset::SyntheticDataset::new(4, 8, 8, 2)?);
/// let device: Device = "cpu".parse().expect("a device"); // Or cuda:0, on a machine with a GPU.
/// let loader = Loader::builder(dataset).batch_size(4).device(device).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// assert_eq!(batch["image"].device(), Device::Cpu);
/// assert_eq!(Device::Cuda(1).to_string(), "cuda:1");
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Device {
    /// Host memory.
    #[default]
    Cpu,
    /// Memory of the CUDA device with this index.
    Cuda(u32),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "cuda" => Ok(Self::Cuda(0)),
            Some(("cuda", index)) if index.bytes().all(|b| b.is_ascii_digit()) => {
                index.parse().map(Self::Cuda).map_err(|e| format!("{text:?} is not a device: {e}"))
            }
            _ => Err(format!("{text:?} is not a device; use cpu, cuda:0, cuda:1, …")),
        }
    }
}

impl TryFrom<String> for Device {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

/// Shape and element type of one decoded image, before any transform.
///
/// ```
/// use infeed::{DType, dataset::ImageInfo};
///
/// let photograph = ImageInfo::interleaved_u8(480, 640, 3);
/// assert_eq!(photograph.len_bytes(), 480 * 640 * 3);
/// // From a microscope: two planes of 16 bits, one after the other.
/// let cells = ImageInfo { channels: 2, dtype: DType::U16, planar: true, ..photograph };
/// assert_eq!(cells.len_bytes(), 480 * 640 * 2 * 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageInfo {
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// Values per pixel: 1 gray, 3 RGB, 4 RGBA, any other number for scientific images.
    pub channels: u8,
    /// `U8`, `U16` or `F32`.
    pub dtype: DType,
    /// `true`: one plane after another (CHW). `false`: interleaved pixels (HWC).
    pub planar: bool,
}

impl ImageInfo {
    /// Interleaved 8-bit pixels.
    #[must_use]
    #[inline]
    pub const fn interleaved_u8(height: u32, width: u32, channels: u8) -> Self {
        Self { height, width, channels, dtype: DType::U8, planar: false }
    }

    /// Bytes of all pixels. The product (at most 2^32 * 2^32 * 2^8 * 2^3) saturates at `u64::MAX`.
    #[must_use]
    #[inline]
    pub const fn len_bytes(&self) -> u64 {
        (self.height as u64 * self.width as u64).saturating_mul(self.channels as u64 * self.dtype.size() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        for device in [Device::Cpu, Device::Cuda(0), Device::Cuda(17)] {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        for bad in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "cuda:99999999999"] {
            assert!(bad.parse::<Device>().is_err(), "{bad}");
        }
    }
}
