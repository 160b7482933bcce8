//! Who imports whom inside a package: its files must form no circle, so that each can be read, tested and moved with what
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

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use super::{
    Package,
    reader::{Named, Source},
};

/// From, to, by their place among the sources: the first line that does it, and how it is spelled there.
type Imports = BTreeMap<(usize, usize), (usize, String)>;

/// The modules of one crate.
struct Modules {
    /// Which file holds a module.
    files: HashMap<Vec<&'static str>, usize>,
    /// What modules bring in by `use`: the name in its module, and the path from the crate's root, if it leads into the crate.
    names: HashMap<Vec<&'static str>, Option<Vec<&'static str>>>,
}

impl Modules {
    /// A path as from the crate's root; `None`: it leads out of the crate, or is a name of this module's own.
    fn absolute(&self, path: &Named) -> Option<Vec<&'static str>> {
        let Named { parts, module, called, .. } = path;
        let (first, rest) = parts.split_first()?;
        let start = match *first {
            "crate" if !rest.is_empty() => Vec::new(),
            "self" if !rest.is_empty() => module.clone(),
            "super" => {
                let ups = parts.iter().take_while(|part| **part == "super").count();
                // More than there are would not compile.
                return Some([&module[..module.len().saturating_sub(ups)], &parts[ups..]].concat());
            }
            // A single word may be any variable.
            _ if rest.is_empty() && called.is_none() => return None,
            _ => {
                let child = [&module[..], &[*first]].concat();
                let is_file = self.files.contains_key(&child);
                match self.names.get(&child) {
                    // `use child::child;` leads into the file, what follows it to what it brought.
                    Some(known) if called.is_none() || !is_file => known.clone()?,
                    _ if is_file => child,
                    _ => return None,
                }
            }
        };
        Some([&start[..], rest].concat())
    }

    /// The file that defines what a path from the crate's root names; `None`: another crate does.
    fn defined(&self, mut path: Vec<&'static str>) -> Option<usize> {
        // Re-exports of re-exports; a circle of them would not compile.
        for _ in 0..8 {
            let known = (0..=path.len()).rev().find(|len| self.files.contains_key(&path[..*len]))?;
            match path.get(..=known).and_then(|name| self.names.get(name)) {
                Some(target) => path = [&target.clone()?[..], &path[known + 1..]].concat(),
                None => return self.files.get(&path[..known]).copied(),
            }
        }
        None
    }
}

fn imports(sources: &[Source]) -> Imports {
    let files = sources.iter().enumerate().map(|(i, source)| (source.module.clone(), i)).collect();
    let mut modules = Modules { files, names: HashMap::new() };
    for (i, source) in sources.iter().enumerate() {
        for path in &source.names {
            // A module inside the file, too.
            modules.files.entry(path.module.clone()).or_insert(i);
        }
    }
    for path in sources.iter().flat_map(|source| &source.names) {
        let Some(called) = path.called.filter(|name| *name != "*") else { continue };
        let name = [&path.module[..], &[called]].concat();
        match modules.absolute(path) {
            Some(target) => _ = modules.names.insert(name, Some(target)),
            // Crates begin with a small letter, types of this module's own with a big one; a macro's words stand alone.
            None if path.parts.len() > 1 && path.parts[0].starts_with(char::is_lowercase) => {
                modules.names.entry(name).or_insert(None);
            }
            None => {}
        }
    }
    let mut imports = Imports::new();
    for (from, source) in sources.iter().enumerate() {
        for path in &source.names {
            if let Some(to) = modules.absolute(path).and_then(|path| modules.defined(path))
                && to != from
            {
                imports.entry((from, to)).or_insert_with(|| (path.line, path.parts.join("::")));
            }
        }
    }
    imports
}

/// The shortest way round over an import, if there is one.
fn round(imports: &Imports, from: usize, to: usize) -> Option<Vec<usize>> {
    let (mut seen, mut ways) = (HashSet::from([to]), VecDeque::from([vec![from, to]]));
    while let Some(way) = ways.pop_front() {
        let last = *way.last()?;
        for (_, next) in imports.range((last, 0)..(last + 1, 0)).map(|(import, _)| *import) {
            if next == from {
                return Some(way);
            }
            if seen.insert(next) {
                ways.push_back([&way[..], &[next]].concat());
            }
        }
    }
    None
}

