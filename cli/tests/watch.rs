//! Those who look on: the live view, Prometheus, OpenTelemetry. None of them changes a run.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Mutex, PoisonError, mpsc::RecvTimeoutError},
};

use serde_json::Value;

use crate::{
    command::{in_terminal, infeed},
    support::{PATIENCE, skipped, until},
};

const DATA: &str = "synthetic://?count=640&height=8&width=8&classes=10";

/// Also of output that is not whole yet.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("the report was written")).expect("it is one JSON document")
}

fn wait(child: &mut Child) -> ExitStatus {
    until("the run does not end", || child.try_wait().expect("the child is ours").is_some());
    child.wait().expect("the child is ours")
}

// ---- the live view

const ENTERED: &str = "\u{1b}[?1049h";
const LEFT: &str = "\u{1b}[?1049l";

/// Runs in a pseudo terminal of 100 x 40; keys are typed once the view has shown each of those words.
fn at_terminal(args: &str, keys: Option<(&[&'static str], &[u8])>) -> Option<(ExitStatus, String)> {
    // One at a time: they draw and wait in real time.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = in_terminal(100, args)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("script starts");
    let mut screen = child.stdout.take().expect("piped");
    let (seen, came) = std::sync::mpsc::channel();
    let mut words = keys.map_or(Vec::new(), |(words, _)| words.to_vec());
    let reader = std::thread::spawn(move || {
        let (mut all, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = screen.read(&mut part) {
            all.extend_from_slice(&part[..n]);
            if words.is_empty() {
                continue;
            }
            // As it is shown: what is sent are the cells that change, and a blank one may not.
            let shown = text(&all).split_once(ENTERED).map_or(String::new(), |(_, view)| drawn(view));
            words.retain(|word| !shown.contains(word));
            if words.is_empty() {
                let _ = seen.send(());
            }
        }
        text(&all)
    });
    let mut keyboard = child.stdin.take().expect("piped");
    if let Some((words, keys)) = keys {
        // Ended before anybody saw it: the status and the screen say why.
        assert_ne!(came.recv_timeout(PATIENCE), Err(RecvTimeoutError::Timeout), "the view does not show {words:?}");
        // Nobody may be left to read it.
        let _ = keyboard.write_all(keys);
    }
    let status = wait(&mut child);
    drop(keyboard);
    Some((status, reader.join().expect("the reader does not panic")))
}

/// What a terminal shows when text is written at places, colours left out.
fn drawn(view: &str) -> String {
    let mut cells = vec![vec![' '; 100]; 40];
    let (mut row, mut column, mut chars) = (0, 0, view.chars());
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            if let Some(cell) = cells.get_mut(row).and_then(|row: &mut Vec<char>| row.get_mut(column)) {
                *cell = c;
            }
            column += 1;
            continue;
        }
        // ESC [ parameters letter
        let order: String = chars.by_ref().take_while(|c| !c.is_ascii_alphabetic() || *c == '[').collect();
        let rest = view.len() - chars.as_str().len();
        match view[..rest].chars().last() {
            Some('H') => {
                let place: Vec<usize> = order[1..].split(';').map(|n| n.parse().unwrap_or(1)).collect();
                (row, column) = (place[0] - 1, place.get(1).map_or(0, |n| n - 1));
            }
            Some('J') => cells.iter_mut().for_each(|row| row.fill(' ')),
            _ => {}
        }
    }
    let rows = cells.into_iter().map(|row| row.into_iter().collect::<String>().trim_end().to_owned());
    rows.collect::<Vec<_>>().join("\n")
}

/// What stands on the screen after the view was left.
fn after(screen: &str) -> &str {
    assert_eq!((screen.matches(ENTERED).count(), screen.matches(LEFT).count()), (1, 1), "{screen}");
    let (view, after) = screen.split_once(LEFT).expect("the view was left");
    assert!(view.contains(ENTERED) && after.contains("\u{1b}[?25h"), "the cursor is shown again: {screen}");
    after
}

#[test]
fn a_live_run_ends_with_its_summary_on_a_terminal_that_was_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("run.json");
    let args = format!("run '{DATA}' --batch-size 64 --live --json {}", report.display());
    let Some((status, screen)) = at_terminal(&args, None) else { return };
    assert!(status.success(), "{screen}");
    let after = after(&screen);
    assert!(after.contains("640 samples in 10 batches") && !after.contains("Epoch [0]"), "{after}");
    assert_eq!(json(&report)["samples"], 640);
}

