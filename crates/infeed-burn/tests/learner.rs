//! burn's own training loop over infeed's loader.

use std::sync::Arc;

use burn::{
    nn::{Linear, LinearConfig, loss::CrossEntropyLossConfig},
    optim::SgdConfig,
    prelude::*,
    train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep},
};
use infeed::{LastBatch, Loader, dataset::SyntheticDataset};
use infeed_burn::{ClassificationBatch, InfeedLoader};

#[derive(Module, Debug)]
struct Net {
    linear: Linear,
}

impl Net {
    fn classify(&self, batch: ClassificationBatch) -> ClassificationOutput {
        let output = self.linear.forward(batch.images.flatten(1, 3));
        let loss = CrossEntropyLossConfig::new().init(&output.device()).forward(output.clone(), batch.targets.clone());
        ClassificationOutput::new(loss, output, batch.targets)
    }
}

impl TrainStep for Net {
    type Input = ClassificationBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: ClassificationBatch) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Net {
    type Input = ClassificationBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: ClassificationBatch) -> ClassificationOutput {
        self.classify(batch)
    }
}

fn data(records: u64, last: LastBatch) -> InfeedLoader<ClassificationBatch> {
    let dataset = SyntheticDataset::new(records, 8, 8, 10).unwrap();
    let builder = Loader::builder(Arc::new(dataset)).batch_size(8).shuffle(42).device(infeed::Device::Cpu);
    InfeedLoader::new(builder.last_batch(last).build_blocking().unwrap(), &Device::flex())
}

#[test]
fn burns_learner_trains_on_it_and_the_users_clone_tells_how_far_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex().autodiff();
    let (train, valid) = (data(43, LastBatch::Drop).epochs(0..2), data(20, LastBatch::Partial));
    let training = SupervisedTraining::new(folder.path(), Arc::new(train.clone()), Arc::new(valid.clone()));
    let training =
        training.num_epochs(2).with_training_strategy(burn::train::ExecutionStrategy::single(device.clone()).into());
    let net = Net { linear: LinearConfig::new(3 * 8 * 8, 10).init(&device) };
    training.launch(Learner::new(net, SgdConfig::new().init(), 0.01));

    assert_eq!((train.state().epoch, train.state().position), (2, 0));
    assert_eq!(train.monitor().unwrap().report().batches, 10);
    assert_eq!(valid.state().epoch, 2);
}
