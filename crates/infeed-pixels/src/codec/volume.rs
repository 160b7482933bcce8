//! Writes a volume into its row: on the host, on the thread that read it. Batches on a GPU are copied there, as arrays
//! are.

use infeed_core::{
    error::{Error, ErrorKind, Result},
    random::SampleRng,
};
use infeed_data::Volume;

use crate::{
    kernels::{self, Level},
    transform::{Foreground, LoweredVolume},
};

/// Writes the row of one volume field of a sample.
///
/// # Errors
/// `Unsupported` if the transform can't take the volume, `Corrupt` if it lacks voxels.
pub fn write_volume(volume: &Volume, lowered: Option<&LoweredVolume>, rng: SampleRng, out: &mut [u8]) -> Result<()> {
    let lowered = lowered.ok_or_else(|| Error::new(ErrorKind::Internal, "a volume in a field of another kind"))?;
    let [channels, depth, height, width] = lowered.shape();
    if volume.channels.len() != channels {
        let what = format!("a volume of {} channels where rows have {channels}", volume.channels.len());
        return Err(Error::new(ErrorKind::Unsupported, what).with_hint("put it into a dataset of its own"));
    }
    if !volume.is_sound() {
        return Err(Error::corrupt("a volume lacks voxels").with_hint("check the dataset with dataset_contract"));
    }
    let axes = lowered.axes(volume.shape, &Foreground(&volume.foreground), rng)?;
    let each = depth * height * width * lowered.dtype().size();
    for (channel, out) in volume.channels.iter().zip(out.chunks_exact_mut(each)) {
        let intensity = lowered.intensity(channel.slope, channel.intercept);
        let (mask, dtype) = (lowered.is_mask(), lowered.dtype());
        kernels::write_volume(&channel.voxels(), &axes, &intensity, mask, dtype, Level::Best, out)?;
    }
    Ok(())
}
