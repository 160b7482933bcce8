//! What a shell has of the command line: completions and manual pages, short options, words that were mistyped, and quiet.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    command::{infeed, ok, run, text},
    support::until,
};

const URL: &str = "synthetic://?count=64&height=8&width=8&classes=4";

/// Expects wrong usage, gives stderr.
fn refused(args: &[&str]) -> String {
    let output = run(args);
    let words = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {words}");
    words
}

/// Commands as the help lists them.
fn commands() -> Vec<String> {
    let help = ok(&["--help"]);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    let names: Vec<String> = names.filter(|name| *name != "help").map(str::to_owned).collect();
    assert!(names.len() >= 12 && names.iter().any(|name| name == "prepare"), "{names:?}");
    names
}

/// Long options of a command, without dashes, as its help lists them.
fn options(command: &str) -> Vec<String> {
    let help = ok(&[command, "--help"]);
    let named = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let long = line.strip_prefix("--").or_else(|| line.strip_prefix('-')?.get(1..)?.strip_prefix(", --"))?;
        long.split([' ', '=']).next().map(str::to_owned)
    });
    let named: Vec<String> = named.collect();
    assert!(named.iter().any(|name| name == "help"), "{named:?}");
    named
}

#[test]
fn completions_know_every_command_and_every_option_of_run() {
    let options = options("run");
    assert!(options.len() > 50 && options.iter().any(|name| name == "batch-size"), "{options:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = ok(&["completions", shell]);
        for command in commands() {
            assert!(script.contains(&command), "{shell}: no {command}");
        }
        for option in &options {
            let written = if shell == "fish" { format!("-l {option}") } else { format!("--{option}") };
            assert!(script.contains(&written), "{shell}: no {written}");
        }
        // Of an option that takes names, the names.
        assert!(script.contains("adaptive") && script.contains("substitute"), "{shell}");
        assert!(!script.contains("sweep-up"), "{shell} offers what is hidden");
    }
    refused(&["completions", "cmd"]);
}

#[test]
fn bash_can_read_its_completions_and_finds_an_option() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("infeed.bash");
    fs::write(&file, ok(&["completions", "bash"])).unwrap();
    let Ok(checked) = Command::new("bash").arg("-n").arg(&file).output() else {
        crate::support::skipped("there is no bash");
        return;
    };
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let asks = "source \"$1\"; COMP_WORDS=(infeed run --batch); COMP_CWORD=2; _infeed infeed --batch run; echo \"${COMPREPLY[@]}\"";
    let found = Command::new("bash").args(["-c", asks, "bash"]).arg(&file).output().unwrap();
    assert_eq!(text(&found.stdout).trim(), "--batch-size", "{}", text(&found.stderr));
}

#[test]
fn manual_pages_are_one_for_each_command_and_name_its_options() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("new").join("man1");
    ok(&["man", place.to_str().unwrap()]);
    let pages: BTreeMap<String, String> = fs::read_dir(&place)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap()))
        .collect();
    let mut names: Vec<String> = commands().iter().map(|command| format!("infeed-{command}.1")).collect();
    names.push("infeed.1".into());
    names.sort();
    assert_eq!(pages.keys().cloned().collect::<Vec<_>>(), names);
    for (name, page) in &pages {
        // Two lines before it are of the typesetter's own.
        assert!(page.lines().any(|line| line.starts_with(".TH ")), "{name}: {page}");
        assert!(page.contains("\n.SH EXAMPLES\n.nf\n"), "{name}");
        let plain = page.replace('\\', "");
        let command = name.strip_prefix("infeed-").and_then(|name| name.strip_suffix(".1"));
        for option in command.map(options).unwrap_or_default() {
            assert!(plain.contains(&format!("--{option}")), "{name}: no --{option}");
        }
    }
    assert_eq!(ok(&["man"]), pages["infeed.1"]);
    let file = place.join("infeed.1").display().to_string();
    let output = run(&["man", &file]);
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains(&file), "{}", text(&output.stderr));
}

#[test]
fn short_options_are_the_long_ones() {
    let config = |args: &[&str]| {
        let report: Value = serde_json::from_str(&ok(&[&["run", URL, "--json", "-"], args].concat())).unwrap();
        let config = &report["config"];
        ["batch_size", "epochs", "workers", "transform_name"].map(|key| config[key].clone())
    };
    let long = config(&["--batch-size", "16", "--epochs", "2", "--workers", "3", "--transform", "cifar-val"]);
    assert_eq!(long, [16.into(), 2.into(), 3.into(), Value::from("cifar-val")]);
    assert_eq!(config(&["-b", "16", "-e", "2", "-w", "3", "-t", "cifar-val"]), long);
    assert_eq!(config(&["-qb16", "-e=2", "-w3", "-tcifar-val"]), long);
    // A sweep hands on what is not its own, however it is written.
    let sweep = ["sweep", URL, "-w", "1,2", "-b16", "-e", "2", "-t", "cifar-val", "--allow-incomplete", "--json", "-"];
    let told: Value = serde_json::from_str(&ok(&sweep)).unwrap();
    let cells = told["cells"].as_array().unwrap();
    let each: Vec<_> = cells.iter().map(|cell| (&cell["workers"], &cell["batch_size"], &cell["error"])).collect();
    assert_eq!(each, [(&1.into(), &16.into(), &Value::Null), (&2.into(), &16.into(), &Value::Null)], "{told:#}");
    assert_eq!(told["options"], serde_json::json!(["-e", "2", "-t", "cifar-val", "--allow-incomplete"]));
}

