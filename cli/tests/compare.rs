//! `infeed compare`: what it takes, what it tells, and that what is not the same work is not called faster in silence.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{infeed, run, text};

const URL: &str = "synthetic://?count=64&height=8&width=8&classes=4";

/// Expects success, gives stdout and stderr.
fn ok(args: &[&str]) -> (String, String) {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {:?}\n{}", output.status, text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// `infeed compare … --json -`: the figures, and what was said.
fn compared(args: &[&str]) -> (Value, String) {
    let (json, words) = ok(&[&["compare", "--json", "-"], args].concat());
    (serde_json::from_str(&json).expect("stdout is one JSON document"), words)
}

/// CIFAR-10's files of 200 pictures.
fn cifar() -> (TempDir, String) {
    let dir = tempfile::tempdir().expect("a temp folder");
    let path = dir.path().join("cifar 10").display().to_string();
    ok(&["synth", "cifar10", &path, "--count", "200", "--seed", "3"]);
    (dir, path)
}

/// Every key with the way to it.
fn keys(value: &Value, way: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            let way = format!("{way}.{key}");
            keys(value, &way, found);
            found.push(way);
        }),
        Value::Array(list) => list.iter().for_each(|value| keys(value, &format!("{way}[]"), found)),
        _ => {}
    }
}

