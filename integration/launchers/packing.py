"""Rows: `prepare` by several processes makes what one makes, also when one of them is killed."""

from __future__ import annotations

import hashlib
import os
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path

from bench import ROOT, Bench, Done, Outcome, Row, error_of, wait_for

# Four shards for each of four ranks; re-encoded, so that equal bytes are more than copies.
SETTINGS = ("--parts", "16", "--shuffle", "3", "--shorter", "64", "--workers", "1")
# Starts four tasks that prepare a url into a folder, with the environment of the store; its scratch folder is its own.
Start = Callable[[Bench, Path, str, Path, dict[str, str]], Done]


def prints(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir()) if path.is_file()}


def reference(bench: Bench) -> dict[str, str]:
    """What one process makes."""
    out = bench.folder / "prepared"
    if not out.exists():
        with bench.store() as store:
            bench.must(bench.infeed, "prepare", store.url, out, *SETTINGS, env=store.environment)
    return prints(out)


def records_of(bench: Bench, shard: str) -> list[int]:
    """What is in it: members are named by record."""
    reference(bench)
    with tarfile.open(bench.folder / "prepared" / shard) as tar:
        return sorted({int(name.split(".")[0]) for name in tar.getnames()})


def compare(outcome: Outcome, bench: Bench, out: Path) -> None:
    want, got = reference(bench), prints(out)
    outcome.sums = "equal" if got == want else "other"
    if got != want:
        other = sorted(name for name in want.keys() | got.keys() if want.get(name) != got.get(name))
        outcome.wrong.append(f"the bytes of one process; other: {', '.join(other)[:200]}")


def whole(start: Start, nodes: int = 1) -> Callable[[Bench], Outcome]:
    def run(bench: Bench) -> Outcome:
        scratch = bench.new("prepare")
        out, outcome = scratch / "out", Outcome(ranks=4, nodes=nodes)
        with bench.store() as store:
            done = start(bench, scratch, store.url, out, store.environment)
        if done.code:
            outcome.wrong.append(f"exit {done.code}: {done.words.strip()[-300:]}")
        else:
            compare(outcome, bench, out)
        return outcome

    return run


def killed(start: Start, *, mark: tuple[str, str] | None, again: bool, nodes: int = 1) -> Callable[[Bench], Outcome]:
    """Rank 2 is killed when it has made a shard and waits for the images of another.

    `mark` is the variable by which it is known, else its option --rank. `again`: the launcher does not try again by itself, so
    that what is there is incomplete, which has to be refused, and everything is started anew.
    """

    def run(bench: Bench) -> Outcome:
        scratch = bench.new("prepare")
        out, outcome = scratch / "out", Outcome(ranks=4, nodes=nodes)
        with bench.store() as store:
            # Those of its last shard: it has made others when it comes to wait for them.
            keys = sorted(store.objects)
            store.hold(keys[record] for record in records_of(bench, "shard-000014.tar"))
            job = bench.in_background(lambda: start(bench, scratch, store.url, out, store.environment))
            option = None if mark else ("--rank", "2")
            wait_for((out / "shard-000002.tar").exists)
            victim = bench.process_of(str(out), mark, option=option)
            if not victim:
                raise RuntimeError("rank 2 has ended before it could be killed")
            os.kill(victim, signal.SIGKILL)
            store.hold()
            done = job.result(240)
            if again:
                if not done.code:
                    outcome.wrong.append("the launcher tells that a task was killed")
                incomplete(bench, out, outcome)
                done = start(bench, scratch, store.url, out, store.environment)
        if done.code:
            outcome.wrong.append(f"exit {done.code}: {done.words.strip()[-300:]}")
        else:
            compare(outcome, bench, out)
        return outcome

    return run


def incomplete(bench: Bench, out: Path, outcome: Outcome) -> None:
    there = {path.name for path in out.glob("*.tar")}
    missing = sorted(name for name in reference(bench) if name.endswith(".tar") and name not in there)
    run = (bench.infeed, "run", out, "--batch-size", 4, "--device", "cpu", "--transform", "random_resized_crop:32;normalize")
    opened = bench.call(*run)
    if not missing:
        outcome.wrong.append("a killed task leaves shards to make")
    if not opened.code:
        outcome.wrong.append(f"an incomplete result is refused when it is opened; {len(missing)} shards are missing")
    elif not any(name in opened.words for name in missing):
        outcome.wrong.append(f"the error names one of {missing}: {opened.words.strip()[-200:]}")
    else:
        outcome.note = error_of(opened.words)
    if bench.call(*run, "--allow-incomplete").code:
        outcome.wrong.append("--allow-incomplete opens it")


def slurm_array(bench: Bench, scratch: Path, url: str, out: Path, env: dict[str, str]) -> Done:
    script = ROOT / "examples/slurm/prepare-array.sbatch"
    done = bench.sbatch("--array=0-3", "--cpus-per-task=1", "--time=5", "-o", scratch / "task-%a", script, url, out,
                        *SETTINGS, env={**env, "INFEED": bench.infeed})  # fmt: skip
    words = "".join(path.read_text(errors="replace") for path in sorted(scratch.glob("task-*")))
    return Done(done.code, done.words + words)


