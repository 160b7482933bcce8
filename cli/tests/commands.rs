//! The command line is a contract: names, exit codes, the keys of the JSON, and sums that add up.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

use image::GenericImageView as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    command::{infeed, ok, run, text, tree},
    support::{PATIENCE, until},
};

/// `infeed run … --json -`
fn report(args: &[&str]) -> Value {
    serde_json::from_str(&ok(&[&["run"], args, &["--json", "-"]].concat())).expect("stdout is one JSON document")
}

fn checksum(args: &[&str]) -> u128 {
    let report = report(&[args, &["--checksum"]].concat());
    let digits = report["checksum"].as_str().expect("there is a checksum");
    assert_eq!(digits.len(), 32, "{digits}");
    u128::from_str_radix(digits, 16).expect("the checksum is hex")
}

/// Small sets, made once for all tests of this file.
struct Data {
    _dir: TempDir,
    photos: String,
    cifar10: String,
}

fn data() -> &'static Data {
    static DATA: OnceLock<Data> = OnceLock::new();
    DATA.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a temp folder");
        let make = |kind: &str, count: &str| {
            let path = dir.path().join(kind).display().to_string();
            ok(&["synth", kind, &path, "--count", count, "--seed", "3"]);
            path
        };
        let cifar10 = make("cifar10", "200");
        let photos = dir.path().join("photos").display().to_string();
        ok(&["synth", "imagenet", &photos, "--count", "24", "--classes", "4", "--seed", "3"]);
        Data { photos, cifar10, _dir: dir }
    })
}

#[test]
fn help_lists_what_there_is() {
    insta::assert_snapshot!("help", ok(&["--help"]));
    for command in [
        "demo",
        "run",
        "profile",
        "sweep",
        "compare",
        "doctor",
        "inspect",
        "stage",
        "prepare",
        "index",
        "plan",
        "synth",
        "completions",
        "man",
    ] {
        insta::assert_snapshot!(format!("help_{command}"), ok(&[command, "--help"]));
    }
}

/// Replaces what differs from run to run and machine to machine by its type.
fn redact(value: &mut Value, path: &str) {
    const STEADY: [&str; 10] = [
        ".version",
        ".records",
        ".batches",
        ".samples",
        ".epochs",
        ".bytes_read",
        ".workers",
        ".classes",
        ".bad_sample_count",
        ".unreadable_count",
    ];
    const STEADY_BELOW: [&str; 5] = [".config.", ".decoded_by.", ".sizes.", ".first_records.", ".stages.items"];
    // How many there are is another matter each time.
    const LISTS: [&str; 4] = [".first_batch_parts", ".late_batches", ".late_causes", ".wait_buckets"];
    match value {
        Value::Array(_) if LISTS.contains(&path) => *value = "[list]".into(),
        Value::Object(map) => map.iter_mut().for_each(|(key, value)| redact(value, &format!("{path}.{key}"))),
        Value::Array(list) => list.iter_mut().for_each(|value| redact(value, path)),
        Value::Number(_) => {
            let steady = STEADY.contains(&path) || STEADY_BELOW.iter().any(|above| path.starts_with(above));
            // A part of the machine's memory.
            let share = [".config.memory_budget", ".config.max_record_bytes", ".config.decode_index_bytes"];
            if !steady || share.contains(&path) {
                *value = "[number]".into();
            }
        }
        Value::String(_)
            if matches!(path, ".url" | ".bottleneck" | ".fingerprint" | ".checksum" | ".first_records.object") =>
        {
            *value = "[string]".into();
        }
        _ => {}
    }
}

#[test]
fn how_many_may_be_unreadable_is_what_was_said() {
    let url = "synthetic://?count=16&height=8&width=8&classes=2";
    let most =
        |said: &[&str]| report(&[&[url, "--batch-size", "4"], said].concat())["config"]["max_unreadable"].clone();
    assert_eq!(most(&[]), Value::Null);
    assert_eq!(most(&["--max-unreadable", "0"]), 0);
    assert_eq!(most(&["--max-unreadable", "7"]), 7);
}

#[test]
fn a_limit_of_unreadable_samples_that_nothing_counts_is_told() {
    let url = "synthetic://?count=16&height=8&width=8&classes=2";
    let told = |args: &[&str]| {
        let done = run(&[&["run", url, "--batch-size", "4"], args].concat());
        assert!(done.status.success());
        text(&done.stderr).contains("--max-unreadable does nothing here")
    };
    assert!(told(&["--max-unreadable", "7"]));
    assert!(!told(&["--max-unreadable", "7", "--on-bad-sample", "skip"]));
    assert!(!told(&[]));
}

#[test]
fn a_split_is_the_datasets_or_in_its_old_words_the_gpus() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).display().to_string();
    for (split, count) in [("train", "8"), ("val", "4")] {
        ok(&["synth", "imagenet", &place(split), "--count", count, "--classes", "2"]);
    }
    let url = dir.path().to_str().unwrap();
    let config = |split: &[&str]| {
        let report = report(&[&[url, "--batch-size", "2", "--device", "cpu"], split].concat());
        (report["samples"].as_u64().unwrap(), report["config"]["gpu_split"].clone())
    };
    assert_eq!(config(&["--split", "val"]), (4, "adaptive".into()));
    assert_eq!(config(&["--split", "train", "--gpu-split", "fixed"]), (8, "fixed".into()));
    let records = |args: &[&str]| {
        let found = ok(&[&["inspect", url, "--json", "-"], args].concat());
        serde_json::from_str::<Value>(&found).unwrap()["records"].clone()
    };
    assert_eq!(records(&["--split", "val"]), 4);
    let cpu = ["synthetic://?count=4&height=8&width=8&classes=2", "--batch-size", "2", "--split", "fixed"];
    // Scripts read and write its earlier key.
    let file = dir.path().join("split.toml");
    fs::write(&file, "split = \"fixed\"").unwrap();
    let by_file = report(&[&cpu[..3], &["--config", file.to_str().unwrap()]].concat());
    for report in [report(&cpu), by_file] {
        assert_eq!([&report["config"]["gpu_split"], &report["config"]["split"]], ["fixed", "fixed"]);
    }
    let unknown = run(&["inspect", url, "--split", "validation"]);
    let said = text(&unknown.stderr);
    assert!(!unknown.status.success() && said.contains("validation") && said.contains("val"), "{said}");
}

