//! What neither Cargo nor the compiler holds: the files inside a package form no circle ([`circles`]), and threads, tasks and
//! channels stand in the engine alone. Which crate may use which is in `Cargo.toml`; `unsafe` and printing are for attributes
//! of the crates and for clippy to refuse.

mod circles;
mod reader;

use std::{fs, path::Path, sync::LazyLock};

use self::reader::{Named, Source, read};
use crate::support::repository;

/// Where threads, tasks and channels stand.
const ENGINE: &str = "src/engine/";

/// The files below the engine with threads of their own, and what they may have. A folder is listed, and shards are indexed,
/// before there is an engine, by calls that block; the threads live as long as that, and the engine, which is above, can't
/// lend any.
const LISTERS: [&str; 2] = ["crates/infeed-store/src/listing/local/pool.rs", "crates/infeed-store/src/aside.rs"];
const OF_LISTERS: [&[&str]; 2] = [&["thread", "Builder"], &["mpsc"]];

/// The command line. A program has a runtime, and may have tasks and scoped threads (to generate data) of its own, but leaves
/// threads that live on and channels to the engine.
const PROGRAM: &str = "cli/src/";

/// Files of it that look at the machine or at a run from a thread of their own while it goes on. No data goes through it.
const WATCHERS: [&str; 3] = ["cli/src/gpu.rs", "cli/src/live/mod.rs", "cli/src/usage.rs"];

/// Paths that make threads, tasks or channels. `sync` types such as `Mutex` and `Semaphore` may stand anywhere.
const CONCURRENCY: [&[&str]; 20] = [
    &["thread", "spawn"],
    &["thread", "scope"],
    &["thread", "Builder"],
    &["tokio", "spawn"],
    &["task", "spawn"],
    &["task", "spawn_blocking"],
    &["task", "spawn_local"],
    &["task", "JoinSet"],
    &["task", "LocalSet"],
    &["runtime", "Builder"],
    &["runtime", "Runtime"],
    &["Runtime", "new"],
    &["mpsc"],
    &["oneshot"],
    &["sync", "broadcast"],
    &["sync", "watch"],
    &["futures", "channel"],
    &["crossbeam"],
    &["crossbeam_channel"],
    &["rayon"],
];

/// A library, or the command line.
#[derive(Debug)]
struct Package {
    /// Its `src`, from the repository.
    folder: String,
    sources: Vec<Source>,
}

impl Package {
    /// Of these files: (path below `src`, with `/`; text).
    fn new(folder: impl Into<String>, files: &[(&'static str, &'static str)]) -> Self {
        Self { folder: folder.into(), sources: read(files) }
    }

    fn at(folder: String) -> Self {
        let (root, mut files) = (repository().join(&folder), Vec::new());
        read_below(&root, &root, &mut files);
        files.sort_unstable();
        Self::new(folder, &files)
    }
}

/// Every Rust file below `folder`, with its path from `root`.
fn read_below(root: &Path, folder: &Path, files: &mut Vec<(&'static str, &'static str)>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a folder that can be read").path();
        if path.is_dir() {
            read_below(root, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).expect("it is below").to_str().expect("names are Unicode");
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            files.push((name.replace('\\', "/").leak(), text.leak()));
        }
    }
}

/// Tests, benches and the module for Python are packages of their own, and not among these.
static PACKAGES: LazyLock<Vec<Package>> = LazyLock::new(|| {
    let crates = fs::read_dir(repository().join("crates")).expect("there are crates").map(|entry| {
        let name = entry.expect("a folder that can be read").file_name();
        format!("crates/{}/src", name.to_str().expect("names are Unicode"))
    });
    ["src", "cli/src", "jpeg/src"].map(String::from).into_iter().chain(crates).map(Package::at).collect()
});

/// Whether this file may have this, outside the engine.
fn is_allowed(file: &str, path: &Named, pattern: &[&str]) -> bool {
    LISTERS.contains(&file) && OF_LISTERS.contains(&pattern)
        || WATCHERS.contains(&file) && matches!(path.parts[0], "std" | "mpsc" | "thread")
        || file.starts_with(PROGRAM)
            && (matches!(pattern[0], "tokio" | "task" | "runtime" | "Runtime") || pattern == ["thread", "scope"])
}

