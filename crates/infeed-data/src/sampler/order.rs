//! The order of records.
//!
//! ```text
//! Blocks, 2 lanes:   position 0 1 2 3 4 5 …
//!                        lane 0 1 0 1 0 1 …           one lane (or several) to a rank
//!   lane 0: places 0 .. n/2, lane 1: places n/2 .. n   each in windows, shuffled inside
//!   places: ┌ group 7 ┬ group 2 ┬ group 9 ┬ …          groups permuted, read as a whole by one rank
//! ```
#![forbid(unsafe_code)]

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use infeed_core::{
    error::{Error, Result},
    fingerprint::Fingerprint,
};
use serde::{Deserialize, Serialize};

use super::{
    base::Sampler,
    mixture::{Mixture, MixtureSampler},
    permutation::{Permutation, Purpose, key},
    repeated::{self, Repeated},
};

/// Records per group, for a dataset that names no groups. 256 photographs of 100 KB are 26 MB, 256 CIFAR pictures 0.8
/// MB: both are long enough for a disk or a store to read at full speed.
pub const DEFAULT_GROUP: u64 = 256;

/// The order of the records of an epoch.
///
/// Every order is exact for any number of records, groups, lanes and ranks: each record occurs once per epoch.
/// [`Repeated`](Self::Repeated) and [`Mixture`](Self::Mixture) instead define how often a record occurs.
///
/// ```
/// use infeed::sampler::Order;
/// let sampler = Order::Random { seed: 42 }.sampler(1000, None, 1)?;
/// let record = sampler.record(0, 7);
/// assert_eq!(sampler.position(0, record), Some(7));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Order {
    /// The dataset's order, in every epoch.
    #[default]
    Sequential,
    /// Shuffled over the whole dataset, each epoch differently.
    Random {
        /// Equal seeds give equal orders.
        seed: u64,
    },
    /// Shuffled so that neighbouring records stay close: groups (a shard, a patient) are in random order, and records
    /// are shuffled within a window. For stores where one long read is much cheaper than many short ones.
    ///
    /// Positions are dealt to lanes, position `p` to lane `p % lanes`, and each lane walks through its own range of
    /// groups. If `lanes` is a multiple of the world size, each rank has whole lanes, so almost every group is read by
    /// one rank. Only a group on the border of two ranges is read by two.
    Blocks {
        /// Equal seeds give equal orders.
        seed: u64,
        /// Number of records that a lane shuffles among. A window of several groups mixes them; 1 keeps each group in
        /// its own order.
        window: u64,
        /// Number of lanes; `None`: the world size of the first run, which is kept over resumes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lanes: Option<u64>,
    },
    /// Repeated augmentation ([Hoffer et al. 2019](https://arxiv.org/abs/1901.09335), [Berman et al.
    /// 2019](https://arxiv.org/abs/1902.05509)): records in random order, each `times` times in a row, with different
    /// augmentation each time. Positions are dealt to ranks in turn, so the repeats of a record go to different ranks,
    /// or into one batch if there are fewer ranks.
    ///
    /// As with torchvision's and timm's samplers, an epoch is as long as the dataset, so it holds one of `times`
    /// records. Unlike theirs, no record is missed: in `times` epochs, starting at a multiple of `times`, each record
    /// occurs exactly `times` times.
    Repeated {
        /// Equal seeds give equal orders.
        seed: u64,
        /// How often a record occurs, 1 or more. DeiT uses 3, torchvision 4.
        times: u32,
        /// Whether each epoch has all records, which makes it `times` as long. Default: false.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        all_records: bool,
    },
    /// Several datasets, each with its share of an epoch, in random order: see [`Mixture`].
    Mixture(Mixture),
}

impl Order {
    /// The number of lanes that [`sampler`](Self::sampler) uses with this default. Save it in the state, and use it as
    /// the default of a resumed run.
    #[must_use]
    pub const fn lanes(&self, default: u64) -> u64 {
        match self {
            Self::Blocks { lanes: Some(lanes), .. } => *lanes,
            _ => default,
        }
    }

