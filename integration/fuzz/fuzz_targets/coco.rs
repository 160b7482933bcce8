#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    infeed_fuzz::read_all(&[
        ("annotations/instances_train.json", bytes),
        ("train/a.jpg", b"any"),
        ("train/b.jpg", b"any"),
    ]);
});
