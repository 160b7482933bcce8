//! What one job needs of its nodes and of the store, for each way of reading. Only arithmetic: no clock, file or
//! network.

use serde::Serialize;

use super::{
    cache::NodeCache,
    figures::{self, IN_FLIGHT, LARGEST, PREFIX_RATE, STAGE_JOBS, TOGETHER},
};

/// A job: records, trainers, nodes and store. In bytes, seconds and US dollars.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Job {
    pub(super) records: f64,
    pub(super) record_bytes: f64,
    /// Objects that hold the records.
    pub(super) objects: f64,
    pub(super) epochs: u64,
    pub(super) ranks_per_node: f64,
    /// Samples per second that a rank's trainer takes.
    pub(super) rate: f64,
    pub(super) batch_size: f64,
    /// Batches between two states.
    pub(super) state_every: f64,
    pub(super) cores: f64,
    /// Processor time per sample, after reading.
    pub(super) cpu_seconds: f64,
    /// Bytes per second of a node's network.
    pub(super) bandwidth: f64,
    pub(super) near: Option<Near>,
    /// Encoded bytes that each rank reads ahead.
    pub(super) read_ahead: f64,
    /// Time from a request to its first byte.
    pub(super) latency: f64,
    /// Bytes per second of one connection.
    pub(super) connection_bandwidth: f64,
    /// Bytes per second of the whole store; `None`: unlimited.
    pub(super) total_bandwidth: Option<f64>,
    pub(super) prefixes: f64,
    /// Bytes per second of a file system that all nodes share, if there is one.
    pub(super) shared_bandwidth: Option<f64>,
    pub(super) usd_per_1000: f64,
    pub(super) usd_per_gb: f64,
    /// Bytes per shard of the packed form.
    pub(super) shard_bytes: f64,
}

/// A cache near the trainers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Near {
    /// A folder of the node, which its ranks share.
    Folder(f64),
    /// Memory of each rank.
    Ram(f64),
}

/// Where the bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReadWay {
    /// From files of a file system that all nodes share.
    Shared,
    /// From the bucket in every epoch, with one request per record.
    Bucket,
    /// The same, with a cache on each node.
    Cache,
    /// Packed by `infeed prepare`, read shard by shard.
    Shards,
    /// All of it copied to each node first.
    Stage,
}

impl ReadWay {
    /// In order of setup effort.
    pub(super) const ALL: [Self; 5] = [Self::Shared, Self::Bucket, Self::Cache, Self::Shards, Self::Stage];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared folder",
            Self::Bucket => "bucket",
            Self::Cache => "bucket, cache",
            Self::Shards => "shards",
            Self::Stage => "stage",
        }
    }
}

/// What limits the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Limit {
    Trainer,
    Cores,
    Network,
    StoreBandwidth,
    Prefixes,
    Latency,
    Client,
}

impl Limit {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Trainer => "trainer",
            Self::Cores => "cores",
            Self::Network => "node's network",
            Self::StoreBandwidth => "store's bandwidth",
            Self::Prefixes => "store's requests",
            Self::Latency => "requests in flight",
            Self::Client => "client's thread",
        }
    }
}

/// The result of one way on a number of nodes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) way: ReadWay,
    /// The share of reads that the cache serves, from the second epoch on.
    pub(super) hit_rate: f64,
    /// Bytes per request.
    pub(super) request_bytes: f64,
    /// Of all nodes, from the second epoch on.
    pub(super) requests_per_epoch: f64,
    pub(super) requests_first_epoch: f64,
    /// Of all nodes from the second epoch on, at the trainers' full rate.
    pub(super) requests_per_second: f64,
    /// Prefixes of the bucket that the first epoch needs at this rate.
    pub(super) prefixes: f64,
    /// Bytes from the store, of all nodes.
    pub(super) bytes_per_epoch: f64,
    pub(super) bytes_first_epoch: f64,
    /// From the second epoch on, at the trainers' full rate.
    pub(super) node_bytes_per_second: f64,
    pub(super) total_bytes_per_second: f64,
    /// Of all nodes, from the second epoch on.
    pub(super) samples_per_second: f64,
    pub(super) samples_per_second_first_epoch: f64,
    pub(super) limit: Limit,
    pub(super) limit_first_epoch: Limit,
    /// Share of the time from the second epoch on in which the trainers wait.
    pub(super) waiting: f64,
    /// Time of copying or packing before the first epoch.
    pub(super) hours_before: f64,
    /// Time of the run, including `hours_before`.
    pub(super) hours: f64,
    pub(super) usd_requests: f64,
    pub(super) usd_egress: f64,
}

