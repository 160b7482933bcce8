import torch


def resize(image, size, interpolation, *, antialias):
    assert len(image.shape) == 3 and image.shape[0] == 3 and interpolation.value == "bilinear" and antialias
    return torch.Tensor([3, *size], image.dtype, image.is_cuda)


def resized_crop(image, top, left, height, width, size, interpolation, *, antialias):
    assert top >= 0 and left >= 0 and height > 0 and width > 0
    assert top + height <= image.shape[1] and left + width <= image.shape[2], (image.shape, top, left, height, width)
    return resize(image, size, interpolation, antialias=antialias)
