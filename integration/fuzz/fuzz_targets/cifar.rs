//! The first byte says which of the two it is.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, file)) = bytes.split_first() else { return };
    let name = ["data_batch_1.bin", "train.bin"][usize::from(kind % 2)];
    infeed_fuzz::read_all(&[(name, file)]);
});
