"""What a loop relies on: every record once, in an order that repeats, from any place."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import json
import pickle
import re
import subprocess
import sys
import tarfile
import threading
import types
from pathlib import Path
from typing import Any

import infeed
import pytest
from conftest import png
from infeed import _native
from infeed.errors import ConfigError, CorruptError
from infeed.loader import Options, Settings, check_settings


def Loader(data: Any, **more: Any) -> infeed.Loader:  # noqa: N802 (it stands for the class)
    """With a transform, since pictures of files may be of any size."""
    return infeed.Loader(data, **{"transform": "center_crop:24", **more})


def records(loader: infeed.Loader) -> list[list[int]]:
    return [batch.records for batch in loader]


def flat(batches: list[list[int]]) -> list[int]:
    return [record for batch in batches for record in batch]


def test_every_record_comes_once_in_an_epoch(folder: str) -> None:
    loader = Loader(folder, batch_size=32, shuffle=7)
    assert len(loader) == 4
    first, second = records(loader), records(loader)
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(100))
    assert first != second
    assert [len(batch) for batch in first] == [32, 32, 32, 4]


def test_the_order_is_that_of_dataset_seed_and_epoch(folder: str) -> None:
    want = [records(Loader(folder, batch_size=16, shuffle=3)) for _ in range(2)]
    assert want[0] == want[1]
    assert records(Loader(folder, batch_size=16, shuffle=True, seed=3, num_workers=1, prefetch=1)) == want[0]
    assert records(Loader(folder, batch_size=16, shuffle=4)) != want[0]
    assert flat(records(Loader(folder, batch_size=16))) == list(range(100))


def test_values_are_those_of_their_records(folder: str) -> None:
    numpy = pytest.importorskip("numpy")
    loader = Loader(folder, batch_size=32, shuffle=1, dtype="uint8", channels_last=True)
    for batch in loader:
        image, label = batch["image"].numpy(), batch["label"].numpy()
        assert image.shape == (batch.size, 24, 24, 3) and image.dtype == numpy.uint8
        for row, record in enumerate(batch.records):
            assert (image[row] == [record, 255 - record, record // 50]).all()
            assert label[row] == record // 50


def test_an_epoch_that_was_left_is_over_and_set_epoch_chooses(folder: str) -> None:
    want = [records(loader) for loader in [Loader(folder, batch_size=32, shuffle=7)] for _ in range(4)]
    loader = Loader(folder, batch_size=32, shuffle=7)
    for batch in loader:
        assert batch.records == want[0][0]
        break
    assert records(loader) == want[1]
    loader.set_epoch(3)
    assert records(loader) == want[3]
    loader.set_epoch(0)
    assert records(loader) == want[0]
    # The next one was read ahead, and is what was asked for.
    loader.set_epoch(1)
    assert records(loader) == want[1]


def test_a_state_goes_on_behind_the_last_batch_that_was_handed_out(folder: str) -> None:
    whole = Loader(folder, batch_size=10, shuffle=7)
    want = [records(whole), records(whole)]
    loader = Loader(folder, batch_size=10, shuffle=7, prefetch=8)
    batches = iter(loader)
    for _ in range(3):
        batch = next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    assert state == batch.state_dict()
    batches.close()

    other = Loader(folder, batch_size=10, shuffle=7)
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert len(other) == 10
    # As trainers do after loading: the epoch of the state keeps its place.
    other.set_epoch(0)
    assert records(other) == want[0][3:]
    assert records(other) == want[1]

    # Another batch size, and ranks.
    ranks = [Loader(folder, batch_size=7, shuffle=7, rank=rank, world_size=2) for rank in range(2)]
    for loader in ranks:
        loader.load_state_dict(state)
    rest = [record for loader in ranks for batch in loader for record in batch.records[: batch.valid]]
    assert sorted(rest) == sorted(flat(want[0][3:]))


def test_a_state_at_a_border_is_the_next_epoch(folder: str) -> None:
    loader = Loader(folder, batch_size=50, shuffle=7)
    assert loader.state_dict()["epoch"] == 0
    want = [records(loader) for _ in range(3)]
    assert loader.state_dict()["epoch"] == 3
    other = Loader(folder, batch_size=50, shuffle=7)
    other.set_epoch(2)
    state = other.state_dict()
    fresh = Loader(folder, batch_size=50, shuffle=7)
    fresh.load_state_dict(state)
    assert records(fresh) == want[2]


def test_a_resumed_epoch_may_have_nothing_left(folder: str) -> None:
    loader = Loader(folder, batch_size=30, shuffle=7, drop_last=True)
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    state = loader.state_dict()
    # 40 are left, which do not fill a batch of 64.
    other = Loader(folder, batch_size=64, shuffle=7, drop_last=True)
    other.load_state_dict(state)
    assert records(other) == []
    want = Loader(folder, batch_size=64, shuffle=7, drop_last=True)
    want.set_epoch(1)
    assert records(other) == records(want) != []


def test_states_of_others_are_refused(folder: str) -> None:
    state = Loader(folder, batch_size=10, shuffle=7).state_dict()
    loader = Loader(folder, batch_size=10, shuffle=8)
    for bad in [state, {}, {**state, "version": 99}, {"epoch": 1}]:
        with pytest.raises(infeed.errors.StateError) as told:
            loader.load_state_dict(bad)
        assert isinstance(told.value, ValueError)
    # None of them did anything.
    assert loader.state_dict()["epoch"] == 0
    assert len(records(loader)) == 10


def test_ranks_share_an_epoch_in_equal_steps(folder: str) -> None:
    ranks = [Loader(folder, batch_size=16, shuffle=1, rank=rank, world_size=3) for rank in range(3)]
    steps = [list(loader) for loader in ranks]
    assert len({len(batches) for batches in steps}) == 1
    got = [record for batches in steps for batch in batches for record in batch.records[: batch.valid]]
    assert sorted(got) == list(range(100))


def test_the_launcher_says_the_rank(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    from_launcher = records(Loader(folder, batch_size=10, shuffle=1))
    assert from_launcher == records(Loader(folder, batch_size=10, shuffle=1, rank=1, world_size=2))
    assert records(Loader(folder, batch_size=10, shuffle=1, rank=0, world_size=2)) != from_launcher


class Distributed(types.ModuleType):
    """As much of ``torch.distributed`` as is asked for."""

    ready = True

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.ready

    def get_rank(self) -> int:
        return 1

    def get_world_size(self) -> int:
        return 2


def test_a_loader_that_was_made_before_there_were_ranks_is_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Distributed("torch.distributed")
    torch.ready = False
    monkeypatch.setitem(sys.modules, "torch.distributed", torch)
    early = Loader(folder, batch_size=10, shuffle=1)
    assert len(flat(records(early))) == 100
    of_a_rank = Loader(folder, batch_size=10, shuffle=1, rank=0, world_size=4)
    torch.ready = True
    with pytest.raises(ConfigError, match="rank 0 of 1, and torch.distributed says rank 1 of 2"):
        iter(early)
    assert len(flat(records(of_a_rank))) < 50, "what was said by hand stands"
    # What torch knows counts, whatever the variables lack.
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert records(Loader(folder, batch_size=10, shuffle=1)) == records(
        Loader(folder, batch_size=10, shuffle=1, rank=1, world_size=2)
    )
    torch.ready = False
    with pytest.raises(ConfigError, match="WORLD_SIZE is 2"):
        Loader(folder, batch_size=10)


def test_a_job_has_one_listing(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "listing"
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    first = infeed.open(folder, listing=file)
    assert file.exists()
    monkeypatch.setenv("RANK", "1")
    assert len(infeed.open(folder, listing=file)) == len(first) == len(infeed.open(folder, listing=file, rank=0))


def test_records_are_chosen_by_filters_and_by_a_list(folder: str, tmp_path: Path) -> None:
    dogs = infeed.open(folder, filters=["label=dog"])
    assert len(dogs) == 50
    batch = next(iter(Loader(dogs, batch_size=50)))
    assert set(batch["label"].numpy().tolist()) == {1}
    wanted = tmp_path / "wanted.txt"
    wanted.write_text("# two of them\n3\ndog/001.png\n")
    assert len(infeed.open(folder, records=str(wanted))) == 2
    with pytest.raises(ConfigError, match="write it like label=cat"):
        infeed.open(folder, filters=["label"])


def test_decoded_pixels_serve_later_epochs(folder: str, tmp_path: Path) -> None:
    def rows(**more: Any) -> tuple[list[bytes], Any]:
        loader = Loader(folder, batch_size=10, shuffle=3, transform="random_crop:16", **more)
        return [batch["image"].numpy().tobytes() for _ in range(2) for batch in loader], loader.report()

    plain, _ = rows()
    for kept in ["ram:64MiB", f"{tmp_path}/pixels:64MiB"]:
        found, report = rows(decoded_cache=kept)
        assert found == plain
        assert report["decoded_cache"]["hits"] > 0


def test_what_was_learned_of_jpegs_is_kept_in_a_file(tmp_path: Path) -> None:
    photos, index = tmp_path / "photos", tmp_path / "photos.index"
    subprocess.run([sys.executable, "-m", "infeed", "synth", "imagenet", photos, "--count", "8"], check=True)

    def rows(**more: Any) -> list[bytes]:
        with Loader(photos, batch_size=4, shuffle=3, transform="imagenet-train", **more) as loader:
            return [batch["image"].numpy().tobytes() for _ in range(2) for batch in loader]

    plain = rows()
    assert rows(decode_index=index) == plain
    size = index.stat().st_size
    assert size > 200
    assert rows(decode_index=str(index)) == plain
    assert index.stat().st_size >= size
    loader = pickle.loads(pickle.dumps(Loader(photos, batch_size=4, transform="imagenet-train", decode_index=index)))
    loader.save_decode_index()
    loader.close()
    loader.close()
    index.write_text("something else")
    with pytest.raises(CorruptError, match="is not a decode index"):
        rows(decode_index=index)


def test_a_copy_by_pickle_has_the_arguments_and_the_place(folder: str) -> None:
    loader = Loader(folder, batch_size=10, shuffle=7)
    want = records(pickle.loads(pickle.dumps(loader)))
    batches = iter(loader)
    next(batches)
    copy = pickle.loads(pickle.dumps(loader))
    assert records(copy) == want[1:]
    assert [want[0], *(batch.records for batch in batches)] == want


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_iterator_has_no_copies_and_says_what_to_do(folder: str, copied: Any) -> None:
    batches = iter(Loader(folder, batch_size=10))
    next(batches)
    with pytest.raises(TypeError, match="copy the loader"):
        copied(batches)
    assert next(batches).step == 1


def test_datasets_tell_what_they_are(folder: str) -> None:
    dataset = infeed.open(folder)
    assert (len(dataset), dataset.format) == (100, "folder")
    assert dataset.classes == ["cat", "dog"]
    assert dataset.fields == {"image": "image", "label": "label"}
    assert dataset.object(51).endswith("dog/001.png")
    with pytest.raises(IndexError):
        dataset.object(100)
    copy = pickle.loads(pickle.dumps(dataset))
    assert len(copy) == 100
    assert "100 records" in repr(dataset)
    assert records(Loader(copy, batch_size=50)) == records(Loader(dataset, batch_size=50))


def test_transforms_are_named_written_or_listed(folder: str) -> None:
    def shape(transform: Any) -> tuple[int, ...]:
        batch = next(iter(Loader(folder, batch_size=4, transform=transform)))
        found: tuple[int, ...] = batch["image"].shape
        return found

    assert shape("imagenet-val") == (4, 3, 224, 224)
    assert shape("resize_exact:[16,20];normalize") == (4, 3, 16, 20)
    assert shape([{"op": "center_crop", "size": [8, 8]}]) == (4, 3, 8, 8)
    batch = next(iter(Loader(folder, batch_size=4, transform="dino")))
    assert batch["image.global0"].shape == (4, 3, 224, 224) and "image.local7" in batch


def test_bad_samples_are_raised_left_out_or_replaced(damaged: str) -> None:
    with pytest.raises(infeed.Error) as told:
        list(Loader(damaged, batch_size=5))
    assert told.value.record == 3 and told.value.object is not None and told.value.object.endswith("3.png")
    assert "3.png" in str(told.value)

    loader = Loader(damaged, batch_size=5, on_bad_sample="substitute")
    batches = list(loader)
    assert [batch.size for batch in batches] == [5, 5]
    assert [bad["record"] for bad in batches[0].bad_samples] == [3]

    loader = Loader(damaged, batch_size=5, on_bad_sample={"skip": {"at_most": 1}})
    assert [batch.size for batch in loader] == [4, 5]


def test_a_loader_goes_on_behind_an_error(damaged: str) -> None:
    loader = Loader(damaged, batch_size=2, num_workers=1)
    for _ in range(2):
        got = []
        with pytest.raises(infeed.Error):
            for batch in loader:
                got.append(batch.records)
        assert got == [[0, 1]]
    # Also where somebody asks the iterator again, which has ended.
    loader = Loader(damaged, batch_size=2, num_workers=1)
    batches = iter(loader)
    assert next(batches).records == [0, 1]
    with pytest.raises(infeed.Error):
        next(batches)
    assert list(batches) == []
    assert next(iter(loader)).records == [0, 1]


def test_reports_and_settings_are_dicts(folder: str) -> None:
    loader = Loader(folder, batch_size=25, num_workers=2)
    assert loader.report() == {}
    list(loader)
    report = loader.report()
    assert report["batches"] >= 4
    # The next epoch is read ahead.
    assert list(report["decoded_by"]) == ["cpu"] and report["decoded_by"]["cpu"] >= report["samples"]
    config = loader.config
    assert (config["batch_size"], config["workers"], config["dtype"]) == (25, 2, "f32")


def test_who_decodes_is_said_and_never_the_cpu_in_silence(folder: str) -> None:
    assert Loader(folder, decode="cpu", decode_cut=False).config["decode"] == "cpu"
    with pytest.raises(ConfigError, match='decode="gpu" decodes on a GPU, and device is cpu') as told:
        Loader(folder, decode="gpu")
    assert "leave decode on auto" in str(told.value)
    with pytest.raises(ConfigError, match="decode='engines': must be one of 'auto', 'gpu', 'cpu'"):
        Loader(folder, decode="engines")  # pyright: ignore[reportArgumentType]


def test_a_batch_is_a_mapping(folder: str) -> None:
    from collections.abc import Mapping

    batch = next(iter(Loader(folder, batch_size=4)))
    assert isinstance(batch, Mapping)
    assert list(batch) == list(batch.keys()) == ["image", "label"] and len(batch) == 2
    assert dict(batch)["label"] is batch["label"]
    assert batch.get("nothing") is None and batch.get("nothing", 5) == 5
    assert "image" in batch and "nothing" not in batch
    assert (batch.size, batch.valid, batch.epoch, batch.step) == (4, 4, 0, 0)
    with pytest.raises(KeyError, match="the fields are image, label"):
        batch["nothing"]
    assert "4 rows of image, label" in repr(batch)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"batch_size": 0}, ValueError, "batch"),
        ({"num_workers": 0}, ValueError, "num_workers is 0"),
        ({"batch_size": 1000, "drop_last": True}, infeed.errors.EmptyError, "drop_last=False"),
        ({"batch_size": "many"}, TypeError, "batch_size='many': must be a whole number"),
        ({"dtype": "float99"}, ValueError, "float32"),
        ({"device": "tpu"}, ValueError, "device='tpu': .*cpu"),
        ({"transform": "no_such_step"}, ValueError, "no_such_step"),
        ({"transform": [{"op": "no_such_step"}]}, ValueError, r"transform\[0\]\['op'\]='no_such_step': must be one of"),
        ({"on_bad_sample": "ignore"}, ValueError, "substitute"),
        ({"on_bad_sample": "skip"}, ValueError, "at_most"),
        ({"order": "sorted"}, ValueError, "sequential"),
        ({"order": "random", "shuffle": True}, ValueError, "one of them"),
        ({"rank": 0}, ValueError, "world_size"),
        ({"rank": 0, "world_size": 0}, ValueError, "0 of 0"),
        ({"rank": 2, "world_size": 2}, ValueError, "2 of 2"),
        ({"nothing": 1}, TypeError, r"there is no argument 'nothing': there are batch_sampler, batch_size, .*world_size"),
        ({"batchsize": 1}, TypeError, r"Loader\(\): there is no argument 'batchsize': did you mean batch_size\?"),
        ({"max_image_byte": 1}, TypeError, r"did you mean max_image_bytes\?"),
        ({"workers": 1}, TypeError, "'workers': use num_workers"),
        ({"last_batch": "drop"}, TypeError, "'last_batch': use drop_last"),
        ({"layout": "nhwc"}, TypeError, "'layout': use channels_last"),
        ({"shard": {}}, TypeError, "'shard': use rank and world_size"),
        ({"collate_fn": list}, TypeError, "'collate_fn': use batch_transform"),
        ({"labels": "labels.csv"}, TypeError, r"an argument of infeed.open\(\): use Loader\(infeed.open\(…, labels=…\)\)"),
        ({"label_column": "x"}, TypeError, r"an argument of infeed.open\(\)"),
        ({"cache": "much"}, ValueError, "cache='much'"),
        ({"mix": object()}, TypeError, "numbers, str"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    folder: str, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Loader(folder, **arguments)


def _fields_of(answer: pytest.ExceptionInfo[TypeError]) -> set[str]:
    """Those that the engine has, as it says when it is given another one."""
    return set(re.findall("'(.+?)'", str(answer.value).partition(", but ")[2]))


def test_settings_are_those_of_the_engine(folder: str) -> None:
    with pytest.raises(TypeError) as told:
        _native.Loader(infeed.open(folder), '{"nothing": 1}', None, None, None)
    # `split` is the earlier name of `gpu_split` in files.
    said_otherwise = {"workers", "last_batch", "shard", "layout", "split"}
    of_loader = set(inspect.signature(infeed.Loader).parameters)
    assert set(Settings.__annotations__) == _fields_of(told) - said_otherwise - of_loader
    assert not set(Loader(folder).config) - _fields_of(told)


def test_options_are_those_of_the_engine(folder: str) -> None:
    with pytest.raises(TypeError) as told:
        _native.open(folder, '{"nothing": 1}')
    of_open = set(inspect.signature(infeed.open).parameters)
    assert set(Options.__annotations__) == _fields_of(told) - of_open


def test_an_option_that_nobody_knows_is_told_with_what_was_meant(folder: str) -> None:
    with pytest.raises(TypeError, match=r"open\(\): there is no argument 'label': did you mean labels\?"):
        infeed.open(folder, label="x")  # type: ignore[call-arg]  # what this is about
    with pytest.raises(TypeError, match="for a Python object each must be image, mask"):
        infeed.open([b"x"], fields={"image": ["a", "b"]})


def test_other_callers_are_told_of_their_own_arguments() -> None:
    check_settings("DataLoader", {"mix": {}}, ["batch_size"])
    with pytest.raises(TypeError, match=r"DataLoader\(\): there is no argument 'outputs': did you mean output\?"):
        check_settings("DataLoader", {"mix": {}, "outputs": "dict"}, ["batch_size", "output"])


_RUST = re.compile(
    r"\b([iu](8|16|32|64|128|size)|f(32|64)|bf16|struct|variants?|enum|tuple of size|invalid (type|value|length)|null|boolean"
    r"|floating point|unit|untagged|a sequence|a map|at line|serde|\w+Spec|Vec|PyString|expected)\b|`|::"
)
_WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"batch_size": -1}, ConfigError, "batch_size=-1: must be a whole number, not negative"),
    ({"batch_size": 1.5}, TypeError, "batch_size=1.5: must be a whole number, not negative"),
    ({"batch_size": True}, TypeError, "batch_size=True: must be a whole number, not negative"),
    ({"batch_size": None}, TypeError, "batch_size=None: must be a whole number, not negative"),
    ({"batch_size": 2**70}, TypeError, "batch_size=1.18"),
    ({"num_workers": -1}, ConfigError, "num_workers=-1: must be a whole number, not negative"),
    ({"num_workers": 1.5}, TypeError, "num_workers=1.5: must be"),
    ({"num_workers": "a", "prefetch": "a"}, TypeError, "(num_workers|prefetch)='a': must be"),
    ({"prefetch": [1]}, TypeError, r"prefetch=\[1\]: must be"),
    ({"shuffle": None}, TypeError, "shuffle=None: must be True, False, or a number, the seed"),
    ({"shuffle": "yes"}, TypeError, "shuffle='yes': must be True, False"),
    ({"shuffle": 1.5}, TypeError, "shuffle=1.5: must be True, False"),
    ({"shuffle": -1}, ConfigError, "shuffle=-1: must be a whole number, not negative"),
    ({"seed": "a"}, TypeError, "seed='a': must be a whole number"),
    ({"seed": -1}, ConfigError, "seed=-1: must be a whole number, not negative"),
    ({"seed": 2**64}, ConfigError, "seed=18446744073709551616: must be .* below"),
    ({"seed": "a", "shuffle": True}, TypeError, "seed='a': must be"),
    ({"rank": "a", "world_size": 2}, TypeError, "rank='a': must be a whole number"),
    ({"rank": 0.5, "world_size": 2}, TypeError, "rank=0.5: must be a whole number"),
    ({"rank": 0, "world_size": 2**33}, ConfigError, "world_size=8589934592: must be"),
    ({"memory_budget": "1GB"}, TypeError, "memory_budget='1GB': must be a whole number of bytes"),
    ({"device_budget": -1}, ConfigError, "device_budget=-1: must be a whole number of bytes"),
    ({"max_image_bytes": "a"}, TypeError, "max_image_bytes='a': must be a whole number of bytes"),
    ({"io_concurrency": "a"}, TypeError, "io_concurrency='a': must be a whole number"),
    ({"drop_last": "no"}, TypeError, "drop_last='no': must be True or False"),
    ({"channels_last": None}, TypeError, "channels_last=None: must be True or False"),
    ({"pin_memory": "cuda"}, TypeError, "pin_memory='cuda': must be True or False"),
    ({"decode_cut": "x"}, TypeError, "decode_cut='x': must be True or False"),
    ({"dtype": "f32"}, ConfigError, "dtype='f32': images come as float32, float16"),
    ({"dtype": 3}, ConfigError, "dtype=3: images come as"),
    ({"dtype": float}, ConfigError, "dtype=<class 'float'>: images come as"),
    ({"device": 3}, TypeError, "device=3: must be 'cpu', 'cuda'"),
    ({"device": "gpu"}, ConfigError, "device='gpu': .*cuda:0"),
    ({"decode": "x"}, ConfigError, "decode='x': must be one of 'auto', 'gpu', 'cpu'"),
    ({"orientation": True}, TypeError, "orientation=True: must be one of 'auto', 'ignore', 'apply'"),
    ({"orientation": "x"}, ConfigError, "orientation='x': must be one of 'auto', 'ignore', 'apply'"),
    ({"verify": "x"}, ConfigError, "verify='x': must be one of 'auto', 'checksums', 'never'"),
    ({"gpu_split": "train"}, ConfigError, r"gpu_split='train': must be one of 'adaptive', 'fixed'"),
    ({"gpu_split": 3}, TypeError, "gpu_split=3: must be one of 'adaptive', 'fixed'"),
    ({"split": "train"}, TypeError, r"use Loader\(infeed.open\(…, split=…\)\)"),
    ({"cache": 3}, TypeError, "cache=3: must be a str"),
    ({"cache": "/x"}, ConfigError, "cache='/x': .*DIR:SIZE"),
    ({"decoded_cache": 3}, TypeError, "decoded_cache=3: must be a str"),
    ({"decode_index": 3}, TypeError, "decode_index=3: must be a path"),
    ({"on_bad_sample": 3}, TypeError, "on_bad_sample=3: must be one of 'raise', 'substitute'"),
    ({"on_bad_sample": {"ignore": 3}}, ConfigError, "on_bad_sample={'ignore': 3}: must be one of 'raise'"),
    ({"on_bad_sample": {"skip": 3}}, TypeError, r"on_bad_sample\['skip'\]=3: must be a dict"),
    ({"on_bad_sample": {"skip": {}}}, ConfigError, r"on_bad_sample\['skip'\]={}: 'at_most' is missing"),
    ({"on_bad_sample": {"skip": {"at_most": "a"}}}, TypeError, r"on_bad_sample\['skip'\]\['at_most'\]='a': must be"),
    ({"order": 3}, TypeError, "order=3: must be 'sequential'"),
    ({"order": {}}, ConfigError, "order={}: must be"),
    ({"order": {"sorted": {}}}, ConfigError, "order: there is no 'sorted', but 'sequential', 'random'"),
    ({"order": {"repeated": {"times": 3}}}, ConfigError, r"order\['repeated'\]={'times': 3}: 'seed' is missing"),
    ({"order": {"random": {"seed": "a"}}}, TypeError, r"order\['random'\]\['seed'\]='a': must be a whole number"),
    ({"mix": 3}, TypeError, "mix=3: must be a dict"),
    ({"mix": {"mixup": "a"}}, TypeError, r"mix\['mixup'\]='a': must be a number"),
    ({"mix": {"mixup": float("nan")}}, ConfigError, "mix={'mixup': nan}: numbers must be finite"),
    ({"mix": {"mixpu": 1}}, TypeError, "mix: there is no 'mixpu', but 'mixup', 'cutmix'"),
    ({"mix": {"per": "x"}}, ConfigError, r"mix\['per'\]='x': must be one of 'batch', 'pair'"),
    ({"views": 3}, TypeError, "views=3: must be a list"),
    ({"views": [3]}, TypeError, r"views=\[3\]: must be a dict"),
    ({"views": [{"name": "a"}]}, ConfigError, r"views\[0\]={'name': 'a'}: 'transform' is missing"),
    ({"transform": 3}, TypeError, "3 is not a transform of infeed.transforms"),
    ({"transform": [{"size": 3}]}, ConfigError, r"transform\[0\]={'size': 3}: 'op' is missing"),
    ({"transform": [{"op": "to_float"}, {"op": "resize_exact", "size": "a"}]}, ConfigError, r"transform\[1\]\['size'\]='a': a size"),
    ({"transform": [{"op": "resize_exact", "size": 3, "zoom": 1}]}, TypeError, r"transform\[0\]: there is no 'zoom', but"),
    ({"transform": [{"op": "normalize", "mean": [1, 2, 3]}]}, ConfigError, r"transform\[0\]={.*}: 'std' is missing"),
    ({"map": 3}, TypeError, "map=3: must be a function"),
    ({"batch_transform": 3}, TypeError, "batch_transform=3: must be a function"),
    ({"sampler": 3}, TypeError, "sampler=3: must be an iterable"),
]


@pytest.mark.parametrize(("arguments", "error", "words"), _WRONG, ids=lambda value: repr(value)[:40])
def test_wrong_values_are_told_in_words_of_python(
    folder: str, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as told:
        Loader(folder, **arguments)
    assert not _RUST.search(str(told.value).partition(": ")[2]), told.value


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"format": 3}, TypeError, "format=3: must be a str"),
        ({"labels": 3}, TypeError, "labels=3: must be a str"),
        ({"split": 3}, TypeError, "split=3: must be a str$"),
        ({"classes": "cat"}, TypeError, "classes='cat': must be a list of names"),
        ({"classes": [1]}, TypeError, r"classes=\[1\]: must be a str"),
        ({"columns": "image"}, TypeError, "columns='image': must be a list of names"),
        ({"labels_only": "x"}, TypeError, "labels_only='x': must be True or False"),
        ({"masks": 3}, ConfigError, "masks=3: masks are True, False, or"),
        ({"fields": 3}, TypeError, "fields=3: must be a dict"),
        ({"fields": {"gt": 3}}, ConfigError, r"fields\['gt'\]=3: a field is the name of a kind"),
        ({"samples_per_patient": "a"}, TypeError, "samples_per_patient='a': must be a whole number"),
        ({"patience": "a"}, TypeError, "patience='a': must be a number"),
        ({"patience": -1.0}, ConfigError, "patience=-1.0: must be a number of seconds, not negative"),
        ({"filters": "a=b"}, TypeError, "filters='a=b': must be a list"),
        ({"rank": -1}, ConfigError, "rank=-1: must be a whole number"),
        ({"records": 3}, TypeError, "records=3: must be a str"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_wrong_options_are_told_in_words_of_python(
    folder: str, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as told:
        infeed.open(folder, **options)
    assert not _RUST.search(str(told.value)), told.value


def test_types_and_numbers_of_numpy_are_understood(folder: str) -> None:
    numpy = pytest.importorskip("numpy")
    for dtype in ("float32", numpy.float32, numpy.dtype("float32")):
        assert Loader(folder, dtype=dtype).config["dtype"] == "f32"
    arguments = {"batch_size": 5, "num_workers": 1, "seed": 3, "shuffle": 7, "memory_budget": 1 << 28}
    loader = Loader(folder, drop_last=numpy.bool_(True), **{name: numpy.int64(it) for name, it in arguments.items()})
    assert len(loader) == 20 and loader.config["order"] == {"random": {"seed": 7}}
    loader.set_epoch(numpy.int32(3))
    with pytest.raises(TypeError, match="epoch='a': must be a whole number"):
        loader.set_epoch("a")  # type: ignore[arg-type]  # what this is about


def test_types_and_devices_of_torch_are_understood(folder: str) -> None:
    torch = pytest.importorskip("torch")
    assert Loader(folder, dtype=torch.bfloat16).config["dtype"] == "bf16"
    assert Loader(folder, device=torch.device("cpu")).config["device"] == "cpu"
    with pytest.raises(ConfigError, match="dtype=torch.float64: images come as"):
        Loader(folder, dtype=torch.float64)


def test_what_is_not_there_is_told_as_python_does(folder: str) -> None:
    with pytest.raises(FileNotFoundError) as told:
        Loader("/nowhere/at/all")
    assert isinstance(told.value, infeed.errors.NotFoundError)
    with pytest.raises(TypeError, match="no_such_option"):
        infeed.open(folder, no_such_option=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="not int"):
        Loader(5)


def test_errors_speak_of_arguments(damaged: str, folder: str) -> None:
    with pytest.raises(infeed.Error) as told:
        list(Loader(damaged, batch_size=5))
    skip = 'on_bad_sample={"skip": {"at_most": …}}'
    assert told.value.hint is not None and told.value.hint.endswith(f"set {skip}")
    assert skip in str(told.value) and "on_bad_sample(" not in str(told.value)
    with pytest.raises(ConfigError, match="memory_budget is .*; raise memory_budget or lower batch_size or num_workers"):
        Loader(folder, batch_size=100, memory_budget=1)


def test_arguments_that_errors_name_can_be_given(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # `manifest` is a file to write.
    monkeypatch.chdir(tmp_path)
    of_loader = set(inspect.signature(infeed.Loader).parameters) | set(Loader(folder).config)
    # Keys of the engine's config that are said otherwise here, and those whose value there is none by default.
    of_loader = of_loader - {"workers", "last_batch", "shard", "layout"} | {"mix", "views", "decoded_cache", "pad"}
    options: dict[str, Any] = {"masks": True, "allow_incomplete": True, "samples_per_patient": 1, "patience": 1.0}
    options |= {"labels_only": True}
    options |= {"fields": {"image": ["x"]}, "columns": ["image"], "classes": ["a"]}
    given = 0
    for words in _native.settings():
        name, _, value = words.partition("=")
        whole = value and "…" not in value and " or " not in value
        if name not in of_loader:
            # Refused by what opens it, if at all; not as something that nobody knows.
            with contextlib.suppress(infeed.Error):
                infeed.open(folder, **{name: options.get(name, "x")})
        elif whole or name == "on_bad_sample":
            # Batches lie in host memory here, where no GPU decodes.
            with contextlib.suppress(*[ConfigError] if name == "decode" else []):
                Loader(folder, **eval(f"dict({words.replace('…', '1')})"))
            given += 1
    assert given >= 4


def test_a_closed_loader_says_so(folder: str) -> None:
    with Loader(folder, batch_size=10) as loader:
        batches = iter(loader)
        next(batches)
    for use in (lambda: iter(loader), lambda: len(loader), loader.state_dict, loader.report):
        with pytest.raises(RuntimeError, match="closed"):
            use()
    with Loader(folder, batch_size=10) as loader, iter(loader) as batches:
        next(batches)
        batches.close()
        assert list(batches) == []


def test_a_second_thread_in_an_iterator_is_told(folder: str) -> None:
    loader = Loader("synthetic://?count=1000000&height=64&width=64", batch_size=64, num_workers=1, prefetch=1)
    batches = iter(loader)
    told: list[str] = []
    end = threading.Event()

    def loop() -> None:
        try:
            while not end.is_set():
                next(batches)
        except RuntimeError as error:
            told.append(str(error))
            end.set()

    threads = [threading.Thread(target=loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told and "another thread waits" in told[0]


def test_images_that_json_names_are_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    (tmp_path / "images").mkdir()
    for i in range(4):
        (tmp_path / "images" / f"{i}.png").write_bytes(png(i, i, i))
    rows = [{"images": [f"images/{n}.png" for n in range(i)], "text": "x" * i} for i in range(4)]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    for dataset in (
        infeed.open(tmp_path, format="jsonl"),
        infeed.open(tmp_path / "train.json", format="jsonl", fields={"images": "files"}),
        infeed.open(tmp_path / "train.json", format="jsonl", image_root=tmp_path / "images"),
    ):
        (batch,) = Loader(dataset, batch_size=4, shuffle=False, device="cpu")
        assert numpy.asarray(batch["images"]["offsets"]).tolist() == [0, 0, 1, 3, 6]
        assert batch["text"] == ["", "x", "xx", "xxx"]


def test_numbers_of_tables_have_one_axis(tmp_path: Path) -> None:
    """As in batches of Python's numbers."""
    folder = tmp_path / "folder"
    folder.mkdir()
    rows = [{"file_name": f"{i}.png", "score": i / 2, "count": i} for i in range(4)]
    for i in range(4):
        (folder / f"{i}.png").write_bytes(png(i, i, i))
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"score": i / 2, "count": i}) for i in range(4)))
    for place, transform in ((folder, "center_crop:8"), (tmp_path / "rows.jsonl", None)):
        (batch,) = Loader(place, batch_size=4, shuffle=False, device="cpu", transform=transform)
        assert batch["score"].shape == batch["count"].shape == (4,), place


