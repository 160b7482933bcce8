"""Several processes with DistributedDataParallel: each takes its share of every epoch, in equal steps.

    torchrun --nproc-per-node 2 ddp_torch.py [path or URL]
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from infeed.torch import DataLoader
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DATA = sys.argv[1] if len(sys.argv) > 1 else "synthetic://?count=1000&height=40&width=40&classes=10"


def main() -> None:
    dist.init_process_group("gloo")  # nccl on GPUs
    torch.manual_seed(0)
    # A DistributedSampler works too. Here the engine divides the records and pads the last batch, so that no rank waits for
    # others in `backward`. `valid` is the number of rows before the padding.
    names = {"images": "image", "labels": "label", "records": "records", "valid": "valid"}
    loader = DataLoader(
        DATA, batch_size=16, shuffle=True, transform="random_resized_crop:32;normalize", output=names,
        rank=dist.get_rank(), world_size=dist.get_world_size(),
    )  # fmt: skip
    classes = len(loader.dataset.classes or range(10))
    model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, classes)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    for epoch in range(2):
        seen: list[int] = []
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["images"]), batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += batch["records"][: batch["valid"]].tolist()

        ranks: list[tuple[int, list[int]]] = [(0, [])] * dist.get_world_size()
        dist.all_gather_object(ranks, (len(loader), seen))
        if dist.get_rank() == 0:
            steps, records = [steps for steps, _ in ranks], sorted(record for _, seen in ranks for record in seen)
            once = records == list(range(len(loader.dataset)))
            print(f"epoch {epoch}: {len(records)} records, each once: {once}; steps of the ranks: {steps}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
