"""The checks: what each runs, and how many records came out wrong."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import records as data
from runs import Run
from spec import Adapter, Spec

Made = TypeVar("Made")

RECORDS, BATCH = 1000, 16
# Of those checks in which all ranks have the same number of records: nothing is filled up, on 1, 2 or 3 ranks.
EVEN = 960
STEPS = -(-RECORDS // BATCH)

# Each check, and what it asks.
CHECKS: dict[str, str] = {
    "once": "an epoch has each record once",
    "epochs": "the second epoch in the first one's order",
    "order-1": "order with 1 worker, against 0",
    "order-4": "order with 4 workers, against 0",
    "kill-0": "killed and resumed several times, 0 workers",
    "kill-2": "killed and resumed several times, 2 workers",
    "workers-0": "resumed with 0 workers instead of 2",
    "workers-3": "resumed with 3 workers instead of 2",
    "batch": "resumed with batches of 24 instead of 16",
    "world-1": "resumed on 1 rank instead of 2",
    "world-3": "resumed on 3 ranks instead of 2",
    "end-0": "resumed from a state after the last batch, 0 workers",
    "end-2": "resumed from a state after the last batch, 2 workers",
    "uneven": "103 records on 4 ranks: lost, or duplicates not marked as padding",
    "uneven-steps": "103 records on 4 ranks: difference in steps between ranks",
    "draws-same-0": "draws in `__getitem__`, second run, 0 workers",
    "draws-same-2": "draws in `__getitem__`, second run, 2 workers",
    "draws-workers": "draws in `__getitem__`, 2 workers against 0",
    "draws-resume-0": "draws in `__getitem__` after a resume, 0 workers",
    "draws-resume-2": "draws in `__getitem__` after a resume, 2 workers",
    "draws-distinct": "draws in `__getitem__` that came before, two epochs, 2 workers",
    "draws-own": "draws of the loader's own generator: 2 workers against 0, after a resume",
    "damaged-0": "a damaged record, 0 workers",
    "damaged-2": "a damaged record, 2 workers",
    "damaged-own-0": "a damaged record, with the loader's own setting, 0 workers",
    "damaged-own-2": "a damaged record, with the loader's own setting, 2 workers",
    "jpeg": "a damaged JPEG file",
    "jpeg-own": "a damaged JPEG file, with the loader's own setting",
}


@dataclass
class Outcome:
    """Counts of what is wrong, by kind; or why there are none."""

    wrong: dict[str, int] = field(default_factory=dict)
    # Beside the counts: what else is to be known.
    note: str = ""
    error: str = ""
    unsupported: str = ""

    @property
    def right(self) -> bool:
        return not self.error and not any(self.wrong.values())


class Failed(Exception):
    """A run ended with an error, or hung."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.error)
        self.trace = run.trace


def good(run: Run) -> Run:
    if run.error is not None:
        raise Failed(run)
    return run


def compare(expected: Sequence[int], got: Sequence[int]) -> dict[str, int]:
    """Records that are lost, that come again, and that stand elsewhere among those that neither are."""
    due, came = Counter(expected), Counter(got)
    lost, again = due - came, came - due
    here = list(expected)
    for record in lost.elements():
        here.remove(record)
    there: list[int] = []
    for record in reversed(got):
        if again[record]:
            # The last one of several is the one too many.
            again[record] -= 1
        else:
            there.append(record)
    there.reverse()
    return {
        "lost": lost.total(),
        "again": (came - due).total(),
        "moved": sum(one != other for one, other in zip(here, there, strict=True)),
    }


def ids(batches: Iterable[dict[str, Any]]) -> list[int]:
    return [record for batch in batches for record in batch["ids"]]


class Memory(Generic[Made]):
    """What a function gave, or raised, for arguments that were given before."""

    def __init__(self, make: Callable[..., Made]) -> None:
        self.make, self.made = make, dict[tuple[Any, ...], Made | Exception]()

    def __call__(self, *words: Any) -> Made:
        if words not in self.made:
            try:
                self.made[words] = self.make(*words)
            except Exception as error:
                # A run that hangs hangs once.
                self.made[words] = error
        made = self.made[words]
        if isinstance(made, Exception):
            raise made
        return made


