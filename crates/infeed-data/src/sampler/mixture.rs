//! Several datasets in one epoch, by proportion, repeats or number of samples.
//!
//! ```text
//! parts:           a, proportion 2        b, proportion 1       one dataset after another (`concat`)
//! draws of each:   0 1 2 3 │ 4 5 6 7 │ …  0 1 │ 2 3 │ …         epochs take them in turn, none is left out
//! draw ─▶ record:  pass = draw / records, slot = draw % records, record = order of that pass at the slot
//! epoch:           a4 a5 a6 a7 b2 b3  ─ shuffled ─▶  a5 b3 a4 b2 a7 a6
//! ```
//!
//! Before epoch `e`, part `i` has given `⌊e·len·Wᵢ₊₁/W⌋ - ⌊e·len·Wᵢ/W⌋` samples, with `Wᵢ` the weights of the parts
//! before it. So the sums of all parts are exact in each epoch, fractions carry over to the next one, and no counters
//! are needed. A record is computed from its position, as in every order.
#![forbid(unsafe_code)]

use std::{fmt, str::FromStr};

use infeed_core::{
    error::{Error, Result},
    fingerprint::Fingerprint,
};
use serde::{Deserialize, Serialize};

use super::{
    base::Sampler,
    permutation::{Permutation, Purpose, key},
};

/// The share of one part of a [`Mixture`] in an epoch. The names are those of [MosaicML's
/// streaming](https://docs.mosaicml.com/projects/streaming/en/stable/dataset_configuration/mixing_data_sources.html).
///
/// As text: `proportion=0.7`, `repeat=2.5`, `choose=10000`.
///
/// ```
/// use infeed::sampler::{Mixture, Share};
///
/// assert_eq!("proportion=0.7".parse::<Share>()?, Share::Proportion(0.7));
///
/// // The epoch is the sum of the chosen and the repeated samples.
/// let mixture = Mixture::new(0).part("photographs", Share::Choose(300)).part("drawings", Share::Repeat(2.5));
/// assert_eq!(mixture.with_records(&[5000, 60])?.counts(0)?, [300, 150]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Share {
    /// A weight relative to the other parts, above 0: 0.7 and 0.3, or 7 and 3. Its decimal digits count, so 0.1 is
    /// exactly a tenth. Either all parts have a proportion, or none.
    Proportion(f64),
    /// How often each record occurs per epoch, above 0. With 2.5, some records occur twice and some three times, and
    /// the next epoch swaps them; with 0.5, each occurs in every second epoch. The number of samples is rounded to an
    /// integer, halves up.
    Repeat(f64),
    /// This number of samples per epoch, 1 or more.
    Choose(u64),
}

impl Share {
    const fn is_proportion(&self) -> bool {
        matches!(self, Self::Proportion(_))
    }
}

impl Default for Share {
    /// Each record once.
    fn default() -> Self {
        Self::Repeat(1.0)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proportion(weight) => write!(f, "proportion={weight}"),
            Self::Repeat(times) => write!(f, "repeat={times}"),
            Self::Choose(samples) => write!(f, "choose={samples}"),
        }
    }
}

impl FromStr for Share {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = || {
            Error::config(format!("`{text}` is not a share of a mixture"))
                .with_hint("write proportion=0.7, repeat=2 or choose=10000")
        };
        let (word, number) = text.split_once('=').ok_or_else(refuse)?;
        match word.trim() {
            "proportion" => number.trim().parse().map(Self::Proportion).map_err(|_| refuse()),
            "repeat" => number.trim().parse().map(Self::Repeat).map_err(|_| refuse()),
            "choose" => number.trim().parse().map(Self::Choose).map_err(|_| refuse()),
            _ => Err(refuse()),
        }
    }
}

