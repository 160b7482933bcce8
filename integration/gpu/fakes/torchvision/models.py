import time

import torch


class ResNet:
    def cuda(self):
        return self

    def to(self, *, memory_format):
        assert memory_format == torch.channels_last
        return self

    def parameters(self):
        return iter(())

    def __call__(self, images):
        assert images.shape[1:] == (3, 224, 224) and images.is_cuda
        time.sleep(0.002)
        return torch.Tensor([len(images), 1000])


def resnet50():
    return ResNet()
