"""Hugging Face accelerate: `save_state` saves the loader's place in an epoch, and `load_state` resumes there.

    accelerate launch accelerate_train.py [path or URL]
"""

from __future__ import annotations

import sys
import tempfile

import torch
from accelerate import Accelerator
from infeed.torch import DataLoader
from torch import nn

DATA = sys.argv[1] if len(sys.argv) > 1 else "synthetic://?count=200&height=40&width=40&classes=10"


class Run:
    """A model, its optimizer, and a loader that divides the records among the ranks by itself.

    `prepare(loader)` works too, as with torch's loader. Then accelerate's own loader reads, batch by batch, and saves no place.
    """

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.accelerator = Accelerator()
        # `records` only shows which records were read.
        self.loader = DataLoader(
            DATA, batch_size=16, shuffle=True, transform="random_resized_crop:32;normalize",
            output={"images": "image", "labels": "label", "records": "records"},
            rank=self.accelerator.process_index, world_size=self.accelerator.num_processes,
        )  # fmt: skip
        model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, len(self.loader.dataset.classes or range(10))))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        # Its place is saved and loaded with the rest.
        self.accelerator.register_for_checkpointing(self.loader)
        self.seen: list[tuple[list[int], float]] = []

    def train(self, epochs: int, *, save_at: int | None = None, folder: str = "") -> None:
        for epoch in range(self.loader.state_dict()["epoch"], epochs):
            total, samples = 0.0, 0
            for batch in self.loader:
                images, labels = (batch[name].to(self.accelerator.device) for name in ("images", "labels"))
                loss = nn.functional.cross_entropy(self.model(images), labels)
                self.optimizer.zero_grad()
                self.accelerator.backward(loss)
                self.optimizer.step()
                total, samples = total + loss.item() * len(labels), samples + len(labels)
                self.seen.append((batch["records"].tolist(), loss.item()))
                if len(self.seen) == save_at:
                    self.accelerator.save_state(folder)
            self.accelerator.print(f"epoch {epoch}: loss {total / samples:.4f} over {samples} samples")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = Run()
        middle = len(whole.loader) + 2
        whole.train(3, save_at=middle, folder=folder)
        rest = Run()
        rest.accelerator.load_state(folder)
        rest.train(3)
    same = rest.seen == whole.seen[middle:]
    print(f"{len(whole.seen)} steps; from the state after step {middle}, {len(rest.seen)} more, the same: {same}")
    sys.exit(not same)


if __name__ == "__main__":
    main()
