//! The plan as text and tables.

use super::{
    advice::Planned,
    cache::most_ahead,
    figures::FIGURES,
    model::{Job, Near, Outcome, ReadWay, Row},
    words::{lasts, money, percent, rate, size},
};
use crate::{failure::Failure, out::Out, report, units};

/// Up to this many numbers of nodes, each gets a table of all ways.
const COMPARED: usize = 2;

pub(super) fn print(out: &Out, job: &Job, rows: &[Planned]) -> Result<(), Failure> {
    out.words(format_args!(
        "{} records of {}, {}, in {} objects; {} epochs; {} ranks per node take {} samples/s each",
        units::count(job.records as u64),
        size(job.record_bytes),
        size(job.bytes()),
        units::count(job.objects as u64),
        units::count(job.epochs),
        job.ranks_per_node,
        units::count(job.rate.round() as u64),
    ))?;
    if rows.len() <= COMPARED {
        for planned in rows {
            let (row, wanted) = (&planned.row, planned.row.samples_per_second_wanted);
            let nodes = nodes(row.nodes);
            let each = size(job.rate * job.ranks_per_node * job.record_bytes);
            let all = size(wanted * job.record_bytes);
            let rate = units::count(wanted.round() as u64);
            out.words(format_args!("\n{nodes}: {rate} samples/s, {each}/s per node, {all}/s in total"))?;
            out.line(ways(&row.outcomes))?;
        }
    } else {
        out.words(format_args!("\nFrom {}", by(job)))?;
        out.line(sizes(job, rows))?;
    }
    out.line("\nWhat to do")?;
    // Consecutive numbers of nodes with the same advice share one line, with the figures of the last.
    for alike in rows.chunk_by(|a, b| a.advice.way == b.advice.way && a.advice.bound_by == b.advice.bound_by) {
        let [first, .., last] = alike else {
            alike.iter().try_for_each(|only| advised(out, &nodes(only.row.nodes), only))?;
            continue;
        };
        advised(out, &format!("{} to {}", units::count(first.row.nodes), nodes(last.row.nodes)), last)?;
    }
    out.line("")?;
    words(job, rows).iter().try_for_each(|line| out.words(line))?;
    out.line("\nSources of the figures (what was measured: on one machine):")?;
    FIGURES.iter().try_for_each(|figure| {
        let kind = if figure.measured { "measured" } else { "not measured" };
        out.words(format_args!("  {}: {kind}, {}", figure.what, figure.from))
    })
}

fn advised(out: &Out, nodes: &str, planned: &Planned) -> Result<(), Failure> {
    out.words(format_args!("  {nodes}  {}: {}", planned.advice.way.name(), planned.advice.why))
}

fn nodes(nodes: u64) -> String {
    match nodes {
        1 => "1 node".into(),
        _ => format!("{} nodes", units::count(nodes)),
    }
}

/// The way that the table by number of nodes shows.
fn shown(job: &Job, row: &Row) -> ReadWay {
    let cached = job.near.is_some() && row.outcomes.iter().any(|outcome| outcome.way == ReadWay::Cache);
    if cached { ReadWay::Cache } else { ReadWay::Bucket }
}

fn by(job: &Job) -> String {
    match job.near {
        None => "the bucket, one request per record".into(),
        Some(Near::Folder(bytes)) => format!("the bucket, with a cache of {} on each node", size(bytes)),
        Some(Near::Ram(bytes)) => format!("the bucket, with a cache of {} in each rank's memory", size(bytes)),
    }
}

