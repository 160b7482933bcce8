"""The loaders. Each is the author's reading of its documentation: whoever knows a better way is asked to say so."""

from __future__ import annotations

import glob
import io
import itertools
import os
import tarfile
from collections.abc import Iterator
from typing import Any, ClassVar

import records as data
from spec import Adapter, Rows, Spec

_TORCH = (
    "torch",
    "torch.utils.data",
    "torch.utils.data.distributed",
    "torchvision.datasets",
    "torchvision.transforms.v2.functional",
)
_NONE = "has no setting for bad records"
_NO_GENERATOR = "hands out no generator: records draw from the global ones"
_OWN_FORMAT = "reads only its own file format"
# What a loader cannot be asked: one that is torch's or like it, and one with shards of its own.
_PLAIN = {"draws-own": _NO_GENERATOR, "damaged-own-0": _NONE, "damaged-own-2": _NONE, "jpeg-own": _NONE}
_FORMATS = {"jpeg": _OWN_FORMAT, "jpeg-own": _OWN_FORMAT}


class _Picture:
    """A file of torchvision's ImageFolder as pixels, `[C, H, W]`, and its class."""

    def __call__(self, image: Any) -> Any:
        from torchvision.transforms.v2.functional import pil_to_tensor

        return pil_to_tensor(image)


def _folder(spec: Spec) -> Any:
    from torchvision.datasets import ImageFolder

    return ImageFolder(os.path.join(spec.folder, "pictures"), transform=_Picture())


def _dataset(spec: Spec) -> Any:
    if spec.files:
        return _folder(spec)
    return data.Records(spec.records, spec.damaged, spec.draws == "item")


def _pictures(pixels: Any) -> Rows:
    found = [data.seen(image) for image in pixels]
    return Rows([number for number, _ in found], broken=sum(broken for _, broken in found))


class _Torch(Adapter):
    """What the loaders over torch's map-style datasets have in common."""

    modules: ClassVar[tuple[str, ...]] = _TORCH
    spec: Spec
    loader: Any
    sampler: Any

    def make(self, spec: Spec) -> None:
        self.spec = spec
        data.seed_all(spec.seed)
        self.build(spec)

    def build(self, spec: Spec) -> None:
        raise NotImplementedError

    def batches(self, epoch: int) -> Iterator[Any]:
        return iter(self.loader)

    def read(self, batch: Any) -> Rows:
        values, labels = batch
        if self.spec.files:
            return _pictures(values.numpy())
        return Rows(labels.tolist(), draws=values.tolist() if self.spec.draws else [])

    def state(self) -> Any:
        return self.loader.state_dict()

    def load(self, state: Any) -> None:
        self.loader.load_state_dict(state)


# Ours.

_SKIP = {"skip": {"at_most": 10}}
# Of the pictures, which have this size already: rows need one.
_PIXELS = {"transform": "center_crop:64", "dtype": "uint8"}
_RAISES = "an error ends the epoch and names the record, unless `on_bad_sample` says otherwise"


