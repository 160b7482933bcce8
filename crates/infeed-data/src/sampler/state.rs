//! The position of a run, small enough to travel with every batch.
#![forbid(unsafe_code)]

use std::fmt;

use infeed_core::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
};
use serde::{Deserialize, Serialize};

use super::base::Sampler;

/// The position of a run in its order, and the identity of the order and dataset. Used to resume.
///
/// The state of a batch resumes *after* that batch, however far the loader has read ahead. It is the same on every rank
/// (except for `bad_samples`), so saving that of rank 0 is enough. It does not contain the number of ranks or workers
/// or the batch size, so all of them may change on resume.
///
/// Serde writes it into any checkpoint; [`to_json`](Self::to_json) is for a file of its own.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{Loader, LoaderState};
///
/// # let dataset = Arc::new(infeed::dataset::SyntheticDataset::new(12, 4, 4, 2)?);
/// let loader = Loader::builder(dataset).batch_size(4).shuffle(42).build_blocking()?;
/// let mut batches = loader.epochs(0..2).blocking();
/// let saved = batches.next().expect("six batches")?.state().to_json(); // Into the checkpoint.
///
/// let state = LoaderState::from_json(&saved)?;
/// assert_eq!((state.epoch, state.position), (0, 4));
/// let resumed = loader.resume_epochs(&state, ..2)?.blocking().next().expect("five batches")?;
/// assert_eq!(resumed.records(), batches.next().expect("five batches")?.records());
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Saved", try_from = "Saved")]
#[non_exhaustive]
pub struct LoaderState {
    /// Version of the form: [`VERSION`](Self::VERSION).
    pub version: u32,
    /// The epoch to continue in.
    pub epoch: u64,
    /// The first position of that epoch that no rank has seen.
    pub position: u64,
    /// The seed of the augmentation.
    pub seed: u64,
    /// Lanes of [`Order::Blocks`](super::Order::Blocks), kept so that another world size keeps the order.
    pub lanes: u64,
    /// Samples skipped or substituted so far on this rank.
    pub bad_samples: u64,
    /// The dataset and order that the position refers to.
    pub identity: Identity,
}

/// A state in its written form: with a checksum over all of it, because one changed digit would be another position.
#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    epoch: u64,
    position: u64,
    seed: u64,
    lanes: u64,
    bad_samples: u64,
    identity: Identity,
    /// `None` in states that were written before there was a checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<Fingerprint>,
}

impl From<LoaderState> for Saved {
    fn from(state: LoaderState) -> Self {
        let checksum = Some(state.checksum());
        let LoaderState { version, epoch, position, seed, lanes, bad_samples, identity } = state;
        Self { version, epoch, position, seed, lanes, bad_samples, identity, checksum }
    }
}

impl TryFrom<Saved> for LoaderState {
    type Error = Error;

    fn try_from(saved: Saved) -> Result<Self> {
        let Saved { version, epoch, position, seed, lanes, bad_samples, identity, checksum } = saved;
        let found = Self { version, epoch, position, seed, lanes, bad_samples, identity };
        match checksum {
            Some(checksum) if checksum != found.checksum() => {
                Err(state(format!("the state's checksum is {checksum}, that of its content {}", found.checksum()))
                    .with_hint("the state is damaged or was edited: use an older one"))
            }
            _ => Ok(found),
        }
    }
}

/// Everything that decides which record a position stands for. With equal identities, equal positions are equal
/// records.
///
/// Not included, and so free to change: batch size, world size, workers, transform, decoder, URL.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{ErrorKind, Loader};
///
/// # let dataset = Arc::new(infeed::dataset::SyntheticDataset::new(12, 4, 4, 2)?);
/// let saved = Loader::builder(dataset.clone()).batch_size(4).shuffle(42).build_blocking()?.state_before(0);
/// assert_eq!(saved.identity.order, "random, seed 42");
///
/// let other = Loader::builder(dataset).batch_size(4).shuffle(43).build_blocking()?.state_before(0);
/// let error = saved.check(&other.identity).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::State);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Identity {
    /// Name of the dataset's format.
    pub format: String,
    /// Number of records in the dataset.
    pub records: u64,
    /// The dataset's relative object names and sizes.
    pub dataset: Fingerprint,
    /// Number of positions in an epoch; differs from `records` if the sampler draws with replacement, for example.
    pub positions: u64,
    /// The order in words, as [`Sampler::describe`] returns it.
    pub order: String,
    /// The order's [`fingerprint`](Sampler::fingerprint).
    pub order_fingerprint: Fingerprint,
}

