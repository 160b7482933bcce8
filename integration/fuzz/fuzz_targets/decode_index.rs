//! A file that is to be an index of decoding: it is one or an error, also when it is saved again.
#![no_main]

use infeed::codec::DecodeIndex;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // One for each process: several run beside each other.
    let path = std::env::temp_dir().join(format!("infeed-fuzz-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("a place for files");
    if let Ok(index) = DecodeIndex::open(&path, 1 << 20) {
        let _ = (index.len(), index.save(&path));
    }
});
