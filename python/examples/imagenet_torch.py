"""Trains ImageNet like torchvision's reference (references/classification/train.py), with one import changed.

    python imagenet_torch.py /data/imagenet/train /data/imagenet/val --device cuda

Without arguments it briefly trains a small network on generated images.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torchvision
from infeed.torch import DataLoader  # instead of torch.utils.data
from torch import nn

MADE_UP = "synthetic://?count=64&height=64&width=64&classes=10"


def loaders(args: argparse.Namespace) -> tuple[DataLoader, DataLoader]:
    size = args.crop_size
    train = DataLoader(
        args.train,
        batch_size=args.batch_size,
        shuffle=True,
        seed=args.seed,
        num_workers=args.workers,
        pin_memory=args.device != "cpu",
        transform=f"random_resized_crop:{size};horizontal_flip;normalize",
    )
    val = DataLoader(
        args.val,
        batch_size=args.batch_size,
        num_workers=args.workers,
        pin_memory=args.device != "cpu",
        transform=f"resize_shorter:{size * 256 // 224};center_crop:{size};normalize",
    )
    return train, val


def train_one_epoch(model: nn.Module, criterion: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader,
                    device: str) -> tuple[float, int]:  # fmt: skip
    model.train()
    total, samples = 0.0, 0
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, samples = total + loss.item() * len(labels), samples + len(labels)
    return total / samples, samples


@torch.inference_mode()
def evaluate(model: nn.Module, loader: DataLoader, device: str) -> float:
    model.eval()
    right, samples = 0, 0
    for images, labels in loader:
        found = model(images.to(device, non_blocking=True)).argmax(1).cpu()
        right, samples = right + int((found == labels).sum()), samples + len(labels)
    return right / samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", nargs="?", default=MADE_UP)
    parser.add_argument("val", nargs="?", default=MADE_UP)
    parser.add_argument("--model", help="default: resnet50, or resnet18 for generated images")
    parser.add_argument("--epochs", type=int, help="default: 90, or 2 for generated images")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--crop-size", type=int, default=224)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--lr-step-size", type=int, default=30)
    parser.add_argument("--workers", type=int, default=0, help="decode threads; 0: the loader chooses")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--checkpoint", help="file that is saved after each epoch, and resumed from if it exists")
    args = parser.parse_args()
    made_up = args.train == MADE_UP

    torch.manual_seed(args.seed)
    train, val = loaders(args)
    classes = len(train.dataset.classes or range(10))
    name = args.model or ("resnet18" if made_up else "resnet50")
    model = torchvision.models.get_model(name, num_classes=classes).to(args.device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, args.lr_step_size, gamma=0.1)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "train": train}
    if args.checkpoint and Path(args.checkpoint).exists():
        saved = torch.load(args.checkpoint, weights_only=True)
        for part, holder in parts.items():
            holder.load_state_dict(saved[part])

    for epoch in range(train.state_dict()["epoch"], args.epochs or (2 if made_up else 90)):
        start = time.perf_counter()
        loss, samples = train_one_epoch(model, criterion, optimizer, train, args.device)
        schedule.step()
        rate = samples / (time.perf_counter() - start)
        print(f"epoch {epoch}: loss {loss:.4f} over {samples} samples, {rate:.0f} images/s", flush=True)
        print(f"epoch {epoch}: accuracy {evaluate(model, val, args.device):.3f}", flush=True)
        if args.checkpoint:
            torch.save({part: holder.state_dict() for part, holder in parts.items()}, args.checkpoint)


if __name__ == "__main__":
    main()
