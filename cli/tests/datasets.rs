//! What the command line tells of datasets, and what it takes for one: mixtures, shards, boxes.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    command::{self, ok, run, text},
    support::detection::{coco, voc},
};

const PARTS: [&str; 8] = [
    "synthetic://?count=500&height=8&width=8&classes=10,name=web,proportion=0.7",
    "--part",
    "synthetic://?count=40&height=8&width=8&classes=10&seed=1,name=books,proportion=0.2",
    "--part",
    "synthetic://?count=9&height=8&width=8&classes=10&seed=2,name=code,proportion=0.1",
    "--samples",
    "300",
    "--shuffle=7",
];

fn infeed(args: &[&str]) -> (i32, String, String) {
    let output = run(args);
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn report(args: &[&str]) -> Value {
    let args = [&["run", "--transform", "none", "--device", "cpu", "--json", "-", "--checksum"], args].concat();
    let (code, out, errors) = infeed(&args);
    assert_eq!(code, 0, "{args:?}: {errors}");
    serde_json::from_str(&out).unwrap()
}

fn sum(report: &Value) -> u128 {
    u128::from_str_radix(report["checksum"].as_str().unwrap(), 16).unwrap()
}

fn samples(report: &Value) -> Vec<u64> {
    report["parts"].as_array().unwrap().iter().map(|part| part["samples"].as_u64().unwrap()).collect()
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

#[test]
fn three_parts_on_three_ranks_go_on_on_two_and_the_sums_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| report(&[&PARTS[..], &["--last-batch", "partial", "--epochs", "2"], more].concat());
    let whole = run(&["--batch-size", "100"]);
    assert_eq!(samples(&whole), [420, 120, 60]);
    let part = &whole["parts"][1];
    assert_eq!(
        (part["name"].as_str(), part["records"].as_u64(), part["proportion"].as_f64()),
        (Some("books"), Some(40), Some(0.2))
    );
    assert_eq!(whole["config"]["order"]["mixture"]["parts"][2]["records"], 9);

    // Two and a bit of the second epoch, and the rest.
    let mut first = Vec::new();
    for rank in ["0", "1", "2"] {
        let state = path(dir.path(), rank);
        let world =
            ["--batch-size", "10", "--rank", rank, "--world-size", "3", "--max-batches", "13", "--state", &state];
        first.push(run(&world));
    }
    let state = path(dir.path(), "0");
    let mut second = Vec::new();
    for rank in ["0", "1"] {
        second.push(run(&["--batch-size", "25", "--rank", rank, "--world-size", "2", "--resume", &state]));
    }
    // Rank 0 goes on with the sum that its state has.
    let before = sum(&first[1]).wrapping_add(sum(&first[2]));
    let all = second.iter().fold(before, |all, report| all.wrapping_add(sum(report)));
    assert_eq!(all, sum(&whole));
    let counts = first.iter().chain(&second).map(samples).fold([0; 3], |mut all, counts| {
        all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        all
    });
    assert_eq!(counts, [420, 120, 60]);
}

#[test]
fn a_config_file_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let config = path(dir.path(), "infeed.toml");
    let shares = ["0.7", "0.2", "0.1"].map(|share| format!("[[order.mixture.parts]]\nproportion = {share}\n")).concat();
    fs::write(&config, format!("batch_size = 50\n[order.mixture]\nseed = 7\nsamples = 300\n{shares}")).unwrap();
    let typed = report(&[&PARTS[..], &["--batch-size", "50"]].concat());
    let urls: Vec<&str> = PARTS.iter().step_by(2).take(3).map(|part| part.split(',').next().unwrap()).collect();
    let parts = [urls[0], "--part", urls[1], "--part", urls[2], "--config", &config];
    let told = report(&parts);
    assert_eq!((sum(&told), samples(&told)), (sum(&typed), vec![210, 60, 30]));
    assert_ne!(sum(&report(&[&parts[..], &["--shuffle", "8"]].concat())), sum(&typed));
    // Typed shares are those that count.
    let typed =
        [PARTS[0], PARTS[1], PARTS[2], PARTS[3], "synthetic://?count=9&height=8&width=8&classes=10,proportion=0.9"];
    assert_eq!(
        samples(&report(&[&typed[..], &["--config", &config, "--samples", "18", "--batch-size", "18"]].concat())),
        [7, 2, 9]
    );
}

#[test]
fn inspect_tells_the_parts() {
    let (_, out, _) = infeed(&[&["inspect", "--json", "-"], &PARTS[..5]].concat());
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&found["records"], found["parts"].as_array().unwrap().len()), (&549.into(), 3));
    let part = &found["parts"][2];
    assert_eq!(
        (part["name"].as_str(), part["samples_per_epoch"].as_u64(), part["records"].as_u64()),
        (Some("code"), Some(55), Some(9))
    );
    let (_, out, _) = infeed(&["inspect", "synthetic://?count=4", "--part", "synthetic://?count=6,repeat=2"]);
    assert!(out.contains("repeat=2: 6 records, 12 samples per epoch"), "{out}");
}

