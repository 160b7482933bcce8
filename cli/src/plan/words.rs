//! Sizes, rates, prices and times in text.

use crate::units;

/// `3.2 h`, `12 min`, `8 s`.
pub(super) fn lasts(hours: f64) -> String {
    match hours * 60.0 {
        minutes if minutes >= 95.0 * 60.0 => format!("{} h", units::count((minutes / 60.0).round() as u64)),
        minutes if minutes >= 60.0 => format!("{:.1} h", minutes / 60.0),
        minutes if minutes >= 1.0 => format!("{minutes:.0} min"),
        minutes => format!("{:.0} s", minutes * 60.0),
    }
}

/// A size that need not be a whole number of bytes.
pub(super) fn size(bytes: f64) -> String {
    units::size(bytes.round() as u64)
}

pub(super) fn rate(bytes: f64) -> String {
    format!("{}/s", size(bytes))
}

/// `$0.0007`, `$46.08`, `$1,234`.
pub(super) fn money(usd: f64) -> String {
    match usd {
        0.0 => "$0".into(),
        _ if usd < 0.995 => format!("${usd:.4}"),
        _ if usd < 999.5 => format!("${usd:.2}"),
        _ => format!("${}", units::count(usd.round() as u64)),
    }
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}
