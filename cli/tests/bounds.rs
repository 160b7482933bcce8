//! Files beside the data that are huge: each is refused by its size, with what raises the bound, and nothing holds it.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::{
    command::{BINARY, ok, program, run, text},
    support::photos::jpeg,
};

/// More than a process here may have, see [`bounded`].
const HUGE: u64 = 6 << 30;
const LIMIT: &str = "INFEED_SIDE_FILE_LIMIT";

/// A file that has this at its beginning, and zeros without blocks of the disk behind it.
fn huge(path: &Path, begin: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, begin).unwrap();
    File::options().write(true).open(path).unwrap().set_len(HUGE).unwrap();
}

fn small(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// The binary in a process that may have 4 GiB of addresses.
fn bounded() -> Command {
    let mut command = program("sh");
    let limit = if cfg!(target_os = "linux") { "ulimit -v 4194304; " } else { "" };
    command.args(["-c", &format!("{limit}exec \"$0\" \"$@\""), BINARY]).env("MALLOC_ARENA_MAX", "2");
    command
}

fn refused(output: &Output, file: &Path, case: &str) {
    let words = text(&output.stderr);
    assert!(!output.status.success(), "{case}");
    assert!(words.contains(&file.display().to_string()), "{case}: {words}");
    assert!(words.contains(&format!("{HUGE} bytes")) && words.contains(&format!("{LIMIT}=6GiB")), "{case}: {words}");
}

/// Folder, huge file in it and what it begins with, other files, and options; `@` is the folder.
type Case = (&'static str, &'static str, &'static str, &'static [&'static str], &'static [&'static str]);

/// It is read in parts, and made anew where it is none.
#[test]
fn a_huge_index_of_shards_takes_no_memory() {
    for version in 1..=4 {
        let dir = TempDir::new().unwrap();
        small(&dir.path().join("x.tar"), [0; 4096]);
        let index = dir.path().join("shards.infeed");
        huge(&index, &format!("infeed shards {version}\n"));
        let mut command = bounded();
        let output = command.arg("run").arg(dir.path()).args(["--batch-size", "1", "--quiet"]).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("the index of shards is not used") && said.contains("shards.infeed"), "{said}");
        assert!(said.contains("the shards hold no samples"), "{said}");
    }
}

#[test]
fn a_huge_file_beside_the_data_is_refused_wherever_it_lies() {
    let cases: &[Case] = &[
        ("labels", "labels.csv", "file,label\na.jpg,1\n", &["a.jpg"], &["--labels", "labels.csv"]),
        (
            "labels elsewhere",
            "far/labels.csv",
            "file,label\na.jpg,1\n",
            &["a/a.jpg"],
            &["--labels", "@/far/labels.csv"],
        ),
        ("JSON of labels", "labels.json", "{\"a.jpg\":1}", &["a.jpg"], &["--labels", "labels.json"]),
        ("metadata", "metadata.csv", "file_name,label\na.jpg,1\n", &["a.jpg"], &[]),
        ("JSON lines", "metadata.jsonl", "{\"file_name\":\"a.jpg\"}\n", &["a.jpg"], &[]),
        ("COCO", "annotations.json", "{\"images\":[", &["a.jpg"], &["--annotations", "annotations.json"]),
        ("COCO's own place", "annotations/instances_train.json", "{\"images\":[", &["train/a.jpg"], &[]),
        ("VOC", "Annotations/a.xml", "<annotation>", &["JPEGImages/a.jpg"], &[]),
        (
            "a list of VOC",
            "ImageSets/Main/train.txt",
            "a\n",
            &["JPEGImages/a.jpg", "Annotations/a.xml"],
            &["--split", "train"],
        ),
        ("YOLO", "labels/a.txt", "0 0.5 0.5 0.5 0.5\n", &["images/a.jpg"], &[]),
        ("classes of YOLO", "data.yaml", "names: [cat]\n", &["images/a.jpg", "labels/a.txt"], &[]),
        ("a list of YOLO", "train.txt", "a.jpg\n", &["images/a.jpg", "labels/a.txt"], &["--split", "train"]),
        ("MDS", "index.json", "{\"version\":2,\"shards\":[", &["shard.00000.mds"], &[]),
        ("an index of a shard", "x.infeed", "infeed shards 1\n", &["x.tar"], &[]),
        ("DALI's index", "x.idx", "v1.2 1\n", &["x.tar"], &[]),
        ("Zarr", "x.zarr/zarr.json", "{\"zarr_format\":3", &["x.zarr/c/0"], &[]),
        ("CIFAR's classes", "batches.meta.txt", "cat\n", &["data_batch_1.bin"], &[]),
        ("a list of records", "far/list.txt", "0\n", &["a/a.jpg"], &["--record-list", "@/far/list.txt"]),
        ("weights", "far/weights.txt", "1\n", &["a/a.jpg"], &["--weights", "@/far/weights.txt"]),
        ("a state", "far/state", "{\"version\":1", &["a/a.jpg"], &["--resume", "@/far/state"]),
        ("settings", "far/loader.toml", "batch_size = 1\n", &["a/a.jpg"], &["--config", "@/far/loader.toml"]),
        ("steps", "far/steps.json", "[]", &["a/a.jpg"], &["--transform", "@/far/steps.json"]),
        ("a listing", "far/listing", "", &["a/a.jpg"], &["--listing", "@/far/listing"]),
    ];
    for (case, file, begin, others, options) in cases {
        if *case == "Zarr" && !cfg!(feature = "zarr") {
            continue;
        }
        let dir = TempDir::new().unwrap();
        for name in *others {
            match name.rsplit_once('.') {
                Some((_, "jpg")) => small(&dir.path().join(name), jpeg(1, 32, 32)),
                Some((_, "bin")) => small(&dir.path().join(name), [0; 3073]),
                Some((_, "xml")) => small(&dir.path().join(name), "<annotation></annotation>"),
                Some((_, "txt")) => small(&dir.path().join(name), "0 0.5 0.5 0.5 0.5\n"),
                _ => small(&dir.path().join(name), [0; 4096]),
            }
        }
        let file = dir.path().join(file);
        huge(&file, begin);
        let root = dir.path().to_str().unwrap();
        let url = if others[0].starts_with("a/") { format!("{root}/a") } else { root.to_owned() };
        let mut command = bounded();
        command.args(["run", &url, "--batch-size", "1", "--quiet"]);
        command.args(options.iter().map(|option| option.replace('@', root)));
        refused(&command.output().unwrap(), &file, case);
    }
}

#[test]
fn what_earlier_runs_left_is_bounded_too() {
    let dir = TempDir::new().unwrap();
    let photos = dir.path().join("photos");
    small(&photos.join("a.jpg"), jpeg(1, 32, 32));
    let url = photos.to_str().unwrap();
    // A sweep goes on from its file, a copy from its list.
    let sweep = dir.path().join("sweep.json");
    huge(&sweep, "{\"version\":1");
    let output =
        bounded().args(["sweep", url, "--batch-size", "1", "--out", sweep.to_str().unwrap()]).output().unwrap();
    refused(&output, &sweep, "sweep");
    let copy = dir.path().join("copy");
    ok(&["stage", url, copy.to_str().unwrap()]);
    let list = copy.join(".infeed-stage/manifest.jsonl");
    File::options().write(true).open(&list).unwrap().set_len(HUGE).unwrap();
    refused(&bounded().args(["stage", url, copy.to_str().unwrap()]).output().unwrap(), &list, "stage");
    // An index of decoding is looked up in its file.
    let index = dir.path().join("index");
    huge(&index, "");
    let output = bounded()
        .args([
            "run",
            url,
            "--batch-size",
            "1",
            "--transform",
            "resize_exact:32",
            "--decode-index",
            index.to_str().unwrap(),
        ])
        .output()
        .unwrap();
    let words = text(&output.stderr);
    assert!(output.status.code() == Some(1) && words.contains(index.to_str().unwrap()), "{words}");
}

#[test]
fn the_variable_says_how_much_and_a_wrong_one_is_told() {
    let dir = TempDir::new().unwrap();
    small(&dir.path().join("a.jpg"), jpeg(1, 32, 32));
    small(&dir.path().join("labels.csv"), "file,label\na.jpg,1\n");
    let with = |limit: &str| {
        let mut command = bounded();
        command.args(["inspect", dir.path().to_str().unwrap(), "--labels", "labels.csv"]).env(LIMIT, limit);
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(with("1KiB").0, Some(0));
    let (code, words) = with("10B");
    assert!(code == Some(1) && words.contains("the limit is 10 bytes"), "{words}");
    let (code, words) = with("much");
    assert!(code == Some(2) && words.contains(&format!("{LIMIT} is \"much\"")), "{words}");
}

#[test]
fn a_changed_digit_of_a_state_is_told() {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("state");
    let file = state.to_str().unwrap();
    let all = ["run", "synthetic://?count=64&height=8&width=8", "--batch-size", "8", "--shuffle", "1"];
    ok(&[&all[..], &["--max-batches", "3", "--state", file]].concat());
    let whole = fs::read_to_string(&state).unwrap();
    let resume = || run(&[&all[..], &["--epochs", "9", "--resume", file]].concat());
    for (part, other) in
        [("\"epoch\":0", "\"epoch\":2"), ("\"position\":24", "\"position\":25"), ("\"samples\":24", "\"samples\":23")]
    {
        assert!(whole.contains(part), "{whole}");
        fs::write(&state, whole.replace(part, other)).unwrap();
        let output = resume();
        let words = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && words.contains("checksum") && words.contains(file),
            "{part}: {words}"
        );
    }
    // As earlier versions wrote it: without sums of its own.
    let mut old: serde_json::Value = serde_json::from_str(&whole).unwrap();
    old.as_object_mut().unwrap().remove("file_checksum").expect("the file's");
    old["state"].as_object_mut().unwrap().remove("checksum").expect("the state's");
    fs::write(&state, old.to_string()).unwrap();
    assert!(resume().status.success());
    fs::write(&state, whole).unwrap();
    assert!(resume().status.success());
}