#[test]
fn what_does_not_mix_is_told() {
    let (a, b) = ("synthetic://?count=40", "synthetic://?count=4");
    let half = format!("{b},proportion=0.5");
    for (args, want) in [
        (&[a, "--part", &half][..], "give all parts proportions, or give none"),
        (&[a, "--part", b, "--samples", "9"], "omit samples"),
        (&[a, "--part", b, "--shuffle", "none"], "drawn in random order"),
        (&[a, "--part", b, "--shuffle", "1", "--aug-repeats", "3"], "--aug-repeats"),
        (&[a, "--part", b, "--weights", "balanced"], "--weights"),
        (&[a, "--part", "synthetic://?count=4,repeat=x"], "repeat=x"),
        (&[a, "--part", "synthetic://?count=4&height=9"], "does not fit dataset 0"),
        (&[a, "--samples", "9"], "--samples needs"),
    ] {
        let (code, _, errors) = infeed(&[&["run"], args].concat());
        assert_eq!(code, 2, "{args:?}: {errors}");
        assert!(errors.contains(want), "{args:?}: {errors}");
    }
}

#[test]
fn doctor_and_profile_take_parts() {
    for command in ["doctor", "profile"] {
        let args = [&[command, "--batch-size", "20", "--max-batches", "4", "--device", "cpu"], &PARTS[..]].concat();
        let (code, _, errors) = infeed(&args);
        assert_eq!(code, 0, "{command}: {errors}");
    }
}

#[test]
fn records_are_drawn_by_weight_or_by_class() {
    let dir = tempfile::tempdir().unwrap();
    // 30 of one class, 2 of another.
    let mut data = vec![0u8; 32 * 3073];
    (0..32).for_each(|i| data[i * 3073] = u8::from(i >= 30) * 7);
    let cifar = path(dir.path(), "cifar");
    fs::create_dir(&cifar).unwrap();
    fs::write(Path::new(&cifar).join("data_batch_1.bin"), &data).unwrap();
    let state = path(dir.path(), "state");
    let run = |more: &[&str]| {
        report(&[&[&cifar[..], "--batch-size", "100", "--shuffle", "3", "--samples", "1000"], more].concat())
    };
    let balanced = run(&["--weights", "balanced", "--state", &state]);
    assert_eq!(balanced["samples"], 1000);
    let weights = path(dir.path(), "weights.txt");
    // The same by hand: a thirtieth and a half.
    fs::write(&weights, format!("# of 32\n{}{}", format!("{}\n", 1.0 / 30.0).repeat(30), "0.5\n0.5\n")).unwrap();
    assert_eq!(sum(&run(&["--weights", &weights])), sum(&balanced));
    fs::write(&weights, format!("{}{}", "0\n".repeat(31), "1\n")).unwrap();
    assert_ne!(sum(&run(&["--weights", &weights])), sum(&balanced));
    for (text, want) in [("1\n1\n", "2 weights for 32 records"), ("1\nheavy\n", "line 2 is `heavy`, not a weight")] {
        fs::write(&weights, text).unwrap();
        let (code, _, errors) = infeed(&["run", &cifar, "--weights", &weights]);
        assert!(code == 2 && errors.contains(want), "{errors}");
    }
    // A state knows the weights that it was saved with.
    let (code, _, errors) =
        infeed(&["run", &cifar, "--last-batch", "partial", "--shuffle", "3", "--epochs", "2", "--resume", &state]);
    assert!(code == 1 && errors.contains("weighted"), "{errors}");
}

#[test]
fn filters_and_lists_choose_records() {
    let dir = tempfile::tempdir().unwrap();
    let list = path(dir.path(), "list");
    fs::write(&list, "3\n1\n3\n").unwrap();
    let data = "synthetic://?count=50&height=8&width=8&classes=5";
    for (args, records) in [
        (&["--filter", "label=1,4"][..], 20),
        (&["--filter", "label!=0", "--filter", "label<3"], 20),
        (&["--record-list", &list], 2),
    ] {
        let found = report(&[&[data, "--batch-size", "1"], args].concat());
        assert_eq!((found["records"].as_u64(), found["samples"].as_u64()), (Some(records), Some(records)), "{args:?}");
    }
    for (args, code, want) in [
        (&["--filter", "label=x"][..], 2, "names `x`"),
        (&["--filter", "label"], 2, "has no operator"),
        (&["--filter", "label>9"], 1, "no record passes `label>9`"),
        (&["--record-list", "/nowhere/list"], 1, "/nowhere/list"),
    ] {
        let (got, _, errors) = infeed(&[&["run", data], args].concat());
        assert!(got == code && errors.contains(want), "{args:?}: {got} {errors}");
    }
}

