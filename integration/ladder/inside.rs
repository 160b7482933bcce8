//! Who imports whom inside a room: its files must form no circle, so that each can be read, tested and moved with what
//! lies below it alone.
//!
//! ```text
//! mod.rs ─ pub use ─▶ run ─▶ fetch ─▶ task ─▶ plan      a type is counted at the file that defines it:
//!                      └───────────────────────▲        what `mod.rs` re-exports is not `mod.rs`'s own
//! ```
//!
//! A file imports another when one of its paths leads there; what only tests import does not count, and neither does
//! `mod child;`. So a `mod.rs` that defines what its children use and also names the children is a circle: types in files
//! of their own, and `mod.rs` re-exports them.
//!
//! What is seen are paths. A method of a type that came through another one's signature is not, and neither is what a
//! macro makes, but for the names of children in a macro that is called among a file's items (`formats! { … }`).
//!
//! The whole sketch, room by room: `cargo test -p infeed-integration -- ladder::inside::sketch --ignored --nocapture`.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fmt::Write as _,
};

use super::{Named, Offence, Word, in_crate, listed, module_of, paths, sources, words};

/// Rooms that still have circles, with the imports that run up in them: at most so many. A room that has none any more
/// leaves the list; none joins it.
const NOT_YET: &[(&str, usize)] = &[];

/// The command line: a crate of its own, and one room.
const COMMAND_LINE: &str = "bin/infeed/";
const COMMAND_LINE_ROOM: &str = "bin";

/// Circles of more files than this are put in order by trying, not by looking at all orders.
const EXACT: usize = 16;

/// One room's files, and which of them import which.
#[derive(Debug, Default)]
struct Room {
    /// Paths below `src`.
    files: Vec<String>,
    /// From, to, by their place in `files`: the first line that does it, and how it is spelled there.
    imports: BTreeMap<(usize, usize), (usize, String)>,
}

/// The modules of one crate.
struct Modules {
    /// Which file holds a module.
    files: HashMap<Vec<String>, usize>,
    /// What the items of a module bring in by `use`: name to path from the crate's root.
    names: HashMap<Vec<String>, HashMap<String, Vec<String>>>,
}

impl Modules {
    /// A path as from the crate's root; `None`: it leads out of the crate, or is a name of this module's own.
    fn absolute(&self, path: &Named) -> Option<Vec<String>> {
        let first = path.parts.first()?;
        match first.as_str() {
            "crate" | "super" => in_crate(path),
            "self" if path.parts.len() > 1 => Some(path.module.iter().chain(&path.parts[1..]).cloned().collect()),
            _ => {
                // A single word may be any variable.
                if path.parts.len() < 2 && path.called.is_none() {
                    return None;
                }
                let child: Vec<String> = path.module.iter().chain([first]).cloned().collect();
                let start = match self.names.get(&path.module).and_then(|names| names.get(first)) {
                    Some(known) if path.called.is_none() => known.clone(),
                    _ if self.files.contains_key(&child) => child,
                    _ => return None,
                };
                Some(start.iter().chain(&path.parts[1..]).cloned().collect())
            }
        }
    }

    /// The file that defines what a path from the crate's root names.
    fn defined(&self, path: &[String]) -> Option<usize> {
        let mut path = path.to_vec();
        // Re-exports of re-exports; a circle of them would not compile.
        for _ in 0..8 {
            let known = (0..=path.len()).rev().find(|len| self.files.contains_key(&path[..*len]))?;
            let rest: Vec<String> = path[known..].iter().filter(|part| *part != "self").cloned().collect();
            let module = &path[..known];
            let next = rest.first().and_then(|name| self.names.get(module)?.get(name));
            match next {
                Some(target) => path = target.iter().chain(&rest[1..]).cloned().collect(),
                None => return self.files.get(module).copied(),
            }
        }
        None
    }
}

