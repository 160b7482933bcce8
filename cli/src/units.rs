//! Sizes, times and counts: parsing and formatting.

use std::time::{Duration, SystemTime};

/// Decimal and binary units. `K` or `M` alone is rejected, because it may mean 1000 or 1024.
const UNITS: [(&str, u64); 9] = [
    ("b", 1),
    ("kb", 1000),
    ("mb", 1000 * 1000),
    ("gb", 1000 * 1000 * 1000),
    ("tb", 1000 * 1000 * 1000 * 1000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

/// Reads `2GiB`, `512 MB`, `1.5GiB`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim().to_ascii_lowercase());
    if number.is_empty() {
        return Err("a size starts with a number, for example 2GiB or 500MB".into());
    }
    if unit.is_empty() {
        return Err(format!("a size needs a unit, for example {number}MiB or {number}GB"));
    }
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("unknown unit {:?}; use B, KB, MB, GB, TB or KiB, MiB, GiB, TiB", text[digits..].trim()));
    };
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(*scale),
        // Fractions are of a unit, so f64 is exact enough: 1.5GiB.
        Err(_) => {
            number.parse::<f64>().ok().map(|n| n * *scale as f64).filter(|n| *n < u64::MAX as f64).map(|n| n as u64)
        }
    };
    bytes.ok_or_else(|| format!("{number:?} is not a number of {}", text[digits..].trim()))
}

/// Reads bytes per second: `2GB`, `12.5GB/s`, `100Gbit/s`.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let text = text.strip_suffix("/s").unwrap_or(text);
    let bits = [("Gbit", 1e9), ("Mbit", 1e6), ("Tbit", 1e12)];
    let rate = match bits.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale / 8.0))) {
        Some((number, scale)) => number
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|n| n.is_finite())
            .map(|n| n * scale)
            .ok_or_else(|| format!("{number:?} is not a number"))?,
        None => parse_size(text)? as f64,
    };
    if rate > 0.0 { Ok(rate) } else { Err("a rate of 0 transfers nothing; use a rate above 0".into()) }
}

/// Reads a whole number, also as `1.28e6`.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|n| n.fract() == 0.0 && (1.0..=9e15).contains(n));
    number.map(|n| n as u64).ok_or_else(|| "use a whole number of 1 or more, such as 1281167 or 1.28e6".into())
}

/// Reads a whole number as it is typed for a setting: `8`.
pub(crate) fn parse_whole(text: &str) -> Result<usize, String> {
    text.trim().parse().map_err(|_| "use a whole number such as 8".into())
}

/// Reads a batch size: `256`. `64k` is rejected, because it may mean 64000 or 65536.
pub(crate) fn parse_rows(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.parse().map_err(|_| match &text[..digits] {
        "" => "use a number of samples, such as 256".into(),
        number => format!("use a number of samples without a unit, such as {number} or {number}000"),
    })
}

/// Reads a number above 0.
pub(crate) fn parse_positive(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| "use a number above 0".into())
}

/// Reads a price or a time that may be 0.
pub(crate) fn parse_amount(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    number.ok_or_else(|| "use a number of 0 or more".into())
}

/// Reads `50ms`, `1.5s`, `2min`. A number without a unit is rejected, except 0.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text.trim()).map_err(|error| error.to_string())
}

/// `105.3 KiB`, `1,023 MiB`: four digits at most.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let units = ["B", "KiB", "MiB", "GiB"].into_iter().find(|_| {
        let fits = value < 1024.0;
        value /= if fits { 1.0 } else { 1024.0 };
        fits
    });
    match units.unwrap_or("TiB") {
        "B" => format!("{bytes} B"),
        // Would be rounded to 1000.0.
        unit if value >= 999.95 => format!("{} {unit}", count(value.round() as u64)),
        unit => format!("{value:.1} {unit}"),
    }
}