#[test]
fn patterns_name_some_of_the_shards_of_the_folder_it_runs_in() {
    let dir = tempfile::tempdir().unwrap();
    let data = "synthetic://?count=30&height=8&width=8&classes=5";
    ok(&["prepare", data, dir.path().to_str().unwrap(), "--parts", "3"]);
    let pattern = ["inspect", "shard-{000000,000002}.tar"];
    let shown = command::infeed().args(pattern).current_dir(dir.path()).output().unwrap();
    assert!(text(&shown.stdout).contains("records         20"), "{shown:?}");
}

#[test]
fn inspect_tells_boxes_by_their_classes() {
    let dir = coco();
    let file = path(dir.path(), "annotations/instances_train2017.json");
    let images = path(dir.path(), "train2017");
    let shown = ok(&["inspect", &images, "--annotations", &file]);
    for part in
        ["coco", "boxes, at most 3 per image, without masks", "3 boxes: 2 dog, 1 person", "0 boxes", "1 box: 1 person"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let found = ok(&["inspect", &images, "--annotations", &file, "--masks", "--json", "-"]);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["fields"][1]["describe"], "boxes, at most 3 per image, with masks");
    let first = &found["first_records"][0];
    assert_eq!(first["instances"]["instances"], json!({"boxes": 3, "classes": {"dog": 2, "person": 1}}));
    assert_eq!((&first["labels"]["image_id"], &first["width"]), (&json!(10), &json!(32)));
}

#[test]
fn inspect_counts_key_points() {
    let dir = coco();
    let file = path(dir.path(), "annotations/person_keypoints_train2017.json");
    let args = ["inspect", &path(dir.path(), "train2017"), "--annotations", &file];
    let shown = ok(&args);
    for part in ["without masks, 3 key points each", "1 box: 1 person; 3 key points", "1 box: 1 person; 0 key points"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let found: Value = serde_json::from_str(&ok(&[&args[..], &["--json", "-"]].concat())).unwrap();
    let first = &found["first_records"][0]["instances"]["instances"];
    assert_eq!(*first, json!({"boxes": 1, "classes": {"person": 1}, "keypoints": 3}));
}

#[test]
fn inspect_tells_the_boxes_of_voc() {
    let dir = voc();
    let shown = ok(&["inspect", dir.path().to_str().unwrap()]);
    assert!(shown.contains("voc") && shown.contains("1 box: 1 cat"), "{shown}");
}

#[test]
fn lists_are_shown_padded_and_put_into_batches_by_their_length() {
    let dir = tempfile::tempdir().unwrap();
    let line =
        |i: usize| json!({"text": format!("line {i}"), "tokens": (0..1 + i % 10).collect::<Vec<_>>()}).to_string();
    fs::write(dir.path().join("a.jsonl"), (0..200).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    let url = dir.path().to_str().unwrap();
    let shown = ok(&["inspect", url]);
    for part in ["jsonl", "list of i64, at most", "text of any length", "tokens 3", "text line 2"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let found: Value = serde_json::from_str(&ok(&["inspect", url, "--json", "-"])).unwrap();
    assert_eq!(found["first_records"][2]["lists"], json!({"tokens": 3}));
    assert_eq!((&found["fields"][1]["kind"], &found["fields"][0]["kind"]), (&json!("list"), &json!("text")));

    let whole = report(&[url, "--last-batch", "partial", "--batch-size", "32"]);
    let other = report(&[url, "--last-batch", "partial", "--batch-size", "7", "--workers", "1"]);
    assert_eq!(sum(&whole), sum(&other), "the lists of a record are the same in any batch");
    let padded = report(&[url, "--last-batch", "partial", "--batch-size", "32", "--pad", "tokens=-1"]);
    assert_ne!(sum(&padded), sum(&whole));
    assert_eq!(padded["config"]["pad"], json!({"tokens": -1.0}));

    let by_length = ["--max-tokens", "40", "--lengths", "tokens", "--batch-size", "64", "--shuffle", "3"];
    let run = report(&[&[url][..], &by_length].concat());
    // 1,100 tokens in all: at least 28 batches.
    let batches = run["batches"].as_u64().unwrap();
    assert_eq!(run["samples"], 200);
    assert!((28..60).contains(&batches), "{batches}");
    let (code, _, errors) = infeed(&["run", url, "--max-tokens", "40", "--lengths", "words", "--transform", "none"]);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("there is no list or text `words`") && errors.contains("tokens (list)"), "{errors}");
    let (code, _, errors) = infeed(&["run", url, "--pad", "tokens", "--transform", "none"]);
    assert_eq!(code, 2);
    assert!(errors.contains("write FIELD=NUMBER, such as tokens=0"), "{errors}");
}
