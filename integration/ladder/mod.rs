//! Who may import whom, and where `unsafe`, threads, tasks, channels and printing may stand. Between rooms that is the
//! ladder below; inside a room it is [`inside`]; the package of the JPEG decoder is looked at in [`jpeg`].
//!
//! The sources are read as a stream of words, without comments and texts: enough to see every path, cheap enough to run
//! with the other tests, and in need of no other crate.

mod inside;
mod jpeg;

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use crate::support::repository;

/// Rooms from the ground up. A room imports rooms of lower floors: nothing beside it, nothing above.
const LADDER: [&[&str]; 12] = [
    &["setting"],
    &["types", "report", "fingerprint", "random"],
    &["error"],
    &["sys"],
    &["tensor"],
    &["source"],
    &["dataset", "sampler", "transform"],
    &["codec"],
    &["engine"],
    &["loader"],
    // What it writes comes out of a loader; what they tell, too.
    &["prepare", "metrics"],
    // Documentation alone.
    &["guide"],
];

/// Words that a room may use of its neighbour: (room, neighbour, words).
const NEIGHBOURS: [(&str, &str, &[&str]); 1] = [
    // A transform is made for a field of a dataset and moves what is marked in its images, and that is all it knows about
    // datasets.
    ("transform", "dataset", &["FieldKind", "Instances", "Mask", "Rle"]),
];

/// Rooms whose tests use a room above them: (room, the one above).
const TESTED_FROM_ABOVE: [(&str, &str); 1] = [
    // Tensors are what DLPack lends; the tests read C structs, which only `sys` may.
    ("sys", "tensor"),
];

/// Files of the binary that look at the machine or at a run from a thread of their own while it goes on. No data goes
/// through it.
const WATCHERS: [&str; 3] = ["bin/infeed/gpu.rs", "bin/infeed/live/mod.rs", "bin/infeed/usage.rs"];

/// The one file below the engine with threads of its own, and what it may have. A folder is listed before there is an engine,
/// by calls that block; its threads live as long as the listing, and the engine, which is above, can't lend any.
const LISTER: (&str, [&[&str]; 2]) = ("source/walk/pool.rs", [&["thread", "Builder"], &["mpsc"]]);

/// Paths that make threads, tasks or channels. `sync` types such as `Mutex` and `Semaphore` may stand anywhere.
const CONCURRENCY: [&[&str]; 19] = [
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
    &["rayon"],
];

/// One way to break a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Offence {
    file: String,
    line: usize,
    what: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    text: String,
    line: usize,
}

/// A path such as `std::thread::spawn`, with the trees of `use` written out.
#[derive(Debug)]
struct Named {
    parts: Vec<String>,
    line: usize,
    /// Modules around it, from the crate's root.
    module: Vec<String>,
    in_test: bool,
    /// What a `use` among the items of its module calls it.
    called: Option<String>,
    /// The `use` is for tests alone.
    test_use: bool,
}

/// The last of a path, with what it is called.
struct Leaf {
    parts: Vec<String>,
    line: usize,
    alias: Option<String>,
}