#[test]
fn quiet_is_for_the_figures_and_what_went_wrong() {
    let base = ["run", URL, "-b", "8", "-t", "none", "--log-every", "1"];
    let (loud, quiet) = (run(&base), run(&[&base[..], &["--quiet"]].concat()));
    assert!(text(&loud.stdout).contains("Epoch [0][1/8]"));
    let words = text(&quiet.stdout);
    assert!(!words.contains("Epoch [") && words.contains("64 samples in 8 batches"), "{words}");
    assert_eq!(text(&quiet.stderr), "");
    // Where JSON has stdout nothing is left for stderr.
    let json = run(&[&["-q"], &base[..], &["--json", "-", "--metrics", "127.0.0.1:0"]].concat());
    assert_eq!(text(&json.stderr), "");
    assert_eq!(serde_json::from_slice::<Value>(&json.stdout).unwrap()["samples"], 64);
    assert!(text(&run(&[&base[..], &["--json", "-"]].concat()).stderr).contains("Epoch [0][1/8]"));
    // Warnings and errors stay.
    let folder = tempfile::tempdir().unwrap();
    let url = folder.path().join("photos").display().to_string();
    assert_eq!(ok(&["synth", "imagenet", &url, "--count", "4", "--classes", "1", "-q"]).lines().count(), 1);
    let class = fs::read_dir(&url).unwrap().next().unwrap().unwrap().path();
    fs::write(class.join("broken.jpg"), [0xff, 0xd8, 0xff]).unwrap();
    let bad = run(&["run", &url, "-b", "5", "-q", "--last-batch", "partial", "--on-bad-sample", "skip"]);
    assert!(bad.status.success() && text(&bad.stderr).contains("warning: bad sample"), "{}", text(&bad.stderr));
    let bad = run(&["run", &url, "-b", "5", "-q"]);
    assert!(text(&bad.stderr).contains("error: ") && text(&bad.stderr).contains("broken.jpg"), "{}", text(&bad.stderr));
    refused(&["run", URL, "--quiet", "--live"]);
}

