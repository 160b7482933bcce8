//! Takes the files under test out of the crate, with the model checker's primitives in place of the standard library's
//! and of tokio's.

use std::{env, fs, path::Path};

/// File, and what stands in its imports instead: each must be found.
const FILES: [(&str, &[(&str, &str)]); 4] = [
    ("queue", &[("use std::{", "use crate::checked::std::{")]),
    ("permits", &[("use std::{", "use crate::checked::std::{"), ("use tokio::", "use crate::checked::tokio::")]),
    ("under_way", &[("use std::{", "use crate::checked::std::{")]),
    ("gate", &[("use std::{", "use crate::checked::std::{"), ("use tokio::", "use crate::checked::tokio::")]),
];

fn main() {
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/engine");
    let out = env::var("OUT_DIR").expect("cargo says where");
    println!("cargo::rerun-if-changed=build.rs");
    for (name, changes) in FILES {
        let path = engine.join(format!("{name}.rs"));
        println!("cargo::rerun-if-changed={}", path.display());
        let source = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        // Text of the file as a whole can't stand where it is included; its tests use the primitives that are replaced.
        let body = source.lines().skip_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n");
        let body = body.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
        let body = changes.iter().fold(body, |body, (from, to)| {
            assert!(body.contains(from), "{name}.rs has no `{from}` any more");
            body.replacen(from, to, 1)
        });
        // Models are not among their neighbours.
        let body = body.replace("pub(super)", "pub(crate)");
        // What these crates have of it stands in `main.rs`.
        let body = body.replace("infeed_core::", "crate::").replace("infeed_pixels::", "crate::").replace("infeed_store::", "crate::source::");
        assert!(!body.contains("\nuse std::") && !body.contains("\nuse tokio::"), "an import of {name}.rs is left");
        fs::write(Path::new(&out).join(format!("{name}.rs")), body).expect("a file of ours");
    }
}
