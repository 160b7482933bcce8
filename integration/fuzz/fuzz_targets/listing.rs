//! The body of a saved listing, behind the head that it would have: its hash would keep all others out.
#![no_main]

use infeed::{dataset::Fingerprint, internal::listings};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_128;

fuzz_target!(|rest: &[u8]| {
    // The place, which stands first.
    let body = [&7_u128.to_le_bytes()[..], rest].concat();
    for (magic, decode) in listings() {
        let head = [&(body.len() as u64).to_le_bytes()[..], &xxh3_128(&body).to_le_bytes()].concat();
        decode(&[magic, &head, &body].concat(), Fingerprint(7));
    }
});
