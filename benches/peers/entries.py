"""What is measured, who enters, and how infeed is asked for it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
IN_PYTHON = "infeed (Python)"


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    transform: str
    batch_size: int
    epochs: int
    folder: Path
    records: int
    # Of the batches.
    dtype: str = "f32"
    layout: str = "nchw"
    options: tuple = ()
    shuffle: str = "1"
    # What peers are asked for; the name when it is not said.
    work: str = ""

    @property
    def images_per_epoch(self):
        """Everyone leaves out the records that do not fill a batch."""
        return self.records // self.batch_size * self.batch_size


@dataclass(frozen=True)
class Contestant:
    name: str
    command: list[str]
    # From the parsed JSON to a measurement with measure.py's keys.
    read: Callable[[dict, Workload], dict]
    # Whose rate is divided by this one's.
    rival: str = "infeed"
    # Of those that all may use; None: all of them.
    cores: int | None = None
    # Who this is on every number of cores.
    family: str | None = None
    # Reads files that were converted before: another work.
    prepared: bool = False
    # Called before each run; not measured.
    before: Callable[[], object] = lambda: None
    # Of its environment.
    env: dict = field(default_factory=dict)


def infeed_command(args, workload, cores=None):
    return [
        args.infeed,
        "run",
        str(workload.folder),
        *("--transform", workload.transform, "--batch-size", str(workload.batch_size)),
        *("--dtype", workload.dtype, "--layout", workload.layout, "--device", "cpu"),
        *("--workers", str(cores or args.cores), "--shuffle", workload.shuffle, "--last-batch", "drop"),
        *("--rank", "0", "--world-size", "1"),
        *workload.options,
        # The peers' warm-up epoch is one of ours too: both sides stream the same number.
        *("--epochs", str(1 + workload.epochs), "--log-every", "1000000", "--json", "-"),
    ]


def peer_command(args, workload, python, script, variant=None, cores=None):
    return [
        python,
        str(HERE / script),
        workload.work or workload.name,
        str(workload.folder),
        *("--batch-size", str(workload.batch_size)),
        *("--epochs", str(workload.epochs)),
        *("--threads", str(cores or args.cores)),
        *(("--variant", variant) if variant else ()),
    ]


def in_python(args, workload, peers):
    """infeed's loop in Python, where there are a wheel and torch."""
    if not args.package:
        return []
    command = [
        *peer_command(args, workload, peers["torch"], "peer_infeed.py"),
        *("--transform", workload.transform, "--dtype", workload.dtype, "--layout", workload.layout),
        *("--shuffle", workload.shuffle, *workload.options),
    ]
    return [Contestant(IN_PYTHON, command, read_peer, env={"PYTHONPATH": str(args.package)})]


def read_infeed(report, workload):
    """`infeed run` counts from the call of `epoch`. The steady rate begins when the first batch is there.

    That leaves the rest of the first epoch in, which the peers may leave out to warm up. CPU time is of all samples.
    """
    check_images("infeed", report["samples"], (1 + workload.epochs) * workload.images_per_epoch)
    first = report["first_batch_seconds"]
    per_image = report["cpu_seconds"] / report["samples"]
    images = report["samples"] - workload.batch_size
    return {
        "images": images,
        "seconds": report["seconds"] - first,
        "cpu_seconds": per_image * images,
        "first_batch_seconds": first,
        "from_start": {"images": report["samples"], "seconds": report["seconds"]},
        "peak_rss_bytes": report["peak_rss_bytes"],
        "processes": 1,
        "report": report,
    }


def read_peer(line, workload):
    check_images(line["version"], line["images"], workload.epochs * workload.images_per_epoch)
    return line


def check_images(name, got, wanted):
    if got != wanted:
        sys.exit(f"{name} gave {got} images, not {wanted}: not the same work")
