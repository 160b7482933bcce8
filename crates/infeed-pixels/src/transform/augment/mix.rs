//! Mixing of whole batches: pictures are mixed with one another, and labels hold the part of each class.

use std::str::FromStr;

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::kernels::Mixture;

/// MixUp ([Zhang et al. 2017](https://arxiv.org/abs/1710.09412)), CutMix ([Yun et al.
/// 2019](https://arxiv.org/abs/1905.04899)) and label smoothing of whole batches, for `LoaderBuilder::mix`.
///
/// The label field of a batch becomes `[N, classes]` f32: 1 for the sample's class, smoothed, and mixed like the
/// pictures, so each row sums to 1. MixUp makes a picture λ times its own values plus 1 − λ times its partner's. CutMix
/// pastes a rectangle of the partner at the same place; λ is the part of the picture that remains. λ ~ Beta(α, α). All
/// image fields of a record are mixed alike; arrays and bytes stay those of the row.
///
/// Mixing works in place when a batch is complete, on the thread that completed it. In f32, results have the bits of
/// torchvision's arithmetic for the same λ. f16 and bf16 are computed in f32 and rounded once. Memory: the rows of
/// labels, which count in the budget. Copies that pad a batch keep their picture and the label of their record; rows of
/// zeros have a label of zeros. A batch of one sample is not mixed.
///
/// **Draws** depend on seed, epoch and the position of the batch's first sample in the epoch's order: they are the same
/// for any number of workers and after a resume. Unlike draws of samples, they depend on batch size and world size,
/// because these decide which samples share a batch. In order: whether the batch is mixed, MixUp or CutMix (if both are
/// on), λ, then the rectangle's centre, horizontal and vertical.
///
/// As text: `mixup=0.2,cutmix=1,label_smoothing=0.1,classes=1000`.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// use infeed::{Device, Loader, Transform, transform::augment::Mix};
///
/// let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// let mix = Mix { mixup: 0.2, cutmix: 1.0, label_smoothing: 0.1, num_classes: Some(10), ..Mix::default() };
/// let loader = Loader::builder(dataset).batch_size(20).transform(Transform::new().to_float()).mix(mix);
/// let mut batches = loader.device(Device::Cpu).build().await?.epoch(0);
/// let batch = batches.next().await.expect("five batches")?;
/// assert_eq!(batch["label"].shape(), [20, 10]);
/// let labels = batch["label"].as_slice::<f32>().expect("f32");
/// assert!((labels[..10].iter().sum::<f32>() - 1.0).abs() < 1e-6);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mix {
    /// α of MixUp; 0 turns it off.
    pub mixup: f64,
    /// α of CutMix; 0 turns it off.
    pub cutmix: f64,
    /// Probability that a batch, or a pair, is mixed. Default 1.
    pub prob: f32,
    /// Probability of CutMix if both are on. Default 0.5.
    pub switch_prob: f32,
    /// How partners are chosen. Default: for the batch.
    pub per: PerMix,
    /// The part of a label that is spread evenly over all classes.
    pub label_smoothing: f32,
    /// Number of classes; `None`: the number of class names in the dataset.
    #[serde(alias = "classes")]
    pub num_classes: Option<u32>,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            mixup: 0.0,
            cutmix: 0.0,
            prob: 1.0,
            switch_prob: 0.5,
            per: PerMix::default(),
            label_smoothing: 0.0,
            num_classes: None,
        }
    }
}

/// How partners are chosen.
///
/// ```
/// use infeed::transform::augment::{Mix, PerMix};
///
/// // timm's `--mixup 0.8 --cutmix 1.0 --mixup-mode pair`.
/// let mix = Mix { mixup: 0.8, cutmix: 1.0, per: PerMix::Pair, num_classes: Some(1000), ..Mix::default() };
/// assert_eq!(mix, "mixup=0.8,cutmix=1,per=pair,classes=1000".parse()?); // For `LoaderBuilder::mix`.
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PerMix {
    /// One draw for the batch. A row's partner is the row before it, the first row's is the last: torchvision's rule.
    #[default]
    Batch,
    /// Rows `i` and `N − 1 − i` are mixed with each other, with one draw per pair: timm's `pair`. The middle row of an
    /// odd number stays unchanged.
    Pair,
}