/// Sets the share of an epoch that each of several datasets gets. The datasets are [put together](crate::concat()); the
/// mixture has one part for each of them, in their order.
///
/// ```
/// use infeed::{Order, sampler::{Mixture, Share}};
///
/// let mixture = Mixture::new(42)
///     .part("photographs", Share::Proportion(0.7))
///     .part("drawings", Share::Proportion(0.3))
///     .samples(1000);
/// // The loader gets the lengths of the parts from the dataset.
/// let order = Order::from(mixture.with_records(&[5000, 60])?);
/// let sampler = order.sampler(5060, None, 1)?;
/// let drawings = (0..1000).filter(|position| sampler.record(0, *position) >= 5000).count();
/// assert_eq!(drawings, 300);
/// # Ok::<(), infeed::Error>(())
/// ```
///
/// **Exact.** All epochs have the same length. With proportions it is [`samples`](Self::samples), by default the number
/// of records; otherwise it is the sum of the parts. By proportion, a part has given its exact share of all epochs so
/// far, rounded up or down. In a single epoch the number differs from its share by less than two; if shares are
/// integers, it is exact. By `repeat` and `choose` a part gives the same number in every epoch.
///
/// **All records equally often.** A part is visited in random order, in a new order for each pass, and an epoch
/// continues where the previous one stopped. So over all epochs so far, the counts of two records of a part never
/// differ by more than one. Within an epoch everything is shuffled: if a pass ends in an epoch, records of the next
/// pass may come before its last ones.
///
/// Ranks share positions as in any order, so ranks, resume and other world sizes are exact. A state of a mixture is
/// accepted only by the same mixture: equal shares, lengths of parts and seed. Names of parts may change.
///
/// Memory: 16 bytes per part. A lookup takes about as long as five lookups of [`Order::Random`](super::Order::Random),
/// about 0.4 µs, and grows with the logarithm of the number of parts (`benches/sampler.rs`).
///
/// In JSON: `{"mixture": {"seed": 42, "samples": 1000, "parts": [{"name": "photographs", "proportion": 0.7}, …]}}`.
/// TOML has a table `[[order.mixture.parts]]` for each part. A part without a share has `repeat = 1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Mixture {
    /// Equal seeds give equal orders. Default 0.
    #[serde(default)]
    pub seed: u64,
    /// Number of samples per epoch, if parts have proportions; `None`: the number of records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// The parts, in the order of the dataset's parts.
    pub parts: Vec<MixturePart>,
}

/// One part of a [`Mixture`].
///
/// ```
/// use infeed::sampler::{Mixture, Share};
///
/// let file = r#"{"seed": 42, "parts": [{"name": "photographs"}, {"name": "drawings", "choose": 100}]}"#;
/// let mixture: Mixture = serde_json::from_str(file).expect("two parts");
/// assert_eq!(mixture.parts[0].share, Share::Repeat(1.0));
/// assert_eq!((mixture.parts[1].name.as_str(), mixture.parts[1].share), ("drawings", Share::Choose(100)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PartForm", into = "PartForm")]
#[non_exhaustive]
pub struct MixturePart {
    /// Its name in reports and messages; empty: its number.
    pub name: String,
    /// Its number of records; `None`: taken from the dataset.
    pub records: Option<u64>,
    /// Its share of an epoch.
    pub share: Share,
}

/// The form in files.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PartForm {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proportion: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    choose: Option<u64>,
}

impl TryFrom<PartForm> for MixturePart {
    type Error = String;

    fn try_from(form: PartForm) -> Result<Self, String> {
        let PartForm { name, records, proportion, repeat, choose } = form;
        let share = match (proportion, repeat, choose) {
            (None, None, None) => Share::default(),
            (Some(weight), None, None) => Share::Proportion(weight),
            (None, Some(times), None) => Share::Repeat(times),
            (None, None, Some(samples)) => Share::Choose(samples),
            _ => return Err(format!("part `{name}` has several of proportion, repeat and choose; give it one")),
        };
        Ok(Self { name, records, share })
    }
}

impl From<MixturePart> for PartForm {
    fn from(MixturePart { name, records, share }: MixturePart) -> Self {
        let form = Self { name, records, ..Self::default() };
        match share {
            Share::Proportion(weight) => Self { proportion: Some(weight), ..form },
            Share::Repeat(times) => Self { repeat: Some(times), ..form },
            Share::Choose(samples) => Self { choose: Some(samples), ..form },
        }
    }
}

