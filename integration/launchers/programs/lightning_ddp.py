"""Lightning's ddp on CPUs: the command of a rank is run where a user makes loaders, in `train_dataloader`.

    lightning_ddp.py NODES DEVICES COMMAND...
"""

from __future__ import annotations

import subprocess
import sys

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

NODES, DEVICES, *COMMAND = sys.argv[1:]


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def train_dataloader(self) -> DataLoader:
        subprocess.run(COMMAND, check=True)
        return DataLoader(TensorDataset(torch.ones(8, 2)))

    def training_step(self, batch: list[torch.Tensor], step: int) -> torch.Tensor:
        return self.layer(batch[0]).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    trainer = lightning.Trainer(
        accelerator="cpu", devices=int(DEVICES), num_nodes=int(NODES), strategy="ddp", max_steps=1,
        logger=False, enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Model())


if __name__ == "__main__":
    main()
