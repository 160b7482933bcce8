"""What one run of a loader is: the words between the checks, the processes and the adapters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True)
class Spec:
    """One process of one run. What a check doesn't say is as here."""

    loader: str
    # A folder of the loader's own, kept for all its runs: files in its format, pictures.
    folder: str
    records: int = 1000
    batch_size: int = 16
    workers: int = 0
    rank: int = 0
    world: int = 1
    shuffle: bool = True
    seed: int = 7
    epochs: int = 1
    # "item": each record draws from the global generators where it is read. "own": from one that the loader gives.
    draws: str | None = None
    # This record raises.
    damaged: int | None = None
    # Records are the JPEG files of `folder/pictures`, one of which is cut.
    files: bool = False
    # With the loader's own setting for bad records, where it has one.
    policy: bool = False

    def text(self) -> str:
        return json.dumps(asdict(self))


@dataclass
class Rows:
    """What a batch has. `ids` has no rows that are said to be padding."""

    ids: list[int]
    # Rows that the loader says come twice.
    padding: int = 0
    # What each row drew, a number for each of the adapter's `generators`.
    draws: list[list[float]] = field(default_factory=list)
    # Rows whose pixels are wrong, and nobody was told.
    broken: int = 0


class Adapter:
    """A loader, as its documentation says that a training script makes, saves and resumes it.

    A check that the loader can't pass because it has no such thing stands in `unsupported` with the reason. One that it
    makes no promise about stands in `unpromised`: it is measured all the same, and the figure is no failure.
    """

    name: ClassVar[str]
    # In which of the tables it stands.
    table: ClassVar[int] = 0
    # Whose versions are told. One that isn't installed leaves the loader out.
    packages: ClassVar[tuple[str, ...]] = ()
    # What its runs import, so that it can be imported once for all of them.
    modules: ClassVar[tuple[str, ...]] = ()
    # Whether it works in a process that was forked from one that has imported those.
    forks: ClassVar[bool] = True
    # Names of shared memory and semaphores that its processes leave behind when they are killed.
    leaves: ClassVar[tuple[str, ...]] = ()
    ours: ClassVar[bool] = False
    unsupported: ClassVar[dict[str, str]] = {}
    unpromised: ClassVar[dict[str, str]] = {}
    generators: ClassVar[tuple[str, ...]] = ("torch", "numpy", "random")

    @classmethod
    def prepare(cls, folder: str, records: int) -> None:
        """Writes `records` records in the loader's own format, before the runs over them. In a process of its own."""

    def make(self, spec: Spec) -> None:
        raise NotImplementedError

    def batches(self, epoch: int) -> Iterator[Any]:
        """The batches of an epoch; behind `load`, those that are left. No generator: it goes on after an error."""
        raise NotImplementedError

    def read(self, batch: Any) -> Rows:
        raise NotImplementedError

    def state(self) -> Any:
        raise NotImplementedError

    def load(self, state: Any) -> None:
        raise NotImplementedError

    def epoch_of(self, state: Any, saved: int) -> int:
        """The epoch in which a script goes on. It took the state in `saved`; a state may know better."""
        return saved
