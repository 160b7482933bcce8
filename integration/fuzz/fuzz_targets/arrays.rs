//! Any bytes are arrays or an error; the first says which kind of file they are.
#![no_main]

use std::sync::Arc;

use futures::executor::block_on;
use infeed::{dataset::open_source, source::Source};
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, file)) = bytes.split_first() else { return };
    let name = ["x.npy", "x.npz", "x.safetensors"][usize::from(kind % 3)];
    let store = Arc::new(InMemory::new());
    block_on(async {
        store.put(&Path::from(name), file.to_vec().into()).await.unwrap();
        let source = Source::from_store(store, Path::default(), "fuzz://").inline();
        if let Ok(dataset) = open_source(source).await {
            let _ = infeed::dataset::dataset_contract(&*dataset).await;
        }
    });
});