/// The draw for a batch or a pair.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mixing {
    /// Adds the values of both.
    MixUp {
        /// Weight of the picture's own values.
        own: f64,
    },
    /// Pastes a rectangle of the partner.
    CutMix {
        /// Part of the picture that remains.
        left: f64,
        /// The rectangle's centre in parts of width and height.
        center: [f64; 2],
    },
}

impl Mix {
    /// Whether pictures are mixed; otherwise only labels are smoothed.
    #[doc(hidden)]
    pub fn mixes(&self) -> bool {
        self.mixup > 0.0 || self.cutmix > 0.0
    }

    /// Refuses invalid numbers.
    #[doc(hidden)]
    pub fn check(&self) -> Result<()> {
        for (name, alpha) in [("mixup", self.mixup), ("cutmix", self.cutmix)] {
            // Written so that NaN fails.
            if !(alpha >= 0.0 && alpha.is_finite()) {
                return Err(Error::config(format!("mix has {name} {alpha}"))
                    .with_hint("use alpha above 0, such as 0.2 or 1; 0 turns it off"));
            }
        }
        let parts = [("prob", self.prob), ("switch_prob", self.switch_prob), ("label_smoothing", self.label_smoothing)];
        if let Some((name, part)) = parts.into_iter().find(|(_, part)| !(0.0..=1.0).contains(part)) {
            return Err(Error::config(format!("mix has {name} {part}")).with_hint("use 0 to 1"));
        }
        if self.num_classes == Some(0) {
            return Err(Error::config("mix is for 0 classes").with_hint("give their number, 1 or more"));
        }
        Ok(())
    }

    /// `None`: this batch or pair is not mixed.
    #[doc(hidden)]
    pub fn draw(&self, draws: &mut Draws) -> Option<Mixing> {
        if !self.mixes() || !draws.chance(self.prob) {
            return None;
        }
        let cuts = match (self.mixup > 0.0, self.cutmix > 0.0) {
            (true, true) => draws.chance(self.switch_prob),
            (_, cuts) => cuts,
        };
        if !cuts {
            return Some(Mixing::MixUp { own: draws.beta(self.mixup, self.mixup) });
        }
        let left = draws.beta(self.cutmix, self.cutmix);
        Some(Mixing::CutMix { left, center: [draws.unit_f64(), draws.unit_f64()] })
    }

    /// Weights in a label: of every other class, and of the sample's class.
    #[doc(hidden)]
    pub fn label_weights(&self, classes: usize) -> [f32; 2] {
        let smoothing = f64::from(self.label_smoothing);
        let off = smoothing / classes.max(1) as f64;
        [off, 1.0 - smoothing + off].map(|weight| weight as f32)
    }
}

impl Mixing {
    /// How to mix pictures of this height and width, and the weights of the own label and the partner's.
    pub fn of(&self, [height, width]: [u32; 2]) -> (Mixture, [f32; 2]) {
        match *self {
            Self::MixUp { own } => {
                let [own, other] = [own, 1.0 - own].map(|weight| weight as f32);
                (Mixture::Blend { own, other }, [own, other])
            }
            Self::CutMix { left, center: [x, y] } => {
                let ratio = 0.5 * (1.0 - left).max(0.0).sqrt();
                let edges = |center: f64, side: u32| {
                    let (center, half) = ((center * f64::from(side)) as u32, (ratio * f64::from(side)) as u32);
                    [center.saturating_sub(half), (center + half).min(side)]
                };
                let ([top, bottom], [left, right]) = (edges(y, height), edges(x, width));
                let cut = f64::from(bottom - top) * f64::from(right - left);
                let own = 1.0 - cut / (f64::from(width) * f64::from(height));
                (Mixture::Paste([top, bottom, left, right]), [own, 1.0 - own].map(|weight| weight as f32))
            }
        }
    }
}