#[test]
fn who_decodes_may_be_said_and_is_no_gpu_without_one() {
    let cpu = ["run", &data().photos, "--batch-size", "6", "--device", "cpu"];
    let output = run(&[&cpu[..], &["--decode", "gpu"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("--decode gpu decodes on a GPU, and --device is cpu"), "{said}");
    assert!(said.contains("set --device to cuda:0 or another GPU, or leave --decode on auto"), "{said}");
    ok(&[&cpu[..], &["--decode", "cpu", "--decode-cut", "off"]].concat());
}

#[test]
fn the_json_of_run_keeps_its_keys() {
    let mut report = report(&[
        &data().cifar10,
        "--batch-size",
        "32",
        "--epochs",
        "2",
        "--shuffle",
        "7",
        "--workers",
        "2",
        "--prefetch",
        "3",
        "--checksum",
    ]);
    redact(&mut report, "");
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn the_json_of_inspect_keeps_its_keys() {
    let json = ok(&["inspect", &data().cifar10, "--records", "2", "--json", "-"]);
    let mut findings: Value = serde_json::from_str(&json).unwrap();
    redact(&mut findings, "");
    insta::assert_snapshot!(serde_json::to_string_pretty(&findings).unwrap());
}

#[test]
fn batches_are_mixed_where_it_is_asked_for() {
    let cifar = &data().cifar10;
    let args = |mix| vec![&**cifar, "--batch-size", "20", "--shuffle", "1", "--device", "cpu", "--mix", mix];
    let mix = "mixup=0.2,cutmix=1,label_smoothing=0.1,classes=10";
    let stages = |args: &[&str]| -> Vec<Value> {
        report(args)["stages"].as_array().unwrap().iter().map(|stage| stage["name"].clone()).collect()
    };
    assert!(stages(&args(mix)).contains(&"mix".into()));
    assert!(!stages(&args(mix)[..args(mix).len() - 2]).contains(&"mix".into()));
    let one = checksum(&[&args(mix)[..], &["--workers", "1"]].concat());
    assert_eq!(one, checksum(&[&args(mix)[..], &["--workers", "3", "--prefetch", "2"]].concat()));
    assert_ne!(one, checksum(&args("per=pair,mixup=0.2,cutmix=1,label_smoothing=0.1,classes=10")));
    let table = ok(&[&["profile", "--no-stages"], &args(mix)[..]].concat());
    assert!(table.lines().any(|line| line.contains(" mix ")), "{table}");
    for (mix, code) in [("mixups=1", 2), ("mixup=-1,classes=10", 2), ("mixup=1,classes=4", 2)] {
        let output = run(&[&["run"], &args(mix)[..]].concat());
        assert_eq!(output.status.code(), Some(code), "{mix}: {}", text(&output.stderr));
    }
}

#[test]
fn people_read_a_line_per_some_batches_and_a_summary() {
    let out = ok(&["run", &data().cifar10, "--batch-size", "20", "--epochs", "2", "--log-every", "5"]);
    let lines: Vec<_> = out.lines().filter(|line| line.starts_with("Epoch [")).collect();
    assert_eq!(lines.len(), 4, "{out}");
    let shape: String = lines[3].chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    assert_eq!(shape, "Epoch [9][99/99] Time 9.999 (9.999) Data 9.999 (9.999)");
    assert!(lines[3].starts_with("Epoch [1][10/10] "), "{out}");
    for word in ["samples/s", "wait for data", "AU", "transform"] {
        assert!(out.contains(word), "no {word:?} in\n{out}");
    }
}

#[test]
fn json_on_stdout_sends_the_words_to_stderr() {
    let output = run(&["run", &data().cifar10, "--batch-size", "50", "--json", "-"]);
    assert_eq!(text(&output.stdout).lines().count(), 1);
    assert!(text(&output.stderr).contains("samples/s"));
    let stdout: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stdout["samples"], 200);
}

#[test]
fn json_in_a_file_is_whole_and_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.json");
    let out = ok(&["run", &data().cifar10, "--batch-size", "50", "--json", path.to_str().unwrap()]);
    assert!(out.contains("samples/s"));
    let json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(json["batches"], 4);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a leftover lies beside the file");
}

#[test]
fn the_checksum_does_not_depend_on_how_the_run_was_carried_out() {
    let photos: &[&str] = &[&data().photos, "--batch-size", "6", "--epochs", "2", "--shuffle", "5"];
    let whole = checksum(photos);
    for variant in [
        &["--workers", "1", "--prefetch", "1"][..],
        &["--workers", "3", "--prefetch", "2"],
        &["--workers", "4", "--prefetch", "9"],
        &["--workers", "2", "--memory-budget", "1GiB"],
        &["--workers", "2", "--memory-budget", "64MiB"],
    ] {
        assert_eq!(checksum(&[photos, variant].concat()), whole, "{variant:?}");
    }
    // What does decide the rows changes it.
    for variant in [&["--seed", "6"][..], &["--dtype", "f16"], &["--layout", "nhwc"], &["--max-batches", "7"]] {
        assert_ne!(checksum(&[photos, variant].concat()), whole, "{variant:?}");
    }
}

#[test]
fn the_sums_of_ranks_add_up() {
    let base: &[&str] =
        &[&data().cifar10, "--batch-size", "12", "--epochs", "2", "--shuffle", "5", "--last-batch", "partial"];
    let whole = checksum(base);
    for world in 1..=5u32 {
        let ranks = (0..world)
            .map(|rank| checksum(&[base, &["--rank", &rank.to_string(), "--world-size", &world.to_string()]].concat()));
        assert_eq!(ranks.fold(0, u128::wrapping_add), whole, "world size {world}");
    }
    // Padding is not counted.
    let padded = checksum(&[&base[..base.len() - 1], &["pad"]].concat());
    assert_eq!(padded, whole);
}

#[test]
fn the_launchers_environment_names_the_rank() {
    let args = ["run", &data().cifar10, "--batch-size", "10", "--json", "-"];
    let output = infeed().args(args).env("RANK", "1").env("WORLD_SIZE", "4").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["config"]["rank"], &report["config"]["world_size"]), (&1.into(), &4.into()));
    assert_eq!(report["samples"], 50);
    let config = &report["config"];
    assert_eq!((&config["launcher"], &config["local_world_size"]), (&"torchrun".into(), &1.into()));
    assert_eq!(config["launcher_variables"], serde_json::json!(["RANK", "WORLD_SIZE"]));
    let by_hand = infeed().args(args).args(["--rank", "1", "--world-size", "4"]).env("RANK", "3").output().unwrap();
    let report: Value = serde_json::from_slice(&by_hand.stdout).unwrap();
    assert_eq!(report["config"]["launcher"], Value::Null);
    assert_eq!(report["config"]["launcher_variables"], serde_json::json!(["--rank", "--world-size"]));
}

#[test]
fn a_process_that_would_take_itself_for_the_only_one_is_refused() {
    let output = infeed().args(["run", &data().cifar10]).env("JOB_COMPLETION_INDEX", "2").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("- {name: WORLD_SIZE"), "{error}");
    // To look at data, nobody needs a rank.
    let inspect = |vars: &[(&str, &str)]| {
        let args = ["inspect", "synthetic://?count=10", "--json", "-"];
        let output = infeed().args(args).envs(vars.iter().copied()).output().unwrap();
        assert!(output.status.success());
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let report = inspect(&[("JOB_COMPLETION_INDEX", "2")]);
    assert!(report["launcher_error"].as_str().unwrap().contains("WORLD_SIZE"), "{report}");
    assert_eq!(report["rank"], Value::Null);
    let report = inspect(&[("JOB_COMPLETION_INDEX", "2"), ("WORLD_SIZE", "4")]);
    assert_eq!(
        (&report["rank"], &report["world_size"], &report["launcher"]),
        (&2.into(), &4.into(), &"Kubernetes".into())
    );
}

#[test]
fn a_resumed_run_goes_on_with_the_kept_sum_also_in_another_world() {
    let dir = tempfile::tempdir().unwrap();
    let base: &[&str] =
        &[&data().cifar10, "--batch-size", "12", "--epochs", "2", "--shuffle", "5", "--last-batch", "partial"];
    let whole = checksum(base);
    // Stopped in the first epoch, at its end (9 steps of 24), and in the second.
    for (world_before, stop) in [(1u32, 3), (1, 20), (2, 1), (2, 9), (2, 11), (3, 4)] {
        let file = |rank: u32| dir.path().join(format!("state-{rank}")).display().to_string();
        let in_world =
            |rank: u32, world: u32| ["--rank".to_owned(), rank.to_string(), "--world-size".into(), world.to_string()];
        let before: Vec<u128> = (0..world_before)
            .map(|rank| {
                let (world, file) = (in_world(rank, world_before), file(rank));
                let world: Vec<&str> = world.iter().map(String::as_str).collect();
                let stop = stop.to_string();
                checksum(&[base, &world, &["--max-batches", &stop, "--state", &file, "--log-every", "2"]].concat())
            })
            .collect();
        for world_after in [1u32, 2, 4] {
            let mut sum = 0u128;
            for rank in 0..world_after {
                // A rank takes up its own file; new ranks take rank 0's, whose sum is not theirs.
                let file = file(if rank < world_before { rank } else { 0 });
                let world = in_world(rank, world_after);
                let world: Vec<&str> = world.iter().map(String::as_str).collect();
                sum = sum.wrapping_add(checksum(&[base, &world, &["--resume", &file]].concat()));
            }
            // Ranks that are no more left their part behind.
            let gone = before.iter().skip(world_after as usize);
            let sum = gone.fold(sum, |sum, part| sum.wrapping_add(*part));
            assert_eq!(sum, whole, "{world_before} ranks stopped after {stop} batches, resumed as {world_after}");
        }
    }
}

