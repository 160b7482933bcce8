//! The model.

use burn::{
    module::Module,
    nn::{
        Linear, LinearConfig, PaddingConfig2d, Relu,
        conv::{Conv2d, Conv2dConfig},
        pool::{MaxPool2d, MaxPool2dConfig},
    },
    prelude::{Backend, Tensor},
};

/// Three convolutions, each followed by a ReLU and a 2×2 maximum, then one linear layer: 32×32 to 4×4 to 10.
#[derive(Module, Debug)]
pub struct Net<B: Backend> {
    convolutions: Vec<Conv2d<B>>,
    pool: MaxPool2d,
    relu: Relu,
    head: Linear<B>,
}

impl<B: Backend> Net<B> {
    pub fn new(device: &B::Device) -> Self {
        let layer = |(from, to)| {
            let config = Conv2dConfig::new([from, to], [3, 3]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
            config.init(device)
        };
        Self {
            convolutions: [(3, 32), (32, 64), (64, 128)].into_iter().map(layer).collect(),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            relu: Relu::new(),
            head: LinearConfig::new(128 * 4 * 4, 10).init(device),
        }
    }

    /// `[N, 3, 32, 32]` to `[N, 10]`.
    pub fn forward(&self, pictures: Tensor<B, 4>) -> Tensor<B, 2> {
        let step = |x, convolution: &Conv2d<B>| self.pool.forward(self.relu.forward(convolution.forward(x)));
        let x = self.convolutions.iter().fold(pictures, step);
        self.head.forward(x.flatten(1, 3))
    }
}