impl FromStr for Mix {
    type Err = Error;

    /// Parses `name=value` pairs separated by `,`.
    fn from_str(text: &str) -> Result<Self> {
        let mut settings = Map::new();
        for setting in text.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').ok_or_else(|| {
                Error::config(format!("{setting:?} is not a setting of mix"))
                    .with_hint("write it like mixup=0.2,cutmix=1")
            })?;
            let value = value.trim();
            let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
            if settings.insert(name.trim().to_owned(), value).is_some() {
                return Err(Error::config(format!("mix has {} twice", name.trim())).with_hint("give it once"));
            }
        }
        serde_json::from_value(Value::Object(settings)).map_err(|error| {
            Error::config(format!("{text:?} is not a valid mix: {error}"))
                .with_hint("its settings are mixup, cutmix, prob, switch_prob, per, label_smoothing and classes")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::random::SampleRng;

    #[test]
    fn a_line_of_settings_is_a_mix() {
        let line: Mix =
            "mixup=0.2, cutmix=1,switch_prob=0.25,prob=0.5,per=pair,label_smoothing=0.1,classes=1000".parse().unwrap();
        let mix = Mix {
            mixup: 0.2,
            cutmix: 1.0,
            prob: 0.5,
            switch_prob: 0.25,
            per: PerMix::Pair,
            label_smoothing: 0.1,
            num_classes: Some(1000),
        };
        assert_eq!(line, mix);
        assert_eq!(serde_json::from_str::<Mix>(&serde_json::to_string(&mix).unwrap()).unwrap(), mix);
        assert_eq!("".parse::<Mix>().unwrap(), Mix::default());
        for (line, what) in [
            ("mixup", "not a setting"),
            ("mixups=1", "unknown field `mixups`"),
            ("mixup=1,mixup=2", "mixup twice"),
            ("per=row", "unknown variant `row`"),
            ("classes=3,num_classes=3", "duplicate field"),
            ("mixup=much", "expected f64"),
        ] {
            let error = line.parse::<Mix>().unwrap_err().to_string();
            assert!(error.contains(what), "{line}: {error}");
        }
    }

    #[test]
    fn rectangles_are_torchvisions() {
        // int(0.5 * sqrt(1 - 0.36) * 10) = 4 and * 20 = 8, around 7 and 3.
        let cut = Mixing::CutMix { left: 0.36, center: [0.15, 0.75] };
        let (mixture, [own, other]) = cut.of([10, 20]);
        assert_eq!(mixture, Mixture::Paste([3, 10, 0, 11]));
        assert_eq!((own, other), ((1.0 - 77.0 / 200.0) as f32, (77.0 / 200.0) as f32));
        // Nothing of the picture remains only if the centre is in the middle.
        assert_eq!(Mixing::CutMix { left: 0.0, center: [0.5, 0.5] }.of([8, 8]).1, [0.0, 1.0]);
        assert_eq!(Mixing::CutMix { left: 1.0, center: [0.5, 0.5] }.of([8, 8]).1, [1.0, 0.0]);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let mix = Mix { mixup: 0.5, cutmix: 1.0, prob: 0.8, switch_prob: 0.3, ..Mix::default() };
        let (mut none, mut cuts) = (0, 0);
        for n in 0..10_000 {
            match mix.draw(&mut SampleRng::new(1, 2, n).op(0)) {
                None => none += 1,
                Some(Mixing::CutMix { .. }) => cuts += 1,
                Some(Mixing::MixUp { own }) => assert!((0.0..=1.0).contains(&own)),
            }
        }
        assert!((1850..2150).contains(&none), "{none} of 2000");
        assert!((2220..2580).contains(&cuts), "{cuts} of 2400");
        let smooth = Mix { label_smoothing: 0.1, num_classes: Some(10), ..Mix::default() };
        assert_eq!(smooth.draw(&mut SampleRng::new(1, 2, 3).op(0)), None);
        assert_eq!(smooth.label_weights(10), [0.01, 0.91]);
    }
}
