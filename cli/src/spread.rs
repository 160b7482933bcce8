//! The spread of repeated measurements.

use serde::Serialize;

/// Values further from the median than this many median deviations are outliers. For a normal distribution, this is ten
/// standard deviations (Iglewicz and Hoaglin; hyperfine's bound).
const FAR: f64 = 14.826;
/// An outlier must also be further away than this share of the median, because the median deviation may be almost 0.
const LEAST: f64 = 0.05;

/// Median, range and deviation of some values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// Sample standard deviation; 0 for a single value.
    pub deviation: f64,
}

impl Spread {
    /// `None` without values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (sorted.len() - 1).max(1) as f64).sqrt();
        Some(Self { median: median(&sorted), min, max, mean, deviation })
    }

    /// The deviation as a share of the mean.
    pub(crate) fn relative(&self) -> f64 {
        if self.mean > 0.0 { self.deviation / self.mean } else { 0.0 }
    }
}

/// The median of sorted values; 0 without values.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 if middle > 0 => sorted[middle - 1].midpoint(sorted[middle]),
        _ => sorted.get(middle).copied().unwrap_or(0.0),
    }
}

/// Indices of the outliers.
pub(crate) fn outliers(values: &[f64]) -> Vec<usize> {
    let middle = median(&sorted(values));
    let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let usual = median(&sorted(&deviations));
    let far = |deviation: f64| deviation > FAR * usual && deviation > LEAST * middle.abs();
    (0..values.len()).filter(|&at| far(deviations[at])).collect()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_its_middle_its_ends_and_its_scatter() {
        let of = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((of.median, of.min, of.max, of.mean), (2.5, 1.0, 4.0, 2.5));
        assert!((of.deviation - (5.0f64 / 3.0).sqrt()).abs() < 1e-12, "{of:?}");
        assert!((of.relative() - of.deviation / 2.5).abs() < 1e-12);
        let one = Spread::of(&[7.0]).unwrap();
        assert_eq!((one.median, one.min, one.max, one.deviation), (7.0, 7.0, 7.0, 0.0));
        assert_eq!(Spread::of(&[]), None);
        assert_eq!((median(&[]), median(&[1.0, 2.0, 9.0])), (0.0, 2.0));
    }

    #[test]
    fn an_outlier_is_far_for_the_others_scatter_and_not_little() {
        // Median 100, median deviation 1: the bound is 14.8 away.
        assert_eq!(outliers(&[100.0, 101.0, 99.0, 114.0, 100.0, 98.0]), [0; 0]);
        assert_eq!(outliers(&[60.0, 101.0, 99.0, 100.0, 100.5]), [0]);
        assert_eq!(outliers(&[100.0, 101.0, 99.0, 100.0, 150.0, 70.0, 100.5]), [4, 5]);
        // Far only because the others are equal.
        assert_eq!(outliers(&[100.0, 100.0, 100.0, 104.9]), [0; 0]);
        assert_eq!(outliers(&[100.0, 100.0, 100.0, 106.0]), [3]);
        // Of two nobody can tell which is the odd one.
        assert_eq!(outliers(&[1.0, 100.0]), [0; 0]);
        assert_eq!(outliers(&[]), [0; 0]);
    }
}
