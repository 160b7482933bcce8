//! How much faster one configuration is than another. Ratios are taken round by round, because a disturbance that slows
//! a whole round slows both of its runs.

use serde::Serialize;

use crate::{invocation, spread::Spread};

/// The fastest configuration compared with another one.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ratio {
    pub name: String,
    pub to: String,
    /// Rates of the first as multiples of the second's.
    #[serde(flatten)]
    pub spread: Spread,
    /// Some rounds are above 1 and some below, or there is only one round.
    pub within_spread: bool,
    pub rounds: Vec<f64>,
}

impl Ratio {
    /// From the rates of both, round by round. `None` without rounds.
    pub(crate) fn new(name: &str, rates: &[f64], to: &str, others: &[f64]) -> Option<Self> {
        let rounds = each(rates, others);
        let spread = Spread::of(&rounds)?;
        let within_spread = rounds.len() < 2 || (spread.min <= 1.0 && spread.max >= 1.0);
        Some(Self { name: name.into(), to: to.into(), spread, within_spread, rounds })
    }

    pub(crate) fn words(&self) -> String {
        let [name, to] = [&self.name, &self.to].map(|name| invocation::quoted(name));
        let times = times(&self.spread);
        match (self.rounds.len(), self.within_spread) {
            (1, _) => format!("{name} is {times} as fast as {to} in one round, which shows no spread: use --rounds 5"),
            (_, false) => format!("{name} is {times} as fast as {to}"),
            (_, true) => format!(
                "{name} is {times} as fast as {to}: the difference is within the spread; more --rounds may tell them apart"
            ),
        }
    }
}

/// Rates as multiples of others', round by round.
pub(crate) fn each(rates: &[f64], others: &[f64]) -> Vec<f64> {
    rates.iter().zip(others).map(|(rate, other)| rate / other.max(f64::MIN_POSITIVE)).collect()
}

/// `1.23× (1.18–1.31)`: median, minimum and maximum.
pub(crate) fn times(spread: &Spread) -> String {
    match spread.min == spread.max {
        true => format!("{:.2}×", spread.median),
        false => format!("{:.2}× ({:.2}–{:.2})", spread.median, spread.min, spread.max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_with_themselves() {
        // The machine got slower by half: both did, and their ratio is the same.
        let ratio = Ratio::new("a", &[120.0, 60.0, 126.0], "b", &[100.0, 50.0, 100.0]).unwrap();
        assert_eq!(ratio.rounds, [1.2, 1.2, 1.26]);
        assert_eq!((ratio.spread.median, ratio.spread.min, ratio.spread.max), (1.2, 1.2, 1.26));
        assert_eq!(ratio.words(), "a is 1.20× (1.20–1.26) as fast as b");
        assert!(!ratio.within_spread);
    }

    #[test]
    fn a_difference_within_the_spread_is_none() {
        let ratio = Ratio::new("-w 2", &[120.0, 90.0, 110.0], "-w 4", &[100.0; 3]).unwrap();
        assert!(ratio.within_spread);
        let words = ratio.words();
        assert!(
            words.starts_with("'-w 2' is 1.10× (0.90–1.20) as fast as '-w 4': the difference is within"),
            "{words}"
        );
        let one = Ratio::new("a", &[120.0], "b", &[100.0]).unwrap();
        assert!(
            one.within_spread && one.words().starts_with("a is 1.20× as fast as b in one round"),
            "{}",
            one.words()
        );
        assert!(Ratio::new("a", &[], "b", &[]).is_none());
        assert!(Ratio::new("a", &[1.0, 1.0], "b", &[0.0, 0.0]).unwrap().spread.max.is_finite());
    }
}