    /// The seed of the shuffle; `None` if the order has none.
    #[must_use]
    pub const fn seed(&self) -> Option<u64> {
        match self {
            Self::Sequential => None,
            Self::Random { seed } | Self::Blocks { seed, .. } | Self::Repeated { seed, .. } => Some(*seed),
            Self::Mixture(mixture) => Some(mixture.seed),
        }
    }

    /// The order for a dataset of `len` records.
    ///
    /// `groups` are those of the dataset: first records, ascending, starting with 0. Only `Blocks` uses `groups` and
    /// `lanes`, the number of lanes if the order sets none. Without groups, each [`DEFAULT_GROUP`] records are a group.
    ///
    /// Memory: only `Blocks` with groups of different sizes needs any, 8 bytes per group for each epoch in use (at most
    /// 3). The table of an epoch is made at its first lookup, in less than 0.1 µs per group.
    ///
    /// # Errors
    /// `Config` if the window, `lanes` or the number of repeats is 0, or if `groups` are not as described above. For a
    /// mixture, `Config` if its parts do not fit `len`, or if they can't be mixed: no parts, proportions together with
    /// other shares, a number that is not above 0, `samples` together with shares that set it, or a part with less than
    /// one sample per epoch.
    pub fn sampler(&self, len: u64, groups: Option<Arc<[u64]>>, lanes: u64) -> Result<Arc<dyn Sampler>> {
        Ok(match self {
            Self::Sequential => Arc::new(Sequential { len }),
            Self::Random { seed } => Arc::new(Random { len, seed: *seed }),
            Self::Blocks { seed, window, .. } => Arc::new(Blocks::new(len, groups, *seed, *window, self.lanes(lanes))?),
            Self::Repeated { seed, times, all_records } => Arc::new(Repeated::new(len, *seed, *times, *all_records)?),
            Self::Mixture(mixture) => {
                let sampler = MixtureSampler::new(mixture)?;
                if sampler.records() != len {
                    let what = format!("the mixture's parts have {} records, the dataset {len}", sampler.records());
                    return Err(
                        Error::config(what).with_hint("make the mixture for the datasets that were put together")
                    );
                }
                Arc::new(sampler)
            }
        })
    }
}

impl From<Mixture> for Order {
    fn from(mixture: Mixture) -> Self {
        Self::Mixture(mixture)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequential => f.write_str("sequential"),
            Self::Random { seed } => write!(f, "random, seed {seed}"),
            Self::Blocks { seed, window, lanes } => {
                write!(f, "blocks, seed {seed}, window {window}")?;
                lanes.map_or(Ok(()), |lanes| write!(f, ", lanes {lanes}"))
            }
            Self::Repeated { seed, times, all_records } => {
                f.write_str(&repeated::describe(*seed, *times, *all_records))
            }
            Self::Mixture(mixture) => mixture.fmt(f),
        }
    }
}

#[derive(Debug)]
struct Sequential {
    len: u64,
}

impl Sampler for Sequential {
    fn len(&self) -> u64 {
        self.len
    }

    fn record(&self, _epoch: u64, position: u64) -> u64 {
        position
    }

    fn position(&self, _epoch: u64, record: u64) -> Option<u64> {
        (record < self.len).then_some(record)
    }

    fn describe(&self) -> String {
        Order::Sequential.to_string()
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("sequential").number(self.len).finish()
    }
}

#[derive(Debug)]
struct Random {
    len: u64,
    seed: u64,
}

impl Random {
    const fn order(&self, epoch: u64) -> Permutation {
        Permutation::new(self.len, key(Purpose::Records, self.seed, epoch))
    }
}

impl Sampler for Random {
    fn len(&self) -> u64 {
        self.len
    }

    fn record(&self, epoch: u64, position: u64) -> u64 {
        self.order(epoch).get(position)
    }