#[test]
fn a_state_of_another_dataset_or_order_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state").display().to_string();
    ok(&["run", &data().cifar10, "--batch-size", "20", "--shuffle", "1", "--max-batches", "2", "--state", &file]);
    for (args, words) in [
        (vec!["run", &data().photos, "--batch-size", "4", "--shuffle", "1", "--resume", &file], "state"),
        (vec!["run", &data().cifar10, "--batch-size", "20", "--shuffle", "2", "--resume", &file], "seed 1"),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
    fs::write(&file, "{}").unwrap();
    let output = run(&["run", &data().cifar10, "--resume", &file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("not written by --state"), "{}", text(&output.stderr));
}

#[test]
fn options_that_cannot_be_exit_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let unknown_key = file("a.toml", "batchsize = 3\n");
    let no_transform = file("t.json", "{\"no\": 1}");
    for (args, words) in [
        (&["--no-such-option"][..], "--no-such-option"),
        (&["--batch-size", "0"], "--batch-size is 0"),
        (&["--prefetch", "0"], "--prefetch is 0"),
        (&["--workers", "0"], "--workers is 0"),
        (&["--memory-budget", "64KiB", "--batch-size", "20"], "budget"),
        (&["--memory-budget", "2G"], "GiB"),
        (&["--memory-budget", "1000"], "needs a unit"),
        (&["--max-image-bytes", "2G"], "GiB"),
        (&["--format", "netcdf"], "unknown format `netcdf`"),
        (&["--step-time", "50"], "unit"),
        (&["--rank", "2", "--world-size", "2"], "rank 2 is not below the world size 2"),
        (&["--rank", "2"], "--world-size"),
        (&["--world-size", "0", "--rank", "0"], "world size is 0"),
        (&["--dtype", "f64"], "f64"),
        (&["--device", "tpu"], "tpu"),
        (&["--shuffle", "maybe"], "none"),
        (&["--transform", "imagenet"], "imagenet"),
        (&["--transform", &no_transform], "transform"),
        (&["--config", &unknown_key], "batchsize"),
        (&["--log-every", "0"], "--log-every"),
        (&["--epochs", "0"], "--epochs"),
        // What is said of the dataset, which no CIFAR takes.
        (&["--columns", "image"], "cifar10 take no --columns"),
        (&["--channels", "{name}_{channel}.tif"], "cifar10 take no --channels"),
        (&["--pattern", "{patient}/{field}"], "cifar10 take no --pattern"),
        (&["--field", "image=ct+pet"], "cifar10 take no --field"),
        (&["--field", "image=masc"], "did you mean mask?"),
        (&["--samples-per-patient", "2"], "cifar10 take no --samples-per-patient"),
    ] {
        let output = run(&[&["run", &data().cifar10], args].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.contains(words), "{args:?}: no {words:?} in {message}");
        assert!(output.stdout.is_empty(), "{args:?} wrote to stdout");
    }
    for args in
        [&["nonsense"][..], &["run"], &["inspect"], &["synth", "imagenet"], &["synth", "zip", "x", "--count", "1"]]
    {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn log_levels_that_are_not_understood_are_named() {
    let with = |levels: &str| {
        let mut command = infeed();
        command.env("INFEED_LOG", levels).args(["run", &data().cifar10, "--batch-size", "64", "--max-batches", "1"]);
        command.output().expect("the binary starts")
    };
    for (levels, word) in [("debgu", "\"debgu\""), ("warn,infeed::source=loud", "\"infeed::source=loud\"")] {
        let output = with(levels);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{levels}: {message}");
        assert!(message.contains("INFEED_LOG") && message.contains(word), "{levels}: {message}");
    }
    for levels in ["", "off", "warn,infeed::source=trace", "info"] {
        let output = with(levels);
        assert!(output.status.success(), "{levels}: {}", text(&output.stderr));
    }
}

#[test]
fn no_option_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (sheet, shards, config) = (path("sheet.png"), path("shards"), path("infeed.toml"));
    fs::write(&config, format!("cache = \"{}:1MiB\"\n", path("cache"))).unwrap();
    let cifar = data().cifar10.as_str();
    for (args, word) in [
        (&["inspect", cifar, "--transform", "none"][..], "--sheet"),
        (&["inspect", cifar, "--seed", "3"], "--sheet"),
        (&["inspect", cifar, "--count", "3"], "--stats"),
        (&["inspect", "--devices", "--sheet", &sheet], "<URL>"),
        (&["inspect", "--devices", "--stats"], "<URL>"),
        (&["inspect", "--devices", "--records", "3"], "<URL>"),
        (&["prepare", cifar, &shards, "--restart-markers"], "--quality"),
        (&["doctor", cifar, "--cache", "ram:1MiB"], "--cache"),
        (&["doctor", cifar, "--config", &config], "--config"),
        (&["doctor", cifar, "--autotune", "on"], "--autotune"),
        (&["doctor", cifar, "--state", &path("state")], "--state"),
        (&["profile", cifar, "--resume", &path("state")], "--resume"),
        (&["run", cifar, "--metrics-linger", "1s"], "--metrics"),
        (&["sweep", cifar, "--settle", "1s"], "--auto"),
        (&["synth", "cifar10", &path("new"), "--count", "4", "--raw"], "--raw"),
    ] {
        let output = run(args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.contains(word), "{args:?}: {message}");
    }
    assert!(!Path::new(&sheet).exists() && !Path::new(&shards).exists());
}

#[test]
fn what_the_data_or_the_machine_refuses_exits_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let folder = |name: &str, files: &[(&str, Vec<u8>)]| {
        for (file, bytes) in files {
            let file = dir.path().join(name).join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, bytes).unwrap();
        }
        path(name)
    };
    fs::create_dir(dir.path().join("empty")).unwrap();
    let photo = tree(Path::new(&data().photos)).swap_remove(0).1;
    let truncated = photo[..photo.len() / 2].to_vec();
    let corrupt = [&photo[..20], &[0xff; 400]].concat();
    let record = fs::read(Path::new(&data().cifar10).join("data_batch_1.bin")).unwrap();

    for (args, words) in [
        (vec![path("missing")], "missing"),
        (vec![path("empty")], "empty"),
        (vec![folder("text", &[("a/readme.txt", b"hello".to_vec())])], "text"),
        (vec![folder("zero", &[("a/x.jpg", vec![])])], "x.jpg"),
        (vec![folder("short", &[("a/x.jpg", truncated)])], "x.jpg"),
        (vec![folder("corrupt", &[("a/x.jpg", corrupt)])], "x.jpg"),
        (vec![folder("cifar", &[("data_batch_1.bin", record[..5000].to_vec())])], "data_batch_1.bin"),
        (vec![data().cifar10.clone(), "--device".into(), "cuda:7".into()], "cuda:7"),
        (vec![data().cifar10.clone(), "--json".into(), path("no/such/folder.json")], "no/such/folder.json"),
        (vec![data().cifar10.clone(), "--state".into(), path("no/such/state")], "no/such/state"),
        (vec![data().cifar10.clone(), "--resume".into(), path("no-state")], "no-state"),
        (vec![data().cifar10.clone(), "--config".into(), path("no.toml")], "no.toml"),
        (vec![data().cifar10.clone(), "--transform".into(), path("no.json")], "no.json"),
    ] {
        let mut all = vec!["run"];
        all.extend(args.iter().map(String::as_str));
        if !all.contains(&"--batch-size") {
            all.extend(["--batch-size", "1"]);
        }
        let output = run(&all);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {message}");
        assert!(message.starts_with("error: ") || message.contains("\nerror: "), "{args:?}: {message}");
        assert!(message.contains(words), "{args:?}: no {words:?} in {message}");
    }
}

