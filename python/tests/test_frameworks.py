"""Frameworks take the loader as torch's own: in one process, and on two ranks. Each test runs where its framework is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import json, os, sys
import torch
import torch.utils.data as data
from infeed.torch import DataLoader as Ours

kind, folder, out = sys.argv[1:4]
DataLoader = {"ours": Ours, "torch": data.DataLoader}[kind]
RANK = int(os.environ.get("RANK", 0))
# 21 records: they share evenly among nobody.
numbers = data.TensorDataset(torch.arange(21.0).view(21, 1), torch.arange(21))
found = {}


def done():
    with open(f"{out}.{RANK}", "w") as file:
        json.dump(found, file)
"""


def run(body: str, kind: str, folder: str, tmp_path: Path, ranks: int) -> list[dict[str, Any]]:
    """What each rank of a script has found."""
    script, out = tmp_path / "script.py", tmp_path / kind
    script.write_text(HEAD + textwrap.dedent(body) + "\ndone()\n")
    launch = [] if ranks == 1 else ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(
        [sys.executable, *launch, str(script), kind, folder, str(out)],
        env={**os.environ, **quiet},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(ranks)]


def needs(*packages: str) -> None:
    for package in ("torch", *packages):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


LIGHTNING = """
import lightning

lightning.seed_everything(1, verbose=False)


class Model(lightning.LightningModule):
    def __init__(self, ids):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.ids = ids

    def seen(self, step, batch):
        found.setdefault(step, []).append(self.ids(batch).tolist())
        return self.layer(batch[0].float().flatten(1)[:, :1]).mean()

    def training_step(self, batch, _):
        return self.seen("train", batch)

    def validation_step(self, batch, _):
        self.seen("val", batch)

    def test_step(self, batch, _):
        self.seen("test", batch)

    def predict_step(self, batch, _):
        self.seen("predict", batch)
        return batch[1]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


ranks = int(os.environ.get("WORLD_SIZE", 1))
quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, accelerator="cpu")
trainer = lightning.Trainer(max_epochs=2, devices=ranks, strategy="ddp" if "RANK" in os.environ else "auto", num_sanity_val_steps=0, **quiet)
"""

OF_TENSORS = """
def loader(shuffle=False, **more):
    return DataLoader(numbers, batch_size=4, shuffle=shuffle, **more)


model = Model(lambda batch: batch[1])
trainer.fit(model, loader(True), loader())
trainer.validate(model, loader(num_workers=1))
trainer.test(model, loader())
trainer.predict(model, loader(drop_last=True))
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_lightning_trains_validates_tests_and_predicts(folder: str, tmp_path: Path, ranks: int) -> None:
    needs("lightning")
    ours, theirs = (run(LIGHTNING + OF_TENSORS, kind, folder, tmp_path, ranks) for kind in ("ours", "torch"))
    assert ours == theirs
    assert all(set(rank) == {"train", "val", "test", "predict"} for rank in ours)


OF_FILES = """
args = dict(batch_size=8, transform="center_crop:16", num_workers=1)
# The red of record i is i.
trainer.fit(Model(lambda batch: batch[0][:, 0, 0, 0]), Ours(folder, shuffle=True, **args), Ours(folder, **args))
"""


def test_lightning_deals_files_to_two_ranks(folder: str, tmp_path: Path) -> None:
    needs("lightning")
    ranks = run(LIGHTNING + OF_FILES, "ours", folder, tmp_path, 2)
    of = [[sorted(round(red) for batch in rank["train"][at : at + 7] for red in batch) for rank in ranks] for at in (0, 7)]
    assert all(sorted(one + two) == list(range(100)) for one, two in of) and of[0] != of[1]
    assert sorted(round(red) for rank in ranks for batch in rank["val"][:7] for red in batch) == list(range(100))


ACCELERATE = """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
torch.manual_seed(5)
model = torch.nn.Linear(1, 1)
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), DataLoader(numbers, batch_size=2, shuffle=True))
found.update(steps=0, gathered=[], device=[], after=[])
for epoch in range(2):
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(x).mean())
            found["steps"] += accelerator.sync_gradients
            optimizer.step()
            optimizer.zero_grad()
        found["gathered"] += accelerator.gather_for_metrics(y).tolist()
        found["device"].append(str(x.device))
for x, y in accelerator.skip_first_batches(loader, 3):
    found["after"].append(y.tolist())
files = accelerator.prepare(Ours(folder, batch_size=16, transform="center_crop:16") if kind == "ours" else DataLoader(data.TensorDataset(torch.zeros(100), torch.tensor([0] * 50 + [1] * 50)), batch_size=16))
found["files"] = [accelerator.gather_for_metrics(batch[1]).tolist() for batch in files]
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_accelerate_prepares_gathers_and_skips(folder: str, tmp_path: Path, ranks: int) -> None:
    needs("accelerate")
    ours, theirs = (run(ACCELERATE, kind, folder, tmp_path, ranks) for kind in ("ours", "torch"))
    assert ours == theirs
    assert [sorted(rank["gathered"][:21]) for rank in ours] == [list(range(21))] * ranks


