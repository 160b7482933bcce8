//! What limits a training run, and the one change that would help most: arithmetic on a few figures.
//!
//! Fetch stall and prep stall are those of DS-Analyzer (Mohan et al., *Analyzing and Mitigating Data Stalls in DNN
//! Training*, VLDB 2021): each is the difference between two runs, one of which leaves one part out. The share of
//! copies to a GPU is taken from the causes of late batches:
//!
//! ```text
//! headspace   only the trainer, its data in memory           │ prep stall = cached - headspace - transfer stall
//! cached      files in memory: decoded, augmented, copied    │ fetch stall = cold - cached
//! cold        everything, nothing cached                     │ transfer stall = waits for copies in the cached run
//! decoded     pixels in memory: augmented, copied            │ gain of a decoded cache = cached - decoded, at least
//! ```

use serde::Serialize;

/// AU (accelerator utilisation) from which a faster loader has no noticeable effect; the same bound as in
/// [`Report::bottleneck`](infeed::report::Report::bottleneck).
const ENOUGH: f64 = 0.95;
/// Below this share, bad samples cost less than two equal runs differ by.
const FEW: f64 = 0.05;

/// What was measured. Times are seconds per step, averaged over a whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// A step of the trainer without any loading.
    pub headspace: f64,
    /// A step with all files in memory; `None` if that could not be measured.
    pub cached: Option<f64>,
    /// A step with nothing in memory.
    pub cold: f64,
    /// A step with decoded pixels in memory; `None` if there is nothing to decode, or if that could not be measured.
    pub decoded: Option<f64>,
    /// Bytes of the decoded pixels of the whole dataset.
    pub decoded_bytes: u64,
    /// Bytes of memory available for them.
    pub decoded_room: u64,
    /// Waiting for rows to be put together and copied to a GPU, in the cached run.
    pub transfer: f64,
    /// Waiting for room ([`Cause::Room`](infeed::report::Cause::Room)), in the cold run.
    pub room: f64,
    /// Share of decoding in the work of the decode threads, 0 to 1; the rest is augmentation.
    pub decode_share: f64,
    /// Share of the samples that could not be used, 0 to 1.
    pub bad_share: f64,
    /// Decode threads.
    pub workers: usize,
    /// Cores that this process may use.
    pub cores: usize,
    /// How many of these cores other processes used meanwhile, on average.
    pub cores_held: f64,
    /// Whether the data comes over a network.
    pub remote: bool,
    /// Whether the files are in memory already (tmpfs).
    pub in_memory: bool,
    /// Whether the number of requests was limited, and the limit was reached at times.
    pub requests_exhausted: bool,
}

/// What a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    /// The trainer: data is ready before it is needed.
    Trainer,
    /// Reading bytes.
    Fetch,
    /// Decoding images.
    Decode,
    /// Turning pixels into rows.
    Augmentation,
    /// Putting rows together and copying them to a GPU.
    Transfer,
    /// `prefetch` or the memory budget keeps the loader from working further ahead.
    Room,
    /// Samples that can't be used.
    BadRecords,
}

/// Waiting by kind, in seconds per step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Stalls {
    /// Waiting for bytes.
    pub fetch: f64,
    /// Waiting for decoding and augmentation.
    pub prep: f64,
    /// Waiting for copies.
    pub transfer: f64,
}

/// What one change would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Change {
    /// The limit that it removes.
    pub limit: Limit,
    /// What to do, in words.
    pub change: String,
    /// Predicted samples per second after the change, as a multiple of those before. An upper bound if `change`
    /// contains "at most".
    pub gain: f64,
}

/// The finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Diagnosis {
    /// What limits the run, and so what to change first.
    pub limit: Limit,
    /// `found` and `next` in one text.
    pub words: String,
    /// What was found: the first sentence of `words`.
    pub found: String,
    /// What to try next: the rest of `words`.
    pub next: Option<String>,
    /// Accelerator utilisation: the share of the cold run's time in which the trainer worked, 0 to 1.
    pub au: f64,
    /// Waiting by kind.
    pub stalls: Stalls,
    /// All changes that were considered, the best first.
    pub changes: Vec<Change>,
}

