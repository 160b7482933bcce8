//! The package of the JPEG decoder: what the library's rooms may not do, its files may not either.

use super::{CONCURRENCY, Offence, has, inside, listed, module_of, paths, read, words};
use crate::support::repository;

/// Where `unsafe` may stand.
const UNSAFE: &str = "simd/";

/// All offences in these files: (path below the package's `src`, with `/`; text).
fn offences(files: &[(String, String)]) -> Vec<Offence> {
    let mut all = Vec::new();
    let mut test_files = Vec::new();
    let read: Vec<_> = files
        .iter()
        .map(|(file, text)| {
            let words = words(text);
            let paths = paths(file, &words, &mut test_files);
            (file, paths, words)
        })
        .collect();
    for (file, paths, words) in read {
        let mut offend = |line: usize, what: String| all.push(Offence { file: format!("jpeg/src/{file}"), line, what });
        for (i, word) in words.iter().enumerate() {
            let called = words.get(i + 1).is_some_and(|next| next.text == "!");
            if called && matches!(word.text.as_str(), "println" | "print" | "eprintln" | "eprint" | "dbg") {
                offend(word.line, format!("{}! in a library", word.text));
            }
            if word.text == "unsafe" && !file.starts_with(UNSAFE) {
                offend(word.line, "unsafe outside simd".into());
            }
        }
        let for_tests = test_files.iter().any(|test| module_of(file).starts_with(test));
        for path in paths.iter().filter(|path| !path.in_test && !for_tests) {
            for pattern in CONCURRENCY.iter().filter(|pattern| has(&path.parts, pattern)) {
                offend(path.line, format!("{} in a decoder", pattern.join("::")));
            }
        }
    }
    all.extend(inside::circles_of_crate(files, "jpeg"));
    all.sort();
    all.dedup();
    all
}

#[test]
fn the_decoder_of_jpeg_has_no_threads_no_circles_and_unsafe_in_one_place() {
    let files = read(&repository().join("jpeg/src"));
    assert!(files.len() > 10, "only {} sources found", files.len());
    let found = offences(&files);
    assert!(found.is_empty(), "\n{}", listed(&found));
}

#[test]
fn a_planted_offence_is_found_with_its_line() {
    for (file, text, want) in [
        ("scan.rs", "\nfn f() { unsafe { g() } }", "jpeg/src/scan.rs:2: unsafe outside simd"),
        ("simd/idct.rs", "fn f() { unsafe { g() } }", ""),
        ("index.rs", "fn f() { std::thread::spawn(g); }", "jpeg/src/index.rs:1: thread::spawn in a decoder"),
        ("index.rs", "#[cfg(test)] mod tests { fn f() { std::thread::spawn(g); } }", ""),
        ("header.rs", "fn f() { println!(\"x\"); }", "jpeg/src/header.rs:1: println! in a library"),
        ("planes.rs", "use crate::lib_type;", ""),
        (
            "planes.rs",
            "use crate::header::Header;",
            "jpeg/src/planes.rs:1: a circle inside jpeg: planes → header → planes (crate::header::Header)",
        ),
    ] {
        let mut files = vec![("lib.rs".into(), "mod header; mod planes;".into()), (file.into(), text.into())];
        if file == "planes.rs" {
            files.push(("header.rs".into(), "use crate::planes::Plane;".into()));
        }
        let found: Vec<String> =
            offences(&files).into_iter().map(|Offence { file, line, what }| format!("{file}:{line}: {what}")).collect();
        let expected: Vec<&str> = if want.is_empty() { Vec::new() } else { vec![want] };
        assert_eq!(found, expected, "{file}: {text:?}");
    }
}