impl Mixture {
    /// A mixture without parts. Equal seeds give equal orders.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Adds a part: the next of the datasets that are put together. The name is for reports.
    #[must_use]
    pub fn part(mut self, name: impl Into<String>, share: Share) -> Self {
        self.parts.push(MixturePart { name: name.into(), records: None, share });
        self
    }

    /// Sets the number of samples per epoch, if parts have proportions.
    #[must_use]
    pub const fn samples(mut self, samples: u64) -> Self {
        self.samples = Some(samples);
        self
    }

    /// Sets the number of records of each part. A loader does this with the result of
    /// [`Dataset::parts`](crate::Dataset::parts).
    ///
    /// # Errors
    /// `Config` if the number of parts differs, or if a part was given another number of records.
    pub fn with_records(mut self, records: &[u64]) -> Result<Self> {
        let (here, there) = (self.parts.len(), records.len());
        if here != there {
            return Err(Error::config(format!("the mixture has {here} parts, the dataset {there}"))
                .with_hint("put together one dataset for each part, in the same order"));
        }
        for (at, &records) in records.iter().enumerate() {
            if let Some(said) = self.parts[at].records.filter(|said| *said != records) {
                let what = format!("part {} of the mixture has {said} records, the dataset's {records}", self.name(at));
                return Err(Error::config(what).with_hint("omit its records, or open the dataset it was made for"));
            }
            self.parts[at].records = Some(records);
        }
        Ok(self)
    }

    /// The name of part `at`, or its number counted from 0 if it has none.
    #[must_use]
    pub fn name(&self, at: usize) -> String {
        match self.parts.get(at) {
            Some(part) if !part.name.is_empty() => format!("`{}`", part.name),
            _ => at.to_string(),
        }
    }

    /// Number of samples of each part in `epoch`.
    ///
    /// # Errors
    /// Those of [`Order::sampler`](super::Order::sampler).
    pub fn counts(&self, epoch: u64) -> Result<Vec<u64>> {
        let sampler = MixtureSampler::new(self)?;
        Ok((0..self.parts.len()).map(|at| sampler.start(at + 1, epoch) - sampler.start(at, epoch)).collect())
    }
}

impl fmt::Display for Mixture {
    /// Without names, because they do not change the order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "mixture of " } else { " + " }, part.share)?;
        }
        write!(f, ", seed {}", self.seed)
    }
}

/// See [`Mixture`].
#[derive(Debug)]
pub(super) struct MixtureSampler {
    seed: u64,
    len: u64,
    /// Sum of the weights of the parts before each one, then of all parts.
    weights: Box<[u64]>,
    /// First record of each part, then the number of all records.
    starts: Box<[u64]>,
    words: String,
}