/// Splits Rust into identifiers and signs, leaving out comments, texts, characters and lifetimes. `::` is one word.
fn words(source: &str) -> Vec<Word> {
    let text: Vec<char> = source.chars().collect();
    let at = |i: usize| text.get(i).copied().unwrap_or('\0');
    let is_ident = |c: char| c.is_alphanumeric() || c == '_';
    let (mut words, mut i, mut line) = (Vec::new(), 0, 1);
    while i < text.len() {
        let start = i;
        match at(i) {
            '/' if at(i + 1) == '/' => {
                while i < text.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            '/' if at(i + 1) == '*' => {
                let mut depth = 0;
                while i < text.len() {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            '"' => i = end_of_text(&text, i),
            '\'' => {
                // 'x', '\n', '\u{7f}' or a lifetime.
                if at(i + 1) == '\\' {
                    i += 3;
                    while i < text.len() && at(i) != '\'' {
                        i += 1;
                    }
                    i += 1;
                } else if at(i + 2) == '\'' {
                    i += 3;
                } else {
                    i += 1;
                    while is_ident(at(i)) {
                        i += 1;
                    }
                }
            }
            c if is_ident(c) => {
                while is_ident(at(i)) {
                    i += 1;
                }
                let word: String = text[start..i].iter().collect();
                let prefix = matches!(word.as_str(), "r" | "b" | "c" | "br" | "cr");
                if prefix && at(i) == '"' {
                    i = if word.ends_with('r') { end_of_raw(&text, i, 0) } else { end_of_text(&text, i) };
                } else if prefix && word.ends_with('r') && at(i) == '#' {
                    let hashes = text[i..].iter().take_while(|&&c| c == '#').count();
                    if at(i + hashes) == '"' {
                        i = end_of_raw(&text, i + hashes, hashes);
                    } else {
                        // A raw identifier: its name follows as a word of its own.
                        i += hashes;
                    }
                } else if !(word == "b" && at(i) == '\'') {
                    words.push(Word { text: word, line });
                }
            }
            ':' if at(i + 1) == ':' => {
                words.push(Word { text: "::".into(), line });
                i += 2;
            }
            c => {
                if !c.is_whitespace() {
                    words.push(Word { text: c.into(), line });
                }
                i += 1;
            }
        }
        line += text[start..i.min(text.len())].iter().filter(|&&c| c == '\n').count();
    }
    words
}

/// After the closing quote of the text that opens at `i`.
fn end_of_text(text: &[char], mut i: usize) -> usize {
    i += 1;
    while i < text.len() && text[i] != '"' {
        i += if text[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// After the closing quote and hashes of the raw text that opens at `i`.
fn end_of_raw(text: &[char], mut i: usize, hashes: usize) -> usize {
    i += 1;
    while i < text.len()
        && !(text[i] == '"' && text[i + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes)
    {
        i += 1;
    }
    i + 1 + hashes
}

/// The modules of a file below `src`: `sampler/order.rs` is `sampler::order`.
fn module_of(file: &str) -> Vec<String> {
    let mut parts: Vec<String> = file.trim_end_matches(".rs").split('/').map(Into::into).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Whether `#[cfg(test)]` or `#[cfg(all(test, …))]` begins here.
fn is_cfg_test(words: &[Word], i: usize) -> bool {
    let is = |pattern: &[&str]| {
        words.len() >= i + pattern.len() && words[i..].iter().zip(pattern).all(|(word, text)| word.text == *text)
    };
    is(&["#", "[", "cfg", "(", "test", ")"]) || is(&["#", "[", "cfg", "(", "all", "(", "test", ","])
}

/// Every path of a file. The modules of other files that it declares for tests only are added to `test_files`.
fn paths(file: &str, words: &[Word], test_files: &mut Vec<Vec<String>>) -> Vec<Named> {
    let is = |i: usize, text: &str| words.get(i).is_some_and(|word: &Word| word.text == text);
    let is_name = |i: usize| words.get(i).is_some_and(|w| w.text.starts_with(|c: char| c.is_alphabetic() || c == '_'));
    let mut found = Vec::new();
    // Modules inside the file: (depth of braces around the body, whether it is for tests).
    let (mut module, mut inside, mut depth) = (module_of(file), Vec::new(), 0);
    let (mut i, mut test_next) = (0, false);
    // Inside a `use` among a module's items; whether it is for tests.
    let mut using: Option<bool> = None;
    while i < words.len() {
        if is(i, ";") {
            using = None;
        }
        if is_cfg_test(words, i) {
            test_next = true;
            // Past `#`, `[`, `cfg`, `(`: what follows names nothing.
            i += 4;
        } else if is(i, "pub") && is(i + 1, "(") && ["in", "super", "crate", "self"].iter().any(|word| is(i + 2, word))
        {
            // Who may see it: no step to anywhere.
            while i < words.len() && !is(i, ")") {
                i += 1;
            }
        } else if is(i, "mod") && is_name(i + 1) && is(i + 2, ";") {
            if test_next {
                let file = module.iter().chain([&words[i + 1].text]).cloned().collect();
                test_files.push(file);
            }
            (i, test_next) = (i + 3, false);
        } else if is(i, "mod") && is_name(i + 1) && is(i + 2, "{") {
            let in_test = test_next || inside.last().is_some_and(|&(_, test)| test);
            inside.push((depth, in_test));
            module.push(words[i + 1].text.clone());
            (depth, i, test_next) = (depth + 1, i + 3, false);
        } else if is(i, "{") {
            (depth, i, test_next) = (depth + 1, i + 1, false);
        } else if is(i, "}") {
            depth -= 1;
            test_next = false;
            if inside.last().is_some_and(|&(at, _)| at == depth) {
                inside.pop();
                module.pop();
            }
            i += 1;
        } else if is_name(i) && !is(i.wrapping_sub(1), "::") {
            let in_test = inside.last().is_some_and(|&(_, test)| test);
            let among_items = depth == inside.last().map_or(0, |&(at, _)| at + 1);
            if is(i, "use") && among_items {
                using = Some(test_next);
            }
            let mut leaves = Vec::new();
            i = tree(words, i, &mut Vec::new(), &mut leaves);
            if using.is_some()
                && is(i, "as")
                && let [leaf] = &mut leaves[..]
            {
                leaf.alias = words.get(i + 1).map(|word| word.text.clone());
            }
            found.extend(leaves.into_iter().map(|Leaf { parts, line, alias }| {
                // `use a::{self}` brings `a`.
                let own = parts.iter().rev().find(|part| *part != "self").cloned();
                let called = using.and(alias.or(own));
                Named { parts, line, module: module.clone(), in_test, called, test_use: using == Some(true) }
            }));
        } else {
            test_next &= !is(i, ";");
            i += 1;
        }
    }
    found
}

/// Writes out the path or tree at `i`, each leaf with `prefix` before it; returns where it ends.
fn tree(words: &[Word], mut i: usize, prefix: &mut Vec<String>, out: &mut Vec<Leaf>) -> usize {
    let is = |i: usize, text: &str| words.get(i).is_some_and(|word| word.text == text);
    let (depth, line) = (prefix.len(), words[i].line);
    loop {
        prefix.push(words[i].text.clone());
        i += 1;
        if !is(i, "::") {
            break;
        }
        i += 1;
        if is(i, "{") {
            i += 1;
            while i < words.len() && !is(i, "}") {
                if is(i, ",") {
                    i += 1;
                } else {
                    i = tree(words, i, prefix, out);
                    if is(i, "as") {
                        // It belongs to the leaf.
                        if let Some(leaf) = out.last_mut() {
                            leaf.alias = words.get(i + 1).map(|word| word.text.clone());
                        }
                        i += 2;
                    }
                }
            }
            prefix.truncate(depth);
            return i + 1;
        }
        let goes_on =
            words.get(i).is_some_and(|w| w.text == "*" || w.text.starts_with(|c: char| c.is_alphabetic() || c == '_'));
        if !goes_on {
            // A turbofish, or a pattern of macro_rules.
            break;
        }
    }
    out.push(Leaf { parts: prefix.clone(), line, alias: None });
    prefix.truncate(depth);
    i
}

/// The path from the crate's root, when it is one into this crate.
fn in_crate(path: &Named) -> Option<Vec<String>> {
    let ups = path.parts.iter().take_while(|part| *part == "super").count();
    match path.parts.first()?.as_str() {
        "crate" if path.parts.len() > 1 => Some(path.parts[1..].to_vec()),
        "super" => {
            // More than there are would not compile.
            let mut parts = path.module[..path.module.len().saturating_sub(ups)].to_vec();
            parts.extend_from_slice(&path.parts[ups..]);
            Some(parts)
        }
        _ => None,
    }
}

fn floor(room: &str) -> Option<usize> {
    LADDER.iter().position(|floor| floor.contains(&room))
}

fn has(parts: &[String], pattern: &[&str]) -> bool {
    parts
        .windows(pattern.len())
        .any(|window| window.iter().zip(pattern).all(|(a, b)| a == b || b == &"crossbeam" && a.starts_with(b)))
}

/// All offences in these files: (path below `src`, with `/`; text).
fn offences(files: &[(String, String)]) -> Vec<Offence> {
    // `crate::Error` is `crate::error::Error`: what lib.rs re-exports counts as the room it comes from.
    let mut exported: HashMap<String, String> = HashMap::new();
    for (_, text) in files.iter().filter(|(file, _)| file == "lib.rs") {
        for path in paths("lib.rs", &words(text), &mut Vec::new()) {
            if let [room, .., name] = &path.parts[..]
                && floor(room).is_some()
            {
                exported.insert(name.clone(), room.clone());
            }
        }
    }
    let files: Vec<_> = files.iter().map(|(file, text)| (file, words(text))).collect();
    // Collected from all files first: a module is declared above the file that holds it.
    let mut test_files = Vec::new();
    let read: Vec<_> =
        files.into_iter().map(|(file, words)| (file, paths(file, &words, &mut test_files), words)).collect();
    let mut all = Vec::new();
    for (file, paths, words) in read {
        let room = file.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        let mut offend = |line: usize, what: String| all.push(Offence { file: format!("src/{file}"), line, what });
        if !matches!(room, "lib" | "bin") && floor(room).is_none() {
            offend(1, format!("{room} is no room of the ladder"));
        }
        let at = |i: usize| words.get(i).map_or("", |word| word.text.as_str());
        for (i, word) in words.iter().enumerate() {
            let prints =
                matches!(word.text.as_str(), "println" | "print" | "eprintln" | "eprint" | "dbg") && at(i + 1) == "!";
            if prints && (room != "bin" || word.text == "dbg") {
                offend(word.line, format!("{}! outside the binary", word.text));
            }
            if word.text == "unsafe" && room != "sys" {
                offend(word.line, "unsafe outside sys".into());
            }
            if room == "bin" && word.text == "#" && at(i + 1) == "[" && at(i + 2) == "path" {
                offend(word.line, "the binary takes a file of the library with #[path]".into());
            }
            if room == "bin" && word.text == "include" && at(i + 1) == "!" {
                offend(word.line, "the binary takes a file with include!".into());
            }
        }
        let in_test_file = test_files.iter().any(|test| module_of(file).starts_with(test));
        for path in paths {
            if WATCHERS.contains(&file.as_str())
                && matches!(path.parts.first().map(String::as_str), Some("std" | "mpsc" | "thread"))
            {
                continue;
            }
            // A binary has a runtime and may have tasks and scoped threads (to generate data) of its own, but leaves
            // threads that live on and channels to the engine.
            let runs = CONCURRENCY.iter().filter(|pattern| {
                room != "bin"
                    || !matches!(pattern[0], "tokio" | "task" | "runtime" | "Runtime")
                        && pattern[..] != ["thread", "scope"]
            });
            if room != "engine" && !path.in_test && !in_test_file {
                let lists = |pattern: &&&[&str]| file == LISTER.0 && LISTER.1.contains(*pattern);
                for pattern in runs.filter(|pattern| has(&path.parts, pattern) && !lists(pattern)) {
                    offend(path.line, format!("{} outside engine", pattern.join("::")));
                }
            }
            if matches!(room, "lib" | "bin") {
                continue;
            }
            let Some(target) = in_crate(&path) else {
                continue;
            };
            let Some(first) = target.first() else {
                offend(path.line, format!("{} is the whole crate", path.parts.join("::")));
                continue;
            };
            let to = exported.get(first).filter(|_| floor(first).is_none()).unwrap_or(first);
            if to == room {
                continue;
            }
            if (path.in_test || in_test_file) && TESTED_FROM_ABOVE.contains(&(room, to.as_str())) {
                continue;
            }
            let word = target.iter().skip(1).find(|part| *part != "self").map_or("", String::as_str);
            if NEIGHBOURS.iter().any(|(from, into, words)| *from == room && into == to && words.contains(&word)) {
                continue;
            }
            match (floor(room), floor(to)) {
                (Some(here), Some(there)) if there < here => {}
                (Some(here), Some(there)) => {
                    let step = if there == here { "sideways" } else { "up" };
                    offend(path.line, format!("{room} steps {step} to {to} ({})", path.parts.join("::")));
                }
                (Some(_), None) => offend(path.line, format!("{} is in no room below {room}", path.parts.join("::"))),
                (None, _) => {}
            }
        }
    }
    all.sort();
    all.dedup();
    all
}

/// Every Rust file below `folder`, with its path from there.
fn read(folder: &Path) -> Vec<(String, String)> {
    let (mut files, mut folders): (Vec<(String, String)>, Vec<PathBuf>) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}", next.display())) {
            let path = entry.expect("a folder that can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(folder).expect("it is below").to_str().expect("names are Unicode");
                files.push((name.replace('\\', "/"), fs::read_to_string(&path).expect("sources are UTF-8")));
            }
        }
    }
    files
}

/// The library, and the command line as its room `bin`.
fn sources() -> Vec<(String, String)> {
    let mut files = read(&repository().join("src"));
    let binary = read(&repository().join("cli/src"));
    files.extend(binary.into_iter().map(|(file, text)| (format!("bin/infeed/{file}"), text)));
    files
}

fn listed(offences: &[Offence]) -> String {
    offences.iter().map(|Offence { file, line, what }| format!("{file}:{line}: {what}\n")).collect()
}

#[test]
fn every_room_imports_rooms_below_it_only() {
    let files = sources();
    assert!(files.len() > 10, "only {} sources found", files.len());
    let found = offences(&files);
    assert!(found.is_empty(), "\n{}", listed(&found));
}

#[test]
fn sources_of_this_crate_are_understood() {
    // A reader that sees no paths would find no offences either.
    let files = sources();
    let (_, error) = files.iter().find(|(file, _)| file == "error.rs").expect("there is src/error.rs");
    let steps: Vec<_> = paths("error.rs", &words(error), &mut Vec::new()).iter().filter_map(in_crate).collect();
    assert!(steps.contains(&vec!["report".to_owned(), "Stage".to_owned()]), "{steps:?}");
}

/// What is found in a file put beside a small lib.rs.
fn planted(file: &str, text: &str) -> Vec<String> {
    let lib = "pub mod sampler; mod loader; pub use error::{Error, Result}; pub use loader::Loader;";
    let found = offences(&[("lib.rs".into(), lib.into()), (file.into(), text.into())]);
    found.into_iter().map(|Offence { file, line, what }| format!("{file}:{line}: {what}")).collect()
}

#[test]
fn a_planted_offence_is_found_with_its_line() {
    for (file, text, want) in [
        (
            "source/mod.rs",
            "\nuse crate::engine::IoRuntime;",
            "src/source/mod.rs:2: source steps up to engine (crate::engine::IoRuntime)",
        ),
        (
            "sampler/order.rs",
            "use crate::dataset::Dataset;",
            "src/sampler/order.rs:1: sampler steps sideways to dataset (crate::dataset::Dataset)",
        ),
        ("report.rs", "use crate::random;", "src/report.rs:1: report steps sideways to random (crate::random)"),
        (
            "codec/jpeg.rs",
            "use crate::{\n    error::Result,\n    loader::{self, Loader},\n};",
            "src/codec/jpeg.rs:3: codec steps up to loader (crate::loader::self)",
        ),
        (
            "tensor.rs",
            "fn f() -> usize { crate::source::n() }",
            "src/tensor.rs:1: tensor steps up to source (crate::source::n)",
        ),
        ("source/mod.rs", "use crate::Loader;", "src/source/mod.rs:1: source steps up to loader (crate::Loader)"),
        ("source/mod.rs", "use crate::*;", "src/source/mod.rs:1: crate::* is in no room below source"),
        (
            "source/mod.rs",
            "use super::loader::Loader;",
            "src/source/mod.rs:1: source steps up to loader (super::loader::Loader)",
        ),
        (
            "source/x.rs",
            "use super::super::loader;",
            "src/source/x.rs:1: source steps up to loader (super::super::loader)",
        ),
        (
            "types.rs",
            "mod tests {\n use super::super::error; }",
            "src/types.rs:2: types steps up to error (super::super::error)",
        ),
        (
            "transform/mod.rs",
            "use crate::dataset::{FieldKind, Dataset};",
            "src/transform/mod.rs:1: transform steps sideways to dataset (crate::dataset::Dataset)",
        ),
        (
            "types.rs",
            "macro_rules! m { () => { $crate::error::f() } }",
            "src/types.rs:1: types steps up to error (crate::error::f)",
        ),
        ("cellar.rs", "", "src/cellar.rs:1: cellar is no room of the ladder"),
        ("codec/mod.rs", "/* unsafe */\nunsafe { f() }", "src/codec/mod.rs:2: unsafe outside sys"),
        ("bin/infeed/main.rs", "unsafe fn f() {}", "src/bin/infeed/main.rs:1: unsafe outside sys"),
        ("codec/mod.rs", "fn f() { std::thread::spawn(|| ()); }", "src/codec/mod.rs:1: thread::spawn outside engine"),
        (
            "codec/mod.rs",
            "use std::{fmt, thread::{Builder, sleep}};",
            "src/codec/mod.rs:1: thread::Builder outside engine",
        ),
        ("loader/mod.rs", "fn f() { tokio::spawn(g()); }", "src/loader/mod.rs:1: tokio::spawn outside engine"),
        ("loader/mod.rs", "use tokio::sync::{Semaphore, mpsc};", "src/loader/mod.rs:1: mpsc outside engine"),
        ("loader/mod.rs", "use tokio::sync::oneshot::Sender;", "src/loader/mod.rs:1: oneshot outside engine"),
        ("source/mod.rs", "use crossbeam_channel::bounded;", "src/source/mod.rs:1: crossbeam outside engine"),
        (
            "source/list.rs",
            "fn f() { thread::Builder::new(); }",
            "src/source/list.rs:1: thread::Builder outside engine",
        ),
        (
            "source/walk/pool.rs",
            "fn f() { tokio::spawn(g()); }",
            "src/source/walk/pool.rs:1: tokio::spawn outside engine",
        ),
        ("source/mod.rs", "use tokio::runtime::Runtime;", "src/source/mod.rs:1: runtime::Runtime outside engine"),
        ("bin/infeed/main.rs", "use std::sync::mpsc;", "src/bin/infeed/main.rs:1: mpsc outside engine"),
        (
            "bin/infeed/main.rs",
            "#[path = \"../../engine/mod.rs\"] mod engine;",
            "src/bin/infeed/main.rs:1: the binary takes a file of the library with #[path]",
        ),
        (
            "bin/infeed/main.rs",
            "include!(\"x.rs\");",
            "src/bin/infeed/main.rs:1: the binary takes a file with include!",
        ),
        ("dataset/mod.rs", "fn f() {\n    println!(\"x\");\n}", "src/dataset/mod.rs:2: println! outside the binary"),
        ("bin/infeed/main.rs", "fn f() { dbg!(1); }", "src/bin/infeed/main.rs:1: dbg! outside the binary"),
        (
            "sampler/mod.rs",
            "fn f() -> char { '\"' } use crate::loader::X; // \"",
            "src/sampler/mod.rs:1: sampler steps up to loader (crate::loader::X)",
        ),
        (
            "sampler/mod.rs",
            "const A: &str = r#\"\"\n\"#; use crate::loader::X;",
            "src/sampler/mod.rs:2: sampler steps up to loader (crate::loader::X)",
        ),
    ] {
        let found = planted(file, text);
        assert!(found.iter().any(|found| found == want), "{file}: {text:?} gives {found:?}, not {want:?}");
    }
}

#[test]
fn tests_in_a_file_of_their_own_may_have_threads() {
    let run = "fn f() { std::thread::spawn(g); }";
    for (declared, offences_wanted) in [
        ("#[cfg(test)]\nmod tests;", 0),
        ("#[cfg(all(test, unix))]\n#[allow(dead_code)]\nmod tests;", 0),
        ("mod tests;", 1),
        ("#[cfg(test)] use x::y; mod tests;", 1),
        ("#[cfg(test)] mod others; mod tests;", 1),
    ] {
        let files = [("codec/mod.rs".into(), declared.into()), ("codec/tests.rs".into(), run.into())];
        assert_eq!(offences(&files).len(), offences_wanted, "{declared}");
    }
}

#[test]
fn what_is_allowed_is_left_alone() {
    for (file, text) in [
        (
            "engine/mod.rs",
            "use crate::{codec, dataset::Dataset}; fn f() { std::thread::spawn(g); tokio::spawn(h()); let (a, b) = mpsc::channel(1); }",
        ),
        ("error.rs", "use crate::report::Stage;"),
        (
            "loader/stream.rs",
            "use crate::engine::{Batches, Handle}; use tokio::sync::Semaphore; use std::sync::{Arc, Mutex};",
        ),
        ("transform/lower.rs", "use crate::dataset::FieldKind; use crate::{Error, Result};"),
        (
            "sampler/order.rs",
            "use super::{Sampler, shard::Shard}; pub(in crate::sampler) fn f() {} pub(crate) fn g() {} mod tests { use super::*; use super::super::Sampler; }",
        ),
        ("sys/rows.rs", "unsafe { f() }"),
        (
            "codec/mod.rs",
            "#![forbid(unsafe_code)]\n// use crate::loader; unsafe\n/* /* tokio::spawn */ mpsc */ const A: &str = \"crate::loader unsafe println!\";",
        ),
        ("codec/mod.rs", "#[cfg(test)]\nmod tests { fn f() { std::thread::scope(|s| ()); } }"),
        (
            "codec/mod.rs",
            "fn f<'a>(x: &'a str) { let channel = 3; std::thread::sleep(d); std::thread::available_parallelism(); }",
        ),
        (
            "bin/infeed/main.rs",
            "mod args; use crate::args::Args; use infeed::Loader; fn main() { println!(\"x\"); tokio::runtime::Builder::new_current_thread(); }",
        ),
        ("lib.rs", "pub use loader::Loader; pub use engine::IoRuntime;"),
    ] {
        assert_eq!(planted(file, text), [] as [String; 0], "{file}: {text}");
    }
}