#[test]
fn what_was_mistyped_is_answered_with_what_was_meant() {
    for (args, words) in [
        (&["run", URL, "-t", "imagenet-trian"][..], "did you mean imagenet-train?"),
        (&["run", URL, "-t", "imagenet"], "did you mean imagenet-train?"),
        (&["run", URL, "-t", "dimo"], "did you mean dino?"),
        (&["run", URL, "-t", "random_resize_crop:224;normalize"], "did you mean random_resized_crop?"),
        (&["run", URL, "-t", "RandomResizedCrop:224"], "did you mean random_resized_crop?"),
        (&["run", URL, "-t", "center_crop:8;to_flaot"], "did you mean to_float?"),
        (&["run", URL, "-t", "resnet50"], "use one of imagenet-train"),
        // Before a dataset is looked for.
        (&["run", "/no/such/folder", "-t", "imagenet-trian"], "did you mean imagenet-train?"),
        (&["inspect", "/no/such/folder", "--sheet", "x.png", "-t", "cifar-tarin"], "did you mean cifar-train?"),
        (&["run", URL, "--batch-size", "64k"], "use a number of samples without a unit, such as 64 or 64000"),
        (&["run", URL, "-b", "many"], "use a number of samples, such as 256"),
        (&["sweep", URL, "-b", "64,128k"], "such as 128 or 128000"),
        (&["run", URL, "-w", "all"], "use a whole number such as 8, or auto"),
        (&["run", URL, "--dtype", "fp16"], "'f16'"),
        (&["run", URL, "--batchsize", "3"], "--batch-size"),
        (&["inspct", URL], "'inspect'"),
    ] {
        let said = refused(args);
        assert!(said.contains(words), "{args:?}: no {words:?} in {said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let url = folder.path().join("photos").display().to_string();
    ok(&["synth", "imagenet", &url, "--count", "2", "--classes", "1"]);
    let said = refused(&["run", &url, "--format", "floder"]);
    assert!(said.contains("unknown format `floder`") && said.contains("did you mean folder? use one of"), "{said}");
}

#[test]
fn labels_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let url = folder.path().join("photos").display().to_string();
    ok(&["synth", "imagenet", &url, "--count", "3", "--classes", "1"]);
    let class = fs::read_dir(&url).unwrap().next().unwrap().unwrap().path();
    let mut names: Vec<_> = fs::read_dir(&class).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let relative = |n: usize| names[n].strip_prefix(&url).unwrap().display().to_string();
    let table = folder.path().join("labels.csv").display().to_string();
    let lines = format!("file,label\n{},cat\n{},dog\n{},cat\n", relative(0), relative(1), relative(2));
    fs::write(&table, lines).unwrap();
    let told: Value = serde_json::from_str(&ok(&["inspect", &url, "--labels", &table, "--json", "-"])).unwrap();
    assert_eq!(told["class_names"], serde_json::json!(["cat", "dog"]));
    let labels: Vec<_> =
        told["first_records"].as_array().unwrap().iter().map(|r| r["labels"]["label"].clone()).collect();
    assert_eq!(labels, [0, 1, 0], "{told:#}");
    // Some of the images, in a table of several columns.
    fs::write(&table, format!("scan dose who\n{} 12 x\n{} 2 y\n", relative(0), relative(2)).replace(' ', "\t"))
        .unwrap();
    let some = ["inspect", &url, "--labels", &table, "--label-column", "dose"];
    assert!(text(&run(&some).stderr).contains("1 of 3 images have no label"));
    let told: Value = serde_json::from_str(&ok(&[&some[..], &["--labels-only", "--json", "-"]].concat())).unwrap();
    let labels: Vec<_> = told["first_records"].as_array().unwrap().iter().map(|r| &r["labels"]["label"]).collect();
    assert_eq!(labels, [12, 2], "{told:#}");
    assert!(refused(&["run", URL, "--labels", &table]).contains("labels"));
}

#[test]
fn a_run_that_was_stopped_says_after_how_much() {
    let base = ["run", URL, "-b", "8", "-e", "3", "-t", "none"];
    let line = |args: &[&str]| {
        let told = ok(&[&base[..], args].concat());
        told.lines()
            .find(|line| line.trim_start().starts_with("stopped"))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    assert_eq!(line(&[]), None);
    let stopped = |words: &str| Some(format!("stopped by {words}"));
    // Epochs are counted as the lines above count them: `Epoch [0][8/8]`, `Epoch [1][3/8]`.
    let (three, eight) = ("3 of 8 in epoch 1 (of epochs 0 to 2)", "8 of 8 in epoch 0 (of epochs 0 to 2)");
    let words = format!("--max-batches after 11 of 24 batches: {three}");
    assert_eq!(line(&["--max-batches", "11", "--log-every", "1"]), stopped(&words));
    assert_eq!(line(&["--max-batches", "8"]), stopped(&format!("--max-batches after 8 of 24 batches: {eight}")));
    assert_eq!(line(&["--max-batches", "24"]), None);
    let one = ok(&["run", URL, "-b", "8", "-t", "none", "--max-batches", "3"]);
    assert!(one.contains("by --max-batches after 3 of 8 batches\n"), "{one}");
    let words = "--max-time after 1 of 24 batches: 1 of 8 in epoch 0 (of epochs 0 to 2)";
    assert_eq!(line(&["--max-time", "0ms"]), stopped(words));
    let told = ok(&[&base[..], &["--max-batches", "11", "--json", "-"]].concat());
    let ended = &serde_json::from_str::<Value>(&told).unwrap()["ended"];
    let want = serde_json::json!({"by": "--max-batches", "epoch": 1, "batches_of_epoch": 3, "batches_per_epoch": 8, "epochs": 3});
    assert_eq!(*ended, want);
}

#[cfg(unix)]
#[test]
fn a_run_that_ctrl_c_stopped_says_after_how_much() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let args = ["run", URL, "-b", "8", "-e", "1000", "-t", "none", "--step-time", "20ms", "--log-every", "1"];
    let mut command = infeed();
    command.args(args).arg("--state").arg(&state);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("there is no state", || state.exists());
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let words = text(&ended.stdout);
    assert_eq!(ended.status.code(), Some(130), "{words}");
    let line = words.lines().find(|line| line.trim_start().starts_with("stopped")).unwrap_or_else(|| panic!("{words}"));
    assert!(line.contains("by Ctrl-C (SIGINT) after ") && line.contains(" of 8,000 batches: "), "{line}");
    assert!(line.trim_end().ends_with("(of epochs 0 to 999)"), "{line}");
    let last = text(&ended.stderr);
    let last = last.lines().last().unwrap_or_default();
    let after = line.split_once("after ").and_then(|(_, after)| after.split_once(':')).unwrap().0;
    assert_eq!(last, format!("stopped by Ctrl-C (SIGINT) after {after}; continue with --resume and the state file"));
}
