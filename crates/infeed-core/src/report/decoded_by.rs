//! How many samples each class of decode threads decoded.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// Samples by the class of the threads that made their rows.
#[derive(Debug)]
pub struct DecodedBy(Box<[(&'static str, AtomicU64)]>);

impl DecodedBy {
    /// Counters for classes of these names, in this order.
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        Self(names.into_iter().map(|name| (name, AtomicU64::new(0))).collect())
    }

    /// Called once per job, so threads of one class seldom contend here.
    pub fn add(&self, class: usize, samples: u64) {
        if let Some((_, count)) = self.0.get(class) {
            count.fetch_add(samples, Ordering::Relaxed);
        }
    }

    /// The counts so far. Classes with the same name, such as those of several GPUs, are added up.
    pub fn report(&self) -> BTreeMap<&'static str, u64> {
        let mut report = BTreeMap::new();
        for (name, count) in &self.0 {
            *report.entry(*name).or_default() += count.load(Ordering::Relaxed);
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_is_named_and_those_of_one_name_are_one() {
        let counts = DecodedBy::new(["cpu", "engines", "streams", "engines"]);
        for (class, samples) in [(0, 3), (1, 10), (3, 5), (0, 1), (9, 7)] {
            counts.add(class, samples);
        }
        assert_eq!(counts.report(), BTreeMap::from([("cpu", 4), ("engines", 15), ("streams", 0)]));
    }
}