fn sizes(job: &Job, rows: &[Planned]) -> String {
    let mut table = report::table();
    let head = [
        "nodes",
        "samples/s",
        "each node",
        "all nodes",
        "hits",
        "GET/s",
        "prefixes",
        "GET an epoch",
        "requests",
        "egress",
        "lasts",
        "waiting",
        "bound by",
    ];
    table.set_header(head);
    for Planned { row, .. } in rows {
        let way = shown(job, row);
        let Some(outcome) = row.outcomes.iter().find(|outcome| outcome.way == way) else { continue };
        table.add_row([
            units::count(row.nodes),
            units::count(row.samples_per_second_wanted.round() as u64),
            rate(outcome.node_bytes_per_second),
            rate(outcome.total_bytes_per_second),
            percent(outcome.hit_rate),
            units::count(outcome.requests_per_second.round() as u64),
            units::count(outcome.prefixes as u64),
            units::count(outcome.requests_per_epoch.round() as u64),
            money(outcome.usd_requests),
            money(outcome.usd_egress),
            lasts(outcome.hours),
            percent(outcome.waiting),
            outcome.limit.name().to_owned(),
        ]);
    }
    report::align_right(&mut table, 0..);
    table.trim_fmt()
}

fn ways(outcomes: &[Outcome]) -> String {
    let mut table = report::table();
    table.set_header([
        "way",
        "hits",
        "each node",
        "all nodes",
        "GET/s",
        "GET an epoch",
        "requests",
        "egress",
        "before",
        "lasts",
        "waiting",
        "bound by",
    ]);
    for outcome in outcomes {
        table.add_row([
            outcome.way.name().to_owned(),
            percent(outcome.hit_rate),
            rate(outcome.node_bytes_per_second),
            rate(outcome.total_bytes_per_second),
            units::count(outcome.requests_per_second.round() as u64),
            units::count(outcome.requests_per_epoch.round() as u64),
            money(outcome.usd_requests),
            money(outcome.usd_egress),
            lasts(outcome.hours_before),
            lasts(outcome.hours),
            percent(outcome.waiting),
            outcome.limit.name().to_owned(),
        ]);
    }
    report::align_right(&mut table, 1..);
    table.trim_fmt()
}

/// Facts that have no column.
fn words(job: &Job, rows: &[Planned]) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(Planned { row: most, .. }) = rows.iter().max_by_key(|planned| planned.row.nodes) else { return lines };
    let nodes = nodes(most.nodes);
    let opening = &most.opening;
    lines.push(format!(
        "opening: {} pages of the listing, {} one after another; on {nodes} {} if each rank lists, {} if one does; \
         {} objects if packed",
        units::count(opening.pages as u64),
        units::time(opening.seconds),
        money(opening.usd_each_rank_lists),
        money(opening.usd_one_listing),
        units::count(opening.shards as u64),
    ));
    let lost = &most.lost;
    lines.push(format!(
        "if one of {nodes} is lost: with a state every {} batches, at most {} records are read again ({}); with one \
         per epoch, half an epoch on average ({}); without a state, everything so far{}",
        units::count(job.state_every as u64),
        units::count(lost.records_with_state.round() as u64),
        units::time(lost.seconds_with_state),
        units::time(lost.seconds_with_epoch_state),
        match lost.cache_refill_bytes {
            0.0 => String::new(),
            bytes => format!("; refilling its cache reads {}", size(bytes)),
        },
    ));
    if let Some(shards) = most.outcomes.iter().find(|outcome| outcome.way == ReadWay::Shards) {
        lines.push(format!(
            "shards: {:.0} records per request if read in blocks with a window of 1; in random order one request per \
             record, as for files",
            (shards.request_bytes / job.record_bytes).max(1.0),
        ));
    }
    let far = rows.iter().find(|planned| planned.row.read_ahead_epochs > most_ahead(job.ranks_per_node));
    if let (Some(Near::Folder(_)), Some(Planned { row, .. })) = (job.near, far) {
        lines.push(format!(
            "reading ahead spans {:.2} epochs of a rank on {}: the cache serves less than stated here; use a smaller \
             --memory-budget of infeed run (--read-ahead here)",
            row.read_ahead_epochs,
            self::nodes(row.nodes),
        ));
    }
    if job.usd_per_gb == 0.0 {
        lines.push(
            "egress is free within the store's region; elsewhere set --usd-per-gb (S3's list prices: 0.02 and 0.09)"
                .into(),
        );
    }
    lines
}