    fn position(&self, epoch: u64, record: u64) -> Option<u64> {
        (record < self.len).then(|| self.order(epoch).inverse(record))
    }

    fn describe(&self) -> String {
        Order::Random { seed: self.seed }.to_string()
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("random").number(self.len).number(self.seed).finish()
    }
}

/// From positions to places (lanes, windows) to records (groups in permuted order).
#[derive(Debug)]
struct Blocks {
    len: u64,
    seed: u64,
    window: u64,
    lanes: u64,
    groups: Groups,
}

impl Blocks {
    fn new(len: u64, groups: Option<Arc<[u64]>>, seed: u64, window: u64, lanes: u64) -> Result<Self> {
        if window == 0 {
            return Err(
                Error::config("the order's window is 0").with_hint("use 1 or more records, ideally several groups")
            );
        }
        if lanes == 0 {
            return Err(Error::config("the order's lanes are 0").with_hint("use 1 or more, ideally the world size"));
        }
        let groups = match groups {
            Some(starts) => Groups::new(starts, len)?,
            None => Groups::Even(Even { len, size: DEFAULT_GROUP }),
        };
        Ok(Self { len, seed, window, lanes, groups })
    }

    /// First place of a lane's range. The first `len % lanes` lanes hold one position more than the others.
    const fn lane_start(&self, lane: u64) -> u64 {
        let longer = self.len % self.lanes;
        lane * (self.len / self.lanes) + if lane < longer { lane } else { longer }
    }

    /// The lane whose range holds `place`.
    const fn lane_of(&self, place: u64) -> u64 {
        let (each, longer) = (self.len / self.lanes, self.len % self.lanes);
        let border = longer * (each + 1);
        if place < border { place / (each + 1) } else { longer + (place - border) / each }
    }

    /// The window of `lane` that holds place `at` of the lane: its first place within the lane, and the shuffle inside.
    const fn window(&self, epoch: u64, lane: u64, at: u64) -> (u64, Permutation) {
        let lane_len = self.lane_start(lane + 1) - self.lane_start(lane);
        let first = at - at % self.window;
        let len = if lane_len - first < self.window { lane_len - first } else { self.window };
        // The first place identifies the window within the epoch, so no two windows share a key.
        let name = self.lane_start(lane) + first;
        (first, Permutation::new(len, key(Purpose::Window, key(Purpose::Window, self.seed, epoch), name)))
    }

    const fn group_key(&self, epoch: u64) -> u64 {
        key(Purpose::Groups, self.seed, epoch)
    }
}

impl Sampler for Blocks {
    fn len(&self) -> u64 {
        self.len
    }

    fn record(&self, epoch: u64, position: u64) -> u64 {
        assert!(position < self.len, "position {position} of {}", self.len);
        let (lane, at) = (position % self.lanes, position / self.lanes);
        let (first, shuffle) = self.window(epoch, lane, at);
        let place = self.lane_start(lane) + first + shuffle.get(at - first);
        self.groups.record(self.group_key(epoch), place)
    }

    fn position(&self, epoch: u64, record: u64) -> Option<u64> {
        if record >= self.len {
            return None;
        }
        let place = self.groups.place(self.group_key(epoch), record);
        let lane = self.lane_of(place);
        let at = place - self.lane_start(lane);
        let (first, shuffle) = self.window(epoch, lane, at);
        Some((first + shuffle.inverse(at - first)) * self.lanes + lane)
    }

    fn describe(&self) -> String {
        let order = Order::Blocks { seed: self.seed, window: self.window, lanes: Some(self.lanes) };
        format!("{order}, {} groups", self.groups.count())
    }

    fn fingerprint(&self) -> Fingerprint {
        let parts = Fingerprint::of("blocks").number(self.len).number(self.seed).number(self.window).number(self.lanes);
        match &self.groups {
            Groups::Even(even) => parts.number(even.size),
            Groups::Uneven(uneven) => uneven.starts.iter().fold(parts, |parts, &start| parts.number(start)),
        }
        .finish()
    }
}