/// Children of `module` that macros called among the file's items name, with their lines.
fn named_in_macros(module: &[String], words: &[Word], modules: &Modules) -> Vec<(Vec<String>, usize)> {
    let is = |i: usize, text: &str| words.get(i).is_some_and(|word| word.text == text);
    let mut found = Vec::new();
    let mut depth = 0;
    // Depth of the braces around the macro's words.
    let mut within: Option<usize> = None;
    for (i, word) in words.iter().enumerate() {
        match word.text.as_str() {
            "{" => {
                if depth == 0 && i > 1 && is(i - 1, "!") {
                    within = Some(depth);
                }
                depth += 1;
            }
            "}" => {
                depth -= 1;
                within = within.filter(|at| *at < depth);
            }
            name if within.is_some() => {
                let child: Vec<String> = module.iter().map(String::as_str).chain([name]).map(Into::into).collect();
                if modules.files.contains_key(&child) {
                    found.push((child, word.line));
                }
            }
            _ => {}
        }
    }
    found
}

/// The rooms of a crate whose files are given by their path below its root; `room_of` names a file's room.
fn rooms_of_crate(files: &[(String, &str)], room_of: impl Fn(&str) -> String) -> BTreeMap<String, Room> {
    let mut test_files = Vec::new();
    let read: Vec<_> = files
        .iter()
        .map(|(file, text)| {
            let words = words(text);
            let paths = paths(file, &words, &mut test_files);
            (file, paths, words)
        })
        .collect();
    let mut modules = Modules { files: HashMap::new(), names: HashMap::new() };
    for (i, (file, ..)) in read.iter().enumerate() {
        modules.files.insert(module_of(file), i);
    }
    let for_tests = |file: &str, path: &Named| {
        path.in_test || path.test_use || test_files.iter().any(|test| module_of(file).starts_with(test))
    };
    for (file, paths, _) in &read {
        for path in paths.iter().filter(|path| !for_tests(file, path)) {
            if let (Some(called), Some(target)) = (&path.called, modules.absolute(path)) {
                modules.names.entry(path.module.clone()).or_default().insert(called.clone(), target);
            }
        }
    }

    let mut rooms: BTreeMap<String, Room> = BTreeMap::new();
    let mut places = Vec::new();
    for (file, ..) in &read {
        let name = room_of(file);
        let room = rooms.entry(name.clone()).or_default();
        room.files.push(file.to_string());
        places.push((name, room.files.len() - 1));
    }
    for (i, (file, paths, words)) in read.iter().enumerate() {
        let (name, from) = &places[i];
        let mut import = |target: usize, line: usize, spelled: String| {
            let (other, to) = &places[target];
            if other == name && to != from {
                let room = rooms.get_mut(name).expect("made above");
                let known = room.imports.entry((*from, *to)).or_insert_with(|| (line, spelled.clone()));
                if line < known.0 {
                    *known = (line, spelled);
                }
            }
        };
        for path in paths.iter().filter(|path| !for_tests(file, path)) {
            if let Some(target) = modules.absolute(path).and_then(|path| modules.defined(&path)) {
                import(target, path.line, path.parts.join("::"));
            }
        }
        for (child, line) in named_in_macros(&module_of(file), words, &modules) {
            import(modules.files[&child], line, child.join("::"));
        }
    }
    rooms
}

/// All rooms of these files: (path below `src`, with `/`; text).
fn rooms(files: &[(String, String)]) -> BTreeMap<String, Room> {
    let (command_line, library): (Vec<_>, Vec<_>) = files.iter().partition(|(file, _)| file.starts_with(COMMAND_LINE));
    let library: Vec<(String, &str)> = library.into_iter().map(|(file, text)| (file.clone(), text.as_str())).collect();
    let mut all =
        rooms_of_crate(&library, |file| file.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned());
    let command_line: Vec<(String, &str)> =
        command_line.into_iter().map(|(file, text)| (file[COMMAND_LINE.len()..].to_owned(), text.as_str())).collect();
    for (name, mut room) in rooms_of_crate(&command_line, |_| COMMAND_LINE_ROOM.to_owned()) {
        room.files.iter_mut().for_each(|file| file.insert_str(0, COMMAND_LINE));
        all.insert(name, room);
    }
    all
}

impl Room {
    fn reachable(&self, from: usize) -> HashSet<usize> {
        let (mut seen, mut open) = (HashSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            for to in self.imports.keys().filter(|(start, _)| *start == file).map(|(_, to)| *to) {
                if seen.insert(to) {
                    open.push(to);
                }
            }
        }
        seen
    }

