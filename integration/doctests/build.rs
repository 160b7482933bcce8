//! The docs of each source of the internal crates as a Markdown file, and a module that shows it.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    let crates = Path::new("../../crates");
    println!("cargo:rerun-if-changed={}", crates.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let mut modules = String::new();
    for source in sources(crates) {
        if !is_internal(&source) {
            continue;
        }
        let text = fs::read_to_string(&source).expect("sources are UTF-8");
        let docs: Vec<&str> = text.lines().map(doc).collect();
        if !docs.iter().any(|line| line.trim_start().starts_with("```")) {
            continue;
        }
        let path = source.strip_prefix(crates).expect("it is below").with_extension("");
        let name = path.to_str().expect("names are Unicode").replace("/src/", "/").replace(['/', '-'], "_");
        fs::write(out.join(&name).with_extension("md"), docs.join("\n")).expect("OUT_DIR is writable");
        modules += &format!("#[doc = include_str!(concat!(env!(\"OUT_DIR\"), \"/{name}.md\"))]\npub mod {name} {{}}\n");
    }
    fs::write(out.join("files.rs"), modules).expect("OUT_DIR is writable");
}

/// Of a crate whose own documentation tests are off; adapters run theirs.
fn is_internal(source: &Path) -> bool {
    let manifest = source.ancestors().map(|folder| folder.join("Cargo.toml")).find(|manifest| manifest.exists());
    let manifest = manifest.and_then(|manifest| fs::read_to_string(manifest).ok()).unwrap_or_default();
    manifest.lines().any(|line| line == "doctest = false")
}

/// What a line says as documentation; nothing where it is code. So lines keep their numbers.
fn doc(line: &str) -> &str {
    let line = line.trim_start();
    let said = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    said.map_or("", |said| said.strip_prefix(' ').unwrap_or(said))
}

/// Every Rust file below a folder, by name.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the crates lie there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder that can be read").path()).collect();
    paths.sort();
    let (folders, files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.is_dir());
    let rust = files.into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    rust.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}