class Infeed(Adapter):
    name = "infeed.Loader"
    packages = ("infeed",)
    modules = ("torch", "infeed")
    table = 1
    ours = True
    unpromised = {
        "damaged-0": _RAISES,
        "damaged-2": _RAISES,
        "jpeg": _RAISES,
        **dict.fromkeys(
            ("draws-same-0", "draws-same-2", "draws-workers", "draws-resume-0", "draws-resume-2", "draws-distinct"),
            "threads of the engine call `__getitem__`; draws belong into `map(sample, seed)` and transforms",
        ),
    }

    def make(self, spec: Spec) -> None:
        import infeed

        self.spec = spec
        more: dict[str, Any] = {}
        if spec.draws == "own":
            more["map"] = _draw_for_infeed
        if spec.policy:
            more["on_bad_sample"] = _SKIP
        source: Any = os.path.join(spec.folder, "pictures")
        if not spec.files:
            source = data.Records(spec.records, spec.damaged, spec.draws == "item")
            data.seed_all(spec.seed)
        else:
            more |= _PIXELS
        self.loader = infeed.Loader(
            source,
            batch_size=spec.batch_size,
            shuffle=spec.shuffle,
            seed=spec.seed,
            rank=spec.rank,
            world_size=spec.world,
            num_workers=spec.workers or None,
            **more,
        )

    def batches(self, epoch: int) -> Iterator[Any]:
        return iter(self.loader)

    def read(self, batch: Any) -> Rows:
        if self.spec.files:
            return _pictures(batch["image"].numpy()[: batch.valid])
        ids = batch["label"].numpy().tolist()
        draws = batch["array"].numpy().tolist() if self.spec.draws else []
        return Rows(ids[: batch.valid], len(ids) - batch.valid, draws[: batch.valid])

    def state(self) -> Any:
        return self.loader.state_dict()

    def load(self, state: Any) -> None:
        self.loader.load_state_dict(state)

    def epoch_of(self, state: Any, saved: int) -> int:
        # Behind the last batch of an epoch stands the next one.
        epoch: int = state["epoch"]
        return epoch


def _draw_for_infeed(sample: Any, seed: int) -> None:
    import numpy

    sample["array"][:] = numpy.random.default_rng(seed).random(3)


class InfeedTorch(_Torch):
    """As a script for one rank that changed its import."""

    name = "infeed.torch.DataLoader"
    packages = ("infeed", "torch")
    modules = (*_TORCH, "infeed.torch")
    ours = True
    unsupported = {
        "draws-own": "records draw from the global generators",
        **dict.fromkeys(
            ("world-1", "world-3", "uneven", "uneven-steps"),
            "each rank reads everything without a `DistributedSampler`, or `rank=` and `world_size=`, as with torch",
        ),
    }
    unpromised = {name: _RAISES for name in ("damaged-0", "damaged-2", "jpeg")}

    def build(self, spec: Spec) -> None:
        from infeed.torch import DataLoader

        # The loader reads files itself.
        source: Any = os.path.join(spec.folder, "pictures") if spec.files else _dataset(spec)
        more: dict[str, Any] = {"batch_size": spec.batch_size, "num_workers": spec.workers, "seed": spec.seed}
        if spec.files:
            more |= _PIXELS
        if spec.policy:
            more["on_bad_sample"] = _SKIP
        self.loader = DataLoader(source, **more, **self.order(source, spec))

    def order(self, source: Any, spec: Spec) -> dict[str, Any]:
        return {"shuffle": spec.shuffle}

    def batches(self, epoch: int) -> Iterator[Any]:
        self.loader.set_epoch(epoch)
        return iter(self.loader)

    def read(self, batch: Any) -> Rows:
        if isinstance(batch, dict):
            # Rows that fill up the last batch are told by `valid`, which torch's structure has no place for.
            valid = int(batch["valid"])
            rows = super().read((batch["values"], batch["labels"]))
            return Rows(rows.ids[:valid], len(rows.ids) - valid, rows.draws[:valid])
        return super().read(batch)


class InfeedDealt(InfeedTorch):
    """The engine shares the records among ranks, and calls the dataset."""

    name = "infeed.torch.DataLoader, rank and world_size"
    unsupported = {
        "draws-own": "records draw from the global generators",
        **dict.fromkeys(
            ("draws-same-0", "draws-same-2", "draws-workers", "draws-resume-0", "draws-resume-2", "draws-distinct"),
            "a thread of the engine calls `__getitem__`; draws belong into `map(sample, seed)` and transforms",
        ),
    }

    def order(self, source: Any, spec: Spec) -> dict[str, Any]:
        order: dict[str, Any] = {"shuffle": spec.shuffle, "rank": spec.rank, "world_size": spec.world}
        if not spec.files:
            order["output"] = {"values": "array", "labels": "label", "valid": "valid"}
        return order


