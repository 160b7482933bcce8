//! Which way to take, and why, in words.

use serde::Serialize;

use super::{
    model::{Job, Limit, Outcome, Row, Way},
    words::{lasts, money, rate},
};
use crate::units;

/// A run is as long as another up to this factor.
const AS_LONG: f64 = 1.02;
/// Dollars that a way has to save, beside half of the price, before it is worth what it takes to set up. A choice.
const WORTH: f64 = 100.0;
/// Waiting that is not worth a word.
const UNNOTICED: f64 = 0.01;

/// What to do on so many nodes.
#[derive(Debug, Serialize)]
pub(super) struct Advice {
    pub(super) way: Way,
    pub(super) why: String,
    /// What bounds that way from the second epoch on.
    pub(super) bound_by: Limit,
}

/// A number of nodes, with what to do.
#[derive(Debug, Serialize)]
pub(super) struct Planned {
    #[serde(flatten)]
    pub(super) row: Row,
    pub(super) advice: Advice,
}

/// The way with the shortest run; of those that are about as short, the one that takes least to set up, unless another is
/// much cheaper.
pub(super) fn of(job: &Job, row: &Row) -> Advice {
    let shortest = row.outcomes.iter().map(|outcome| outcome.hours).fold(f64::INFINITY, f64::min);
    // In the order of what there is to set up.
    let short: Vec<&Outcome> = row.outcomes.iter().filter(|outcome| outcome.hours <= shortest * AS_LONG).collect();
    let simplest = short[0];
    let cheapest = short.iter().copied().reduce(|least, next| if next.usd() < least.usd() { next } else { least });
    let cheapest = cheapest.unwrap_or(simplest);
    let saves = simplest.usd() - cheapest.usd();
    let dear = saves > WORTH && cheapest.usd() < simplest.usd() / 2.0;
    let chosen = if dear { cheapest } else { simplest };
    let mut why = Vec::new();
    if dear {
        why.push(format!("{} where {} costs {}", money(chosen.usd()), simplest.way.name(), money(simplest.usd())));
    } else if let Some(bucket) = row.outcomes.iter().find(|outcome| outcome.way == Way::Bucket)
        && chosen.way != Way::Bucket
        && bucket.hours > chosen.hours * AS_LONG
    {
        let (bound, lasts) = (bucket.limit.name(), lasts(bucket.hours));
        why.push(format!("record by record from the bucket it is bound by the {bound}, {lasts} in all"));
    }
    if let Some(words) = by_way(job, row, chosen) {
        why.push(words);
    }
    why.push(bound(row, chosen));
    Advice { way: chosen.way, why: why.join("; "), bound_by: chosen.limit }
}

fn by_way(job: &Job, row: &Row, chosen: &Outcome) -> Option<String> {
    match chosen.way {
        Way::Shared => Some("the shared folder gives enough, and there is nothing to set up".into()),
        Way::Bucket if chosen.prefixes > 1.0 => {
            Some(format!("spread the objects over {} prefixes or more", units::count(chosen.prefixes as u64)))
        }
        Way::Bucket => None,
        Way::Cache => {
            Some(format!("the cache serves {:.0} % of the reads from the second epoch", 100.0 * chosen.hit_rate))
        }
        Way::Shards => {
            let records = (chosen.request_bytes / job.record_bytes).max(1.0);
            Some(format!("{records:.0} records a request"))
        }
        Way::Stage => {
            let copies = rate(job.bytes() * row.nodes as f64).replace("/s", "");
            Some(format!("{copies} are copied in {}, and nothing is read after that", lasts(chosen.hours_before)))
        }
    }
}

fn bound(row: &Row, chosen: &Outcome) -> String {
    if chosen.waiting < UNNOTICED {
        return match chosen.limit_first_epoch {
            Limit::Trainer => "the trainers do not wait".into(),
            first => format!("the trainers wait for the {} in the first epoch alone", first.name()),
        };
    }
    let wait = format!("the trainers wait {:.0} % of the time for the {}", 100.0 * chosen.waiting, chosen.limit.name());
    let change = match chosen.limit {
        Limit::Trainer => "",
        Limit::Cores => ": more cores, smaller images (`infeed prepare --shorter 256`), or decoding on the GPUs",
        Limit::Network | Limit::StoreBandwidth if row.outcomes.iter().any(|outcome| outcome.way == Way::Stage) => {
            ": nothing else is faster"
        }
        Limit::Network | Limit::StoreBandwidth => ": give nodes room for the data (--cache), or make it smaller",
        Limit::Prefixes => ": spread the objects over more prefixes (--prefixes)",
        Limit::Latency => ": more is in flight with larger requests, from shards read in blocks",
        Limit::Client => ": more ranks, or larger requests, from shards read in blocks",
    };
    format!("{wait}{change}")
}
