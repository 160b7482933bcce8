//! Lets `nvjpeg-sys` link without a CUDA toolkit, and puts the guide's pictures into the documentation.
//!
//! Its build script asks the linker for `-lnvjpeg` and nothing else. We only use its types and prototypes and load
//! the real library at run time, so an empty archive of that name satisfies the linker and leaves no NEEDED entry.
//! Set `INFEED_LINK_NVJPEG` when another crate of the same binary calls `nvjpeg_sys::*` directly.
//!
//! rustdoc copies no files, so pictures of the pages in `docs` become definitions of links that hold the pictures themselves.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=INFEED_LINK_NVJPEG");
    let dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    fs::write(dir.join("pictures.md"), ["page", "live"].map(picture).concat()).expect("OUT_DIR is writable");
    let cuda = env::var_os("CARGO_FEATURE_CUDA").is_some();
    let linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if !cuda || !linux || env::var_os("INFEED_LINK_NVJPEG").is_some() {
        return;
    }
    // The eight bytes of an `ar` archive with no members. Linkers tell by them what a file is; where a shared library is asked for,
    // zig looks for no other name.
    for name in ["libnvjpeg.a", "libnvjpeg.so"] {
        fs::write(dir.join(name), b"!<arch>\n").expect("OUT_DIR is writable");
    }
    println!("cargo:rustc-link-search=native={}", dir.display());
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
