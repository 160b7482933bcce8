//! Lets `nvjpeg-sys` link without a CUDA toolkit.
//!
//! Its build script only passes `-lnvjpeg` to the linker. We only use its types and prototypes and load the real
//! library at run time, so an empty archive of that name satisfies the linker and leaves no NEEDED entry. Set
//! `INFEED_LINK_NVJPEG` when another crate of the same binary calls `nvjpeg_sys::*` directly.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=INFEED_LINK_NVJPEG");
    let linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if !linux || env::var_os("INFEED_LINK_NVJPEG").is_some() {
        return;
    }
    let dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    // The eight bytes of an `ar` archive without members, by which linkers recognise the file's type. The second name
    // is for zig, which looks only for `.so` if a shared library is linked.
    for name in ["libnvjpeg.a", "libnvjpeg.so"] {
        fs::write(dir.join(name), b"!<arch>\n").expect("OUT_DIR is writable");
    }
    println!("cargo:rustc-link-search=native={}", dir.display());
}