class InfeedSampler(InfeedTorch):
    """With torch's DistributedSampler, as a script for several ranks that changed its import."""

    name = "infeed.torch.DataLoader, DistributedSampler"
    unsupported = {"draws-own": InfeedTorch.unsupported["draws-own"]}
    unpromised = {**InfeedTorch.unpromised, "uneven": "torch's sampler adds duplicates and does not mark them"}

    def order(self, source: Any, spec: Spec) -> dict[str, Any]:
        from torch.utils.data.distributed import DistributedSampler

        length: Any = data.Records(data.PICTURES) if spec.files else source
        self.sampler = DistributedSampler(length, spec.world, spec.rank, shuffle=spec.shuffle, seed=spec.seed)
        return {"sampler": self.sampler}

    def batches(self, epoch: int) -> Iterator[Any]:
        self.sampler.set_epoch(epoch)
        return iter(self.loader)


# Torch and what is built on its loader.


def _skipped(state: dict[str, int], spec: Spec) -> int:
    """Batches to throw away: all ranks together took the order's first records. Parts of a batch come again."""
    done = state["batches"] * state["batch_size"] * state["world"]
    # The last batch may have been a short one.
    same = state["batch_size"] == spec.batch_size and state["world"] == spec.world
    return state["batches"] if same else done // (spec.batch_size * spec.world)


class TorchByHand(_Torch):
    """A DistributedSampler with the epoch, and as many batches thrown away as were seen, as training scripts do."""

    name = "torch DataLoader, skipped by hand"
    packages = ("torch",)
    unsupported = _PLAIN

    def build(self, spec: Spec) -> None:
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler

        dataset = _dataset(spec)
        self.sampler = DistributedSampler(dataset, spec.world, spec.rank, shuffle=spec.shuffle, seed=spec.seed)
        self.loader = DataLoader(dataset, batch_size=spec.batch_size, sampler=self.sampler, num_workers=spec.workers)
        self.seen, self.skip = 0, 0

    def batches(self, epoch: int) -> Iterator[Any]:
        self.sampler.set_epoch(epoch)
        iterator: Iterator[Any] = iter(self.loader)
        for _ in range(self.skip):
            next(iterator)
        self.seen, self.skip = self.skip, 0
        return iterator

    def read(self, batch: Any) -> Rows:
        self.seen += 1
        return super().read(batch)

    def state(self) -> Any:
        return {"batches": self.seen, "batch_size": self.spec.batch_size, "world": self.spec.world}

    def load(self, state: Any) -> None:
        self.skip = _skipped(state, self.spec)


class Torchdata(_Torch):
    """Its StatefulDistributedSampler, also on one rank."""

    name = "torchdata, StatefulDistributedSampler"
    packages = ("torchdata",)
    modules = (*_TORCH, "torchdata.stateful_dataloader", "torchdata.stateful_dataloader.sampler")
    unsupported = _PLAIN

    def build(self, spec: Spec) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader
        from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

        dataset = _dataset(spec)
        self.sampler = StatefulDistributedSampler(dataset, spec.world, spec.rank, shuffle=spec.shuffle, seed=spec.seed)
        self.loader = StatefulDataLoader(
            dataset, batch_size=spec.batch_size, sampler=self.sampler, num_workers=spec.workers
        )

    def batches(self, epoch: int) -> Iterator[Any]:
        self.sampler.set_epoch(epoch)
        return iter(self.loader)


class TorchdataShuffle(_Torch):
    """`shuffle=True` with a generator, as on one rank."""

    name = "torchdata, shuffle=True"
    packages = Torchdata.packages
    modules = Torchdata.modules
    unsupported = {
        **Torchdata.unsupported,
        **dict.fromkeys(("world-1", "world-3", "uneven", "uneven-steps"), "several ranks take a sampler"),
    }

    def build(self, spec: Spec) -> None:
        import torch
        from torchdata.stateful_dataloader import StatefulDataLoader

        generator = torch.Generator().manual_seed(spec.seed)
        self.loader = StatefulDataLoader(
            _dataset(spec),
            batch_size=spec.batch_size,
            shuffle=spec.shuffle,
            generator=generator,
            num_workers=spec.workers,
        )


