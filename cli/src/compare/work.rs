//! Whether the configurations did the same work. A run that did less work is not faster.

use super::{
    configuration::{Configuration, Ends},
    measure::Measure,
};
use crate::units;

/// Tolerance for bytes per sample in runs that end inside an epoch, because they load and read ahead different samples.
const AS_MUCH: f64 = 0.1;

/// The differences between their work, one sentence each. `runs` has the runs of each configuration.
pub(crate) fn differences(configurations: &[Configuration], runs: &[Vec<Measure>]) -> Vec<String> {
    let last: Vec<(&Configuration, &Measure)> =
        configurations.iter().zip(runs).filter_map(|(of, runs)| Some((of, runs.last()?))).collect();
    let told = |what: &str, each: Vec<String>| {
        let words = last.iter().zip(each).map(|((of, _), figure)| format!("{} {figure}", of.quoted()));
        format!("{what}: {}", words.collect::<Vec<_>>().join(", "))
    };
    let differ = |what: &str, figure: fn(&Measure) -> u64| {
        let each: Vec<u64> = last.iter().map(|(_, run)| figure(run)).collect();
        let differ = each.iter().any(|n| *n != each[0]);
        differ.then(|| told(what, each.into_iter().map(units::count).collect()))
    };
    let mut found = Vec::new();
    found.extend(differ("records of the dataset", |run| run.records));
    // If time ends the runs, the faster one gets further: that is what is measured.
    let by_time = configurations.iter().any(|of| of.ends == Ends::Time);
    let whole = configurations.iter().all(|of| of.ends == Ends::Whole);
    if !by_time {
        found.extend(differ("samples of a run", |run| run.samples));
    }
    if whole {
        found.extend(differ("bytes read", |run| run.bytes_read));
    } else {
        let each: Vec<f64> = last.iter().map(|(_, run)| run.bytes_per_sample()).collect();
        let most = each.iter().copied().fold(0.0, f64::max);
        if each.iter().any(|bytes| *bytes < (1.0 - AS_MUCH) * most) {
            found.push(told("bytes read per sample", each.iter().map(|bytes| units::size(*bytes as u64)).collect()));
        }
    }
    found.extend(differ("bad samples", |run| run.bad_samples));
    let sums: Vec<Option<&String>> = last.iter().map(|(_, run)| run.checksum.as_ref()).collect();
    if !by_time && sums.iter().any(|sum| *sum != sums[0]) {
        let words = |sum: Option<&String>| sum.map_or_else(|| "none".to_owned(), Clone::clone);
        found.push(told("checksum", sums.into_iter().map(words).collect()));
    }
    found
}

/// The work that all did equally. `None` if it differs, or if there are no runs.
pub(crate) fn alike(configurations: &[Configuration], runs: &[Vec<Measure>]) -> Option<String> {
    if !differences(configurations, runs).is_empty() {
        return None;
    }
    let run = runs.first()?.last()?;
    let records = units::count(run.records);
    let samples = units::count(run.samples);
    let each = units::size(run.bytes_per_sample() as u64);
    if configurations.iter().any(|of| of.ends == Ends::Time) {
        return Some(format!("the same {records} records, about {each} read per sample"));
    }
    let read = match configurations.iter().all(|of| of.ends == Ends::Whole) {
        true => units::size(run.bytes_read) + " read",
        false => format!("about {each} read per sample"),
    };
    let mut words = format!("{samples} samples of {records} records, {read}");
    match &run.checksum {
        Some(sum) => words += &format!(", checksum {sum}"),
        None => words += "; --checksum shows whether the rows are equal",
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configurations(ends: Ends) -> [Configuration; 2] {
        ["a", "b 2"].map(|name| Configuration { name: name.into(), given: String::new(), arguments: Vec::new(), ends })
    }

    fn runs(of: [Measure; 2]) -> Vec<Vec<Measure>> {
        of.into_iter().map(|run| vec![run]).collect()
    }

    fn run(samples: u64, bytes_read: u64) -> Measure {
        Measure { records: 100, samples, bytes_read, ..Measure::default() }
    }

    #[test]
    fn whole_epochs_are_compared_to_the_last_byte() {
        let all = configurations(Ends::Whole);
        let same = runs([run(100, 5000), run(100, 5000)]);
        assert!(differences(&all, &same).is_empty());
        let words = alike(&all, &same).unwrap();
        assert!(words.starts_with("100 samples of 100 records, 4.9 KiB read; --checksum shows"), "{words}");
        let other = runs([run(100, 5000), run(96, 4999)]);
        let told = differences(&all, &other);
        assert_eq!(told, ["samples of a run: a 100, 'b 2' 96", "bytes read: a 5,000, 'b 2' 4,999"]);
        assert_eq!(alike(&all, &other), None);
    }

    #[test]
    fn runs_that_end_by_time_are_compared_by_what_a_sample_takes() {
        let all = configurations(Ends::Time);
        // Twice as fast, and read as much for each.
        let same = runs([run(100, 5000), run(210, 10_300)]);
        assert!(differences(&all, &same).is_empty());
        assert_eq!(alike(&all, &same).unwrap(), "the same 100 records, about 50 B read per sample");
        let less = runs([run(100, 5000), run(210, 0)]);
        assert_eq!(differences(&all, &less), ["bytes read per sample: a 50 B, 'b 2' 0 B"]);
        // By batches both deliver as many, but read ahead as they like.
        let all = configurations(Ends::Batches);
        assert!(differences(&all, &runs([run(64, 3200), run(64, 3400)])).is_empty());
        assert_eq!(differences(&all, &runs([run(64, 3200), run(128, 6400)])).len(), 1);
    }

    #[test]
    fn other_rows_are_other_work() {
        let with = |sum: &str| Measure { checksum: Some(sum.into()), ..run(100, 5000) };
        let all = configurations(Ends::Whole);
        let same = runs([with("12ab"), with("12ab")]);
        assert_eq!(alike(&all, &same).unwrap(), "100 samples of 100 records, 4.9 KiB read, checksum 12ab");
        assert_eq!(differences(&all, &runs([with("12ab"), with("34")])), ["checksum: a 12ab, 'b 2' 34"]);
        assert_eq!(differences(&all, &runs([with("12ab"), run(100, 5000)])), ["checksum: a 12ab, 'b 2' none"]);
        let bad = Measure { bad_samples: 3, records: 99, ..run(100, 5000) };
        let told = differences(&all, &runs([run(100, 5000), bad]));
        assert_eq!(told, ["records of the dataset: a 100, 'b 2' 99", "bad samples: a 0, 'b 2' 3"]);
    }
}
