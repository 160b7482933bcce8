//! Mixes a batch: images are mixed with one another in place, labels become weights of classes.

use std::sync::Arc;

use infeed_core::{
    error::{Error, ErrorKind, Result},
    random::{SampleRng, hash64},
    rows::Rows,
};
use infeed_pixels::{
    kernels::{Level, Mixer, Mixture, RowSpec, mix_rolled, mix_swapped},
    transform::augment::{Mix, Mixing, PerMix},
};

use super::fields::{FieldRows, SoftLabels};

/// Separates the draws of batches from those of samples at the same positions.
const BATCHES: u64 = 0x6261_7463_6865_7321;

/// The draws of a batch, by the position of its first sample (good or bad) in the epoch's order: this position is
/// unique among the batches of all ranks.
pub(super) const fn rng_of_batch(seed: u64, epoch: u64, position: u64) -> SampleRng {
    SampleRng::new(hash64(seed ^ BATCHES), epoch, position)
}

/// How a loader mixes batches.
#[derive(Clone, Debug)]
pub(crate) struct BatchMix {
    pub(crate) settings: Mix,
    /// Mixed fields, by their index in the schema. For CutMix all have the same size.
    pub(crate) images: Vec<(usize, RowSpec)>,
    /// The GPU's mixer, if images are on a GPU.
    pub(crate) mixer: Option<Arc<dyn Mixer>>,
}

/// The rows of a batch before it is mixed.
pub(super) struct Unmixed<'a> {
    pub(super) rng: SampleRng,
    pub(super) fields: &'a [FieldRows],
    pub(super) rows: &'a mut [Rows],
    /// Rows that are samples; these are mixed among themselves.
    pub(super) samples: usize,
    /// Rows that are samples or copies; the rest are rows of zeros.
    pub(super) filled: usize,
}

/// A label as two classes with their weights.
struct MixedLabel {
    other: usize,
    weights: [f32; 2],
}

impl BatchMix {
    /// Mixes images in place and replaces the rows of the label by rows of weights. Returns the number of bytes
    /// written.
    pub(super) fn apply(&self, batch: Unmixed<'_>) -> Result<u64> {
        let Unmixed { rng, fields, rows, samples, filled } = batch;
        let mut written = 0;
        // The row from which each row has its second class.
        let mut parts: Vec<MixedLabel> =
            (0..filled).map(|row| MixedLabel { other: row, weights: [1.0, 0.0] }).collect();
        // A single sample is its own partner.
        if samples > 1 {
            match self.settings.per {
                PerMix::Batch => {
                    if let Some(mixing) = self.settings.draw(&mut rng.op(0)) {
                        for (field, spec) in &self.images {
                            let (rows, mixture) = (&mut rows[*field], mixing.of([spec.height, spec.width]).0);
                            match &self.mixer {
                                Some(mixer) => mixer.roll(rows, spec, &mixture, samples)?,
                                None => {
                                    let mixed = &mut rows.bytes_mut()[..samples * spec.len_bytes()];
                                    mix_rolled(Level::Best, spec, &mixture, mixed)?;
                                }
                            }
                            written += samples as u64 * written_bytes(&mixture, spec);
                        }
                        let weights = self.weights(&mixing);
                        let partner = |row: usize| (row + samples - 1) % samples;
                        parts[..samples].iter_mut().enumerate().for_each(|(row, part)| {
                            *part = MixedLabel { other: partner(row), weights };
                        });
                    }
                }
                PerMix::Pair => {
                    let draw = |a: usize| Some((a, samples - 1 - a, self.settings.draw(&mut rng.op(a as u32))?));
                    let pairs: Vec<(usize, usize, Mixing)> = (0..samples / 2).filter_map(draw).collect();
                    for (field, spec) in &self.images {
                        let mixture = |mixing: &Mixing| mixing.of([spec.height, spec.width]).0;
                        written +=
                            pairs.iter().map(|(.., mixing)| 2 * written_bytes(&mixture(mixing), spec)).sum::<u64>();
                        if let Some(mixer) = &self.mixer {
                            let of =
                                |(a, b, mixing): &(usize, usize, Mixing)| (mixture(mixing), [*a as u32, *b as u32]);
                            mixer.swap(&mut rows[*field], spec, &pairs.iter().map(of).collect::<Vec<_>>())?;
                            continue;
                        }
                        let len = spec.len_bytes();
                        for (a, b, mixing) in &pairs {
                            let (front, back) = rows[*field].bytes_mut().split_at_mut(b * len);
                            let (a, b) = (&mut front[a * len..][..len], &mut back[..len]);
                            mix_swapped(Level::Best, spec, &mixture(mixing), a, b)?;
                        }
                    }
                    for (a, b, mixing) in &pairs {
                        let weights = self.weights(mixing);
                        parts[*a] = MixedLabel { other: *b, weights };
                        parts[*b] = MixedLabel { other: *a, weights };
                    }
                }
                other => {
                    let what = format!("batches are not mixed per {other:?}");
                    return Err(Error::new(ErrorKind::Internal, what).with_hint("please report this"));
                }
            }
        }
        for (field, rows) in fields.iter().zip(rows) {
            if let Some(soft) = &field.soft {
                *rows = self.soften(soft, rows, &parts)?;
                written += rows.len_bytes() as u64;
            }
        }
        Ok(written)
    }