class Accelerate(_Torch):
    """A prepared loader; the number of batches is what is saved, and `skip_first_batches` goes on."""

    name = "accelerate, skip_first_batches"
    packages = ("accelerate",)
    modules = (*_TORCH, "accelerate", "accelerate.data_loader", "torchdata.stateful_dataloader")
    unsupported = _PLAIN
    stateful: ClassVar[bool] = False

    def build(self, spec: Spec) -> None:
        from accelerate import Accelerator
        from accelerate.utils import DataLoaderConfiguration, set_seed
        from torch.utils.data import DataLoader

        config = DataLoaderConfiguration(
            use_stateful_dataloader=self.stateful, use_seedable_sampler=True, data_seed=spec.seed
        )
        self.accelerator = Accelerator(cpu=True, dataloader_config=config)
        set_seed(spec.seed)
        loader = DataLoader(
            _dataset(spec), batch_size=spec.batch_size, shuffle=spec.shuffle, num_workers=spec.workers
        )
        self.loader = self.accelerator.prepare(loader)
        self.seen, self.skip = 0, 0

    def batches(self, epoch: int) -> Iterator[Any]:
        self.loader.set_epoch(epoch)
        self.seen, loader = self.skip, self.loader
        if self.skip:
            loader = self.accelerator.skip_first_batches(self.loader, self.skip)
            self.skip = 0
        return iter(loader)

    def read(self, batch: Any) -> Rows:
        self.seen += 1
        rows = super().read(batch)
        # What `gather_for_metrics` goes by: so many rows of the last batch of all ranks are no repeats.
        gradient, spec = self.accelerator.gradient_state, self.spec
        if spec.world > 1 and gradient.end_of_dataloader and gradient.remainder > 0:
            valid = min(max(gradient.remainder - spec.rank * len(rows.ids), 0), len(rows.ids))
            return Rows(rows.ids[:valid], len(rows.ids) - valid, rows.draws[:valid])
        return rows

    def state(self) -> Any:
        if self.stateful:
            return self.loader.state_dict()
        return {"batches": self.seen, "batch_size": self.spec.batch_size, "world": self.spec.world}

    def load(self, state: Any) -> None:
        if self.stateful:
            self.loader.load_state_dict(state)
        else:
            self.skip = _skipped(state, self.spec)


class AccelerateStateful(Accelerate):
    name = "accelerate, stateful"
    stateful = True


class HuggingFace(_Torch):
    """A stream with its buffer of shuffling, in torchdata's loader, as its documentation has it for resuming."""

    name = "datasets IterableDataset"
    packages = ("datasets", "torchdata")
    modules = (*_TORCH, "torchdata.stateful_dataloader", "datasets", "datasets.distributed")
    unsupported = _PLAIN
    unpromised = dict.fromkeys(
        ("kill-0", "kill-2", "workers-0", "workers-3", "batch", "world-1", "world-3", "end-0", "end-2"),
        "its documentation says that what was in the buffer of `shuffle` is lost at a resume",
    )

    def build(self, spec: Spec) -> None:
        import datasets
        from datasets.distributed import split_dataset_by_node
        from torchdata.stateful_dataloader import StatefulDataLoader

        if spec.files:
            paths = sorted(glob.glob(os.path.join(spec.folder, "pictures", "all", "*.jpg")))
            table = datasets.Dataset.from_dict({"image": paths}).cast_column("image", datasets.Image())
            self.stream = table.to_iterable_dataset().map(_pixels, remove_columns=["image"]).with_format("torch")
        else:
            table = datasets.Dataset.from_dict({"id": list(range(spec.records))})
            self.stream = table.to_iterable_dataset(num_shards=12)
            if spec.shuffle:
                self.stream = self.stream.shuffle(seed=spec.seed, buffer_size=100)
            if spec.world > 1:
                self.stream = split_dataset_by_node(self.stream, rank=spec.rank, world_size=spec.world)
            self.stream = self.stream.map(_Mapped(spec))
        self.loader = StatefulDataLoader(self.stream, batch_size=spec.batch_size, num_workers=spec.workers)

    def batches(self, epoch: int) -> Iterator[Any]:
        self.stream.set_epoch(epoch)
        return iter(self.loader)

    def read(self, batch: Any) -> Rows:
        if self.spec.files:
            return _pictures(batch["pixels"].numpy())
        # A list becomes a tensor for each of its places.
        draws = [list(row) for row in zip(*[place.tolist() for place in batch["values"]])]
        return Rows(batch["id"].tolist(), draws=draws if self.spec.draws else [])


