"""Ray Train: the loader is made in the train function, where Ray has set this process's rank.

    python ray_train.py [path or URL]
"""

from __future__ import annotations

import sys
from typing import Any

import infeed
import ray
import ray.train
import torch
from infeed.torch import DataLoader
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn

DATA = sys.argv[1] if len(sys.argv) > 1 else "synthetic://?count=200&height=40&width=40&classes=10"


def train(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    names = {"images": "image", "labels": "label", "records": "records", "valid": "valid"}
    # Ray's `prepare_data_loader` works too. It replaces this loader by one of torch, which reads batch by batch.
    loader = DataLoader(
        config["data"], batch_size=16, shuffle=True, transform="random_resized_crop:32;normalize", output=names,
        rank=torch.distributed.get_rank(), world_size=torch.distributed.get_world_size(),
    )  # fmt: skip
    model = prepare_model(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, config["classes"])))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for epoch in range(2):
        seen: list[int] = []
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["images"]), batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += batch["records"][: batch["valid"]].tolist()
        shares: list[list[int]] = [[]] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(shares, seen)
        once = sorted(record for seen in shares for record in seen) == list(range(len(loader.dataset)))
        if torch.distributed.get_rank() == 0:
            print(f"epoch {epoch}: {sum(map(len, shares))} records over {len(shares)} ranks, each once: {once}")
        ray.train.report({"epoch": epoch, "loss": loss.item()})


def main() -> None:
    ray.init(num_cpus=3)
    # Count the classes here: in `train`, which Ray pickles, the names `infeed` and `torch` together would be taken for the
    # module `infeed.torch`.
    config = {"data": DATA, "classes": len(infeed.open(DATA).classes or range(10))}
    workers = ray.train.ScalingConfig(num_workers=2, use_gpu=False)
    TorchTrainer(train, train_loop_config=config, scaling_config=workers).fit()


if __name__ == "__main__":
    main()