#[test]
fn q_and_ctrl_c_end_a_live_run_with_its_state_saved() {
    let dir = tempfile::tempdir().unwrap();
    let (state, report) = (dir.path().join("state.json"), dir.path().join("run.json"));
    let whole = infeed()
        .args(["run", DATA, "--checksum", "--shuffle", "3", "--batch-size", "16", "--json", "-"])
        .output()
        .unwrap();
    let whole: Value = serde_json::from_slice(&whole.stdout).unwrap();
    let options = "--checksum --shuffle 3 --batch-size 16";
    for (key, code, words) in [(&b"q"[..], 0, "640 records"), (b"\x03", 130, "stopped by Ctrl-C (SIGINT)")] {
        // Its 40 batches take longer than anybody waits here.
        let args = format!("run '{DATA}' {options} --step-time 2s --live --state {}", state.display());
        let panels = ["samples/s", "waiting", "stages", "queues", "process", "epoch 0 [", "q ends it"];
        let Some((status, screen)) = at_terminal(&args, Some((&panels, key))) else { return };
        assert_eq!(status.code(), Some(code), "{screen}");
        let told = after(&screen);
        assert!(told.contains(words) && !told.contains("640 samples"), "{screen}");
        let mut rest = infeed();
        rest.args(["run", DATA]).args(options.split(' ')).arg("--resume").arg(&state).arg("--json").arg(&report);
        let rest = rest.output().unwrap();
        assert!(rest.status.success(), "{}", text(&rest.stderr));
        let rest = json(&report);
        assert!(rest["samples"].as_u64().is_some_and(|left| left > 0 && left < 640), "{}", rest["samples"]);
        assert_eq!(rest["checksum"], whole["checksum"]);
    }
}

#[test]
fn an_error_is_told_on_a_terminal_that_was_given_back_and_so_are_warnings() {
    let dir = tempfile::tempdir().unwrap();
    let photos = dir.path().join("photos");
    let made = infeed().args(["synth", "imagenet"]).arg(&photos).args(["--count", "24", "--classes", "2"]).output();
    assert!(made.unwrap().status.success());
    let mut files: Vec<_> = fs::read_dir(photos.join("train")).or_else(|_| fs::read_dir(&photos)).unwrap().collect();
    let class = loop {
        let path = files.pop().expect("there is a class").unwrap().path();
        if path.is_dir() {
            break path;
        }
    };
    let broken = fs::read_dir(class).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&broken).unwrap();
    // A name that would clear the screen and turn what follows.
    fs::write(broken.with_file_name("a\u{9b}2J\u{202e}b.JPEG"), b"\xff\xd8\xff not a picture").unwrap();
    let url = photos.display();
    let common = format!("run {url} --batch-size 4 --live --on-bad-sample");
    let Some((status, screen)) = at_terminal(&format!("{common} stop"), None) else { return };
    assert_eq!(status.code(), Some(1), "{screen}");
    let tame = |screen: &str| screen.contains(r"a\u{9b}2J\u{202e}b") && !screen.contains(['\u{9b}', '\u{202e}']);
    assert!(after(&screen).contains("error:") && tame(&screen), "{screen:?}");
    // It goes on until the view has told of it.
    let skips = format!("{common} skip --epochs 1000000 --step-time 10ms");
    let (status, screen) = at_terminal(&skips, Some((&[" bad sample"], b"q"))).expect("it was there before");
    assert!(status.success(), "{screen}");
    assert!(
        after(&screen).contains("\u{1b}[1;33mwarning:\u{1b}[0m bad sample in epoch 0") && tame(&screen),
        "{screen:?}"
    );
}