class _Mapped:
    """What `Records` does, as a step of a stream."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        data.check(row["id"], self.spec.damaged)
        row["values"] = data.drawn() if self.spec.draws == "item" else [0.0, 0.0, 0.0]
        return row


def _pixels(row: dict[str, Any]) -> dict[str, Any]:
    import numpy

    return {"pixels": numpy.asarray(row["image"]).tolist()}


# Others.


class GrainLoader(Adapter):
    """`grain.DataLoader`. Each epoch has a loader with a seed of its own: Grain's epochs run into one another."""

    name = "Grain DataLoader"
    table = 1
    packages = ("grain",)
    modules = ("grain", "grain.python")
    # Its worker processes hang in a process that was forked.
    forks = False
    leaves = ("psm_*", "sem.mp-*")
    unsupported = {"damaged-own-0": _NONE, "damaged-own-2": _NONE, "jpeg-own": _NONE}
    generators = ("numpy", "random")

    def make(self, spec: Spec) -> None:
        self.spec = spec
        data.seed_all(spec.seed)
        self.iterator: Any = None
        self.pending: Any = None

    def build(self, epoch: int) -> Any:
        import grain.python as grain

        spec, source = self.spec, _GrainSource(self.spec)
        sampler = grain.IndexSampler(
            len(source),
            shard_options=grain.ShardOptions(spec.rank, spec.world),
            shuffle=spec.shuffle,
            num_epochs=1,
            seed=spec.seed + epoch,
        )
        steps: list[Any] = [_grain_draws()] if spec.draws == "own" else []
        steps.append(grain.Batch(spec.batch_size, drop_remainder=False))
        return iter(grain.DataLoader(data_source=source, sampler=sampler, worker_count=spec.workers, operations=steps))

    def batches(self, epoch: int) -> Iterator[Any]:
        self.iterator = self.build(epoch)
        if self.pending is not None:
            self.iterator.set_state(self.pending)
            self.pending = None
        iterator: Iterator[Any] = self.iterator
        return iterator

    def read(self, batch: Any) -> Rows:
        if self.spec.files:
            return _pictures(batch["pixels"])
        return Rows(batch["id"].tolist(), draws=batch["values"].tolist() if self.spec.draws else [])

    def state(self) -> Any:
        return self.iterator.get_state()

    def load(self, state: Any) -> None:
        self.pending = state


class GrainDataset(GrainLoader):
    """`MapDataset`: shuffle, take this rank's, batch, then `to_iter_dataset`."""

    name = "Grain MapDataset.to_iter_dataset"

    def build(self, epoch: int) -> Any:
        import grain

        spec = self.spec
        dataset: Any = grain.MapDataset.source(_GrainSource(spec)).seed(spec.seed + epoch)
        if spec.shuffle:
            dataset = dataset.shuffle()
        if spec.draws == "own":
            dataset = dataset.random_map(_draw_for_grain)
        dataset = dataset[spec.rank :: spec.world].batch(spec.batch_size).to_iter_dataset()
        if spec.workers:
            dataset = dataset.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=spec.workers))
        return iter(dataset)


