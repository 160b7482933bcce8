//! Arrays of other writers: their stored values, and records as a loader gets them.

use std::{future::IntoFuture, io::Read, sync::Arc};

use base64::Engine;
use bytes::Bytes;
use infeed::{
    DType, Result,
    dataset::{Dataset, Open, SampleRng, SharedRead, Value, dataset_contract},
    source::Extent,
};

/// Bytes of a golden file: deflated, in base64.
pub(crate) fn unpacked(value: &serde_json::Value) -> Vec<u8> {
    let packed = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap()).unwrap();
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    bytes
}

pub(crate) fn opened(open: Open) -> Result<Arc<dyn Dataset>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(open.into_future())
}

pub(crate) fn sound(open: Open) -> Arc<dyn Dataset> {
    let dataset = opened(open).unwrap_or_else(|e| panic!("{e:#}"));
    futures::executor::block_on(dataset_contract(&*dataset)).unwrap_or_else(|e| panic!("{e:#}"));
    dataset
}

pub(crate) fn values(dataset: &dyn Dataset, record: u64) -> Result<Vec<Bytes>> {
    let read = |extents: &[Extent]| -> Result<Vec<Bytes>> {
        extents.iter().map(|extent| futures::executor::block_on(extent.read())).collect()
    };
    let plan = dataset.plan(record, SampleRng::new(0, 0, record))?;
    let mut bytes = read(&plan.extents)?;
    let part = |part: &SharedRead| {
        let decoded = dataset.decode_shared(part.key, &read(&part.extents)?)?;
        assert!(decoded.len() as u64 <= part.bytes, "{} of {} bytes", decoded.len(), part.bytes);
        Ok(decoded)
    };
    bytes.extend(plan.shared.iter().map(part).collect::<Result<Vec<_>>>()?);
    let array = |value| match value {
        Value::Array(bytes) => bytes,
        other => panic!("no array: {other:?}"),
    };
    Ok(dataset.parse(record, &plan, &bytes)?.values.into_iter().map(array).collect())
}

/// A type as numpy calls it.
pub(crate) fn numpy(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "uint8",
        DType::I8 => "int8",
        DType::U16 => "uint16",
        DType::I16 => "int16",
        DType::U32 => "uint32",
        DType::I32 => "int32",
        DType::U64 => "uint64",
        DType::I64 => "int64",
        DType::F16 => "float16",
        DType::Bf16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
    }
}
