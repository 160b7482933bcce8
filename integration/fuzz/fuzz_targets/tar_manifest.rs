//! The body of a manifest, behind the head that it would have: its hash would keep all others out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_128;

fuzz_target!(|body: &[u8]| {
    let mut file = b"infeed shards 3\n".to_vec();
    file.extend((body.len() as u64).to_le_bytes());
    file.extend(xxh3_128(body).to_le_bytes());
    file.extend(body);
    infeed_fuzz::read_all(&[("x.tar", &[0; 4096]), ("shards.infeed", &file)]);
});
