"""Datasets of Python's own: any object with a length and items, torch's, Hugging Face's."""

from __future__ import annotations

import io
import pickle
import threading
import time
from collections import namedtuple
from collections.abc import Callable
from datetime import date, datetime, timedelta
from datetime import time as clock
from pathlib import Path
from typing import Any

import infeed
import pytest
from conftest import png
from infeed import Loader

numpy = pytest.importorskip("numpy")


class Pictures:
    """Encoded pictures of one colour and their classes."""

    def __init__(self, n: int = 100) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> tuple[bytes, int]:
        return png(i, 255 - i, i // 50), i // 50


def rows(data: Any, **more: Any) -> dict[int, Any]:
    """The image of each record, u8 [H, W, C]."""
    settings = {"batch_size": 16, "shuffle": 3, "dtype": "uint8", "channels_last": True, "transform": "center_crop:24"}
    found = {}
    for batch in Loader(data, **{**settings, **more}):
        for row, record in enumerate(batch.records):
            found[record] = batch["image"].numpy()[row].copy()
    return found


def test_items_of_bytes_are_those_of_files(folder: str) -> None:
    want, got = rows(folder), rows(Pictures())
    assert want.keys() == got.keys()
    assert all((want[record] == got[record]).all() for record in want)


def test_labels_and_order_are_those_of_the_engine() -> None:
    loader = Loader(Pictures(), batch_size=32, shuffle=7, transform="center_crop:24")
    assert len(loader) == 4 and loader.dataset.is_python
    epochs = [[(b.records, b["label"].numpy().tolist()) for b in loader] for _ in range(2)]
    for epoch in epochs:
        assert sorted(r for records, _ in epoch for r in records) == list(range(100))
        assert all(label == record // 50 for records, labels in epoch for record, label in zip(records, labels))
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("kind", ["hwc", "chw", "gray", "pillow", "torch", "dict", "named", "single"])
def test_pictures_come_in_many_forms(kind: str) -> None:
    rng = numpy.random.default_rng(1)
    pixels = rng.integers(0, 256, (10, 24, 24, 3), dtype=numpy.uint8)
    Named = namedtuple("Named", ["image", "kind"])

    class Data:
        def __len__(self) -> int:
            return len(pixels)

        def __getitem__(self, i: int) -> Any:
            image: Any = pixels[i]
            if kind == "chw":
                image = numpy.ascontiguousarray(image.transpose(2, 0, 1))
            elif kind == "gray":
                image = image[:, :, 0]
            elif kind == "pillow":
                image = pytest.importorskip("PIL.Image").fromarray(image)
            elif kind == "torch":
                image = pytest.importorskip("torch").from_numpy(image.copy())
            if kind == "dict":
                return {"image": image, "kind": i}
            if kind == "named":
                return Named(image, i)
            return image if kind == "single" else (image, i)

    found = rows(Data())
    assert len(found) == 10
    for record, image in found.items():
        want = pixels[record]
        assert (image == (want[:, :, :1] if kind == "gray" else want)).all()
    name = "kind" if kind in ("dict", "named") else "label"
    if kind != "single":
        assert infeed.open(Data()).fields == {"image": "image", name: "label"}


def test_other_values_are_arrays_and_texts() -> None:
    class Data:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"x": numpy.full((2, 3), i, dtype="float32"), "y": i * 0.5, "text": "ä" * i, "ok": True, "raw": b"a" * i}

    batch = next(iter(Loader(Data(), batch_size=6)))
    assert batch["x"].shape == (6, 2, 3) and batch["x"].dtype == "float32"
    assert batch["x"].numpy()[4].tolist() == [[4.0] * 3] * 2
    assert batch["y"].numpy().tolist() == [0, 0.5, 1, 1.5, 2, 2.5]
    assert batch["text"] == ["ä" * i for i in range(6)]
    assert batch["ok"].numpy().tolist() == [1] * 6
    assert batch["raw"] == [b"a" * i for i in range(6)]


def test_lists_of_any_length_are_values_and_offsets() -> None:
    rows = [[5, 9, 2], [], [7], numpy.asarray([1, 2, 3, 4])]

    class Data:
        def __init__(self, rows: list[Any] = rows) -> None:
            self.rows = rows

        def __len__(self) -> int:
            return len(self.rows)

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"tokens": self.rows[i], "boxes": numpy.full((i, 4), i, dtype="float32")}

    dataset = infeed.open(Data(), fields={"tokens": "list", "boxes": "list"})
    assert dataset.fields == {"tokens": "list", "boxes": "list"}
    batch = next(iter(Loader(dataset, batch_size=4)))
    assert batch["tokens"]["values"].numpy().tolist() == [5, 9, 2, 7, 1, 2, 3, 4]
    assert batch["tokens"]["offsets"].numpy().tolist() == [0, 3, 3, 4, 8]
    assert batch["boxes"]["values"].shape == (6, 4) and batch["boxes"]["offsets"].numpy().tolist() == [0, 0, 1, 3, 6]
    padded = next(iter(Loader(dataset, batch_size=4, pad={"tokens": -100})))
    assert padded["tokens"].numpy().tolist() == [[5, 9, 2, -100], [-100] * 4, [7] + [-100] * 3, [1, 2, 3, 4]]
    assert padded["tokens.lengths"].numpy().tolist() == [3, 0, 1, 4]
    assert Loader(dataset, pad={"tokens": 0}).config["pad"] == {"tokens": 0}
    with pytest.raises(ValueError, match="is not a list"):
        Loader(dataset, pad={"words": 0})
    with pytest.raises(TypeError, match="pad"):
        Loader(dataset, pad={"tokens": "x"})  # type: ignore[dict-item]
    # The first list with numbers gives the type.
    late = infeed.open(Data([[], [7]]), fields={"tokens": "list", "boxes": "list"})
    assert next(iter(Loader(late, batch_size=2)))["tokens"]["values"].numpy().tolist() == [7]
    with pytest.raises(ValueError, match="the first 2 records have lists without numbers"):
        infeed.open(Data([[], []]), fields={"tokens": "list", "boxes": "list"})
    # Without a word they have to be of one length.
    with pytest.raises(infeed.Error, match=r'fields=\{"tokens": "list"\}'):
        list(Loader(Data(rows[2:]), batch_size=2))
    for wrong, words in [([0.5], r"it is f64 \[1\], but in record 0 a list of i64"), (["a"], "cannot be part of a batch")]:
        with pytest.raises(infeed.Error, match=words):
            list(Loader(infeed.open(Data([[1], wrong]), fields={"tokens": "list", "boxes": "list"}), batch_size=2))


