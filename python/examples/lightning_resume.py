"""Lightning: a checkpoint within an epoch contains the loader's place, and the run resumes exactly there.

    python lightning_resume.py [path or URL]
"""

from __future__ import annotations

import sys
import tempfile

import lightning
import torch
from infeed.torch import DataLoader
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

DATA = sys.argv[1] if len(sys.argv) > 1 else "synthetic://?count=200&height=40&width=40&classes=10"


def make_loader() -> DataLoader:
    # `records` only shows which records were read.
    names = {"images": "image", "labels": "label", "records": "records"}
    return DataLoader(DATA, batch_size=16, shuffle=True, transform="random_resized_crop:32;normalize", output=names)


class Model(lightning.LightningModule):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, classes))
        self.seen: list[tuple[int, list[int], float]] = []

    def training_step(self, batch: dict[str, torch.Tensor], step: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.layers(batch["images"]), batch["labels"])
        self.seen.append((self.current_epoch, batch["records"].tolist(), loss.item()))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.001)


def fit(folder: str, *, resume_from: str | None = None) -> Model:
    lightning.seed_everything(0, verbose=False)
    loader = make_loader()
    model = Model(len(loader.dataset.classes or range(10)))
    save = ModelCheckpoint(folder, "{step}", every_n_train_steps=len(loader) + 2, save_top_k=-1)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", callbacks=save,
        logger=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, loader, ckpt_path=resume_from)
    return model


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = fit(folder)
        middle = len(make_loader()) + 2
        rest = fit(folder, resume_from=f"{folder}/step={middle}.ckpt")
    same = rest.seen == whole.seen[middle:]
    print(f"{len(whole.seen)} steps; from the checkpoint after step {middle}, {len(rest.seen)} more, the same: {same}")
    sys.exit(not same)


if __name__ == "__main__":
    main()