    /// Weights of the own label and of the partner's.
    fn weights(&self, mixing: &Mixing) -> [f32; 2] {
        let size = self.images.first().map_or([1, 1], |(_, spec)| [spec.height, spec.width]);
        mixing.of(size).1
    }

    /// The weights of all classes, as f32, in torch's arithmetic for one-hot rows.
    fn soften(&self, soft: &SoftLabels, labels: &Rows, parts: &[MixedLabel]) -> Result<Rows> {
        let mut rows = soft.rows(labels.rows())?;
        let label = |row: usize| -> Result<usize> {
            let bytes = labels.bytes().as_chunks().0.get(row).copied().unwrap_or_default();
            // Labels outside the classes have already become bad samples.
            usize::try_from(i64::from_ne_bytes(bytes)).ok().filter(|label| *label < soft.classes).ok_or_else(|| {
                Error::new(ErrorKind::Internal, "a label is not among the classes").with_hint("please report this")
            })
        };
        let [off, on] = self.settings.label_weights(soft.classes);
        let values: &mut [f32] = bytemuck::try_cast_slice_mut(rows.bytes_mut())
            .map_err(|_| Error::new(ErrorKind::Internal, "labels are not aligned").with_hint("please report this"))?;
        for (row, values) in values.chunks_exact_mut(soft.classes).enumerate() {
            let Some(MixedLabel { other, weights: [mine, theirs] }) = parts.get(row) else {
                values.fill(0.0);
                continue;
            };
            let (own, other) = (label(row)?, label(*other)?);
            if *theirs == 0.0 {
                values.fill(off);
                values[own] = on;
                continue;
            }
            let of = |is_own: bool, is_other: bool| {
                (if is_other { on } else { off }) * theirs + (if is_own { on } else { off }) * mine
            };
            values.fill(of(false, false));
            values[own] = of(true, own == other);
            if own != other {
                values[other] = of(false, true);
            }
        }
        Ok(rows)
    }
}

/// Bytes of a row that are written.
fn written_bytes(mixture: &Mixture, spec: &RowSpec) -> u64 {
    match mixture {
        Mixture::Blend { .. } => spec.len_bytes() as u64,
        Mixture::Paste([top, bottom, left, right]) => {
            let pixels = u64::from(bottom - top) * u64::from(right - left);
            pixels * u64::from(spec.channels) * spec.dtype.size() as u64
        }
    }
}