/// The circles of a package, each once, at the import of its first file.
pub(super) fn circles(Package { folder, sources }: &Package) -> Vec<String> {
    let imports = imports(sources);
    let mut circles = BTreeSet::new();
    for (from, to) in imports.keys() {
        if let Some(mut circle) = round(&imports, *from, *to) {
            let first = circle.iter().enumerate().min_by_key(|(_, file)| **file).map_or(0, |(place, _)| place);
            circle.rotate_left(first);
            circles.insert(circle);
        }
    }
    let told = |circle: Vec<usize>| {
        let (line, spelled) = &imports[&(circle[0], circle[1])];
        let names: Vec<&str> =
            circle.iter().chain([&circle[0]]).map(|file| sources[*file].file.trim_end_matches(".rs")).collect();
        format!("{folder}/{}:{line}: a circle: {} ({spelled})", sources[circle[0]].file, names.join(" → "))
    };
    circles.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::PACKAGES, *};

    fn found(files: &[(&'static str, &'static str)]) -> Vec<String> {
        circles(&Package::new("src", files))
    }

    #[test]
    fn a_planted_circle_is_found_with_its_line() {
        let two = "src/engine/a.rs:1: a circle: engine/a → engine/b → engine/a";
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
                    ("engine/a.rs", "fn f<'a>() -> char { crate::engine::b::g(); '\"' } // \""),
                    ("engine/b.rs", "const A: &str = r#\"\"\"#; use crate::{engine::{a, c}}; fn g() { a::f() }"),
                ],
                format!("{two} (crate::engine::b::g)"),
            ),
            (
                "a type of mod.rs that also names the child",
                &[
                    ("engine/a.rs", "use super::Own; pub struct A;"),
                    ("engine/mod.rs", "mod a; pub use a::A; pub struct Own;"),
                ],
                "src/engine/a.rs:1: a circle: engine/a → engine/mod → engine/a (super::Own)".into(),
            ),
            (
                "over what mod.rs and lib.rs re-export, under another name",
                &[
                    ("engine/a.rs", "use crate::{Best}; mod inner { use super::super::b::B; }"),
                    ("engine/b.rs", "use super::a; fn f(_: a::A) {}"),
                    ("engine/mod.rs", "mod a; mod b; pub use b::{B as Better};"),
                    ("lib.rs", "mod engine; use engine::{self as machine}; pub use machine::Better as Best;"),
                ],
                format!("{two} (crate::Best)"),
            ),
            (
                "a list of children in a macro",
                &[
                    ("codec/mod.rs", "mod png;\ncodecs! { \"png\" png Png }\npub trait Codec {}"),
                    ("codec/png.rs", "pub struct Png;\nuse super::Codec;"),
                ],
                "src/codec/mod.rs:2: a circle: codec/mod → codec/png → codec/mod (png)".into(),
            ),
            (
                "of three, beside files that lead there",
                &[
                    ("a.rs", "use crate::b::B;"),
                    ("b.rs", "use crate::c::C;"),
                    ("c.rs", "use crate::{d::D, e::E};"),
                    ("d.rs", "mod inner { use super::super::b::B; }"),
                    ("e.rs", ""),
                ],
                "src/b.rs:1: a circle: b → c → d → b (crate::c::C)".into(),
            ),
        ] {
            assert_eq!(found(files), [want], "{name}");
        }
    }

    #[test]
    fn what_runs_one_way_is_left_alone() {
        for (name, files) in [
            (
                "a child uses its sibling through mod.rs",
                &[
                    ("engine/mod.rs", "mod a; mod b; pub use a::A; pub(crate) use b::B;"),
                    ("engine/a.rs", "use super::B; pub(in crate::engine) struct A;"),
                    ("engine/b.rs", "pub(super) struct B;"),
                ][..],
            ),
            (
                "what lib.rs has of another crate",
                &[("lib.rs", "mod a; pub use other::{Error, A}; use a::f;"), ("a.rs", "use crate::Error;")],
            ),
            (
                "tests look up",
                &[
                    ("engine/mod.rs", "mod a; #[cfg(test)] mod tests; pub use a::A; pub struct Own;"),
                    (
                        "engine/a.rs",
                        "#[cfg(test)] use super::Own; #[cfg(test)] mod tests { use super::super::Own; }\n\
                         #[cfg(test)] fn f() { super::Own; } // super::Own",
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
                "what another folder has under the same name",
                &[
                    ("engine/a.rs", "use super::report; pub struct A;"),
                    ("engine/report.rs", "use crate::report::Stage; use crate::source::a; fn f() { a::g() }"),
                ],
            ),
        ] {
            assert_eq!(found(files), [] as [String; 0], "{name}");
        }
    }

    #[test]
    fn sources_are_understood() {
        // A reader that sees no imports would find no circles either.
        for (folder, from, to) in [
            ("src", "engine/admit.rs", "engine/plan.rs"),
            ("src", "engine/plan.rs", "engine/timeline.rs"),
            ("src", "prepare/mod.rs", "loader/builder.rs"),
            ("crates/infeed-core/src", "report/mod.rs", "report/late.rs"),
            ("cli/src", "lib.rs", "args.rs"),
        ] {
            let Package { sources, .. } = PACKAGES.iter().find(|package| package.folder == folder).expect(folder);
            let at = |file: &str| sources.iter().position(|source| source.file == file).expect(file);
            assert!(imports(sources).contains_key(&(at(from), at(to))), "{folder}: {from} imports {to}");
        }
    }
}
