//! Shards that the command line prepares: the same bytes however the work was done, and nobody's files in danger.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    command::{assert_same, infeed, ok, program, run, text, tree},
    support::{
        files_below,
        photos::{self, photos},
        s3::{Fault, Rule, S3Server},
        until,
    },
};

fn same(a: &str, b: &str) {
    assert_same(&tree(Path::new(a)), &tree(Path::new(b)));
}

fn records(url: &str) -> Value {
    serde_json::from_str::<Value>(&ok(&["inspect", url, "--json", "-"])).unwrap()["records"].clone()
}

#[test]
fn a_killed_run_goes_on_and_gives_the_same_bytes() {
    let dirs = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let [whole, killed] = dirs.each_ref().map(|dir| dir.path().to_str().unwrap());
    let args = |out| ["prepare", photos(), out, "--shorter", "200", "--parts", "8", "--workers", "1"];
    ok(&args(whole));
    let mut child = infeed().args(args(killed)).stdout(Stdio::null()).spawn().unwrap();
    let finished = Path::new(killed).join("shard-000001.infeed");
    until("no shard is finished", || finished.exists() || child.try_wait().unwrap().is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    ok(&args(killed));
    same(whole, killed);
}

#[test]
fn tasks_of_an_array_share_the_work() {
    let dirs = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let [whole, tasks] = dirs.each_ref().map(|dir| dir.path().to_str().unwrap());
    let start = |out: &str, vars: &[(&str, &str)]| {
        infeed().args(["prepare", photos(), out, "--parts", "5"]).envs(vars.iter().copied()).output().unwrap()
    };
    assert!(start(whole, &[]).status.success());
    for task in ["1", "2", "3"] {
        let min_max = [("SLURM_ARRAY_TASK_MIN", "1"), ("SLURM_ARRAY_TASK_MAX", "3"), ("SLURM_ARRAY_TASK_COUNT", "3")];
        let done = start(tasks, &[&min_max[..], &[("SLURM_ARRAY_TASK_ID", task)]].concat());
        let said = text(&done.stdout);
        assert!(done.status.success() && said.contains("of 3 by SLURM_ARRAY_TASK_ID"), "{said}");
    }
    same(whole, tasks);
    let refused = start(tasks, &[("PBS_ARRAY_INDEX", "2")]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("PBS_ARRAY_INDEX is 2"));
}

#[test]
fn shards_of_one_rank_are_read_where_it_is_said_that_they_will_do() {
    let out = TempDir::new().unwrap();
    let url = out.path().to_str().unwrap();
    ok(&["prepare", photos(), url, "--parts", "3", "--rank", "0", "--world-size", "3"]);
    let refused = run(&["run", url]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("--allow-incomplete"));
    ok(&["run", url, "--allow-incomplete", "--batch-size", "2"]);
}

#[test]
fn a_folder_of_other_files_is_refused_by_name_and_left_alone() {
    let out = TempDir::new().unwrap();
    fs::create_dir(out.path().join("notes")).unwrap();
    fs::write(out.path().join("notes/a.txt"), "mine").unwrap();
    let url = out.path().to_str().unwrap();
    let refused = run(&["prepare", photos(), url]);
    let words = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{words}");
    assert!(words.contains("notes/a.txt") && words.contains("name a new or empty folder"), "{words}");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1, "nothing is begun");
    // The dataset's own folder is one of those.
    let refused = run(&["prepare", photos(), photos()]);
    assert!(!refused.status.success() && text(&refused.stderr).contains(".JPEG"));
    // Names that begin with a dot are nobody's data, and what comes beside shards later does no harm.
    fs::remove_dir_all(out.path().join("notes")).unwrap();
    fs::write(out.path().join(".keep"), "").unwrap();
    let half = |rank| ok(&["prepare", photos(), url, "--parts", "4", "--rank", rank, "--world-size", "2"]);
    half("0");
    fs::write(out.path().join("README.md"), "photographs").unwrap();
    half("1");
    assert_eq!(records(url), photos::COUNT);
}

#[test]
fn a_photograph_that_cannot_be_decoded_is_left_out_where_that_is_said() {
    let (source, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    photos::write(source.path(), 10, 1);
    let bad = files_below(source.path()).swap_remove(7);
    fs::write(&bad, [0xff, 0xd8, 0xff]).unwrap();
    let place = |name: &str| out.path().join(name).display().to_string();
    let tried = |policy: &str| {
        let policy = [&place(policy), "--resize", "32x32", "--on-bad-sample", policy, "--max-unreadable", "0"];
        run(&[&["prepare", source.path().to_str().unwrap()], &policy[..]].concat())
    };
    assert_eq!(tried("stop").status.code(), Some(1));
    let skipped = tried("skip");
    let said = text(&skipped.stderr);
    assert!(skipped.status.success() && said.contains(bad.file_name().unwrap().to_str().unwrap()), "{said}");
    assert_eq!(records(&place("skip")), 9);
    assert_eq!(tried("substitute").status.code(), Some(2));
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_says_what_is_done_and_how_to_go_on() {
    let dirs = [TempDir::with_prefix("a b").unwrap(), TempDir::with_prefix("a b").unwrap()];
    let [whole, stopped] = dirs.each_ref().map(|dir| dir.path().to_str().unwrap());
    let server = S3Server::start();
    // Several batches of the packer.
    (0..4).for_each(|copy| server.put_folder(photos(), &format!("photos/{copy}")));
    let url = server.url("photos");
    let start = |out| {
        let args = ["prepare", &url, out, "--quality", "90", "--parts", "12", "--workers", "1"];
        infeed().args(args).envs(server.env()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let made = start(whole).wait_with_output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    // The last photograph does not come before the run was told to stop.
    let last = files_below(Path::new(photos())).pop().unwrap();
    let last = format!("photos/3/{}", last.strip_prefix(photos()).unwrap().display());
    server.rule(Rule::new(Fault::StallBeforeHead(Duration::from_secs(3600))).key(&last));
    let child = start(stopped);
    until("no shard is finished", || Path::new(stopped).join("shard-000001.infeed").exists());
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let (told, last) = (text(&ended.stdout), text(&ended.stderr));
    assert_eq!(ended.status.code(), Some(130), "{told}{last}");
    assert!(last.contains("stopped by Ctrl-C (SIGINT); the same command continues"), "{last}");
    assert!(
        told.contains(" of 96 records were packed; ") && told.contains(" of 12 shards are finished and stay"),
        "{told}"
    );
    let line = told.lines().last().unwrap().split_once("To continue: ").unwrap().1;
    // The line is the command, as a shell takes it.
    assert!(line.contains(&format!("'{stopped}'")), "{line}");
    server.heal();
    let again = program("sh").args(["-c", line]).envs(server.env()).output().unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(text(&again.stdout).contains("were there"), "what was finished is not made again");
    same(whole, stopped);
}
