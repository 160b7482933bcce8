//! The model by hand, in limits, and for what must rise or fall.

use super::*;

/// ImageNet on nodes of 8 H100s.
fn imagenet() -> Job {
    Job {
        records: 1.28e6,
        record_bytes: 110e3,
        objects: 1.28e6,
        epochs: 90,
        ranks_per_node: 8.0,
        rate: 1786.0,
        batch_size: 256.0,
        state_every: 100.0,
        cores: 96.0,
        cpu_seconds: 1.286e-3,
        bandwidth: 12.5e9,
        near: None,
        read_ahead: (256 << 20) as f64,
        latency: 0.03,
        connection_bandwidth: 85e6,
        total_bandwidth: None,
        prefixes: 1000.0,
        shared_bandwidth: None,
        usd_per_1000: 0.0004,
        usd_per_gb: 0.0,
        shard_bytes: 256e6,
    }
}

fn outcome(job: &Job, way: ReadWay, nodes: u64) -> Outcome {
    job.outcome(way, nodes).expect("it can be")
}

#[test]
fn an_epoch_of_files_is_a_request_a_record() {
    let bucket = outcome(&imagenet(), ReadWay::Bucket, 4);
    assert_eq!((bucket.requests_per_epoch, bucket.requests_first_epoch), (1.28e6, 1.28e6));
    assert_eq!(bucket.bytes_per_epoch, 1.28e6 * 110e3);
    // 1,280 thousands at $0.0004, 90 times.
    assert!((bucket.usd_requests - 46.08).abs() < 1e-9, "{}", bucket.usd_requests);
    // 4 nodes of 8 ranks of 1,786.
    assert!((bucket.requests_per_second - 57_152.0).abs() < 1e-6 && bucket.prefixes == 11.0);
    assert_eq!(bucket.limit, Limit::Trainer);
    assert!(bucket.waiting.abs() < 1e-9 && (bucket.hours - 90.0 * 1.28e6 / 57_152.0 / 3600.0).abs() < 1e-9);
}

#[test]
fn shards_are_read_a_few_requests_a_batch() {
    let shards = outcome(&imagenet(), ReadWay::Shards, 1);
    // 256 records of 110 KB are 28.2 MB: four requests of 7 MB.
    assert!((shards.request_bytes - 7.04e6).abs() < 1.0 && (shards.requests_per_epoch - 2e4).abs() < 1e-6);
    // Packing reads each file once.
    assert!((shards.usd_requests - (1.28e6 + 90.0 * 2e4) / 1000.0 * 0.0004).abs() < 1e-9);
    let small = Job { batch_size: 16.0, ..imagenet() };
    assert!((outcome(&small, ReadWay::Shards, 1).requests_per_epoch - 8e4).abs() < 1e-6, "a batch at a time, no more");
}

#[test]
fn large_records_are_cut() {
    let volumes = Job { record_bytes: 147e6, records: 1e4, objects: 1e4, ..imagenet() };
    for way in [ReadWay::Bucket, ReadWay::Shards] {
        assert_eq!(outcome(&volumes, way, 1).requests_per_epoch, 9e4, "16 MiB at most");
    }
}

#[test]
fn each_bound_can_be_the_one() {
    let bound = |job: Job, way| outcome(&job, way, 8).limit;
    let job = imagenet;
    for (limit, way, job) in [
        (Limit::Trainer, ReadWay::Bucket, job()),
        (Limit::Cores, ReadWay::Bucket, Job { cores: 4.0, ..job() }),
        (Limit::Network, ReadWay::Bucket, Job { bandwidth: 1e9, ..job() }),
        (Limit::StoreBandwidth, ReadWay::Bucket, Job { total_bandwidth: Some(5e9), ..job() }),
        (Limit::StoreBandwidth, ReadWay::Shared, Job { shared_bandwidth: Some(5e9), ..job() }),
        (Limit::Prefixes, ReadWay::Bucket, Job { prefixes: 3.0, ..job() }),
        (Limit::Latency, ReadWay::Bucket, Job { latency: 2.0, ..job() }),
        (Limit::Client, ReadWay::Bucket, Job { rate: 1e5, cores: 1e5, bandwidth: 1e15, ..job() }),
    ] {
        assert_eq!(bound(job, way), limit);
    }
}