    /// Sets of files in which each leads to each.
    fn circles(&self) -> Vec<Vec<usize>> {
        let reachable: Vec<HashSet<usize>> = (0..self.files.len()).map(|file| self.reachable(file)).collect();
        let mut circles: Vec<Vec<usize>> = Vec::new();
        for file in 0..self.files.len() {
            if !reachable[file].contains(&file) || circles.iter().any(|circle| circle.contains(&file)) {
                continue;
            }
            circles.push(
                (0..self.files.len())
                    .filter(|to| reachable[file].contains(to) && reachable[*to].contains(&file))
                    .collect(),
            );
        }
        circles
    }

    /// The imports of a circle that run up in the best order of its files.
    fn up(&self, circle: &[usize]) -> Vec<(usize, usize)> {
        let order = if circle.len() <= EXACT { self.best_order(circle) } else { self.good_order(circle) };
        let place: HashMap<usize, usize> = order.iter().enumerate().map(|(place, file)| (*file, place)).collect();
        let up = |(from, to): &&(usize, usize)| match (place.get(from), place.get(to)) {
            (Some(from), Some(to)) => to > from,
            _ => false,
        };
        self.imports.keys().filter(up).copied().collect()
    }

    /// What it costs to have an import run up. Of orders with as few, the one with parents above their children.
    fn cost(&self, from: usize, to: usize) -> u32 {
        if !self.imports.contains_key(&(from, to)) {
            return 0;
        }
        let parent = module_of(&self.files[from]);
        // Circles have fewer imports than this.
        1000 + u32::from(module_of(&self.files[to]).starts_with(&parent))
    }

    /// From the ground up, with the fewest imports that run up: by the best order of each set of files.
    fn best_order(&self, circle: &[usize]) -> Vec<usize> {
        let n = circle.len();
        let costs: Vec<Vec<u32>> =
            circle.iter().map(|from| circle.iter().map(|to| self.cost(*from, *to)).collect()).collect();
        // For each set of files on the ground: what the imports that run up among them cost, and which file is on top.
        let mut best = vec![(u32::MAX, 0_u8); 1 << n];
        best[0].0 = 0;
        for set in 0..1_usize << n {
            for top in (0..n).filter(|top| set & (1 << top) == 0) {
                let below = (0..n).filter(|low| set & (1 << low) != 0);
                let cost = best[set].0 + below.map(|low| costs[low][top]).sum::<u32>();
                let with = &mut best[set | 1 << top];
                if cost < with.0 {
                    *with = (cost, top as u8);
                }
            }
        }
        let (mut order, mut set) = (Vec::new(), (1 << n) - 1);
        while set != 0 {
            let top = usize::from(best[set].1);
            order.push(circle[top]);
            set &= !(1 << top);
        }
        order.reverse();
        order
    }

    /// Moves one file at a time to where it is best, until none gains; the best of several beginnings.
    fn good_order(&self, circle: &[usize]) -> Vec<usize> {
        const BEGINNINGS: usize = 12;
        let costs: Vec<Vec<u32>> =
            circle.iter().map(|from| circle.iter().map(|to| self.cost(*from, *to)).collect()).collect();
        let n = circle.len();
        let mut best: Option<(u32, Vec<usize>)> = None;
        for beginning in 0..BEGINNINGS {
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by_key(|at| (at + 1) * (2 * beginning + 1) % (n + beginning));
            loop {
                let mut gained = false;
                for (file, own) in costs.iter().enumerate() {
                    let old = order.iter().position(|other| *other == file).expect("each is in it");
                    order.remove(old);
                    // On the ground all that it imports run up; with each step one of them no more.
                    let mut cost: i64 = order.iter().map(|high| i64::from(own[*high])).sum();
                    let at_places: Vec<i64> = std::iter::once(cost)
                        .chain(order.iter().map(|low| {
                            cost += i64::from(costs[*low][file]) - i64::from(own[*low]);
                            cost
                        }))
                        .collect();
                    let place = (0..n).min_by_key(|place| (at_places[*place], *place != old)).unwrap_or(old);
                    gained |= place != old;
                    order.insert(place, file);
                }
                if !gained {
                    break;
                }
            }
            let pairs =
                order.iter().enumerate().flat_map(|(i, low)| order[i + 1..].iter().map(move |high| (*low, *high)));
            let cost = pairs.map(|(low, high)| costs[low][high]).sum();
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, order));
            }
        }
        best.map_or_else(Vec::new, |(_, order)| order.into_iter().map(|at| circle[at]).collect())
    }

    fn all_up(&self) -> usize {
        self.circles().iter().map(|circle| self.up(circle).len()).sum()
    }

    /// The shortest way back from `to` to `from`, both included.
    fn back(&self, from: usize, to: usize) -> Vec<usize> {
        let (mut before, mut open) = (HashMap::new(), VecDeque::from([to]));
        while let Some(file) = open.pop_front() {
            if file == from {
                break;
            }
            for next in self.imports.keys().filter(|(start, _)| *start == file).map(|(_, next)| *next) {
                if next != to && !before.contains_key(&next) {
                    before.insert(next, file);
                    open.push_back(next);
                }
            }
        }
        let mut back = vec![from];
        while let Some(file) = back.last().and_then(|file| before.get(file)) {
            back.push(*file);
        }
        back.reverse();
        back
    }

    /// A file's name within the room.
    fn short(&self, room: &str, file: usize) -> String {
        let name = self.files[file].trim_end_matches(".rs");
        let name = name.strip_prefix(COMMAND_LINE).unwrap_or(name);
        name.strip_prefix(room).and_then(|name| name.strip_prefix('/')).unwrap_or(name).to_owned()
    }
}

