"""Processes: one rank of one run each, its log, its state, and its death."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from typing import Any

from spec import Spec

# A run that takes so long hangs, in seconds.
PATIENCE = 60.0
# A loop that is told of a bad record asks on, so often.
ERRORS = 3


@dataclass(frozen=True)
class Order:
    """What a process is to do beside the run itself."""

    log: str
    state: str
    resume: str | None = None
    # A state behind each batch; else only where it stops.
    saving: bool = False
    # Ends behind so many batches, as a job that is stopped.
    stop: int | None = None
    # Seconds that a step takes, so that a kill finds it at work.
    pace: float = 0.0
    # Errors of records are told to the loop, which asks on.
    forgiving: bool = False


class Log:
    """Lines of JSON. Each is on the disk before the state that stands behind it."""

    def __init__(self, path: str, careful: bool) -> None:
        self.file = open(path, "a")  # noqa: SIM115 (open as long as the process is)
        self.careful = careful

    def say(self, event: str, **more: Any) -> None:
        self.file.write(json.dumps({"event": event, **more}) + "\n")
        self.file.flush()
        if self.careful:
            os.fsync(self.file.fileno())


def save(path: str, saved: dict[str, Any]) -> None:
    """The whole state or the one before, never a part."""
    with open(path + ".new", "wb") as file:
        pickle.dump(saved, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def words(error: BaseException) -> str:
    """What it says. Errors of worker processes bring their traceback along, with the cause in its last line."""
    text = str(error).strip()
    if "Traceback (most recent call last)" not in text:
        return text[:2000]
    lines = text.splitlines()
    return f"{lines[0]} {lines[-1]}"[:2000]


def work(spec: Spec, order: Order) -> None:
    """What the process does. A training script's loop, which writes down what it was given."""
    import adapters

    log = Log(order.log, order.saving)
    try:
        adapter = adapters.find(spec.loader)()
        adapter.make(spec)
        first = 0
        if order.resume is not None:
            with open(order.resume, "rb") as file:
                saved = pickle.load(file)
            adapter.load(saved["state"])
            first = adapter.epoch_of(saved["state"], saved["epoch"])
        step = 0
        for epoch in range(first, spec.epochs):
            log.say("epoch", epoch=epoch)
            errors = 0
            iterator = iter(adapter.batches(epoch))
            while True:
                try:
                    batch = next(iterator)
                except StopIteration:
                    break
                except Exception as error:
                    errors += 1
                    if not order.forgiving or errors > ERRORS:
                        raise
                    log.say("told", type=type(error).__name__, text=words(error))
                    continue
                rows = adapter.read(batch)
                step += 1
                log.say("batch", ids=rows.ids, epoch=epoch, padding=rows.padding, draws=rows.draws, broken=rows.broken)
                if order.saving or step == order.stop:
                    save(order.state, {"steps": step, "epoch": epoch, "state": adapter.state()})
                    log.say("saved", step=step)
                if order.pace:
                    time.sleep(order.pace)
                if step == order.stop:
                    # Nothing is closed: whoever is stopped doesn't either.
                    os._exit(0)
        log.say("done")
    except BaseException as error:
        log.say("error", type=type(error).__name__, text=words(error), trace=traceback.format_exc()[-4000:])
    os._exit(0)


class Process:
    """A process of its own session, so that a kill takes its worker processes too, as a machine that dies does."""

    def __init__(self, spec: Spec, order: Order, environment: dict[str, str], errors: str, fork: bool) -> None:
        self.code: int | None = None
        self.popen: subprocess.Popen[bytes] | None = None
        if fork:
            self.pid = os.fork()
            if self.pid == 0:
                try:
                    os.setsid()
                    os.environ.update(environment)
                    out = os.open(errors, os.O_WRONLY | os.O_CREAT)
                    os.dup2(out, 1)
                    os.dup2(out, 2)
                    work(spec, order)
                finally:
                    os._exit(1)
        else:
            words = [sys.executable, __file__, spec.text(), json.dumps(order.__dict__)]
            with open(errors, "wb") as out_file:
                self.popen = subprocess.Popen(
                    words, stdout=out_file, stderr=out_file, env={**os.environ, **environment}, start_new_session=True
                )
            self.pid = self.popen.pid

    def ended(self) -> bool:
        if self.popen is not None:
            return self.popen.poll() is not None
        if self.code is None:
            pid, code = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = code
        return self.code is not None

    def kill(self) -> None:
        while True:
            # First: the process that was just forked may have no group of its own yet.
            ended = self.ended()
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            if ended:
                return
            time.sleep(0.001)


class Run:
    """One process, and what it wrote down."""

    def __init__(
        self, spec: Spec, scratch: str, *, fork: bool, environment: dict[str, str] | None = None, **order: Any
    ) -> None:
        handle, self.log = tempfile.mkstemp(dir=scratch, suffix=".log")
        os.close(handle)
        self.state = self.log + ".state"
        self.spec = spec
        words = Order(self.log, self.state, **order)
        self.process = Process(spec, words, environment or {}, self.log + ".err", fork)
        self.hung = False
        self.read, self.events_so_far = 0, list[dict[str, Any]]()

    def events(self) -> list[dict[str, Any]]:
        """What is in the log so far. A line that isn't whole was cut by the kill."""
        with open(self.log, "rb") as file:
            file.seek(self.read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.read += len(whole)
        self.events_so_far += [json.loads(line) for line in whole.splitlines()]
        return self.events_so_far

    def wait(self, seconds: float = PATIENCE) -> Run:
        end = time.monotonic() + seconds
        while not self.process.ended():
            if time.monotonic() > end:
                self.hung = True
                break
            time.sleep(0.003)
        # Worker processes that it left behind, too.
        self.process.kill()
        return self

    def kill_after(self, saved: int, delay: float) -> Run:
        end = time.monotonic() + PATIENCE
        while not self.process.ended() and self.count("saved") < saved:
            if time.monotonic() > end:
                self.hung = True
                break
            time.sleep(0.002)
        time.sleep(delay)
        self.process.kill()
        return self

    def count(self, event: str) -> int:
        return sum(each["event"] == event for each in self.events())

    @property
    def error(self) -> str | None:
        for each in self.events():
            if each["event"] == "error":
                # An assertion says where it stands at least.
                source = [line.strip() for line in each["trace"].strip().splitlines()[:-1] if line.strip(" ^~")]
                text = each["text"] or source[-1]
                return f"{each['type']}: {text}"
        if self.hung:
            return f"hangs: no end after {PATIENCE:.0f} s"
        return None

    @property
    def trace(self) -> str:
        return next((each["trace"] for each in self.events() if each["event"] == "error"), "")

    def batches(self) -> list[dict[str, Any]]:
        return [each for each in self.events() if each["event"] == "batch"]

    def ids(self) -> list[int]:
        return [record for batch in self.batches() for record in batch["ids"]]

    def saved(self) -> list[dict[str, Any]]:
        """The batches that the state on the disk stands behind: it has its step, for a kill between log and state."""
        with open(self.state, "rb") as file:
            steps: int = pickle.load(file)["steps"]
        return self.batches()[:steps]

    def has_state(self) -> bool:
        return os.path.exists(self.state)


if __name__ == "__main__":
    work(Spec(**json.loads(sys.argv[1])), Order(**json.loads(sys.argv[2])))
