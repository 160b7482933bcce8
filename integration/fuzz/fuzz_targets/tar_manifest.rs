//! The table of an index of tars and the samples before it, or the body of one of version 3, with the hash that it would have:
//! that would keep all others out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_128;

fuzz_target!(|bytes: &[u8]| {
    let [version, at, body @ ..] = bytes else { return };
    let file = match version % 2 {
        0 => {
            let magic = b"infeed shards 4\n";
            let (samples, table) = body.split_at(usize::from(*at).min(body.len()));
            let begins = (magic.len() + samples.len()) as u64;
            [&magic[..], samples, table, &begins.to_le_bytes(), &xxh3_128(table).to_le_bytes(), magic].concat()
        }
        _ => [b"infeed shards 3\n", &(body.len() as u64).to_le_bytes()[..], &xxh3_128(body).to_le_bytes(), body].concat(),
    };
    infeed_fuzz::read_all(&[("x.tar", &[0; 4096]), ("shards.infeed", &file)]);
});