impl Identity {
    /// The identity of `sampler` over a dataset of this format, size and fingerprint.
    #[must_use]
    pub fn new(format: &str, records: u64, dataset: Fingerprint, sampler: &dyn Sampler) -> Self {
        Self {
            format: format.to_owned(),
            records,
            dataset,
            positions: sampler.len(),
            order: sampler.describe(),
            order_fingerprint: sampler.fingerprint(),
        }
    }
}

impl LoaderState {
    /// The version that this crate writes, and the only one that it reads.
    pub const VERSION: u32 = 1;

    /// The state before the first batch of epoch 0.
    #[must_use]
    pub const fn new(identity: Identity, seed: u64, lanes: u64) -> Self {
        Self { version: Self::VERSION, epoch: 0, position: 0, seed, lanes, bad_samples: 0, identity }
    }

    /// The same run at another position.
    #[must_use]
    pub fn at(&self, epoch: u64, position: u64) -> Self {
        Self { epoch, position, ..self.clone() }
    }

    /// Checks whether a loader with this identity can continue from here.
    ///
    /// # Errors
    /// `State`, with the part that differs, its value in the loader and in the state, and what to do.
    pub fn check(&self, identity: &Identity) -> Result<()> {
        self.check_dataset(identity)?;
        let Identity { positions, order, order_fingerprint, .. } = &self.identity;
        let same = "use the order it was saved with";
        differs("order is", "", &identity.order, order, same)?;
        differs("an epoch has", " positions", &identity.positions, positions, same)?;
        let hint = "use the order, groups, weights or list it was saved with";
        differs("order has fingerprint", "", &identity.order_fingerprint, order_fingerprint, hint)?;
        if self.position > self.identity.positions {
            return Err(state(format!("position {} is beyond the epoch's {positions}", self.position))
                .with_hint("the state is damaged: use an older one"));
        }
        if self.lanes == 0 {
            return Err(state("lanes are 0").with_hint("the state is damaged: use an older one"));
        }
        Ok(())
    }

    /// Checks that the state was saved on this dataset.
    fn check_dataset(&self, identity: &Identity) -> Result<()> {
        check_version(self.version)?;
        let Identity { format, records, dataset, .. } = &self.identity;
        let open = "open the dataset it was saved on";
        differs("dataset is", "", &identity.format, format, open)?;
        differs("dataset has", " records", &identity.records, records, open)?;
        differs("dataset's names and sizes have fingerprint", "", &identity.dataset, dataset, open)
    }

    /// This state for a run that gives each epoch an order of its own, such as a [`ListSampler`](super::ListSampler).
    /// `before` is the state before the epoch to continue in, with that epoch's order: `Loader::state_before`.
    ///
    /// The state of an epoch's last batch is at the start of the next epoch, but in the order that ended. Nothing of
    /// the next epoch was seen yet, so any order of the same dataset fits: the result has that of `before`. A state
    /// within an epoch is returned unchanged; [`check`](Self::check), which each resume calls, rejects it for another
    /// order. See `Loader::with_sampler` for an example.
    ///
    /// # Errors
    /// `State` if the dataset differs from that of `before`, with the part that differs.
    pub fn for_order(&self, before: &Self) -> Result<Self> {
        self.check_dataset(&before.identity)?;
        let Self { lanes, identity, .. } = if self.position == 0 { before } else { self };
        Ok(Self { lanes: *lanes, identity: identity.clone(), ..self.clone() })
    }

