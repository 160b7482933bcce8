"""A loader that is right, and loaders with one fault each: what the harness must find. Plain Python, no workers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, ClassVar

import records as data
from spec import Adapter, Rows, Spec


class Sound(Adapter):
    """Right in every check. A state is how many records of the epoch are done, over all ranks."""

    name = "sound"
    generators = ("own",)

    def make(self, spec: Spec) -> None:
        self.spec = spec
        self.done = 0
        self.loaded: int | None = None

    def count(self) -> int:
        return data.PICTURES if self.spec.files else self.spec.records

    def order(self, epoch: int) -> list[int]:
        order = list(range(self.count()))
        if self.spec.shuffle:
            random.Random(f"{self.spec.seed} {epoch}").shuffle(order)
        return order

    def batches(self, epoch: int) -> Iterator[Any]:
        start, self.loaded = self.loaded or 0, None
        return _Batches(self, epoch, self.rest(self.order(epoch), start), start)

    def rest(self, order: list[int], start: int) -> list[int]:
        """What is left behind so many."""
        return order[start:]

    def mine(self, step: list[int | None]) -> list[int | None]:
        """The rows of a step that are this rank's; None is padding."""
        return step[self.spec.rank :: self.spec.world]

    def pad(self, step: list[int]) -> list[int | None]:
        """The last step, so that every rank has as many rows."""
        return [*step, *[None] * (-len(step) % self.spec.world)]

    def draw(self, epoch: int, record: int) -> float:
        return random.Random(f"{self.spec.seed} {epoch} {record}").random()

    def damage(self, record: int) -> bool:
        """Whether the record is left out."""
        damaged = data.CUT if self.spec.files else self.spec.damaged
        return record == damaged

    def read(self, batch: Any) -> Rows:
        rows: list[tuple[int, float] | None] = batch
        real = [row for row in rows if row is not None]
        draws = [[drawn] for _, drawn in real] if self.spec.draws else []
        return Rows([record for record, _ in real], len(rows) - len(real), draws)

    def state(self) -> Any:
        return self.done

    def load(self, state: Any) -> None:
        self.loaded = self.done = state


class _Batches:
    def __init__(self, loader: Sound, epoch: int, rest: list[int], start: int) -> None:
        self.loader, self.epoch, self.rest, self.at, self.start = loader, epoch, rest, 0, start

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> list[tuple[int, float] | None]:
        loader, spec = self.loader, self.loader.spec
        if self.at >= len(self.rest):
            raise StopIteration
        taken = self.rest[self.at : self.at + spec.batch_size * spec.world]
        self.at += len(taken)
        loader.done = self.start + self.at
        rows: list[tuple[int, float] | None] = []
        mine = loader.mine(loader.pad(taken))
        if not mine:
            raise StopIteration
        for record in mine:
            if record is None:
                rows.append(None)
            elif not loader.damage(record):
                rows.append((record, loader.draw(self.epoch, record)))
        return rows


class LosesOne(Sound):
    name = "loses a record at a resume"

    def rest(self, order: list[int], start: int) -> list[int]:
        return order[start + 1 :] if start else order


class RepeatsOne(Sound):
    name = "repeats a record at a resume"

    def rest(self, order: list[int], start: int) -> list[int]:
        return order[max(start - 1, 0) :]


class Reorders(Sound):
    name = "swaps two records after a resume"

    def rest(self, order: list[int], start: int) -> list[int]:
        left = order[start:]
        return [left[1], left[0], *left[2:]] if start and len(left) > 1 else left


class Workers(Sound):
    name = "order depends on the number of workers"

    def order(self, epoch: int) -> list[int]:
        order = super().order(epoch)
        return [*order[::2], *order[1::2]] if self.spec.workers > 1 else order


class ResumesForItsWorkers(Sound):
    name = "a state is good for its number of workers alone"

    def state(self) -> Any:
        return self.done, self.spec.workers

    def load(self, state: Any) -> None:
        done, workers = state
        super().load(done if workers == self.spec.workers else 0)


class Batches(Sound):
    name = "a state counts batches"

    def state(self) -> Any:
        return self.done // self.spec.batch_size

    def load(self, state: Any) -> None:
        super().load(state * self.spec.batch_size)


class Ranks(Sound):
    name = "a state counts the rank's own records"

    def state(self) -> Any:
        return self.done // self.spec.world

    def load(self, state: Any) -> None:
        super().load(state * self.spec.world)


class SameEpochs(Sound):
    name = "every epoch has the same order"

    def order(self, epoch: int) -> list[int]:
        return super().order(0)


class DropsLast(Sound):
    name = "loses the last record of an epoch"

    def order(self, epoch: int) -> list[int]:
        return super().order(epoch)[:-1]