/// `1.234 s`, `56.7 ms`, `8.9 µs`: four digits at most. From ten minutes on `12 min 5 s`, `3 h 20 min`.
pub(crate) fn time(seconds: f64) -> String {
    let whole = seconds.round().clamp(0.0, 1e15) as u64;
    match seconds {
        s if s >= 36_000.0 => format!("{} h {} min", count(whole / 3600), whole / 60 % 60),
        s if s >= 3600.0 => format!("{} h {} min", whole / 3600, whole / 60 % 60),
        s if s >= 600.0 => format!("{} min {} s", whole / 60, whole % 60),
        s if s >= 99.995 => format!("{s:.1} s"),
        s if s >= 9.9995 => format!("{s:.2} s"),
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}

/// `1,857 samples/s`.
pub(crate) fn rate(samples_per_second: f64) -> String {
    format!("{} samples/s", number(samples_per_second))
}

/// A measured figure with four digits: `0.485`, `12.5`, `1,857`, `123,500`.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "unknown".into();
    }
    let size = value.abs();
    if size > 0.0 && size < 1e-4 {
        let text = format!("{value:.2e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", trimmed(digits));
    }
    if size < 1000.0 {
        let first = if size > 0.0 { size.log10().floor() } else { 0.0 };
        let text = format!("{value:.*}", (3.0 - first).clamp(0.0, 5.0) as usize);
        // Rounded up to a thousand it has a comma.
        return if text.starts_with("1000") { "1,000".into() } else { trimmed(&text).to_owned() };
    }
    let step = 10f64.powi(size.log10().floor() as i32 - 3);
    let whole = count(((size / step).round() * step).clamp(0.0, 1e18) as u64);
    if value < 0.0 { format!("-{whole}") } else { whole }
}

/// Removes trailing zeros.
fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// `2026-11-26 04:52 UTC`.
pub(crate) fn date(at: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(at).to_string();
    text.get(..16).map_or_else(|| text.clone(), |minute| format!("{} UTC", minute.replace('T', " ")))
}

/// `1,281,167`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_decimal_and_binary_units() {
        for (text, bytes) in [
            ("2GiB", 2 << 30),
            ("1.5GiB", 3 << 29),
            ("500 MB", 500_000_000),
            ("0B", 0),
            ("64kib", 64 << 10),
            ("3tb", 3_000_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn sizes_that_can_be_misread_are_refused() {
        for text in ["512", "2G", "2M", "", "GiB", "1.2.3GiB", "-1GiB", "99999999999TiB", "."] {
            assert!(parse_size(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn rates_are_of_bytes_or_bits() {
        for (text, rate) in
            [("12.5GB/s", 12.5e9), ("100Gbit/s", 12.5e9), ("8 Mbit", 1e6), ("2GiB", (2_u64 << 30) as f64)]
        {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for text in ["", "0GB", "-1Gbit", "fastGbit", "NaNGbit", "3", "3/s"] {
            assert!(parse_rate(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn counts_may_have_an_exponent() {
        assert_eq!(parse_count("1.28e6"), Ok(1_280_000));
        assert_eq!(parse_count("1281167"), Ok(1_281_167));
        for text in ["0", "1.5", "-3", "1e300", "nan", "inf", "many", ""] {
            assert!(parse_count(text).is_err(), "{text:?} was taken");
        }
        assert!(parse_positive("0").is_err() && parse_positive("inf").is_err() && parse_amount("-1").is_err());
        assert_eq!((parse_positive("0.5"), parse_amount("0")), (Ok(0.5), Ok(0.0)));
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(parse_time("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(parse_time("0"), Ok(Duration::ZERO));
        assert_eq!(parse_time("0ms"), Ok(Duration::ZERO));
        assert!(parse_time("50").is_err());
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(count(1_281_167), "1,281,167");
        assert_eq!(count(999), "999");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(107_808), "105.3 KiB");
        assert_eq!(time(0.0567), "56.7 ms");
        assert_eq!(time(2.5), "2.500 s");
        assert_eq!(time(0.000_008_9), "8.9 µs");
        for (seconds, text) in [
            (12.3456, "12.35 s"),
            (123.456, "123.5 s"),
            (725.4, "12 min 5 s"),
            (12_000.0, "3 h 20 min"),
            (36e6, "10,000 h 0 min"),
            (0.0, "0.0 µs"),
        ] {
            assert_eq!(time(seconds), text);
        }
        assert_eq!((size(5_709_510_656), size(1_048_000_000)), ("5.3 GiB".into(), "999.5 MiB".into()));
        assert_eq!((size(1_073_000_000), size(u64::MAX)), ("1,023 MiB".into(), "16,777,216 TiB".into()));
    }

    #[test]
    fn what_was_measured_has_four_digits_at_most() {
        for (value, text) in [
            (0.485_000_014_305_114_75, "0.485"),
            (0.333_333_3, "0.3333"),
            (0.001_234_5, "0.00123"),
            (0.0, "0"),
            (2.0, "2"),
            (9.999_9, "10"),
            (-0.5, "-0.5"),
            (12.345, "12.35"),
            (999.96, "1,000"),
            (1857.4, "1,857"),
            (123_456.0, "123,500"),
            (-1234.5, "-1,235"),
            (1e-8, "1e-8"),
            (0.000_012_34, "1.23e-5"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
    }
}
