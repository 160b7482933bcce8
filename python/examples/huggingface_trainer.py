"""Hugging Face Trainer: `get_train_dataloader` returns the loader, and checkpoints contain its place.

    python huggingface_trainer.py [path or URL]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from infeed.torch import DataLoader
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

DATA = sys.argv[1] if len(sys.argv) > 1 else "synthetic://?count=200&height=40&width=40&classes=10"


class InfeedTrainer(Trainer):
    """Takes its batches from a loader, and resumes within an epoch without reading the earlier records again."""

    def __init__(self, loader: DataLoader, **more: Any) -> None:
        super().__init__(train_dataset=loader.dataset, **more)
        self.loader = loader
        # Only to compare runs.
        self.seen: list[tuple[list[int], float]] = []

    def get_train_dataloader(self) -> Any:
        return self.loader

    def compute_loss(self, model: Any, inputs: dict[str, Any], **more: Any) -> Any:
        records = inputs.pop("records").tolist()
        loss = super().compute_loss(model, inputs, **more)
        self.seen.append((records, loss.item()))
        return loss

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        (folder / "loader.json").write_text(json.dumps(self.loader.state_dict()))

    def _load_from_checkpoint(self, folder: str, model: Any = None) -> None:
        super()._load_from_checkpoint(folder, model)
        self.loader.load_state_dict(json.loads((Path(folder) / "loader.json").read_text()))


def train(folder: str, *, resume_from: str | None = None) -> InfeedTrainer:
    torch.manual_seed(0)
    names = {"pixel_values": "image", "labels": "label", "records": "records"}
    loader = DataLoader(DATA, batch_size=16, shuffle=True, transform="random_resized_crop:32;normalize", output=names)
    tiny = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic",
        num_labels=len(loader.dataset.classes or range(10)),
    )  # fmt: skip
    args = TrainingArguments(
        output_dir=folder,
        num_train_epochs=3,
        learning_rate=3e-3,
        save_steps=len(loader) + 2,  # in the second epoch
        logging_steps=len(loader),
        ignore_data_skip=True,  # the loader has its place already
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = InfeedTrainer(loader, model=ResNetForImageClassification(tiny), args=args)
    trainer.train(resume_from_checkpoint=resume_from)
    return trainer


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = train(folder)
        losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
        print("losses:", *losses)
        middle = len(whole.loader) + 2
        rest = train(folder, resume_from=f"{folder}/checkpoint-{middle}")
    same = rest.seen == whole.seen[middle:]
    print(f"{len(whole.seen)} steps; from the checkpoint after step {middle}, {len(rest.seen)} more, the same: {same}")
    sys.exit(not same)


if __name__ == "__main__":
    main()