#[test]
fn one_huge_file_beside_photographs_is_the_bad_sample_and_the_only_one() {
    let dir = tempfile::tempdir().unwrap();
    let url = dir.path().to_str().unwrap();
    ok(&["synth", "imagenet", url, "--count", "12", "--classes", "1"]);
    let folder = tree(dir.path())[0].0.parent().unwrap().to_path_buf();
    // 3 GB that take no space; the first bytes are those of a photograph.
    let huge = dir.path().join(folder).join("z.jpg");
    fs::write(&huge, &tree(dir.path())[0].1).unwrap();
    let whole = report(&[url, "--batch-size", "5", "--memory-budget", "512MiB", "--last-batch", "partial"]);
    fs::OpenOptions::new().write(true).open(&huge).unwrap().set_len(3 << 30).unwrap();
    let base = ["--batch-size", "5", "--memory-budget", "512MiB", "--last-batch", "partial"];
    let report = report(&[&[url, "--on-bad-sample", "skip"], &base[..]].concat());
    assert_eq!(
        (&report["samples"], &report["bad_sample_count"], &report["unreadable_count"]),
        (&12.into(), &1.into(), &0.into())
    );
    let bad = &report["bad_samples"][0];
    assert!(bad["object"].as_str().is_some_and(|name| name.ends_with("z.jpg")), "{bad}");
    let said = bad["error"].as_str().unwrap();
    assert!(
        said.contains("3221225472 encoded bytes") && said.contains("set --max-record-bytes to 3221225472"),
        "{said}"
    );
    assert!(report["bytes_read"].as_u64() < whole["bytes_read"].as_u64(), "it is not read");
    // What it could have been read with, an eighth, is all that it takes of the others.
    let most = |report: &Value| report["config"]["max_image_bytes"].as_u64().expect("a number");
    assert!(most(&report) * 4 > most(&whole) * 3, "{} of {}", most(&report), most(&whole));
    // By default it ends the run, by name.
    let output = run(&[&["run", url], &base[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("z.jpg") && text(&output.stderr).contains("--max-record-bytes"));
}

#[test]
fn bad_samples_are_left_out_told_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    ok(&["synth", "imagenet", dir.path().to_str().unwrap(), "--count", "12", "--classes", "2"]);
    let (name, bytes) = tree(dir.path()).swap_remove(4);
    fs::write(dir.path().join(&name), &bytes[..bytes.len() / 3]).unwrap();
    let url = dir.path().to_str().unwrap();
    let base = ["--batch-size", "4", "--transform", "imagenet-val", "--json", "-"];

    for (policy, samples) in [("skip", 11), ("skip-padded", 11), ("substitute", 12)] {
        let output = run(&[&["run", url, "--on-bad-sample", policy], &base[..]].concat());
        let (json, words) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{policy}: {words}");
        let report: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(report["samples"], samples, "{policy}");
        assert_eq!(report["bad_samples"].as_array().map(Vec::len), Some(1), "{policy}: {json}");
        assert_eq!(report["bad_samples"][0]["record"], 4);
        let file = name.file_name().unwrap().to_str().unwrap();
        assert!(report["bad_samples"][0]["object"].as_str().is_some_and(|object| object.ends_with(file)), "{json}");
        assert!(words.contains("warning: ") && words.contains(file), "{policy}: {words}");
        // What is told while it goes on, and what is written down of it, are of the command line too.
        let of_json = report["bad_samples"][0]["error"].as_str().unwrap();
        assert!([&*words, of_json].iter().all(|told| told.contains("--on-bad-sample skip")), "{words} {of_json}");
    }
    let output = run(&[&["run", url], &base[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let words = text(&output.stderr);
    assert!(words.starts_with("error: ") && words.contains("set --on-bad-sample skip"), "{words}");
    assert!(!words.contains("on_bad_sample"), "{words}");
    // A command with fewer choices has this one, too.
    let packed = dir.path().join("packed").display().to_string();
    let output = run(&["prepare", url, &packed, "--shorter", "32"]);
    let words = text(&output.stderr);
    assert!(output.status.code() == Some(1) && words.contains("set --on-bad-sample skip"), "{words}");
}

#[test]
fn a_warning_is_a_sentence_and_a_line_of_the_log_where_one_is_asked_for() {
    let told = |variables: &[(&str, &str)]| {
        let args = ["run", &data().cifar10, "--batch-size", "64", "--max-batches", "1", "--cache", "ram:1MiB"];
        let output = infeed().args(args).envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let words = "the dataset is not read from a remote store: the cache is not used";
    let sentence = format!("warning: {words}\n");
    assert_eq!(told(&[]), sentence);
    assert_eq!(told(&[("CLICOLOR_FORCE", "1")]), format!("\u{1b}[1;33mwarning:\u{1b}[0m {words}\n"));
    assert_eq!(told(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), sentence);
    // With time, level and target.
    let line = told(&[("INFEED_LOG", "warn")]);
    assert!(line.ends_with(&format!("WARN infeed::loader::start: {words}\n")) && line.contains('Z'), "{line}");
    assert!(told(&[("INFEED_LOG", "warn"), ("CLICOLOR_FORCE", "1")]).contains("\u{1b}[33m"));
    assert_eq!(told(&[("INFEED_LOG", "off")]), "");
}

#[test]
fn no_command_succeeds_with_an_epoch_of_no_batches() {
    for command in ["run", "profile", "sweep"] {
        let output = run(&[command, "synthetic://?count=250&height=8&width=8", "--device", "cpu"]);
        let words = text(&output.stderr) + &text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{command}: {words}");
        assert!(
            words.contains("250 records do not fill one batch of 256; lower --batch-size to 250"),
            "{command}: {words}"
        );
    }
    // It takes a smaller batch by itself.
    ok(&["doctor", "synthetic://?count=250&height=8&width=8", "--device", "cpu", "--max-batches", "5"]);
}

#[test]
fn a_resume_of_a_run_that_is_done_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state").display().to_string();
    let base = ["run", &data().cifar10, "--batch-size", "30"];
    ok(&[&base[..], &["--state", &file]].concat());
    let output = run(&[&base[..], &["--resume", &file]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("nothing is left of 1 epochs after position 0 of epoch 1"),
        "{}",
        text(&output.stderr)
    );
    let more: Value =
        serde_json::from_str(&ok(&[&base[..], &["--resume", &file, "--epochs", "3", "--json", "-"]].concat())).unwrap();
    assert_eq!(more["batches"], 2 * 6);
}

#[test]
fn a_reader_that_has_read_enough_is_no_failure() {
    let args = ["run", &data().cifar10, "--batch-size", "10", "--epochs", "50", "--log-every", "1"];
    let mut child = infeed().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_config_file_stands_for_options_and_options_win() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("infeed.toml");
    fs::write(&path, "batch_size = 25\nworkers = 1\n[order.random]\nseed = 9\n").unwrap();
    let path = path.to_str().unwrap();
    let by_file = report(&[&data().cifar10, "--config", path, "--checksum"]);
    let by_options = report(&[&data().cifar10, "--batch-size", "25", "--workers", "1", "--shuffle", "9", "--checksum"]);
    assert_eq!(by_file["checksum"], by_options["checksum"]);
    assert_eq!(by_file["config"], by_options["config"]);
    let both = report(&[&data().cifar10, "--config", path, "--batch-size", "50"]);
    assert_eq!((&both["batches"], &both["config"]["workers"]), (&4.into(), &1.into()));
}

#[test]
fn a_slower_trainer_does_not_wait() {
    let report = report(&[&data().cifar10, "--batch-size", "20", "--step-time", "20ms", "--epochs", "2"]);
    // The usual wait is that for a batch which is there. Means and sums tell of the neighbours on the cores, too.
    let usual = |of: &str| report[of]["p50"].as_f64().unwrap();
    assert!(usual("step") >= 0.02 && usual("data_wait") < 0.01, "{report}");
    assert!(report["seconds"].as_f64().unwrap() >= 0.4);
}

#[test]
fn synth_writes_the_same_bytes_for_the_same_seed() {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["imagenet", "caltech", "cifar10", "cifar100", "tiff"] {
        let make = |name: &str, seed: &str| {
            let path = dir.path().join(format!("{kind}-{name}"));
            ok(&["synth", kind, path.to_str().unwrap(), "--count", "4", "--seed", seed]);
            tree(&path)
        };
        let (first, again, other) = (make("first", "1"), make("again", "1"), make("other", "2"));
        assert!(first == again, "{kind}: the same seed gave other bytes");
        assert!(first != other, "{kind}: another seed gave the same bytes");
    }
}

#[test]
fn synth_adds_nothing_to_a_folder_that_holds_something() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mine"), "x").unwrap();
    let output = run(&["synth", "cifar10", dir.path().to_str().unwrap(), "--count", "9"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("not empty"));
    assert_eq!(tree(dir.path()).len(), 1);
}

#[test]
fn what_synth_makes_is_recognised() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, records, classes, name) in [
        ("imagenet", 6, 3, "n01440764"),
        ("caltech", 6, 3, "001.ak47"),
        ("tiff", 6, 3, "class0"),
        ("cifar10", 6, 10, "airplane"),
        ("cifar100", 6, 100, "apple"),
    ] {
        let path = dir.path().join(kind).display().to_string();
        let limit: &[&str] = if classes == 3 { &["--classes", "3"] } else { &[] };
        ok(&[&["synth", kind, &path, "--count", "6"], limit].concat());
        let findings: Value = serde_json::from_str(&ok(&["inspect", &path, "--json", "-"])).unwrap();
        assert_eq!(
            (&findings["records"], &findings["classes"]),
            (&records.into(), &classes.into()),
            "{kind}: {findings}"
        );
        assert!(findings["class_names"][0].as_str().unwrap().ends_with(&name[name.len() - 4..]), "{kind}: {findings}");
        assert_eq!(findings["sizes"]["unreadable"], 0, "{kind}: {findings}");
    }
}

#[test]
fn volumes_run_from_one_command() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (packed, raw, patch) = (at("packed"), at("raw"), at("patch.json"));
    ok(&["synth", "nrrd", &packed, "--count", "2", "--side", "24", "--seed", "5"]);
    ok(&["synth", "nrrd", &raw, "--count", "2", "--side", "24", "--seed", "5", "--raw"]);
    fs::write(&patch, r#"[{"op": "patch", "size": 10, "foreground": 0.5}, {"op": "flip_axis", "axis": "x"}]"#).unwrap();
    let shown = ok(&["inspect", &packed, "--field", "image=ct+pet", "--field", "mask=mask+mask2"]);
    for part in ["volume, 2 channels, 24x24x24", "mask, u8, 2 channels", "2: patient000, patient001", "volume 24x24x24"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let options = ["--field", "image=ct+pet", "--field", "mask", "--samples-per-patient", "6", "--batch-size", "4"];
    let sum = |url: &str, workers: &str| {
        checksum(&[&[url], &options[..], &["--transform", &patch, "--workers", workers, "--shuffle", "1"]].concat())
    };
    // Neither workers nor how the files are packed change a byte.
    assert_eq!(sum(&packed, "1"), sum(&packed, "3"));
    assert_eq!(sum(&packed, "2"), sum(&raw, "2"));
    let whole = report(&[&[&*packed], &options[..], &["--dtype", "i16"]].concat());
    assert_eq!((whole["samples"].as_u64(), whole["format"].as_str()), (Some(12), Some("volumes")));
    let usage = run(&["run", &packed, "--field", "=ct"]);
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn inspect_writes_a_contact_sheet() {
    let dir = tempfile::tempdir().unwrap();
    let sheet = dir.path().join("sheet.png");
    let out = ok(&["inspect", &data().photos, "--sheet", sheet.to_str().unwrap(), "--transform", "imagenet-train"]);
    assert!(out.contains("24 samples"), "{out}");
    let image = image::open(&sheet).unwrap().to_rgb8();
    // The same as a JPEG, and as nothing else.
    let other = |name: &str| {
        run(&["inspect", &data().photos, "--sheet", dir.path().join(name).to_str().unwrap(), "-t", "imagenet-train"])
    };
    assert!(other("sheet.jpg").status.success());
    let jpeg = fs::read(dir.path().join("sheet.jpg")).unwrap();
    let pixels = zune_jpeg::JpegDecoder::new(zune_core::bytestream::ZCursor::new(&jpeg)).decode().unwrap();
    let far = pixels.iter().zip(image.as_raw()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>();
    assert!(pixels.len() == image.as_raw().len() && far < 8 * pixels.len() as u64, "{far} in {}", pixels.len());
    let refused = other("sheet.webp");
    assert_eq!(refused.status.code(), Some(2));
    let words = text(&refused.stderr);
    assert!(words.contains("sheet.webp") && words.contains(".png or .jpg"), "{words}");
    assert!(!dir.path().join("sheet.webp").exists());
    // Below each picture stand its class and its name.
    assert_eq!(image.dimensions(), (6 * 228 + 4, 4 * (228 + 22) + 4));
    let below = image.view(4, 4 + 224, 224, 22);
    assert!(below.pixels().any(|(_, _, p)| p.0 == [0; 3]) && below.pixels().any(|(_, _, p)| p.0 == [255; 3]));
    // Pictures, not a flat field: normalised values would be nearly all black.
    let mean = image.pixels().map(|p| u64::from(p.0[1])).sum::<u64>() / u64::from(image.width() * image.height());
    assert!((40..220).contains(&mean), "mean green is {mean}");
}

#[test]
fn a_sheet_of_augmentations_has_a_row_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let sheet = dir.path().join("sheet.png");
    let show = |transform: &str| {
        let photos = data().photos.clone();
        ok(&["inspect", &photos, "--sheet", sheet.to_str().unwrap(), "--ops", "--transform", transform]);
        image::open(&sheet).unwrap().to_rgb8()
    };
    // The picture as it is, and seven draws; steps that do not change pixels have no row. A probability is not asked.
    let image = show("random_resized_crop:64;random_invert:0.1;horizontal_flip;random_rotation:20;normalize");
    let cell = 64 + 4;
    assert_eq!(image.dimensions(), (8 * cell + 4, 2 * (cell + 11) + 4));
    let picture = |row: u32, column: u32| image.view(4 + column * cell, 4 + row * (cell + 11), 64, 64).to_image();
    let (plain, inverted) = (picture(0, 0), picture(0, 1));
    assert!(plain.pixels().zip(inverted.pixels()).all(|(a, b)| (0..3).all(|c| a.0[c] == 255 - b.0[c])));
    assert!((2..8).all(|column| picture(0, column) == inverted));
    assert!(picture(1, 1) != picture(1, 0) && picture(1, 1) != picture(1, 2));
    // Without any, all there are.
    assert!(show("center_crop:32").height() > 20 * (3 * 32 + 4 + 11));
}

#[test]
fn views_and_repeats_are_asked_for_by_name_or_by_steps() {
    let photos = &*data().photos;
    let base = [photos, "--batch-size", "4", "--shuffle", "1", "--device", "cpu"];
    let with = |more: &[&str]| report(&[&base[..], more].concat());
    let dino = with(&["--transform", "dino"]);
    assert_eq!(dino["config"]["transform_name"], "dino");
    assert_eq!(dino["config"]["views"].as_array().unwrap().len(), 3, "{}", dino["config"]["views"]);
    let stage = |name: &str| dino["stages"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap().clone();
    assert_eq!((&stage("decode")["items"], &stage("transform")["items"]), (&24.into(), &24.into()));

    let views = ["--view", "a=random_resized_crop:20", "--view", "b*2=center_crop:8"];
    let report = with(&[&views[..], &["--aug-repeats", "3"]].concat());
    assert_eq!(report["config"]["transform_name"], "views a, b0, b1");
    assert_eq!(report["config"]["order"]["repeated"]["times"], 3, "{}", report["config"]["order"]);
    assert_eq!(report["samples"], 24);
    // As a file, alone and in settings.
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("views.json");
    fs::write(&json, report["config"]["views"].to_string()).unwrap();
    let sum = |more: &[&str]| checksum(&[&base[..], more].concat());
    assert_eq!(sum(&["--transform", json.to_str().unwrap()]), sum(&views));
    let settings = dir.path().join("run.toml");
    let toml = "[[views]]\nname = 'a'\ntransform = [{ op = 'random_resized_crop', size = [20, 20] }]\n";
    fs::write(&settings, toml).unwrap();
    let config = ["--config", settings.to_str().unwrap()];
    assert_eq!(sum(&config), sum(&views[..2]));
    // What is said on the line takes the place of the file's.
    assert_eq!(sum(&[&config[..], &["--transform", "center_crop:8"]].concat()), sum(&["--transform", "center_crop:8"]));

    let sheet = dir.path().join("sheet.png");
    let out = ok(&[&["inspect", photos, "--sheet", sheet.to_str().unwrap()], &views[..]].concat());
    assert!(out.contains("6 samples after views a, b0, b1"), "{out}");
    // Three views beside one another, of the largest one's place, shown four times as large.
    let image = image::open(&sheet).unwrap();
    assert_eq!(image.width(), 3 * (20 * 4 + 4) + 4);
    for (more, code, want) in [
        (&["--view", "a=center_crop:8", "--view", "a=center_crop:9"][..], 2, "two views are called a"),
        (&["--view", "center_crop:8"], 2, "NAME=STEPS"),
        (&["--view", "a=center_crop:8", "--transform", "dino"], 2, "cannot be used with"),
        (&["--shuffle", "none", "--aug-repeats", "2"], 2, "--shuffle"),
    ] {
        let args = [&["run", photos, "--batch-size", "4", "--shuffle", "1"], more].concat();
        let args = if more[0] == "--shuffle" { [&["run", photos], more].concat() } else { args };
        let output = run(&args);
        assert_eq!(output.status.code(), Some(code), "{more:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(want), "{more:?}: {}", text(&output.stderr));
    }
}

#[test]
fn inspect_tells_of_damaged_records_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    ok(&["synth", "imagenet", dir.path().to_str().unwrap(), "--count", "6", "--classes", "2"]);
    let (name, _) = tree(dir.path()).swap_remove(1);
    fs::write(dir.path().join(name), b"").unwrap();
    let findings: Value = serde_json::from_str(&ok(&["inspect", dir.path().to_str().unwrap(), "--json", "-"])).unwrap();
    assert_eq!(findings["sizes"]["unreadable"], 1, "{findings}");
    assert!(findings["first_records"][1]["error"].as_str().is_some_and(|error| error.contains("empty")), "{findings}");
}

#[test]
fn inspect_devices_says_what_there_is_or_why_there_is_nothing() {
    let out = ok(&["inspect", "--devices"]);
    assert!(!out.trim().is_empty());
    let json: Value = serde_json::from_str(&ok(&["inspect", "--devices", "--json", "-"])).unwrap();
    assert!(json["devices"]["gpus"].is_array(), "{json}");
}

#[test]
fn the_demo_shows_figures_and_leaves_nothing_behind() {
    let temp = tempfile::tempdir().unwrap();
    let mut demo = infeed();
    demo.arg("demo").env("TMPDIR", temp.path());
    let child = demo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let name = format!("infeed-demo-{}", child.id());
    let output = child.wait_with_output().unwrap();
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(out.contains("images/s") && out.contains("Epoch [") && out.contains("AU"), "{out}");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    assert!(!Path::new("/dev/shm").join(name).exists());
}

#[cfg(unix)]
#[test]
fn a_killed_demo_leaves_nothing_behind_either() {
    let temp = tempfile::tempdir().unwrap();
    let mut child =
        infeed().arg("demo").env("TMPDIR", temp.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let name = format!("infeed-demo-{}", child.id());
    let places = [Path::new("/dev/shm").join(&name), temp.path().join(&name)];
    // One that ended before anybody saw its folder left nothing either.
    until("the demo made no folder", || {
        places.iter().any(|place| place.join("photos").exists()) || child.try_wait().unwrap().is_some()
    });
    // SIGKILL, the harshest end: no handler of ours could have run.
    child.kill().unwrap();
    child.wait().unwrap();
    until("the folder is still there", || places.iter().all(|place| !place.exists()));
}

/// A folder with one class and the files that `make` writes into it.
fn one_class(make: impl FnOnce(&Path)) -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let class = dir.path().join("only");
    fs::create_dir(&class).unwrap();
    make(&class);
    let url = dir.path().display().to_string();
    (dir, url)
}

fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let pixels = vec![120; usize::from(width) * usize::from(height) * 3];
    let mut file = Vec::new();
    jpeg_encoder::Encoder::new(&mut file, 90).encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    file
}

#[test]
fn peak_memory_stays_within_the_budget() {
    // 16 batches of 24 rows of 602 KB would take 231 MB.
    let args = ["--batch-size", "24", "--epochs", "12", "--prefetch", "16", "--memory-budget", "64MiB"];
    let report = report(&[&[data().photos.as_str(), "--transform", "imagenet-train"][..], &args].concat());
    let (peak, batches) = (report["peak_rss_bytes"].as_u64(), report["batches"].as_u64());
    assert_eq!(batches, Some(12));
    // Beside the budget: code, stacks, and a test build of everything.
    assert!(peak.is_none_or(|peak| peak < (64 + 40) << 20), "{peak:?}");
}

#[test]
fn names_of_others_give_no_orders_to_a_terminal() {
    // A window's title, a cleared screen (C1), a turned direction, and a line that nobody said.
    let nasty = "a\u{202e}gpj \u{9b}2J \u{2066}x\u{200f}.JPEG";
    let (dir, url) = one_class(|class| {
        for n in 0..4 {
            fs::write(class.join(format!("{n}.jpg")), jpeg(8, 8)).unwrap();
        }
        fs::write(class.join(nasty), &jpeg(8, 8)[..40]).unwrap();
    });
    let orders = |output: &Output| {
        let all = text(&output.stdout) + &text(&output.stderr);
        let found: Vec<char> =
            all.chars().filter(|c| infeed::internal::printable::is_order(*c) && *c != '\n').collect();
        assert!(found.is_empty(), "{found:?} in {all:?}");
        all
    };
    let batches = ["--batch-size", "3", "--last-batch", "partial", "--transform", "imagenet-val"];
    let skips = [&["run", url.as_str(), "--on-bad-sample", "skip"], &batches[..]].concat();
    let logged = infeed().args(&skips).env("INFEED_LOG", "debug").output().unwrap();
    let stops = run(&[&["run", url.as_str()], &batches[..]].concat());
    assert_eq!((logged.status.code(), stops.status.code()), (Some(0), Some(1)), "{}", text(&logged.stderr));
    let page = dir.path().join("page.html").display().to_string();
    let html = run(&[&skips[..], &["--html", &page]].concat());
    let many =
        [run(&["inspect", &url]), run(&skips), logged, stops, html, run(&["doctor", &url]), run(&["run", nasty])];
    let all: Vec<String> = many.iter().map(orders).collect();
    assert!(
        all.iter().filter(|words| words.contains(r"a\u{202e}gpj \u{9b}2J \u{2066}x\u{200f}.JPEG")).count() >= 5,
        "{all:#?}"
    );
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(r"a\u{202e}gpj") && !page.contains(['\u{202e}', '\u{9b}', '\u{2066}']));
    // Programs get names as they are.
    let report = report(&[&[url.as_str(), "--on-bad-sample", "skip"], &batches[..]].concat());
    assert!(report["bad_samples"][0]["object"].as_str().is_some_and(|name| name.ends_with(nasty)), "{report}");
}

#[test]
fn arguments_that_nobody_knows_give_no_orders_to_a_terminal() {
    for args in [&["run", "--x\u{202e}y"][..], &["ru\u{202e}n"]] {
        let output = run(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(r"\u{202e}") && !said.contains('\u{202e}'), "{said}");
    }
}

#[test]
fn a_name_that_cannot_be_read_back_is_refused_before_the_first_batch() {
    let (_dir, url) = one_class(|class| {
        (0..4).for_each(|n| fs::write(class.join(format!("{n}.jpg")), jpeg(8, 8)).unwrap());
        fs::write(class.join("z\u{1b}]0;x\u{7}\n.jpg"), jpeg(8, 8)).unwrap();
        // Of no interest, whatever they are called.
        fs::write(class.join("Icon\r"), "").unwrap();
    });
    let output = run(&["inspect", &url]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("not a name that can be read") && said.contains(r"z\u{1b}]0;x\u{7}\n.jpg"), "{said}");
}

#[test]
fn a_state_is_whole_and_nothing_lies_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state.json").display().to_string();
    ok(&["run", &data().cifar10, "--batch-size", "32", "--max-batches", "2", "--state", &state]);
    serde_json::from_str::<Value>(&fs::read_to_string(&state).unwrap()).unwrap();
    assert_eq!(tree(dir.path()).len(), 1);
    // A bare name lies in the folder of the run.
    let run = infeed()
        .args(["run", &data().cifar10, "--batch-size", "32", "--state", "bare.json"])
        .current_dir(&dir)
        .output();
    assert!(run.unwrap().status.success() && dir.path().join("bare.json").is_file());
}

#[test]
fn one_pixel_is_an_image() {
    let (_dir, url) = one_class(|class| fs::write(class.join("1.jpg"), jpeg(1, 1)).unwrap());
    for transform in ["imagenet-train", "imagenet-val", "caltech"] {
        let report = report(&[&url, "--transform", transform, "--batch-size", "1"]);
        assert_eq!(report["samples"], 1, "{transform}");
    }
}

#[test]
fn a_giant_is_refused_by_name_and_size() {
    let (_dir, url) = one_class(|class| {
        let mut file = jpeg(16, 16);
        // The frame header says 20,000 x 20,000; nobody may allocate for it.
        let frame = file.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
        file[frame + 5..frame + 9].copy_from_slice(&[0x4e, 0x20, 0x4e, 0x20]);
        fs::write(class.join("giant.jpg"), file).unwrap();
    });
    let output = run(&["run", &url, "--transform", "imagenet-train", "--batch-size", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    for word in ["20000x20000", "--max-image-bytes", "record 0", "giant.jpg"] {
        assert!(said.contains(word), "{word} is not in: {said}");
    }
}

#[test]
fn a_transform_that_does_not_fold_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("twice.json");
    let twice = r#"[{"op": "resize_shorter", "size": 64}, {"op": "center_crop", "size": 64}, {"op": "random_resized_crop", "size": 32}]"#;
    fs::write(&file, twice).unwrap();
    let output = run(&["run", &data().photos, "--transform", &file.display().to_string(), "--batch-size", "4"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("random_resized_crop"), "{said}");
}

/// A scheduler takes the machine away: what was delivered is saved, and the rest is delivered by the next run.
#[cfg(unix)]
#[test]
fn a_run_that_is_terminated_saves_its_state() {
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("state.json").to_str().unwrap().to_owned();
    let url = "synthetic://?count=4000&height=32&width=32&classes=10";
    let common = ["run", url, "--transform", "cifar-train", "--batch-size", "10", "--shuffle", "1", "--checksum"];
    let whole = report(&common[1..]);
    let part = [&common[..], &["--state", &state, "--step-time", "200ms", "--log-every", "1"]].concat();
    let mut child = infeed().args(&part).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The state is written with each batch; the 400 of them take longer than anybody waits here.
    until("there is no state", || Path::new(&state).exists());
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(143));
    let mut words = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut words).unwrap();
    assert!(words.contains("stopped by SIGTERM after ") && words.contains(" of 400 batches; continue with"), "{words}");
    let rest = report(&[&common[1..], &["--resume", &state]].concat());
    assert_eq!(rest["checksum"], whole["checksum"]);
    assert!(rest["samples"].as_u64().unwrap() < 4000);
}

#[test]
fn cells_come_in_every_layout_with_the_same_values_and_their_statistics() {
    let dir = tempfile::tempdir().unwrap();
    let make = |planes: &str, pixels: &str| {
        let path = dir.path().join(format!("{planes}-{pixels}")).display().to_string();
        let fixed = ["--count", "9", "--channels", "3", "--size", "12x10", "--seed", "4", "--classes", "2"];
        ok(&[&["synth", "tiff", &path][..], &fixed, &["--planes", planes, "--pixels", pixels]].concat());
        path
    };
    let sums = |path: &str, more: &[&str]| {
        checksum(&[&[path, "--transform", "cells", "--batch-size", "4", "--shuffle", "7"][..], more].concat())
    };
    let interleaved = make("interleaved", "u8");
    let sum = sums(&interleaved, &["--workers", "1"]);
    assert_eq!(sum, sums(&interleaved, &["--workers", "3", "--prefetch", "2"]));
    for planes in ["planar", "pages"] {
        assert_eq!(sum, sums(&make(planes, "u8"), &[]), "{planes}");
    }
    let files = make("files", "u8");
    assert_eq!(sum, sums(&files, &["--channels", "{name}_{channel}.tif"]));

    let stats = |path: &str, more: &[&str]| -> Value {
        let out = ok(&[&["inspect", path, "--stats", "--json", "-"], more].concat());
        serde_json::from_str::<Value>(&out).unwrap()["stats"][0].clone()
    };
    let of = stats(&interleaved, &[]);
    assert_eq!((of["records"].as_u64(), of["channels"].as_array().map(Vec::len)), (Some(9), Some(3)));
    // By hand, from the plain pixels at the end of each file.
    let (mut sum, mut squares, mut n) = ([0u64; 3], [0u64; 3], 0u64);
    for (_, file) in tree(Path::new(&interleaved)) {
        for pixel in file[file.len() - 12 * 10 * 3..].chunks(3) {
            n += 1;
            for c in 0..3 {
                sum[c] += u64::from(pixel[c]);
                squares[c] += u64::from(pixel[c]).pow(2);
            }
        }
    }
    for c in 0..3 {
        let mean = sum[c] as f64 / n as f64;
        let std = (squares[c] as f64 / n as f64 - mean * mean).sqrt();
        let close = |key: &str, want: f64| (of["channels"][c][key].as_f64().unwrap() - want / 255.0).abs() < 1e-9;
        assert!(close("mean", mean) && close("std", std), "{of}, not {mean} and {std}");
        assert_eq!(of["normalize"]["mean"][c].as_f64().unwrap() as f32, (mean / 255.0) as f32);
    }
    let others = stats(&files, &["--channels", "{name}_{channel}.tif"]);
    assert_eq!(others["channels"], of["channels"]);
    assert_eq!(stats(&interleaved, &["--count", "4"])["records"], 4);
    // Ready for a transform.
    let transform = dir.path().join("t.json");
    fs::write(&transform, format!("[{{\"op\": \"resize_exact\", \"size\": [8, 8]}}, {}]", of["normalize"])).unwrap();
    report(&[&interleaved, "--transform", transform.to_str().unwrap(), "--batch-size", "4"]);

    let wide = stats(&make("planar", "u16"), &[]);
    let mean = |of: &Value| of["channels"][1]["mean"].as_f64().unwrap();
    assert!((mean(&wide) - mean(&of)).abs() < 0.003, "cut to 8 bits");
    assert!((mean(&stats(&make("files", "f32"), &["--channels", "{name}_{channel}.tif"])) - mean(&wide)).abs() < 1e-4);
}

#[test]
fn options_of_tiff_are_for_tiff() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&["synth", "imagenet", dir.path().to_str().unwrap(), "--count", "1", "--channels", "3"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--channels is only for tiff"), "{}", text(&output.stderr));
}

#[test]
fn profile_shows_the_table_the_first_batch_and_the_stages_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, html) = (dir.path().join("trace.json"), dir.path().join("report.html"));
    let args = ["profile", &data().photos, "--batch-size", "6", "--epochs", "2", "--workers", "2", "--device", "cpu"];
    let files = ["--trace", trace.to_str().unwrap(), "--html", html.to_str().unwrap(), "--no-stages"];
    let out = ok(&[&args[..], &files].concat());
    for words in ["self %", "average", "calls", "CPU", "no GPU", "first batch", "before it: build"] {
        assert!(out.contains(words), "no {words:?} in\n{out}");
    }
    assert!(!out.contains("samples/s, alone"), "{out}");
    // The trace is a document with a span for each batch, and jobs on named threads.
    let events: Vec<Value> = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
    let of = |name: &str, phase: &str| events.iter().filter(|e| e["name"] == name && e["ph"] == phase).count();
    assert_eq!((of("infeed.batch", "b"), of("infeed.batch", "e"), of("infeed.epoch", "b")), (8, 8, 2));
    assert!(of("infeed.decode", "X") >= 8 && of("thread_name", "M") >= 2, "{events:?}");
    let job = events.iter().find(|e| e["name"] == "infeed.decode").unwrap();
    assert!(job["args"]["rows"].is_u64() && job["args"]["decode_us"].is_u64() && job["dur"].is_f64(), "{job}");
    page(&html);
    let out = ok(&[&args[..], &["--max-time", "20ms", "--html", html.to_str().unwrap()]].concat());
    assert!(out.contains("samples/s, alone"), "{out}");
    for stage in ["fetch", "decode", "transform", "decode and transform", "all"] {
        assert!(out.lines().any(|line| line.trim_start().starts_with(stage)), "no {stage} in\n{out}");
    }
    page(&html);
}

#[test]
fn profile_names_what_augmentations_cost() {
    let dir = tempfile::tempdir().unwrap();
    let (json, html) = (dir.path().join("profile.json"), dir.path().join("report.html"));
    let dark = "random_resized_crop:96;gaussian_blur:23;random_invert:0.1;normalize;random_erasing:0.5";
    let args = ["profile", &data().photos, "--batch-size", "6", "--device", "cpu", "--json", json.to_str().unwrap()];
    let args = [&args[..], &["--max-time", "50ms"]].concat();
    let more = ["--transform", dark, "--html", html.to_str().unwrap()];
    let out = ok(&[&args[..], &more].concat());
    assert!(out.contains("2 gaussian_blur") && out.contains("of the transform"), "{out}");
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let steps = report["steps"].as_array().unwrap();
    let names: Vec<_> =
        steps.iter().map(|step| (step["step"].as_u64().unwrap(), step["name"].as_str().unwrap())).collect();
    assert_eq!(names, [(2, "gaussian_blur"), (3, "random_invert"), (5, "random_erasing")]);
    // Of 23 pixels in two directions, beside steps of one pass that rarely happen.
    let share = |n: usize| steps[n]["share"].as_f64().unwrap();
    assert!(share(0) > 0.1 && share(0) > share(1) && share(0) > share(2), "{steps:?}");
    assert!(page(&html).contains("gaussian_blur"));
    // Of views, each names its own.
    let views = ["--view", "a*2=random_resized_crop:32;random_invert", "--view", "b=center_crop:8"];
    ok(&[&args[..], &views].concat());
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!((&report["steps"][0]["view"], report["steps"].as_array().unwrap().len()), (&"a".into(), 1));
}

/// A page that stands alone and is well formed as far as tags go.
fn page(path: &Path) -> String {
    let html = fs::read_to_string(path).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    for outside in ["http://", "https://", "<script", "<link", "<img", "@import"] {
        let known = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!known.contains(outside), "{outside} in {}", path.display());
    }
    assert!(html.contains("prefers-color-scheme") && html.contains("@media print") && html.contains("<svg"));
    reads_well(&html);
    for tag in ["table", "figure", "svg", "p", "h2", "tr", "td", "text"] {
        let open = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert_eq!(open, html.matches(&format!("</{tag}>")).count(), "{tag} in {}", path.display());
    }
    html
}