/// Circles inside a room whose files lie in `folder`.
fn circles_of(name: &str, room: &Room, folder: &str) -> Vec<Offence> {
    let mut all = Vec::new();
    for circle in room.circles() {
        for (from, to) in room.up(&circle) {
            let (line, spelled) = &room.imports[&(from, to)];
            let mut circle = vec![room.short(name, from)];
            circle.extend(room.back(from, to).into_iter().map(|file| room.short(name, file)));
            let what = format!("a circle inside {name}: {} ({spelled})", circle.join(" → "));
            all.push(Offence { file: format!("{folder}/{}", room.files[from]), line: *line, what });
        }
    }
    all
}

/// Circles of a package that is one room: (path below its `src`; text).
pub(super) fn circles_of_crate(files: &[(String, String)], name: &str) -> Vec<Offence> {
    let files: Vec<(String, &str)> = files.iter().map(|(file, text)| (file.clone(), text.as_str())).collect();
    let rooms = rooms_of_crate(&files, |_| name.to_owned());
    rooms.iter().flat_map(|(name, room)| circles_of(name, room, &format!("{name}/src"))).collect()
}

/// Circles inside rooms.
fn offences(files: &[(String, String)], not_yet: &[(&str, usize)]) -> Vec<Offence> {
    let rooms = rooms(files);
    let mut all = Vec::new();
    for (name, room) in &rooms {
        let Some((_, most)) = not_yet.iter().find(|(room, _)| room == name) else {
            all.extend(circles_of(name, room, "src"));
            continue;
        };
        let up = room.all_up();
        let what = match up {
            0 => format!("{name} has no circle any more: take it off NOT_YET"),
            up if up > *most => format!("{up} imports inside {name} run up, at most {most} may"),
            _ => continue,
        };
        all.push(Offence { file: format!("src/{name}"), line: 1, what });
    }
    for (name, _) in not_yet.iter().filter(|(name, _)| !rooms.contains_key(*name)) {
        all.push(Offence { file: format!("src/{name}"), line: 1, what: format!("{name} of NOT_YET is no room") });
    }
    all.sort();
    all
}

#[test]
fn no_room_turns_back_inside() {
    let found = offences(&sources(), NOT_YET);
    assert!(found.is_empty(), "\n{}", listed(&found));
}