class _GrainSource:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.paths = sorted(glob.glob(os.path.join(spec.folder, "pictures", "all", "*.jpg"))) if spec.files else []
        self.records = data.Records(spec.records, spec.damaged, spec.draws == "item")

    def __len__(self) -> int:
        return len(self.paths) if self.spec.files else self.spec.records

    def __getitem__(self, index: Any) -> dict[str, Any]:
        import numpy

        if self.spec.files:
            from PIL import Image

            return {"pixels": numpy.asarray(Image.open(self.paths[int(index)]))}
        values, record = self.records[int(index)]
        # Of torch's generator there is none here.
        return {"values": values[1:], "id": record}

    def __repr__(self) -> str:
        # Part of a state: the same in each process.
        return f"records({len(self)})"


def _draw_for_grain(row: dict[str, Any], generator: Any) -> dict[str, Any]:
    return {**row, "values": generator.random(2)}


def _grain_draws() -> Any:
    import grain.python as grain

    class Draw(grain.RandomMapTransform):  # type: ignore[misc, unused-ignore]
        def random_map(self, element: Any, rng: Any) -> Any:
            return _draw_for_grain(element, rng)

    return Draw()


class LitData(_Torch):
    """`StreamingDataset` over chunks of 50 records. `set_epoch` is the loader's own affair."""

    name = "LitData"
    table = 1
    packages = ("litdata",)
    modules = ("torch", "litdata", "litdata.streaming.writer")
    unsupported = _PLAIN | _FORMATS

    @classmethod
    def prepare(cls, folder: str, records: int) -> None:
        from litdata.streaming.writer import BinaryWriter

        writer = BinaryWriter(os.path.join(folder, f"litdata-{records}"), chunk_size=50)
        for record in range(records):
            writer[record] = {"id": record}
        writer.done()
        writer.merge()

    def build(self, spec: Spec) -> None:
        import litdata
        import torch

        if spec.world > 1:
            torch.distributed.init_process_group("gloo", rank=spec.rank, world_size=spec.world)
        dataset = litdata.StreamingDataset(
            os.path.join(spec.folder, f"litdata-{spec.records}"),
            shuffle=spec.shuffle,
            seed=spec.seed,
            drop_last=False,
            transform=_Mapped(spec),
        )
        self.loader = litdata.StreamingDataLoader(dataset, batch_size=spec.batch_size, num_workers=spec.workers)

    def read(self, batch: Any) -> Rows:
        draws = [list(row) for row in zip(*[place.tolist() for place in batch["values"]])]
        return Rows([int(record) for record in batch["id"]], draws=draws if self.spec.draws else [])


class Mosaic(_Torch):
    """`StreamingDataset` over MDS shards. A state is taken in rank 0, as its documentation says."""

    name = "MosaicML streaming"
    table = 1
    packages = ("mosaicml-streaming",)
    leaves = ("[0-9][0-9][0-9][0-9][0-9][0-9]_*",)
    modules = ("torch", "streaming", "streaming.base.util")
    unsupported = _PLAIN | _FORMATS

    @classmethod
    def prepare(cls, folder: str, records: int) -> None:
        from streaming import MDSWriter

        with MDSWriter(
            out=os.path.join(folder, f"mds-{records}"), columns={"id": "int"}, size_limit=2000
        ) as writer:
            for record in range(records):
                writer.write({"id": record})

    def build(self, spec: Spec) -> None:
        import torch
        from streaming import StreamingDataLoader, StreamingDataset
        from streaming.base.util import clean_stale_shared_memory

        if spec.world > 1:
            torch.distributed.init_process_group("gloo", rank=spec.rank, world_size=spec.world)
        # What a process that was killed has left.
        clean_stale_shared_memory()
        mapped = _Mapped(spec)

        class Mapped(StreamingDataset):  # type: ignore[misc, unused-ignore]
            def __getitem__(self, at: Any) -> Any:
                return mapped(super().__getitem__(at))

        dataset = Mapped(
            local=os.path.join(spec.folder, f"mds-{spec.records}"),
            shuffle=spec.shuffle,
            shuffle_seed=spec.seed,
            batch_size=spec.batch_size,
        )
        self.loader = StreamingDataLoader(dataset, batch_size=spec.batch_size, num_workers=spec.workers)

    def read(self, batch: Any) -> Rows:
        draws = [list(row) for row in zip(*[place.tolist() for place in batch["values"]])]
        return Rows([int(record) for record in batch["id"]], draws=draws if self.spec.draws else [])