/// A page has a verdict, its date and version, and no figure of more digits than anybody reads.
fn reads_well(html: &str) {
    let verdict = html.split_once("<div class=\"verdict\"><p><strong>").expect("a verdict").1;
    assert!(
        verdict.split_once("</strong>").is_some_and(|(found, _)| found.len() > 20 && found.ends_with('.')),
        "{html}"
    );
    let version = format!(" UTC · infeed {}</p>", env!("CARGO_PKG_VERSION"));
    let (before, _) = html.split_once(&version).expect("date and version");
    let date = &before[before.rfind('>').unwrap() + 1..];
    assert!(date.len() == 16 && date.starts_with("20") && date.as_bytes()[10] == b' ', "{date}");
    // Behind it stands what somebody typed.
    let (figures, _) = html.split_once("<h2>Command and machine").expect("the last part");
    let mut shown = String::new();
    for part in figures.split_once("</style>").unwrap().1.split('<').skip(1) {
        shown.push_str(part.split_once('>').expect("a tag ends").1);
        shown.push('\n');
    }
    let digits = |c: char| c.is_ascii_digit();
    // Files have the names that somebody gave them.
    for word in shown.split_whitespace().filter(|word| !word.starts_with('/')) {
        let long = word.split(|c| !digits(c)).map(str::len).max().unwrap_or(0);
        let decimals = word.split('.').skip(1).map(|rest| rest.chars().take_while(|c| digits(*c)).count()).max();
        assert!(long < 7 && decimals.unwrap_or(0) <= 5, "{word:?} is a raw figure in\n{shown}");
    }
    for absent in ["NaN", "null", "{&quot;"] {
        assert!(!shown.contains(absent), "{absent} in\n{shown}");
    }
}

