//! Shards that many tools write: MDS, TFRecord, Parquet. **Internal: no promise of stability**; users depend on `infeed`.
//!
//! Each room is one format: the head of its file says what is read and what is not. Records of a part that is compressed as a
//! whole share it ([`infeed_data::SharedRead`]).
//!
//! **Boundary**: a format here is a [`Format`](infeed_data::Format) and nothing else; it decodes no image, and reads no byte
//! but through `infeed-store`.
#![forbid(unsafe_code)]

mod mds;
#[cfg(feature = "parquet")]
mod parquet;
mod tfrecord;

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
            #[cfg(feature = "parquet")]
            &Parquet,
        ],
        wait: |opening| futures::executor::block_on(opening),
    };
    infeed_data::Open::of_source(source, &HERE)
}