impl Outcome {
    pub(super) fn usd(&self) -> f64 {
        self.usd_requests + self.usd_egress
    }
}

/// The cost of opening the dataset.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Opening {
    pub(super) pages: f64,
    /// Time if pages are listed in sequence, as in one folder. (Folders are listed 16 at a time.)
    pub(super) seconds: f64,
    /// If every rank lists.
    pub(super) requests_each_rank_lists: f64,
    pub(super) usd_each_rank_lists: f64,
    pub(super) usd_one_listing: f64,
    /// Objects to list if the data is packed.
    pub(super) shards: f64,
}

/// The cost of losing a node.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Lost {
    /// Records that are read again at most, with a state every `state_every` batches.
    pub(super) records_with_state: f64,
    pub(super) seconds_with_state: f64,
    /// Records that are read again on average, with a state at the end of each epoch.
    pub(super) records_with_epoch_state: f64,
    pub(super) seconds_with_epoch_state: f64,
    /// Bytes that the new node reads from the store and the lost cache would have served, over the whole run.
    pub(super) cache_refill_bytes: f64,
    /// Bytes that the new node copies, if data is staged.
    pub(super) stage_bytes: f64,
}

/// The results for a number of nodes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) nodes: u64,
    pub(super) ranks: f64,
    pub(super) samples_per_second_wanted: f64,
    /// What each rank reads ahead, in epochs of a rank.
    pub(super) read_ahead_epochs: f64,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) opening: Opening,
    pub(super) lost: Lost,
}

/// The load of a way in one epoch.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Bytes per request, and requests per sample.
    request_bytes: f64,
    requests: f64,
    /// Bytes from the store per sample.
    bytes: f64,
    cpu_seconds: f64,
    /// Whether the store is remote, with requests and their limits.
    remote: bool,
    total_bandwidth: Option<f64>,
}

impl Job {
    pub(super) fn bytes(&self) -> f64 {
        self.records * self.record_bytes
    }

    fn cache(&self, nodes: f64) -> Option<NodeCache> {
        match self.near? {
            Near::Folder(size) => Some(NodeCache { nodes, part: size / self.bytes(), processes: self.ranks_per_node }),
            // Each rank has its own cache, like a node with one rank.
            Near::Ram(size) => {
                Some(NodeCache { nodes: nodes * self.ranks_per_node, part: size / self.bytes(), processes: 1.0 })
            }
        }
    }

    /// What a rank reads ahead, as a fraction of its part of an epoch.
    fn ahead(&self, nodes: f64) -> f64 {
        let batches = figures::BATCHES_AHEAD * self.batch_size * self.record_bytes;
        self.read_ahead.min(batches) * nodes * self.ranks_per_node / self.bytes()
    }

    /// Reading of single records: bytes per request, and requests per record.
    fn single(&self) -> (f64, f64) {
        let requests = (self.record_bytes / LARGEST).ceil().max(1.0);
        (self.record_bytes / requests, requests)
    }

    /// The same for consecutive records of a shard: a batch is divided into requests of up to 8 MiB.
    fn together(&self) -> (f64, f64) {
        if self.record_bytes > TOGETHER {
            return self.single();
        }
        let batch = self.batch_size * self.record_bytes;
        let requests = (batch / TOGETHER).ceil().max(1.0);
        (batch / requests, requests / self.batch_size)
    }