#[test]
fn pages_of_run_and_doctor_read_well() {
    let dir = tempfile::tempdir().unwrap();
    let html = dir.path().join("page.html");
    let common = ["--batch-size", "6", "--device", "cpu", "--transform", "imagenet-train", "--step-time", "2ms"];
    for command in ["run", "doctor"] {
        let more: &[&str] = if command == "run" { &["--epochs", "3"] } else { &["--max-batches", "6"] };
        ok(&[&[command, &data().photos, "--html", html.to_str().unwrap()], &common[..], more].concat());
        let page = page(&html);
        for words in ["memory_budget", "0.485", "normalize", "step_time", "decoded by"] {
            assert!(page.contains(words), "no {words} on the page of {command}");
        }
    }
}

#[test]
fn the_json_of_profile_keeps_its_keys() {
    let json = ok(&[
        "profile",
        &data().cifar10,
        "--batch-size",
        "32",
        "--shuffle",
        "7",
        "--workers",
        "1",
        "--prefetch",
        "3",
        "--no-stages",
        "--json",
        "-",
    ]);
    let mut report: Value = serde_json::from_str(&json).unwrap();
    // Which threads there were is the machine's matter; the run's keys are those of `run`.
    assert!(report["threads"].as_array().unwrap().iter().all(|row| row["name"].is_string()), "{report}");
    assert_eq!(report["run"]["samples"], 192);
    (report["threads"], report["run"]) = (Value::Null, Value::Null);
    redact(&mut report, "");
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn reports_that_cannot_be_written_are_known_before_the_run() {
    let nowhere = "/no/such/folder/report.html";
    for args in [
        &["run", &data().cifar10, "--html", nowhere][..],
        &["profile", &data().cifar10, "--html", nowhere],
        &["profile", &data().cifar10, "--trace", nowhere],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).contains("cannot write /no/such/folder"), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{args:?} ran");
    }
}

