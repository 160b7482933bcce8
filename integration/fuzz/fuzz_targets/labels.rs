//! The first byte says which kind of file it is: labels, or metadata of images.
#![no_main]

use std::sync::Arc;

use futures::executor::block_on;
use infeed::{dataset::open_source, source::Source};
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, file)) = bytes.split_first() else { return };
    let names = ["labels.csv", "labels.json", "metadata.csv", "metadata.jsonl", "labels.txt", "labels.jsonl"];
    let name = names[usize::from(*kind) % names.len()];
    if name.starts_with("metadata") {
        infeed_fuzz::read_all(&[("a.png", b"any"), ("b.png", b"any"), (name, file)]);
        return;
    }
    let store = Arc::new(InMemory::new());
    block_on(async {
        for (name, bytes) in [("a.png", b"any"), ("b.png", b"any")] {
            store.put(&Path::from(name), bytes.to_vec().into()).await.unwrap();
        }
        store.put(&Path::from(name), file.to_vec().into()).await.unwrap();
        let source = Source::from_store(store, Path::default(), "fuzz://").inline();
        let _ = open_source(source).labels(name).await;
    });
});