def ray_tasks(bench: Bench, scratch: Path, url: str, out: Path, env: dict[str, str]) -> Done:
    return bench.call(bench.python, ROOT / "examples/ray/prepare.py", url, out, "--tasks", 4, "--cpus", 1, "--", *SETTINGS,
                      env={**env, "INFEED": bench.infeed, "RAY_TMPDIR": str(scratch)})  # fmt: skip


def parallel(*retries: str) -> Start:
    def start(bench: Bench, scratch: Path, url: str, out: Path, env: dict[str, str]) -> Done:
        return bench.call("parallel", "--will-cite", "--jobs", 4, *retries, bench.infeed, "prepare", url, out, *SETTINGS,
                          "--rank", "{}", "--world-size", 4, ":::", 0, 1, 2, 3, env=env)  # fmt: skip

    return start


def variables(name: str, give: Callable[[int], dict[str, str]]) -> Row:
    """Four processes with the environment of a service that can't be had here."""

    def start(bench: Bench, scratch: Path, url: str, out: Path, env: dict[str, str]) -> Done:
        command = (bench.infeed, "prepare", url, out, *SETTINGS)
        processes = [bench.start(*command, env={**env, **give(task)}) for task in range(4)]
        return max((bench.finish(process) for process in processes), key=lambda done: abs(done.code))

    return Row(f"prepare: {name}", "variables", whole(start))


def array_of_one(bench: Bench) -> Outcome:
    """`sbatch --array=2` for a task that was lost tells 1 of 1: it would make what the others make."""
    scratch = bench.new("prepare")
    with bench.store() as store:
        env = {**store.environment, "INFEED": bench.infeed}
        script = ROOT / "examples/slurm/prepare-array.sbatch"
        done = bench.sbatch("--array=2", "--cpus-per-task=1", "--time=5", "-o", scratch / "task", script, store.url,
                            scratch / "out", *SETTINGS, env=env)  # fmt: skip
    words = (scratch / "task").read_text(errors="replace").strip()
    outcome = Outcome(ranks=1, nodes=1, told="refused" if done.code else "not refused", note=error_of(words))
    if not done.code:
        outcome.wrong.append("an error, not a task that takes itself for the only one")
    elif "requeue" not in words:
        outcome.wrong.append("it says 'requeue'")
    return outcome


ROWS = [
    Row("prepare: array of 4 (prepare-array.sbatch)", "Slurm", whole(slurm_array, 2), ("slurm",)),
    Row("prepare: array of 4, one task killed, run again", "Slurm",
        killed(slurm_array, mark=("SLURM_ARRAY_TASK_ID", "2"), again=True, nodes=2), ("slurm",)),
    Row("refused: prepare: one task of an array run again by its number", "Slurm", array_of_one, ("slurm",)),
    Row("prepare: 4 tasks (examples/ray/prepare.py)", "Ray", whole(ray_tasks), ("py:ray",)),
    Row("prepare: 4 tasks, one killed, which Ray tries again", "Ray", killed(ray_tasks, mark=None, again=False), ("py:ray",)),
    Row("prepare: 4 jobs", "GNU parallel", whole(parallel()), ("parallel",)),
    Row("prepare: 4 jobs, one killed, run again", "GNU parallel", killed(parallel(), mark=None, again=True), ("parallel",)),
    Row("prepare: 4 jobs, one killed, --retries 2", "GNU parallel", killed(parallel("--retries", "2"), mark=None, again=False),
        ("parallel",)),
    variables("AWS Batch array of 4 (environment as documented)",
              lambda task: {"AWS_BATCH_JOB_ARRAY_INDEX": str(task), "AWS_BATCH_JOB_ARRAY_SIZE": "4"}),
    variables("Kubernetes, indexed job of 4 (environment as kubelet sets it)",
              lambda task: {"JOB_COMPLETION_INDEX": str(task), "WORLD_SIZE": "4"}),
    variables("Grid Engine array of 4 (environment as documented)",
              lambda task: {"SGE_TASK_ID": str(task + 1), "SGE_TASK_FIRST": "1", "SGE_TASK_LAST": "4", "SGE_TASK_STEPSIZE": "1"}),
    variables("Google Batch, 4 tasks (environment as documented)",
              lambda task: {"BATCH_TASK_INDEX": str(task), "BATCH_TASK_COUNT": "4"}),
    Row("refused: prepare: LSF array, which tells no number of tasks", "variables",
        lambda bench: refused_prepare(bench, {"LSB_JOBINDEX": "2"}, "LSB_JOBINDEX", "--world-size")),
    Row("refused: prepare: PBS array, which tells no number of tasks", "variables",
        lambda bench: refused_prepare(bench, {"PBS_ARRAY_INDEX": "2"}, "PBS_ARRAY_INDEX", "--world-size")),
]  # fmt: skip


def refused_prepare(bench: Bench, env: dict[str, str], *says: str) -> Outcome:
    done = bench.call(bench.infeed, "prepare", bench.photos, bench.new("prepare") / "out", *SETTINGS, env=env)
    told = "refused" if done.code else "not refused"
    outcome = Outcome(ranks=1, nodes=1, told=told, note=error_of(done.words))
    if not done.code:
        outcome.wrong.append("an error, not a task that takes itself for the only one")
    outcome.wrong.extend(f"it says {word!r}" for word in says if done.code and word not in done.words)
    return outcome