/// A run that is ended before its first batch: nothing else delivers none.
#[cfg(unix)]
#[test]
fn a_run_of_nothing_has_a_report_too() {
    use crate::support::s3::{Fault, Rule, S3Server};
    let dir = tempfile::tempdir().unwrap();
    let html = dir.path().join("report.html");
    let path = html.to_str().unwrap();
    let server = S3Server::start();
    server.put_folder(&data().photos, "photos");
    server.rule(Rule::new(Fault::Delay(2 * PATIENCE)).key(".JPEG"));
    let url = server.url("photos");
    for command in [&["run"][..], &["profile", "--no-stages"]] {
        server.forget();
        let args = [command, &[url.as_str(), "--batch-size", "4", "--html", path]].concat();
        let mut child =
            infeed().args(&args).envs(server.env()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("nothing is asked for", || {
            server.log().iter().any(|seen| seen.key.as_ref().is_some_and(|key| key.contains(".JPEG")))
        });
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(143), "{command:?}");
        assert!(fs::read_to_string(&html).unwrap().contains("No batch was delivered"), "{command:?}");
        fs::remove_file(&html).unwrap();
    }
}

/// A handled end leaves a whole trace, with what was done until then.
#[cfg(unix)]
#[test]
fn an_interrupted_profile_leaves_a_whole_trace() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace.json");
    let url = "synthetic://?count=4000&height=32&width=32&classes=10";
    // The 400 batches take longer than anybody waits here.
    let args = ["profile", url, "--transform", "cifar-train", "--batch-size", "10", "--step-time", "200ms"];
    let mut child = infeed();
    child.args(args).args(["--log-every", "1", "--trace", trace.to_str().unwrap()]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    // The first line says that batches come.
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(rest.contains("self %"), "{rest}");
    let events: Vec<Value> = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
    assert!(events.iter().any(|event| event["name"] == "infeed.batch"), "{} events", events.len());
}

#[test]
fn a_sweep_measures_each_cell_keeps_it_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (out, csv, html) = (file("sweep.json"), file("sweep.csv"), file("sweep.html"));
    let common = ["sweep", &data().cifar10, "--transform", "cifar-train", "--device", "cpu", "--out", &out];
    // As without them, but for the time of a cell.
    let common = [&common[..], &["--epochs", "1000000000", "--max-time", "200ms"]].concat();
    let first = [&common[..], &["--workers", "1", "--batch-size", "10,20"]].concat();
    ok(&first);
    let kept: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    assert_eq!(kept["cells"].as_array().unwrap().len(), 2);
    // However short an epoch is, a cell is measured for a while.
    let options = ["--transform", "cifar-train", "--epochs", "1000000000", "--max-time", "200ms"];
    assert_eq!(kept["options"].as_array().unwrap(), &options);
    assert!(kept["cells"][0]["seconds"].as_f64().unwrap() >= 0.2, "{kept}");
    // The same again with more workers: what is there is not measured again.
    let more = ["--workers", "1,2", "--batch-size", "10,20", "--csv", &csv, "--html", &html];
    let words = ok(&[&common[..], &more].concat());
    assert_eq!(words.matches("measured before").count(), 2, "{words}");
    assert!(
        words.contains("knee, above which more workers hardly help: workers") && words.contains("no GPU"),
        "{words}"
    );
    let all: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    let cells = all["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    assert_eq!(cells[0], kept["cells"][0]);
    for cell in cells {
        assert!(cell["samples_per_second"].as_f64().unwrap() > 0.0 && cell["error"].is_null(), "{cell}");
        assert!(cell["peak_rss_bytes"].as_u64().is_none_or(|peak| peak > 1 << 20), "{cell}");
    }
    let table = fs::read_to_string(&csv).unwrap();
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(table.starts_with("workers,batch_size,prefetch,dtype,device,iterations_per_second,"), "{table}");
    assert!(page(Path::new(&html)).contains("2 workers"));
    // Another sweep does not go on in this file.
    let output = run(&["sweep", &data().cifar10, "--shuffle", "1", "--out", &out]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("use another --out"), "{}", text(&output.stderr));
}

#[test]
fn the_json_of_sweep_keeps_its_keys_and_a_cell_that_fails_costs_no_other() {
    let json = ok(&["sweep", &data().cifar10, "--workers", "0,1", "--batch-size", "20", "--json", "-"]);
    let mut report: Value = serde_json::from_str(&json).unwrap();
    assert!(report["cells"][0]["error"].as_str().unwrap().contains("workers is 0"), "{report}");
    for cell in report["cells"].as_array_mut().unwrap() {
        redact(cell, ".cell");
        cell["bottleneck"] = Value::Null;
    }
    redact(&mut report["knee"], "");
    redact(&mut report["busy"], "");
    report["knee"]["words"] = "[words]".into();
    report["url"] = "[string]".into();
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
    // Without one that works there is nothing to tell.
    assert_eq!(run(&["sweep", &data().cifar10, "--workers", "0"]).status.code(), Some(1));
    assert_eq!(run(&["sweep", &data().cifar10, "--workers", "many"]).status.code(), Some(2));
}