/// Groups in permuted order, one after another: each record has a place.
#[derive(Debug)]
enum Groups {
    Even(Even),
    Uneven(Uneven),
}

impl Groups {
    fn new(starts: Arc<[u64]>, len: u64) -> Result<Self> {
        let refuse = |what: String| {
            Error::config(format!("the dataset's groups {what}"))
                .with_hint("name the first record of each group, ascending, starting with 0")
        };
        match starts.first() {
            Some(0) => {}
            Some(first) => return Err(refuse(format!("begin with record {first}"))),
            None if len == 0 => {
                return Ok(Self::Even(Even { len, size: DEFAULT_GROUP }));
            }
            None => return Err(refuse("are none".into())),
        }
        if let Some(pair) = starts.windows(2).find(|pair| pair[0] > pair[1]) {
            return Err(refuse(format!("go back from record {} to {}", pair[0], pair[1])));
        }
        // Unwrap-free: the list is not empty here.
        let last = starts.last().copied().unwrap_or(0);
        if last > len {
            return Err(refuse(format!("name record {last} of {len}")));
        }
        let size = starts.get(1).copied().unwrap_or(len);
        let even =
            size > 0 && starts.windows(2).all(|pair| pair[1] - pair[0] == size) && (1..=size).contains(&(len - last));
        if even {
            return Ok(Self::Even(Even { len, size }));
        }
        Ok(Self::Uneven(Uneven { starts, len, epochs: Mutex::new(Vec::new()) }))
    }

    fn count(&self) -> u64 {
        match self {
            Self::Even(even) => even.count(),
            Self::Uneven(uneven) => uneven.starts.len() as u64,
        }
    }

    fn record(&self, key: u64, place: u64) -> u64 {
        match self {
            Self::Even(even) => even.record(key, place),
            Self::Uneven(uneven) => uneven.record(key, place),
        }
    }

    fn place(&self, key: u64, record: u64) -> u64 {
        match self {
            Self::Even(even) => even.place(key, record),
            Self::Uneven(uneven) => uneven.place(key, record),
        }
    }
}

/// Groups of one size; the dataset's last group may be smaller. Pure arithmetic.
#[derive(Debug)]
struct Even {
    len: u64,
    size: u64,
}

impl Even {
    const fn count(&self) -> u64 {
        self.len.div_ceil(self.size)
    }

    /// Records that the dataset's last group lacks.
    const fn missing(&self) -> u64 {
        (self.size - self.len % self.size) % self.size
    }

    fn record(&self, key: u64, place: u64) -> u64 {
        let order = Permutation::new(self.count(), key);
        let missing = self.missing();
        // The place where the small group ends: every place after it is shifted by `missing`.
        let moved = missing > 0 && place >= (order.inverse(self.count() - 1) + 1) * self.size - missing;
        let place = if moved { place + missing } else { place };
        order.get(place / self.size) * self.size + place % self.size
    }

    fn place(&self, key: u64, record: u64) -> u64 {
        let order = Permutation::new(self.count(), key);
        let slot = order.inverse(record / self.size);
        let missing = self.missing();
        let moved = missing > 0 && slot > order.inverse(self.count() - 1);
        slot * self.size + record % self.size - if moved { missing } else { 0 }
    }
}

/// Groups of any sizes. The start of a permuted group is a sum over the groups before it, so each epoch has a table.
struct Uneven {
    starts: Arc<[u64]>,
    len: u64,
    /// Tables of the most recently used epochs, newest last. A cache of a pure function: the first thread makes a
    /// table, and all threads see the same.
    epochs: Mutex<Vec<(u64, Arc<[u64]>)>>,
}

impl Uneven {
    /// The current epoch, the next one, which may be read ahead, and one for a cache that needs the next use of a
    /// record.
    const KEPT: usize = 3;

    fn order(&self, key: u64) -> Permutation {
        Permutation::new(self.starts.len() as u64, key)
    }

    fn end(&self, group: usize) -> u64 {
        self.starts.get(group + 1).copied().unwrap_or(self.len)
    }

