//! The recommended way of reading, and the reasons.

use serde::Serialize;

use super::{
    model::{Job, Limit, Outcome, ReadWay, Row},
    words::{lasts, money, rate},
};
use crate::units;

/// Two runs count as equally long up to this factor.
const AS_LONG: f64 = 1.02;
/// A way with more setup is recommended for its price only if it costs less than half and saves more dollars than this.
/// A choice, not measured.
const WORTH: f64 = 100.0;
/// A share of waiting that is too small to mention.
const UNNOTICED: f64 = 0.01;

/// The advice for a number of nodes.
#[derive(Debug, Serialize)]
pub(super) struct Advice {
    pub(super) way: ReadWay,
    pub(super) why: String,
    /// The limit of that way from the second epoch on.
    pub(super) bound_by: Limit,
}

/// The figures for a number of nodes, with advice.
#[derive(Debug, Serialize)]
pub(super) struct Planned {
    #[serde(flatten)]
    pub(super) row: Row,
    pub(super) advice: Advice,
}

/// Chooses the way with the shortest run. Of ways that are about as short, it chooses the one with the least setup,
/// unless another is much cheaper.
pub(super) fn of(job: &Job, row: &Row) -> Advice {
    let shortest = row.outcomes.iter().map(|outcome| outcome.hours).fold(f64::INFINITY, f64::min);
    // In order of setup effort.
    let short: Vec<&Outcome> = row.outcomes.iter().filter(|outcome| outcome.hours <= shortest * AS_LONG).collect();
    let simplest = short[0];
    let cheapest = short.iter().copied().reduce(|least, next| if next.usd() < least.usd() { next } else { least });
    let cheapest = cheapest.unwrap_or(simplest);
    let saves = simplest.usd() - cheapest.usd();
    let dear = saves > WORTH && cheapest.usd() < simplest.usd() / 2.0;
    let chosen = if dear { cheapest } else { simplest };
    let mut why = Vec::new();
    if dear {
        why.push(format!("it costs {}, {} costs {}", money(chosen.usd()), simplest.way.name(), money(simplest.usd())));
    } else if let Some(bucket) = row.outcomes.iter().find(|outcome| outcome.way == ReadWay::Bucket)
        && chosen.way != ReadWay::Bucket
        && bucket.hours > chosen.hours * AS_LONG
    {
        let (bound, lasts) = (bucket.limit.name(), lasts(bucket.hours));
        why.push(format!("reading record by record from the bucket is limited by the {bound} and takes {lasts}"));
    }
    if let Some(words) = by_way(job, row, chosen) {
        why.push(words);
    }
    why.push(bound(row, chosen));
    Advice { way: chosen.way, why: why.join("; "), bound_by: chosen.limit }
}

fn by_way(job: &Job, row: &Row, chosen: &Outcome) -> Option<String> {
    match chosen.way {
        ReadWay::Shared => Some("the shared folder is fast enough and needs no setup".into()),
        ReadWay::Bucket if chosen.prefixes > 1.0 => {
            Some(format!("spread the objects over {} prefixes or more", units::count(chosen.prefixes as u64)))
        }
        ReadWay::Bucket => None,
        ReadWay::Cache => {
            Some(format!("the cache serves {:.0} % of the reads from the second epoch", 100.0 * chosen.hit_rate))
        }
        ReadWay::Shards => {
            let records = (chosen.request_bytes / job.record_bytes).max(1.0);
            Some(format!("{records:.0} records per request"))
        }
        ReadWay::Stage => {
            let copies = rate(job.bytes() * row.nodes as f64).replace("/s", "");
            Some(format!(
                "copying {copies} takes {}, and nothing is read from the store after that",
                lasts(chosen.hours_before)
            ))
        }
    }
}

fn bound(row: &Row, chosen: &Outcome) -> String {
    if chosen.waiting < UNNOTICED {
        return match chosen.limit_first_epoch {
            Limit::Trainer => "the trainers do not wait".into(),
            first => format!("the trainers wait for the {} in the first epoch only", first.name()),
        };
    }
    let wait = format!("the trainers wait {:.0} % of the time for the {}", 100.0 * chosen.waiting, chosen.limit.name());
    let change = match chosen.limit {
        Limit::Trainer => "",
        Limit::Cores => ": use more cores, smaller images (`infeed prepare --shorter 256`), or decoding on the GPUs",
        Limit::Network | Limit::StoreBandwidth if row.outcomes.iter().any(|outcome| outcome.way == ReadWay::Stage) => {
            ": no other way is faster"
        }
        Limit::Network | Limit::StoreBandwidth => ": give the nodes a cache (--cache), or store the data smaller",
        Limit::Prefixes => ": spread the objects over more prefixes (--prefixes)",
        Limit::Latency => ": use larger requests, from shards read in blocks, to have more bytes in flight",
        Limit::Client => ": use more ranks, or larger requests, from shards read in blocks",
    };
    format!("{wait}{change}")
}