class Checks:
    """All checks of one loader. Runs that several need are made once."""

    def __init__(self, adapter: type[Adapter], folder: str, seed: int, fork: bool, kills: int) -> None:
        self.adapter, self.folder, self.kills_of_a_run = adapter, folder, kills
        self.fork = fork and adapter.forks
        self.scratch = os.path.join(folder, "runs")
        os.makedirs(self.scratch)
        # The same for each loader, and whichever checks are made.
        self.seed, self.random = seed, random.Random(seed)
        self.base = Spec(adapter.name, folder, RECORDS, BATCH, seed=seed)
        # Behind so many batches runs are stopped. On 2 ranks, so that what is left of EVEN can be dealt to 3 evenly.
        # On one, what is done is no whole number of batches of 24.
        self.at = self.random.choice([step for step in range(10, 40) if step % 3])
        self.at_ranks = self.random.randrange(6, 28, 3)
        self.prepared: set[int] = set()
        self.whole = Memory(self._whole)
        self.stopped = Memory(self._stopped)
        self.group = Memory(self._group)
        self.drawn = Memory(self._drawn)
        data.write_pictures(folder)

    def run(self, name: str) -> Outcome:
        """One check."""
        if name in self.adapter.unsupported:
            return Outcome(unsupported=self.adapter.unsupported[name])
        self.random = random.Random(f"{self.seed} {name}")
        kind, _, which = name.partition("-")
        check: Callable[..., Outcome] = getattr(self, f"check_{kind}")
        try:
            return check(which) if which else check()
        except Failed as failed:
            return Outcome(error=str(failed), note=failed.trace)
        except Exception as error:
            return Outcome(error=f"the harness: {type(error).__name__}: {error}", note=traceback.format_exc())

    # Runs.

    def start(self, spec: Spec, environment: dict[str, str] | None = None, **order: Any) -> Run:
        if spec.records not in self.prepared and not spec.files:
            words = [sys.executable, os.path.abspath(__file__), self.adapter.name, self.folder, str(spec.records)]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"the data can't be written: {done.stderr[-2000:]}")
            self.prepared.add(spec.records)
        return Run(spec, self.scratch, fork=self.fork, environment=environment, **order)

    def _whole(self, workers: int) -> Run:
        """Two epochs without any disturbance."""
        return good(self.start(replace(self.base, workers=workers, epochs=2)).wait())

    def epoch(self, workers: int, epoch: int) -> list[int]:
        return ids(batch for batch in self.whole(workers).batches() if batch["epoch"] == epoch)

    def _stopped(self, workers: int, at: int, draws: str | None = None) -> Run:
        """A run that ends behind some batch with a state."""
        return good(self.start(replace(self.base, workers=workers, draws=draws), stop=at).wait())

    def _group(self, records: int, batch: int, world: int, stop: int | None, resume: tuple[str, ...] = ()) -> list[Run]:
        """All ranks of one run, at the same time. Each is given its own state; where more are now, some another's."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        runs: list[Run] = []
        for rank in range(world):
            launcher = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "GLOBAL_RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world),
                "LOCAL_WORLD_SIZE": str(world),
            }
            spec = replace(self.base, records=records, batch_size=batch, rank=rank, world=world)
            state = resume[rank % len(resume)] if resume else None
            runs.append(self.start(spec, launcher, stop=stop, resume=state))
        for run in runs:
            run.wait()
        # The cause is rather an error than another rank that waits for it.
        for run in sorted(runs, key=lambda run: run.hung):
            good(run)
        return runs

    def _drawn(self, workers: int, kind: str) -> list[dict[str, Any]]:
        run = self.start(replace(self.base, workers=workers, draws=kind, epochs=2))
        return good(run.wait()).batches()

    # Checks.

    def check_once(self) -> Outcome:
        wrong = compare(range(RECORDS), self.epoch(0, 0))
        # Shuffled it is.
        del wrong["moved"]
        return Outcome(wrong)

    def check_epochs(self) -> Outcome:
        same = sum(one == other for one, other in zip(self.epoch(0, 0), self.epoch(0, 1)))
        # Two orders by chance agree in one place.
        return Outcome({"in the same place": same if same > 10 else 0})

    def check_order(self, workers: str) -> Outcome:
        return Outcome(compare(self.whole(0).ids(), self.whole(int(workers)).ids()))

    def check_kill(self, workers: str) -> Outcome:
        spec = replace(self.base, workers=int(workers), epochs=2)
        whole = self.whole(int(workers)).ids()
        got: list[int] = []
        state, steps, done = None, list[int](), 0
        for target in self.kills():
            run = self.start(spec, resume=state, saving=True, pace=0.004)
            good(run.kill_after(max(target - done, 1), self.random.random() * 0.008))
            if not run.has_state():
                raise RuntimeError("it ended before the kill, without a state")
            state, saved = run.state, run.saved()
            done += len(saved)
            steps.append(done)
            got += ids(saved)
        got += good(self.start(spec, resume=state).wait()).ids()
        return Outcome(compare(whole, got), note=f"killed after steps {', '.join(map(str, steps))}")

    def kills(self) -> list[int]:
        """Steps of two epochs, half of them in each. Until a kill arrives a few more pass, and the last of an epoch is no
        place for one: what a state there does is a check of its own."""
        first, second = range(2, STEPS - 14), range(STEPS + 2, 2 * STEPS - 12)
        half = self.kills_of_a_run // 2
        chosen = self.random.sample(first, self.kills_of_a_run - half) + self.random.sample(second, half)
        return sorted(chosen)

    def check_workers(self, workers: str) -> Outcome:
        first = self.stopped(2, self.at)
        rest = good(self.start(replace(self.base, workers=int(workers)), resume=first.state).wait())
        return Outcome(compare(self.epoch(2, 0), first.ids() + rest.ids()))

    def check_batch(self) -> Outcome:
        first = self.stopped(2, self.at)
        rest = good(self.start(replace(self.base, workers=2, batch_size=24), resume=first.state).wait())
        wrong = compare(range(RECORDS), first.ids() + rest.ids())
        # With workers a loader may deal records to batches; which are in which is no promise then.
        del wrong["moved"]
        return Outcome(wrong)

    def check_world(self, world: str) -> Outcome:
        first = self.group(EVEN, BATCH, 2, self.at_ranks)
        rest = self.group(EVEN, BATCH, int(world), None, tuple(run.state for run in first))
        got = [record for run in (*first, *rest) for record in run.ids()]
        wrong = compare(range(EVEN), got)
        del wrong["moved"]
        return Outcome(wrong)

    def check_end(self, workers: str) -> Outcome:
        spec = replace(self.base, workers=int(workers), epochs=2)
        whole = self.whole(int(workers)).ids()
        last = sum(batch["epoch"] == 0 for batch in self.whole(int(workers)).batches())
        first = self.stopped(int(workers), last)
        rest = good(self.start(spec, resume=first.state).wait())
        return Outcome(compare(whole, first.ids() + rest.ids()))

    def check_uneven(self, what: str = "") -> Outcome:
        runs = self.group(103, 5, 4, None)
        steps = [len(run.batches()) for run in runs]
        said = sum(batch["padding"] for run in runs for batch in run.batches())
        note = f"steps {' '.join(map(str, steps))}; {said} rows marked as padding"
        if what:
            return Outcome({"step(s)": max(steps) - min(steps)}, note)
        wrong = compare(range(103), [record for run in runs for record in run.ids()])
        return Outcome({"lost": wrong["lost"], "unmarked": wrong["again"]}, note)

    def check_draws(self, what: str) -> Outcome:
        kind, _, workers = what.partition("-")
        if kind == "own":
            apart = self.differing(self.drawn(0, "own"), self.drawn(2, "own"))
            behind = self.behind(2, "own")
            return Outcome({"by workers": max(apart.values()), "by resume": max(behind.values())})
        if kind == "same":
            return Outcome(self.differing(self.drawn(int(workers), "item"), self._drawn(int(workers), "item")))
        if kind == "workers":
            return Outcome(self.differing(self.drawn(0, "item"), self.drawn(2, "item")))
        if kind == "resume":
            return Outcome(self.behind(int(workers), "item"))
        draws = self.by_record(self.drawn(2, "item")).values()
        wrong = {}
        for place, generator in enumerate(self.adapter.generators):
            wrong[generator] = len(draws) - len({row[place] for row in draws})
        return Outcome(wrong)

    def behind(self, workers: int, kind: str) -> dict[str, int]:
        first = self.stopped(workers, self.at, kind)
        rest = good(self.start(replace(self.base, workers=workers, draws=kind), resume=first.state).wait())
        whole = [batch for batch in self.drawn(workers, kind) if batch["epoch"] == 0]
        return self.differing(whole, first.batches() + rest.batches())

    def by_record(self, batches: list[dict[str, Any]]) -> dict[tuple[int, int], list[float]]:
        return {
            (batch["epoch"], record): row
            for batch in batches
            for record, row in zip(batch["ids"], batch["draws"], strict=True)
        }

    def differing(self, one: list[dict[str, Any]], other: list[dict[str, Any]]) -> dict[str, int]:
        """Records whose draws differ, of each generator. Which record is where is another check's."""
        here, there = self.by_record(one), self.by_record(other)
        wrong = dict.fromkeys(self.adapter.generators, 0)
        for key in here.keys() & there.keys():
            for place, generator in enumerate(self.adapter.generators):
                wrong[generator] += here[key][place] != there[key][place]
        return wrong

    def check_damaged(self, what: str) -> Outcome:
        own, _, workers = what.rpartition("-")
        damaged = 500
        spec = replace(self.base, workers=int(workers), shuffle=False, damaged=damaged, policy=bool(own))
        return self.damage(spec, RECORDS, damaged)

    def check_jpeg(self, own: str = "") -> Outcome:
        spec = replace(self.base, batch_size=8, shuffle=False, files=True, policy=bool(own))
        return self.damage(spec, data.PICTURES, data.CUT)

    def damage(self, spec: Spec, count: int, damaged: int) -> Outcome:
        run = self.start(spec, forgiving=True).wait()
        told = [each for each in run.events() if each["event"] == "told"]
        got = [record for record in run.ids() if record != damaged]
        wrong = compare([record for record in range(count) if record != damaged], got)
        # Workers may have an order of their own, and who leaves a row out may fill its place.
        del wrong["moved"]
        wrong["silent"] = sum(batch["broken"] for batch in run.batches())
        first = next((at for at, each in enumerate(run.events()) if each["event"] == "told"), -1)
        on = any(each["event"] == "batch" for each in run.events()[first + 1 :])
        notes = []
        if told:
            notes.append("goes on after an error" if on else "an error ends the epoch")
            if len(told) > 1:
                notes.append("more errors follow")
            if spec.files:
                named = any(f"{damaged:03}.jpg" in each["text"] for each in told)
                notes.append("which names the file" if named else "which doesn't name the file")
        elif not run.error:
            notes.append("goes on without an error")
        if run.error is not None and not told:
            raise Failed(run)
        return Outcome(wrong, ", ".join(notes))


def check(
    adapter: type[Adapter], names: Sequence[str], folder: str, seed: int, fork: bool, kills: int
) -> dict[str, Outcome]:
    """The named checks of one loader, one after another."""
    if fork and adapter.forks:
        for module in adapter.modules:
            __import__(module)
    checks = Checks(adapter, folder, seed, fork, kills)
    found: dict[str, Outcome] = {}
    for name in names:
        found[name] = checks.run(name)
    return found


if __name__ == "__main__":
    import adapters

    adapters.find(sys.argv[1]).prepare(sys.argv[2], int(sys.argv[3]))
