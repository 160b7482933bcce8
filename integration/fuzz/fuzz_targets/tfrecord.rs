//! A file as it is, and as the content of records with checksums that are right.
#![no_main]

use libfuzzer_sys::fuzz_target;

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

fuzz_target!(|bytes: &[u8]| {
    infeed_fuzz::read_all(&[("x.tfrecord", bytes)]);
    let mut file = Vec::new();
    let half = bytes.len() / 2;
    for content in [bytes, &bytes[..half]] {
        let length = (content.len() as u64).to_le_bytes();
        file.extend(length);
        file.extend(masked(&length));
        file.extend(content);
        file.extend(masked(content));
    }
    infeed_fuzz::read_all(&[("x.tfrecord", &file)]);
    // Compressed, by its first bytes.
    infeed_fuzz::read_all(&[("x.tfrecord.gz", bytes)]);
});
