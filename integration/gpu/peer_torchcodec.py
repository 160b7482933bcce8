#!/usr/bin/env python3
"""torchcodec on the GPU, whose newer versions have a batched JPEG decoder of their own; otherwise as peer_torchvision.py.

    peer_torchcodec.py FOLDER [--seconds S] [--runs N] [--quick]
"""

import torch
import torchcodec
from torchcodec.decoders import decode_jpeg

import peers


def alone(_stream):
    return lambda files: decode_jpeg(files, mode="RGB", device="cuda")


def crops(_stream):
    finish = peers.Finish()
    return lambda files: finish(decode_jpeg(files, mode="RGB", device="cuda"))


def cases(_cores, quick):
    settings = [(128, 4)] if quick else [(batch, n) for batch in (64, 128, 256) for n in (1, 2, 4)]
    for batch, decoders in [(256, 1), (128, 2), (128, 4)]:
        yield "decode alone", batch, decoders, False, alone
    for batch, decoders in settings:
        yield "decode, crop, normalise", batch, decoders, True, crops


if __name__ == "__main__":
    version = getattr(torchcodec, "__version__", "unknown")
    peers.main("torchcodec", f"torch {torch.__version__}, torchcodec {version}", cases, doc=__doc__)