impl MixtureSampler {
    pub(super) fn new(mixture: &Mixture) -> Result<Self> {
        let Mixture { seed, samples, parts } = mixture;
        let too_many = || Error::config("the parts of the mixture have more than 2^64 - 1 samples");
        let records = |(at, part): (usize, &MixturePart)| match part.records {
            Some(0) => Err(Error::config(format!("part {} of the mixture has no records", mixture.name(at)))
                .with_hint("omit it, or check the path or filter it was made from")),
            Some(records) => Ok(records),
            None => {
                Err(Error::config(format!("part {} of the mixture has an unknown number of records", mixture.name(at)))
                    .with_hint("call Mixture::with_records, or build a loader, which calls it"))
            }
        };
        let records = parts.iter().enumerate().map(records).collect::<Result<Vec<_>>>()?;
        let starts = sums(&records).ok_or_else(too_many)?;
        let all = starts.last().copied().unwrap_or(0);
        let Some(first) = parts.first() else {
            return Err(Error::config("the mixture has no parts").with_hint("add a part for each dataset"));
        };
        if let Some(other) = parts.iter().position(|part| part.share.is_proportion() != first.share.is_proportion()) {
            let (one, another) = (first.share, parts[other].share);
            let what = format!(
                "part {} of the mixture has {another}, part {} has {one}",
                mixture.name(other),
                mixture.name(0)
            );
            return Err(
                Error::config(what).with_hint("give all parts proportions, or give none and use repeat and choose")
            );
        }
        for (at, part) in parts.iter().enumerate() {
            let sound = match part.share {
                Share::Proportion(number) | Share::Repeat(number) => number.is_finite() && number > 0.0,
                Share::Choose(samples) => samples > 0,
            };
            if !sound {
                return Err(Error::config(format!("part {} of the mixture has {}", mixture.name(at), part.share))
                    .with_hint("use a number above 0, or omit the part"));
            }
        }
        let (weights, len) = if first.share.is_proportion() {
            (proportions(parts), samples.unwrap_or(all))
        } else {
            if let Some(samples) = samples {
                let what = format!("the mixture has {samples} samples, and parts with {}", first.share);
                return Err(Error::config(what)
                    .with_hint("omit samples, because the parts add up to it, or give all parts proportions"));
            }
            let count = |(part, records): (&MixturePart, &u64)| match part.share {
                Share::Choose(samples) => Some(samples),
                Share::Repeat(times) => times_of(times, *records),
                Share::Proportion(_) => None,
            };
            let counts = parts.iter().zip(&records).map(count).collect::<Option<Vec<_>>>().ok_or_else(too_many)?;
            let len = counts.iter().try_fold(0u64, |sum, count| sum.checked_add(*count)).ok_or_else(too_many)?;
            (counts, len)
        };
        let ends = sums(&weights).ok_or_else(too_many)?;
        let total = u128::from(ends.last().copied().unwrap_or(0));
        // With at least one sample per epoch, the rounded bounds of a part never give a negative number.
        if let Some(at) = weights.iter().position(|weight| u128::from(*weight) * u128::from(len) < total) {
            let what = format!("part {} of the mixture, {}, is less than a sample", mixture.name(at), parts[at].share);
            return Err(Error::config(format!("{what} in an epoch of {len}"))
                .with_hint("set samples to a larger number, or give the part a larger share"));
        }
        Ok(Self { seed: *seed, len, weights: ends, starts, words: mixture.to_string() })
    }

    fn parts(&self) -> usize {
        self.starts.len() - 1
    }

    /// Samples of all parts before `at`, in all epochs before `epoch`.
    fn before(&self, at: usize, epoch: u128) -> u128 {
        let total = u128::from(self.weights[self.parts()]).max(1);
        let weight = u128::from(self.weights[at]);
        // Whole rounds through all weights are computed apart, so that no product overflows.
        let samples = epoch * u128::from(self.len);
        samples / total * weight + samples % total * weight / total
    }

    /// Samples of a part in all epochs before `epoch`.
    fn drawn(&self, at: usize, epoch: u128) -> u128 {
        self.before(at + 1, epoch) - self.before(at, epoch)
    }

    /// The place within an epoch, before it is shuffled, at which a part begins.
    fn start(&self, at: usize, epoch: u64) -> u64 {
        let epoch = u128::from(epoch);
        (self.before(at, epoch + 1) - self.before(at, epoch)) as u64
    }

    /// The part that holds `place`, by bisection. If several parts begin there, the last one, because the others are
    /// empty.
    fn part_at(&self, place: u64, epoch: u64) -> usize {
        let (mut low, mut high) = (0, self.parts());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.start(middle, epoch) <= place { low = middle } else { high = middle }
        }
        low
    }

    fn shuffle(&self, epoch: u64) -> Permutation {
        Permutation::new(self.len, key(Purpose::Mixture, self.seed, epoch))
    }

    fn records_of(&self, at: usize) -> u64 {
        self.starts[at + 1] - self.starts[at]
    }

    /// The order of a part in one of its passes.
    fn pass(&self, at: usize, pass: u128) -> Permutation {
        let part = key(Purpose::Part, self.seed, at as u64);
        Permutation::new(self.records_of(at), key(Purpose::Part, part, pass as u64))
    }

    /// The part, pass and slot of a position.
    fn draw(&self, epoch: u64, position: u64) -> (usize, u128, u64) {
        let place = self.shuffle(epoch).get(position);
        let at = self.part_at(place, epoch);
        let draw = self.drawn(at, epoch.into()) + u128::from(place - self.start(at, epoch));
        let records = u128::from(self.records_of(at));
        (at, draw / records, (draw % records) as u64)
    }
}