class WebDataset(_Torch):
    """Small tars, split by node and worker, a buffer of shuffling, `WebLoader`."""

    name = "webdataset"
    table = 1
    packages = ("webdataset",)
    modules = ("torch", "webdataset")
    unsupported = {
        **dict.fromkeys(
            ("kill-0", "kill-2", "workers-0", "workers-3", "batch", "end-0", "end-2", "world-1", "world-3")
            + ("draws-resume-0", "draws-resume-2"),
            "keeps no state",
        ),
        "draws-own": _NO_GENERATOR,
        **_FORMATS,
    }

    @classmethod
    def prepare(cls, folder: str, records: int) -> None:
        # Some for each rank and worker.
        size = 50 if records > 500 else 5
        for shard, start in enumerate(range(0, records, size)):
            with tarfile.open(os.path.join(folder, f"records-{records}-{shard:03}.tar"), "w") as tar:
                for record in range(start, min(start + size, records)):
                    text = str(record).encode()
                    member = tarfile.TarInfo(f"{record:06}.cls")
                    member.size = len(text)
                    tar.addfile(member, io.BytesIO(text))

    def batches(self, epoch: int) -> Iterator[Any]:
        import webdataset

        spec = self.spec
        shards = sorted(glob.glob(os.path.join(spec.folder, f"records-{spec.records}-*.tar")))
        seed = spec.seed + epoch
        more: dict[str, Any] = {"handler": webdataset.warn_and_continue} if spec.policy else {}
        dataset = webdataset.WebDataset(
            shards,
            shardshuffle=len(shards) if spec.shuffle else False,
            nodesplitter=webdataset.split_by_node,
            detshuffle=spec.shuffle,
            seed=seed,
            empty_check=False,
        )
        if spec.shuffle:
            dataset = dataset.compose(webdataset.filters.detshuffle(100, seed=seed))
        dataset = dataset.decode().map(_WebMapped(spec), **more).batched(spec.batch_size, partial=True)
        return iter(webdataset.WebLoader(dataset, batch_size=None, num_workers=spec.workers))

    def build(self, spec: Spec) -> None:
        pass

    def read(self, batch: Any) -> Rows:
        ids, values = batch
        return Rows([int(record) for record in ids], draws=values.tolist() if self.spec.draws else [])


class _WebMapped(_Mapped):
    def __call__(self, row: dict[str, Any]) -> Any:
        import numpy

        mapped = super().__call__({"id": int(row["cls"])})
        return mapped["id"], numpy.array(mapped["values"])


ADAPTERS: tuple[type[Adapter], ...] = (
    InfeedTorch,
    InfeedSampler,
    InfeedDealt,
    TorchByHand,
    Torchdata,
    TorchdataShuffle,
    Accelerate,
    AccelerateStateful,
    HuggingFace,
    Infeed,
    GrainLoader,
    GrainDataset,
    LitData,
    Mosaic,
    WebDataset,
)


def find(name: str) -> type[Adapter]:
    import planted

    for adapter in itertools.chain(ADAPTERS, planted.ADAPTERS):
        if adapter.name == name:
            return adapter
    raise KeyError(name)