/// Determines what limits a run. A pure function of the figures.
pub(crate) fn diagnose(figures: &Measured) -> Diagnosis {
    let sane = |time: f64| if time.is_finite() { time.max(0.0) } else { 0.0 };
    let cold = sane(figures.cold);
    let headspace = sane(figures.headspace).min(cold);
    // With noise, a cached run may come out slower than the cold one.
    let cached = sane(figures.cached.unwrap_or(cold)).clamp(headspace, cold);
    let transfer = sane(figures.transfer).min(cached - headspace);
    let stalls = Stalls { fetch: cold - cached, prep: cached - headspace - transfer, transfer };
    let au = if cold > 0.0 { headspace / cold } else { 1.0 };
    let bad_share = sane(figures.bad_share).min(1.0);

    let mut changes = changes(figures, &stalls, cold, headspace);
    if bad_share > 0.0 {
        let percent = 100.0 * bad_share;
        let gain = 1.0 / (1.0 - bad_share).max(0.01);
        let change = format!("repair or leave out the records that can't be used ({percent:.0} % of those requested)");
        changes.push(Change { limit: Limit::BadRecords, change, gain });
    }
    changes.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    let fast_enough = au > ENOUGH && bad_share < FEW;
    let first = changes.first().filter(|first| !fast_enough && first.gain > 1.0);
    let limit = first.map_or(Limit::Trainer, |first| first.limit);
    let percent = 100.0 * au;
    let found = match first {
        None => format!(
            "The trainer is the limit: data was ready for {percent:.0} % of its time, so a faster loader changes nothing."
        ),
        Some(_) => {
            format!("{} (the trainer works {percent:.0} % of the time).", found(limit, figures, bad_share))
        }
    };
    let next = first.map(|first| {
        let Change { change, gain, .. } = first;
        format!("What helps most: {change}; predicted: {gain:.2} times the samples a second.")
    });
    let words = next.as_ref().map_or_else(|| found.clone(), |next| format!("{found} {next}"));
    Diagnosis { limit, words, found, next, au, stalls, changes }
}

fn found(limit: Limit, figures: &Measured, bad_share: f64) -> String {
    match limit {
        Limit::Trainer => "The trainer is the limit".into(),
        Limit::Fetch if figures.remote => "Reading from the store holds the trainer up".into(),
        Limit::Fetch => "Reading files holds the trainer up".into(),
        Limit::Decode => "Decoding holds the trainer up".into(),
        Limit::Augmentation => "Augmentation holds the trainer up".into(),
        Limit::Transfer => "Copying holds the trainer up".into(),
        Limit::Room => "The loader may not run far enough ahead of the trainer".into(),
        Limit::BadRecords => format!("{:.0} % of the samples can't be used", 100.0 * bad_share),
    }
}

