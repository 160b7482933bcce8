#!/usr/bin/env python3
"""torchvision on the GPU: batched CUDA decode, RandomResizedCrop, flip, normalise to f16; files read by threads.

    peer_torchvision.py FOLDER [--seconds S] [--runs N] [--quick]
"""

import torch
import torchvision
from torchvision.io import ImageReadMode, decode_jpeg

import peers


def alone(_stream):
    return lambda files: decode_jpeg(files, mode=ImageReadMode.RGB, device="cuda")


def crops(_stream):
    finish = peers.Finish()
    return lambda files: finish(decode_jpeg(files, mode=ImageReadMode.RGB, device="cuda"))


def cases(_cores, quick):
    settings = [(64, 1), (128, 4), (256, 4)] if quick else [(batch, n) for batch in (32, 64, 128, 256, 512) for n in (1, 2, 4, 8)]
    # Decoding alone first: it bounds the rest.
    for batch, decoders in [(256, 1), (128, 2), (128, 4)]:
        yield "decode alone", batch, decoders, False, alone
    for batch, decoders in settings:
        yield "decode, crop, normalise", batch, decoders, True, crops


if __name__ == "__main__":
    peers.main("torchvision", f"torch {torch.__version__}, torchvision {torchvision.__version__}", cases, doc=__doc__)
