//! Errors call settings by one table: what it names is there, and no text names a setting by hand.

use std::{fs, path::PathBuf};

use infeed::internal::{Front, SETTINGS};
use regex_lite::Regex;

use crate::support::repository;

/// Sources of the library and its crates, but those of tests and the table itself.
fn sources() -> Vec<(PathBuf, String)> {
    let mut folders = vec![repository().join("src"), repository().join("crates")];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.ends_with(".rs") && !["tests.rs", "simulation.rs", "setting.rs"].contains(&name) {
                let text = fs::read_to_string(&path).unwrap();
                sources.push((path, text));
            }
        }
    }
    sources
}

/// What stands before a value.
fn bare(name: &str) -> &str {
    name.split(['(', '=', ' ']).next().unwrap_or_default()
}

#[test]
fn programs_can_set_what_is_named() {
    let sources: String = sources().into_iter().map(|(_, text)| text).collect();
    for setting in SETTINGS {
        let name = bare(setting.name(Front::Library));
        let (method, field) = (format!("    pub fn {name}"), format!("    pub {name}: "));
        assert!(sources.contains(&method) || sources.contains(&field), "{setting:?}");
        assert!(!setting.name(Front::Python).is_empty(), "{setting:?}");
    }
}

/// The texts of a source, with their lines, without those of its tests.
fn texts(source: &str) -> Vec<(usize, String)> {
    let end = source.find("#[cfg(test)]\nmod tests {").unwrap_or(source.len());
    let tokens = Regex::new(r##"(?s)//[^\n]*|r#".*?"#|b?'(?:[^'\\\n]|\\[^\n]+?)'|"((?:[^"\\]|\\.)*)""##).unwrap();
    let texts = tokens.captures_iter(&source[..end]).filter_map(|found| found.get(1));
    let line = |at: usize| source[..at].matches('\n').count() + 1;
    texts.map(|text| (line(text.start()), text.as_str().to_owned())).collect()
}

/// What names a setting by hand in a text, if anything does.
fn by_hand(text: &str) -> Option<String> {
    // Words alone are keys and names of fields; what stands between backticks is a command or a name of others.
    if !text.contains(' ') {
        return None;
    }
    let text = Regex::new("`[^`]*`").unwrap().replace_all(text, "`");
    let option = Regex::new(r"(?:^|[ (,])(--[a-z][a-z-]*)").unwrap();
    if let Some(found) = option.captures(&text) {
        return Some(found[1].to_owned());
    }
    let words: Vec<&str> = SETTINGS.iter().map(|setting| bare(setting.name(Front::Library))).collect();
    let calls = Regex::new(r#"(?:^|[^\w.:])([a-z_]+)\((?:…|[A-Z][A-Za-z]*|\\"|\[)"#).unwrap();
    let called = calls.captures_iter(&text).map(|found| found[1].to_owned()).find(|name| words.contains(&&**name));
    let whole = Regex::new(r"(?:^|[^\w.{:])([a-z]+(?:_[a-z]+)+)\b").unwrap();
    let named = whole.captures_iter(&text).map(|found| found[1].to_owned()).find(|name| words.contains(&&**name));
    let moved = Regex::new(r"\b(?:lower|raise|set|leave)\b.*?[^{\w](workers|prefetch|streams)\b").unwrap();
    called.or(named).or_else(|| moved.captures(&text).map(|found| found[1].to_owned()))
}

#[test]
fn a_setting_is_named_by_the_table_alone() {
    for bad in [
        "fetch it again or set on_bad_sample(Skip)",
        "leave it out with columns(…)",
        r#"or set split(\"train\")"#,
        "raise memory_budget",
        "lower io_concurrency and workers",
        "give --rank and a world size",
    ] {
        assert!(by_hand(bad).is_some(), "{bad}");
    }
    for good in
        ["{SKIP} is set", "max_image_bytes", "{batch_size} rows", "run `aws configure --profile x`", "workers do it"]
    {
        assert_eq!(by_hand(good), None, "{good}");
    }
    let mut found = Vec::new();
    let mut read = 0;
    for (path, source) in sources() {
        for (line, text) in texts(&source) {
            read += 1;
            let named = by_hand(&text);
            found.extend(named.map(|name| format!("{}:{line}: {name} in {text:?}", path.display())));
        }
    }
    assert!(read > 2000, "only {read} texts were read");
    assert!(found.is_empty(), "name settings by the constants of `setting`:\n{}", found.join("\n"));
}
