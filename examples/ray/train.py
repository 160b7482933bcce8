"""Ray Train on many machines: each worker reads its share, and a run that lost a machine goes on where its checkpoint is.

    python train.py s3://BUCKET/train --workers 8 --gpus --storage s3://BUCKET/results
    ray job submit --working-dir examples/ray -- python train.py …      # to a cluster

Without arguments two workers train for a moment on made-up images. The workers need `infeed` and `torch` installed. Ray
sets RANK, WORLD_SIZE and the local ones in each worker, and infeed takes them from there.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from infeed.torch import DataLoader
from ray.train.torch import TorchTrainer, get_device, prepare_model
from torch import nn

MADE_UP = "synthetic://?count=400&height=40&width=40&classes=10"


def train(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    # Made here, in the worker: the rank is known. Ray's `prepare_data_loader` is for torch's own, and not needed.
    names = {"images": "image", "labels": "label", "records": "records", "valid": "valid"}
    loader = DataLoader(
        config["data"], batch_size=config["batch_size"], shuffle=True, transform="random_resized_crop:32;normalize", output=names
    )
    model = prepare_model(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, config["classes"])))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    rank = torch.distributed.get_rank()
    fail = config["fail"]

    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            model.load_state_dict(torch.load(Path(folder) / "model.pt", weights_only=True))
            # One state for all ranks: it says how far the epoch is, not whose it is. Another number of workers may go on.
            loader.load_state_dict(json.loads((Path(folder) / "loader.json").read_text()))
        fail = False

    seen: list[int] = []
    for epoch in range(loader.state_dict()["epoch"], config["epochs"]):
        for step, batch in enumerate(loader):
            images, labels = batch["images"].to(get_device()), batch["labels"].to(get_device())
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += batch["records"][: batch["valid"]].tolist()
            if step % config["every"] == config["every"] - 1:
                save(model, loader, rank, {"epoch": epoch, "loss": loss.item()})
            if fail and rank == 1 and epoch == 1 and step == config["every"]:
                raise RuntimeError("--fail asked for this")
        shares: list[list[int]] = [[]] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(shares, seen)
        together = [record for share in shares for record in share]
        if rank == 0:
            once = len(set(together)) == len(together)
            print(f"epoch {epoch}: {len(together)} records over {len(shares)} ranks, each once: {once}", flush=True)
        seen.clear()
        save(model, loader, rank, {"epoch": epoch, "loss": loss.item()})


def save(model: nn.Module, loader: DataLoader, rank: int, told: dict[str, Any]) -> None:
    """All ranks report; the checkpoint is rank 0's."""
    if rank:
        ray.train.report(told)
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), Path(folder) / "model.pt")
        (Path(folder) / "loader.json").write_text(json.dumps(loader.state_dict()))
        ray.train.report(told, checkpoint=ray.train.Checkpoint.from_directory(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=MADE_UP)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", action="store_true", help="one for each worker")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--every", type=int, default=5, help="steps between checkpoints")
    parser.add_argument("--storage", help="where checkpoints go: a folder that all machines share, or a bucket")
    parser.add_argument("--fail", action="store_true", help="lose a worker in the second epoch, to see that it goes on")
    args = parser.parse_args()
    config = {name: getattr(args, name) for name in ("data", "classes", "batch_size", "epochs", "every", "fail")}
    TorchTrainer(
        train,
        train_loop_config=config,
        scaling_config=ray.train.ScalingConfig(num_workers=args.workers, use_gpu=args.gpus),
        run_config=ray.train.RunConfig(
            storage_path=args.storage,
            # All workers start again from the last checkpoint.
            failure_config=ray.train.FailureConfig(max_failures=3),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    ).fit()


if __name__ == "__main__":
    main()