#[test]
fn a_run_ends_by_time_and_tells_what_came_after_its_warm_up() {
    let url = "synthetic://?count=64&height=8&width=8&classes=10";
    let common = [url, "--transform", "none", "--device", "cpu", "--batch-size", "8", "--epochs", "1000000000"];
    let told = report(&[&common[..], &["--max-time", "20ms"]].concat());
    assert_eq!(told["ended"]["by"], "--max-time");
    assert!(told["seconds"].as_f64().unwrap() >= 0.02, "{told:#}");
    let told = report(&[&common[..], &["--max-batches", "6", "--warm-up", "20ms", "--step-time", "10ms"]].concat());
    // After the first batch each takes 10 ms at least: the third ends the warm-up, or the second of a slow machine.
    let (all, settled) = (told["samples"].as_u64().unwrap(), &told["settled"]);
    let after = settled["samples"].as_u64().unwrap();
    assert_eq!(all, 48);
    assert!([24, 32].contains(&after) && settled["samples_per_second"].as_f64().unwrap() > 0.0, "{told:#}");
    assert!(settled["seconds"].as_f64().unwrap() <= told["seconds"].as_f64().unwrap() - 0.02, "{told:#}");
    assert_eq!(settled["after_seconds"], 0.02);
    assert!(report(&[&common[..], &["--max-batches", "3"]].concat())["settled"].is_null());
}

#[test]
fn autotune_is_told_and_can_be_turned_off() {
    let url = "synthetic://?count=64&height=8&width=8&classes=10";
    let common = [url, "--transform", "none", "--device", "cpu", "--batch-size", "8"];
    let told = report(&common);
    let (workers, prefetch) = (&told["autotune"]["workers"], &told["autotune"]["prefetch"]);
    assert_eq!((&workers["start"], workers["auto"] == true), (&told["workers"], workers["most"] != workers["least"]));
    assert_eq!((&prefetch["auto"], &told["config"]["autotune"]), (&Value::Bool(true), &Value::Bool(true)), "{told:#}");
    assert!(ok(&[&["run"], &common[..]].concat()).contains("nothing to change"));
    let told = report(&[&common[..], &["--autotune", "off"]].concat());
    assert_eq!(
        (&told["autotune"]["prefetch"]["auto"], &told["config"]["autotune"]),
        (&Value::Bool(false), &Value::Bool(false))
    );
    assert!(!ok(&[&["run"], &common[..], &["--autotune", "off"]].concat()).contains("autotune"));
}

#[test]
fn a_sweep_compares_auto_with_its_best_cell() {
    let url = "synthetic://?count=64&height=8&width=8&classes=10";
    let dir = tempfile::tempdir().unwrap();
    let (out, html) = (dir.path().join("sweep.json"), dir.path().join("sweep.html"));
    let args = ["sweep", url, "--transform", "none", "--device", "cpu", "--workers", "1,2", "--batch-size", "8"];
    let ends = ["--epochs", "1000000000", "--max-time", "20ms", "--settle", "20ms"];
    let files = ["--out", out.to_str().unwrap(), "--html", html.to_str().unwrap(), "--json", "-"];
    let json = ok(&[&args[..], &ends, &files, &["--auto", "2"]].concat());
    let told: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(told["cells"].as_array().unwrap().len(), 2, "{told:#}");
    let rounds = told["auto"]["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2);
    for round in rounds {
        assert_eq!(
            (&round["auto"]["asked"]["workers"], &round["auto"]["asked"]["prefetch"]),
            (&"auto".into(), &"auto".into())
        );
        assert_eq!(round["best"]["asked"], told["auto"]["best"]);
        for cell in [&round["auto"], &round["best"]] {
            assert!(cell["samples_per_second"].as_f64().unwrap() > 0.0 && cell["workers_at_end"].is_u64(), "{cell:#}");
        }
    }
    let [middle, least, most] = [0, 1, 2].map(|n| told["auto"]["share"][n].as_f64().unwrap());
    assert!(0.0 < least && least <= middle && middle <= most, "{told:#}");
    let words = told["auto"]["words"].as_str().unwrap();
    assert!(
        words.contains("of the best combination (workers")
            && fs::read_to_string(&html).unwrap().contains("of the best combination"),
        "{words}"
    );
    // More rounds later: those that were run count.
    let more = ok(&[&args[..], &ends, &files, &["--auto", "3"]].concat());
    let more: Value = serde_json::from_str(&more).unwrap();
    assert_eq!(more["auto"]["rounds"].as_array().unwrap().len(), 3);
    assert_eq!(more["auto"]["rounds"][0], told["auto"]["rounds"][0]);
    // Cells on auto alone are no comparison, and said so.
    let alone = ["sweep", url, "--transform", "none", "--workers", "auto", "--batch-size", "8", "--auto", "1"];
    let alone = run(&[&alone[..], &["--max-batches", "3"]].concat());
    assert!(alone.status.success() && text(&alone.stderr).contains("give --workers a list"), "{alone:?}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_sweep_keeps_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("sweep.json");
    // The first cell is over at once, the second would take longer than anybody waits here.
    let url = "synthetic://?count=4000&height=8&width=8&classes=10";
    let common = ["sweep", url, "--transform", "none", "--device", "cpu", "--step-time", "100ms", "--workers", "1"];
    let out_text = out.to_str().unwrap();
    let args = ["--batch-size", "4000,1", "--epochs", "1", "--out", out_text];
    let mut child = infeed();
    child.args(common).args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert!(line.starts_with("workers 1, batch-size 4000"), "{line}");
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let kept: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    assert_eq!(kept["cells"].as_array().unwrap().len(), 1, "{kept}");
}

#[test]
fn what_a_run_learned_of_the_files_is_kept_and_changes_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("photos.index").to_string_lossy().into_owned();
    let common = [&data().photos[..], "--batch-size", "4", "--shuffle", "1", "--transform", "imagenet-train"];
    let whole = checksum(&[&common[..], &["--epochs", "2"]].concat());
    let kept = [&common[..], &["--epochs", "2", "--decode-index", &file]].concat();
    assert_eq!(checksum(&kept), whole);
    let size = std::fs::metadata(&file).unwrap().len();
    assert!(size > 100, "{size} bytes");
    assert_eq!(checksum(&kept), whole, "from what the run before learned");
    assert!(std::fs::metadata(&file).unwrap().len() >= size);

    std::fs::write(&file, "something else").unwrap();
    let output = run(&[&["run"], &kept[..]].concat());
    let words = text(&output.stderr);
    assert!(output.status.code() == Some(1) && words.contains("is not a decode index"), "{words}");
}

#[test]
fn an_index_made_ahead_of_the_first_epoch_is_all_that_there_is_to_learn() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("photos.index").to_string_lossy().into_owned();
    let photos = &data().photos;
    let inspect = || -> Value {
        let findings = ok(&["inspect", photos, "--decode-index", &file, "--json", "-"]);
        serde_json::from_str::<Value>(&findings).unwrap()["decode_index"].clone()
    };
    let (found, records) = (inspect(), 24);
    assert_eq!((found["jpegs"].as_u64(), found["files"].as_u64()), (Some(records), Some(records)), "{found}");
    assert_eq!(
        (found["unreadable"].as_u64(), found["bytes"].as_u64()),
        (Some(0), Some(fs::metadata(&file).unwrap().len()))
    );
    // Whatever a run looks at, it is known; ranks share the file.
    let before = fs::read(&file).unwrap();
    let common = [photos, "--batch-size", "4", "--shuffle", "1", "--transform", "imagenet-train", "--epochs", "2"];
    assert_eq!(checksum(&[&common[..], &["--decode-index", &file]].concat()), checksum(&common));
    assert_eq!(fs::read(&file).unwrap(), before, "nothing was new");
    // What is there stays, what is damaged is counted.
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("broken.jpg"), [0xff, 0xd8, 0xff]).unwrap();
    let other = other.to_string_lossy();
    let findings = ok(&["inspect", &other, "--decode-index", &file, "--json", "-"]);
    let found = &serde_json::from_str::<Value>(&findings).unwrap()["decode_index"];
    assert_eq!((found["files"].as_u64(), found["unreadable"].as_u64()), (Some(records), Some(1)), "{found}");
    assert!(found["first_error"].as_str().is_some_and(|error| error.contains("broken.jpg")), "{found}");
}

#[test]
fn the_format_and_the_largest_image_are_said_in_the_command() {
    let dir = tempfile::tempdir().unwrap();
    // Records of CIFAR-10 under a name that tells nothing, beside a picture.
    fs::write(dir.path().join("some.bin"), vec![1; 8 * 3073]).unwrap();
    let mut png = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(64, 64).write_to(&mut png, image::ImageFormat::Png).unwrap();
    fs::write(dir.path().join("a.png"), png.into_inner()).unwrap();
    let at = dir.path().to_str().unwrap();
    for (format, records) in [(&[][..], 1), (&["--format", "cifar10"], 8)] {
        let found = ok(&[&["inspect", at, "--json", "-"], format].concat());
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found["records"], records, "{format:?}");
    }
    let one = ["run", at, "--batch-size", "1", "--transform", "imagenet-val", "--max-image-bytes"];
    ok(&[&one[..], &["1MiB"]].concat());
    let output = run(&[&one[..], &["4KiB"]].concat());
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("--max-image-bytes is 4096"), "{message}");
}
