#!/usr/bin/env python3
"""How long a training step of ResNet-50 takes on this GPU, with data that lies there: the pace for `bench-gpu train`.

    step_torch.py [--batch 256] [--steps 30]

Channels last, autocast to bf16, SGD with momentum: the usual recipe.
"""

import argparse
import json
import statistics

import torch
import torchvision


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(args.batch, 3, 224, 224, device="cuda", dtype=torch.float16)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (args.batch,), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    for _ in range(10):
        step()
    times = []
    for _ in range(args.steps):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    print(json.dumps({
        "section": "step", "name": f"ResNet-50 step, batch {args.batch}, resident data", "unit": "ms",
        "median": statistics.median(times), "low": min(times), "high": max(times), "runs": len(times),
        "more": {"torch": torch.__version__, "gpu": torch.cuda.get_device_name()},
    }), flush=True)


if __name__ == "__main__":
    main()
