//! Reads Rust as a stream of words, without comments and texts: enough to see every path, and in need of no compiler.
//!
//! The sources stay in memory for as long as the tests run, so each is read once.

use std::sync::LazyLock;

use regex_lite::Regex;

/// The first group is a word: an attribute that says "for tests", a path as far as it goes, or a sign.
static WORDS: LazyLock<Regex> = LazyLock::new(|| {
    let words = r##"(?xs)
        //[^\n]* | /\*.*?\*/                                # comments
        | b?'(?:\\.[^']*|[^'\\])' | '\w+                    # characters, lifetimes
        | [bc]?r"[^"]*" | [bc]?r\#".*?"\# | [bc]?r\#\#".*?"\#\#     # texts
        | [bc]?"(?:\\.|[^"\\])*"
        | pub\((?:crate|self|super|in\ [\w:]+)\)            # who may see it: no step to anywhere
        | (
            \#\[cfg\((?:all\()?test[,)][^\]]*\]
            | (?:::)?\w+(?:::\w+)*(?:::\*?)?
            | \S
        )"##;
    Regex::new(words).expect("it is right")
});

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    text: &'static str,
    line: usize,
}

/// A path such as `std::thread::spawn`, with the trees of `use` written out.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) parts: Vec<&'static str>,
    pub(super) line: usize,
    /// Modules around it, from the crate's root.
    pub(super) module: Vec<&'static str>,
    /// What a `use` among the items of its module calls it. Single words of a macro that is called there count too: they may
    /// be children.
    pub(super) called: Option<&'static str>,
}

/// A source, and all that it names for other ends than tests.
#[derive(Debug)]
pub(super) struct Source {
    /// Below the package's `src`.
    pub(super) file: &'static str,
    pub(super) module: Vec<&'static str>,
    pub(super) names: Vec<Named>,
}

/// The sources of a package, without those that are for tests alone: (path below `src`, with `/`; text).
pub(super) fn read(files: &[(&'static str, &'static str)]) -> Vec<Source> {
    // Collected from all files first: a module is declared above the file that holds it.
    let mut tests = Vec::new();
    let mut read = |(file, text)| Source { file, module: module_of(file), names: names(file, text, &mut tests) };
    let mut all: Vec<Source> = files.iter().copied().map(&mut read).collect();
    all.retain(|source| !tests.iter().any(|test| source.module.starts_with(test)));
    all
}

fn words(source: &'static str) -> Vec<Word> {
    let (mut line, mut counted) = (1, 0);
    let words = WORDS.captures_iter(source).filter_map(|found| found.get(1)).map(|word| {
        line += source[counted..word.start()].matches('\n').count();
        counted = word.start();
        Word { text: word.as_str(), line }
    });
    words.collect()
}

/// The modules of a file: `sampler/order.rs` is `sampler::order`.
fn module_of(file: &'static str) -> Vec<&'static str> {
    let mut parts: Vec<_> = file.trim_end_matches(".rs").split('/').collect();
    parts.pop_if(|last| matches!(*last, "mod" | "lib"));
    parts
}

/// Where the item that begins at `from` ends.
fn end_of_item(words: &[Word], from: usize) -> usize {
    let mut depth = 0;
    for (i, word) in words.iter().enumerate().skip(from) {
        match word.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return i,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(word.text, ";" | "}") {
            return i + 1;
        }
    }
    words.len()
}

/// Every path of a file outside its tests. Modules that it declares for tests only are added to `tests`.
fn names(file: &'static str, text: &'static str, tests: &mut Vec<Vec<&'static str>>) -> Vec<Named> {
    let words = words(text);
    let is = |i: usize, text: &str| words.get(i).is_some_and(|word| word.text == text);
    let (mut found, mut module, mut depth, mut i) = (Vec::new(), module_of(file), 0, 0);
    let above = module.len();
    // Whether this is in a `use`, and in a macro's braces, among a module's items.
    let (mut using, mut listing) = (false, false);
    // What stands before the braces around this, and for each such brace the depth there and how much stood before it.
    let (mut prefix, mut trees) = (Vec::new(), Vec::new());
    while let Some(&Word { text, line }) = words.get(i) {
        let among_items = depth == module.len() - above;
        i += 1;
        match text {
            "mod" if is(i + 1, "{") => {
                module.push(words[i].text);
                (depth, i) = (depth + 1, i + 2);
            }
            "{" => {
                listing |= among_items && i > 1 && is(i - 2, "!");
                depth += 1;
            }
            "}" => {
                depth -= 1;
                if let Some((_, len)) = trees.pop_if(|(at, _)| *at == depth) {
                    prefix.truncate(len);
                }
                module.truncate(above + depth);
                listing &= depth > module.len() - above;
            }
            ";" => using = false,
            // `use<'_>` is another thing.
            "use" => using = among_items && !is(i, "<"),
            _ if text.starts_with("#[cfg(") => {
                let end = end_of_item(&words, i);
                if let [.., Word { text: "mod", .. }, name, Word { text: ";", .. }] = &words[i..end] {
                    tests.push([&module[..], &[name.text]].concat());
                }
                i = end;
            }
            _ if text.starts_with(|c: char| c.is_alphabetic() || c == '_') || text == "*" && !trees.is_empty() => {
                // `a::{self}` is `a`.
                let own = text.split("::").filter(|part| !part.is_empty() && (prefix.is_empty() || *part != "self"));
                let parts: Vec<_> = prefix.iter().copied().chain(own).collect();
                if text.ends_with("::") && is(i, "{") {
                    trees.push((depth, prefix.len()));
                    (prefix, depth, i) = (parts, depth + 1, i + 1);
                } else {
                    let mut last = parts.last().copied();
                    if (using || !trees.is_empty()) && is(i, "as") {
                        last = words.get(i + 1).map(|alias| alias.text);
                        i += 2;
                    }
                    let called = last.filter(|_| using || listing && parts.len() == 1);
                    found.push(Named { parts, line, module: module.clone(), called });
                }
            }
            _ => {}
        }
    }
    found
}