def test_lists_of_hugging_face_are_read_without_python(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    tokens = [list(range(i % 5)) for i in range(20)]
    boxes = [[[float(i), k, 0, 0] for k in range(i % 3)] for i in range(20)]
    features = {"tokens": datasets.Sequence(datasets.Value("int32"))}
    features["boxes"] = datasets.Sequence(datasets.Sequence(datasets.Value("float32"), length=4))
    data = datasets.Dataset.from_dict({"tokens": tokens, "boxes": boxes}, features=datasets.Features(features))
    data.to_parquet(tmp_path / "a.parquet")
    # Several chunks, chosen; from files; in another process.
    several = datasets.concatenate_datasets([data.select(range(7)), data.select(range(7, 20))])
    for of in (data, several, tmp_path, infeed.open(several), pickle.loads(pickle.dumps(infeed.open(data)))):
        loader = Loader(of, batch_size=20)
        assert loader.dataset.fields == {"tokens": "list", "boxes": "list"} and not loader.dataset.is_python
        batch = next(iter(loader))
        values, offsets = (batch["tokens"][name].numpy() for name in ("values", "offsets"))
        assert values.dtype == "int32" and [list(row) for row in numpy.split(values, offsets[1:-1])] == tokens
        values, offsets = (batch["boxes"][name].numpy() for name in ("values", "offsets"))
        assert values.shape[1:] == (4,) and [row.tolist() for row in numpy.split(values, offsets[1:-1])] == boxes
    some = data.select([11, 3])
    assert next(iter(Loader(some, batch_size=2)))["tokens"]["values"].numpy().tolist() == [0, 0, 1, 2]


def several(i: int) -> dict[str, Any]:
    """Some pictures, as many masks and captions: none in record 3."""
    image: Any = pytest.importorskip("PIL.Image")
    count = (i + 1) % 4
    masks = [image.fromarray(numpy.full((8, 8), 40 * i + k, dtype="uint8")) for k in range(count)]
    images = [image.new("RGB", (8, 8), (10 * i, k, 0)) for k in range(count)]
    return {"images": images, "masks": masks, "captions": [f"{i} {k}" for k in range(count)], "label": i}


def test_any_number_of_images_and_texts_a_record() -> None:
    class Data:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, i: int) -> dict[str, Any]:
            return several(i)

    dataset = infeed.open(Data())
    assert dataset.fields == {"images": "images", "masks": "images", "captions": "texts", "label": "label"}
    assert list(dataset.masks) == ["masks"]
    batch = next(iter(Loader(dataset, batch_size=6, dtype="uint8", transform="horizontal_flip:1;center_crop:4")))
    assert batch["captions"] == [several(i)["captions"] for i in range(6)]
    counts = [(i + 1) % 4 for i in range(6)]
    for field, channels in (("images", 3), ("masks", 1)):
        values, offsets = batch[field]["values"].numpy(), batch[field]["offsets"].numpy()
        assert values.shape == (sum(counts), channels, 4, 4) and numpy.diff(offsets).tolist() == counts
    colours = batch["images"]["values"].numpy()[:, :2, 0, 0].tolist()
    assert colours == [[10 * i, k] for i in range(6) for k in range(counts[i])]
    assert batch["masks"]["values"].numpy()[:, 0, 0, 0].tolist() == [40 * i + k for i in range(6) for k in range(counts[i])]
    padded = next(iter(Loader(dataset, batch_size=6, transform="center_crop:4", pad={"images": 0, "masks": 255})))
    assert padded["images"].shape == (6, 3, 3, 4, 4) and padded["images.lengths"].numpy().tolist() == counts

    class Other(Data):
        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"frames": [numpy.full((8, 8 + k, 3), k, dtype="uint8") for k in range(i)], "words": ["x"] * i}

    # The first record has none: the user says what they are. A list that is missing is empty.
    other = infeed.open(Other(), fields={"frames": "images", "words": "texts"})
    batch = next(iter(Loader(other, batch_size=6, transform="center_crop:4")))
    assert batch["words"] == [["x"] * i for i in range(6)]
    assert numpy.diff(batch["frames"]["offsets"].numpy()).tolist() == list(range(6))
    cases: list[tuple[dict[str, Any], str]] = [({"images": 5}, "int is not a list or tuple"), ({"images": [5]}, r'field "images": item 0')]
    for wrong, words in cases:
        data = [several(0), {**several(1), **wrong}]
        with pytest.raises(infeed.Error, match=words) as told:
            list(Loader(data, batch_size=2, transform="center_crop:4"))
        assert told.value.record == 1