#[test]
fn without_a_terminal_there_are_the_usual_lines() {
    let told = infeed().args(["run", DATA, "--batch-size", "64", "--live"]).output().unwrap();
    let (words, warnings) = (text(&told.stdout), text(&told.stderr));
    assert!(told.status.success() && words.contains("Epoch [0][10/10]") && words.contains("640 samples"), "{words}");
    assert!(warnings.contains("--live: stdout is not a terminal, so lines are printed instead"), "{warnings}");
    assert!(!words.contains('\u{1b}') && !warnings.contains('\u{1b}'), "{words}{warnings}");
}

// ---- Prometheus

/// Starts a run that serves; gives it with its address.
fn serving(args: &[&str]) -> (Child, SocketAddr, BufReader<std::process::ChildStderr>) {
    let mut child = infeed()
        .args(args)
        .args(["--metrics", "127.0.0.1:0"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("stderr is text");
    let address = line.trim().strip_prefix("metrics: http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("no address in {line:?}")).parse().expect("an address");
    (child, address, lines)
}

fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: infeed\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the answer is text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("openmetrics-text"), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    body.to_owned()
}

/// Values by series, `loader` and `rank` left out of the labels after a look at them.
fn series(body: &str) -> HashMap<String, f64> {
    let mut all = HashMap::new();
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("name and value");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number in {line:?}"));
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let name = match name.contains("loader=") {
            true => {
                assert!(name.contains("loader=\"run\",rank=\"1\""), "{line}");
                let labels = "loader=\"run\",rank=\"1\"";
                let name = name.replace(&format!("{{{labels}}}"), "").replace(&format!(",{labels}}}"), "}");
                name.replace(&format!("{labels},"), "")
            }
            false => name.to_owned(),
        };
        assert!(all.insert(name, value).is_none(), "{line} comes twice");
    }
    all
}

#[test]
fn what_prometheus_scrapes_is_what_the_report_says() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("run.json");
    let (mut child, address, _lines) = serving(&[
        "run",
        DATA,
        "--batch-size",
        "16",
        "--epochs",
        "2",
        "--rank",
        "1",
        "--world-size",
        "2",
        "--metrics-linger",
        "5min",
        "--json",
        report.to_str().unwrap(),
    ]);
    // Counts never fall while it runs.
    let mut last = 0.0;
    until("the run does not end", || {
        // The server is there before the stream.
        let told = series(&scrape(address));
        let samples = told.get("infeed_samples_total").copied().unwrap_or_default();
        assert!(samples >= last, "{samples} after {last}");
        last = samples;
        report.exists()
    });
    let (told, report) = (series(&scrape(address)), json(&report));
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    for (name, key) in [
        ("infeed_samples_total", "samples"),
        ("infeed_batches_total", "batches"),
        ("infeed_bytes_read_total", "bytes_read"),
        ("infeed_bad_samples_total", "bad_sample_count"),
        ("infeed_unreadable_samples_total", "unreadable_count"),
    ] {
        assert_eq!(told[name], number(&report[key]), "{name}");
    }
    assert_eq!((told["infeed_samples_total"], told["infeed_batches_total"]), (640.0, 40.0));
    let near = |name: &str, want: f64| assert!((told[name] - want).abs() < 1e-6 + want * 1e-9, "{name}: {want}");
    // JSON's reader may be off by the last bit.
    near("infeed_first_batch_seconds", number(&report["first_batch_seconds"]));
    near("infeed_data_wait_seconds_sum", number(&report["data_wait"]["sum"]));
    near("infeed_step_seconds_total", number(&report["step"]["sum"]));
    for stage in report["stages"].as_array().expect("a list") {
        let name = stage["name"].as_str().unwrap();
        for (metric, key) in [("busy", "busy"), ("starved", "starved"), ("blocked", "blocked"), ("cpu", "cpu")] {
            near(&format!("infeed_stage_{metric}_seconds_total{{stage=\"{name}\"}}"), number(&stage[key]));
        }
        near(&format!("infeed_stage_items_total{{stage=\"{name}\"}}"), number(&stage["items"]));
    }
    for (class, rows) in report["decoded_by"].as_object().expect("a table") {
        assert_eq!(told[&format!("infeed_decoded_rows_total{{class=\"{class}\"}}")], number(rows), "{class}");
    }
    for cause in report["late_causes"].as_array().expect("a list") {
        let name = format!("infeed_late_batches_total{{cause=\"{}\"}}", cause["cause"].as_str().unwrap());
        assert_eq!(told[&name], number(&cause["batches"]), "{name}");
    }
    // All waits but the first are in the histogram, and it is cumulative.
    assert_eq!(told["infeed_data_wait_seconds_count"], 39.0);
    assert_eq!(told["infeed_data_wait_seconds_bucket{le=\"+Inf\"}"], 39.0);
    assert!(
        told["infeed_data_wait_seconds_bucket{le=\"0.001\"}"] <= told["infeed_data_wait_seconds_bucket{le=\"1.0\"}"]
    );
    assert!(LEVELS.iter().all(|level| !told.contains_key(*level)), "there are no queues and threads any more");
    #[cfg(target_os = "linux")]
    assert!(told["infeed_memory_resident_bytes"] > 1e6 && told["infeed_cpu_seconds_total"] > 0.0);
    // It would go on answering for minutes, and ends at once when asked to.
    terminate(&child);
    assert!(wait(&mut child).success());
}