def test_texts_are_str_and_boxes_are_tensors_with_offsets(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    texts = tmp_path / "texts"
    texts.mkdir()
    lines = [json.dumps({"file_name": f"{i}.png", "text": "x" * i}) for i in range(6)]
    (texts / "metadata.jsonl").write_text("\n".join(lines))
    boxes = tmp_path / "boxes"
    boxes.mkdir()
    annotations: list[dict[str, Any]] = []
    for i in range(6):
        for folder in (texts, boxes):
            (folder / f"{i}.png").write_bytes(png(i, i, i))
        # i boxes in picture i.
        for k in range(i):
            outline = [k, 0, k + 2, 0, k + 2, 3, k, 3]
            box = {"bbox": [k, 0, 2, 3], "category_id": 4, "segmentation": [outline], "area": 6, "iscrowd": 0}
            annotations.append({"id": len(annotations), "image_id": i, **box})
    coco = {
        "images": [{"id": i, "file_name": f"{i}.png", "width": 24, "height": 24} for i in range(6)],
        "annotations": annotations,
        "categories": [{"id": 4, "name": "thing"}],
    }
    (boxes / "_annotations.coco.json").write_text(json.dumps(coco))

    batch = next(iter(Loader(texts, batch_size=6)))
    assert batch["text"] == ["x" * i for i in range(6)]

    dataset = infeed.open(boxes, masks=True)
    assert dataset.classes == ["thing"] and dataset.fields["instances"] == "instances"
    marked = next(iter(Loader(dataset, batch_size=6)))["instances"]
    assert marked["offsets"].numpy().tolist() == [0, 0, 1, 3, 6, 10, 15]
    assert marked["labels"].numpy().tolist() == [0] * 15
    assert marked["boxes"].shape == (15, 4)
    assert marked["boxes"].numpy()[-1].tolist() == [4, 0, 6, 3]
    assert not numpy.any(marked["crowd"].numpy())
    # Runs down the columns, as pycocotools has them: 6 pixels each.
    assert [sum(mask["counts"][1::2]) for mask in marked["masks"]] == [6] * 15
    assert marked["masks"][0]["size"] == [24, 24]


def test_key_points_are_a_tensor_whose_left_and_right_points_a_flip_exchanges(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    (tmp_path / "0.png").write_bytes(png(0, 0, 0))
    person = {"id": 1, "image_id": 0, "bbox": [2, 3, 10, 12], "category_id": 1, "area": 120, "iscrowd": 0}
    points = [4, 5, 2, 9, 6, 1, 0, 0, 0]
    coco = {
        "images": [{"id": 0, "file_name": "0.png", "width": 24, "height": 24}],
        "annotations": [{**person, "keypoints": points, "num_keypoints": 2}, {**person, "id": 2}],
        "categories": [{"id": 1, "name": "person", "keypoints": ["left_eye", "right_eye", "nose"], "skeleton": [[1, 2]]}],
    }
    (tmp_path / "_annotations.coco.json").write_text(json.dumps(coco))
    dataset = infeed.open(tmp_path)
    assert dataset.keypoints == ["left_eye", "right_eye", "nose"]

    def first(transform: str) -> list[Any]:
        marked = next(iter(Loader(dataset, batch_size=1, transform=transform)))["instances"]
        assert marked["keypoints"].shape == (2, 3, 3)
        of_first, of_second = marked["keypoints"].numpy().tolist()
        assert of_second == [[0, 0, 0]] * 3
        assert isinstance(of_first, list)
        return of_first

    assert first("resize_exact:24") == [[4, 5, 2], [9, 6, 1], [0, 0, 0]]
    assert first("horizontal_flip:1;resize_exact:48") == [[30, 12, 1], [40, 10, 2], [0, 0, 0]]
    # The middle begins at 6, 6: the left eye is outside of it.
    assert first("center_crop:12") == [[0, 0, 0], [3, 0, 1], [0, 0, 0]]
    coco["categories"] = [{"id": 1, "name": "person"}]
    (tmp_path / "_annotations.coco.json").write_text(json.dumps(coco))
    dataset = infeed.open(tmp_path)
    assert dataset.keypoints is None
    assert "keypoints" not in next(iter(Loader(dataset, batch_size=1)))["instances"]


def test_an_archive_is_to_be_unpacked(tmp_path: Path) -> None:
    (tmp_path / "images.zip").write_bytes(b"PK")
    with pytest.raises(infeed.errors.NotFoundError, match=r"only 1 .zip.*unpack the .zip"):
        infeed.open(tmp_path)


def test_a_tar_of_class_folders_says_that_it_has_no_labels(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def packed(name: str, members: list[str]) -> str:
        with tarfile.open(tmp_path / name, "w") as tar:
            for member in members:
                about = tarfile.TarInfo(member)
                content = b"1" if member.endswith("cls") else png(1, 2, 3)
                about.size = len(content)
                tar.addfile(about, io.BytesIO(content))
        return str(tmp_path / name)

    for members, is_told in (
        (["cat/0.png", "cat/1.png", "dog/2.png"], True),
        (["cat/0.png", "cat/0.cls", "dog/2.png", "dog/2.cls"], False),
        (["train/0.png", "train/1.png"], False),
        (["0.png", "1.png"], False),
    ):
        caplog.clear()
        assert len(infeed.open(packed(f"{len(members)}{is_told}{members[0][0]}.tar", members))) == len({m[:-4] for m in members})
        assert ("if their folders are classes" in caplog.text) == is_told, members
