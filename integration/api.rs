//! Promises that the compiler keeps.

use std::fs;

use infeed::{
    Batch, BatchStream, Error, Loader, LoaderBuilder, Report, Tensor,
    codec::ImageCodec,
    dataset::{Dataset, Format},
    loader::{Blocking, IoRuntime, Monitor},
    sampler::{LoaderState, Sampler},
    source::Source,
    spi::{Decoder, Worker},
    transform::Transform,
};

use crate::support::repository;

fn shared<T: Send + Sync + 'static>() {}
fn movable<T: Send + Unpin + 'static>() {}
fn debug<T: std::fmt::Debug>() {}
fn fused<T: futures::stream::FusedStream>() {}

#[test]
fn public_types_cross_threads_and_tasks() {
    shared::<Error>();
    shared::<Loader>();
    shared::<Batch>();
    shared::<Tensor>();
    shared::<infeed::device::Dlpack>();
    shared::<Source>();
    shared::<Transform>();
    shared::<LoaderState>();
    shared::<Report>();
    shared::<IoRuntime>();
    shared::<Monitor>();
    movable::<BatchStream>();
    movable::<Blocking>();
    movable::<LoaderBuilder>();
    debug::<BatchStream>();
    fused::<BatchStream>();
    debug::<LoaderBuilder>();
}

#[test]
fn traits_are_dyn_compatible() {
    fn object<T: ?Sized>() {}
    object::<dyn Dataset>();
    object::<dyn Format>();
    object::<dyn Sampler>();
    object::<dyn Decoder>();
    object::<dyn ImageCodec>();
    object::<dyn Worker>();
}

#[test]
fn futures_can_be_spawned() {
    fn spawnable<F: Future<Output = T> + Send + 'static, T: Send>(_: F) {}
    spawnable(async {
        let dataset = infeed::open("synthetic://?count=10&height=8&width=8&classes=2").await?;
        let loader = Loader::builder(dataset).build().await?;
        let mut batches = loader.epoch(0);
        let _ = futures::StreamExt::next(&mut batches).await;
        infeed::Result::<()>::Ok(())
    });
}

#[test]
fn policies_for_bad_samples_are_written_as_they_were_and_read_back() {
    use infeed::OnBadSample;
    for (policy, text) in [
        (OnBadSample::Stop, r#""stop""#),
        (OnBadSample::Skip { at_most: 3 }, r#"{"skip":{"at_most":3}}"#),
        (OnBadSample::SkipPadded { at_most: 3 }, r#"{"skip-padded":{"at_most":3}}"#),
        (OnBadSample::Substitute, r#""substitute""#),
    ] {
        assert_eq!(serde_json::to_string(&policy).unwrap(), text);
        assert_eq!(serde_json::from_str::<OnBadSample>(text).unwrap(), policy);
    }
}

#[test]
fn config_files_refuse_unknown_keys() {
    let error = serde_json::from_str::<infeed::LoaderConfig>(r#"{ "batchsize": 3 }"#).unwrap_err().to_string();
    assert!(error.contains("batchsize"), "{error}");
    let config = infeed::LoaderConfig::default();
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::to_string(&serde_json::from_str::<infeed::LoaderConfig>(&text).unwrap()).unwrap(), text);
}

#[test]
fn the_first_page_names_the_features_that_are_on_by_default() {
    let of = |file: &str| fs::read_to_string(repository().join(file)).unwrap();
    let list = |text: &str| {
        let rest = &text[text.find("default = [").expect("a list of default features")..];
        rest[..=rest.find(']').unwrap()].to_owned()
    };
    assert_eq!(list(&of("src/lib.rs")), list(&of("Cargo.toml")));
}