def test_lists_of_images_and_texts_of_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [several(i) for i in range(6)]
    columns = {"images": [row["images"] for row in rows], "captions": [row["captions"] for row in rows]}
    features = datasets.Features(
        {"images": datasets.Sequence(datasets.Image()), "captions": datasets.Sequence(datasets.Value("string"))}
    )
    data = datasets.Dataset.from_dict(columns, features=features)
    data.to_parquet(tmp_path / "a.parquet")
    several_chunks = datasets.concatenate_datasets([data.select(range(2)), data.select(range(2, 6))])
    # The columns of Arrow's memory, files, and rows that Python asks for.
    for of, fields in ((data, None), (several_chunks, None), (tmp_path, None), (data, {"captions": "texts"})):
        dataset = infeed.open(of, fields=fields)
        assert dataset.fields == {"images": "images", "captions": "texts"} and dataset.is_python == bool(fields)
        batch = next(iter(Loader(dataset, batch_size=6, dtype="uint8", transform="center_crop:4")))
        assert batch["captions"] == columns["captions"]
        offsets = batch["images"]["offsets"].numpy()
        assert numpy.diff(offsets).tolist() == [len(row) for row in columns["images"]]
        colours = batch["images"]["values"].numpy()[:, :2, 0, 0].tolist()
        assert colours == [[10 * i, k] for i in range(6) for k in range(len(columns["images"][i]))]
    some = next(iter(Loader(data.select([2, 0]), batch_size=2, transform="center_crop:4")))
    assert some["captions"] == [columns["captions"][2], columns["captions"][0]]


def test_fields_say_what_values_are() -> None:
    pixels = numpy.arange(4 * 8 * 8, dtype="uint8").reshape(4, 8, 8)

    class Data:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, i: int) -> tuple[Any, Any]:
            return pixels[i], pixels[i]

    dataset = infeed.open(Data(), fields={"image1": "array"})
    assert dataset.fields == {"image": "image", "image1": "array"}
    batch = next(iter(Loader(dataset, batch_size=4, dtype="uint8", transform="horizontal_flip:1;center_crop:8")))
    assert (batch["image1"].numpy() == pixels).all()
    assert (batch["image"].numpy()[:, 0] == pixels[:, :, ::-1]).all()
    # A mask moves with its image.
    masked = infeed.open(Data(), fields={"image1": "mask"})
    batch = next(iter(Loader(masked, batch_size=4, dtype="uint8", transform="horizontal_flip:1;center_crop:8")))
    assert (batch["image1"].numpy().reshape(pixels.shape) == pixels[:, :, ::-1]).all()
    # So do integers next to an image that are called so; values beyond a byte need 16 bits.
    for dtype in ("int64", "int32", "bool"):
        labels = (pixels > 90) if dtype == "bool" else pixels.astype(dtype)
        named = [{"image": pixels[i], "seg_mask": labels[i], "label": i} for i in range(4)]
        batch = next(iter(Loader(named, batch_size=4, dtype="uint8", transform="horizontal_flip:1;center_crop:8")))
        assert (batch["seg_mask"].numpy().reshape(pixels.shape) == labels[:, :, ::-1]).all()
    wide = [{"image": pixels[i], "gt": pixels[i].astype("int64") * 10} for i in range(4)]
    for kind in ("mask16", "mask"):
        dataset = infeed.open(wide, fields={"gt": kind})
        batch = next(iter(Loader(dataset, batch_size=4, dtype="uint8", transform="horizontal_flip:1;center_crop:8")))
        assert (batch["gt"].numpy().reshape(pixels.shape) == pixels.astype("int64")[:, :, ::-1] * 10).all()
    # Numbers of records without an image stay as they are.
    alone = [{"seg_mask": pixels[i].astype("int64"), "label": i} for i in range(4)]
    assert infeed.open(alone).fields == {"seg_mask": "array", "label": "label"}
    with pytest.raises(ValueError, match="nothing"):
        infeed.open(Data(), fields={"nothing": "array"})
    with pytest.raises(ValueError, match="image, images, mask, mask16, label, array, list, text, texts or bytes"):
        infeed.open(Data(), fields={"image": "picture"})


class Bad(Pictures):
    def __getitem__(self, i: int) -> Any:
        if i == 7:
            raise KeyError("no such row")
        return super().__getitem__(i)


def test_an_exception_in_a_dataset_is_told_with_record_and_cause() -> None:
    with pytest.raises(infeed.errors.CorruptError) as told:
        list(Loader(Bad(), batch_size=5, transform="center_crop:24"))
    assert told.value.record == 7 and told.value.object == "dataset[7]"
    assert isinstance(told.value.__cause__, KeyError) and "no such row" in str(told.value)
    batches = list(Loader(Bad(), batch_size=5, transform="center_crop:24", on_bad_sample="substitute"))
    assert sum(batch.size for batch in batches) == 100
    assert [bad["record"] for batch in batches for bad in batch.bad_samples] == [7]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((b"\xff\xd8\xff", "cat"), "integer"),
        ((b"\xff\xd8\xff", 1.5), "integer"),
        ((b"\xff\xd8\xff",), "1 values"),
        ((None, 3), "NoneType"),
        ((object(), 3), "object"),
    ],
)
def test_records_that_hold_something_else_are_bad_samples(value: Any, words: str) -> None:
    class Data(Pictures):
        def __getitem__(self, i: int) -> Any:
            return value if i == 3 else super().__getitem__(i)

    with pytest.raises(infeed.Error, match=words) as told:
        list(Loader(Data(), batch_size=5, transform="center_crop:24"))
    assert told.value.record == 3


def test_what_is_no_dataset_is_refused() -> None:
    class Endless:
        def __iter__(self) -> Any:
            return iter([1])

    for data in (Endless(), 5, None):
        with pytest.raises(TypeError, match="__len__ and __getitem__"):
            Loader(data)
    with pytest.raises(ValueError, match="no records"):
        Loader([])
    with pytest.raises(TypeError, match="NoneType"):
        Loader([(None, 1)])


def test_slow_items_are_read_ahead_and_beside_one_another() -> None:
    together, most = 0, 0
    changed = threading.Condition()

    class Slow(Pictures):
        def __getitem__(self, i: int) -> Any:
            nonlocal together, most
            with changed:
                together += 1
                most = max(most, together)
                changed.notify_all()
                # The first, but for the look when it is opened, is as slow as it takes another to come.
                assert i == 0 or changed.wait_for(lambda: most >= 2, timeout=60), "one after another"
            time.sleep(0.01)
            with changed:
                together -= 1
            return super().__getitem__(i)

    got = rows(Slow(40), num_workers=1, io_concurrency=6)
    assert len(got) == 40
    assert 2 <= most <= 6