TRAINER = """
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

items = [{"x": torch.full((1,), float(i)), "labels": i} for i in range(21)]


class Model(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(1, 1)
        self.post_init()

    def forward(self, x, labels):
        if self.training:
            found.setdefault("train", []).append(labels.tolist())
        return {"loss": (self.layer(x)[:, 0] - labels).square().mean(), "logits": self.layer(x)}


class Mine(Trainer):
    def get_train_dataloader(self):
        return self.accelerator.prepare(DataLoader(items, batch_size=4, shuffle=True))

    def get_eval_dataloader(self, dataset=None):
        return self.accelerator.prepare(DataLoader(items, batch_size=4))


def train(**more):
    torch.manual_seed(0)
    arguments = TrainingArguments("here", num_train_epochs=2, save_steps=4, eval_strategy="epoch", report_to="none", disable_tqdm=True, use_cpu=True, seed=3)
    trainer = Mine(Model(PretrainedConfig()), arguments, train_dataset=items, eval_dataset=items)
    trainer.train(**more)
    found["evaluated"] = trainer.evaluate()["eval_loss"]


train()
whole, found["train"] = found["train"], []
train(resume_from_checkpoint="here/checkpoint-8")
found["whole"] = whole
"""


def test_the_trainer_of_hugging_face_resumes_as_it_is(folder: str, tmp_path: Path) -> None:
    needs("transformers", "accelerate")
    for kind in ("ours", "torch"):
        # Each has its checkpoints.
        (tmp_path / kind).mkdir()
    ours, theirs = (run(TRAINER, kind, folder, tmp_path / kind, 1)[0] for kind in ("ours", "torch"))
    assert ours == theirs and len(ours["whole"]) == 12
    assert ours["train"] == ours["whole"][8:]


TIMM = """
# Before timm derives classes from it.
torch.utils.data.DataLoader = DataLoader
from timm.data import create_loader
from torchvision.datasets import ImageFolder

for training in (False, True):
    for multi_epochs in (False, True):
        torch.manual_seed(3)
        loader = create_loader(
            ImageFolder(folder), (3, 24, 24), 20, is_training=training, no_aug=True, use_prefetcher=False, num_workers=2,
            use_multi_epochs_loader=multi_epochs, device=torch.device("cpu"),
        )
        epochs = [[(labels.tolist(), images.mean().item()) for images, labels in loader] for _ in range(2)]
        found[f"{training} {multi_epochs}"] = epochs
"""


def test_timms_loaders_give_the_same(folder: str, tmp_path: Path) -> None:
    needs("timm", "torchvision")
    ours, theirs = (run(TIMM, kind, folder, tmp_path, 1)[0] for kind in ("ours", "torch"))
    for name, epochs in theirs.items():
        for mine, want in zip(ours[name], epochs, strict=True):
            assert [labels for labels, _ in mine] == [labels for labels, _ in want]
            # A level is 0.017.
            assert all(abs(x - y) < 0.01 for (_, x), (_, y) in zip(mine, want, strict=True))


EXAMPLE = """
# As pytorch's ImageNet example evaluates: what the ranks cannot share evenly, each reads by itself.
from torchvision import datasets, transforms

torch.distributed.init_process_group("gloo")
chain = transforms.Compose([transforms.CenterCrop(16), transforms.ToTensor()])
images = data.Subset(datasets.ImageFolder(folder, chain), range(1, 98))
sampler = data.DistributedSampler(images, shuffle=False, drop_last=True)
loader = DataLoader(images, 10, sampler=sampler, num_workers=2)
found["own"] = [(labels.tolist(), x.mean().item()) for x, labels in loader]
rest = data.Subset(loader.dataset, range(len(sampler) * 2, len(loader.dataset)))
found["rest"] = [(labels.tolist(), x.mean().item()) for x, labels in DataLoader(rest, 10, num_workers=2)]
torch.distributed.destroy_process_group()
"""


def test_an_evaluation_on_two_ranks_reads_each_image_once(folder: str, tmp_path: Path) -> None:
    needs("torchvision")
    ours, theirs = (run(EXAMPLE, kind, folder, tmp_path, 2) for kind in ("ours", "torch"))
    for mine, want in zip(ours, theirs, strict=True):
        for part in ("own", "rest"):
            assert [labels for labels, _ in mine[part]] == [labels for labels, _ in want[part]]
            assert all(abs(x - y) < 0.001 for (_, x), (_, y) in zip(mine[part], want[part], strict=True))
        assert sum(len(labels) for labels, _ in mine["rest"]) == 1


RAY = """
import ray
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader
from torchvision import datasets, transforms

chain = transforms.Compose([transforms.CenterCrop(16), transforms.ToTensor()])
images = datasets.ImageFolder(folder, chain)


def work(config):
    torch.manual_seed(0)
    rank = ray.train.get_context().get_world_rank()
    seen = {}
    for name, dataset in (("images", images), ("numbers", numbers)):
        loader = prepare_data_loader(DataLoader(dataset, 6, shuffle=True), move_to_device=False)
        seen[name] = [[labels.tolist() for _, labels in loader] for _ in range(2)]
    with open(f"{out}.of{rank}", "w") as file:
        json.dump(seen, file)


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
TorchTrainer(work, scaling_config=ScalingConfig(num_workers=2)).fit()
found["ranks"] = [json.load(open(f"{out}.of{rank}")) for rank in range(2)]
ray.shutdown()
"""


def test_ray_prepares_it(folder: str, tmp_path: Path) -> None:
    needs("ray", "torchvision")
    ours, theirs = (run(RAY, kind, folder, tmp_path, 1)[0] for kind in ("ours", "torch"))
    assert ours == theirs