/// Threads, tasks and channels where there should be none.
fn concurrency(Package { folder, sources }: &Package) -> Vec<String> {
    let mut all = Vec::new();
    for source in sources {
        let file = format!("{folder}/{}", source.file);
        for path in source.names.iter().filter(|_| !file.starts_with(ENGINE)) {
            let found =
                CONCURRENCY.iter().filter(|pattern| path.parts.windows(pattern.len()).any(|part| part == **pattern));
            for pattern in found.filter(|pattern| !is_allowed(&file, path, pattern)) {
                all.push(format!("{file}:{}: {} outside the engine", path.line, pattern.join("::")));
            }
        }
    }
    all
}

#[test]
fn files_form_no_circle() {
    let found: Vec<String> = PACKAGES.iter().flat_map(circles::circles).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn threads_tasks_and_channels_are_the_engines() {
    let found: Vec<String> = PACKAGES.iter().flat_map(concurrency).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// What is found in this file, alone in its package.
fn planted(file: &'static str, text: &'static str) -> Vec<String> {
    let (before, below) = file.split_once("src/").expect("it is in a package");
    concurrency(&Package::new(format!("{before}src"), &[(below, text)]))
}

#[test]
fn planted_threads_tasks_and_channels_are_found_with_their_lines() {
    for (file, text, want) in [
        ("src/loader/mod.rs", "fn f() {\n    tokio::spawn(g()); }", "2: tokio::spawn"),
        ("src/loader/mod.rs", "use tokio::sync::{Semaphore,\n mpsc};", "2: mpsc"),
        ("src/device/engine/mod.rs", "use tokio::sync::oneshot::Sender;", "1: oneshot"),
        ("jpeg/src/index.rs", "fn f() { std::thread::spawn(|| ()); }", "1: thread::spawn"),
        ("crates/infeed-pixels/src/codec/mod.rs", "use std::{fmt, thread::{Builder, sleep}};", "1: thread::Builder"),
        ("crates/infeed-core/src/engine/mod.rs", "use crossbeam_channel::bounded;", "1: crossbeam_channel"),
        ("crates/infeed-store/src/lib.rs", "use tokio::runtime::Runtime;", "1: runtime::Runtime"),
        ("crates/infeed-store/src/listing/source.rs", "fn f() { thread::Builder::new(); }", "1: thread::Builder"),
        ("crates/infeed-store/src/listing/local/pool.rs", "fn f() { tokio::spawn(g()); }", "1: tokio::spawn"),
        ("cli/src/main.rs", "use std::sync::mpsc;", "1: mpsc"),
        ("cli/src/usage.rs", "use tokio::sync::mpsc;", "1: mpsc"),
        ("cli/src/usage.rs", "#[cfg(unix)] fn f() { rayon::join(); }", "1: rayon"),
    ] {
        assert_eq!(planted(file, text), [format!("{file}:{want} outside the engine")], "{text}");
    }
}

#[test]
fn what_is_allowed_is_left_alone() {
    for (file, text) in [
        ("src/engine/mod.rs", "fn f() { std::thread::spawn(g); tokio::spawn(h()); let (a, b) = mpsc::channel(1); }"),
        ("src/loader/stream.rs", "use tokio::sync::Semaphore; use std::sync::{Arc, Mutex};"),
        ("crates/infeed-store/src/listing/local/pool.rs", "use tokio::sync::mpsc; fn f() { thread::Builder::new(); }"),
        ("cli/src/main.rs", "fn main() { tokio::runtime::Builder::new_current_thread(); std::thread::scope(f); }"),
        ("cli/src/usage.rs", "use std::sync::mpsc; fn f() { thread::spawn(g); }"),
        (
            "jpeg/src/index.rs",
            "// tokio::spawn\n/* mpsc */ const A: &str = \"thread::spawn\"; #[cfg(test)] fn f() { thread::spawn(g) }\n\
             fn g<'a>(x: &'a str) { let channel = 3; std::thread::sleep(d); std::thread::available_parallelism(); }\n\
             #[cfg(test)]\nmod tests { fn f() { std::thread::scope(|s| ()); } }",
        ),
    ] {
        assert_eq!(planted(file, text), [] as [String; 0], "{file}: {text}");
    }
}

#[test]
fn tests_in_a_file_of_their_own_may_have_threads() {
    for (declared, offences) in [
        ("#[cfg(test)]\nmod tests;", 0),
        ("#[cfg(all(test, unix))]\n#[allow(dead_code)]\nmod tests;", 0),
        ("mod tests;", 1),
        ("#[cfg(test)] use x::y; mod tests;", 1),
        ("#[cfg(test)] mod others; mod tests;", 1),
    ] {
        let files = [("codec/mod.rs", declared), ("codec/tests.rs", "fn f() { std::thread::spawn(g); }")];
        assert_eq!(concurrency(&Package::new("src", &files)).len(), offences, "{declared}");
    }
}