    /// First place of each group in the permuted order.
    fn table(&self, key: u64) -> Arc<[u64]> {
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, table)) = epochs.iter().rev().find(|(of, _)| *of == key) {
            return Arc::clone(table);
        }
        // Made under the lock: a second thread would make the same table and take as long.
        let order = self.order(key);
        let mut place = 0;
        let table: Arc<[u64]> = (0..order.len())
            .map(|slot| {
                let group = order.get(slot) as usize;
                let first = place;
                place += self.end(group) - self.starts[group];
                first
            })
            .collect();
        if epochs.len() == Self::KEPT {
            epochs.remove(0);
        }
        epochs.push((key, Arc::clone(&table)));
        table
    }

    fn record(&self, key: u64, place: u64) -> u64 {
        let table = self.table(key);
        // The last group that begins here or earlier; an empty group begins at the same place as its successor and is
        // before it.
        let slot = table.partition_point(|&first| first <= place) - 1;
        self.starts[self.order(key).get(slot as u64) as usize] + (place - table[slot])
    }

    fn place(&self, key: u64, record: u64) -> u64 {
        let group = self.starts.partition_point(|&first| first <= record) - 1;
        let slot = self.order(key).inverse(group as u64);
        self.table(key)[slot as usize] + (record - self.starts[group])
    }
}

