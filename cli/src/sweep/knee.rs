//! The knee: the number of workers above which the rate hardly rises.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::cell::Cell;
use crate::{busy::Busy, units};

/// Rates within 5 % of the best count as equal: two runs of one cell differ by as much on a busy machine.
const AS_GOOD: f64 = 0.95;
/// If the last step of the sweep still gained 10 % or more, the best number of workers is outside of it.
const STILL_RISING: f64 = 1.10;

/// The recommended cell: as fast as any, with the fewest workers, then the least memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Knee {
    pub workers: Option<u64>,
    pub batch_size: Option<u64>,
    pub prefetch: Option<u64>,
    pub dtype: Option<String>,
    pub device: Option<String>,
    pub samples_per_second: f64,
    /// Its rate as a share of the best cell's rate.
    pub share_of_best: f64,
    /// `false`: the rate still rises at the edge of the sweep.
    pub inside: bool,
    /// Why.
    pub words: String,
}

/// The knee of the cells that have figures. `busy`: use of the cores by other processes meanwhile.
pub(crate) fn find(cells: &[Cell], busy: Option<&Busy>) -> Option<Knee> {
    let fine: Vec<&Cell> = cells.iter().filter(|cell| cell.error.is_none() && cell.samples_per_second > 0.0).collect();
    let best = fine.iter().max_by(|a, b| a.samples_per_second.total_cmp(&b.samples_per_second))?;
    let good = fine.iter().filter(|cell| cell.samples_per_second >= AS_GOOD * best.samples_per_second);
    let knee = good.min_by_key(|cell| (cell.workers, cell.peak_rss_bytes, cell.prefetch, cell.batch_size))?;
    // The cells that differ from it only in the number of workers.
    let mut line: Vec<&&Cell> = fine.iter().filter(|cell| same_but_workers(cell, knee)).collect();
    line.sort_by_key(|cell| cell.workers);
    let at = line.iter().position(|cell| cell.workers == knee.workers)?;
    let rises =
        at + 1 == line.len() && at > 0 && knee.samples_per_second >= STILL_RISING * line[at - 1].samples_per_second;
    Some(Knee {
        workers: knee.workers,
        batch_size: knee.batch_size,
        prefetch: knee.prefetch,
        dtype: knee.dtype.clone(),
        device: knee.device.clone(),
        samples_per_second: knee.samples_per_second,
        share_of_best: knee.samples_per_second / best.samples_per_second,
        inside: !rises,
        words: words(knee, best, &line, at, rises, busy.filter(|busy| busy.is_crowded())),
    })
}

fn same_but_workers(a: &Cell, b: &Cell) -> bool {
    (a.batch_size, a.prefetch == b.prefetch || a.asked.prefetch == b.asked.prefetch, &a.dtype, &a.device)
        == (b.batch_size, true, &b.dtype, &b.device)
}

fn words(knee: &Cell, best: &Cell, line: &[&&Cell], at: usize, rises: bool, crowd: Option<&Busy>) -> String {
    let name = |cell: &Cell| {
        let or = |value: Option<u64>| value.map_or("?".into(), |n| n.to_string());
        format!("workers {}, batch size {}", or(cell.workers), or(cell.batch_size))
    };
    let rate = |cell: &Cell| units::count(cell.samples_per_second.round() as u64);
    let percent = |cell: &Cell| 100.0 * (cell.samples_per_second / knee.samples_per_second - 1.0);
    let gives = |cell: &Cell| match cell.workers.unwrap_or(0) {
        1 => format!("1 worker gives {:+.0} %", percent(cell)),
        n => format!("{n} workers give {:+.0} %", percent(cell)),
    };
    let mut words = format!("The knee, above which more workers hardly help: {}, {} samples/s", name(knee), rate(knee));
    // Writing to a string does not fail.
    let _ = match std::ptr::eq(knee, best) {
        true => write!(words, ", the best rate"),
        false => {
            let share = 100.0 * knee.samples_per_second / best.samples_per_second;
            write!(words, ", {share:.0} % of the best rate ({}: {})", name(best), rate(best))
        }
    };
    if at > 0 {
        let _ = write!(words, "; {}", gives(line[at - 1]));
    }
    if let Some(next) = line.get(at + 1) {
        let _ = write!(words, "; {}", gives(next));
        if let (Some(more), Some(cpu)) = (next.cores_used(), knee.cores_used()) {
            let _ = write!(words, " with {more:.1} cores busy instead of {cpu:.1}");
        }
    }
    if let Some(Busy { others, cores, .. }) = crowd {
        let _ = write!(
            words,
            "; other processes held {others:.1} of {cores} cores, so the effect of more workers or cores is unknown"
        );
        return words;
    }
    let why = match knee.bottleneck.as_deref() {
        _ if rises => "the rate still rises at the edge of the sweep, so try more workers",
        Some("yield") => "the trainer is the limit, so a faster loader changes nothing",
        Some("fetch") => "reading is the limit, so more decode threads wait for the same bytes",
        Some(_) if cores_busy(knee) => "all cores are busy, so more threads share the same cores",
        _ => "more threads have nothing to do",
    };
    let _ = write!(words, "; {why}");
    words
}

fn cores_busy(cell: &Cell) -> bool {
    let cores = infeed::internal::machine::cores().get();
    cell.cores_used().is_some_and(|used| used > 0.8 * cores as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(workers: u64, batch: u64, rate: f64) -> Cell {
        Cell {
            workers: Some(workers),
            batch_size: Some(batch),
            samples_per_second: rate,
            iterations_per_second: rate / batch as f64,
            seconds: 1.0,
            cpu_seconds: Some(workers as f64),
            peak_rss_bytes: Some(workers * 100 + batch),
            bottleneck: Some("fetch".into()),
            ..Cell::default()
        }
    }

    #[test]
    fn the_knee_is_the_least_of_the_fastest() {
        let cells = [cell(1, 8, 100.0), cell(2, 8, 190.0), cell(4, 8, 196.0), cell(8, 8, 180.0), cell(8, 1, 20.0)];
        let knee = find(&cells, None).unwrap();
        assert_eq!((knee.workers, knee.batch_size, knee.inside), (Some(2), Some(8), true));
        for part in ["1 worker gives -47 %", "4 workers give +3 %", "97 % of the best", "reading is the limit"] {
            assert!(knee.words.contains(part), "{part}: {}", knee.words);
        }
    }

    #[test]
    fn a_rate_that_still_rises_has_no_knee_inside() {
        let knee = find(&[cell(1, 8, 100.0), cell(2, 8, 190.0)], None).unwrap();
        assert!(!knee.inside && knee.words.contains("try more workers"), "{}", knee.words);
        // On cores that other processes held, the advice is not to try more.
        let mut busy = Busy { others: 1.4, cores: 2, usable: 2.0, seconds: 9.0, ..Busy::default() };
        let words = |busy: &Busy| find(&[cell(1, 8, 100.0), cell(2, 8, 190.0)], Some(busy)).unwrap().words;
        assert!(
            words(&busy)
                .ends_with("other processes held 1.4 of 2 cores, so the effect of more workers or cores is unknown")
        );
        busy.others = 0.0;
        assert_eq!(words(&busy), knee.words);
        // One cell alone says nothing of others.
        assert!(find(&[cell(4, 8, 100.0)], None).unwrap().inside);
        let failed = Cell { error: Some("no".into()), ..cell(1, 1, 1.0) };
        assert_eq!(find(&[failed], None), None);
        assert_eq!(find(&[], None), None);
    }
}
