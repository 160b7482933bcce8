//! Dividing the memory budget.

use infeed_core::error::{
    Error, ErrorKind, Result,
    setting::{BATCH_SIZE, COLUMNS, DEVICE_BUDGET, DEVICE_CPU, MEMORY_BUDGET, STREAMS, WORKERS},
};
use infeed_store::CacheSpec;

/// The needs of a loader before the budget is divided, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// Memory of the machine or container.
    pub(super) machine: u64,
    /// Rows of one batch of each rank, all fields.
    pub(super) batch: u64,
    /// Number of ranks of this process, one for each of its devices.
    pub(super) ranks: u64,
    /// The part of fields of bytes in `batch`, at most.
    pub(super) of_bytes: u64,
    /// Encoded bytes that decode threads read, all threads.
    pub(super) reads: u64,
    /// The smallest window of encoded bytes fetched ahead; 0 if nothing is fetched.
    pub(super) window: u64,
    /// Scratch of the decoders, all threads, for the smallest useful image.
    pub(super) scratch: u64,
    /// Parts that records share, such as decoded volumes: the parts of one record.
    pub(super) shared: u64,
    /// All shared parts.
    pub(super) all_shared: u64,
    /// Additional memory that settings on `auto` may use if autotune raises them.
    pub(super) more: u64,
    /// Processes of the run on this machine, which share its memory.
    pub(super) processes: u64,
}

/// The divided budget, in bytes except the number of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) budget: u64,
    /// Batches that may own rows.
    pub(super) prefetch: usize,
    /// Encoded bytes fetched ahead.
    pub(super) window: u64,
    /// Scratch of the decoders, all threads.
    pub(super) scratch: u64,
    /// Parts that records share.
    pub(super) shared: u64,
    /// The rest, for settings on `auto` that grow.
    pub(super) more: u64,
}