#[test]
fn a_cache_takes_its_hits_from_bytes_and_requests() {
    let job = Job { near: Some(Near::Folder(0.25 * imagenet().bytes())), ..imagenet() };
    let (one, bucket) = (outcome(&job, ReadWay::Cache, 1), outcome(&job, ReadWay::Bucket, 1));
    assert!((one.hit_rate - 0.25).abs() < 1e-9);
    assert!((one.bytes_per_epoch / bucket.bytes_per_epoch - 0.75).abs() < 1e-9);
    assert!((one.requests_per_epoch / bucket.requests_per_epoch - 0.75).abs() < 1e-9);
    assert_eq!(one.requests_first_epoch, bucket.requests_first_epoch, "the first epoch fills it");
    assert!(job.outcome(ReadWay::Stage, 1).is_none(), "there is no room for all of it");
    // On 2 nodes next use serves more than a quarter, and less with 8 processes than in one.
    let two = outcome(&job, ReadWay::Cache, 2).hit_rate;
    let alone = Job { ranks_per_node: 1.0, read_ahead: 1.0, near: Some(Near::Ram(0.25 * job.bytes())), ..job.clone() };
    assert!(two > 0.3 && two < outcome(&alone, ReadWay::Cache, 2).hit_rate, "{two}");
    assert!(outcome(&job, ReadWay::Cache, 1000).hit_rate < 0.05, "a node sees few records twice in 90 epochs");
}

#[test]
fn what_is_staged_is_read_once_a_node() {
    let job = Job { near: Some(Near::Folder(1e12)), usd_per_gb: 0.09, ..imagenet() };
    let stage = outcome(&job, ReadWay::Stage, 16);
    assert_eq!((stage.requests_per_epoch, stage.bytes_per_epoch), (0.0, 0.0));
    assert!((stage.usd_egress - 16.0 * job.bytes() / 1e9 * 0.09).abs() < 1e-6);
    // 16 files at a time of 31 ms each.
    assert!((stage.hours_before - 1.28e6 * (0.03 + 110e3 / 85e6) / 16.0 / 3600.0).abs() < 1e-9);
    // The bucket is read 90 times whatever the nodes; staging reads as often as there are nodes.
    let egress = |way, nodes| outcome(&job, way, nodes).usd_egress;
    assert!(
        egress(ReadWay::Stage, 16) < egress(ReadWay::Bucket, 16)
            && egress(ReadWay::Stage, 100) > egress(ReadWay::Bucket, 100)
    );
}

#[test]
fn more_nodes_are_never_slower_and_ask_for_no_less() {
    let job = Job {
        near: Some(Near::Folder(50e9)),
        total_bandwidth: Some(100e9),
        shared_bandwidth: Some(20e9),
        ..imagenet()
    };
    for way in [ReadWay::Shared, ReadWay::Bucket, ReadWay::Shards] {
        let mut before: Option<Outcome> = None;
        for nodes in [1, 2, 3, 8, 64, 512, 1000] {
            let now = outcome(&job, way, nodes);
            assert!((0.0..=1.0).contains(&now.waiting) && now.hours > 0.0);
            if let Some(before) = &before {
                assert!(
                    now.samples_per_second >= before.samples_per_second && now.hours <= before.hours,
                    "{way:?} {nodes}"
                );
                assert!(now.requests_per_second >= before.requests_per_second && now.waiting >= before.waiting);
                assert_eq!(now.requests_per_epoch, before.requests_per_epoch, "an epoch is an epoch");
            }
            before = Some(now);
        }
    }
}

#[test]
fn a_lost_node_costs_what_was_done_since_the_state() {
    let job = Job { near: Some(Near::Folder(50e9)), ..imagenet() };
    let lost = job.row(2).lost;
    // 100 batches of 256 on 16 ranks.
    assert_eq!((lost.records_with_state, lost.records_with_epoch_state), (409_600.0, 640_000.0));
    assert!(lost.cache_refill_bytes > 0.0 && lost.cache_refill_bytes <= job.bytes());
    assert_eq!(Job { epochs: 1, ..job.clone() }.row(100).lost.records_with_state, 1.28e6, "no more than the run");
    assert_eq!(imagenet().row(2).lost.cache_refill_bytes, 0.0);
    let opening = job.row(2).opening;
    assert_eq!((opening.pages, opening.requests_each_rank_lists), (1280.0, 1280.0 * 16.0));
}
