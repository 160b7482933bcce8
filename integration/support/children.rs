//! Processes that tests start, and a system that refuses them threads.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::PATIENCE;

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
pub(crate) fn refuses_threads() -> Option<&'static Path> {
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

/// Ticks of 10 ms of processor time that no child needs.
const MOST_TICKS: u64 = 120 * 100;

/// Whether a child hangs, by its processor time: on a busy machine others' passes, too.
#[derive(Debug)]
pub(crate) struct Watch {
    ticks: u64,
    since: Instant,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self { ticks: 0, since: Instant::now() }
    }

    /// It did nothing for so long, or goes round in circles.
    pub(crate) fn hangs(&mut self, child: &Child, idle: Duration) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        // Of user and system: the 14th and 15th of all.
        let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        if ticks != self.ticks {
            (self.ticks, self.since) = (ticks, Instant::now());
        }
        self.since.elapsed() > idle || ticks > MOST_TICKS
    }
}

/// Waits for the end. A child that hangs is killed.
pub(crate) fn end_of(mut child: Child, what: &str) -> Output {
    let mut watch = Watch::start();
    while child.try_wait().unwrap().is_none() {
        if watch.hangs(&child, PATIENCE) {
            child.kill().unwrap();
            panic!("{what}: it hangs: {:?}", child.wait_with_output());
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

pub(crate) fn piped(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}