fn terminate(child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill is there").success());
}

/// What is told of queues and threads while they are there.
const LEVELS: [&str; 2] = ["infeed_queue_level{queue=\"finished\"}", "infeed_workers"];

#[test]
fn queues_and_threads_are_told_while_a_run_lasts() {
    let rank = ["--rank", "1", "--world-size", "2"];
    let (mut child, address, _lines) = serving(&[&["run", DATA, "--step-time", "2min"], &rank[..]].concat());
    // The server is there before the stream.
    until("they are not told", || {
        let told = series(&scrape(address));
        LEVELS.iter().all(|level| told.contains_key(*level))
    });
    terminate(&child);
    assert_eq!(wait(&mut child).code(), Some(143));
}

#[test]
fn an_address_that_is_taken_is_known_before_the_run() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let told = infeed().args(["run", DATA, "--metrics", &address]).output().unwrap();
    let words = text(&told.stderr);
    assert_eq!((told.status.code(), text(&told.stdout).as_str()), (Some(1), ""), "{words}");
    assert!(words.contains(&format!("{address} is in use; choose another port")), "{words}");
    let told = infeed().args(["run", DATA, "--metrics", "9464"]).output().unwrap();
    assert_eq!(told.status.code(), Some(2), "{}", text(&told.stderr));
}

// ---- accounting