#[test]
#[ignore = "prints who imports whom, for those who want to see it"]
#[expect(clippy::print_stdout, reason = "to be read")]
fn sketch() {
    let mut out = String::new();
    let (mut files, mut imports, mut up) = (0, 0, 0);
    for (name, room) in rooms(&sources()) {
        let circles = room.circles();
        let run_up: Vec<(usize, usize)> = circles.iter().flat_map(|circle| room.up(circle)).collect();
        (files, imports, up) = (files + room.files.len(), imports + room.imports.len(), up + run_up.len());
        if room.files.len() == 1 {
            continue;
        }
        let least = if circles.iter().all(|circle| circle.len() <= EXACT) { "at least" } else { "about" };
        let _ = writeln!(
            out,
            "{name}: {} files, {} imports, {least} {} up, {} circles",
            room.files.len(),
            room.imports.len(),
            run_up.len(),
            circles.len()
        );
        for circle in &circles {
            let names: Vec<String> = circle.iter().map(|file| room.short(&name, *file)).collect();
            let _ = writeln!(out, "  circle of {}: {}", circle.len(), names.join(", "));
        }
        for (from, to) in run_up {
            let (line, spelled) = &room.imports[&(from, to)];
            let (from, to) = (room.short(&name, from), room.short(&name, to));
            let _ = writeln!(out, "    up: {from} → {to} (line {line}: {spelled})");
        }
        if std::env::var_os("INFEED_SKETCH_ALL").is_some() {
            for ((from, to), (line, spelled)) in &room.imports {
                let (from, to) = (room.short(&name, *from), room.short(&name, *to));
                let _ = writeln!(out, "    {from} → {to} (line {line}: {spelled})");
            }
        }
    }
    println!("{out}all rooms: {files} files, {imports} imports inside, {up} up");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], not_yet: &[(&str, usize)]) -> Vec<String> {
        let files: Vec<(String, String)> = files.iter().map(|(file, text)| ((*file).into(), (*text).into())).collect();
        let found = offences(&files, not_yet);
        found.into_iter().map(|Offence { file, line, what }| format!("{file}:{line}: {what}")).collect()
    }

    #[test]
    fn a_planted_circle_is_found_with_its_line() {
        let two = "src/engine/a.rs:1: a circle inside engine: a → b → a";
        for (name, files, want) in [
            (
                "neighbours",
                &[
                    ("engine/mod.rs", "mod a; mod b;"),
                    ("engine/a.rs", "use super::b::B; pub struct A;"),
                    ("engine/b.rs", "\nuse super::a::A; pub struct B;"),
                ][..],
                format!("{two} (super::b::B)"),
            ),
            (
                "by the crate's root, and in a function",
                &[
                    ("engine/mod.rs", "mod a; mod b;"),
                    ("engine/a.rs", "fn f() { crate::engine::b::g() }"),
                    ("engine/b.rs", "use crate::engine::a; fn g() { a::f() }"),
                ],
                format!("{two} (crate::engine::b::g)"),
            ),
            (
                "a type of mod.rs that also names the child",
                &[
                    ("engine/mod.rs", "mod a; pub use a::A; pub struct Own;"),
                    ("engine/a.rs", "use super::Own; pub struct A;"),
                ],
                "src/engine/a.rs:1: a circle inside engine: a → mod → a (super::Own)".into(),
            ),
            (
                "over what mod.rs re-exports, under another name",
                &[
                    ("engine/mod.rs", "mod a; mod b; pub use b::{B as Better};"),
                    ("engine/a.rs", "use super::{Better}; pub struct A;"),
                    ("engine/b.rs", "use super::a; fn f(_: a::A) {}"),
                ],
                format!("{two} (super::Better)"),
            ),
            (
                "over what lib.rs re-exports",
                &[
                    ("lib.rs", "mod engine; pub use engine::B;"),
                    ("engine/mod.rs", "mod a; mod b; pub use b::B;"),
                    ("engine/a.rs", "use crate::B; pub struct A;"),
                    ("engine/b.rs", "use super::a::A; pub struct B;"),
                ],
                format!("{two} (crate::B)"),
            ),
            (
                "a module in a file imports for its file",
                &[
                    ("engine/mod.rs", "mod a; mod b;"),
                    ("engine/a.rs", "mod inner { use super::super::b::B; }"),
                    ("engine/b.rs", "use super::a::A; pub struct B;"),
                ],
                format!("{two} (super::super::b::B)"),
            ),
            (
                "a list of children in a macro",
                &[
                    ("codec/mod.rs", "mod png;\ncodecs! { \"png\" png Png }\npub trait Codec {}"),
                    ("codec/png.rs", "use super::Codec; pub struct Png;"),
                ],
                "src/codec/png.rs:1: a circle inside codec: png → mod → png (super::Codec)".into(),
            ),
            (
                "a folder below a room",
                &[
                    ("source/mod.rs", "mod cache; mod read; pub use cache::Cache;"),
                    ("source/cache/mod.rs", "mod disk; pub use disk::Cache;"),
                    ("source/cache/disk.rs", "use crate::source::read::Read; pub struct Cache;"),
                    ("source/read.rs", "use super::Cache; pub struct Read;"),
                ],
                "src/source/cache/disk.rs:1: a circle inside source: cache/disk → read → cache/disk (crate::source::read::Read)"
                    .into(),
            ),
            (
                "the command line",
                &[
                    ("bin/infeed/main.rs", "mod html; mod run; fn main() { run::run() }"),
                    ("bin/infeed/html.rs", "use crate::run::Row;"),
                    ("bin/infeed/run.rs", "use crate::html;"),
                ],
                "src/bin/infeed/html.rs:1: a circle inside bin: html → run → html (crate::run::Row)".into(),
            ),
        ] {
            let found = found(files, &[]);
            assert_eq!(found, [want], "{name}");
        }
    }

    #[test]
    fn what_runs_one_way_is_left_alone() {
        for (name, files) in [
            (
                "mod.rs re-exports, and a child uses its sibling through it",
                &[
                    ("engine/mod.rs", "mod a; mod b; pub use a::A; pub(crate) use b::B;"),
                    ("engine/a.rs", "use super::B; pub struct A;"),
                    ("engine/b.rs", "pub struct B;"),
                ][..],
            ),
            (
                "tests look up",
                &[
                    ("engine/mod.rs", "mod a; #[cfg(test)] mod tests; pub use a::A; pub struct Own;"),
                    (
                        "engine/a.rs",
                        "pub struct A; #[cfg(test)] use super::Own; #[cfg(test)] mod tests { use super::super::Own; }",
                    ),
                    ("engine/tests.rs", "use super::Own;"),
                ],
            ),
            (
                "a variable is called as a module",
                &[
                    ("engine/mod.rs", "mod a; mod b;"),
                    ("engine/a.rs", "use super::b::B; fn f(b: B) { b; select! { b } }"),
                    ("engine/b.rs", "fn g(a: u8) { a }"),
                ],
            ),
            (
                "what another room has under the same name",
                &[
                    ("engine/mod.rs", "mod a; mod report;"),
                    ("engine/a.rs", "use super::report; pub struct A;"),
                    ("engine/report.rs", "use crate::report::Stage; use crate::source::a; fn f() { a::g() }"),
                ],
            ),
        ] {
            assert_eq!(found(files, &[]), [] as [String; 0], "{name}");
        }
    }

    #[test]
    fn rooms_that_are_not_clean_yet_may_only_become_cleaner() {
        let circle = [
            ("engine/mod.rs", "mod a; mod b;"),
            ("engine/a.rs", "use super::b::B; pub struct A;"),
            ("engine/b.rs", "use super::a::A; pub struct B;"),
        ];
        assert_eq!(found(&circle, &[("engine", 1)]), [] as [String; 0]);
        assert_eq!(found(&circle, &[("engine", 0)]), ["src/engine:1: 1 imports inside engine run up, at most 0 may"]);
        let clean = "src/engine:1: engine has no circle any more: take it off NOT_YET";
        assert_eq!(found(&circle[..2], &[("engine", 1)]), [clean]);
        assert_eq!(found(&circle, &[("engine", 1), ("x", 1)]), ["src/x:1: x of NOT_YET is no room"]);
    }

    #[test]
    fn the_fewest_that_run_up_are_counted() {
        // One import closes a circle of twenty, more than are looked at in all orders.
        for files in [3, EXACT + 2] {
            let name = |n: usize| format!("engine/f{n}.rs");
            let text = |n: usize| format!("use super::f{};", (n + 1) % files);
            let files: Vec<(String, String)> = (0..files).map(|n| (name(n), text(n))).collect();
            assert_eq!(rooms(&files)["engine"].all_up(), 1);
        }
    }

    #[test]
    fn sources_of_this_crate_are_understood() {
        // A reader that sees no imports would find no circles either.
        let rooms = rooms(&sources());
        let import = |room: &str, from: &str, to: &str| {
            let room = &rooms[room];
            let at = |file: &str| room.files.iter().position(|known| known == file).expect(file);
            room.imports.contains_key(&(at(from), at(to)))
        };
        assert!(import("engine", "engine/admit.rs", "engine/plan.rs"), "by its name");
        assert!(import("engine", "engine/plan.rs", "engine/timeline.rs"), "by super");
        assert!(import("report", "report/mod.rs", "report/late.rs"), "by mod.rs's own re-export");
        assert!(rooms["bin"].imports.len() > 20, "{:?}", rooms["bin"]);
    }
}