/// The changes that could shorten the waiting, with their gains.
fn changes(figures: &Measured, stalls: &Stalls, cold: f64, headspace: f64) -> Vec<Change> {
    let gain = |saved: f64| cold / (cold - saved).max(headspace).max(cold * 0.01);
    let mut changes = Vec::new();
    let mut add = |limit, saved: f64, change: String| {
        if saved > 0.0 {
            changes.push(Change { limit, change, gain: gain(saved) });
        }
    };
    let stall = cold - headspace;
    let room = figures.room.clamp(0.0, stall.max(0.0));
    if room * 2.0 >= stall {
        add(Limit::Room, room, "leave --prefetch and --memory-budget on auto, or raise them".into());
        // Other waits are hidden once the loader works ahead.
        return changes;
    }
    let read = match (figures.remote, figures.requests_exhausted) {
        (true, true) => "leave --io-concurrency on auto, so that more requests are in flight",
        (true, false) => "keep the data near: set --cache DIR:SIZE, or run infeed stage URL DIR before training",
        (false, _) if figures.in_memory => "store the files smaller, so that less is read: they are in memory already",
        (false, _) => "put the data on a faster disk or a RAM disk: run infeed stage URL /dev/shm/DIR",
    };
    add(Limit::Fetch, stalls.fetch, read.into());
    let (workers, cores) = (figures.workers.max(1), figures.cores.max(1));
    let held = if figures.cores_held.is_finite() { figures.cores_held.clamp(0.0, cores as f64) } else { 0.0 };
    let decode_share = figures.decode_share.clamp(0.0, 1.0);
    let prep = if decode_share >= 0.5 { Limit::Decode } else { Limit::Augmentation };
    if held > 0.0 {
        // The same work on all cores. Whether more workers or other steps would help can't be predicted until they are
        // free.
        let whole = stalls.prep + headspace;
        let left = (whole * (1.0 - held / cores as f64)).max(headspace);
        let change = format!(
            "leave all {cores} cores to the loader (other processes used {held:.1}): run again on a quiet machine"
        );
        add(prep, whole - left, change);
    } else if workers < cores {
        // Assumes that work is spread evenly over workers, which decode threads do within a batch.
        let whole = stalls.prep + headspace;
        let left = (whole * workers as f64 / cores as f64).max(headspace);
        let change = format!("use {cores} workers instead of {workers}");
        add(prep, whole - left, change);
    } else if prep == Limit::Decode {
        let change = "store the images smaller, resized once before training, or take more cores or a GPU (at most)";
        add(prep, stalls.prep * decode_share, change.into());
    } else {
        let change =
            "use fewer or cheaper augmentation steps, --dtype u8 or f16, or take more cores or a GPU (at most)";
        add(prep, stalls.prep * (1.0 - decode_share), change.into());
    }
    // This saves the reads of later epochs as well. They are left out here: the change for `Fetch` above saves them at
    // a lower price.
    let cached = (cold - stalls.fetch).max(headspace);
    let decoded = figures.decoded.filter(|decoded| decoded.is_finite()).unwrap_or(cached).clamp(headspace, cached);
    let (bytes, room) = (figures.decoded_bytes, figures.decoded_room);
    if bytes > 0 && room > 0 {
        let share = (room as f64 / bytes as f64).min(1.0);
        // Whole GiB, with 2 % more for the other data kept of each sample.
        let gib = |bytes: u64| (bytes + bytes / 50).div_ceil(1 << 30);
        let ram = |gib| format!("--decoded-cache ram:{gib}GiB");
        let change = match bytes <= room {
            true => format!("keep decoded pixels from the first epoch on: set {}", ram(gib(bytes))),
            false => format!(
                "keep decoded pixels from the first epoch on: {} holds {:.0} % of them; DIR:{}GiB, on a fast disk, all",
                ram((room >> 30).max(1)),
                100.0 * share,
                gib(bytes)
            ),
        };
        add(Limit::Decode, (cached - decoded) * share, change);
    }
    add(Limit::Transfer, stalls.transfer, "send smaller rows: --dtype u8 or f16".into());
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(headspace: f64, cached: f64, cold: f64) -> Measured {
        Measured {
            headspace,
            cached: Some(cached),
            cold,
            decode_share: 0.8,
            workers: 4,
            cores: 4,
            ..Measured::default()
        }
    }

    #[test]
    fn each_limit_is_named() {
        let remote = |figures| Measured { remote: true, ..figures };
        for (name, figures, limit, says) in [
            ("slow trainer", figures(0.100, 0.101, 0.102), Limit::Trainer, "changes nothing"),
            ("slow store", remote(figures(0.010, 0.011, 0.200)), Limit::Fetch, "--cache DIR:SIZE"),
            (
                "few requests",
                Measured { requests_exhausted: true, ..remote(figures(0.01, 0.011, 0.2)) },
                Limit::Fetch,
                "--io-concurrency",
            ),
            ("slow disk", figures(0.010, 0.011, 0.050), Limit::Fetch, "RAM disk"),
            (
                "slow memory",
                Measured { in_memory: true, ..figures(0.010, 0.011, 0.050) },
                Limit::Fetch,
                "in memory already",
            ),
            ("slow decode", figures(0.010, 0.100, 0.101), Limit::Decode, "smaller"),
            (
                "few workers",
                Measured { workers: 1, ..figures(0.010, 0.100, 0.101) },
                Limit::Decode,
                "use 4 workers instead of 1",
            ),
            (
                "augmentation",
                Measured { decode_share: 0.1, ..figures(0.010, 0.100, 0.101) },
                Limit::Augmentation,
                "cheaper",
            ),
            ("copies", Measured { transfer: 0.080, ..figures(0.010, 0.100, 0.101) }, Limit::Transfer, "smaller rows"),
            ("small budget", Measured { room: 0.025, ..figures(0.050, 0.080, 0.081) }, Limit::Room, "--memory-budget"),
            ("bad records", Measured { bad_share: 0.5, ..figures(0.050, 0.051, 0.052) }, Limit::BadRecords, "50 %"),
            (
                "others on the cores",
                Measured { cores_held: 2.5, ..figures(0.010, 0.100, 0.101) },
                Limit::Decode,
                "4 cores to the loader (other processes used 2.5): run again",
            ),
            // Few bad ones, a slow store.
            (
                "both",
                Measured { bad_share: 0.1, ..remote(figures(0.010, 0.011, 0.200)) },
                Limit::Fetch,
                "--cache DIR:SIZE",
            ),
        ] {
            let found = diagnose(&figures);
            assert_eq!(found.limit, limit, "{name}: {found:#?}");
            assert!(found.words.contains(says), "{name}: {}", found.words);
            assert!(found.changes.windows(2).all(|pair| pair[0].gain >= pair[1].gain), "{name}");
        }
    }

    #[test]
    fn decoded_pixels_are_offered_where_they_fit_and_by_what_fits() {
        let with = |decoded, gib: u64| {
            let figures = figures(0.010, 0.100, 0.101);
            diagnose(&Measured { decoded: Some(decoded), decoded_bytes: gib << 30, decoded_room: 8 << 30, ..figures })
        };
        let found = with(0.020, 3);
        assert!(found.words.contains("--decoded-cache ram:4GiB"), "{}", found.words);
        assert!((found.changes[0].gain - 0.101 / 0.021).abs() < 1e-9, "{found:?}");
        let found = with(0.020, 32);
        let part = found.changes.iter().find(|change| change.change.contains("decoded")).unwrap();
        assert!(part.change.contains("ram:8GiB holds 25 % of them; DIR:33GiB"), "{part:?}");
        assert!((part.gain - 0.101 / (0.101 - 0.080 / 4.0)).abs() < 1e-9, "{part:?}");
        // No gain from cached pixels if they take as long.
        assert!(with(0.101, 3).changes.iter().all(|change| !change.change.contains("decoded")));
    }

    #[test]
    fn stalls_are_differences_and_add_up() {
        let found = diagnose(&Measured { transfer: 0.005, ..figures(0.010, 0.030, 0.100) });
        let Stalls { fetch, prep, transfer } = found.stalls;
        assert!((fetch - 0.070).abs() < 1e-12 && (prep - 0.015).abs() < 1e-12 && (transfer - 0.005).abs() < 1e-12);
        assert!((found.au - 0.1).abs() < 1e-12);
        assert!((found.changes[0].gain - 100.0 / 30.0).abs() < 1e-9, "{:?}", found.changes);
    }

    #[test]
    fn a_gain_is_never_more_than_the_trainer_takes() {
        let found = diagnose(&Measured { workers: 1, cores: 64, ..figures(0.050, 0.100, 0.101) });
        assert!(found.changes[0].gain <= 0.101 / 0.050 + 1e-9, "{found:?}");
    }

    #[test]
    fn nobody_is_sent_for_cores_that_others_hold() {
        for workers in [1, 4] {
            let found = diagnose(&Measured { cores_held: 1.0, workers, ..figures(0.010, 0.100, 0.101) });
            for advice in ["more cores", "workers instead", "a GPU"] {
                assert!(!found.changes.iter().any(|change| change.change.contains(advice)), "{found:#?}");
            }
            // Three quarters of the time for decoding and augmentation.
            assert!((found.changes[0].gain - 0.101 / (0.101 - 0.025)).abs() < 1e-9, "{found:?}");
        }
    }

    #[test]
    fn odd_figures_do_no_harm() {
        for figures in [
            Measured::default(),
            figures(f64::NAN, f64::INFINITY, f64::NAN),
            figures(1.0, 0.5, 0.1),
            Measured { cores_held: f64::NAN, ..figures(0.01, 0.1, 0.1) },
            Measured { cores_held: 1e9, ..figures(0.01, 0.1, 0.1) },
            Measured { bad_share: 7.0, room: -3.0, workers: 0, cores: 0, ..figures(0.0, 0.0, 0.1) },
        ] {
            let found = diagnose(&figures);
            assert!(found.au.is_finite() && found.changes.iter().all(|change| change.gain.is_finite()), "{found:?}");
        }
    }
}
