//! What a machine refuses is an error that says so: no abort, no panic, no hang; and what is freed goes back to it.

use std::{env, num::NonZeroUsize, process::Command};

use futures::executor::block_on;
use infeed::{Device, ErrorKind, Loader, internal::process, loader::IoRuntime, open};

use crate::support::{
    children::{end_of, piped, refuses_threads},
    skipped, until,
};

/// Which child this process is to be.
const CHILD: &str = "INFEED_TEST_MACHINE_CHILD";

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
        Ok("memory") => keep(),
        // No child: a test of the others.
        _ => {}
    }
}

#[cfg(target_os = "linux")]
#[test]
fn threads_that_cannot_be_had_are_an_error_and_never_a_hang() {
    let Some(library) = refuses_threads() else { return skipped("no C compiler for a system that refuses threads") };
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

/// Batches of 750 MB, and 1.6 GB for all there is: one fits, and leaves room for what is small.
#[cfg(target_os = "linux")]
#[test]
fn memory_that_ends_under_a_trainer_who_keeps_batches_is_an_error_and_no_abort() {
    let tests = child("memory");
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -v 1600000; exec "$0" "$@""#]).arg(tests.get_program()).args(tests.get_args());
    let output = end_of(piped(command.env(CHILD, "memory")), "a stream without memory");
    assert!(output.status.success(), "{:?} {}", output.status, String::from_utf8_lossy(&output.stdout));
}

fn keep() {
    let dataset = block_on(async { open("synthetic://?count=4000&height=224&width=224&classes=4").await }).unwrap();
    let builder = Loader::builder(dataset).device(Device::Cpu).batch_size(1250).memory_budget(6 << 30);
    let loader = builder.workers(2).prefetch(2).build_blocking().unwrap();
    let mut kept = Vec::new();
    let error = loader.epoch(0).blocking().find_map(|batch| batch.map(|batch| kept.push(batch)).err());
    let error = error.expect("memory ends before the epoch does");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("no memory for a buffer of"), "{error}");
}

/// 100 loaders, a few batches of each.
fn come_and_go() {
    let dataset = block_on(async { open("synthetic://?count=200&height=224&width=224&classes=4").await }).unwrap();
    let resident = || process::usage().resident.expect("Linux tells") >> 20;
    let ended = || process::threads().iter().all(|thread| !thread.name.starts_with("infeed-"));
    let mut first = 0;
    let mut most = 0;
    for n in 0..100 {
        // Sizes differ, as in a process that trains and evaluates.
        let builder = Loader::builder(std::sync::Arc::clone(&dataset)).device(Device::Cpu).batch_size(12 + n % 9);
        let loader = builder.workers(2).prefetch(2).build_blocking().unwrap();
        assert_eq!(loader.epoch(n as u64).blocking().take(3).filter(Result::is_ok).count(), 3);
        drop(loader);
        // They are on their way for a moment, and have what they worked on.
        until("threads of a loader that is gone do not end", ended);
        match n {
            0..20 => first = first.max(resident()),
            _ => most = most.max(resident()),
        }
    }
    let last = resident();
    // A batch has 7 MB at least: not one of them stayed, nor an eightieth of one with each loader.
    assert!(last < 60 && most < first + 7, "{first} MiB with the first 20, {most} with the others, {last} afterwards");
}

#[cfg(target_os = "linux")]
#[test]
fn loaders_that_are_gone_leave_no_memory_and_no_thread_behind() {
    let output = end_of(piped(&mut child("loaders")), "100 loaders");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
