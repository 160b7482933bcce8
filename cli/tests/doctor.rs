//! The doctor names what was planted: a slow store, slow decoding, a small budget, a slow trainer, bad records.

use std::{fs, path::Path};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    command::{infeed, ok, run, text},
    support::skipped,
};

/// `infeed doctor … --json -` with these variables alone.
fn doctor(args: &[&str], env: &[(String, String)]) -> Value {
    let mut command = infeed();
    command.envs(env.iter().cloned()).arg("doctor").args(args).args(["--device", "cpu", "--json", "-"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON document")
}

/// The doctor's answer once it is as expected, of four at most. `None` where it is not since others held the cores meanwhile:
/// what is waited for may be their turn then, and the doctor says so.
fn doctor_until(args: &[&str], env: &[(String, String)], expected: impl Fn(&Value) -> bool) -> Option<Value> {
    let mut last = Value::Null;
    for _ in 0..4 {
        last = doctor(args, env);
        if expected(&last) {
            return Some(last);
        }
        if held(&last) {
            let checks = last["checks"].as_array().unwrap();
            assert!(checks.iter().any(|check| check["name"] == "other processes" && check["ok"] == false), "{last:#}");
            skipped("what a doctor finds where other processes hold the cores");
            return None;
        }
    }
    panic!("{last:#}");
}

/// Whether others had so much of the cores that figures tell of them.
fn held(found: &Value) -> bool {
    found["figures"]["cores_held"].as_f64().is_some_and(|cores| cores > 0.0)
}

fn limit(found: &Value) -> &str {
    found["diagnosis"]["limit"].as_str().expect("there is a verdict")
}

fn synth(dir: &TempDir, kind: &str, more: &[&str]) -> String {
    let path = dir.path().join(kind).display().to_string();
    ok(&[&["synth", kind, &path], more].concat());
    path
}

#[test]
fn a_slow_trainer_is_the_limit_and_nothing_else() {
    let url = "synthetic://?count=200&height=8&width=8&classes=10";
    let args = [url, "--transform", "none", "--batch-size", "10", "--step-time", "30ms"];
    let Some(found) = doctor_until(&args, &[], |found| limit(found) == "trainer") else { return };
    assert!(found["diagnosis"]["words"].as_str().unwrap().contains("changes nothing"), "{found:#}");
    let trials: Vec<&str> =
        found["trials"].as_array().unwrap().iter().map(|trial| trial["name"].as_str().unwrap()).collect();
    assert_eq!(trials, ["headspace", "cached", "cold"]);
    let checks = found["checks"].as_array().unwrap();
    for name in ["cores", "GPU"] {
        assert!(checks.iter().any(|check| check["name"] == name), "{name}: {found:#}");
    }
}

#[test]
fn slow_decoding_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let photos = synth(&dir, "imagenet", &["--count", "24", "--classes", "2", "--seed", "1"]);
    // A trainer that is much quicker than decoding eight photographs on one thread.
    let args = ["--batch-size", "8", "--step-time", "1ms", "--max-batches", "12", "--workers", "1"];
    let preparing = |found: &Value| {
        let stalls = &found["diagnosis"]["stalls"];
        ["decode", "augmentation"].contains(&limit(found)) && stalls["prep"].as_f64() > stalls["fetch"].as_f64()
    };
    let Some(found) = doctor_until(&[&[&*photos], &args[..]].concat(), &[], preparing) else { return };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let words = found["diagnosis"]["words"].as_str().unwrap();
    // Pixels that are kept may help more than a second thread does.
    let changes = found["diagnosis"]["changes"].as_array().unwrap();
    let offers = |words: &str| changes.iter().any(|change| change["change"].as_str().unwrap().contains(words));
    assert_eq!(found["trials"][3]["name"], "decoded", "{found:#}");
    if held(&found) {
        assert!(offers("(other processes used") && !offers("instead of 1"), "{words}: {changes:?}");
        return;
    }
    assert_eq!(offers("workers instead of 1"), cores > 1, "{words}: {changes:?}");
    assert!(offers("--decoded-cache ram:1GiB"), "{words}: {changes:?}");
}

#[test]
fn bad_records_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let photos = synth(&dir, "imagenet", &["--count", "24", "--classes", "2", "--seed", "1"]);
    for class in fs::read_dir(&photos).unwrap() {
        for (n, file) in fs::read_dir(class.unwrap().path()).unwrap().enumerate() {
            if n % 2 == 0 {
                fs::write(file.unwrap().path(), b"no picture").unwrap();
            }
        }
    }
    let args = ["--batch-size", "4", "--step-time", "60ms", "--max-batches", "12"];
    let bad = |found: &Value| limit(found) == "bad_records";
    let Some(found) = doctor_until(&[&[&*photos], &args[..]].concat(), &[], bad) else { return };
    assert!(found["cold"]["bad_samples"][0]["object"].as_str().is_some_and(|name| name.contains(".JPEG")), "{found:#}");
}

