//! What a machine refuses is an error that says so: no abort, no panic, no hang; and what is freed goes back to it.

use std::{
    env, fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use futures::executor::block_on;
use infeed::{Device, ErrorKind, Loader, internal::process, loader::IoRuntime, open};
use tempfile::TempDir;

use crate::support::{PATIENCE, skipped};

/// Which child this process is to be.
const CHILD: &str = "INFEED_TEST_MACHINE_CHILD";

/// A library that refuses the threads beyond `MOST_THREADS`, as the system does at its limit (which does not bind root).
const REFUSES: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
static atomic_int alive;
struct begun { void *(*f)(void *); void *x; };
static void *body(void *of) {
    struct begun b = *(struct begun *)of;
    free(of);
    void *end = b.f(b.x);
    atomic_fetch_sub(&alive, 1);
    return end;
}
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) real = dlsym(RTLD_NEXT, "pthread_create");
    const char *most = getenv("MOST_THREADS");
    if (atomic_fetch_add(&alive, 1) >= (most ? atoi(most) : 1 << 20)) { atomic_fetch_sub(&alive, 1); return EAGAIN; }
    struct begun *of = malloc(sizeof *of);
    *of = (struct begun){f, x};
    int refused = real(t, a, body, of);
    if (refused) { atomic_fetch_sub(&alive, 1); free(of); }
    return refused;
}
"#;

/// Where that library is; `None`: there is no C compiler.
fn refuses_threads() -> Option<&'static Path> {
    static MADE: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("refuses.c"), dir.path().join("refuses.so"));
        fs::write(&source, REFUSES).unwrap();
        let cc = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl").output();
        cc.is_ok_and(|output| output.status.success()).then_some((dir, library))
    });
    made.as_ref().map(|(_, library)| library.as_path())
}

/// Waits for the end. A child that needs so long hangs, and is killed.
fn end_of(mut child: Child, what: &str) -> Output {
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("{what}: it hangs: {:?}", child.wait_with_output());
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn piped(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

fn infeed(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_infeed"));
    command.env_clear().env("CUDA_VISIBLE_DEVICES", "").args(args);
    command
}

/// Another process of these tests, which does what [`a_child`] has under this name.
fn child(task: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["machine::a_child", "--exact", "--nocapture"]).env(CHILD, task);
    command
}

#[test]
fn a_child() {
    match env::var(CHILD).as_deref() {
        Ok("runtime") => {
            for threads in [1, 4] {
                if let Err(refused) = IoRuntime::with_threads(NonZeroUsize::new(threads).unwrap()) {
                    assert_eq!(refused.kind(), ErrorKind::OutOfMemory, "{refused}");
                }
            }
        }
        Ok("loaders") => come_and_go(),
        // No child: a test of the others.
        _ => {}
    }
}

#[cfg(target_os = "linux")]
#[test]
fn threads_that_cannot_be_had_are_an_error_and_never_a_hang() {
    let Some(library) = refuses_threads() else { return skipped("no C compiler for a system that refuses threads") };
    let dir = tempfile::tempdir().unwrap();
    let photos = dir.path().join("photos").display().to_string();
    assert!(infeed(&["synth", "imagenet", &photos, "--count", "8"]).output().unwrap().status.success());
    let again = dir.path().join("again").display().to_string();
    let sets = "synthetic://?count=64&height=8&width=8&classes=4";
    let commands: [&[&str]; 3] = [
        &["run", sets, "--batch-size", "8", "--workers", "3"],
        &["run", &photos, "--batch-size", "4"],
        &["synth", "imagenet", &again, "--count", "8"],
    ];
    for command in commands {
        let mut ended_well = false;
        for most in 0..14 {
            let what = format!("{command:?} with {most} threads");
            // Only `synth` writes there, and into nothing that holds something.
            let _ = std::fs::remove_dir_all(&again);
            let child = piped(infeed(command).env("LD_PRELOAD", library).env("MOST_THREADS", most.to_string()));
            let output = end_of(child, &what);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!said.contains("panicked"), "{what}: {said}");
            match output.status.code() {
                Some(0) => ended_well = true,
                Some(1) => assert!(said.contains("error: ") && said.contains("thread"), "{what}: {said}"),
                other => panic!("{what}: {other:?}: {said}"),
            }
        }
        assert!(ended_well || command[0] == "synth", "{command:?}");
    }
    for most in 0..12 {
        // The first threads are the test's own.
        let child = piped(child("runtime").env("LD_PRELOAD", library).env("MOST_THREADS", most.to_string()));
        let output = end_of(child, &format!("a runtime with {most} threads"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // The harness needs a thread or two itself.
        assert!(!said.contains("OS can't spawn"), "{most}: {said}");
        assert!(output.status.success() || most < 2, "{most}: {said}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_cannot_be_had_is_an_error_and_no_abort() {
    // Ten batches of 150 MB are within the budget, not within what the system gives.
    let script = r#"ulimit -v 1600000; exec "$0" "$@""#;
    let sets = "synthetic://?count=4000&height=224&width=224&classes=4";
    let args = ["run", sets, "--transform", "none", "--batch-size", "250", "--prefetch", "20", "--workers", "2"];
    let mut command = Command::new("sh");
    command.env_clear().env("CUDA_VISIBLE_DEVICES", "").args(["-c", script, env!("CARGO_BIN_EXE_infeed")]).args(args);
    // Batches pile up before a trainer that is slow.
    command.args(["--memory-budget", "6GiB", "--step-time", "2s", "--dtype", "f32"]);
    let output = end_of(piped(&mut command), "a run without memory");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no memory for a buffer of") && !said.contains("panicked"), "{said}");
}

/// 300 loaders, a few batches of each.
fn come_and_go() {
    let dataset = block_on(async { open("synthetic://?count=200&height=224&width=224&classes=4").await }).unwrap();
    let resident = || process::usage().resident.expect("Linux tells") >> 20;
    let mut first = 0;
    let mut most = 0;
    for n in 0..300 {
        // Sizes differ, as in a process that trains and evaluates.
        let builder = Loader::builder(std::sync::Arc::clone(&dataset)).device(Device::Cpu).batch_size(12 + n % 9);
        let loader = builder.workers(2).prefetch(2).build_blocking().unwrap();
        assert_eq!(loader.epoch(n as u64).blocking().take(3).filter(Result::is_ok).count(), 3);
        drop(loader);
        match n {
            0..20 => first = first.max(resident()),
            _ => most = most.max(resident()),
        }
    }
    // The last loader's threads are still on their way.
    let ended = Instant::now();
    while process::threads().iter().any(|thread| thread.name.starts_with("infeed-")) && ended.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
    let last = resident();
    assert!(last < 60 && most < first + 40, "{first} MiB with the first 20, {most} with the others, {last} afterwards");
    assert!(process::threads().iter().all(|thread| !thread.name.starts_with("infeed-")), "{:?}", process::threads());
}

#[cfg(target_os = "linux")]
#[test]
fn loaders_that_are_gone_leave_no_memory_and_no_thread_behind() {
    let output = end_of(piped(&mut child("loaders")), "300 loaders");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