def test_items_are_asked_for_one_at_a_time_unless_more_are_asked_for() -> None:
    class Shared(Pictures):
        """As one that reads from an open file: what a call leaves is what the next one of another thread finds."""

        place, together, most = 0, 0, 0

        def __getitem__(self, i: int) -> Any:
            self.together += 1
            self.most = max(self.most, self.together)
            self.place = i
            # Other threads may run.
            time.sleep(0.002)
            item = super().__getitem__(self.place)
            self.together -= 1
            return item

    data = Shared(60)
    assert {record: int(image[0, 0, 0]) for record, image in rows(data, num_workers=4).items()} == {i: i for i in range(60)}
    assert data.most == 1


def test_states_of_python_datasets_resume() -> None:
    want = [batch.records for batch in Loader(Pictures(), batch_size=10, shuffle=7, transform="center_crop:24")]
    loader = Loader(Pictures(), batch_size=10, shuffle=7, transform="center_crop:24")
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    other = Loader(Pictures(), batch_size=10, shuffle=7, transform="center_crop:24")
    other.load_state_dict(state)
    assert [batch.records for batch in other] == want[1:]

    class Other(Pictures):
        fingerprint = "of its own"

    with pytest.raises(infeed.errors.StateError):
        Loader(Other(), batch_size=10, shuffle=7, transform="center_crop:24").load_state_dict(state)


def test_a_loader_of_a_python_dataset_is_pickled() -> None:
    loader = Loader(Pictures(), batch_size=10, shuffle=7, transform="center_crop:24")
    copy = pickle.loads(pickle.dumps(loader))
    assert [batch.records for batch in copy] == [batch.records for batch in loader]


def test_processes_exit_while_a_dataset_is_asked(script: Callable[..., Any]) -> None:
    for sleep in ("0", "0.05", "600"):
        process = script(
            f"""
            class Slow:
                def __len__(self): return 1000
                def __getitem__(self, i):
                    if i > 10: time.sleep({sleep})
                    return i
            it = iter(infeed.Loader(Slow(), batch_size=5))
            next(it)
            print("bye", flush=True)
            """
        )
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "bye\n", "")