#[test]
fn datasets_and_lines_of_options_are_compared_in_turn() {
    let (folder, cifar) = cifar();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (page, json) = (file("compare.md"), file("compare.json"));
    let line = format!("'{cifar}' -w 1 --prefetch 2");
    let shared = ["-b", "20", "-e", "2", "-t", "cifar-val", "--checksum"];
    // A folder with a space in its name is no line of options.
    let asked = ["compare", &cifar, &line, "--rounds", "3", "--warmup", "1", "--name", "two|files"];
    let files = ["--export-markdown", &page, "--json", &json, "--"];
    let (out, _) = ok(&[&asked[..], &files, &shared].concat());
    let name = format!("'{}'", line.replace('\'', "'\\''"));
    let turns: Vec<&str> =
        out.lines().filter(|line| line.starts_with("warm-up ") || line.starts_with("round ")).collect();
    assert_eq!(turns.len(), 4, "{out}");
    assert!(turns[0].starts_with("warm-up 1: 'two|files' ") && turns[3].starts_with("round 3: "), "{out}");
    assert!(turns[3].contains(&name), "{out}");
    for words in ["× (", " as fast as ", "equal work: 400 samples of 200 records, ", "checksum "] {
        assert!(out.contains(words), "no {words:?} in {out}");
    }

    let mut told: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!((&told["rounds"], &told["warmup_rounds"]), (&3.into(), &1.into()));
    assert_eq!(told["shared"], serde_json::json!(shared));
    let all = told["configurations"].as_array().unwrap();
    assert_eq!((&all[0]["name"], &all[1]["name"]), (&"two|files".into(), &line.as_str().into()));
    assert_eq!(all[0]["arguments"][0], cifar.as_str());
    let own: Vec<&Value> = all[1]["arguments"].as_array().unwrap().iter().take(5).collect();
    assert_eq!(own, [cifar.as_str(), "-w", "1", "--prefetch", "2"]);
    for one in all {
        let runs = one["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 3, "{one:#}");
        let rates: Vec<f64> = runs.iter().map(|run| run["samples_per_second"].as_f64().unwrap()).collect();
        assert!(rates.iter().all(|rate| *rate > 0.0), "{one:#}");
        let spread = |key: &str| one["samples_per_second"][key].as_f64().unwrap();
        assert_eq!(spread("min"), rates.iter().copied().fold(f64::INFINITY, f64::min));
        assert_eq!(spread("max"), rates.iter().copied().fold(0.0, f64::max));
        assert!(spread("min") <= spread("median") && spread("median") <= spread("max"));
        assert!(runs.iter().all(|run| run["samples"] == 400 && run["checksum"] == all[0]["runs"][0]["checksum"]));
    }
    // The ratio of each round is of the two runs of that round.
    let ratio = &told["ratios"][0];
    let rate = |name: &Value, round: usize| {
        let one = all.iter().find(|one| one["name"] == *name).unwrap();
        one["runs"][round]["samples_per_second"].as_f64().unwrap()
    };
    assert_eq!(ratio["name"], told["fastest"]);
    for round in 0..3 {
        let want = rate(&ratio["name"], round) / rate(&ratio["to"], round);
        assert!((ratio["rounds"][round].as_f64().unwrap() - want).abs() < 1e-9, "{ratio:#}");
    }

    let page = fs::read_to_string(&page).unwrap();
    let rows: Vec<&str> = page.lines().take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 4, "{page}");
    assert!(rows[2].starts_with(r"| `two\|files` | ") && page.contains("Medians of 3 rounds in turn"), "{page}");

    // Whatever a system tells of its cores.
    for one in told["configurations"].as_array_mut().unwrap() {
        one["runs"].as_array_mut().unwrap().iter_mut().for_each(|run| run["busy"] = Value::Null);
    }
    let mut found = Vec::new();
    keys(&told, "", &mut found);
    found.sort();
    found.dedup();
    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn config_files_are_compared_and_a_configurations_own_options_count() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let old = file("old.toml", "batch_size = 8\nworkers = 1\n");
    let new = file("new.toml", "batch_size = 8\nworkers = 2\n");
    let shared = ["--rounds", "1", "--warmup", "0", "--", URL, "-t", "none", "-e", "2"];
    let (told, words) = compared(&[&[&*old, &new, "-e 4 -b 8"], &shared[..]].concat());
    let all = told["configurations"].as_array().unwrap();
    assert_eq!(all[0]["arguments"], serde_json::json!(["--config", old, URL, "-t", "none", "-e", "2"]));
    assert_eq!(all[2]["arguments"], serde_json::json!(["-e", "4", "-b", "8", URL, "-t", "none"]));
    let samples: Vec<&Value> = all.iter().map(|one| &one["runs"][0]["samples"]).collect();
    assert_eq!(samples, [128, 128, 256]);
    assert_eq!(told["ratios"].as_array().unwrap().len(), 2);
    assert!(words.contains("in one round, which shows no spread"), "{words}");
}

#[test]
fn other_work_is_told_and_not_called_equal() {
    let (_folder, cifar) = cifar();
    let shared = ["--rounds", "2", "--warmup", "0", "--", &cifar, "-b", "30", "-t", "cifar-val", "-e", "1"];
    let (told, words) = compared(&[&["", "--last-batch=partial"], &shared[..]].concat());
    let work = "samples of a run: 'as given' 180, --last-batch=partial 200";
    assert_eq!(told["differences"][0], work);
    assert!(words.contains(&format!("warning: the configurations did not do the same work: {work}")), "{words}");
    assert!(!words.contains("equal work"), "{words}");
    // The same samples, other rows of them.
    let (told, words) = compared(&[&["", "--dtype f16"], &shared[..], &["--checksum"]].concat());
    assert!(told["differences"][0].as_str().unwrap().starts_with("checksum: 'as given' "), "{told:#}");
    assert!(words.contains("did not do the same work"), "{words}");
}

#[test]
fn what_is_wrong_with_a_configuration_is_told_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.toml").display().to_string();
    let nowhere = folder.path().join("no/such.json").display().to_string();
    for (args, code, words) in [
        // Before anything runs,
        (&["", "-w many", "--", URL][..], 2, "error: '-w many': invalid value 'many'"),
        (&["-w 1", "-w 2"], 2, "error: '-w 1': it names no dataset"),
        (&["", "--json x", "--", URL], 2, "error: '--json x': --json is not for a run that is one of many"),
        (&[URL], 2, "2 values required"),
        (&[URL, URL, "--rounds", "0"], 2, "--rounds"),
        (&[URL, URL, "--round", "3"], 2, "--rounds"),
        (&[URL, URL, "--json", &nowhere], 1, "no/such.json"),
        // and from its run.
        (&["-w 1", "-w 0", "--", URL, "-b", "8", "-e", "1"], 2, "error: '-w 0': config: --workers is 0"),
        (&[URL, "/no/such/folder", "--", "-b", "8", "-e", "1"], 1, "error: /no/such/folder: "),
        (&["", &missing, "--", URL, "-b", "8", "-e", "1"], 1, "missing.toml"),
    ] {
        let output = run(&[&["compare"], args].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: no {words:?} in {said}");
    }
    // The help of what stands behind `--` is that of `run`.
    for given in [["", "-w 2"], [URL, "/no/such/folder"]] {
        assert!(
            ok(&[&["compare"], &given[..], &["--", "--help"]].concat()).0.contains("Usage: infeed run"),
            "{given:?}"
        );
    }
}

#[test]
fn what_a_run_warns_of_is_told_once_with_its_name() {
    let (_folder, cifar) = cifar();
    let shared = ["--rounds", "2", "--", &cifar, "-b", "50", "-t", "cifar-val", "-e", "1"];
    let (_, words) = compared(&[&["", "--cache ram:1MiB"], &shared[..]].concat());
    let told = "warning: '--cache ram:1MiB': the dataset is not read from a remote store: the cache is not used";
    assert_eq!(words.matches(told).count(), 1, "{words}");
    assert_eq!(words.matches("the cache is not used").count(), 1, "{words}");
}

#[cfg(unix)]
#[test]
fn a_comparison_that_is_stopped_tells_the_rounds_it_finished() {
    let folder = tempfile::tempdir().unwrap();
    let [json, page] = ["compare.json", "compare.md"].map(|name| folder.path().join(name).display().to_string());
    let asked = ["compare", "-w 1", "-w 2", "--rounds", "1000000", "--warmup", "0", "--json", &json];
    let shared = ["--export-markdown", &page, "--", URL, "-t", "none", "-b", "8", "-e", "1"];
    let mut child = infeed();
    child.args(asked).args(shared).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert!(line.starts_with("round 1: '-w 1' "), "{line}");
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143), "{rest}");
    let said = text(&ended.stderr);
    let words = " of 1000000 rounds; the figures are those of the rounds before it";
    assert!(said.contains("stopped by SIGTERM after ") && said.contains(words), "{said}");
    assert!(rest.contains(" as fast as ") && Path::new(&page).exists(), "{rest}");
    let told: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let finished = told["rounds"].as_u64().unwrap();
    assert!(finished >= 1, "{told:#}");
    for one in told["configurations"].as_array().unwrap() {
        assert_eq!(one["runs"].as_array().unwrap().len() as u64, finished, "whole rounds alone");
    }
}