/// Sum of the numbers before each one, then of all.
fn sums(numbers: &[u64]) -> Option<Box<[u64]>> {
    let mut sum = 0u64;
    let ends = numbers.iter().map(|number| {
        sum = sum.checked_add(*number)?;
        Some(sum)
    });
    [Some(0)].into_iter().chain(ends).collect()
}

/// Proportions as integers by their decimal digits: 0.1 is 1 in 10.
fn proportions(parts: &[MixturePart]) -> Vec<u64> {
    let numbers: Vec<f64> = parts
        .iter()
        .map(|part| match part.share {
            Share::Proportion(weight) => weight,
            Share::Repeat(_) | Share::Choose(_) => 0.0,
        })
        .collect();
    let decimals: Vec<_> = numbers.iter().map(|number| Decimal::of(*number)).collect();
    let places = decimals.iter().map(|decimal| decimal.places).max().unwrap_or(0);
    let exact: Option<Vec<u64>> = decimals.iter().map(|decimal| decimal.scaled(places)).collect();
    if let Some(exact) = exact
        && sums(&exact).is_some()
    {
        return exact;
    }
    // Numbers with too many digits for 64 bits: as exact as an f64, by steps that give the same result on every
    // machine.
    let largest = numbers.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let most = (1u64 << 62) / numbers.len().max(1) as u64;
    numbers.iter().map(|number| (number / largest * most as f64) as u64).collect()
}

/// `times · records`, halves up.
fn times_of(times: f64, records: u64) -> Option<u64> {
    let decimal = Decimal::of(times);
    let exact = || {
        let one = 10u128.checked_pow(u32::try_from(decimal.places).ok()?)?;
        let product = decimal.digits?.checked_mul(u128::from(records))?.checked_mul(2)?;
        Some((product.checked_add(one)? / one.checked_mul(2)?) as u64)
    };
    let near = (times * records as f64).round();
    // 2^63, far above any number of samples.
    (near < 9.0e18).then(|| exact().unwrap_or(near as u64))
}

/// A number by the shortest decimal digits that represent it, as people write it.
struct Decimal {
    /// The digits without the point; `None`: more than 128 bits.
    digits: Option<u128>,
    /// Number of digits after the point.
    places: usize,
}

impl Decimal {
    fn of(number: f64) -> Self {
        let text = number.to_string();
        let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
        Self { digits: format!("{whole}{rest}").parse().ok(), places: rest.len() }
    }

    /// As an integer with this many decimal places, at least its own.
    fn scaled(&self, places: usize) -> Option<u64> {
        let zeros = u32::try_from(places - self.places).ok()?;
        u64::try_from(self.digits?.checked_mul(10u128.checked_pow(zeros)?)?).ok()
    }
}

impl Sampler for MixtureSampler {
    fn len(&self) -> u64 {
        self.len
    }

    fn records(&self) -> u64 {
        self.starts[self.parts()]
    }

    fn record(&self, epoch: u64, position: u64) -> u64 {
        let (at, pass, slot) = self.draw(epoch, position);
        self.starts[at] + self.pass(at, pass).get(slot)
    }

    fn occurrence(&self, epoch: u64, position: u64) -> u64 {
        let (at, pass, _) = self.draw(epoch, position);
        (pass - self.drawn(at, epoch.into()) / u128::from(self.records_of(at))) as u64
    }

    /// Costs one lookup for each occurrence of the record.
    fn position(&self, epoch: u64, record: u64) -> Option<u64> {
        if record >= self.records() {
            return None;
        }
        let at = self.starts.partition_point(|start| *start <= record) - 1;
        let records = u128::from(self.records_of(at));
        let (first, end) = (self.drawn(at, epoch.into()), self.drawn(at, u128::from(epoch) + 1));
        let (start, shuffle) = (self.start(at, epoch), self.shuffle(epoch));
        let passes = first / records..end.div_ceil(records);
        let draws =
            passes.map(|pass| pass * records + u128::from(self.pass(at, pass).inverse(record - self.starts[at])));
        let here = draws.filter(|draw| (first..end).contains(draw));
        here.map(|draw| shuffle.inverse(start + (draw - first) as u64)).min()
    }

