//! `infeed plan` is arithmetic about the loader: what it says of caches and requests is what the loader does.

use infeed::{Shard, source::CacheSpec};
use serde_json::Value;

use crate::{
    command::{infeed, ok, text},
    support::{
        builder, files_below,
        records::{LEN, Records},
        until,
    },
};

/// A record and its checksum, in the cache.
const ENTRY: u64 = LEN as u64 + 24;

fn plan(args: &[String]) -> (Option<i32>, String, String) {
    let output = infeed().arg("plan").args(args).output().expect("the binary starts");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn json(args: &[String]) -> Value {
    let (code, out, error) = plan(&[args, &["--json".into(), "-".into()]].concat());
    assert_eq!(code, Some(0), "{args:?}: {error}");
    serde_json::from_str(&out).expect("stdout is one JSON document")
}

fn args(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn outcome<'a>(plan: &'a Value, way: &str) -> &'a Value {
    let outcomes = plan["rows"][0]["outcomes"].as_array().expect("there are outcomes");
    outcomes.iter().find(|outcome| outcome["way"] == way).unwrap_or_else(|| panic!("no {way} in {outcomes:?}"))
}

/// The hits of the reads from the second epoch, of one of so many nodes, each of one rank. The trainer waits now and then, until
/// what was read ahead of it is in the cache.
fn hits(nodes: u32, records: u64, spec: CacheSpec, epochs: u64) -> f64 {
    let (dataset, _tracker) = Records::tagged(records);
    // Small batches: what is read ahead is little of an epoch.
    let shard = Shard::new(0, nodes).unwrap();
    let builder = builder(dataset).batch_size(2).shuffle(3).workers(2).cache(spec).shard(shard);
    let mut batches = builder.build_blocking().unwrap().epochs(0..epochs).blocking();
    let mut steps = 0;
    while let Some(batch) = batches.next() {
        drop(batch.unwrap());
        steps += 1;
        let written = || {
            let cache = batches.report().cache.expect("there is a cache");
            cache.bytes_written / LEN as u64 + cache.not_kept == cache.misses
        };
        until("what was read is neither written nor refused", || steps % 10 > 0 || written());
    }
    let cache = batches.report().cache.expect("there is a cache");
    let each = records / u64::from(nodes);
    assert_eq!(cache.hits + cache.misses, each * epochs);
    cache.hits as f64 / (each * (epochs - 1)) as f64
}

#[test]
fn a_cache_serves_what_the_plan_says() {
    const EPOCHS: u64 = 12;
    // Nodes, records of a node's epoch, and the cache as a part of all records.
    for (nodes, each, part) in [(1, 400, 0.5), (2, 1500, 0.25), (4, 1500, 0.1), (16, 1000, 0.1), (64, 500, 0.05)] {
        let records = u64::from(nodes) * each;
        let entries = (records as f64 * part) as u64;
        let hits = hits(nodes, records, CacheSpec::ram(entries * ENTRY), EPOCHS);
        let plan = json(&args(&format!(
            "--records {records} --record-bytes {LEN}B --nodes {nodes} --ranks-per-node 1 --epochs {EPOCHS} --cache \
             ram:{}B",
            entries * LEN as u64,
        )));
        let said = outcome(&plan, "cache")["hit_rate"].as_f64().unwrap();
        // The formula is at most 0.032 off a simulation of more points than these; the rest is chance.
        assert!(
            (hits - said).abs() < 0.04,
            "{nodes} nodes, a cache of {part}: {hits:.3} where the plan says {said:.3}"
        );
        assert!(nodes == 1 || hits > 1.2 * part, "{nodes} nodes: more than what came first would serve, {hits:.3}");
    }
}

/// Files that were found wait for their turn, and stay until then.
#[test]
fn a_folder_behind_a_slow_trainer_serves_what_the_plan_says() {
    let dir = tempfile::tempdir().unwrap();
    let spec = CacheSpec::dir(dir.path(), 1000 * ENTRY);
    let hits = hits(2, 4000, spec, 6);
    let plan = json(&args(&format!(
        "--records 4000 --record-bytes {LEN}B --nodes 2 --ranks-per-node 1 --batch-size 2 --epochs 6 --cache {}B",
        1000 * LEN,
    )));
    let said = outcome(&plan, "cache")["hit_rate"].as_f64().unwrap();
    // One side alone: 0.47 of the reads on a quiet machine, up to 0.66 where other processes hold the cores; why was not
    // found out. That it keeps no more than it may is seen in the folder.
    assert!(hits > said - 0.06, "{hits:.3} where the plan says {said:.3}");
    let (entries, others): (Vec<u64>, Vec<u64>) =
        files_below(dir.path()).iter().map(|file| file.metadata().unwrap().len()).partition(|len| *len == ENTRY);
    assert!((900..=1000).contains(&entries.len()), "{} entries, others of {others:?} bytes", entries.len());
}