impl Needs {
    /// The minimum: one batch in work and one that the trainer gives back, and one image decoded by each thread.
    pub(super) fn least(&self) -> u64 {
        let parts = [self.batch, self.batch, self.reads, self.window, self.scratch, self.shared];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Divides the budget: first scratch for images of a usual size (a rejected image is worse than one batch less
    /// ahead), then batches, then the rest for large images and reading ahead. `prefetch` is the setting, `None` for
    /// auto; there are fewer batches if the budget is too small. `scratch` is the memory of the decoders for usual and
    /// for the largest images.
    pub(super) fn divide(
        &self,
        budget: Option<u64>,
        prefetch: Option<usize>,
        scratch: [u64; 2],
        window: u64,
    ) -> Result<Shares> {
        let [usual_scratch, scratch] = scratch;
        let least = self.least();
        let mut texts = if self.of_bytes > self.batch / 2 {
            format!(", {} of it for fields of bytes, which {COLUMNS} can leave out", mib(self.of_bytes))
        } else {
            String::new()
        };
        if self.ranks > 1 {
            texts += &format!(", those of {} devices together", self.ranks);
        }
        // A limit, because memory for more batches is never there, and tokio's channels have a limit, too.
        let wanted = prefetch.unwrap_or_else(|| self.auto_prefetch()).min(1 << 16);
        let budget = match budget {
            Some(budget) if budget < least => {
                let what = format!(
                    "{MEMORY_BUDGET} is {}, the least that works is {} (2 batches of {}{}, {} for decoding, {} for reading{})",
                    mib(budget),
                    mib(least),
                    mib(self.batch),
                    texts,
                    mib(self.scratch),
                    mib(self.reads + self.window),
                    if self.shared > 0 {
                        format!(
                            ", {} for a patient's volumes, chunks of arrays or a row group, which can be written smaller",
                            mib(self.shared)
                        )
                    } else {
                        String::new()
                    }
                );
                return Err(
                    Error::config(what).with_hint(format!("raise {MEMORY_BUDGET} or lower {BATCH_SIZE} or {WORKERS}"))
                );
            }
            Some(budget) => budget,
            None => {
                let machine = self.machine;
                if least > machine {
                    let what = format!(
                        "two batches, decoding and reading take {}, the machine has {} (a batch takes {}{texts})",
                        mib(least),
                        mib(machine),
                        mib(self.batch)
                    );
                    return Err(Error::config(what).with_hint(format!("lower {BATCH_SIZE} or {WORKERS}")));
                }
                let rows = self.batch.saturating_mul(wanted as u64 + 1);
                let comfortable =
                    [rows, self.reads, window, scratch, self.all_shared].into_iter().fold(0, u64::saturating_add);
                // A quarter of the machine leaves the rest to the trainer and the page cache.
                let quarter = machine / 4;
                let budget = comfortable.min(quarter).max(least);
                // Memory for growth is the first to be reduced.
                budget + self.more.min((quarter / self.processes.max(1)).saturating_sub(budget))
            }
        };
        let mut available = budget - least;
        // Takes the wanted amount, or the rest.
        let take = |available: &mut u64, wanted: u64| {
            let taken = wanted.min(*available);
            *available -= taken;
            taken
        };
        let mut shares =
            Shares { budget, prefetch: 1, window: self.window, scratch: self.scratch, shared: self.shared, more: 0 };
        shares.scratch += take(&mut available, usual_scratch.saturating_sub(self.scratch));
        let fetches = self.window > 0;
        if fetches {
            // 16 MiB keep a few dozen requests of photographs in flight. If records share parts, which would take the
            // whole rest, half of the rest, so that parts are read ahead.
            let parts =
                if self.all_shared > 0 { available.saturating_sub(self.batch.saturating_mul(2)) / 2 } else { 0 };
            shares.window += take(&mut available, window.min(parts.max(16 << 20)));
        }
        // Making a part again costs more than one batch less ahead; two batches more keep the workers busy.
        let more =
            self.all_shared.saturating_sub(self.shared).min(available.saturating_sub(self.batch.saturating_mul(2)));
        shares.shared += take(&mut available, more);
        let more_batches = (wanted as u64 - 1).min(available / self.batch.max(1));
        take(&mut available, more_batches * self.batch);
        shares.prefetch += more_batches as usize;
        if fetches {
            shares.window += take(&mut available, window.saturating_sub(shares.window));
        }
        // Only if no batch is missing: a rest that is too small for another batch stays unused. Otherwise a larger
        // budget, which has that batch, might reject an image that a smaller one accepts.
        if shares.prefetch == wanted {
            shares.scratch += take(&mut available, scratch.saturating_sub(shares.scratch));
            shares.more = available;
        }
        Ok(shares)
    }

    /// Batches ahead on `auto`, for each rank as if it were alone: they bridge short stalls of its trainer's machine.
    pub(super) fn auto_prefetch(&self) -> usize {
        auto_prefetch(self.batch / self.ranks.max(1))
    }

    /// The maximum of batches ahead on `auto`: four times the memory at the start.
    pub(super) fn most_prefetch(&self) -> usize {
        // More do not help, even if batches are tiny.
        ((1 << 30) / self.batch.max(1)).min(256).max(self.auto_prefetch() as u64) as usize
    }
}

/// Enough batches to bridge a short stall of the machine: about 256 MiB of rows.
fn auto_prefetch(batch: u64) -> usize {
    ((256 << 20) / batch.max(1)).clamp(3, 16) as usize
}

/// Divides device memory between decoders and batches; returns the budget, and how many batches may own rows there.
/// `free` is the free memory of the GPU now.
pub(super) fn divide_device(
    budget: Option<u64>,
    free: u64,
    batch: u64,
    decoders: u64,
    prefetch: Option<usize>,
) -> Result<(u64, usize)> {
    let wanted = prefetch.unwrap_or_else(|| auto_prefetch(batch)).min(1 << 16) as u64;
    let least = batch.saturating_mul(2).saturating_add(decoders);
    let parts = || format!("2 batches of {}, {} for decoding", mib(batch), mib(decoders));
    let budget = match budget {
        Some(budget) if budget < least => {
            let what =
                format!("{DEVICE_BUDGET} is {}, the least that works is {} ({})", mib(budget), mib(least), parts());
            return Err(
                Error::config(what).with_hint(format!("raise {DEVICE_BUDGET} or lower {BATCH_SIZE} or {STREAMS}"))
            );
        }
        Some(budget) => budget,
        None if least > free => {
            let what = format!(
                "{} of device memory are free, the least that works is {} ({})",
                mib(free),
                mib(least),
                parts()
            );
            return Err(Error::new(ErrorKind::OutOfMemory, what).with_hint(format!(
                "lower {BATCH_SIZE}, free memory of the GPU (nvidia-smi lists its users), or use {DEVICE_CPU}"
            )));
        }
        None => {
            let comfortable = batch.saturating_mul(wanted + 1).saturating_add(decoders);
            // The other half is for the trainer.
            comfortable.min(free / 2).max(least)
        }
    };
    let batches = (budget - decoders) / batch.max(1);
    Ok((budget, batches.saturating_sub(1).clamp(1, wanted.max(1)) as usize))
}

/// Rejects a cache in memory that is larger than the machine's memory.
pub(super) fn check_ram_cache(spec: &CacheSpec, machine: u64) -> Result<()> {
    if spec.is_ram() && spec.bytes() > machine {
        let what = format!("the cache may take {} of memory, the machine has {}", mib(spec.bytes()), mib(machine));
        return Err(Error::config(what).with_hint("make it smaller, or name a folder"));
    }
    Ok(())
}

/// A size as readable text.
pub(super) fn mib(bytes: u64) -> String {
    match bytes {
        0..0x2800 => format!("{bytes} B"),
        0x2800..0xa0_0000 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}

/// Memory of this machine or container; 4 GiB if the system does not report it.
pub(super) fn machine_bytes() -> u64 {
    infeed_core::machine::memory().unwrap_or(4 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const NEEDS: Needs = Needs {
        machine: 16 << 30,
        batch: 10 * MIB,
        ranks: 1,
        of_bytes: 0,
        reads: 8 * MIB,
        window: 0,
        scratch: 8 * MIB,
        shared: 0,
        all_shared: 0,
        more: 0,
        processes: 1,
    };

    #[test]
    fn shares_stay_within_the_budget() {
        for (window, shared) in [(0, 0), (MIB, 0), (0, 3 * MIB)] {
            let needs = Needs { window, shared, all_shared: shared * 50, ..NEEDS };
            for budget in (40 * MIB..2000 * MIB).step_by(7 * MIB as usize) {
                for prefetch in [None, Some(1), Some(4), Some(100)] {
                    let s = needs.divide(Some(budget), prefetch, [96 * MIB, 512 * MIB], 256 * MIB).unwrap();
                    let used = (s.prefetch as u64 + 1) * needs.batch + needs.reads + s.window + s.scratch + s.shared;
                    let used = used + s.more;
                    assert!(used <= budget, "{used} > {budget}: {s:?}");
                    assert!(s.prefetch >= 1 && prefetch.is_none_or(|p| s.prefetch <= p));
                }
            }
        }
    }

    #[test]
    fn a_budget_below_the_least_is_refused_with_the_least_named() {
        let error = NEEDS.divide(Some(20 * MIB), None, [0, 0], 0).unwrap_err().to_string();
        assert!(error.contains("20 MiB") && error.contains("36 MiB") && !error.contains("columns"), "{error}");
        let error =
            Needs { of_bytes: 9 * MIB, ..NEEDS }.divide(Some(20 * MIB), None, [0, 0], 0).unwrap_err().to_string();
        assert!(error.contains("2 batches of 10 MiB, 9216 KiB of it for fields of bytes, which columns(…)"), "{error}");
    }

    #[test]
    fn what_no_machine_holds_is_refused() {
        for batch in [u64::MAX / 8, u64::MAX] {
            let error = Needs { batch, ..NEEDS }.divide(None, None, [0, 0], 0).unwrap_err().to_string();
            assert!(error.contains("the machine has"), "{error}");
            assert!(Needs { batch, ..NEEDS }.divide(Some(1 << 40), Some(usize::MAX), [0, 0], 0).is_err());
        }
    }

    #[test]
    fn more_memory_never_means_smaller_images() {
        let mut last = 0;
        for budget in 40..400 {
            let s = NEEDS.divide(Some(budget * MIB), Some(8), [96 * MIB, 512 * MIB], 0).unwrap();
            assert!(s.scratch >= last, "{budget} MiB");
            last = s.scratch;
        }
    }

    #[test]
    fn what_is_left_is_for_growing() {
        let divide = |needs: Needs, budget| needs.divide(budget, Some(4), [96 * MIB, 512 * MIB], 0).unwrap();
        let all = 5 * NEEDS.batch + NEEDS.reads + 512 * MIB;
        assert_eq!(divide(NEEDS, Some(all + 7 * MIB)).more, 7 * MIB);
        // An image refused, or a batch less, is worse than a loader that can't grow.
        assert_eq!(divide(NEEDS, Some(all - MIB)).more, 0);
        let auto = divide(NEEDS, None);
        let growing = divide(Needs { more: 60 * MIB, ..NEEDS }, None);
        assert_eq!((growing.more - auto.more, growing.budget - auto.budget), (60 * MIB, 60 * MIB));
        let crowded = divide(Needs { more: 60 * MIB, processes: 1 << 40, ..NEEDS }, None);
        assert_eq!((crowded.more, crowded.budget), (auto.more, auto.budget));
    }

    #[test]
    fn several_ranks_have_one_budget_and_as_many_batches_each() {
        let four = Needs { batch: 40 * MIB, ranks: 4, ..NEEDS };
        let alone = NEEDS.divide(None, None, [96 * MIB, 512 * MIB], 0).unwrap();
        let together = four.divide(None, None, [96 * MIB, 512 * MIB], 0).unwrap();
        assert_eq!((alone.prefetch, together.prefetch), (16, 16));
        assert_eq!(
            together.budget - alone.budget,
            3 * 17 * NEEDS.batch,
            "rows, and nothing else, are there four times"
        );
        let small = four.divide(Some(500 * MIB), None, [96 * MIB, 512 * MIB], 0).unwrap();
        assert_eq!((small.budget, small.prefetch), (500 * MIB, 8));
        let error = four.divide(Some(90 * MIB), None, [0, 0], 0).unwrap_err().to_string();
        assert!(error.contains("2 batches of 40 MiB, those of 4 devices together"), "{error}");
    }

    #[test]
    fn device_memory_is_divided_within_its_budget() {
        for batch in [0, 1, 7 * MIB, 300 * MIB] {
            for decoders in [0, 100 * MIB] {
                for prefetch in [None, Some(1), Some(5), Some(usize::MAX)] {
                    for budget in [None, Some(800 * MIB), Some(5000 * MIB)] {
                        let (budget, ahead) = divide_device(budget, 4000 * MIB, batch, decoders, prefetch).unwrap();
                        assert!(ahead >= 1 && prefetch.is_none_or(|most| ahead <= most));
                        assert!(decoders + batch * (ahead as u64 + 1) <= budget || batch == 0, "{budget} {ahead}");
                    }
                }
            }
        }
        let error = divide_device(Some(50 * MIB), 4000 * MIB, 20 * MIB, 30 * MIB, None).unwrap_err().to_string();
        assert!(error.contains("50 MiB") && error.contains("70 MiB"), "{error}");
        let error = divide_device(None, 60 * MIB, 20 * MIB, 30 * MIB, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    }

    #[test]
    fn a_large_budget_gives_what_was_asked_for() {
        let s = NEEDS.divide(Some(4000 * MIB), Some(16), [96 * MIB, 512 * MIB], 0).unwrap();
        assert_eq!((s.prefetch, s.scratch), (16, 512 * MIB));
    }
}