    fn is_bijection(&self) -> bool {
        let total = u128::from(self.weights[self.parts()]);
        let once = |at: usize| {
            let weight = u128::from(self.weights[at + 1] - self.weights[at]);
            weight * u128::from(self.len) == u128::from(self.records_of(at)) * total
        };
        (0..self.parts()).all(once)
    }

    fn describe(&self) -> String {
        self.words.clone()
    }

    fn fingerprint(&self) -> Fingerprint {
        let print = Fingerprint::of("mixture").number(self.len).number(self.seed).number(self.parts() as u64);
        let numbers = self.weights.iter().chain(&self.starts);
        numbers.fold(print, |print, number| print.number(*number)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Order;

    fn mixture(parts: &[(u64, Share)]) -> Mixture {
        let all = parts.iter().fold(Mixture::new(3), |all, (_, share)| all.part("", *share));
        all.with_records(&parts.iter().map(|part| part.0).collect::<Vec<_>>()).unwrap()
    }

    fn refused(mixture: &Mixture) -> String {
        MixtureSampler::new(mixture).unwrap_err().to_string()
    }

    #[test]
    fn proportions_are_taken_as_they_are_written() {
        let weights = |numbers: &[f64]| {
            let parts = numbers.iter().map(|number| (9, Share::Proportion(*number))).collect::<Vec<_>>();
            proportions(&mixture(&parts).parts)
        };
        assert_eq!(weights(&[0.7, 0.2, 0.1]), [7, 2, 1]);
        assert_eq!(weights(&[3.0, 0.25]), [300, 25]);
        // Too many digits for 64 bits, and still as they are to the last of an f64.
        let near = weights(&[1e30, 5e29, 1e-30]);
        assert_eq!((near[0], near[2]), (near[1] * 2, 0));
    }

    #[test]
    fn repeats_are_rounded_a_half_up() {
        for (times, records, want) in
            [(2.5, 1001, 2503), (0.1, 1001, 100), (0.1, 5, 1), (1.0, u64::MAX / 4, u64::MAX / 4), (0.3, 10, 3)]
        {
            assert_eq!(times_of(times, records), Some(want), "{times} × {records}");
        }
        assert_eq!(times_of(3.0, u64::MAX / 2), None);
    }

    #[test]
    fn counts_add_up_and_fractions_go_over_to_the_next_epoch() {
        let parts = [(50, Share::Proportion(1.0)), (50, Share::Proportion(1.0)), (50, Share::Proportion(1.0))];
        let mixture = mixture(&parts).samples(10);
        let counts: Vec<_> = (0..3).map(|epoch| mixture.counts(epoch).unwrap()).collect();
        assert!(counts.iter().all(|counts| counts.iter().sum::<u64>() == 10), "{counts:?}");
        assert_eq!((0..3).map(|at| counts.iter().map(|counts| counts[at]).sum::<u64>()).collect::<Vec<_>>(), [10; 3]);
        assert_eq!(
            super::tests::mixture(&[(5, Share::Repeat(2.5)), (9, Share::Choose(4))]).counts(8).unwrap(),
            [13, 4]
        );
    }

    #[test]
    fn distant_epochs_do_not_overflow() {
        let sampler = MixtureSampler::new(&mixture(&[
            (1 << 40, Share::Proportion(0.123_456_789_012_345)),
            ((1 << 62) - 7, Share::Proportion(0.9)),
        ]));
        let sampler = sampler.unwrap();
        for epoch in [0, 1 << 40, u64::MAX] {
            for position in [0, 1, sampler.len() - 1] {
                let record = sampler.record(epoch, position);
                assert!(record < sampler.records());
                assert!(sampler.position(epoch, record).is_some_and(|first| first <= position));
            }
        }
    }

    #[test]
    fn what_can_not_be_mixed_is_refused_by_name() {
        let half = Share::Proportion(0.5);
        for (mixture, want) in [
            (Mixture::new(0), "no parts"),
            (
                mixture(&[(5, half), (5, Share::Repeat(2.0))]),
                "part 1 of the mixture has repeat=2, part 0 has proportion=0.5",
            ),
            (mixture(&[(5, half), (0, half)]), "part 1 of the mixture has no records"),
            (mixture(&[(5, Share::Proportion(0.0))]), "has proportion=0"),
            (mixture(&[(5, Share::Repeat(f64::NAN))]), "has repeat=NaN"),
            (mixture(&[(5, Share::Choose(0))]), "has choose=0"),
            (mixture(&[(5, Share::Choose(3))]).samples(7), "7 samples, and parts with choose=3"),
            (
                mixture(&[(5, half), (5, Share::Proportion(0.01))]),
                "part 1 of the mixture, proportion=0.01, is less than a sample",
            ),
            (mixture(&[(5, Share::Choose(u64::MAX)), (5, Share::Choose(1))]), "more than 2^64 - 1 samples"),
            (Mixture::new(0).part("x", half), "part `x` of the mixture has an unknown number"),
        ] {
            let error = refused(&mixture);
            assert!(error.contains(want), "{error}");
        }
        let error = Mixture::new(0).part("x", half).with_records(&[1, 2]).unwrap_err();
        assert!(error.to_string().contains("1 parts, the dataset 2"), "{error}");
        let error = mixture(&[(5, half)]).with_records(&[6]).unwrap_err();
        assert!(error.to_string().contains("5 records, the dataset's 6"), "{error}");
    }

    #[test]
    fn files_have_one_share_a_part_and_each_record_once_by_default() {
        let json = r#"{"mixture":{"seed":4,"parts":[{"name":"a","proportion":0.7},{"records":5},{"choose":9}]}}"#;
        let Order::Mixture(mixture) = serde_json::from_str(json).unwrap() else { panic!("{json}") };
        let shares: Vec<_> = mixture.parts.iter().map(|part| part.share).collect();
        assert_eq!(shares, [Share::Proportion(0.7), Share::Repeat(1.0), Share::Choose(9)]);
        assert_eq!((mixture.parts[1].records, mixture.name(0)), (Some(5), "`a`".to_owned()));
        let again: Order =
            serde_json::from_value(serde_json::to_value(Order::Mixture(mixture.clone())).unwrap()).unwrap();
        assert_eq!(again, Order::Mixture(mixture));
        for (json, want) in [
            (r#"{"mixture":{"parts":[{"name":"a","proportion":1,"choose":3}]}}"#, "part `a` has several"),
            (r#"{"mixture":{"parts":[{"propotion":1}]}}"#, "propotion"),
            (r#"{"mixture":{"parts":[],"sample":1}}"#, "sample"),
        ] {
            let error = serde_json::from_str::<Order>(json).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn shares_are_read_as_they_are_written() {
        for text in ["proportion=0.7", "repeat=2.5", "choose=10"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
        for text in ["0.7", "choose=1.5", "weight=2", "repeat=", ""] {
            let error = text.parse::<Share>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("proportion=0.7"), "{error}");
        }
    }

    #[test]
    fn shares_lengths_and_seed_are_in_the_fingerprint_and_names_are_not() {
        let print = |mixture: &Mixture| MixtureSampler::new(mixture).unwrap().fingerprint();
        let of = |a, b| mixture(&[(10, Share::Proportion(a)), (20, Share::Proportion(b))]);
        let first = of(0.5, 0.5);
        let mut named = first.clone();
        named.parts[0].name = "a".into();
        assert_eq!((print(&first), first.to_string()), (print(&named), named.to_string()));
        let longer = mixture(&[(10, Share::Proportion(0.5)), (21, Share::Proportion(0.5))]);
        for other in [of(0.5, 0.4), longer.samples(30), first.clone().samples(31), Mixture { seed: 4, ..first.clone() }]
        {
            assert_ne!(print(&first), print(&other), "{other:?}");
        }
    }
}