#[test]
fn an_epoch_asks_for_what_the_plan_says() {
    let (dataset, tracker) = Records::remote(300);
    let loader = builder(dataset).batch_size(10).shuffle(3).build_blocking().unwrap();
    assert_eq!(loader.epoch(0).blocking().count(), 30);
    let plan = json(&args(&format!("--records 300 --record-bytes {LEN}B --nodes 1 --ranks-per-node 1")));
    let bucket = outcome(&plan, "bucket");
    assert_eq!(bucket["requests_per_epoch"], tracker.requests() as f64);
    assert_eq!(bucket["bytes_per_epoch"], tracker.bytes() as f64);
}

#[test]
fn a_dataset_says_itself_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("photos").display().to_string();
    ok(&["synth", "imagenet", &path, "--count", "6", "--classes", "2"]);
    let plan = json(&args(&format!("{path} --nodes 4 --cache 1GiB")));
    let job = &plan["job"];
    let bytes: u64 = files_below(std::path::Path::new(&path))
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end.eq_ignore_ascii_case("jpeg")))
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert_eq!((&job["records"], &job["objects"]), (&6.0.into(), &6.0.into()));
    assert!((job["record_bytes"].as_f64().unwrap() * 6.0 - bytes as f64).abs() < 1.0);
    assert_eq!(plan["url"], path.as_str());
}

#[test]
fn the_json_of_plan_keeps_its_keys() {
    let plan = json(&args(
        "--records 1.28e6 --record-bytes 110KB --nodes 64 --cache 200GB --bandwidth-total 200GB/s --shared-bandwidth 20GB/s",
    ));
    assert_eq!(plan["version"], 1);
    let mut keys = Vec::new();
    names(&plan, "", &mut keys);
    keys.sort_unstable();
    keys.dedup();
    insta::assert_snapshot!(keys.join("\n"));
    let ways: Vec<_> = plan["rows"][0]["outcomes"].as_array().unwrap().iter().map(|o| &o["way"]).collect();
    assert_eq!(ways, ["shared", "bucket", "cache", "shards", "stage"]);
}

fn names(value: &Value, path: &str, keys: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            keys.push(format!("{path}.{key}"));
            names(value, &format!("{path}.{key}"), keys);
        }),
        Value::Array(list) => list.iter().for_each(|value| names(value, path, keys)),
        _ => {}
    }
}

#[test]
fn people_read_a_row_for_each_number_of_nodes_or_for_each_way() {
    let given = "--records 1.28e6 --record-bytes 110KB";
    let (code, out, error) = plan(&args(given));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    for nodes in ["1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1,000"] {
        assert!(out.lines().any(|line| line.split_whitespace().next() == Some(nodes)), "no row of {nodes} in\n{out}");
    }
    insta::assert_snapshot!("plan_one", plan(&args(&format!("{given} --nodes 4 --cache 200GB"))).1);
}

#[test]
fn what_cannot_be_planned_exits_with_2() {
    for (given, word) in [
        ("", "<URL>"),
        ("--records 10", "--record-bytes"),
        ("--record-bytes 10KB", "<URL>"),
        ("--records 0 --record-bytes 1KB", "whole number"),
        ("--records 10 --record-bytes 0B", "--record-bytes is 0"),
        ("--records 10 --record-bytes 1KB --nodes 0", "--nodes"),
        ("--records 10 --record-bytes 1KB --step-time 0ms", "--step-time is 0"),
        ("--records 10 --record-bytes 1KB --rate 5 --step-time 1s", "--step-time"),
        ("--records 10 --record-bytes 1KB --columns image", "--columns"),
        ("/nowhere --records 10", "--records"),
        ("synthetic://?count=16&height=8&width=8&classes=2", "nothing to read"),
    ] {
        let (code, _, message) = plan(&args(given));
        assert_eq!(code, Some(2), "{given}: {message}");
        assert!(message.contains(word), "{given}: no {word:?} in {message}");
    }
}
