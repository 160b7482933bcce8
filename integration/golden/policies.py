"""Writes policies.json: the magnitudes and pairs of torchvision's policies, for `crates/infeed-pixels/src/transform/augment/tables.rs`.

    python policies.py [policies.json]        # needs torch and torchvision; versions are written into the file
"""

import json
import sys

import torch
import torchvision
from torchvision.transforms import v2

SIZES = [(224, 224), (176, 200), (32, 32), (97, 331)]
AA = v2.AutoAugmentPolicy


def magnitudes(space, bins):
    """{step: {signed, of: [height, width, magnitudes or null]}}"""
    found = {}
    for name, (function, signed) in space.items():
        of = []
        for height, width in SIZES:
            values = function(bins, height, width)
            of.append([height, width, None if values is None else [float(v) for v in values]])
        found[name] = dict(signed=signed, of=of)
    return found


def pairs(policy):
    return [[[name, p, -1 if bin is None else bin] for name, p, bin in pair] for pair in v2.AutoAugment(policy)._policies]


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "policies.json"
    golden = dict(
        torch=torch.__version__.split("+")[0], torchvision=torchvision.__version__.split("+")[0],
        rand_augment=dict(bins=31, steps=magnitudes(v2.RandAugment._AUGMENTATION_SPACE, 31)),
        trivial_augment_wide=dict(bins=31, steps=magnitudes(v2.TrivialAugmentWide._AUGMENTATION_SPACE, 31)),
        auto_augment=dict(bins=10, steps=magnitudes(v2.AutoAugment._AUGMENTATION_SPACE, 10)),
        aug_mix=dict(bins=10, steps=magnitudes(v2.AugMix._AUGMENTATION_SPACE, 10)),
        pairs={name: pairs(policy) for name, policy in
               [("imagenet", AA.IMAGENET), ("cifar10", AA.CIFAR10), ("svhn", AA.SVHN)]},
    )
    with open(out, "w") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


main()