    /// The checksum over all fields.
    fn checksum(&self) -> Fingerprint {
        let Self { version, epoch, position, seed, lanes, bad_samples, identity } = self;
        let Identity { format, records, dataset, positions, order, order_fingerprint } = identity;
        let numbers = [u64::from(*version), *epoch, *position, *seed, *lanes, *bad_samples, *records, *positions];
        let sum = numbers.into_iter().fold(Fingerprint::of("state"), |sum, number| sum.number(number));
        sum.text(format).part(*dataset).text(order).part(*order_fingerprint).finish()
    }

    /// As one line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings are always JSON")
    }

    /// Reads the output of [`to_json`](Self::to_json).
    ///
    /// # Errors
    /// `State` for text that is not a state, for a state of another version, and for a `checksum` that does not match
    /// the content. States of earlier versions of infeed have no checksum and are accepted. Whether a state fits a
    /// loader is tested by [`check`](Self::check).
    pub fn from_json(text: &str) -> Result<Self> {
        /// Read first, because another version may have any other fields.
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let parse = |cause: serde_json::Error| {
            state("this is not the state of a loader")
                .with_hint("give the file that the loader's state was saved to")
                .with_source(cause)
        };
        let Version { version } = serde_json::from_str(text).map_err(parse)?;
        check_version(version)?;
        serde_json::from_str::<Saved>(text).map_err(parse)?.try_into()
    }
}

fn check_version(version: u32) -> Result<()> {
    if version == LoaderState::VERSION {
        return Ok(());
    }
    let known = LoaderState::VERSION;
    Err(state(format!("the state has version {version}, this infeed reads {known}"))
        .with_hint("resume with the version of infeed that saved it"))
}

/// An error if a part differs from the one that the state was saved with.
fn differs<T: PartialEq + fmt::Display>(what: &str, unit: &str, here: &T, saved: &T, hint: &'static str) -> Result<()> {
    if here == saved {
        return Ok(());
    }
    Err(state(format!("{what} {here}{unit}, the state was saved with {saved}")).with_hint(hint))
}

