//! Shard formats of other tools: MDS, TFRecord, Parquet, JSON lines. **Internal: no promise of stability**; users depend on
//! `infeed`.
//!
//! Each format is a module; the top of its file lists what is read and what is not. If a part is compressed as a whole,
//! its records share it ([`infeed_data::SharedRead`]). TFRecord and JSON lines share `records` and `places`: files whose
//! records lie one after another, and where these are.
//!
//! **Boundary**: a format here is only a [`Format`](infeed_data::Format). It decodes no images, and reads bytes only
//! through `infeed-store`.
#![forbid(unsafe_code)]

mod jsonl;
mod mds;
mod packed;
#[cfg(feature = "parquet")]
mod parquet;
mod places;
mod records;
mod tfrecord;

pub use jsonl::JsonLines;
pub use mds::Mds;
#[cfg(feature = "parquet")]
pub use parquet::Parquet;
pub use tfrecord::TfRecord;

#[cfg(test)]
fn open_source(source: infeed_store::Source) -> infeed_data::Open {
    static HERE: infeed_data::Opener = infeed_data::Opener {
        formats: &[
            &Mds,
            &TfRecord,
            &JsonLines,
            #[cfg(feature = "parquet")]
            &Parquet,
        ],
        wait: |opening| futures::executor::block_on(opening),
    };
    infeed_data::Open::of_source(source, &HERE)
}
