"""What the rows stand on: processes that end with us, one epoch's figures of all ranks, and what they should be."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import Cluster
from store import Store

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# 2, 3 and 4 ranks have equal shares.
RECORDS = 1200
# `prepare` takes 32 at a time: a rank of four has two times as many, and can be stopped between.
PHOTOS = 256
EPOCH = ("--shuffle", "7", "--checksum", "--batch-size", "25", "--last-batch", "partial",
         "--device", "cpu", "--workers", "1", "--prefetch", "2")  # fmt: skip
# As root Open MPI asks to be told that this is meant, and of more ranks than cores.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Ranks of each node in the order of their local ranks.
Places = Sequence[Sequence[int]]


@dataclass
class Outcome:
    """What a row saw; `wrong` is empty when that is as it should be."""

    ranks: int = 0
    nodes: int = 0
    told: str = "-"
    sums: str = "-"
    wrong: list[str] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True)
class Row:
    name: str
    # A key of `Bench.versions`.
    launcher: str
    run: Callable[[Bench], Outcome]
    # Programs on the path, `py:MODULE`, `slurm`, `slurm:pmix`.
    needs: tuple[str, ...] = ()


@dataclass
class Done:
    code: int
    words: str


class Bench:
    def __init__(self, infeed: Path, python: str, folder: Path):
        self.infeed, self.python, self.folder = str(infeed), python, folder
        self.running: list[subprocess.Popen[bytes]] = []
        self.cluster: Cluster | None = None
        self.modules = self.ask_python()
        self.steps = 0
        (folder / "home").mkdir()
        # Without the caller's launcher, if there is one.
        self.base = {
            "PATH": os.environ["PATH"] + ":/usr/sbin", "HOME": str(folder / "home"), "TMPDIR": str(folder), "LANG": "C.UTF-8",
            "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0",
            "TOKENIZERS_PARALLELISM": "false", "GLOO_SOCKET_IFNAME": "lo",
        }  # fmt: skip
        self.data = folder / "cifar"
        self.photos = folder / "photos"

    def make_data(self) -> None:
        self.must(self.infeed, "synth", "cifar10", self.data, "--count", RECORDS)
        self.must(self.infeed, "synth", "imagenet", self.photos, "--count", PHOTOS, "--classes", 4)
        alone = self.new("alone")
        self.must(*self.rank(alone, *EPOCH))
        self.whole = int(self.reports(alone)[0]["checksum"], 16)

    def ask_python(self) -> dict[str, str]:
        """Versions of what is installed beside `python`."""
        names = ("torch", "ray", "accelerate", "lightning", "distributed", "sagemaker-training", "infeed", "botocore",
                 "kubernetes-validate", "PyYAML", "boto3")  # fmt: skip
        code = (
            "import importlib.metadata, json\n"
            "there = {d.metadata['Name'].lower().replace('_', '-'): d.version for d in importlib.metadata.distributions()}\n"
            f"print(json.dumps({{name: there.get(name.lower()) for name in {names!r}}}))"
        )
        told = json.loads(subprocess.check_output([self.python, "-c", code], text=True))
        return {name: version for name, version in told.items() if version}

    # What is installed.

    def lacks(self, need: str) -> str | None:
        """What is missing, in words."""
        kind, _, name = need.partition(":")
        if kind == "py":
            return None if name in self.modules else f"Python's {name}"
        if kind == "slurm":
            if missing := Cluster.missing():
                return f"Slurm ({', '.join(missing)})"
            if name not in {"", *self.slurm().mpi}:
                return f"srun --mpi={name} (for PMIx: Debian's libpmix-dev, whose libpmix.so Slurm asks for)"
            return None
        return None if shutil.which(need, path=self.base["PATH"]) else need

    def slurm(self) -> Cluster:
        if not self.cluster:
            self.cluster = Cluster(self.folder / "slurm")
            self.cluster.start()
        return self.cluster

    # Processes.

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        slurm = self.cluster.environment if self.cluster else {}
        return {**self.base, **slurm, **{name: str(value) for name, value in (more or {}).items()}}

    def start(self, *command: object, env: Mapping[str, str] | None = None, log: Path | None = None) -> subprocess.Popen[bytes]:
        self.steps += 1
        log = log or self.folder / f"{self.steps:03}.log"
        with open(log, "ab") as out:
            out.write(f"$ {shlex.join(map(str, command))}\n".encode())
            out.flush()
            process = subprocess.Popen(
                list(map(str, command)), env=self.environment(env), stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True, cwd=self.folder,
            )  # fmt: skip
        process.log = log  # type: ignore[attr-defined]
        self.running.append(process)
        return process

    def finish(self, process: subprocess.Popen[bytes], limit: float = 240) -> Done:
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            self.end(process)
            code = 124
        self.running.remove(process)
        words = process.log.read_text(errors="replace")  # type: ignore[attr-defined]
        return Done(code, words + ("\nit took too long" if code == 124 else ""))

    def call(self, *command: object, env: Mapping[str, str] | None = None, limit: float = 240) -> Done:
        return self.finish(self.start(*command, env=env), limit)

    def must(self, *command: object, env: Mapping[str, str] | None = None, limit: float = 240) -> Done:
        done = self.call(*command, env=env, limit=limit)
        if done.code:
            raise RuntimeError(f"{shlex.join(map(str, command))}: exit {done.code}: {done.words[-2000:]}")
        return done

    def sbatch(self, *words: object, env: Mapping[str, str] | None = None, limit: float = 240) -> Done:
        """Until all tasks of the job have ended; `sbatch -W` looks after 2, 12 and 42 seconds only."""
        done = self.call("sbatch", "--parsable", *words, env=env)
        if done.code:
            return done
        job = done.words.strip().splitlines()[-1]
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            states = set(self.slurm().call("squeue", "-h", "-r", "-t", "all", "-j", job, "-o", "%T").split())
            if states and not states & {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}:
                return Done(int(states != {"COMPLETED"}), f"job {job}: {', '.join(sorted(states))}")
            time.sleep(0.1)
        return Done(124, f"job {job} took too long")

    def in_background(self, what: Callable[[], Done]) -> concurrent.futures.Future[Done]:
        """While it runs, the row does something to it."""
        result: concurrent.futures.Future[Done] = concurrent.futures.Future()

        def run() -> None:
            try:
                result.set_result(what())
            except Exception as error:
                result.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return result

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """With all that it started and that did not leave its group."""
        for number, patience in [(signal.SIGTERM, 10), (signal.SIGKILL, 10)]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                return

    def clear(self) -> None:
        """Nothing of a row that broke off goes on beside the next."""
        for process in list(self.running):
            self.end(process)
        self.running.clear()
        if self.cluster:
            self.cluster.clear()

    def close(self) -> None:
        self.clear()
        if self.cluster:
            self.cluster.stop()

    # Ranks.

    def new(self, name: str) -> Path:
        self.steps += 1
        folder = self.folder / f"{self.steps:03}-{name}"
        folder.mkdir()
        return folder

    def rank(self, folder: Path, *options: object) -> list[str]:
        """The command of one rank, whose figures go to `folder`."""
        return [str(HERE / "rank.sh"), str(folder), self.infeed, "run", str(self.data), *map(str, options)]

    def reports(self, folder: Path) -> list[dict[str, Any]]:
        """What the ranks wrote, each with its environment."""
        found = []
        for path in sorted(folder.glob("*.json")):
            if not path.stat().st_size:
                continue
            report = json.loads(path.read_text())
            lines = path.with_suffix(".env").read_text(errors="replace").splitlines()
            report["environment"] = dict(line.split("=", 1) for line in lines if "=" in line)
            found.append(report)
        return sorted(found, key=lambda report: report["config"]["rank"])

    def words(self, folder: Path) -> str:
        """The errors of the ranks that failed."""
        told = [path.read_text(errors="replace").strip() for path in sorted(folder.glob("*.words"))]
        return " | ".join(error_of(words) for words in told if not words.endswith("exit 0"))

    def judge(
        self, folder: Path, launcher: str | None, places: Places, *, done: Done | None = None, truth: str = "", node: str = "",
        whole: int | None = None,
    ) -> Outcome:  # fmt: skip
        """An epoch's ranks against `places`.

        `truth` is the variable that has the rank by the launcher's own words, `node` one that has the name of the node.
        """
        reports = self.reports(folder)
        world = sum(map(len, places))
        outcome = Outcome(ranks=len(reports), nodes=len(places))
        wrong = outcome.wrong
        if done and done.code:
            wrong.append(f"exit {done.code}: {self.words(folder) or done.words.strip()[-300:]}")
        told = {str(report["config"].get("launcher")) for report in reports}
        outcome.told = ", ".join(sorted(told)) or "-"
        if told != {str(launcher)}:
            wrong.append(f"the launcher is {launcher}, not {outcome.told}")
        want = sorted(
            (rank, world, local, len(ranks)) for ranks in places for local, rank in enumerate(ranks)
        )  # fmt: skip
        keys = ("rank", "world_size", "local_rank", "local_world_size")
        got = sorted(tuple(-1 if (n := report["config"].get(key)) is None else n for key in keys) for report in reports)
        if got != want:
            wrong.append(f"rank, world, local rank, local world are {want}, not {got}")
        if truth:
            numbers = [(report["environment"].get(truth), str(report["config"]["rank"])) for report in reports]
            wrong.extend(f"{truth} is {by} where infeed says rank {rank}" for by, rank in numbers if by != rank)
        if node:
            nodes: dict[str, list[int]] = {}
            for report in reports:
                nodes.setdefault(report["environment"].get(node, ""), []).append(report["config"]["rank"])
            if sorted(map(sorted, nodes.values())) != sorted(map(sorted, places)):
                wrong.append(f"by {node} the ranks of the nodes are {nodes}")
        self.add_up(outcome, reports, self.whole if whole is None else whole)
        return outcome

    def add_up(self, outcome: Outcome, reports: list[dict[str, Any]], whole: int) -> None:
        """The ranks' sums are those of the one process."""
        total = sum(int(report.get("checksum") or "0", 16) for report in reports) % 2**128
        outcome.sums = "equal" if reports and total == whole else "other"
        if outcome.sums != "equal":
            outcome.wrong.append(f"the sums give {total:032x}, one process {whole:032x}")

    def refused(self, env: Mapping[str, str], *says: str) -> Outcome:
        """This environment is none to run in, and the error says what to add."""
        folder = self.new("refused")
        done = self.call(*self.rank(folder, *EPOCH), env=env)
        told = self.words(folder)
        outcome = Outcome(ranks=1, nodes=1, told="refused" if done.code else "not refused", note=told.split(" | ")[0])
        if not done.code:
            outcome.wrong.append("an error, not a process that reads everything")
        outcome.wrong.extend(f"it says {word!r}" for word in says if done.code and word not in told)
        return outcome

    def process_of(
        self, word: str, variable: tuple[str, str] | None = None, *, option: tuple[str, str] | None = None
    ) -> int | None:  # fmt: skip
        """An infeed of ours whose command line holds `word` and `option`, by one variable of its environment."""
        for path in Path("/proc").iterdir():
            try:
                if not path.name.isdigit() or os.readlink(path / "exe") != self.infeed:
                    continue
                command = (path / "cmdline").read_bytes()
                if word.encode() not in command or (option and "\0".join(option).encode() not in command):
                    continue
                if not variable or "=".join(variable).encode() in (path / "environ").read_bytes().split(b"\0"):
                    return int(path.name)
            except OSError:
                continue
        return None

    @contextlib.contextmanager
    def store(self, prefix: str = "photos") -> Iterator[Store]:
        store = Store(self.photos, prefix)
        try:
            yield store
        finally:
            store.close()


def error_of(words: str) -> str:
    """The line with the error, else the last."""
    lines = words.strip().splitlines() or [""]
    return next((line for line in lines if line.startswith("error")), lines[-1])


def wait_for(what: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.02)
    raise RuntimeError("it did not come")