#[test]
fn accounting_can_be_turned_off_and_changes_no_byte() {
    let report = |more: &[&str]| -> Value {
        let args = [&["run", DATA, "--batch-size", "16", "--checksum", "--json", "-"], more].concat();
        let told: Output = infeed().args(args).output().unwrap();
        assert!(told.status.success(), "{}", text(&told.stderr));
        serde_json::from_slice(&told.stdout).unwrap()
    };
    for more in [&[][..], &["--workers", "2", "--prefetch", "2"]] {
        let (on, off) = (report(more), report(&[more, &["--accounting", "off"]].concat()));
        for key in ["checksum", "samples", "batches"] {
            assert_eq!(on[key], off[key], "{key}");
        }
        assert!(on["data_wait"]["sum"].as_f64() > Some(0.0) && !on["queues"].as_array().unwrap().is_empty());
        assert!(on["stages"].as_array().unwrap().iter().any(|stage| stage["busy"].as_f64() > Some(0.0)));
        assert_eq!((off["data_wait"]["sum"].as_f64(), off["au"].as_f64()), (Some(0.0), None));
        for key in ["stages", "queues", "late_batches", "first_batch_parts"] {
            assert_eq!(off[key], Value::Array(Vec::new()), "{key}");
        }
        assert!(off["sampled"].is_null() && (on["sampled"].is_object()), "{}", on["sampled"]);
        assert_eq!(
            (on["config"]["accounting"].as_bool(), off["config"]["accounting"].as_bool()),
            (Some(true), Some(false))
        );
    }
}

// ---- NVTX

/// A profiler that writes down what it is told: one line for each range, with its thread.
#[cfg(target_os = "linux")]
const PROFILER: &str = r#"
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unistd.h>
#include <sys/syscall.h>
typedef void (*Function)();
struct Callbacks { size_t struct_size; int (*table)(int, Function ***, unsigned *); };
static std::mutex lock;
static void say(const char *what, const char *name) {
    std::lock_guard<std::mutex> guard(lock);
    FILE *file = fopen(getenv("PROFILE"), "a");
    fprintf(file, "%ld %s %s\n", syscall(SYS_gettid), what, name);
    fclose(file);
}
static int push(const char *name) { say("push", name); return 0; }
static int pop() { say("pop", "-"); return 0; }
extern "C" int InitializeInjectionNvtx2(const void *(*get)(uint32_t)) {
    auto callbacks = static_cast<const Callbacks *>(get(1));
    Function **table = nullptr;
    unsigned size = 0;
    if (!callbacks || callbacks->struct_size < sizeof(Callbacks)) return 0;
    if (!callbacks->table(1, &table, &size) || size != 16) return 0;
    *table[9] = reinterpret_cast<Function>(push);
    *table[11] = reinterpret_cast<Function>(pop);
    return 1;
}
"#;

#[cfg(target_os = "linux")]
#[test]
fn a_profiler_gets_a_range_for_each_job() {
    let dir = tempfile::tempdir().unwrap();
    let [source, library, log] = ["profiler.cpp", "libprofiler.so", "ranges"].map(|name| dir.path().join(name));
    fs::write(&source, PROFILER).unwrap();
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let built =
        Command::new(compiler).args(["-std=c++17", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    if !built.is_ok_and(|status| status.success()) {
        return skipped("no C++ compiler for a mock profiler");
    }
    let run = |library: &Path| {
        let mut command = infeed();
        command.env("NVTX_INJECTION64_PATH", library).env("PROFILE", &log);
        command.args(["run", DATA, "--batch-size", "64", "--workers", "2"]).output().unwrap()
    };
    let told = run(&library);
    assert!(told.status.success(), "{}", text(&told.stderr));
    let log = fs::read_to_string(&log).unwrap();
    let (mut depth, mut names): (HashMap<&str, i64>, HashMap<&str, u64>) = Default::default();
    for line in log.lines() {
        let [thread, what, name]: [&str; 3] = line.split(' ').collect::<Vec<_>>().try_into().expect("three words");
        *depth.entry(thread).or_default() += if what == "push" { 1 } else { -1 };
        assert!(depth[thread] >= 0, "a range ends that did not begin: {log}");
        *names.entry(name).or_default() += 1;
    }
    assert!(depth.values().all(|open| *open == 0), "{depth:?}");
    // Ten batches, each of a job at least.
    assert!(names["infeed.decode"] >= 10 && depth.len() >= 2, "{names:?}");
    let told = run(&source);
    assert!(told.status.success() && text(&told.stderr).contains("no NVTX ranges"), "{}", text(&told.stderr));
}
