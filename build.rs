//! Puts the guide's pictures into the documentation.
//!
//! rustdoc copies no files, so pictures of the pages in `docs` become definitions of links that hold the pictures themselves.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    fs::write(dir.join("pictures.md"), ["page", "live"].map(picture).concat()).expect("OUT_DIR is writable");
}

/// The definition of a picture's link; nothing where the file was left out, for then the page's own definition holds.
fn picture(name: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let path = format!("docs/{name}.png");
    let Ok(bytes) = fs::read(&path) else { return String::new() };
    println!("cargo:rerun-if-changed={path}");
    let mut text = format!("[{name}]: data:image/png;base64,");
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        let digit = |n: usize| if n > three.len() { '=' } else { DIGITS[(bits >> (18 - 6 * n) & 63) as usize] as char };
        text.extend((0..4).map(digit));
    }
    text + "\n"
}