class UnevenSteps(Sound):
    name = "ranks have other numbers of rows"

    def pad(self, step: list[int]) -> list[int | None]:
        return [*step]

    def mine(self, step: list[int | None]) -> list[int | None]:
        # What fills no step on all ranks is the first one's.
        short = len(step) < self.spec.batch_size * self.spec.world
        return (step if self.spec.rank == 0 else []) if short else super().mine(step)


class PadsUnsaid(Sound):
    name = "fills up, and doesn't say so"

    def pad(self, step: list[int]) -> list[int | None]:
        return [*step, *step[: -len(step) % self.spec.world]]


class Restarts(Sound):
    name = "a state after the last batch begins anew"

    def load(self, state: Any) -> None:
        super().load(0 if state == self.count() else state)


class DrawsUnseeded(Sound):
    name = "draws are not seeded"

    def draw(self, epoch: int, record: int) -> float:
        return random.SystemRandom().random()


class DrawsOfWorkers(Sound):
    name = "draws depend on the number of workers"

    def draw(self, epoch: int, record: int) -> float:
        return random.Random(f"{self.spec.workers} {epoch} {record}").random()


class DrawsOfTheStream(Sound):
    name = "draws begin anew at a resume"
    stream: ClassVar[random.Random | None] = None

    def draw(self, epoch: int, record: int) -> float:
        # One generator for all records in turn, as `random.random()` in a script that seeds it.
        if DrawsOfTheStream.stream is None:
            DrawsOfTheStream.stream = random.Random(self.spec.seed)
        return DrawsOfTheStream.stream.random()


class DrawsOfTheRecord(Sound):
    name = "draws are the same in each epoch"

    def draw(self, epoch: int, record: int) -> float:
        return super().draw(0, record)


class LosesBatch(Sound):
    name = "a damaged record takes its batch along"

    def batches(self, epoch: int) -> Iterator[Any]:
        return _Raising(super().batches(epoch))

    def damage(self, record: int) -> bool:
        if super().damage(record):
            raise OSError(f"record {record} {data.DAMAGED}")
        return False


class _Raising:
    def __init__(self, batches: Iterator[Any]) -> None:
        self.rest = batches

    def __iter__(self) -> _Raising:
        return self

    def __next__(self) -> Any:
        return next(self.rest)


class EndsAtDamage(LosesBatch):
    name = "a damaged record ends the epoch"

    def batches(self, epoch: int) -> Iterator[Any]:
        # A generator is over once it has raised.
        yield from Sound.batches(self, epoch)


class LosesFirst(LosesBatch):
    name = "a damaged record costs another one"

    def damage(self, record: int) -> bool:
        return Sound.damage(self, record) or Sound.damage(self, record + 1)


class Silent(Sound):
    name = "a damaged picture comes as if it were whole"

    def damage(self, record: int) -> bool:
        return False

    def read(self, batch: Any) -> Rows:
        rows = super().read(batch)
        rows.broken = sum(self.spec.files and record == data.CUT for record in rows.ids)
        return rows


class Refuses(Sound):
    name = "ends with an error at a resume"

    def load(self, state: Any) -> None:
        raise RuntimeError("no state is good")


_RESUMED = ("kill-0", "kill-2", "workers-0", "workers-3", "batch", "world-1", "world-3")
_DAMAGED = ("damaged-0", "damaged-2", "damaged-own-0", "damaged-own-2", "jpeg", "jpeg-own")
# The checks that find each: these must not be 0, and all others must be.
FAULTS: dict[type[Adapter], tuple[str, ...]] = {
    LosesOne: _RESUMED,
    RepeatsOne: (*_RESUMED, "end-0", "end-2"),
    Reorders: ("kill-0", "kill-2", "workers-0", "workers-3"),
    Workers: ("order-4", "workers-0"),
    ResumesForItsWorkers: ("workers-0", "workers-3"),
    # 1000 records are no number of whole batches.
    Batches: ("batch", "end-0", "end-2"),
    Ranks: ("world-1", "world-3"),
    SameEpochs: ("epochs",),
    DropsLast: ("once", "batch", "world-1", "world-3", "uneven", *_DAMAGED),
    UnevenSteps: ("uneven-steps",),
    PadsUnsaid: ("uneven",),
    Restarts: ("end-0", "end-2"),
    DrawsUnseeded: ("draws-same-0", "draws-same-2", "draws-workers", "draws-resume-0", "draws-resume-2", "draws-own"),
    DrawsOfWorkers: ("draws-workers", "draws-own"),
    DrawsOfTheStream: ("draws-resume-0", "draws-resume-2", "draws-own"),
    DrawsOfTheRecord: ("draws-distinct",),
    LosesBatch: _DAMAGED,
    EndsAtDamage: _DAMAGED,
    LosesFirst: _DAMAGED,
    Silent: ("jpeg", "jpeg-own"),
    Refuses: (*_RESUMED, "end-0", "end-2", "draws-resume-0", "draws-resume-2", "draws-own"),
}
ADAPTERS: tuple[type[Adapter], ...] = (Sound, *FAULTS)