def test_ctrl_c_ends_the_wait_for_a_dataset_that_hangs(script: Callable[..., Any]) -> None:
    import signal

    process = script(
        """
        class Hangs:
            def __len__(self): return 1000
            def __getitem__(self, i):
                if i == 1: print("go", flush=True)
                if i: time.sleep(600)
                return i
        try:
            next(iter(infeed.Loader(Hangs(), batch_size=5)))
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert process.stdout.readline() == "go\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "interrupted\n", "")


def test_folders_of_torchvision_are_read_by_the_engine(folder: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    torch = pytest.importorskip("torch")
    plain = torchvision.datasets.ImageFolder(folder)
    loader = Loader(plain, batch_size=10, transform="center_crop:24")
    assert not loader.dataset.is_python and loader.dataset.classes == ["cat", "dog"]
    # Its transform becomes the loader's.
    steps = v2.Compose([v2.ToImage(), v2.CenterCrop(16), v2.ToDtype(torch.float32, scale=True)])
    loader = Loader(torchvision.datasets.ImageFolder(folder, steps), batch_size=10)
    assert not loader.dataset.is_python and next(iter(loader))["image"].shape == (10, 3, 16, 16)
    few = torch.utils.data.Subset(plain, [3, 60, 5])
    loader = Loader(few, batch_size=3, transform="center_crop:24", dtype="uint8")
    batch = next(iter(loader))
    assert batch["image"].numpy()[:, 0, 0, 0].tolist() == [3, 60, 5]
    assert len(pickle.loads(pickle.dumps(loader.dataset))) == 3
    # A step that the engine does not have runs in Python.
    floats = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Lambda(lambda x: x)]
    loader = Loader(torchvision.datasets.ImageFolder(folder, v2.Compose(floats)), batch_size=10)
    assert loader.dataset.is_python
    batch = next(iter(loader))
    assert batch["image"].shape == (10, 3, 24, 24) and batch["image"].dtype == "float32"
    assert batch["label"].numpy().tolist() == [0] * 10
    with pytest.raises(ValueError, match="give one of them"):
        Loader(torchvision.datasets.ImageFolder(folder, steps), transform="center_crop:24")


@pytest.mark.parametrize(
    "edit",
    [
        lambda samples: [(path, 1 - target) for path, target in samples],
        lambda samples: samples[::-1],
        lambda samples: [samples[0], *samples[2:7], samples[1], *samples[7:]],
        lambda samples: samples[::3],
        lambda samples: [*samples[:40], (samples[40][0], 1), *samples[41:]],
        lambda samples: [*samples[:40], samples[41], samples[41], *samples[42:]],
        lambda samples: [*samples[:40], *samples[60:]],
    ],
    ids=["targets", "reversed", "moved", "filtered", "one target", "one twice", "fewer of a class"],
)
def test_samples_of_an_image_folder_that_were_edited_count(folder: str, edit: Any, caplog: pytest.LogCaptureFixture) -> None:
    torchvision = pytest.importorskip("torchvision")
    data = torchvision.datasets.ImageFolder(folder)
    assert not infeed.open(data).is_python
    data.samples = edit(data.samples)
    assert infeed.open(data).is_python and "its samples differ from the images in" in caplog.text
    found: list[tuple[Any, Any]] = []
    for batch in Loader(data, transform="center_crop:24", dtype="uint8"):
        found.append((batch["image"].numpy()[0, 0, 0, 0], batch["label"].numpy()[0]))
    assert found == [(numpy.asarray(data[at][0])[0, 0, 0], data[at][1]) for at in range(len(data))]


def test_an_image_folder_that_is_said_otherwise_is_still_the_same(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torchvision = pytest.importorskip("torchvision")
    path = Path(folder)
    monkeypatch.chdir(path.parent)
    for root in (path, f"{path}/", path.name, f"./{path.name}"):
        assert not infeed.open(torchvision.datasets.ImageFolder(root)).is_python
    of_some = torchvision.datasets.ImageFolder(folder, is_valid_file=lambda name: name.endswith("1.png"))
    assert infeed.open(of_some).is_python and len(infeed.open(of_some)) == len(of_some.samples)


@pytest.fixture
def hugging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "text": datasets.Value("string"),
            "weight": datasets.Value("float32"),
        }
    )
    data = {
        "image": [{"bytes": png(i, 255 - i, i // 50), "path": None} for i in range(100)],
        "label": [i // 50 for i in range(100)],
        "text": ["x" * i for i in range(100)],
        "weight": [i / 2 for i in range(100)],
    }
    return datasets.Dataset.from_dict(data, features=features)


def test_columns_of_hugging_face_are_read_without_python(hugging: Any, folder: str) -> None:
    dataset = infeed.open(hugging)
    assert not dataset.is_python and dataset.classes == ["cat", "dog"]
    assert dataset.fields == {"image": "image", "label": "label", "text": "text", "weight": "array"}
    want, got = rows(folder), rows(hugging)
    assert all((want[record] == got[record]).all() for record in want)
    batch = next(iter(Loader(hugging, batch_size=100, transform="center_crop:24")))
    assert batch["text"] == ["x" * i for i in range(100)]
    assert batch["weight"].numpy().tolist() == [i / 2 for i in range(100)]
    # Chosen, shuffled, several chunks.
    datasets = pytest.importorskip("datasets")
    chosen = datasets.concatenate_datasets([hugging, hugging]).select([150, 3, 99])
    batch = next(iter(Loader(chosen, batch_size=3, transform="center_crop:24", dtype="uint8")))
    assert batch["image"].numpy()[:, 0, 0, 0].tolist() == [50, 3, 99]
    assert len(pickle.loads(pickle.dumps(infeed.open(chosen)))) == 3
    assert infeed.open(hugging, columns=["label", "image"]).fields == {"label": "label", "image": "image"}
    with pytest.raises(ValueError, match="there is no 'picture'"):
        infeed.open(hugging, columns=["picture"])


def lying(width: int, height: int, kind: str) -> bytes:
    """An image whose left half is white, taken with the camera on its side."""
    image = pytest.importorskip("PIL.Image")
    picture = image.new("RGB", (width, height))
    picture.paste((255, 255, 255), (0, 0, width // 2, height))
    exif = image.Exif()
    exif[274] = 6
    file = io.BytesIO()
    picture.save(file, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
    return file.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_images_of_hugging_face_stand_upright(hugging: Any, tmp_path: Path, kind: str) -> None:
    datasets = pytest.importorskip("datasets")
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / f"x.{kind.lower()}"
    path.write_bytes(lying(32, 16, kind))
    features = datasets.Features({"image": datasets.Image()})
    columns = datasets.Dataset.from_dict({"image": [{"bytes": path.read_bytes(), "path": None}] * 3}, features=features)
    by_rows = datasets.Dataset.from_dict({"image": [str(path)] * 3}, features=features)

    def first(dataset: Any, **settings: Any) -> Any:
        batch = next(iter(Loader(dataset, transform="center_crop:[32,16]", dtype="uint8", **settings)))
        return batch["image"].numpy()[0, 0].astype(int)

    table = str(tmp_path / "x.parquet")
    columns.to_parquet(table)
    for dataset in (columns, by_rows, columns.select([2, 1]), infeed.open(columns), table):
        upright = first(dataset)
        assert (upright[:14] > 240).all() and (upright[18:] < 15).all()
        assert (upright == first(str(path.parent), orientation="apply")).all()
        stored = first(dataset, orientation="ignore")
        assert (stored == first(str(path.parent))).all() and not (stored == upright).all()
    for dataset, orientation in ((columns, "apply"), (str(path.parent), "auto")):
        assert Loader(dataset, transform="center_crop:8").config["orientation"] == orientation


def test_pictures_that_are_known_to_have_one_size_need_no_step() -> None:
    numpy = pytest.importorskip("numpy")
    image = pytest.importorskip("PIL.Image")
    pictures = numpy.random.default_rng(1).integers(0, 256, (6, 8, 9, 3), dtype="uint8")
    data = [
        pictures,
        list(pictures),
        [(picture, at) for at, picture in enumerate(pictures)],
        tuple({"image": picture, "label": 1} for picture in pictures),
        [image.fromarray(picture) for picture in pictures],
        [(pictures[0], picture[:, :, 0]) for picture in pictures],
    ]
    for dataset in data:
        batch = next(iter(infeed.Loader(dataset, batch_size=6, dtype="uint8", channels_last=True)))
        expected = pictures if len(batch) < 2 or "label" in batch else pictures[[0] * 6]
        assert (batch["image"].numpy() == expected).all()
    # What is larger after all is told, not cut.
    data[1].append(pictures[0, :5])
    with pytest.raises(infeed.errors.ConfigError, match="are not known before they are read"):
        infeed.Loader(data[1])
    named = namedtuple("named", ["image", "label"])  # noqa: PYI024 (any will do)
    with pytest.raises(infeed.errors.ConfigError, match="are not known before they are read"):
        infeed.Loader([named(pictures[0], 0), named(pictures[0, :5], 1)])
    changed = list(pictures)
    loader = infeed.Loader(changed, batch_size=6)
    changed[3] = pictures[0, :5]
    with pytest.raises(infeed.Error, match="5.*8|8.*5"):
        list(loader)


def test_pictures_of_any_size_are_told_with_the_ways_out() -> None:
    numpy = pytest.importorskip("numpy")

    class Data:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, record: int) -> Any:
            return numpy.full((8, 8, 3), record, "uint8")

    with pytest.raises(infeed.errors.ConfigError) as told:
        infeed.Loader(Data())
    assert "no fixed size: the sizes of the images are not known before they are read" in str(told.value)
    for name in ("Resize((height, width))", "CenterCrop", "PadTo", "PadToLargest"):
        assert name in str(told.value) and hasattr(infeed.transforms, name.partition("(")[0])
    # As it says.
    opened = infeed.open(Data(), fields={"image": "array"})
    assert next(iter(infeed.Loader(opened, batch_size=4)))["image"].shape == (4, 8, 8, 3)


def test_torchs_datasets_of_one_size_need_no_step(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torchvision = pytest.importorskip("torchvision")
    numpy = pytest.importorskip("numpy")
    data = torch.utils.data
    pictures = torch.randint(0, 256, (6, 3, 8, 9), dtype=torch.uint8)
    labeled = data.TensorDataset(pictures, torch.arange(6))

    def init(self: Any, transform: Any = None) -> None:
        torchvision.datasets.VisionDataset.__init__(self, str(tmp_path), transform=transform)
        self.data = pictures.permute(0, 2, 3, 1).numpy()
        self.targets = list(range(6))

    # As if torchvision had made it: what a class of a user's gives is not known.
    its_own: dict[str, Any] = {"__init__": init, "__module__": "torchvision.datasets.cifar"}
    Cifar: Any = type("Cifar", (torchvision.datasets.CIFAR10,), its_own)
    for dataset in (labeled, data.Subset(labeled, range(6)), pictures, Cifar(), data.Subset(Cifar(), range(6))):
        batch = next(iter(infeed.Loader(dataset, batch_size=6, dtype="uint8")))
        assert numpy.array_equal(batch["image"].numpy(), pictures.numpy())
    with pytest.raises(infeed.errors.ConfigError, match="are not known before they are read"):
        infeed.Loader(Cifar(lambda picture: picture))


def test_rows_of_hugging_face_that_are_no_columns_are_asked_for(hugging: Any, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    paths = []
    for i in range(10):
        paths.append(str(tmp_path / f"{i}.png"))
        Path(paths[-1]).write_bytes(png(i, i, i))
    data = datasets.Dataset.from_dict({"image": paths, "label": list(range(10))}).cast_column("image", datasets.Image())
    dataset = infeed.open(data)
    assert dataset.fields == {"image": "image", "label": "label"}
    found = rows(data)
    assert {record: image[0, 0, 0] for record, image in found.items()} == {i: i for i in range(10)}


def test_a_transform_of_hugging_face_is_obeyed(hugging: Any) -> None:
    def transform(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"twice": [2 * label for label in batch["label"]]}

    data = hugging.with_transform(transform)
    for dataset in (data, infeed.open(data), data.select(range(len(hugging)))):
        batch = next(iter(infeed.Loader(dataset, batch_size=len(hugging))))
        assert list(batch) == ["twice"]
        assert batch["twice"].numpy().tolist() == [2 * label for label in hugging["label"]]
    with pytest.raises(ValueError, match="with_transform"):
        infeed.open(data, columns=["label"])
    of_some = hugging.with_transform(transform, columns=["label"])
    assert list(next(iter(infeed.Loader(of_some, batch_size=4)))) == ["twice"]


def test_columns_of_a_format_are_those_that_come(hugging: Any) -> None:
    for form in (None, "numpy"):
        assert infeed.open(hugging.with_format(form, columns=["label"])).fields == {"label": "label"}
    all_of_them = infeed.open(hugging).fields
    assert infeed.open(hugging.with_format("numpy")).fields == all_of_them
    assert infeed.open(hugging.with_format("numpy", columns=["label"], output_all_columns=True)).fields == all_of_them
    assert "image" in infeed.open(hugging.with_format(None, columns=["label"]), columns=["image"]).fields


@pytest.mark.parametrize("by_rows", [False, True])
def test_numbers_of_hugging_face_keep_their_type(by_rows: bool, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    (tmp_path / "x.png").write_bytes(png(1, 2, 3))
    kinds = {
        "half": (datasets.Value("float16"), 0.5),
        "single": (datasets.Value("float32"), 0.1),
        "double": (datasets.Value("float64"), 0.1),
        "list": (datasets.Sequence(datasets.Value("float32")), [0.1, 0.2]),
        "bytes": (datasets.Sequence(datasets.Value("int8")), [1, 2]),
        "matrix": (datasets.Array2D((2, 2), "float32"), [[0.1, 0.2], [0.3, 0.4]]),
        "flag": (datasets.Value("bool"), True),
        "class": (datasets.ClassLabel(names=["a", "b"]), 1),
    }
    values: dict[str, list[Any]] = {name: [value] * 3 for name, (_, value) in kinds.items()}
    features: dict[str, Any] = {name: kind for name, (kind, _) in kinds.items()}
    if by_rows:
        # Images of paths are no column.
        values["image"], features["image"] = [str(tmp_path / "x.png")] * 3, datasets.Image()
    dataset = infeed.open(datasets.Dataset.from_dict(values, features=datasets.Features(features)))
    assert dataset.is_python == by_rows
    batch = next(iter(infeed.Loader(dataset, batch_size=3, transform="center_crop:8" if by_rows else None)))
    types = {"half": "float16", "single": "float32", "double": "float64", "list": "float32", "bytes": "int8"}
    types |= {"matrix": "float32", "flag": "int64", "class": "int64"}
    assert {name: batch[name].dtype for name in kinds} == types
    for name, (_, value) in kinds.items():
        assert (batch[name].numpy() == numpy.asarray(value, types[name])).all(), name
    copied = pickle.loads(pickle.dumps(dataset))
    assert copied.fields == dataset.fields and (not by_rows or copied.classes == ["a", "b"])


def test_some_rows_of_hugging_face_keep_their_types(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    subset = pytest.importorskip("torch.utils.data").Subset
    (tmp_path / "x.png").write_bytes(png(1, 2, 3))
    features = datasets.Features({"image": datasets.Image(), "weight": datasets.Value("float32")})
    weights = [0.1, 0.2, 0.3]
    data = datasets.Dataset.from_dict({"image": [str(tmp_path / "x.png")] * 3, "weight": weights}, features=features)
    for some in (subset(data, [2, 0]), data.select([2, 0])):
        batch = next(iter(infeed.Loader(some, batch_size=2, transform="center_crop:8")))
        assert batch["weight"].dtype == "float32"
        assert (batch["weight"].numpy() == numpy.asarray([0.3, 0.1], "float32")).all()
        assert len(pickle.loads(pickle.dumps(infeed.open(some)))) == 2


def test_nulls_in_lists_are_told_not_made_numbers(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    (tmp_path / "x.png").write_bytes(png(1, 2, 3))
    features = datasets.Features({"image": datasets.Image(), "list": datasets.Sequence(datasets.Value("float32"))})
    lists = [[0.5, 1.5], [0.5, None], [0.5]]
    data = datasets.Dataset.from_dict({"image": [str(tmp_path / "x.png")] * 3, "list": lists}, features=features)
    for record in (1, 2):
        with pytest.raises(infeed.Error, match="list"):
            list(infeed.Loader(data.select([0, record]), batch_size=2, transform="center_crop:8"))


@pytest.mark.parametrize("encoded", [False, True])
def test_modes_of_images_are_obeyed_or_refused(encoded: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    datasets = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "x.png"
    path.write_bytes(png(200, 100, 50))
    one = {"bytes": path.read_bytes(), "path": None} if encoded else str(path)
    data = datasets.Dataset.from_dict({"image": [one] * 2}).cast_column("image", datasets.Image())
    for mode in (None, "RGB", "L", "RGBA"):
        dataset = data.cast_column("image", datasets.Image(mode=mode))
        batch = next(iter(infeed.Loader(dataset, batch_size=2, transform="center_crop:8", dtype="uint8", channels_last=True)))
        expected = numpy.asarray(image.open(path).convert(mode or "RGB"))
        assert (batch["image"].numpy()[0, 0, 0] == expected[0, 0]).all()
        assert batch["image"].shape[3] == (1 if mode == "L" else len(mode or "RGB"))
        assert ("decoded by Pillow" in caplog.text) == (mode in ("L", "RGBA"))
        caplog.clear()
    with pytest.raises(ValueError, match="column 'image': Image.mode='CMYK'.: use RGB"):
        infeed.open(data.cast_column("image", datasets.Image(mode="CMYK")))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp[s]", datetime(2020, 1, 1)),  # noqa: DTZ001 (it has none there)
        ("date32", date(2020, 1, 1)),
        ("time64[us]", clock(1, 2)),
        ("duration[s]", timedelta(1)),
    ],
)
def test_times_of_hugging_face_are_refused_by_name(kind: str, value: Any) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"when": datasets.Value(kind), "label": datasets.Value("int64")})
    data = datasets.Dataset.from_dict({"when": [value] * 2, "label": [1] * 2}, features=features)
    with pytest.raises(ValueError, match=r"column 'when' holds times \(.*columns=.*cast_column\('when'"):
        infeed.open(data)
    assert infeed.open(data, columns=["label"]).fields == {"label": "label"}
    if kind != "date32":
        assert infeed.open(data.cast_column("when", datasets.Value("int64"))).fields["when"] == "label"


def test_dicts_of_hugging_face_are_refused_by_name() -> None:
    datasets = pytest.importorskip("datasets")
    for value in ({"a": 1}, [{"a": 1}, {"a": 2}]):
        data = datasets.Dataset.from_dict({"meta": [value] * 2, "label": [1] * 2})
        with pytest.raises(ValueError, match=r"column 'meta' holds dicts: omit it with columns=\["):
            infeed.open(data)
        assert infeed.open(data, columns=["label"]).fields == {"label": "label"}


def test_masks_of_pillow_are_labels() -> None:
    image = pytest.importorskip("PIL.Image")

    class Data:
        def __init__(self, mask: Any) -> None:
            self.mask = mask

        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"image": image.new("RGB", (8, 8)), "seg": self.mask}

    def labels(mask: Any) -> list[int]:
        dataset = infeed.open(Data(mask), fields={"seg": "mask"})
        batch = next(iter(Loader(dataset, dtype="uint8", transform="center_crop:8")))
        assert batch["seg"].shape == (1, 1, 8, 8)
        return sorted(set(batch["seg"].numpy().ravel().tolist()))

    for mode, colour, label in [("P", 15, 15), ("L", 200, 200), ("1", 1, 1), ("1", 0, 0), ("RGB", (7, 7, 7), 7)]:
        assert labels(image.new(mode, (8, 8), colour)) == [label]
    encoded, indexed = io.BytesIO(), image.new("P", (8, 8), 15)
    # Without all of its colours Pillow stores fewer bits, and other numbers.
    indexed.putpalette(list(range(256)) * 3)
    indexed.save(encoded, "PNG")
    assert labels(encoded.getvalue()) == [15]
    with pytest.raises(infeed.errors.UnsupportedError, match="coloured") as told:
        labels(image.new("RGB", (8, 8), (7, 0, 7)))
    assert told.value.field == "seg" and told.value.record == 0


def test_pictures_of_pillow_are_made_to_colours() -> None:
    image = pytest.importorskip("PIL.Image")
    encoded = io.BytesIO()
    image.new("L", (24, 24), 77).save(encoded, "PNG")
    found = rows([(image.new("P", (24, 24)), 0), (image.new("L", (24, 24), 77), 1), (encoded.getvalue(), 2)])
    assert found[1].tolist() == found[2].tolist() == [[[77] * 3] * 24] * 24


def mask_png() -> bytes:
    image = pytest.importorskip("PIL.Image")
    pixels = numpy.zeros((16, 16), numpy.uint8)
    pixels[:8] = 10
    out = io.BytesIO()
    image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def is_kept(values: Any, shape: tuple[int, ...] = (1, 1, 11, 11)) -> bool:
    return values.shape == shape and set(numpy.unique(values).tolist()) == {0, 10}


@pytest.mark.parametrize("form", ["bytes", "pillow", "palette", "array"])
def test_images_that_are_called_as_masks_are_masks(form: str) -> None:
    pillow = pytest.importorskip("PIL.Image")
    picture = pillow.open(io.BytesIO(mask_png()))
    values: dict[str, Any] = {"bytes": mask_png(), "pillow": picture, "array": numpy.asarray(picture)}
    if form == "palette":
        values["palette"] = pillow.frombytes("P", (16, 16), picture.tobytes())
        values["palette"].putpalette([200, 10, 30] * 256)

    class Data:
        def __len__(self) -> int:
            return 1

        def __getitem__(self, i: int) -> dict[str, Any]:
            # Of one channel, gray pictures and arrays have other means than photographs.
            more = {"gt": values[form]} if form in ("bytes", "palette") else {}
            return {"image": mask_png(), "tumor_mask": values[form], **more}

    def batch(**fields: str) -> Any:
        return next(iter(Loader(infeed.open(Data(), fields=fields), transform="resize_exact:11;normalize")))

    assert is_kept(batch()["tumor_mask"].numpy())
    if form in ("array", "pillow"):
        return
    assert is_kept(batch(gt="mask")["gt"].numpy())
    # A palette's indices next to colours are a mask, whatever its name.
    assert is_kept(batch()["gt"].numpy()) == (form == "palette")
    images = batch(tumor_mask="image", gt="image")
    assert not is_kept(images["tumor_mask"].numpy()) and not is_kept(images["gt"].numpy())


def test_a_mask_of_16_bits_is_said_or_seen() -> None:
    pillow = pytest.importorskip("PIL.Image")
    wide = pillow.fromarray(numpy.full((4, 4), 700, numpy.uint16))
    narrow = pillow.fromarray(numpy.full((4, 4), 7, numpy.uint8))

    def file(image: Any) -> bytes:
        content = io.BytesIO()
        image.save(content, "png")
        return content.getvalue()

    class Data:
        def __init__(self, *images: Any) -> None:
            self.images = images

        def __len__(self) -> int:
            return len(self.images)

        def __getitem__(self, i: int) -> dict[str, Any]:
            image = self.images[i]
            return {"mask": image, "depth": image, "seg": file(image), "gt": file(image)}

    def values(data: Data, **kinds: str) -> set[tuple[float, ...]]:
        loader = Loader(infeed.open(data, fields=kinds), batch_size=len(data), transform="resize_exact:1")
        batch = next(iter(loader))
        return {tuple(batch[name].numpy().flatten().tolist()) for name in ("mask", "depth", "seg", "gt")}

    for kind in ("mask", "mask16"):
        assert values(Data(wide, narrow), depth=kind, gt=kind) == {(700, 7)}
    assert values(Data(narrow, wide), **dict.fromkeys(("mask", "depth", "seg", "gt"), "mask16")) == {(7, 700)}
    # The first record is examined. Another that differs names the way.
    with pytest.raises(infeed.errors.Error, match="fields={\"mask\": \"mask16\"}"):
        values(Data(narrow, wide), depth="mask16", seg="mask16", gt="mask16")
    with pytest.raises(infeed.errors.Error, match="fields={\"seg\": \"mask16\"}"):
        values(Data(narrow, wide), mask="mask16", depth="mask16", gt="mask16")


def test_fields_of_files_are_what_is_said(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "x.npz", image=numpy.zeros((2, 3, 8, 8), numpy.uint8), gt=numpy.full((2, 8, 8), 3, numpy.int64))
    opened = infeed.open(tmp_path / "x.npz", fields={"image": "image", "gt": "mask"})
    batch = next(iter(Loader(opened, batch_size=2, transform="resize_exact:4;normalize")))
    assert batch["image"].shape == (2, 3, 4, 4) and batch["gt"].shape == (2, 1, 4, 4)
    assert batch["gt"].dtype == "uint8" and (batch["gt"].numpy() == 3).all()
    with pytest.raises(infeed.errors.ConfigError, match="did you mean mask"):
        infeed.open(tmp_path / "x.npz", fields={"gt": "masc"})
    with pytest.raises(infeed.errors.NotFoundError, match="there are image, gt|there are gt, image"):
        infeed.open(tmp_path / "x.npz", fields={"seg": "mask"})


def test_columns_of_hugging_face_are_masks_labels_and_arrays() -> None:
    datasets = pytest.importorskip("datasets")
    encoded = {"bytes": mask_png(), "path": None}
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "mask": datasets.Image(),
            "label": datasets.ClassLabel(names=["a", "b"]),
            "grid": datasets.Array2D(shape=(2, 3), dtype="float32"),
            "list": datasets.Sequence(datasets.Value("int16"), length=2),
        }
    )
    grid = [[0.5, 1, 2], [3, 4, 5]]
    columns = {"image": [encoded] * 2, "mask": [encoded] * 2, "label": [-1, 1], "grid": [grid] * 2, "list": [[1, 2], [3, 4]]}
    data = datasets.Dataset.from_dict(columns, features=features)
    loader = Loader(data, batch_size=2, transform="resize_exact:11;normalize")
    assert not loader.dataset.is_python
    batch = next(iter(loader))
    assert is_kept(batch["mask"].numpy(), (2, 1, 11, 11)) and not is_kept(batch["image"].numpy(), (2, 1, 11, 11))
    assert batch["label"].numpy().tolist() == [-1, 1]
    assert batch["grid"].dtype == "float32" and batch["grid"].numpy().tolist() == [grid, grid]
    assert batch["list"].dtype == "int16" and batch["list"].numpy().tolist() == [[1, 2], [3, 4]]
    some = next(iter(Loader(data.select([1]), transform="resize_exact:11")))
    assert some["list"].numpy().tolist() == [[3, 4]] and some["label"].numpy().tolist() == [1]