    fn load(&self, way: ReadWay, hits: f64) -> Load {
        let (request_bytes, requests) = if way == ReadWay::Shards { self.together() } else { self.single() };
        let read = match way {
            ReadWay::Stage => 0.0,
            ReadWay::Cache => 1.0 - hits,
            _ => 1.0,
        };
        let remote = matches!(way, ReadWay::Bucket | ReadWay::Cache | ReadWay::Shards);
        let requests = requests * read;
        let cpu = if remote { requests * figures::request_cpu(request_bytes) } else { 0.0 };
        Load {
            request_bytes,
            requests,
            bytes: self.record_bytes * read,
            cpu_seconds: self.cpu_seconds + cpu,
            remote,
            total_bandwidth: if way == ReadWay::Shared { self.shared_bandwidth } else { self.total_bandwidth },
        }
    }

    /// Samples per second of all nodes, and the limit.
    fn rate(&self, nodes: f64, load: &Load) -> (f64, Limit) {
        let ranks = nodes * self.ranks_per_node;
        let requests = if load.remote { load.requests } else { 0.0 };
        let in_flight = IN_FLIGHT.min(self.read_ahead / load.request_bytes).max(1.0);
        let answered = in_flight / self.request_seconds(load.request_bytes);
        // A resource that is not used does not limit.
        let per = |most: f64, each: f64| if each > 0.0 { most / each } else { f64::INFINITY };
        let bounds = [
            (ranks * self.rate, Limit::Trainer),
            (per(nodes * self.cores, load.cpu_seconds), Limit::Cores),
            (per(nodes * self.bandwidth, load.bytes), Limit::Network),
            (per(load.total_bandwidth.unwrap_or(f64::INFINITY), load.bytes), Limit::StoreBandwidth),
            (per(self.prefixes * PREFIX_RATE, requests), Limit::Prefixes),
            (per(ranks * answered, requests), Limit::Latency),
            (per(ranks * figures::most_requests(load.request_bytes), requests), Limit::Client),
        ];
        bounds.into_iter().reduce(|least, next| if next.0 < least.0 { next } else { least }).expect("there are bounds")
    }

    fn request_seconds(&self, bytes: f64) -> f64 {
        self.latency + bytes / self.connection_bandwidth
    }

    /// The outcome of a way; `None` if it is not possible.
    pub(super) fn outcome(&self, way: ReadWay, nodes: u64) -> Option<Outcome> {
        let nodes = nodes as f64;
        let cache = (way == ReadWay::Cache).then(|| self.cache(nodes)).flatten();
        let (mut before, mut requests_before, mut bytes_before) = (0.0, 0.0, 0.0);
        match way {
            ReadWay::Cache if cache.is_none() => return None,
            ReadWay::Shared if self.shared_bandwidth.is_none() => return None,
            ReadWay::Stage => {
                let room = matches!(self.near, Some(Near::Folder(size)) if size >= self.bytes());
                if !room {
                    return None;
                }
                (before, requests_before) = self.staging(nodes);
                bytes_before = nodes * self.bytes();
            }
            ReadWay::Shards => {
                before = self.preparing(nodes);
                requests_before = self.records * self.single().1;
                bytes_before = self.bytes();
            }
            ReadWay::Bucket | ReadWay::Cache | ReadWay::Shared => {}
        }
        let hit_rate = cache.map_or(0.0, |cache| cache.mean_hits(self.epochs));
        let (first, later) = (self.load(way, 0.0), self.load(way, hit_rate));
        let (first_rate, limit_first_epoch) = self.rate(nodes, &first);
        let (rate, limit) = self.rate(nodes, &later);
        let wanted = nodes * self.ranks_per_node * self.rate;
        let more = (self.epochs - 1) as f64;
        let seconds = before + self.records / first_rate + more * self.records / rate;
        let priced = way != ReadWay::Shared;
        let requests = requests_before + self.records * (first.requests + more * later.requests);
        let bytes = bytes_before + self.records * (first.bytes + more * later.bytes);
        Some(Outcome {
            way,
            hit_rate,
            request_bytes: later.request_bytes,
            requests_per_epoch: self.records * later.requests,
            requests_first_epoch: self.records * first.requests,
            requests_per_second: wanted * later.requests,
            prefixes: if first.remote { (wanted * first.requests / PREFIX_RATE).ceil() } else { 0.0 },
            bytes_per_epoch: self.records * later.bytes,
            bytes_first_epoch: self.records * first.bytes,
            node_bytes_per_second: self.ranks_per_node * self.rate * later.bytes,
            total_bytes_per_second: wanted * later.bytes,
            samples_per_second: rate,
            samples_per_second_first_epoch: first_rate,
            limit,
            limit_first_epoch,
            waiting: 1.0 - rate / wanted,
            hours_before: before / 3600.0,
            hours: seconds / 3600.0,
            usd_requests: if priced { requests / 1000.0 * self.usd_per_1000 } else { 0.0 },
            usd_egress: if priced { bytes / 1e9 * self.usd_per_gb } else { 0.0 },
        })
    }

