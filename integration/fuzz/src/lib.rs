//! Opens made-up objects as a dataset and reads every record: errors are fine, panics and endless memory are not.

#[path = "../../support/jpeg_check.rs"]
pub mod jpeg_check;
#[path = "../../support/plain_jpeg.rs"]
pub mod plain_jpeg;

use std::sync::Arc;

use futures::executor::block_on;
use infeed::{
    Result,
    codec::{ImageCodec, PixelBuffer},
    dataset::{SampleRng, SharedRead, open_source},
    source::{Extent, Source},
};
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};

/// Opens and reads a source that holds these objects.
pub fn read_all(objects: &[(&str, &[u8])]) {
    let store = InMemory::new();
    for (name, bytes) in objects {
        block_on(store.put(&Path::from(*name), bytes.to_vec().into())).expect("memory takes all");
    }
    let source = Source::from_store(Arc::new(store), Path::default(), "fuzz://");
    let Ok(dataset) = block_on(open_source(source).into_future()) else { return };
    for record in 0..dataset.len().min(1000) {
        let Ok(plan) = dataset.plan(record, SampleRng::new(0, 0, record)) else { continue };
        let read = |extents: &[Extent]| -> Result<Vec<_>> { extents.iter().map(|e| block_on(e.read())).collect() };
        let part = |part: &SharedRead| dataset.decode_shared(part.key, &read(&part.extents)?);
        let (Ok(mut bytes), Ok(parts)) =
            (read(&plan.extents), plan.shared.iter().map(part).collect::<Result<Vec<_>>>())
        else {
            continue;
        };
        bytes.extend(parts);
        let _ = dataset.parse(record, &plan, &bytes);
    }
}

/// Any bytes are an image or an error.
pub fn decode(codec: &dyn ImageCodec, file: &[u8]) {
    let Ok(info) = codec.header(file) else { return };
    if info.peak_bytes <= 16 << 20 {
        let _ = codec.decode(file, &info, 0..info.height, &mut PixelBuffer::default());
        let _ = codec.decode(file, &info, info.height / 2..info.height, &mut PixelBuffer::default());
    }
}