fn state(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::State, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Order;

    fn saved() -> LoaderState {
        let sampler = Order::Random { seed: 42 }.sampler(1_281_167, None, 1).unwrap();
        let identity = Identity::new("folder", 1_281_167, Fingerprint(0xabc), &*sampler);
        LoaderState::new(identity, 42, 1).at(3, 1024)
    }

    #[test]
    fn json_round_trips_and_stays_as_it_is() {
        let state = saved();
        assert_eq!(LoaderState::from_json(&state.to_json()).unwrap(), state);
        // The form that others may have on disk: change it with the version only.
        assert_eq!(
            state.to_json(),
            format!(
                "{{\"version\":1,\"epoch\":3,\"position\":1024,\"seed\":42,\"lanes\":1,\"bad_samples\":0,\"identity\":\
                 {{\"format\":\"folder\",\"records\":1281167,\"dataset\":\"00000000000000000000000000000abc\",\
                 \"positions\":1281167,\"order\":\"random, seed 42\",\"order_fingerprint\":\"{}\"}},\"checksum\":\"{}\"}}",
                state.identity.order_fingerprint,
                state.checksum()
            )
        );
    }

    #[test]
    fn what_is_changed_in_a_state_is_found_and_what_was_saved_without_a_sum_is_taken() {
        let state = saved();
        let json = state.to_json();
        let (old, _) = json.split_once(",\"checksum\"").unwrap();
        assert_eq!(LoaderState::from_json(&format!("{old}}}")).unwrap(), state);
        // Any digit of any number, and any letter of the words.
        let changed = json.char_indices().filter_map(|(at, letter)| {
            let other = match letter {
                '0'..='8' => char::from(letter as u8 + 1),
                '9' => '8',
                'a'..='e' => 'f',
                _ => return None,
            };
            Some(format!("{}{other}{}", &json[..at], &json[at + 1..]))
        });
        let mut tried = 0;
        for text in changed {
            tried += 1;
            // A key that is another one is none, or one that is passed over.
            match LoaderState::from_json(&text) {
                Ok(read) => assert!(read == state && !text.contains("\"checksum\""), "{text}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::State),
            }
        }
        assert!(tried > 100);
        let error = LoaderState::from_json(&json.replace("\"epoch\":3", "\"epoch\":5")).unwrap_err().to_string();
        assert!(error.contains("the state's checksum is") && error.contains("use an older one"), "{error}");
        // As one that lies in a checkpoint of somebody's.
        let value: serde_json::Value = serde_json::from_str(&json.replace("\"epoch\":3", "\"epoch\":5")).unwrap();
        assert!(serde_json::from_value::<LoaderState>(value).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn a_mismatch_names_the_part_and_both_values() {
        type Change = fn(&mut LoaderState);
        let changes: [(Change, &str); 9] = [
            (
                |s| s.identity.format = "cifar10".into(),
                "state: dataset is folder, the state was saved with cifar10; open the dataset it was saved on",
            ),
            (
                |s| s.identity.records = 7,
                "state: dataset has 1281167 records, the state was saved with 7; open the dataset it was saved on",
            ),
            (|s| s.identity.dataset = Fingerprint(1), "00000abc, the state was saved with 0000"),
            (
                |s| s.identity.order = "random, seed 43".into(),
                "state: order is random, seed 42, the state was saved with random, seed 43; use the order it was saved with",
            ),
            (|s| s.identity.positions = 5, "an epoch has 1281167 positions, the state was saved with 5"),
            (|s| s.identity.order_fingerprint = Fingerprint(2), "order has fingerprint"),
            (|s| s.position = 1_281_168, "position 1281168 is beyond the epoch's 1281167"),
            (|s| s.lanes = 0, "lanes are 0"),
            (|s| s.version = 2, "the state has version 2, this infeed reads 1"),
        ];
        let here = saved().identity;
        saved().check(&here).unwrap();
        for (change, want) in changes {
            let mut state = saved();
            change(&mut state);
            let error = state.check(&here).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::State);
            assert!(error.to_string().contains(want), "{error}");
        }
    }

    #[test]
    fn only_a_state_before_an_epoch_takes_another_order() {
        let list = crate::sampler::ListSampler::new(1_281_167, [3, 1]).unwrap();
        let identity = Identity::new("folder", 1_281_167, Fingerprint(0xabc), &list);
        let before = LoaderState::new(identity, 7, 2).at(3, 0);
        let within = saved();
        assert_eq!(within.for_order(&before).unwrap(), within);
        let at_the_start = LoaderState { bad_samples: 5, ..saved().at(3, 0) };
        let there = at_the_start.for_order(&before).unwrap();
        assert_eq!(
            there,
            LoaderState { seed: 42, bad_samples: 5, ..before.clone() },
            "the seed is looked at by who resumes"
        );
        there.check(&before.identity).unwrap();
        let elsewhere = LoaderState { identity: Identity { records: 9, ..before.identity.clone() }, ..before };
        for state in [within, at_the_start] {
            let error = state.for_order(&elsewhere).unwrap_err().to_string();
            assert!(error.contains("dataset has 9 records, the state was saved with 1281167"), "{error}");
        }
    }

    #[test]
    fn what_is_no_state_is_refused() {
        for (text, want) in [
            ("", "not the state"),
            ("{}", "not the state"),
            ("[1]", "not the state"),
            (r#"{"version":1,"epoch":0}"#, "not the state"),
            (r#"{"version":9,"whatever":0}"#, "version 9, this infeed reads 1"),
            (&saved().to_json().replace("\"position\":1024", "\"position\":-1"), "not the state"),
        ] {
            let error = LoaderState::from_json(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::State, "{text}");
            assert!(error.to_string().contains(want), "{error}");
        }
    }
}