impl fmt::Debug for Uneven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uneven").field("groups", &self.starts.len()).field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::error::ErrorKind;

    fn blocks(len: u64, groups: &[u64], window: u64, lanes: u64) -> Result<Arc<dyn Sampler>> {
        Order::Blocks { seed: 7, window, lanes: Some(lanes) }.sampler(len, Some(groups.into()), 1)
    }

    #[test]
    fn a_lane_walks_whole_groups_one_after_another() {
        // 12 groups of 10; each of 4 lanes has 30 places: 3 whole groups.
        let starts: Vec<u64> = (0..12).map(|g| g * 10).collect();
        let sampler = blocks(120, &starts, 30, 4).unwrap();
        for lane in 0..4 {
            let mut groups: Vec<u64> = (0..30).map(|at| sampler.record(3, at * 4 + lane) / 10).collect();
            groups.sort_unstable();
            groups.dedup();
            assert_eq!(groups.len(), 3, "lane {lane} reads groups {groups:?}");
        }
    }

    #[test]
    fn a_window_of_one_keeps_each_group_in_order() {
        let sampler = blocks(100, &[0, 30, 33, 90], 1, 1).unwrap();
        let records: Vec<u64> = (0..100).map(|p| sampler.record(0, p)).collect();
        let breaks = records.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert!(breaks <= 3, "4 groups, {breaks} breaks in {records:?}");
    }

    #[test]
    fn few_groups_are_read_by_more_than_one_rank() {
        let sampler = Order::Blocks { seed: 1, window: 2000, lanes: None }.sampler(100_000, None, 8).unwrap();
        let mut readers = vec![[false; 8]; 100_000_usize.div_ceil(DEFAULT_GROUP as usize)];
        for position in 0..100_000 {
            let group = sampler.record(0, position) / DEFAULT_GROUP;
            readers[group as usize][(position % 8) as usize] = true;
        }
        let shared = readers.iter().filter(|ranks| ranks.iter().filter(|&&r| r).count() > 1).count();
        assert!(shared <= 7, "8 stretches have 7 borders, yet {shared} groups are shared");
    }

    #[test]
    fn even_groups_need_no_table_and_agree_with_uneven_ones() {
        let starts: Arc<[u64]> = (0..8).map(|g| g * 13).collect();
        for len in 92..=104 {
            let even = Even { len, size: 13 };
            let uneven = Uneven { starts: Arc::clone(&starts), len, epochs: Mutex::default() };
            assert!(matches!(Groups::new(Arc::clone(&starts), len), Ok(Groups::Even(_))), "{len}");
            for key in 0..20 {
                for place in 0..len {
                    assert_eq!(even.record(key, place), uneven.record(key, place), "len {len} key {key}");
                    assert_eq!(even.place(key, place), uneven.place(key, place), "len {len} key {key}");
                }
            }
        }
    }

    #[test]
    fn tables_of_old_epochs_are_dropped() {
        let sampler = Uneven { starts: [0, 1, 5].into(), len: 9, epochs: Mutex::default() };
        let first = sampler.record(0, 4);
        for key in 1..50 {
            let _ = sampler.record(key, 4);
        }
        assert_eq!(sampler.epochs.lock().unwrap().len(), Uneven::KEPT);
        assert_eq!(sampler.record(0, 4), first);
    }

    #[test]
    fn impossible_blocks_are_refused_with_the_reason() {
        for (len, groups, window, lanes, want) in [
            (9, &[0, 3][..], 0, 1, "window is 0"),
            (9, &[0, 3], 4, 0, "lanes are 0"),
            (9, &[1, 3], 4, 1, "begin with record 1"),
            (9, &[0, 5, 3], 4, 1, "go back from record 5 to 3"),
            (9, &[0, 12], 4, 1, "name record 12 of 9"),
            (9, &[], 4, 1, "groups are none"),
        ] {
            let error = blocks(len, groups, window, lanes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(want), "{error}");
        }
    }

    #[test]
    fn what_decides_the_order_is_in_the_fingerprint() {
        let print = |order: Order, len, groups: Option<&[u64]>, lanes| {
            order.sampler(len, groups.map(Into::into), lanes).unwrap().fingerprint()
        };
        let random = |seed| Order::Random { seed };
        let blocks = |seed, window| Order::Blocks { seed, window, lanes: None };
        let all = [
            print(Order::Sequential, 50, None, 1),
            print(Order::Sequential, 51, None, 1),
            print(random(1), 50, None, 1),
            print(random(2), 50, None, 1),
            print(blocks(1, 8), 50, None, 1),
            print(blocks(2, 8), 50, None, 1),
            print(blocks(1, 9), 50, None, 1),
            print(blocks(1, 8), 50, None, 2),
            print(blocks(1, 8), 50, Some(&[0, 10]), 1),
            print(blocks(1, 8), 50, Some(&[0, 11]), 1),
            print(Order::Repeated { seed: 1, times: 3, all_records: false }, 50, None, 1),
            print(Order::Repeated { seed: 2, times: 3, all_records: false }, 50, None, 1),
            print(Order::Repeated { seed: 1, times: 4, all_records: false }, 50, None, 1),
            print(Order::Repeated { seed: 1, times: 3, all_records: true }, 50, None, 1),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b), "fingerprint {i} comes twice");
        }
        // Lanes mean nothing to the other orders: another world size must not look like another order.
        assert_eq!(print(random(1), 50, None, 1), print(random(1), 50, None, 2));
    }

    #[test]
    fn orders_have_a_plain_json_form() {
        for (order, json) in [
            (Order::Sequential, r#""sequential""#),
            (Order::Random { seed: 42 }, r#"{"random":{"seed":42}}"#),
            (Order::Blocks { seed: 1, window: 9, lanes: None }, r#"{"blocks":{"seed":1,"window":9}}"#),
            (Order::Blocks { seed: 1, window: 9, lanes: Some(4) }, r#"{"blocks":{"seed":1,"window":9,"lanes":4}}"#),
            (Order::Repeated { seed: 1, times: 3, all_records: false }, r#"{"repeated":{"seed":1,"times":3}}"#),
            (
                Order::Repeated { seed: 1, times: 3, all_records: true },
                r#"{"repeated":{"seed":1,"times":3,"all_records":true}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&order).unwrap(), json);
            assert_eq!(serde_json::from_str::<Order>(json).unwrap(), order);
        }
        assert!(serde_json::from_str::<Order>(r#"{"random":{"seed":1,"sede":2}}"#).is_err());
    }
}