#[test]
fn a_small_budget_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let photos = synth(&dir, "imagenet", &["--count", "24", "--classes", "2", "--seed", "1"]);
    // All as the largest, which is waited for long enough to be late; and all the same: a photograph that takes longer than
    // the one before is waited for whatever the room.
    let files: Vec<_> = fs::read_dir(&photos)
        .unwrap()
        .flat_map(|class| fs::read_dir(class.unwrap().path()).unwrap().map(|file| file.unwrap().path()))
        .collect();
    let one = files.iter().map(|file| fs::read(file).unwrap()).max_by_key(Vec::len).unwrap();
    files.iter().for_each(|file| fs::write(file, &one).unwrap());
    // One record in a batch and one batch ahead: of four threads three have nothing to do.
    let args = ["--batch-size", "1", "--step-time", "0ms", "--max-batches", "48", "--workers", "4", "--prefetch", "1"];
    let room = |found: &Value| limit(found) == "room";
    let Some(found) = doctor_until(&[&[&*photos], &args[..]].concat(), &[], room) else { return };
    assert!(found["diagnosis"]["words"].as_str().unwrap().contains("--memory-budget"), "{found:#}");
}

#[test]
fn a_slow_store_is_named() {
    use crate::support::s3::{Fault, Rule, S3Server};
    let dir = tempfile::tempdir().unwrap();
    let cells = synth(&dir, "tiff", &["--count", "60", "--classes", "2", "--seed", "1", "--size", "8x8"]);
    let server = S3Server::start();
    for class in fs::read_dir(&cells).unwrap() {
        let class = class.unwrap();
        for file in fs::read_dir(class.path()).unwrap() {
            let file = file.unwrap();
            let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
            server.put(&format!("cells/{}/{}", name(&class), name(&file)), fs::read(file.path()).unwrap());
        }
    }
    server.rule(Rule::new(Fault::Delay(std::time::Duration::from_millis(40))));
    let env: Vec<(String, String)> = server.env();
    let args = ["--batch-size", "10", "--step-time", "2ms", "--max-batches", "12", "--io-concurrency", "2"];
    let fetch = |found: &Value| limit(found) == "fetch";
    let Some(found) = doctor_until(&[&[&*server.url("cells")], &args[..]].concat(), &env, fetch) else { return };
    let words = found["diagnosis"]["words"].as_str().unwrap();
    assert!(words.contains("store") && words.contains("--io-concurrency"), "{words}");
    // The batches themselves say the same, where they waited for nobody else.
    if held(&found) {
        return;
    }
    let parts = found["cold"]["first_batch_parts"].as_array().unwrap().iter();
    let longest = parts.max_by(|a, b| a["seconds"].as_f64().unwrap().total_cmp(&b["seconds"].as_f64().unwrap()));
    assert_eq!(longest.unwrap()["cause"], "request", "{found:#}");
    let slowest = &found["cold"]["requests"]["slowest"][0]["object"];
    assert!(slowest.as_str().is_some_and(|name| name.contains("cells/")), "{found:#}");
}

#[test]
fn a_report_is_written_and_a_path_that_cannot_be_is_known_first() {
    let dir = tempfile::tempdir().unwrap();
    let html = dir.path().join("doctor.html");
    let url = "synthetic://?count=40&height=8&width=8&classes=10";
    doctor(&[url, "--transform", "none", "--batch-size", "10", "--html", html.to_str().unwrap()], &[]);
    let text = fs::read_to_string(&html).unwrap();
    assert!(text.contains("Machine and data") && text.contains("<svg"), "{text}");
    assert!(!Path::new(&format!("{}.part", html.display())).exists());
    assert_eq!(run(&["doctor", url, "--html", "/no/such/x.html"]).status.code(), Some(1));
}