    /// Seconds and requests of copying the dataset to each node.
    fn staging(&self, nodes: f64) -> (f64, f64) {
        let object = self.bytes() / self.objects;
        let parts = (object / LARGEST).ceil().max(1.0);
        let asking = self.objects * self.request_seconds(object) / STAGE_JOBS;
        let total = self.total_bandwidth.map_or(0.0, |most| nodes * self.bytes() / most);
        let prefixes = nodes * self.objects * parts / (self.prefixes * PREFIX_RATE);
        let seconds = [asking, self.bytes() / self.bandwidth, total, prefixes].into_iter().fold(0.0, f64::max);
        (seconds, nodes * self.objects * parts)
    }

    /// Seconds of packing the dataset, divided among all nodes.
    fn preparing(&self, nodes: f64) -> f64 {
        let load = Load { cpu_seconds: 1.0 / figures::PREPARED, ..self.load(ReadWay::Bucket, 0.0) };
        let unbounded = Self { rate: f64::INFINITY, ..self.clone() };
        self.records / unbounded.rate(nodes, &load).0
    }

    pub(super) fn row(&self, nodes: u64) -> Row {
        let n = nodes as f64;
        let ranks = n * self.ranks_per_node;
        let wanted = ranks * self.rate;
        let pages = (self.objects / figures::PAGE).ceil();
        let list = |requests: f64| requests / 1000.0 * figures::USD_PER_1000_LISTS;
        let again = (self.state_every * self.batch_size * ranks).min(self.records * self.epochs as f64);
        let refill: f64 = self.cache(n).map_or(0.0, |cache| {
            // For a node that joins when the caches of the others have settled.
            let last = cache.hits(self.epochs - 1..self.epochs).sum::<f64>();
            cache.hits(0..self.epochs).map(|hits| (last - hits).max(0.0)).sum::<f64>() / cache.nodes
        });
        Row {
            nodes,
            ranks,
            samples_per_second_wanted: wanted,
            read_ahead_epochs: self.ahead(n),
            outcomes: ReadWay::ALL.into_iter().filter_map(|way| self.outcome(way, nodes)).collect(),
            opening: Opening {
                pages,
                seconds: pages * self.latency,
                requests_each_rank_lists: pages * ranks,
                usd_each_rank_lists: list(pages * ranks),
                usd_one_listing: list(pages),
                shards: (self.bytes() / self.shard_bytes).ceil(),
            },
            lost: Lost {
                records_with_state: again,
                seconds_with_state: again / wanted,
                records_with_epoch_state: self.records / 2.0,
                seconds_with_epoch_state: self.records / 2.0 / wanted,
                cache_refill_bytes: refill
                    * self.bytes()
                    * if matches!(self.near, Some(Near::Ram(_))) { self.ranks_per_node } else { 1.0 },
                stage_bytes: self.bytes(),
            },
        }
    }
}

#[cfg(test)]
mod tests;
